"""Checks of what is installed around the engines, and of what this user may see."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from huggingface_hub.constants import ENDPOINT

from llmgw.core.hardware.findings import Severity
from workers import tools
from workers.doctor.checks import engines
from workers.doctor.checks.adapters import infiniband_ports
from workers.doctor.entry import Check, Fix, Group, Outcome, Patient, failed, not_here, passed, unknown, warned
from workers.doctor.reading.packages import newer_kernels, parse_glibc
from workers.doctor.reading.procfs import parse_owner, setting
from workers.doctor.reading.verbs import node_of
from workers.doctor.reading.words import listed, unanswered, whole

_OLDEST: Final = (2, 28)
_FOR_ALL: Final = (2, 34)
"""What the newest wheels of vLLM and SGLang were built for."""
_WITHOUT_COMPILER: Final = frozenset({"llamacpp"})
_COMPILERS: Final = {"C compiler": ("cc", "gcc", "clang"), "ninja": ("ninja", "ninja-build")}
_REBOOT: Final = Path("/var/run/reboot-required")
_REBOOT_FOR: Final = Path("/var/run/reboot-required.pkgs")
_BOOT: Final = Path("/boot")
_OSRELEASE: Final = Path("/proc/sys/kernel/osrelease")
_CAP_SYSLOG: Final = 34
_HUB_LIMIT_S: Final = "5"
_PROXY_WANTS_LOGIN: Final = 407


def _glibc(patient: Patient) -> Iterator[Outcome]:
    result = tools.ask(patient.machine, patient.settings, "ldd", "--version")
    said = result.out + result.err
    found = parse_glibc(said)
    text = "the C library is glibc {}.{}".format(*found) if found else ""
    if "musl" in said.lower():
        yield failed("the C library is musl, and engines are built for glibc")
    elif found is None:
        yield unanswered("the version of the C library", "ldd", result)
    elif found < _OLDEST:
        yield failed(f"{text}, too old for any engine")
    else:
        yield passed(text) if found >= _FOR_ALL else warned(f"{text}, too old for the newest engines (2.34)")


def _compiler(patient: Patient) -> Iterator[Outcome]:
    compiling = sorted(set(patient.inventory.engines) - _WITHOUT_COMPILER)
    missing = [what for what, names in _COMPILERS.items() if not any(map(patient.machine.which, names))]
    if not compiling:
        yield not_here("no engine here compiles anything when it starts")
    elif missing:
        yield failed(f"{listed(compiling)} compile when they start, and there is no {' and no '.join(missing)}")
    else:
        yield passed(f"what {listed(compiling)} compile with is there")


def _reboot(patient: Patient) -> Iterator[Outcome]:
    machine = patient.machine
    running = patient.inventory.kernel or (machine.read_text(_OSRELEASE) or "").strip()
    newer = newer_kernels(machine.names_in(_BOOT), running) if running else ()
    if not machine.read(_REBOOT).is_missing:
        packages = (machine.read_text(_REBOOT_FOR) or "").split()
        wanted = f" for {listed(sorted(set(packages)))}" if packages else ""
        yield warned(f"the system wants a reboot{wanted}", packages=packages)
    elif newer:
        yield warned(f"kernel {newer[-1]} is installed and {running} runs", installed=newer[-1], running=running)
    elif running:
        yield passed(f"kernel {running} runs, and no newer one waits")
    else:
        yield unknown("which kernel runs is not told")


def _rights(patient: Patient) -> Iterator[Outcome]:
    status = patient.machine.read_text(Path("/proc/self/status"))
    owner = parse_owner(status or "")
    if owner.uid is None:
        yield unknown("as whom this process runs is not told")
        return
    denied = list(_denied(patient, may_read_log=owner.may(_CAP_SYSLOG)))
    who = "root" if owner.is_root else f"user {owner.uid}"
    yield (
        warned(f"{who} may not see {listed(denied)}", denied=denied)
        if denied
        else passed(f"{who} may see all that the doctor looks at")
    )


def _denied(patient: Patient, *, may_read_log: bool) -> Iterator[str]:
    if setting(patient.machine, "kernel/dmesg_restrict") and not may_read_log:
        yield "the kernel's log"
    for port in infiniband_ports(patient):
        path = node_of(patient.machine, "umad", port.hca, port.port)
        node = patient.machine.device_node(path) if path else None
        if node and not (node.readable and node.writable):
            yield f"the subnet manager of {port.name}"


def _hub(patient: Patient) -> Iterator[Outcome]:
    if patient.settings.offline:
        yield not_here("this node is set to fetch nothing")
        return
    url, name = _without_login(patient.settings.hf_endpoint or ENDPOINT)
    options = ("-sS", "-I", "-o", "/dev/null", "-m", _HUB_LIMIT_S, "-w", "%{http_code}")
    result = tools.ask(patient.machine, patient.settings, "curl", *options, "--", url)
    status = whole(result.out)
    if result.code is None:
        yield unanswered(f"whether {name} can be reached", "curl", result)
    elif not status or status == _PROXY_WANTS_LOGIN:
        yield warned(f"{name} cannot be reached: {result.err.strip() or 'the proxy asks for a login'}")
    else:
        yield warned(f"{name} answers with {status}") if status >= 500 else passed(f"{name} answers")


def _without_login(url: str) -> tuple[str, str]:
    """Return an address without user and password, which would be seen in the list of processes, and its host."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=place).geturl(), place


