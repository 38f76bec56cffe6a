"""llama.cpp's server: its command line, and how to read its answers."""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from llmgw.core.engines.base import Command, LaunchFacts, Readiness, Reply
from llmgw.core.wanted import CPU_CLASS, Problem, Profile
from llmgw.core.wire import LaunchOrder

# Weights are on disk before an engine starts: nothing that an engine uses may go and look for more.
OFFLINE: Final = MappingProxyType(
    {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "DO_NOT_TRACK": "1",
    }
)

_WEIGHTS: Final = "set the model's source instead"
_THREADS: Final = "set cpu_threads in the node's settings"
_DEVICES: Final = "set device_classes and devices in the profile"
_CONTEXT: Final = "set context_length in the profile"
_ADDRESS: Final = "take it out: the node chooses where the engine listens"
_NAME: Final = "take it out: the engine serves under the model's name; add aliases to the model"
_PROBED: Final = "take it out: llmgw asks this endpoint itself"
_LOG: Final = "take it out: the node keeps the engine's output and bounds it"
_KEYS: Final = "take it out: clients are let in by the gateway, and the engine listens for the gateway only"
_CLOSED: Final = "take it out: it opens the node to whoever can send a request"
_ONE_MODEL: Final = "take it out: one engine serves one model; declare another model instead"
_NO_SERVER: Final = "take it out: with it the program prints and ends"

_OWNED_BY_CURE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "-m --model -mu --model-url -dr --docker-repo -hf -hfr --hf-repo -hff --hf-file -hft --hf-token --offline": (
            _WEIGHTS
        ),
        "-t --threads -tb --threads-batch": _THREADS,
        "-dev --device -ngl --gpu-layers --n-gpu-layers -sm --split-mode -ts --tensor-split -mg --main-gpu": _DEVICES,
        "-c --ctx-size": _CONTEXT,
        "--host --port --reuse-port --path --api-prefix": _ADDRESS,
        "-a --alias": _NAME,
        "--metrics --slots --no-slots --sleep-idle-seconds": _PROBED,
        "--log-disable --log-file --log-jsonl --log-colors --log-prompts-dir": _LOG,
        "--api-key --api-key-file --ssl-key-file --ssl-cert-file --cors-origins": _KEYS,
        "--rpc --props --tools --tools-runtime --mcp-servers-config --mcp-servers-json --agent -ag --media-path "
        "--slot-save-path --ui --webui --ui-mcp-proxy --webui-mcp-proxy": _CLOSED,
        "--models-dir --models-preset --models-max --models-autoload": _ONE_MODEL,
        "-h --help --usage --version -cl --cache-list --list-devices --completion-bash": _NO_SERVER,
    }
)
OWNED: Final[Mapping[str, str]] = MappingProxyType(
    {flag: cure for flags, cure in _OWNED_BY_CURE.items() for flag in flags.split()}
)
"""Every spelling of a flag that llmgw sets or keeps shut → what to do instead."""


# Half a dozen lines for each request, by newer and older versions; and that no key is set: the gateway asks for one.
_NOISE: Final = re.compile(
    r"(\S+ I )?(slot +(get_availabl|launch_slot_|print_timing|release|update_slots)|srv +(log_server_r|update_slots))"
    r"|\s*(prompt eval|eval|total) time ="
    r"|(\S+ W )?srv .*security: no API key is set"
)
_TROUBLE: Final = re.compile(r"error|fail", re.IGNORECASE)


class _ModelEntry(msgspec.Struct):
    id: str


class _ModelList(msgspec.Struct):
    data: list[_ModelEntry]


class _Slot(msgspec.Struct):
    is_processing: bool


