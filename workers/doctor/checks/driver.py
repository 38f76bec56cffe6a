"""Whether the driver is whole: loaded, of one version, with its device files, and able to start CUDA."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from llmgw.core.hardware.findings import Severity
from llmgw.core.hardware.gpus import Gpu
from llmgw.core.units import counted
from workers import tools
from workers.discovery.nvidia.pci_cards import cards_on_pci
from workers.doctor.entry import Check, Fix, Group, Outcome, Patient, failed, not_here, passed, unknown, warned
from workers.doctor.reading.kernel_log import kernel_words
from workers.doctor.reading.starting import NotAsked, cuda
from workers.doctor.reading.words import listed, unanswered

_NONE: Final = "there is no NVIDIA card on this machine"
_NVIDIA: Final = "NVML, else nvidia-smi"
_DEV: Final = Path("/dev")
_CONTROL: Final = _DEV / "nvidiactl"
_ELSEWHERE: Final = f"cards are told, and {_CONTROL} is not there: this is not the machine that they are in"
_SYSTEM_NOT_READY: Final = 802
_FAST_S: Final = 2.0
_SLOW_S: Final = 10.0
"""Our own limits."""
_OPEN_ONLY: Final = (10, 0)
"""From this compute capability on, Blackwell's, there is the open module alone."""
_CLOSED_ONLY: Final = (7, 5)
"""Below this, Turing's, the open module knows no card."""


def _loaded(patient: Patient) -> Iterator[Outcome]:
    on_bus = cards_on_pci(patient.machine)
    driver = patient.inventory.driver
    if driver and driver.version:
        yield passed(f"NVIDIA driver {driver.version}", module=driver.module_version)
    elif on_bus or driver:
        said = next(
            (problem.text for problem in patient.inventory.problems if problem.fact == "gpus"), "it does not answer"
        )
        yield failed(said, cards=[card.address for card in on_bus])
    else:
        yield not_here(_NONE)


def _versions(patient: Patient) -> Iterator[Outcome]:
    driver = patient.inventory.driver
    if driver is None:
        yield not_here(_NONE)
    elif any(problem.code.endswith(".mismatch") for problem in patient.inventory.problems):
        yield failed("the NVIDIA libraries are of another version than the module that is loaded")
    elif not driver.version or not driver.module_version:
        yield unknown("the driver does not tell the versions of its library and its module")
    elif driver.version != driver.module_version:
        yield failed(f"library {driver.version}, module {driver.module_version}")
    else:
        yield passed(f"both are {driver.version}")


def _source(patient: Patient) -> Iterator[Outcome]:
    driver = patient.inventory.driver
    if driver is None or driver.source is None:
        yield not_here(_NONE)
    elif driver.source == "nvml" or patient.settings.nvml == "off":
        yield passed(f"told by {driver.source}")
    else:
        why = next((problem.text for problem in patient.inventory.problems if problem.code.startswith("nvml.")), "")
        yield warned(f"NVML does not answer: {why}")


# --- device files ---------------------------------------------------------------------------------------------------


def _is_here(patient: Patient) -> bool:
    """Tell whether the cards are in this machine: a recorded nvidia-smi tells of those of another."""
    return patient.machine.device_node(_CONTROL) is not None


def _device_nodes(patient: Patient) -> Iterator[Outcome]:
    minors = [gpu.minor_number for gpu in _living(patient) if gpu.minor_number is not None]
    if not patient.inventory.gpus:
        yield not_here(_NONE)
    elif not _is_here(patient):
        yield unknown(_ELSEWHERE)
    else:
        paths = [_CONTROL, _DEV / "nvidia-uvm", *(_DEV / f"nvidia{minor}" for minor in minors)]
        yield from _judge_nodes(patient, paths)


