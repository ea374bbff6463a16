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
    "first_k_dense_replace": 1, "num_nextn_predict_layers": 0, "laurel_rank": 4, "altup_num_inputs": 2,
    "hidden_size_per_layer_input": 8, "num_kv_shared_layers": 2, "mamba_d_state": 16, "mamba_n_heads": 4,
    "mamba_d_head": 64, "mamba_d_ssm": 256, "num_expert_group": 1, "linear_num_heads": 4, "linear_head_dim": 32,
    "mamba_headdim": 64, "mamba_num_heads": 4, "mamba_head_dim": 64, "ssm_state_size": 16, "state_size": 16,
    "n_groups": 1, "mamba_n_groups": 1, "chunk_size": 16, "mamba_chunk_size": 16, "linear_num_value_heads": 4,
    "linear_num_key_heads": 4, "linear_key_head_dim": 32, "linear_value_head_dim": 32, "global_head_dim": 64,
    "num_global_key_value_heads": 2, "index_n_heads": 4, "index_head_dim": 32, "index_topk": 8, "index_kpool": 4,
}
FEED_FORWARD = ("intermediate", "ffn_hidden", "mlp_hidden")

LLAMA = {"hidden_size": 128, "vocab_size": VOCABULARY, "intermediate_size": 96, "num_attention_heads": 4,
         "num_key_value_heads": 2, "num_hidden_layers": N_LAYERS, "hidden_act": "silu", "rms_norm_eps": 1e-5,
         "max_position_embeddings": 512, "rope_theta": 10000.0, "tie_word_embeddings": False, "bos_token_id": 1,
         "eos_token_id": 2}
# MLA.  vLLM's attention on CPUs takes latent vectors of 576 dims only.
MLA = {"q_lora_rank": 32, "kv_lora_rank": 512, "qk_nope_head_dim": 32, "qk_rope_head_dim": 64, "v_head_dim": 32,
       "num_key_value_heads": 4}
EXPERTS = {"num_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 96,
           "moe_shared_expert_intermediate_size": 96, "num_shared_experts": 1, "n_shared_experts": 1,
           "first_k_dense_replace": 1, "norm_topk_prob": True, "n_group": 1, "topk_group": 1,
           "routed_scaling_factor": 1.0}
BAILING = {**EXPERTS, "head_dim": 32, "use_bias": False, "use_qkv_bias": False, "embedding_dropout": 0.0}
MIMO_V2 = {
    **EXPERTS, "head_dim": 64, "v_head_dim": 32, "swa_head_dim": 64, "swa_v_head_dim": 32, "swa_num_attention_heads": 4,
    "swa_num_key_value_heads": 4, "sliding_window_size": 12, "sliding_window": 12, "attention_chunk_size": 12,
    "hybrid_layer_pattern": [0, 1, 1, 0], "moe_layer_freq": [0, 0, 0, 0], "add_swa_attention_sink_bias": True,
    "add_full_attention_sink_bias": False, "swa_rope_theta": 10000.0, "partial_rotary_factor": 0.5,
    "layernorm_epsilon": 1e-5, "attention_bias": False, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
    "attention_value_scale": 0.707, "routed_scaling_factor": None, "n_shared_experts": None}
