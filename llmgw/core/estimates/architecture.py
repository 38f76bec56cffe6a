"""The shape of a language model, as far as memory and parallelism go by it; what is not told is None."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from llmgw.core.units import Bytes


class Attention(StrEnum):
    """What one layer keeps of the tokens before."""

    FULL = "full"
    """Keys and values of all tokens."""
    SLIDING = "sliding"
    """Those of the last `window` tokens."""
    CONSTANT = "constant"
    """A state of fixed size, however many tokens: Mamba, linear attention; layers without attention, too."""


@dataclass(frozen=True, slots=True)
class Quantization:
    """How the weights are stored."""

    method: str
    """As engines call it: `fp8`, `awq`, `gptq`, `mxfp4`, `nvfp4`, `compressed-tensors`."""
    block: tuple[int, int] | None = None
    """Rows and columns that share one scale."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """The language part of a model. The tower of a multimodal model for pictures or sound counts for nothing here."""

    kind: str | None = None
    """`model_type` of config.json, `general.architecture` of GGUF."""
    layers: int | None = None
    heads: int | None = None
    key_value_heads: int | None = None
    key_length: int | None = None
    """Elements of one head's key."""
    value_length: int | None = None
    hidden: int | None = None
    intermediate: int | None = None
    expert_intermediate: int | None = None
    experts: int | None = None
    vocabulary: int | None = None
    context: int | None = None
    """Tokens that it was made for."""
    dtype: str | None = None
    """Of the weights and, unless told otherwise, of the cache: `bfloat16`."""
    latent: int | None = None
    """With multi-head latent attention (MLA), elements per layer and token; key and value heads then count no more."""
    window: int | None = None
    attention: Mapping[Attention, int] | None = None
    """How many layers attend in which way; None where it is not known."""
    quantization: Quantization | None = None

    def count(self, kind: Attention) -> int | None:
        """Return how many layers attend in a way; None where that is not known."""
        return None if self.attention is None else self.attention.get(kind, 0)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A file that does not tell what it should."""

    file: str
    why: str

    def text(self) -> str:
        """Say it in one line."""
        return f"{self.file}: {self.why}"


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is known of a model's memory before it runs."""

    architecture: Architecture
    weights: Bytes | None = None
    """Of the files that an engine loads."""