def _judge_nodes(patient: Patient, paths: list[Path]) -> Iterator[Outcome]:
    nodes = {path: patient.machine.device_node(path) for path in paths}
    missing = [str(path) for path, node in nodes.items() if node is None]
    shut = [str(path) for path, node in nodes.items() if node and not (node.readable and node.writable)]
    if missing:
        yield failed(f"{listed(missing)} is missing", missing=missing)
    if shut:
        yield failed(f"{listed(shut)} may not be opened by the user that the doctor runs as", shut=shut)
    if not missing and not shut:
        yield passed(f"{counted(len(paths), 'device file')} may be opened")


def _mig_nodes(patient: Patient) -> Iterator[Outcome]:
    folder = _DEV / "nvidia-caps"
    names = patient.machine.names_in(folder)
    if not any(gpu.instances for gpu in patient.inventory.gpus):
        yield not_here("no card is cut into instances")
    elif not _is_here(patient):
        yield unknown(_ELSEWHERE)
    elif not names:
        yield unknown(f"{folder} shows no file")
    else:
        nodes = {name: patient.machine.device_node(folder / name) for name in names}
        shut = [name for name, node in nodes.items() if node and not node.readable]
        yield failed(f"{listed(shut)} in {folder} may not be read") if shut else passed(f"{folder} may be read")


# --- CUDA -----------------------------------------------------------------------------------------------------------


def _living(patient: Patient) -> list[Gpu]:
    return [gpu for gpu in patient.inventory.gpus if not gpu.failed]


def _starts(patient: Patient) -> Iterator[Outcome]:
    if not _living(patient):
        yield not_here(_NONE)
    elif not _is_here(patient):
        yield unknown(_ELSEWHERE)
    else:
        yield _judge_start(patient)


def _judge_start(patient: Patient) -> Outcome:
    told = cuda(patient)
    if isinstance(told, NotAsked):
        return failed(f"CUDA does not start: {told.why}") if told.hangs else unknown(f"CUDA was not tried: {told.why}")
    if told.library is not None:
        return failed(f"libcuda cannot be loaded: {told.library}")
    if told.code:
        return failed(f"CUDA does not start: error {told.code} {told.name}".rstrip(), code=told.code)
    cards = _living(patient)
    # Of a card in MIG mode, CUDA offers one instance at most.
    if told.count != len(cards) and not any(gpu.mig_enabled for gpu in cards):
        return warned(f"CUDA starts and offers {told.count} of {len(cards)} cards", count=told.count)
    return passed(f"CUDA starts and offers {counted(told.count or 0, 'device')}", version=told.version)


def _address_layout(patient: Patient) -> Iterator[Outcome]:
    """Name the kernel where error 802 has no other cause: with NVSwitches it is the fabric manager's."""
    told = cuda(patient) if _living(patient) and _is_here(patient) else None
    if told is None:
        yield not_here(_NONE)
    elif isinstance(told, NotAsked) or told.library is not None:
        yield unknown("CUDA could not be tried")
    elif told.code != _SYSTEM_NOT_READY:
        yield passed("CUDA does not complain of it")
    elif patient.inventory.nvswitch is not None:
        yield unknown("CUDA says error 802, which the fabric manager explains, too: see to that first")
    else:
        yield failed("CUDA says error 802, and there are no NVSwitches that would explain it")


# --- the module -----------------------------------------------------------------------------------------------------


def _nouveau(patient: Patient) -> Iterator[Outcome]:
    modules = patient.machine.names_in(Path("/sys/module"))
    if not cards_on_pci(patient.machine):
        yield not_here(_NONE)
    elif not modules:
        yield unknown("/sys/module could not be read")
    elif "nouveau" in modules:
        yield failed("nouveau is loaded")
    else:
        yield passed("nouveau is not loaded")