CHECKS: Final[tuple[Check, ...]] = (
    *engines.CHECKS,
    Check(
        id="software.glibc",
        group=Group.SOFTWARE,
        title="The C library is new enough for engines",
        reads="ldd --version",
        rule="Fails below glibc 2.28 and for musl, warns below 2.34.",
        costs="`GLIBC_2.xx not found`, or the package cannot be installed at all.",
        fix=Fix("Use a newer system, or engines in containers."),
        judge=_glibc,
    ),
    Check(
        id="software.compiler",
        group=Group.SOFTWARE,
        title="Engines that compile find a compiler",
        reads="PATH: cc, ninja",
        rule="Fails where one is missing on a node with an engine that compiles; llama.cpp does not.",
        costs="The engine fails at its first request.",
        fix=Fix("Install a C compiler and ninja."),
        judge=_compiler,
    ),
    Check(
        id="software.reboot",
        group=Group.SOFTWARE,
        title="The system waits for no reboot",
        reads=f"{_REBOOT}, {_BOOT}/vmlinuz-*",
        rule="Warns where the system says so, and for a newer kernel of the same flavour than the running one.",
        costs="After the next start the driver may not fit the kernel; until then, known faults stay.",
        fix=Fix("Drain the node and reboot it when you can see to it."),
        judge=_reboot,
        worst=Severity.WARN,
    ),
    Check(
        id="software.rights",
        group=Group.SOFTWARE,
        title="This user may see what the doctor looks at",
        reads="/proc/self/status, /proc/sys/kernel/dmesg_restrict, /dev/infiniband/umad*",
        rule="Warns with what may not be seen.",
        costs="Checks answer `unknown`; Xid errors are not noticed.",
        fix=Fix(
            "Give the worker's user the groups `adm` or `systemd-journal`, and that of /dev/infiniband; or run the "
            "doctor once as root."
        ),
        judge=_rights,
        worst=Severity.WARN,
    ),
    Check(
        id="software.hub",
        group=Group.SOFTWARE,
        title="The hub that weights come from can be reached",
        reads="curl -I, given up after 5 s",
        rule="Warns where it does not answer, or with an error of its own; not looked at where `offline` is set.",
        costs="Weights that are not here cannot be fetched.",
        fix=Fix(
            "Set hf_endpoint to a mirror, a proxy in the unit's environment, or offline = true where that is meant."
        ),
        judge=_hub,
        worst=Severity.WARN,
    ),
)
NOT_YET: Final[tuple[tuple[str, str, str], ...]] = (
    ("software.torch", "PyTorch sees the cards", "needs an engine of PyTorch, which llmgw does not offer yet"),
    (
        "software.versions",
        "Engines are of one version on all nodes of a group",
        "needs the other nodes beside this one",
    ),
)
