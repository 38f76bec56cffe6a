"""Published configurations of well-known models, cut down to what memory goes by.

Each is the config.json of the repository that it is named after, on the model hub; figures beside them are worked out
from the same files by their publishers or by the engines' own logs, as each test says.
"""

LLAMA_31_8B = {
    "model_type": "llama", "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "hidden_size": 4096, "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}  # fmt: skip
LLAMA_31_70B = LLAMA_31_8B | {
    "num_hidden_layers": 80, "num_attention_heads": 64, "hidden_size": 8192, "intermediate_size": 28672,
}  # fmt: skip
LLAMA_31_405B = LLAMA_31_8B | {
    "num_hidden_layers": 126, "num_attention_heads": 128, "hidden_size": 16384, "intermediate_size": 53248,
}  # fmt: skip
QWEN25_7B = {
    "model_type": "qwen2", "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
    "hidden_size": 3584, "intermediate_size": 18944, "vocab_size": 152064, "max_position_embeddings": 32768,
    "sliding_window": 131072, "use_sliding_window": False, "max_window_layers": 28, "torch_dtype": "bfloat16",
}  # fmt: skip
QWEN3_32B = {
    "model_type": "qwen3", "num_hidden_layers": 64, "num_attention_heads": 64, "num_key_value_heads": 8,
    "head_dim": 128, "hidden_size": 5120, "intermediate_size": 25600, "vocab_size": 151936,
    "max_position_embeddings": 40960, "sliding_window": None, "torch_dtype": "bfloat16",
}  # fmt: skip
QWEN3_30B_A3B = QWEN3_32B | {
    "model_type": "qwen3_moe", "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4,
    "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
}  # fmt: skip
QWEN3_235B_A22B = QWEN3_30B_A3B | {
    "num_hidden_layers": 94, "num_attention_heads": 64, "hidden_size": 4096, "intermediate_size": 12288,
    "moe_intermediate_size": 1536,
}  # fmt: skip
MISTRAL_7B_V01 = {
    "model_type": "mistral", "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "hidden_size": 4096, "intermediate_size": 14336, "vocab_size": 32000, "max_position_embeddings": 32768,
    "sliding_window": 4096, "torch_dtype": "bfloat16",
}  # fmt: skip
MIXTRAL_8X7B = MISTRAL_7B_V01 | {"model_type": "mixtral", "sliding_window": None, "num_local_experts": 8}
GEMMA2_9B = {
    "model_type": "gemma2", "num_hidden_layers": 42, "num_attention_heads": 16, "num_key_value_heads": 8,
    "head_dim": 256, "hidden_size": 3584, "intermediate_size": 14336, "vocab_size": 256000,
    "max_position_embeddings": 8192, "sliding_window": 4096, "torch_dtype": "bfloat16",
}  # fmt: skip
GPT_OSS_120B = {
    "model_type": "gpt_oss", "num_hidden_layers": 36, "num_attention_heads": 64, "num_key_value_heads": 8,
    "head_dim": 64, "hidden_size": 2880, "intermediate_size": 2880, "num_local_experts": 128, "vocab_size": 201088,
    "max_position_embeddings": 131072, "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
    "quantization_config": {"quant_method": "mxfp4"},
}  # fmt: skip
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3", "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
    "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256,
    "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "vocab_size": 129280,
    "max_position_embeddings": 163840, "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}  # fmt: skip
PHI3_MINI = {
    "model_type": "phi3", "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
    "hidden_size": 3072, "intermediate_size": 8192, "vocab_size": 32064, "max_position_embeddings": 4096,
    "sliding_window": 2047, "torch_dtype": "bfloat16",
}  # fmt: skip
QWEN3_VL_8B = {
    "model_type": "qwen3_vl",
    "text_config": {
        "model_type": "qwen3_vl_text", "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8,
        "head_dim": 128, "hidden_size": 4096, "intermediate_size": 12288, "vocab_size": 151936,
        "max_position_embeddings": 262144, "dtype": "bfloat16",
    },
    "vision_config": {"num_heads": 16, "hidden_size": 1152, "depth": 27},
}  # fmt: skip
FALCON_7B = {
    "model_type": "falcon", "num_hidden_layers": 32, "num_attention_heads": 71, "multi_query": True,
    "hidden_size": 4544, "vocab_size": 65024, "torch_dtype": "bfloat16",
}  # fmt: skip
