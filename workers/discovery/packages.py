"""Names diagnostic packages that are missing and what that costs, and installs them where the settings allow it."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

import structlog

from llmgw.core.hardware.findings import Problem, cut
from llmgw.core.hardware.network import LinkLayer, Port
from workers import tools
from workers.discovery import os_release
from workers.discovery.sources import Inquiry, Source
from workers.ports import Machine, ToolResult
from workers.settings import NodeSettings

log = structlog.get_logger(__name__)

STATUS: Final = Path("/proc/self/status")
FACT: Final = "diagnostic packages"
_AGAIN_S: Final = 3600.0
"""Until what failed is tried again: a mirror may be there by then."""


class Missing(NamedTuple):
    """A package, of which at least one tool that this machine needs is not there."""

    package: str
    tools: tuple[str, ...]
    costs: tuple[str, ...]
    """What is not known without each of them."""


# --- what is missing ----------------------------------------------------------------------------------------------


def missing(machine: Machine, ports: Sequence[Port], *, has_cards: bool) -> tuple[Missing, ...]:
    """Return what is missing of the packages that matter here: none for adapters that are not there."""
    lacking = [
        tool
        for tool in tools.TOOLS.values()
        if _matters(tool.package, ports, has_cards=has_cards) and not machine.which(tool.name)
    ]
    return tuple(
        Missing(
            package,
            tuple(tool.name for tool in lacking if tool.package == package),
            tuple(tool.costs for tool in lacking if tool.package == package),
        )
        for package in dict.fromkeys(tool.package for tool in lacking)
    )


def _matters(package: str, ports: Sequence[Port], *, has_cards: bool) -> bool:
    real = [port for port in ports if not port.is_software]
    match package:
        case "infiniband-diags":
            return any(port.link_layer is LinkLayer.INFINIBAND for port in real)
        case "perftest":
            return bool(real)
        case "pciutils":
            return has_cards or bool(real)
        case _:
            return False  # of every system, or of no package


def problems(lacking: Sequence[Missing], settings: NodeSettings) -> tuple[Problem, ...]:
    """Say in one line for each package what is missing and what that costs."""
    cure = "" if settings.install_packages else ", or set `install_packages` in the node's settings"
    return tuple(
        Problem(
            code=f"{each.package}.missing",
            fact=f"tools of {each.package}",
            text=f"{_listed(each.tools)} not installed, so it is not known: {'; '.join(each.costs)}"
            f" – install the package {each.package}{cure}",
        )
        for each in lacking
    )


def _listed(names: Sequence[str]) -> str:
    return f"{names[0]} is" if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]} are"


# --- installing ---------------------------------------------------------------------------------------------------


class Manager(NamedTuple):
    """A package manager: what it is told, and how it tells that it would touch what is there."""

    tool: str
    before: tuple[str, ...]
    """Environment for `env`: it must ask nobody, and restart nothing."""
    install: tuple[str, ...]
    pretend: tuple[str, ...]
    pretended: frozenset[int]
    """Exit codes of having pretended; one that was told to answer no ends with 1."""
    refresh: tuple[str, ...]
    """Fetches its lists anew; empty where it does so by itself."""
    changes: re.Pattern[str]
    """In what it prints when it pretends: something would be upgraded or removed."""
    unknown: re.Pattern[str]
    names: Mapping[str, str]
    """Our name of a package → its own; nothing else is ever installed."""


_NAMES: Final = MappingProxyType({name: name for name in ("infiniband-diags", "perftest", "pciutils")})
_APT_INSTALL: Final = ("install", "-y", "-q", "--no-install-recommends", "--no-upgrade", "--no-remove")
_APT: Final = Manager(
    tool="apt-get",
    before=("DEBIAN_FRONTEND=noninteractive", "NEEDRESTART_SUSPEND=1"),
    install=_APT_INSTALL,
    pretend=(*_APT_INSTALL, "--simulate"),
    pretended=frozenset({0}),
    refresh=("update", "-q"),
    changes=re.compile(r"^(?:Inst \S+ \[|Remv )", re.MULTILINE),
    unknown=re.compile(r"Unable to locate package|has no installation candidate"),
    names=_NAMES,
)
_DNF: Final = Manager(
    tool="dnf",
    before=(),
    install=("install", "-y", "--setopt=install_weak_deps=False"),
    pretend=("install", "--assumeno", "--setopt=install_weak_deps=False"),
    pretended=frozenset({0, 1}),
    refresh=(),
    changes=re.compile(r"^\s*(?:Upgrad|Downgrad|Remov|Replac|Obsolet|Reinstall)", re.MULTILINE),
    unknown=re.compile(r"Unable to find a match|No match for argument"),
    names=_NAMES,
)
_FAMILIES: Final = MappingProxyType(
    {"debian": _APT, "ubuntu": _APT, "fedora": _DNF, "rhel": _DNF, "centos": _DNF, "rocky": _DNF, "almalinux": _DNF}
)

_CAUSES: Final = (
    (
        re.compile(r"Could not get lock|Unable to acquire the dpkg|is another process using it"),
        "held-up",
        "another installation is under way; it is tried again in an hour",
    ),
    (
        re.compile(r"dpkg was interrupted"),
        "exit",
        "an earlier installation was broken off: run `dpkg --configure -a`",
    ),
    (re.compile(r"No space left|not enough free space|At least \S+ more space"), "exit", "the disk is full: make room"),
    (
        re.compile(
            r"Failed to (?:fetch|download)|Temporary failure resolving|Could not (?:connect|resolve)|Cannot download"
            r"|Curl error",
            re.IGNORECASE,
        ),
        "exit",
        "the package source cannot be reached: see to the mirror that this machine's package manager names",
    ),
)


def install(machine: Machine, settings: NodeSettings, packages: Sequence[str]) -> tuple[Problem, ...]:
    """Install packages from the machine's own sources; returns what went wrong, nothing if nothing did.

    Nothing else is upgraded or removed: the manager is first asked what it would do. Each of its runs has the limit
    of its tool (`tool_limits_s`); whoever calls this must have time.
    """
    manager = _manager(machine)
    if not settings.install_packages:
        return (_problem("not-allowed", "`install_packages` in the node's settings is false"),)
    if not _is_root(machine):
        return (_problem("not-allowed", "the worker does not run as root; install them by hand"),)
    if manager is None:
        return (_problem("missing", "this system has neither apt-get nor dnf; install them by hand"),)
    strange = [name for name in packages if name not in manager.names]
    if strange:
        return (_problem("not-allowed", f"{', '.join(strange)}: not among what may be installed"),)
    done = [_install(machine, settings, manager, manager.names[name]) for name in packages]
    return tuple(problem for problem in done if problem is not None)


def _install(machine: Machine, settings: NodeSettings, manager: Manager, name: str) -> Problem | None:
    """Install one package; each by itself, so that one that no source has does not hold up the others."""
    would = _run(machine, settings, manager, (*manager.pretend, name))
    if manager.refresh and manager.unknown.search(would.out + would.err):
        _run(machine, settings, manager, manager.refresh)
        would = _run(machine, settings, manager, (*manager.pretend, name))
    said = would.out + would.err
    if would.code not in manager.pretended or manager.unknown.search(said):
        return _failed(manager, name, would)
    if manager.changes.search(would.out):
        text = f"{manager.tool} would upgrade or remove others with it; install it by hand"
        return _problem("not-allowed", text, name, said)
    done = _run(machine, settings, manager, (*manager.install, name))
    if not done.ok:
        return _failed(manager, name, done)
    log.info("package installed", package=name, by=manager.tool)
    return None


def _run(machine: Machine, settings: NodeSettings, manager: Manager, arguments: Sequence[str]) -> ToolResult:
    program, env = machine.which(manager.tool), machine.which("env")
    if program is None or (manager.before and env is None):
        return ToolResult(None, problem="not found")
    before = (str(env), *manager.before) if manager.before else ()
    return machine.output((*before, program, *arguments), tools.limit(manager.tool, settings))


def _failed(manager: Manager, name: str, answer: ToolResult) -> Problem:
    said = answer.err.strip() or answer.out.strip()
    why, text = _reason(manager, answer)
    return _problem(why, text, name, said)


def _reason(manager: Manager, answer: ToolResult) -> tuple[str, str]:
    if manager.unknown.search(answer.out + answer.err):
        return "absent", f"no source of {manager.tool} has it; add one that does"
    if answer.problem.startswith("no answer"):
        more = " – `dpkg --configure -a` mends what was broken off" if manager is _APT else ""
        return "timeout", f"{manager.tool}: {answer.problem}{more}"
    if answer.problem:
        return "held-up", f"{manager.tool}: {answer.problem}"
    return _cause(answer.out + answer.err) or ("exit", f"{manager.tool} ended with {answer.code}")


def _cause(said: str) -> tuple[str, str] | None:
    return next(((why, text) for pattern, why, text in _CAUSES if pattern.search(said)), None)


def _problem(why: str, text: str, name: str = "", literal: str = "") -> Problem:
    fact = f"package {name}" if name else FACT
    return Problem(code=f"packages.{why}", fact=fact, text=f"{fact}: not installed: {text}", literal=cut(literal))


def _manager(machine: Machine) -> Manager | None:
    """Choose by what the system calls itself, else by which of the two is there."""
    text = machine.read_text(os_release.FILE) or ""
    told = " ".join(re.findall(r"^(?:ID|ID_LIKE)=[\"']?(.*?)[\"']?$", text, re.MULTILINE)).lower()
    by_name = [manager for word in told.split() if (manager := _FAMILIES.get(word))]
    return next((manager for manager in (*by_name, _APT, _DNF) if machine.which(manager.tool)), None)


def _is_root(machine: Machine) -> bool:
    """Read the effective user, the second of four."""
    found = re.search(r"^Uid:\s+\d+\s+(\d+)", machine.read_text(STATUS) or "", re.MULTILINE)
    return found is not None and found[1] == "0"


class Installer:
    """Installs in a thread of its own what is missing, once an hour at most, and tells what came of it."""

    def __init__(self, machine: Machine, settings: NodeSettings) -> None:
        """Take the machine; nothing is installed before something was found missing."""
        self._machine = machine
        self._settings = settings
        self._wanted: tuple[str, ...] = ()
        self._inquiry = Inquiry(Source("packages", self._install, _AGAIN_S), machine)

    def attend(self, lacking: Sequence[Missing]) -> tuple[Problem, ...]:
        """Begin to install what is missing, and return at once what came of the last try."""
        if not lacking:
            return ()
        before = self._inquiry.wait(0).value or ()
        self._wanted = tuple(each.package for each in lacking)
        self._inquiry.begin()
        return before

    def _install(self) -> tuple[Problem, ...]:
        return install(self._machine, self._settings, self._wanted)