# Architectures whose configuration comes with their checkpoints, and those that sizes alone do not do for: model type,
# and what differs from LLAMA.
SPECIAL: dict[str, tuple[str, dict[str, Any]]] = {
    "BailingMoeForCausalLM": ("bailing_moe", BAILING),
    "BailingMoeV2ForCausalLM": ("bailing_moe_v2", BAILING),
    "BailingMoeV2_5ForCausalLM": ("bailing_hybrid", {**BAILING, **MLA, "layer_group_size": 2}),
    "BailingMoeV3ForCausalLM": ("bailing_moe_v3", {**BAILING, **MLA, "layer_group_size": 2,
                                                   "short_conv_kernel_size": 4, "no_kda_lora": True}),
    # Layers of 2, 2, 1 and 4 KV heads.
    "DeciLMForCausalLM": ("nemotron-nas", {"num_key_value_heads": None, "block_configs": [
        {"attention": {"n_heads_in_group": n, "no_op": False, "replace_with_linear": False},
         "ffn": {"ffn_mult": 0.75, "no_op": False, "replace_with_linear": False}} for n in (2, 2, 4, 1)]}),
    "DeepseekForCausalLM": ("deepseek", {**EXPERTS, "moe_layer_freq": 1, "scoring_func": "softmax"}),
    "ExaoneForCausalLM": ("exaone", {"activation_function": "silu", "layer_norm_epsilon": 1e-5,
                                       "num_layers": N_LAYERS}),
    "InternLM2ForCausalLM": ("internlm2", {}),
    "InternLM3ForCausalLM": ("internlm3", {"qkv_bias": False, "bias": False, "head_dim": 32}),
    "IQuestCoderForCausalLM": ("iquestcoder", {}),
    "IQuestLoopCoderForCausalLM": ("iquestloopcoder", {"loop_num": 2, "loop_window_size": 64,
                                                       "max_window_layers": N_LAYERS}),
    "K2HorizonForCausalLM": ("k2_horizon", {
        **EXPERTS, "head_dim": 32, "rope_head_dim": 32, "attention_bias": False, "attention_gate_func": "sigmoid",
        "decoder_sparse_step": 1, "layernorm_num_groups": 1, "mlp_only_layers": [], "moe_gate_bias": False,
        "mova_num_experts": 0, "mova_num_experts_per_tok": 0, "query_key_norm": True, "router_scaling_factor": 1.0,
        "router_score_func": "sigmoid"}),
    "LLaMAForCausalLM": ("llama", {}),
    "LongcatFlashNgramForCausalLM": ("longcat_flash", {
        **MLA, "ffn_hidden_size": 96, "expert_ffn_hidden_size": 96, "n_routed_experts": 4, "moe_topk": 2,
        "zero_expert_num": 2, "zero_expert_type": "identity", "num_layers": N_LAYERS, "emb_neighbor_num": 2,
        "emb_split_num": 2, "ngram_vocab_size_ratio": 2, "pad_token_id": 0, "routed_scaling_factor": 1.0,
        "attention_method": "MLA", "router_bias": False, "mla_scale_q_lora": True, "mla_scale_kv_lora": True}),
    "MiMoForCausalLM": ("mimo", {"max_window_layers": N_LAYERS, "use_sliding_window": False, "attention_bias": True,
                                 "num_nextn_predict_layers": 0}),
    "MiMoV2FlashForCausalLM": ("mimo_v2_flash", MIMO_V2),
    "MiMoV2ForCausalLM": ("mimo_v2", MIMO_V2),
    "MiniCPMForCausalLM": ("minicpm", {"scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 32, "num_experts": 0}),
    "MistralLarge3ForCausalLM": ("deepseek_v3", {**EXPERTS, **MLA, "moe_layer_freq": 1, "scoring_func": "softmax",
                                                 "topk_method": "noaux_tc"}),
    "OrionForCausalLM": ("orion", {}),
    "PanguEmbeddedForCausalLM": ("PanguEmbedded", {"bias": False, "attention_bias": False}),
    "PanguProMoEV2ForCausalLM": ("PanguProMoE", {
        **EXPERTS, "head_dim": 32, "attention_bias": False, "sandwich_norm": False,
        "router_enable_expert_bias": False}),
    "PanguUltraMoEForCausalLM": ("pangu_ultra_moe", {**EXPERTS, **MLA, "sandwich_norm": False}),
    "Param2MoEForCausalLM": ("param2moe", {**BAILING, "score_function": "sigmoid", "rope_scaling": None}),
    "Phi3ForCausalLM": ("phi3", {
        "num_key_value_heads": 2, "original_max_position_embeddings": 64, "pad_token_id": 0, "rope_scaling": {
            "type": "longrope", "short_factor": [1.0] * 16, "long_factor": [4.0] * 16}}),
    "Plamo3ForCausalLM": ("plamo3", {
        "head_dim": 32, "interleaved_sliding_window": [12, None] * 2, "rope_local_theta": 1e3,
        "layer_types": ["sliding_attention", "full_attention"] * 2}),
    "SarvamMLAForCausalLM": ("sarvam_mla", {**EXPERTS, **MLA, "q_lora_rank": None}),
    "SarvamMoEForCausalLM": ("sarvam_moe", {**BAILING, "score_function": "sigmoid", "use_qk_norm": True,
                                            "moe_router_enable_expert_bias": True}),
    "SolarForCausalLM": ("solar", {"bskcn_1": [1], "bskcn_2": [2], "bskcn_3": [2], "bskcn_4": [3],
                                   "bskcn_tv": [0.9, 0.8]}),
    "Step1ForCausalLM": ("step1", {"num_key_value_heads": 2}),
    "TeleChat2ForCausalLM": ("telechat", {"n_head": 4, "ffn_hidden_size": 96, "hidden_dropout": 0.0,
                                          "n_layer": N_LAYERS, "layer_norm_epsilon": 1e-5}),
    "TeleChat3ForCausalLM": ("telechat3", {}),
    "TeleFLMForCausalLM": ("TeleFLM", {"use_mup": True, "mup_scale_factor": 1.0, "output_mult": 1.0,
                                       "input_mult": 1.0}),
}
# Those whose configuration has another name in transformers, or is vLLM's.
MODEL_TYPES = {
    "ChatGLMModel": "chatglm", "ChatGLMForConditionalGeneration": "chatglm", "DeepseekV4ForCausalLM": "deepseek_v4",
    "ExaoneMoEForCausalLM": "exaone_moe", "Glm5NextForCausalLM": "glm5_next_text", "HYV4ForCausalLM": "hy_v4",
    "InklingForCausalLM": "inkling_model", "InklingForConditionalGeneration": "inkling_mm_model",
    "KimiLinearForCausalLM": "kimi_linear", "MiniMaxM3SparseForCausalLM": "minimax_m3_vl_text",
    "MuseGlimmerForCausalLM": "muse_glimmer_text", "NemotronHPuzzleForCausalLM": "nemotron_h",
    "PhiMoEForCausalLM": "phimoe", "Rnj1ForCausalLM": "gemma3_text", "Step3TextForCausalLM": "step3_text",
    "Step3p5ForCausalLM": "step3p5",
}

# What differs from SIZES.
CHATGLM = {"original_rope": True, "tie_word_embeddings": False}
LINEAR = {"linear_key_head_dim": 128, "linear_value_head_dim": 128}
OTHER_SIZES: dict[str, dict[str, Any]] = {
    "ChatGLMModel": CHATGLM, "ChatGLMForConditionalGeneration": CHATGLM,
    "AfmoeForCausalLM": {"score_func": "sigmoid", "route_norm": True, "route_scale": 1.0, "mup_enabled": False,
                         "num_dense_layers": 1, "n_group": 1, "topk_group": 1},
    "Glm4MoeForCausalLM": {"head_dim": 32},
    "DbrxForCausalLM": {"attn_config": {"clip_qkv": 8.0, "kv_n_heads": 2, "rope_theta": 1e4}},
    "GraniteMoeHybridForCausalLM": {"layer_types": ["mamba", "attention"] * 2},
    "HYV3ForCausalLM": {"expert_hidden_dim": 96, "route_norm": True},
    "Lfm2ForCausalLM": {"layer_types": ["conv", "full_attention"] * 2, "block_dim": 128, "block_ff_dim": 96,
                        "block_multiple_of": 32, "block_ffn_dim_multiplier": 1.0, "block_auto_adjust_ff_dim": False,
                        "conv_dim": 128},
    "Lfm2MoeForCausalLM": {"layer_types": ["conv", "full_attention"] * 2},
    "Llama4ForCausalLM": {"num_experts_per_tok": 1},
    "Mamba2ForCausalLM": {"num_heads": 4, "head_dim": 64},
    "LongcatFlashForCausalLM": {"mla_scale_q_lora": True, "mla_scale_kv_lora": True, "zero_expert_num": 1,
                                 "zero_expert_type": "identity"},
    "MiniMaxM2ForCausalLM": {"rotary_dim": 32, "scoring_func": "sigmoid"},
    "MiniMaxM3SparseForCausalLM": {"rope_theta": 1e4},
    "NemotronForCausalLM": {"num_key_value_heads": 2},
    "Qwen3NextForCausalLM": LINEAR, "Qwen3_5ForCausalLM": LINEAR, "Qwen3_5MoeForCausalLM": LINEAR,
    "Zamba2ForCausalLM": {"attention_hidden_size": 256, "attention_head_dim": 64},
    "Step3TextForCausalLM": {"moe_layers_enum": "1,2,3"},
    "Step3p5ForCausalLM": {"max_position_embeddings": 512},
    "Qwen4ExpForCausalLM": {"output_gate_type": "sigmoid"},
}
NEED_TOKENIZER = ("InklingForCausalLM", "InklingForConditionalGeneration", "MuseGlimmerForCausalLM")
# vLLM computes the linear attention and the convolutions of these in bfloat16 only.
BFLOAT16 = {"Qwen3NextForCausalLM", "Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM", "Qwen4ExpForCausalLM"}


def small_config(architecture: str) -> dict[str, Any]:
    """Return the configuration.  Raises LookupError if none is known."""
    from transformers.models.auto import modeling_auto

    if architecture in NEED_TOKENIZER:
        raise LookupError("it needs a tokenizer, which a small model has not")
    if architecture in SPECIAL:
        model_type, values = SPECIAL[architecture]
        return {**LLAMA, **values, "model_type": model_type, "architectures": [architecture]}
    names = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    model_types = [kind for kind, name in names.items() if name == architecture]
    # That of the text part, where a class has two.
    found = next((kind for kind in model_types if kind.endswith("_text")), next(iter(model_types), None))
    model_type = MODEL_TYPES.get(architecture, found)
    if model_type is None:
        raise LookupError("the installed transformers has no configuration for it")
    values = _shrunk(_config_class(model_type)().to_dict())
    return {**values, **OTHER_SIZES.get(architecture, {}), "model_type": model_type, "architectures": [architecture]}


def _config_class(model_type: str) -> Any:
    import transformers
    from transformers.models.auto import configuration_auto
    from vllm.transformers_utils.config import _CONFIG_REGISTRY

    if model_type in _CONFIG_REGISTRY:
        return _CONFIG_REGISTRY[model_type]
    return getattr(transformers, configuration_auto.CONFIG_MAPPING_NAMES[model_type])


def register_configurations() -> None:
    """Tell transformers of the model types in SPECIAL that it does not know; they come with their checkpoints."""
    import transformers
    from vllm.transformers_utils.config import _CONFIG_REGISTRY

    class Blocks(transformers.PretrainedConfig):
        def __init__(self, block_configs: Any = (), **keywords: Any) -> None:
            self.block_configs = [_Attributes(block) for block in block_configs]
            super().__init__(**keywords)

    for name in {model_type for model_type, _ in SPECIAL.values()} - {*transformers.CONFIG_MAPPING, *_CONFIG_REGISTRY}:
        transformers.AutoConfig.register(name, type(name, (Blocks,), {"model_type": name}))


class _Attributes(dict[str, Any]):
    """A dictionary, and those in it, whose items are attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            value = self[name]
        except KeyError:
            raise AttributeError(name) from None
        return _Attributes(value) if isinstance(value, dict) else value


def _shrunk(values: dict[str, Any]) -> dict[str, Any]:
    import transformers

    n_layers = next((values[key] for key in ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
                     if isinstance(values.get(key), int)), None)
    lists = [value for value in values.values() if isinstance(value, list) and n_layers and len(value) == n_layers]
    layers = _picked(list(zip(*lists)))
    # Parts of some configurations do not take what each configuration has.
    general = {*transformers.PretrainedConfig().to_dict(), "per_layer_config"} - {
        "is_encoder_decoder", "tie_word_embeddings"}
    small = {key: _value(key, value, n_layers, layers) for key, value in values.items() if key not in general}
    if "mlp_layer_types" in values:
        # vLLM reads what checkpoints say.
        small.setdefault("first_k_dense_replace", 1)
    if isinstance(values.get("kv_lora_rank"), int):
        small.update(MLA, q_lora_rank=32 if values.get("q_lora_rank") else None)
    return small


def _value(key: str, value: Any, n_layers: int | None, layers: list[int]) -> Any:
    if isinstance(value, dict):
        return _shrunk(value) if key.endswith("config") else value
    if isinstance(value, list) and n_layers and len(value) == n_layers:
        return [value[layer] for layer in layers]
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    if key.endswith("_token_id"):
        return value if value < 8 else 3
    if key in SIZES:
        return SIZES[key] if value > 0 else value
    return 96 if value > 96 and any(part in key for part in FEED_FORWARD) else value


def _picked(kinds: list[Any]) -> list[int]:
    """Return N_LAYERS of the layers of these kinds, one of each kind if there is room."""
    first = [i for i, kind in enumerate(kinds) if kind not in kinds[:i]][:N_LAYERS]
    rest = [i for i in range(len(kinds)) if i not in first]
    return sorted(first + rest[:N_LAYERS - len(first)])