class LlamaCpp:
    """`llama-server`, on CPUs and GPUs of one node."""

    name = "llamacpp"
    busy_path = "/slots"

    def profile_problems(self, profile: Profile) -> tuple[Problem, ...]:
        """Turn down what llama-server cannot be told, and flags that llmgw owns, in any spelling that it takes."""
        owned = (
            Problem(f"arguments[{i}]", "argument.owned", f"{flag} is set by llmgw", OWNED[flag])
            for i, argument in enumerate(profile.arguments)
            if (flag := plain_flag(argument)) in OWNED
        )
        return (*_beyond_llamacpp(profile), *owned)

    def command(self, order: LaunchOrder, facts: LaunchFacts) -> Command:
        """Build the command line; the operator's arguments come last, so that what is ours is read first in a log."""
        on_cpu = all(device == CPU_CLASS for device in order.devices)
        context = () if order.context_length is None else ("--ctx-size", str(order.context_length))
        argv = (
            *facts.program,
            *("--model", facts.weights, "--alias", order.model),
            *("--host", facts.host, "--port", str(facts.port)),
            *("--threads", str(facts.threads), "--threads-batch", str(facts.threads)),
            *context,
            *(("--device", "none") if on_cpu else ("--n-gpu-layers", "all")),
            *(("--split-mode", "layer") if len(order.devices) > 1 else ()),
            *("--metrics", "--slots", "--offline", "--no-webui"),
            *order.arguments,
        )
        visible = "" if on_cpu else ",".join(order.devices)
        return Command(argv, MappingProxyType({**OFFLINE, "CUDA_VISIBLE_DEVICES": visible}))

    def readiness(self, health: Reply, models: Reply, expected: str) -> Readiness:
        """Judge both answers: while it loads, llama-server answers 503 to everything."""
        if health.status == 0:
            return Readiness.NO_ANSWER
        if health.status >= 500 or (health.status == 200 and (models.status == 0 or models.status >= 500)):
            return Readiness.LOADING
        served = _served(models) if health.status == models.status == 200 else ()
        return Readiness.READY if expected in served else Readiness.FOREIGN

    def busy(self, reply: Reply) -> int | None:
        """Count the slots at work."""
        try:
            slots = msgspec.json.decode(reply.body, type=list[_Slot])
        except msgspec.DecodeError:
            return None
        return sum(slot.is_processing for slot in slots) if reply.status == 200 else None

    def is_noise(self, line: str) -> bool:
        """Know the lines about requests; one that tells of trouble is none of them."""
        return _NOISE.match(line) is not None and _TROUBLE.search(line) is None


def _beyond_llamacpp(profile: Profile) -> Iterator[Problem]:
    if profile.quantization is not None:
        message = "llama.cpp takes the quantisation that is in the GGUF file, and no other"
        cure = "leave quantization out, and choose by the model's source among files that are quantised differently"
        yield Problem("quantization", "quantization.in-weights", message, cure)
    if profile.nodes > 1:
        message = f"nodes is {profile.nodes}, but llama.cpp runs on one node"
        yield Problem("nodes", "engine.one-node", message, "set nodes to 1, or use an engine that spans nodes")
    if profile.tensor_parallel > 1:
        message = f"tensor_parallel is {profile.tensor_parallel}, but llama.cpp splits a model by its layers"
        cure = "set tensor_parallel to 1, and pipeline_parallel to the number of devices"
        yield Problem("tensor_parallel", "parallel.layers", message, cure)


def plain_flag(argument: str) -> str:
    """Reduce a spelling to the flag's own: `--ctx_size=4096` is `--ctx-size`, and `--no-webui` is `--webui`."""
    flag = argument.partition("=")[0]
    if not flag.startswith("--"):
        return flag.replace("-no-", "-") if flag.startswith("-no-") else flag
    flag = flag.replace("_", "-")
    return flag.replace("--no-", "--", 1) if flag.startswith("--no-") and flag not in OWNED else flag


def _served(models: Reply) -> tuple[str, ...]:
    try:
        listed = msgspec.json.decode(models.body, type=_ModelList)
    except msgspec.DecodeError:
        return ()
    return tuple(entry.id for entry in listed.data)
