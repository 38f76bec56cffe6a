"""Why a launch ended that nobody asked to end: a class, and one sentence that says what to do."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

SIGKILL: Final = 9
_CRASHES: Final = MappingProxyType(
    {4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 11: "SIGSEGV", 31: "SIGSYS"}
)
_LONGEST_QUOTE: Final = 200


@dataclass(frozen=True, slots=True)
class FailureClass:
    """One class of failure: its stable code, what it means, and what to do."""

    code: str
    meaning: str
    advice: str
    patterns: tuple[re.Pattern[str], ...] = ()
    """What an engine prints when it fails in this way."""


def _kind(code: str, meaning: str, advice: str, *patterns: str) -> FailureClass:
    return FailureClass(code, meaning, advice, tuple(re.compile(pattern) for pattern in patterns))


# Engines print the cause first and echoes of it afterwards. A line is held against the classes in this order.
PRINTED: Final = (
    _kind(
        "port-in-use",
        "something else listens on the port",
        "the next start takes another port; if it happens again, look with `ss -ltnp` for who holds it",
        r"couldn't bind HTTP server socket",
        r"[Aa]ddress already in use",
        r"Port is already in use",
        r"EADDRINUSE",
    ),
    _kind(
        "bad-flag",
        "the engine does not take one of its arguments",
        "correct `arguments` in the profile, or install an engine version that knows the flag",
        r"error: invalid argument:",
        r"error while handling argument",
        r"expected value for argument",
        r"unrecognized arguments:",
        r"invalid choice:",
        r"error: argument ",
    ),
    _kind(
        "host-oom",
        "the machine's own memory was not enough",
        "set a smaller context_length, run fewer replicas on this node, or use a smaller quantisation",
        r"failed to allocate CPU\S* buffer",
        r"unable to allocate CPU\S* buffer",
        r"std::bad_alloc",
        r"Cannot allocate memory",
        r"Out of memory: Killed process",
        r"exit code: -9\b",
    ),
    _kind(
        "out-of-memory",
        "the device's memory was not enough",
        "set a smaller context_length, use a smaller quantisation, more devices, or a class with more memory",
        r"CUDA out of memory",
        r"cudaMalloc failed: out of memory",
        r"CUDA (driver )?error: out of memory",
        r"unable to allocate \S+ buffer",
        r"failed to allocate buffer for kv cache",
        r"failed to allocate compute \S* ?buffers",
        r"failed to allocate \S+ buffer",
        r"No available memory for the cache blocks",
        r"Free memory on device .* is less than desired",
    ),
    _kind(
        "disk-full",
        "the node's disk is full",
        "delete weights that nobody uses, or give the node's state folder a larger disk",
        r"No space left on device",
    ),
    _kind(
        "model-missing",
        "the weights are not where they should be",
        "check the model's source; the next start fetches the weights again if they are gone",
        r"failed to open GGUF file",
        r"failed to open \S+\.gguf",
        r"is not a local folder and is not a valid model identifier",
        r"Cannot find any model weights",
        r"[Nn]o such file or directory",
    ),
    _kind(
        "arch-unsupported",
        "this version of the engine does not know the model's architecture",
        "install a newer engine version on the node, or use other weights",
        r"unknown model architecture",
        r"error loading model hyperparameters",
        r"unknown pre-tokenizer type",
        r"unsupported (GGUF|file) version",
        r"Model architectures .* are not supported",
        r"does not recognize this architecture",
    ),
    _kind(
        "corrupt",
        "the weights are damaged or are not what the engine reads",
        "set the source's sha256 so that damage shows when fetching, and delete the file on the node to fetch it again",
        r"invalid magic",
        r"failed to read magic",
        r"not within the file bounds",
        r"corrupted or incomplete",
        r"failed to read (tensor|header|key)",
        r"missing tensor",
        r"wrong number of tensors",
        r"SafetensorError",
        r"Error while deserializing header",
    ),
    _kind(
        "driver",
        "the driver and the engine do not go together",
        "compare what `nvidia-smi` shows on the node; update the driver, or install an engine built for it",
        r"CUDA driver version is insufficient",
        r"NVIDIA driver on your system is too old",
        r"no kernel image is available",
        r"unsupported display driver / cuda driver combination",
        r"system not yet initialized",
    ),
    _kind(
        "gpu-fault",
        "a GPU failed",
        "look for Xid errors in the kernel's log of the node, `journalctl -k --grep Xid`, and at `nvidia-smi -q`",
        r"uncorrectable ECC error",
        r"unspecified launch failure",
        r"illegal memory access",
        r"GPU is lost",
        r"CUDA error:",
    ),
    _kind(
        "libraries",
        "a library that the engine needs is missing on the node",
        "install the engine anew on the node",
        r"error while loading shared libraries",
        r"GLIBC(XX)?_\S+' not found",
        r"undefined symbol:",
        r"ModuleNotFoundError",
        r"ImportError",
    ),
    _kind(
        "load-failed",
        "the engine could not load the weights",
        "read its last lines; try the same weights by hand on the node",
        r"exiting due to model loading error",
        r"error loading model",
        r"failed to load model",
    ),
)

# What the end itself says, when nothing was printed that we know.
KILLED: Final = _kind(
    "killed",
    "something outside llmgw ended the process",
    "look with `journalctl -k` for the kernel's out-of-memory killer, and ask who else may end processes there",
)
CRASHED: Final = _kind(
    "crashed",
    "the engine crashed",
    "read its last lines; if it happens again, try another engine version or other weights",
)
EXITED: Final = _kind(
    "exited",
    "the engine ended by itself, as if that were wanted",
    "nobody here asked it to: read its last lines, and look at its arguments",
)
UNKNOWN: Final = _kind("unknown", "the engine ended for a reason that is not known", "read its last lines")

# What the node itself finds, before or beside the engine.
FETCH_FAILED: Final = _kind(
    "fetch-failed", "the weights could not be fetched", "check the model's source, and whether the node may reach it"
)
CHECKSUM: Final = _kind(
    "checksum",
    "the weights are not those that were declared: their SHA-256 differs",
    "correct sha256 in the model's source, or find out who changed the file",
)
ENGINE_MISSING: Final = _kind(
    "engine-missing",
    "the node cannot start this engine",
    "install it, or set its path in the node's settings, then start the worker again",
)
LAUNCH_FAILED: Final = _kind(
    "launch-failed",
    "the operating system did not start the engine",
    "check that the program exists and may be executed by the worker's user",
)
NEVER_READY: Final = _kind(
    "never-ready",
    "the engine did not get ready in time",
    "read its last lines; if it only needs more time, raise `load_timeout_s` in the node's settings",
)
VANISHED: Final = _kind(
    "vanished",
    "the process is gone, and its end was not seen",
    "look at the machine's log for that time: a reboot, the out-of-memory killer, or somebody's hand",
)
# What the control plane finds.
ORDER_REFUSED: Final = _kind(
    "order-refused",
    "the node would not carry out the order to start",
    "mend what its answer names, such as a full disk or an older version; it is tried again by itself",
)

CLASSES: Final[Mapping[str, FailureClass]] = MappingProxyType(
    {
        kind.code: kind
        for kind in (
            *PRINTED,
            *(KILLED, CRASHED, EXITED, UNKNOWN),
            *(FETCH_FAILED, CHECKSUM, ENGINE_MISSING, LAUNCH_FAILED, NEVER_READY, VANISHED, ORDER_REFUSED),
        )
    }
)


def classify(tail: Sequence[str], exit_code: int | None, signal: int | None, *, before_ready: bool) -> tuple[str, str]:
    """Name the class of an end, and say it in a sentence.

    The first printed line that is known decides; only then how the process ended. An exit code of 0 is no excuse.
    """
    when = "before it served" if before_ready else "while it served"
    for line in tail:
        for kind in PRINTED:
            if any(pattern.search(line) for pattern in kind.patterns):
                return kind.code, _sentence(kind, f" ({when}): “{_quote(line)}”")
    kind, how = _by_end(exit_code, signal)
    return kind.code, _sentence(kind, f" ({how}, {when})")


def sentence(code: str, detail: str = "") -> str:
    """Say a class that the node found itself; `detail` holds the numbers: a path, an address, an amount."""
    return _sentence(CLASSES.get(code, UNKNOWN), f": {detail}" if detail else "")


def _by_end(exit_code: int | None, signal: int | None) -> tuple[FailureClass, str]:
    # A shell in between tells a signal as 128 + its number.
    told = signal or (exit_code - 128 if exit_code is not None and 128 < exit_code <= 128 + 31 else None)
    if told is not None and told in _CRASHES:
        return CRASHED, _CRASHES[told]
    if told is not None:
        return KILLED, "SIGKILL" if told == SIGKILL else f"signal {told}"
    if exit_code == 0:
        return EXITED, "exit code 0"
    return UNKNOWN, "its end was not seen" if exit_code is None else f"exit code {exit_code}"


def _sentence(kind: FailureClass, detail: str) -> str:
    return f"{kind.meaning}{detail} – {kind.advice}"


def _quote(line: str) -> str:
    told = line.strip()
    return told if len(told) <= _LONGEST_QUOTE else f"{told[: _LONGEST_QUOTE - 1]}…"