def _kind_of_module(patient: Patient) -> Iterator[Outcome]:
    is_open = patient.inventory.driver.is_open if patient.inventory.driver else None
    told = [(gpu, found) for gpu in _living(patient) if (found := _capability(gpu))]
    if not told:
        yield not_here("no card tells its compute capability")
    elif is_open is None:
        yield unknown("the driver does not tell the kind of its module")
    else:
        wrong = [
            gpu for gpu, found in told if (found >= _OPEN_ONLY and not is_open) or (found < _CLOSED_ONLY and is_open)
        ]
        kind = "open" if is_open else "closed"
        cards = listed([gpu.called for gpu in wrong])
        yield (
            failed(f"{cards} cannot work with the {kind} module") if wrong else passed(f"the {kind} module serves them")
        )


def _capability(gpu: Gpu) -> tuple[int, int] | None:
    major, _, minor = (gpu.compute_capability or "").partition(".")
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None


def _signed(patient: Patient) -> Iterator[Outcome]:
    words = kernel_words(patient)
    refused = words.last(
        r"Key was rejected by service|module verification failed.*nvidia|Loading of unsigned module.*nvidia"
    )
    if not cards_on_pci(patient.machine):
        yield not_here(_NONE)
    elif patient.inventory.driver and patient.inventory.driver.module_version:
        yield passed("the module is loaded")
    elif words.unknown_because:
        yield unknown(f"what the kernel says of the module is not known: {words.unknown_because}")
    elif refused:
        yield failed("the kernel has turned the module down for its signature", literal=refused)
    else:
        yield passed("the kernel has turned no module down")


def _held(patient: Patient) -> Iterator[Outcome]:
    told = patient.machine.read_text(Path("/etc/apt/apt.conf.d/20auto-upgrades")) or ""
    if patient.inventory.driver is None:
        yield not_here(_NONE)
    elif 'Unattended-Upgrade "1"' not in told:
        yield not_here("nothing is updated by itself here, as far as apt is told")
    else:
        held = tools.ask(patient.machine, patient.settings, "apt-mark", "showhold")
        if not held.ok:
            yield unknown(f"which packages are held is not known: {held.problem or held.err}")
        elif "nvidia" in held.out:
            yield passed("packages of the driver are held")
        else:
            yield warned("packages are updated by themselves, and those of the driver are not held")


