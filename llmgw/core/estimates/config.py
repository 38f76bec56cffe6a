"""Reads a model's config.json, in the spellings of Transformers' model classes; what is odd is left unknown.

Names: the configuration classes of Hugging Face Transformers, and the published files of the families in the tests.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from llmgw.core.estimates.architecture import Architecture, Attention, Quantization, Unreadable

_NESTED: Final = ("text_config", "llm_config", "language_config", "thinker_config", "model_config")
"""Where multimodal models keep their language part; one may stand within the other."""
_MOST_LAYERS: Final = 10_000
_KINDS: Final[Mapping[str, Attention]] = {
    "full_attention": Attention.FULL,
    "attention": Attention.FULL,
    "sliding_attention": Attention.SLIDING,
    "chunked_attention": Attention.SLIDING,
    "local_attention": Attention.SLIDING,
    "linear_attention": Attention.CONSTANT,
    "mamba": Attention.CONSTANT,
    "mamba2": Attention.CONSTANT,
    "recurrent": Attention.CONSTANT,
    "conv": Attention.CONSTANT,
    "mlp": Attention.CONSTANT,
    "moe": Attention.CONSTANT,
}
"""Words of `layer_types` and its older spellings."""
_PATTERN: Final[Mapping[str, Attention]] = {"*": Attention.FULL, "M": Attention.CONSTANT, "-": Attention.CONSTANT}
"""Letters of Nemotron-H's `hybrid_override_pattern`."""
_ALTERNATING: Final[Mapping[str, int]] = {"gemma2": 2, "gemma3_text": 6, "gemma3": 6, "cohere2": 4}
"""Model types whose every n-th layer attends to all, where their older files do not say so."""


def parse(text: str, quantization: str = "") -> Architecture | Unreadable:
    """Read config.json and, where the repository has one, hf_quant_config.json; raises nothing."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return Unreadable("config.json", "is no JSON")
    if not isinstance(document, dict):
        return Unreadable("config.json", "holds no mapping")
    told = _language_part(document)
    layers = _count(told, "num_hidden_layers", "n_layer", "num_layers", "n_layers")
    if layers is None or layers > _MOST_LAYERS:
        return Unreadable("config.json", "does not tell how many layers the model has")
    return _architecture(told, document, layers, _quantization(told, document) or _model_opt(quantization))


def _language_part(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Go down to the language model; what it leaves out may stand above."""
    told = document
    for _ in _NESTED:
        inner = next((told[name] for name in _NESTED if isinstance(told.get(name), dict)), None)
        if inner is None:
            break
        told = {**{key: value for key, value in told.items() if key in {"torch_dtype", "dtype"}}, **inner}
    return told


def _architecture(
    told: Mapping[str, Any], document: Mapping[str, Any], layers: int, quantization: Quantization | None
) -> Architecture:
    heads = _count(told, "num_attention_heads", "n_head", "n_heads")
    hidden = _count(told, "hidden_size", "n_embd", "d_model")
    length = _count(told, "head_dim", "attention_head_dim") or (hidden // heads if hidden and heads else None)
    window = _count(told, "sliding_window", "attention_chunk_size")
    attention = _attention(told, layers, window)
    return Architecture(
        kind=_word(told, "model_type") or _word(document, "model_type"),
        layers=layers,
        heads=heads,
        key_value_heads=_count(told, "num_key_value_heads", "num_kv_heads", "n_head_kv") or _multi_query(told, heads),
        key_length=length,
        value_length=length,
        hidden=hidden,
        intermediate=_count(told, "intermediate_size", "ffn_hidden_size", "n_inner"),
        expert_intermediate=_count(told, "moe_intermediate_size"),
        experts=_count(told, "num_local_experts", "num_experts", "n_routed_experts"),
        vocabulary=_count(told, "vocab_size"),
        context=_count(told, "max_position_embeddings", "n_positions", "max_sequence_length", "seq_length"),
        dtype=_word(told, "torch_dtype", "dtype"),
        latent=_latent(told),
        window=window if attention is None or Attention.SLIDING in attention else None,
        attention=None if attention is None else Counter(attention),
        quantization=quantization,
    )


def _multi_query(told: Mapping[str, Any], heads: int | None) -> int | None:
    """Without a count of its own, each head has its key and value; `multi_query` of older models means a single one."""
    return 1 if told.get("multi_query") is True else heads


def _latent(told: Mapping[str, Any]) -> int | None:
    rank, rope = _count(told, "kv_lora_rank"), _count(told, "qk_rope_head_dim")
    return rank + rope if rank and rope else None


# --- attention, layer by layer ------------------------------------------------------------------------------------


def _attention(told: Mapping[str, Any], layers: int, window: int | None) -> tuple[Attention, ...] | None:
    listed = next((found for name in ("layer_types", "layers_block_type") if (found := told.get(name))), None)
    if isinstance(listed, list):
        return _listed(listed, layers)
    pattern = told.get("hybrid_override_pattern")
    if isinstance(pattern, str):
        return _listed(list(pattern), layers)
    if "compress_ratios" in told or _is_hybrid(told):
        return None  # its layers keep what only its own code knows
    every = _every(told)
    if window is None or every is None:
        return (Attention.FULL,) * layers
    return tuple(Attention.FULL if (at + 1) % every == 0 else Attention.SLIDING for at in range(layers))


def _listed(words: Sequence[object], layers: int) -> tuple[Attention, ...] | None:
    kinds = [_KINDS.get(str(word)) or _PATTERN.get(str(word)) for word in words[:_MOST_LAYERS]]
    found = tuple(kind for kind in kinds if kind is not None)
    return found if len(found) == len(words) == layers else None


def _is_hybrid(told: Mapping[str, Any]) -> bool:
    return any(
        name in told for name in ("mamba_num_heads", "ssm_state_size", "mamba_d_state", "linear_num_value_heads")
    )


def _every(told: Mapping[str, Any]) -> int | None:
    """Return n where each n-th layer attends to all and the others slide; None where none slides, or all may.

    That all slide (Mistral 7B, v0.1) is told by a window alone; engines may or may not make use of it, so that the
    admitted bound is that of full attention.
    """
    if told.get("use_sliding_window") is False:
        return None
    pattern = _count(told, "sliding_window_pattern", "_sliding_window_pattern")
    return pattern or _ALTERNATING.get(str(told.get("model_type")))


# --- quantisation -------------------------------------------------------------------------------------------------


def _quantization(told: Mapping[str, Any], document: Mapping[str, Any]) -> Quantization | None:
    found = told.get("quantization_config") or document.get("quantization_config")
    if not isinstance(found, dict):
        return None
    method = _word(found, "quant_method", "quant_algo")
    return Quantization(method.lower(), _block(found.get("weight_block_size"))) if method else None


def _block(told: object) -> tuple[int, int] | None:
    if isinstance(told, list) and len(told) == 2 and all(isinstance(each, int) and each > 0 for each in told):
        return (told[0], told[1])
    return None


def _model_opt(text: str) -> Quantization | None:
    """Read hf_quant_config.json of NVIDIA's Model Optimizer, whose config.json may say nothing."""
    try:
        document = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
    inner = document.get("quantization") if isinstance(document, dict) else None
    method = _word(inner, "quant_algo") if isinstance(inner, dict) else None
    return Quantization(method.lower()) if method else None


# --- values -------------------------------------------------------------------------------------------------------


def _count(told: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        value = told.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**40:
            return value
    return None


def _word(told: Mapping[str, Any], *names: str) -> str | None:
    return next((told[name] for name in names if isinstance(told.get(name), str) and told[name]), None)
