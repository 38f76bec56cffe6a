"""The node's own settings: a TOML file, overridden by the environment; whatever is wrong is told with its cure."""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

import msgspec

from llmgw.core.hardware.fabrics import DeclaredFabric
from llmgw.core.units import GIB, MIB, Bytes

PREFIX: Final = "LLMGW_NODE_"
FILE_VARIABLE: Final = f"{PREFIX}SETTINGS"
"""Names the settings file when the command line does not."""
REQUIRED: Final = ("id", "redis_url", "state")
"""What a worker cannot guess; the other commands do without."""

_LOG_BYTES: Final = Bytes(10 * MIB)
_RESERVE: Final = Bytes(GIB)


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What a node is told before it meets its control plane."""

    id: str = ""
    redis_url: str = field(default="", repr=False)  # may hold a password
    state: Path = Path("/var/lib/llmgw-node")
    address: str = "127.0.0.1"
    """Where the control plane and the router reach this node."""
    cpu_threads: int | None = None
    """Threads of an engine on the CPU; None is half of the CPUs."""
    cpu_slots: int = 2
    """How many engines may share the CPU."""
    llama_server: str | None = None
    """Path of llama-server; None looks on PATH, then for xllamacpp."""
    engine_host: str = ""
    """What engines listen on; the node's address unless told otherwise."""
    engine_ports: tuple[int, int] = (20000, 20999)
    """First and last port for engines; below the range that the kernel hands out by itself."""
    engine_log_bytes: Bytes = _LOG_BYTES
    load_timeout_s: int = 3600
    """Seconds from an engine's start until it must have served for the first time; 0 waits for ever."""
    memory_reserve_bytes: Bytes = _RESERVE
    """Main memory that engines on the CPU must leave alone."""
    nvidia_smi: str = "nvidia-smi"
    nvml: str = "auto"
    """`auto`, `off`, or the path of libnvidia-ml."""
    sysfs: Path = Path("/sys")
    """Where the kernel's tree of devices is."""
    proc: Path = Path("/proc")
    """Where the kernel's tree of processes is."""
    tools: Path | None = None
    """A folder in which outside tools are looked for before PATH."""
    tool_limits_s: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Seconds that one call of a tool may take, by its name; `nvml` is one of them."""
    fabrics: tuple[DeclaredFabric, ...] = ()
    """The fabrics that this node's adapters are on."""
    expected_gpus: int | None = None
    """How many cards this machine was bought with; None believes what is seen on PCI."""
    install_packages: bool = False
    """Whether missing diagnostic packages may be installed from the machine's own sources."""
    inventory_s: int = 60
    """Seconds between two looks at the whole machine; a port that changes its state is seen at the next heartbeat."""
    doctor_s: int = 3600
    """Seconds between two runs of the doctor in the worker; 0 is never."""
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    hf_endpoint: str | None = None
    """Where `hf://` sources are fetched from; None is the hub itself."""
    hf_token_file: Path | None = None
    offline: bool = False
    """Fetch nothing over the network."""
    log_level: str = ""
    """Of this worker and all its libraries; without it, what LLMGW_LOG_LEVEL says, or `info`."""

    def __post_init__(self) -> None:
        """Fill in what follows from another field."""
        if not self.engine_host:
            object.__setattr__(self, "engine_host", self.address)


@dataclass(frozen=True, slots=True)
class WrongSetting:
    """One setting that cannot be used."""

    code: ClassVar[str] = "settings.wrong"
    key: str
    where: str
    """The file or the environment variable that says it."""
    what: str
    cure: str

    def text(self) -> str:
        """Say it in one line."""
        return ": ".join(part for part in (self.where, self.key, self.what) if part) + f" – {self.cure}"


# --- kinds of values ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kind:
    """How a value is told, read and checked. `read` raises ValueError for a value that is no such thing."""

    expected: str
    read: Callable[[Any], Any]
    from_text: Callable[[str], Any] = str
    """Turns an environment variable into what a TOML file would have said."""


def _must(*, hold: bool) -> None:
    if not hold:
        raise ValueError


def _text(pattern: str, expected: str) -> Kind:
    def read(value: Any) -> str:
        _must(hold=isinstance(value, str) and re.fullmatch(pattern, value) is not None)
        return str(value)

    return Kind(expected, read)


