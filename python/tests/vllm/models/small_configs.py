# SPDX-License-Identifier: Apache-2.0
"""Small configurations of vLLM's decoder architectures, as the files config.json that vLLM loads."""
from __future__ import annotations

from typing import Any

VOCABULARY = 128
N_LAYERS = 4
# Settings by name, wherever a configuration or a part of one has them as numbers.  Heads have 32 dims, the fewest that
# vLLM's attention on CPUs takes.
SIZES = {
    "vocab_size": VOCABULARY, "vocab_size_per_layer_input": VOCABULARY, "hidden_size": 128, "d_model": 128,
    "n_embd": 128, "word_embed_proj_dim": 128, "n_inner": 96, "ffn_dim": 96, "num_hidden_layers": N_LAYERS,
    "n_layer": N_LAYERS, "n_layers": N_LAYERS, "num_layers": N_LAYERS, "num_attention_heads": 4, "n_head": 4,
    "n_heads": 4, "num_key_value_heads": 2, "num_kv_heads": 2, "num_attention_groups": 2, "head_dim": 32,
    "kv_channels": 32, "attention_head_dim": 32, "rotary_dim": 32, "num_experts": 4, "num_local_experts": 4,
    "n_routed_experts": 4, "moe_num_experts": 4, "num_experts_per_tok": 2, "moe_topk": 2, "moe_k": 2, "n_group": 1,
    "topk_group": 1, "n_shared_experts": 1, "num_shared_experts": 1, "max_position_embeddings": 512,
    "n_positions": 512, "max_sequence_length": 512, "seq_length": 512, "sliding_window": 12, "attention_chunk_size": 64,
    "first_k_dense_replace": 1, "num_nextn_predict_layers": 0, "q_lora_rank": 32, "kv_lora_rank": 32,
    "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32, "laurel_rank": 4, "altup_num_inputs": 2,
    "hidden_size_per_layer_input": 8, "num_kv_shared_layers": 2, "mamba_d_state": 16, "mamba_n_heads": 4,
    "mamba_d_head": 64, "mamba_num_heads": 4, "mamba_head_dim": 64, "ssm_state_size": 16, "state_size": 16,
    "n_groups": 1, "mamba_n_groups": 1, "chunk_size": 16, "mamba_chunk_size": 16, "linear_num_value_heads": 4,
    "linear_num_key_heads": 4, "linear_key_head_dim": 32, "linear_value_head_dim": 32, "global_head_dim": 64,
    "num_global_key_value_heads": 2, "index_n_heads": 4, "index_head_dim": 32, "index_topk": 8,
}
FEED_FORWARD = ("intermediate", "ffn_hidden", "mlp_hidden")

LLAMA = {"hidden_size": 128, "vocab_size": VOCABULARY, "intermediate_size": 96, "num_attention_heads": 4,
         "num_key_value_heads": 2, "num_hidden_layers": N_LAYERS, "hidden_act": "silu", "rms_norm_eps": 1e-5,
         "max_position_embeddings": 512, "rope_theta": 10000.0, "tie_word_embeddings": False, "bos_token_id": 1,
         "eos_token_id": 2}