def _latency(patient: Patient) -> Iterator[Outcome]:
    """Time a call that lists the cards and no more; where no time passes, it is a recording that answers."""
    if not _living(patient):
        yield not_here(_NONE)
        return
    begun = patient.machine.monotonic()
    answer = tools.ask(patient.machine, patient.settings, "nvidia-smi", "-L")
    took = patient.machine.monotonic() - begun
    if answer.problem.startswith(("no answer", "held up")):
        yield failed(f"nvidia-smi -L: {answer.problem}")
    elif not answer.ok:
        yield unanswered("how long nvidia-smi takes", "nvidia-smi", answer)
    elif took <= 0:
        yield unknown("how long nvidia-smi takes is not known: a recording does not tell")
    else:
        say = passed if took < _FAST_S else warned if took < _SLOW_S else failed
        yield say(f"nvidia-smi -L takes {took:.1f} s", took_s=round(took, 3))


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        "driver.loaded",
        Group.DRIVER,
        "The NVIDIA driver is loaded",
        "/proc/driver/nvidia/version and the PCI bus",
        "fails where a card is on the bus and no driver answers",
        "no engine can use a card",
        Fix("install the driver, or build its module for this kernel", "dkms autoinstall && modprobe nvidia"),
        _loaded,
    ),
    Check(
        "driver.versions-match",
        Group.DRIVER,
        "The driver's library and its kernel module are of one version",
        _NVIDIA,
        "fails where they differ",
        "CUDA and nvidia-smi fail with a version mismatch",
        Fix("reboot, or unload and load the module while no engine runs"),
        _versions,
    ),
    Check(
        "driver.nvml",
        Group.DRIVER,
        "NVML answers",
        "a child process that asks it",
        "warns where nvidia-smi had to be asked instead",
        "a broken driver may be hidden behind it",
        Fix("see to what NVML said"),
        _source,
        worst=Severity.WARN,
    ),
    Check(
        "cuda.starts",
        Group.DRIVER,
        "CUDA starts, and offers every card",
        "a child process: cuInit, cuDeviceGetCount",
        "fails where CUDA does not start or does not come back, warns where it offers fewer cards",
        "no engine can use a card, however well nvidia-smi looks",
        Fix(
            "802: start the fabric manager; 803: reboot, library and module differ; 999: load nvidia-uvm anew; 100: "
            "see whether the device files may be opened; a hang: reboot"
        ),
        _starts,
    ),
    Check(
        "driver.latency",
        Group.DRIVER,
        "The driver answers at once",
        "the time of `nvidia-smi -L`",
        f"warns from {_FAST_S:g} s on, fails from {_SLOW_S:g} s on and where there is no answer in time",
        "engines take long to start; a driver that becomes slow is about to hang",
        Fix("switch persistence mode on (`gpu.persistence`); where it is on, see the kernel's log for Xid 119 and 120"),
        _latency,
    ),
    Check(
        "driver.device-nodes",
        Group.DRIVER,
        "Device files of the cards are there and may be opened",
        "/dev/nvidiactl, /dev/nvidia-uvm, /dev/nvidia*",
        "fails where one is missing or may not be read and written",
        "CUDA ends with error 100 or 999",
        Fix("have them made; give the worker's user the right to them", "nvidia-modprobe -u -c 0", safe=True),
        _device_nodes,
    ),
    Check(
        "mig.caps",
        Group.MIG,
        "Device files of MIG instances may be read",
        "/dev/nvidia-caps",
        "fails where there are instances and a file may not be read",
        "CUDA finds no device",
        Fix("have them made; give the worker's user the right to read them", "nvidia-modprobe -f nvidia-caps"),
        _mig_nodes,
    ),
    Check(
        "driver.nouveau",
        Group.DRIVER,
        "nouveau is not loaded",
        "/sys/module",
        "fails where it is, beside a card of NVIDIA's",
        "NVIDIA's driver cannot take the card",
        Fix("write `blacklist nouveau` into a file in /etc/modprobe.d, make the initramfs anew, reboot"),
        _nouveau,
    ),
    Check(
        "driver.open-module",
        Group.DRIVER,
        "The kernel module is of the kind that the cards need",
        "/proc/driver/nvidia/version, compute capability",
        "fails for Blackwell and later with the closed module, and for cards before Turing with the open one",
        "the driver does not find the card",
        Fix("install the other kind of the driver's kernel module"),
        _kind_of_module,
    ),
    Check(
        "driver.secure-boot",
        Group.DRIVER,
        "The kernel accepts the signature of the module",
        "the kernel's log",
        "fails where the module is not loaded and the kernel has turned it down",
        "the driver is not loaded",
        Fix("enrol the key that the module is signed with (`mokutil --import`), or switch Secure Boot off"),
        _signed,
    ),
    Check(
        "driver.held",
        Group.DRIVER,
        "The driver is not updated by itself",
        "/etc/apt/apt.conf.d/20auto-upgrades, `apt-mark showhold`",
        "warns where packages are updated by themselves and none of NVIDIA's is held",
        "one night library and module differ, and nothing new starts",
        Fix("hold the driver's packages: `apt-mark hold` with the names that `dpkg -l '*nvidia*'` lists"),
        _held,
        worst=Severity.WARN,
    ),
    Check(
        "kernel.address-layout",
        Group.KERNEL,
        "CUDA starts with this kernel's address layout",
        "cuInit in a child process",
        "fails for error 802 where there are no NVSwitches",
        "no engine can use a card",
        Fix("see this CUDA version's release notes for the kernel; boot with `nokaslr` on the kernel's command line"),
        _address_layout,
    ),
)
NOT_YET: Final[tuple[tuple[str, str, str], ...]] = ()
