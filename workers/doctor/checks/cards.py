"""Whether the driver and the cards are well; what is wrong with a card is judged by discovery, and told here."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from llmgw.core.hardware.findings import Finding, Severity
from llmgw.core.hardware.gpus import Gpu
from workers.discovery.nvidia.health import CODES
from workers.discovery.nvidia.pci_cards import cards_on_pci
from workers.doctor.entry import Check, Fix, Group, Outcome, Patient, failed, not_here, passed, unknown, warned

_NONE: Final = "there is no NVIDIA card on this machine"
_ON_NVSWITCH: Final = ("nvswitch.fabric-manager-down", "nvswitch.fabric-manager-version", "nvswitch.sxid")
_ON_IMEX: Final = (
    "imex.down",
    "imex.degraded",
    "imex.unconnected",
    "imex.versions",
    "imex.no-channel",
    "imex.stale-channel",
)


def _all_there(patient: Patient) -> Iterator[Outcome]:
    """Compare with what the settings expect, else with what is on the bus."""
    on_bus, there = len(cards_on_pci(patient.machine)), len([gpu for gpu in patient.inventory.gpus if not gpu.failed])
    wanted = patient.settings.expected_gpus if patient.settings.expected_gpus is not None else on_bus
    if not wanted and not there:
        yield not_here(_NONE)
    elif there < wanted:
        yield failed(f"{there} of {wanted} cards answer", on_bus=on_bus, answering=there)
    else:
        yield passed(f"{there} cards answer", on_bus=on_bus)


def _told_lately(patient: Patient) -> Iterator[Outcome]:
    if not patient.inventory.gpus:
        yield not_here(_NONE)
    elif patient.inventory.gpus_stale_since:
        yield failed("the driver tells nothing of its cards any more; what is said of them is what it told last")
    else:
        yield passed("the driver tells of its cards")


def _persistence(patient: Patient) -> Iterator[Outcome]:
    yield from _each(patient, lambda gpu: gpu.persistence_mode, "persistence mode")


def _ecc_on(patient: Patient) -> Iterator[Outcome]:
    yield from _each(patient, lambda gpu: gpu.ecc.enabled, "ECC")


def _each(patient: Patient, read: Callable[[Gpu], bool | None], what: str) -> Iterator[Outcome]:
    told = [(gpu, read(gpu)) for gpu in patient.inventory.gpus if not gpu.failed]
    known = [(gpu, value) for gpu, value in told if value is not None]
    if not known:
        yield not_here(f"no card knows {what}")
    for gpu, value in known:
        say = passed if value else warned
        outcome = say(f"{gpu.called}: {what} is {'on' if value else 'off'}", gpu.uuid or "")
        yield outcome if value else outcome.cured_by(index=gpu.for_smi)


def _display(patient: Patient) -> Iterator[Outcome]:
    told = [gpu for gpu in patient.inventory.gpus if gpu.display_active is not None]
    if not told:
        yield not_here("no card tells whether it has a display")
    for gpu in told:
        say = warned if gpu.display_active else passed
        yield say(f"GPU {gpu.index}: {'a' if gpu.display_active else 'no'} display is active on it", gpu.uuid or "")


def _same_vbios(patient: Patient) -> Iterator[Outcome]:
    by_name: dict[str, set[str]] = {}
    for gpu in patient.inventory.gpus:
        if gpu.name and gpu.vbios:
            by_name.setdefault(gpu.name, set()).add(gpu.vbios)
    if not by_name:
        yield not_here("no card tells its VBIOS")
    for name, versions in by_name.items():
        say = passed if len(versions) == 1 else warned
        yield say(f"{name}: {', '.join(sorted(versions))}")


def _temperature(patient: Patient) -> Iterator[Outcome]:
    """Judge by the degrees that are left: 3 and 10 are our own limits."""
    margins = [(gpu, left) for gpu in patient.inventory.gpus if (left := _left(gpu)) is not None]
    if not margins:
        yield not_here("no card tells how hot it may become")
    for gpu, left in margins:
        say = failed if left <= 3 else warned if left <= 10 else passed
        yield say(f"{gpu.called}: {left} °C below the point where it slows down", gpu.uuid or "")


def _left(gpu: Gpu) -> int | None:
    if gpu.temperature_margin_celsius is not None:
        return gpu.temperature_margin_celsius
    if gpu.temperature_celsius is None or gpu.temperature_slowdown_celsius is None:
        return None
    return gpu.temperature_slowdown_celsius - gpu.temperature_celsius


def _power_limit(patient: Patient) -> Iterator[Outcome]:
    told = [gpu for gpu in patient.inventory.gpus if gpu.power_limit_watts and gpu.power_limit_default_watts]
    if not told:
        yield not_here("no card tells its power limits")
    for gpu in told:
        limit, default = gpu.power_limit_watts or 0, gpu.power_limit_default_watts or 0
        say = warned if limit < default else passed
        yield say(f"{gpu.called}: {limit:g} W of {default:g} W", gpu.uuid or "").cured_by(
            index=gpu.for_smi, watts=f"{default:g}"
        )


def _mode_settled(patient: Patient) -> Iterator[Outcome]:
    able = [gpu for gpu in patient.inventory.gpus if gpu.mig_enabled is not None]
    if not able:
        yield not_here("no card can be cut into instances")
    for gpu in able:
        owed = gpu.mig_enabled_pending not in {None, gpu.mig_enabled}
        say = warned if owed else passed
        yield say(f"{gpu.called}: MIG {'is to change at its next reset' if owed else 'is settled'}", gpu.uuid or "")


def _carved(patient: Patient) -> Iterator[Outcome]:
    cut = [gpu for gpu in patient.inventory.gpus if gpu.mig_enabled]
    empty = {device.id for device in patient.inventory.devices if device.unhealthy_code == "device.mig-empty"}
    if not cut:
        yield not_here("no card is in MIG mode")
    for gpu in cut:
        say = warned if gpu.uuid in empty else passed
        yield say(f"{gpu.called}: {len(gpu.instances)} instances", gpu.uuid or "").cured_by(index=gpu.for_smi)


def _domain(patient: Patient) -> Iterator[Outcome]:
    domains = {gpu.fabric.domain for gpu in patient.inventory.gpus if gpu.fabric and not gpu.failed}
    if not domains - {None}:
        yield not_here("no card is in an NVLink domain over several nodes")
    elif len(domains) > 1:
        yield failed(f"the cards are in different NVLink domains: {', '.join(sorted(map(str, domains)))}")
    else:
        yield passed(f"all cards are in the NVLink domain {next(iter(domains))}")


# --- what discovery has found -------------------------------------------------------------------------------------


def _found(patient: Patient, codes: Iterable[str], *, is_there: bool, none: str) -> Iterator[Outcome]:
    """Tell a finding of discovery as the outcome of a check; nothing found is well, where there is what it is about."""
    wanted = set(codes)
    told = [finding for finding in patient.inventory.findings if finding.code in wanted]
    for finding in told:
        yield _outcome(finding)
    if not told:
        yield passed("nothing was found") if is_there else not_here(none)


def _outcome(finding: Finding) -> Outcome:
    say = failed if finding.severity is Severity.FAIL else warned
    evidence = {"finding": finding.code, "literal": finding.literal, "excludes": finding.excludes}
    return say(finding.text, finding.about, **evidence).cured_by(cure=finding.cure or "see the finding")


def _of_cards(code: str) -> Callable[[Patient], Iterator[Outcome]]:
    def judge(patient: Patient) -> Iterator[Outcome]:
        if patient.inventory.gpus_stale_since is not None:
            yield unknown("the driver tells nothing of its cards any more")
        else:
            yield from _found(patient, (code,), is_there=bool(patient.inventory.gpus), none=_NONE)

    return judge


def _of_switches(patient: Patient) -> Iterator[Outcome]:
    is_there = patient.inventory.nvswitch is not None
    yield from _found(patient, _ON_NVSWITCH, is_there=is_there, none="there are no NVSwitches on this machine")


def _of_imex(patient: Patient) -> Iterator[Outcome]:
    is_there = patient.inventory.imex is not None
    yield from _found(patient, _ON_IMEX, is_there=is_there, none="this machine is in no IMEX domain")


def _health_checks() -> Iterator[Check]:
    for code, entry in CODES.items():
        if code.startswith("device."):
            yield Check(
                id=f"gpu.{code.removeprefix('device.').removeprefix('unhealthy.')}",
                group=Group.GPUS,
                title=f"Not so: {entry.title[:1].lower()}{entry.title[1:]}",
                reads="NVML, else nvidia-smi; Xid errors from the kernel's log",
                rule=f"as the finding `{code}` says",
                costs=entry.costs,
                fix=Fix("{cure}"),
                judge=_of_cards(code),
            )


_NVIDIA: Final = "NVML, else nvidia-smi"
CHECKS: Final[tuple[Check, ...]] = (
    Check(
        "gpu.present",
        Group.GPUS,
        "Every card answers",
        "NVML against `expected_gpus`, else against the PCI bus",
        "fails where fewer cards answer than there should be",
        "engines start with fewer cards, or not at all",
        Fix("look at the kernel's log (`dmesg | grep NVRM`); power-cycle the machine; reseat the card"),
        _all_there,
    ),
    Check(
        "gpu.told",
        Group.GPUS,
        "The driver still tells of its cards",
        _NVIDIA,
        "fails where the last listing is old",
        "nothing new is placed on them",
        Fix("look at the kernel's log; reboot where the driver hangs"),
        _told_lately,
    ),
    Check(
        "gpu.persistence",
        Group.GPUS,
        "The driver stays initialised between engines",
        _NVIDIA,
        "warns where it is off",
        "the first start is slow, and settings and error counts are lost",
        Fix(
            "switch it on, or start nvidia-persistenced",
            "nvidia-smi -i {index} -pm 1",
            "nvidia-smi -i {index} -pm 0",
            safe=True,
        ),
        _persistence,
        worst=Severity.WARN,
    ),
    Check(
        "gpu.ecc-mode",
        Group.GPUS,
        "Error correction is on",
        _NVIDIA,
        "warns where it is off",
        "memory errors go unseen",
        Fix("switch it on; needs a reset", "nvidia-smi -i {index} -e 1"),
        _ecc_on,
        worst=Severity.WARN,
    ),
    Check(
        "gpu.vbios",
        Group.GPUS,
        "Cards of a kind have one VBIOS",
        _NVIDIA,
        "warns where they differ",
        "odd behaviour of one",
        Fix("flash them alike"),
        _same_vbios,
        worst=Severity.WARN,
    ),
    Check(
        "gpu.temperature",
        Group.GPUS,
        "Every card is cool enough",
        _NVIDIA,
        "warns 10 °C below the point where it slows down, fails at 3 °C",
        "it slows down",
        Fix("see to the air flow"),
        _temperature,
    ),
    Check(
        "gpu.power-limit",
        Group.GPUS,
        "No card is held below its power",
        _NVIDIA,
        "warns where the limit is below the default",
        "it is slower than its like",
        Fix("raise it", "nvidia-smi -i {index} -pl {watts}"),
        _power_limit,
        worst=Severity.WARN,
    ),
    Check(
        "gpu.display",
        Group.GPUS,
        "No display is attached to a compute card",
        _NVIDIA,
        "warns where one is active",
        "it holds memory of the card, and drawing slows down what is computed",
        Fix("attach it to another card or to the board's own; switch off a graphical session that nobody uses"),
        _display,
        worst=Severity.WARN,
    ),
    *_health_checks(),
    Check(
        "mig.settled",
        Group.MIG,
        "No change of MIG mode is pending",
        _NVIDIA,
        "warns where the modes differ",
        "the card is kept out until its reset",
        Fix("reset the card when it is idle"),
        _mode_settled,
        worst=Severity.WARN,
    ),
    Check(
        "mig.carved",
        Group.MIG,
        "Every card in MIG mode has instances",
        _NVIDIA,
        "warns where nothing is carved",
        "the card cannot be used",
        Fix("create instances, or switch MIG off", "nvidia-smi mig -i {index} -lgip"),
        _carved,
        worst=Severity.WARN,
    ),
    Check(
        "topology.domain",
        Group.TOPOLOGY,
        "All cards are in one NVLink domain",
        "cluster UUID and clique of each card",
        "fails where they differ",
        "NCCL falls back to the network, or hangs",
        Fix("reset the odd one; see the switch trays"),
        _domain,
    ),
    Check(
        "nvswitch.well",
        Group.NVSWITCH,
        "The NVSwitches and their fabric manager are well",
        "the PCI bus, systemd, `nv-fabricmanager --version`, SXid in the kernel's log",
        "fails where the manager is needed and not active, or of another version than the driver, and at a fatal SXid",
        "CUDA fails with error 802 though nvidia-smi looks well",
        Fix("{cure}"),
        _of_switches,
    ),
    Check(
        "imex.well",
        Group.IMEX,
        "The IMEX domain is up and every member connected",
        "nvidia-imex-ctl, channel devices",
        "warns where this node, a member or a channel is not ready",
        "engines over several nodes of the domain end with an error",
        Fix("{cure}"),
        _of_imex,
        worst=Severity.WARN,
    ),
)
NOT_YET: Final[tuple[tuple[str, str, str], ...]] = (
    ("gpu.pcie-generation", "No card is slowed down by its slot", "needs a look under load"),
    ("topology.p2p", "Cards reach each other directly", "needs `topo -p2p`"),
    ("mig.orphans", "No GPU instance is without a compute instance", "not made yet"),
    ("imex.config", "The IMEX configuration names the members and is not public", "not made yet"),
)