def _whole(low: int, high: int | None = None) -> Kind:
    def read(value: Any) -> int:
        _must(hold=type(value) is int and value >= low and (high is None or value <= high))
        return int(value)

    return Kind(f"a whole number from {low} to {high}" if high else f"a whole number, {low} or more", read, int)


def _read_flag(value: Any) -> bool:
    _must(hold=isinstance(value, bool))
    return bool(value)


def _read_path(value: Any) -> Path:
    _must(hold=isinstance(value, str) and value != "" and "\0" not in value)
    return Path(value).expanduser()


def _read_ports(value: Any) -> tuple[int, int]:
    _must(hold=isinstance(value, list) and len(value) == 2)
    first, last = (_PORT.read(number) for number in value)
    _must(hold=first <= last)
    return first, last


def _read_labels(value: Any) -> Mapping[str, str]:
    _must(hold=isinstance(value, Mapping))
    _must(hold=all(isinstance(text, str) and key and text for key, text in value.items()))
    return MappingProxyType(dict(value))


def _read_redis_url(value: Any) -> str:
    _must(hold=isinstance(value, str))
    parts = urlsplit(value)
    _must(hold=parts.scheme in {"redis", "rediss"} and bool(parts.hostname) and parts.port != 0)
    return str(value)


def _read_limits(value: Any) -> Mapping[str, float]:
    _must(hold=isinstance(value, Mapping) and all(isinstance(name, str) and name for name in value))
    _must(hold=all(type(limit) in {int, float} and 0 < limit <= _LONGEST_S for limit in value.values()))
    return MappingProxyType({name: float(limit) for name, limit in value.items()})


def _read_fabrics(value: Any) -> tuple[DeclaredFabric, ...]:
    """Read `[fabrics.<name>]` tables: `ports`, and where wanted `interface`, `rate_gbps`, `rail_only`."""
    _must(hold=isinstance(value, Mapping) and all(isinstance(table, Mapping) for table in value.values()))
    return tuple(_fabric(name, table) for name, table in value.items())


def _fabric(name: Any, table: Mapping[str, Any]) -> DeclaredFabric:
    declared = msgspec.convert({**table, "name": name}, _StrictFabric)  # its ValidationError is a ValueError
    _must(hold=re.fullmatch(_NAME, declared.name) is not None and len(declared.ports) > 0)
    _must(hold=all(re.fullmatch(r"[A-Za-z0-9_.-]+(:[1-9]\d{0,2})?", port) for port in declared.ports))
    _must(hold=len({port.removesuffix(":1") for port in declared.ports}) == len(declared.ports))
    _must(hold=declared.rate_gbps is None or declared.rate_gbps > 0)
    return DeclaredFabric(**msgspec.structs.asdict(declared))


