"""What each engine needs of hardware and of a profile, those too that llmgw plans for and cannot start yet."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple


@dataclass(frozen=True, slots=True)
class Needs:
    """One engine."""

    engine: str
    spans_nodes: bool = True
    """Whether one replica may run on several nodes."""
    owned: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Flag that llmgw sets itself → what to do instead."""


_PARALLEL: Final = "set tensor_parallel, pipeline_parallel and nodes in the profile"
_ADDRESS: Final = "take it out: the node chooses where the engine listens"
_MEMORY: Final = "take it out: the share of a card is worked out from what is free on it"
_NAME: Final = "take it out: the engine serves under the model's name; add aliases to the model"
_KEY: Final = "take it out: clients are let in by the gateway, and the engine listens for the gateway only"
_MEET: Final = "take it out: where shards meet is chosen with their places"
_CONTEXT: Final = "set context_length in the profile"
_WEIGHTS: Final = "set the model's source instead"
_QUANTIZATION: Final = "set quantization in the profile"


def _owned(by_cure: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType({flag: cure for flags, cure in by_cure.items() for flag in flags.split()})


# Flags: `vllm serve --help` (0.6 to 0.15) and `python -m sglang.launch_server --help` (0.4, 0.5).
_VLLM: Final = _owned(
    {
        "--tensor-parallel-size -tp --pipeline-parallel-size -pp --nnodes --distributed-executor-backend": _PARALLEL,
        "--host --port --uds --root-path": _ADDRESS,
        "--gpu-memory-utilization --kv-cache-memory-bytes": _MEMORY,
        "--served-model-name": _NAME,
        "--api-key --ssl-keyfile --ssl-certfile": _KEY,
        "--node-rank --master-addr --master-port --headless --data-parallel-address": _MEET,
        "--max-model-len": _CONTEXT,
        "--model --download-dir --revision": _WEIGHTS,
        "--quantization -q": _QUANTIZATION,
    }
)
_SGLANG: Final = _owned(
    {
        "--tp-size --tensor-parallel-size --tp --pp-size --pipeline-parallel-size --pp --nnodes": _PARALLEL,
        "--host --port": _ADDRESS,
        "--mem-fraction-static --base-gpu-id --gpu-id-step": _MEMORY,
        "--served-model-name": _NAME,
        "--api-key --admin-api-key --ssl-keyfile": _KEY,
        "--node-rank --dist-init-addr --nccl-init-addr --nccl-port": _MEET,
        "--context-length": _CONTEXT,
        "--model-path --model --download-dir --revision": _WEIGHTS,
        "--quantization": _QUANTIZATION,
    }
)
NEEDS: Final[Mapping[str, Needs]] = MappingProxyType(
    {
        each.engine: each
        for each in (
            Needs("llamacpp", spans_nodes=False),
            Needs("vllm", owned=_VLLM),
            Needs("sglang", owned=_SGLANG),
        )
    }
)
"""Each engine by the word in a profile."""

_LOWEST: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {
        "fp8": (8, 9),
        "compressed-tensors": (7, 0),
        "modelopt": (8, 0),
        "nvfp4": (7, 5),
        "mxfp4": (8, 0),
        "awq": (7, 5),
        "gptq": (6, 0),
    }
)
"""Quantisation → the compute capability from which on its own kernels run; `get_min_capability` of vLLM's classes.

fp8 as 8.9: below, newer versions unpack the weights for each use, which saves memory and is no faster.
"""
_OF_ENGINE: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {"vllm": (7, 0), "sglang": (7, 5), "llamacpp": (5, 0)}
)


class Least(NamedTuple):
    """The compute capability that a card must have at least, and for what."""

    version: tuple[int, int]
    what: str

    @property
    def text(self) -> str:
        """Write it as the driver does."""
        return f"{self.version[0]}.{self.version[1]}"


def least_capability(engine: str, quantization: str | None) -> Least:
    """Return what a card must have at least for an engine, and for weights that are stored in a way."""
    of_engine = Least(_OF_ENGINE.get(engine, (0, 0)), engine)
    word = (quantization or "").lower()
    of_weights = next((Least(least, name) for name, least in _LOWEST.items() if word.startswith(name)), of_engine)
    return max(of_engine, of_weights, key=lambda least: least.version) if engine != "llamacpp" else of_engine


def capability_of(text: str) -> tuple[int, int] | None:
    """Read a compute capability as the driver writes it; None for what is none."""
    major, _, minor = text.partition(".")
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None