# Architectures that the installed transformers has no configuration for, or where sizes alone do not do.
SPECIAL: dict[str, dict[str, Any]] = {
    # Layers of 2, 2, 1 and 4 KV heads.
    "DeciLMForCausalLM": {**LLAMA, "model_type": "nemotron-nas", "num_key_value_heads": None, "block_configs": [
        {"attention": {"n_heads_in_group": n, "no_op": False, "replace_with_linear": False},
         "ffn": {"ffn_mult": 0.75, "no_op": False, "replace_with_linear": False}} for n in (2, 2, 4, 1)]},
    "MiMoV2FlashForCausalLM": {
        **LLAMA, "model_type": "mimo_v2_flash", "head_dim": 64, "v_head_dim": 32, "swa_head_dim": 64,
        "swa_v_head_dim": 32, "swa_num_attention_heads": 4, "swa_num_key_value_heads": 4, "sliding_window_size": 12,
        "sliding_window": 12, "attention_chunk_size": 12, "hybrid_layer_pattern": [0, 1, 1, 0],
        "moe_layer_freq": [0, 0, 0, 0],
        "add_swa_attention_sink_bias": True, "add_full_attention_sink_bias": False, "swa_rope_theta": 10000.0,
        "partial_rotary_factor": 0.5, "layernorm_epsilon": 1e-5, "attention_bias": False, "n_routed_experts": 4,
        "n_shared_experts": None, "moe_intermediate_size": 96, "num_experts_per_tok": 2, "scoring_func": "sigmoid",
        "topk_method": "noaux_tc", "n_group": 1, "topk_group": 1, "norm_topk_prob": True,
        "attention_value_scale": 0.707, "routed_scaling_factor": None},
    "Phi3ForCausalLM": {
        **LLAMA, "model_type": "phi3", "num_key_value_heads": 2, "original_max_position_embeddings": 64,
        "pad_token_id": 0, "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 16, "long_factor": [4.0] * 16}},
}

# What differs from SIZES.
OTHER_SIZES: dict[str, dict[str, Any]] = {"Llama4ForCausalLM": {"num_experts_per_tok": 1}}


def small_config(architecture: str) -> dict[str, Any]:
    """Return the configuration.  Raises LookupError if none is known."""
    from transformers.models.auto import configuration_auto, modeling_auto

    if architecture in SPECIAL:
        return {**SPECIAL[architecture], "architectures": [architecture]}
    names = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    model_types = [kind for kind, name in names.items() if name == architecture]
    # That of the text part, where a class has two.
    model_type = next((kind for kind in model_types if kind.endswith("_text")), next(iter(model_types), None))
    if model_type is None:
        raise LookupError("the installed transformers has no configuration for it")
    import transformers
    config_class = getattr(transformers, configuration_auto.CONFIG_MAPPING_NAMES[model_type])
    values = _shrunk(config_class().to_dict())
    return {**values, **OTHER_SIZES.get(architecture, {}), "model_type": model_type, "architectures": [architecture]}


def register_configurations() -> None:
    """Tell transformers of the model types in SPECIAL that it does not know; they come with their checkpoints."""
    import transformers

    class NemotronNasConfig(transformers.PretrainedConfig):
        model_type = "nemotron-nas"

        def __init__(self, block_configs: Any = (), **keywords: Any) -> None:
            self.block_configs = [_Attributes(block) for block in block_configs]
            super().__init__(**keywords)

    transformers.AutoConfig.register("nemotron-nas", NemotronNasConfig)


class _Attributes(dict[str, Any]):
    """A dictionary, and those in it, whose items are attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            value = self[name]
        except KeyError:
            raise AttributeError(name) from None
        return _Attributes(value) if isinstance(value, dict) else value


def _shrunk(values: dict[str, Any]) -> dict[str, Any]:
    n_layers = next((values[key] for key in ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
                     if isinstance(values.get(key), int)), None)
    return {key: _value(key, value, n_layers) for key, value in values.items()
            if key not in ("transformers_version", "_name_or_path", "architectures", "dtype", "per_layer_config")}


def _value(key: str, value: Any, n_layers: int | None) -> Any:
    if isinstance(value, dict):
        return _shrunk(value) if key.endswith("config") else value
    if isinstance(value, list) and n_layers and len(value) == n_layers:
        return _picked(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    if key.endswith("_token_id"):
        return value if value < 8 else 3
    if key in SIZES:
        return SIZES[key] if value > 0 else value
    return 96 if value > 96 and any(part in key for part in FEED_FORWARD) else value


def _picked(values: list[Any]) -> list[Any]:
    """Return N_LAYERS of a list that has a value for each layer, with one of each kind if there is room."""
    first = [i for i, value in enumerate(values) if value not in values[:i]][:N_LAYERS]
    rest = [i for i in range(len(values)) if i not in first]
    return [values[i] for i in sorted(first + rest[:N_LAYERS - len(first)])]