class _StrictFabric(DeclaredFabric, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A misspelt key of an operator is told, not passed over."""


def fabrics_from_text(text: str) -> dict[str, Any]:
    """Read `compute=mlx5_0,mlx5_1:2;storage=mlx5_4`; raises ValueError for what is no such text."""
    pairs = (part.split("=", 1) for part in text.split(";") if part.strip())
    return {name.strip(): {"ports": [port.strip() for port in ports.split(",")]} for name, ports in pairs}


def _limits_from_text(text: str) -> dict[str, float]:
    return {name: float(limit) for name, limit in _labels_from_text(text).items()}


def _flag_from_text(text: str) -> bool:
    return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[text.lower()]


def _ports_from_text(text: str) -> list[int]:
    return [int(number) for number in text.split("-")]


def _labels_from_text(text: str) -> dict[str, str]:
    pairs = (pair.split("=", 1) for pair in text.split(",") if pair.strip())
    return {key.strip(): value.strip() for key, value in pairs}


_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
_LONGEST_S: Final = 3600
_ANY: Final = _text(r"\S(.*\S)?", "text")
_HOST: Final = _text(r"[A-Za-z0-9._:%-]+", "a host name or an IP address")
_PATH: Final = Kind("a path", _read_path)
_PORT: Final = _whole(1024, 65535)

KEYS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        "id": _text(_NAME, "1 to 63 letters, digits, dots, dashes and underscores"),
        "redis_url": Kind("an address such as redis://10.0.0.5:6379/0", _read_redis_url),
        "state": _PATH,
        "address": _HOST,
        "cpu_threads": _whole(1, 4096),
        "cpu_slots": _whole(0, 1024),
        "llama_server": _ANY,
        "engine_host": _HOST,
        "engine_ports": Kind(
            "the first and the last port, 1024 to 65535, such as [20000, 20999]", _read_ports, _ports_from_text
        ),
        "engine_log_bytes": _whole(64 * 1024),
        "load_timeout_s": _whole(0),
        "memory_reserve_bytes": _whole(0),
        "nvidia_smi": _ANY,
        "nvml": _text(r"auto|off|/.+", "auto, off, or the absolute path of libnvidia-ml"),
        "sysfs": _PATH,
        "proc": _PATH,
        "tools": _PATH,
        "tool_limits_s": Kind(
            "a table of seconds, up to an hour, such as {sminfo = 5}", _read_limits, _limits_from_text
        ),
        "fabrics": Kind(
            'tables such as [fabrics.compute] with ports = ["mlx5_0", "mlx5_1:2"], and where wanted interface, '
            "rate_gbps and rail_only; as text compute=mlx5_0,mlx5_1:2",
            _read_fabrics,
            fabrics_from_text,
        ),
        "expected_gpus": _whole(0, 1024),
        "install_packages": Kind("true or false", _read_flag, _flag_from_text),
        "inventory_s": _whole(1),
        "doctor_s": _whole(0),
        "labels": Kind('a table of texts, such as {rack = "a"}', _read_labels, _labels_from_text),
        "hf_endpoint": _text(r"https?://\S+", "an address that begins with http:// or https://"),
        "hf_token_file": _PATH,
        "offline": Kind("true or false", _read_flag, _flag_from_text),
        "log_level": _text(r"debug|info|warning|error", "debug, info, warning or error"),
    }
)


# --- reading ------------------------------------------------------------------------------------------------------


def read_settings(
    file: Path | None, environ: Mapping[str, str], required: tuple[str, ...] = REQUIRED
) -> NodeSettings | tuple[WrongSetting, ...]:
    """Read the file, if any, then the environment over it; everything that is wrong is told at once."""
    document = _document(file) if file else {}
    if isinstance(document, WrongSetting):
        return (document,)
    found = [*_from_file(document, file), *_from_environment(environ)]
    values = {key: value for key, value in found if not isinstance(value, WrongSetting)}
    wrong = tuple(value for _, value in found if isinstance(value, WrongSetting))
    missing = tuple(_missing(key, file) for key in required if key not in dict(found))
    if wrong or missing:
        return wrong + missing
    return NodeSettings(**values)


def _document(file: Path) -> dict[str, Any] | WrongSetting:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        return WrongSetting("", str(file), f"cannot be read: {error.strerror}", "name a readable file with --settings")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        return WrongSetting("", str(file), f"is not TOML: {error}", "correct the file there")


def _from_file(document: Mapping[str, Any], file: Path | None) -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        read = _checked(key, value, str(file))
        is_relative = isinstance(read, Path) and file is not None
        yield key, file.absolute().parent / read if is_relative and file else read


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    for name, text in sorted(environ.items()):
        if name.startswith(PREFIX) and name != FILE_VARIABLE and text:
            key = name.removeprefix(PREFIX).lower()
            read = _checked(key, text, name, from_text=True)
            yield key, read.absolute() if isinstance(read, Path) else read


def _checked(key: str, value: Any, where: str, *, from_text: bool = False) -> Any:
    kind = KEYS.get(key)
    if kind is None:
        return WrongSetting(key, where, "is no setting of a node", f"use one of: {', '.join(KEYS)}")
    try:
        return kind.read(kind.from_text(value) if from_text else value)
    except (ValueError, KeyError):
        # The value is not repeated: a password may be in it.
        return WrongSetting(key, where, "cannot be used", f"give {kind.expected}")


def _missing(key: str, file: Path | None) -> WrongSetting:
    variable = PREFIX + key.upper()
    cure = f"give {KEYS[key].expected}, in the settings file or as {variable}"
    return WrongSetting(key, str(file or "settings"), "is missing", cure)
