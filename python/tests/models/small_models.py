# SPDX-License-Identifier: Apache-2.0
"""Every decoder class of the installed transformers, small and with random weights."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from transformers.models.auto import configuration_auto, modeling_auto

VOCABULARY = 128
N_LAYERS = 4

# Settings by name, wherever a configuration or a part of one has them as numbers.  Longer names come first where a name
# is also the end of others.
_SIZES = {
    "vocab_size": VOCABULARY, "unpadded_vocab_size": VOCABULARY, "vocab_size_per_layer_input": VOCABULARY,
    "text_vocab_size": VOCABULARY, "hidden_size": 64, "d_model": 64, "n_embd": 64, "dim": 64, "embed_dim": 64,
    "embedding_size": 64, "word_embed_proj_dim": 64, "emb_dim": 64, "projection_dim": 64, "out_hidden_size": 64,
    "text_hidden_size": 64, "hidden_dim": 64, "embedding_dim": 64, "adapter_in_dim": 64, "adapter_input_size": 64,
    "adapter_out_dim": 64, "encoder_hash_byte_group_vocab": VOCABULARY, "mm_hidden_size": 64, "input_hidden_size": 64,
    "output_dim": 64, "output_hidden_size": 64, "projector_hidden_size": 64, "hidden_size_global": 64,
    "decoder_hidden_size": 64, "cross_attention_hidden_size": 64, "lm_hidden_size": 64, "mlp_dim": 96, "n_inner": 96,
    "d_ff": 96, "dim_ff": 96, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "ffn_dim": 96,
    "num_hidden_layers": N_LAYERS, "n_layer": N_LAYERS, "n_layers": N_LAYERS, "num_layers": N_LAYERS,
    "layers": N_LAYERS, "num_blocks": N_LAYERS, "encoder_layers": N_LAYERS, "decoder_layers": N_LAYERS, "depth": 2,
    "num_decoder_layers": N_LAYERS, "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4,
    "attention_heads": 4, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "num_attention_heads_per_layer": 4, "num_key_value_heads": 2, "num_kv_heads": 2, "swa_num_attention_heads": 4,
    "swa_num_key_value_heads": 2, "multi_query_group_num": 2, "num_global_key_value_heads": 2, "head_dim": 16,
    "global_head_dim": 16, "swa_head_dim": 16, "d_head": 16, "attention_head_size": 16, "kv_channels": 16,
    "v_head_dim": 16, "swa_v_head_dim": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "qk_head_dim": 32,
    "linear_num_heads": 4, "linear_head_dim": 16, "rotary_dim": 8, "q_lora_rank": 32, "kv_lora_rank": 32,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "moe_num_experts": 4, "num_experts_per_tok": 2,
    "num_experts_per_token": 2, "top_k_experts": 2, "moe_topk": 2, "moe_top_k": 2, "moe_k": 2, "n_group": 1,
    "num_expert_group": 1, "topk_group": 1, "n_shared_experts": 1, "expert_layer_period": 2, "expert_layer_offset": 1,
    "num_limited_groups": 1, "max_position_embeddings": 512, "n_positions": 512, "n_ctx": 512, "max_seq_len": 512,
    "seq_length": 512, "sliding_window": 12, "sliding_window_size": 12, "attention_window_size": 12, "window_size": 12,
    "attention_chunk_size": 16, "mamba_d_state": 8, "mamba_n_heads": 4, "mamba_d_head": 32, "mamba_d_ssm": 128,
    "mamba_num_heads": 4, "mamba_head_dim": 32, "ssm_state_size": 8, "state_size": 8, "mamba_dt_rank": 8,
    "time_step_rank": 8, "n_groups": 1, "mamba_n_groups": 1, "mamba_chunk_size": 8, "chunk_size": 8,
    "linear_num_value_heads": 4, "linear_num_key_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    "num_kv_shared_layers": 2, "hidden_size_per_layer_input": 8, "laurel_rank": 4, "lru_width": 64, "index_n_heads": 4,
    "index_head_dim": 16, "index_topk": 8, "index_kpool": 4, "first_k_dense_replace": 1, "num_nextn_predict_layers": 0,
    "image_size": 32, "patch_size": 8, "num_channels": 3, "text_config_hidden_size": 64, "altup_num_inputs": 2,
}
# Parts of names of sizes of feed-forward layers.
_FEED_FORWARD = ("intermediate", "ffn_hidden", "mlp_hidden")
_ROTARY = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}
_ROTARY_BY_KIND = {"rope_parameters": {
    "full_attention": {"rope_type": "default", "rope_theta": 1e4},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e3}}}
_INDEXER = {"indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 16, "indexer_budget": 8,
            "indexer_compress_ratio": 4}
_MROPE = {"rope_parameters": {"mrope_section": [2, 3, 3]}}
# What classes need besides, by name of the class.
_SPECIAL: dict[str, dict[str, Any]] = {
    "Apertus1p5ForConditionalGeneration": {
        "image_token_offset": 100, "audio_token_offset": 108, "vision_config": {"codebook_size": 8},
        "audio_config": {"codebook_dim": 64, "codebook_size": 8}},
    "BltForCausalLM": {"num_hidden_layers": N_LAYERS},
    "BambaForCausalLM": {"attn_layer_indices": [1, 3]},
    "ChameleonForConditionalGeneration": {"vocabulary_map": {"<image>": 120, "IMGIMGA": 121}},
    "CohereCompassForCausalLM": _ROTARY_BY_KIND,
    "CohereCompassForConditionalGeneration": {"text_config": _ROTARY_BY_KIND},
    "DbrxForCausalLM": {"attn_config": {"rope_theta": 1e4, "kv_n_heads": 2, "clip_qkv": 8.0}},
    "DeepseekOcr2ForConditionalGeneration": {"text_config": {
        "mlp_layer_types": ["dense"] + ["sparse"] * 3, "num_experts_per_tok": 2}},
    "DeepseekV2ForCausalLM": {"num_experts_per_tok": 2},
    # It counts attention and feed-forward as two layers.
    "DoryForCausalLM": {"num_hidden_layers": 8, "n_input_layers": 2, "n_recurrent_layers": 4, "n_output_layers": 2,
                        "layer_types": ["sliding_attention", "mlp", "full_attention", "mlp"] * 2},
    "Dots1ForCausalLM": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "Emu3ForConditionalGeneration": {"vocabulary_map": {
        "<image>": 120, "<|extra_200|>": 121, "<|visual token 000000|>": 122}},
    "Ernie4_5_VLMoeForConditionalGeneration": {"text_config": {"rope_parameters": {"mrope_section": [2, 2, 4]}}},
    "Granite4VisionForConditionalGeneration": {"downsample_rate": "1/2", "deepstack_layer_map": [[1, 0], [3, 2]],
                                               "spatial_target_layers": [0, 1]},
    "GraniteMoeHybridForCausalLM": {"layer_types": ["mamba", "attention"] * 2},
    "HrmTextForCausalLM": {"num_layers_per_stack": 1, "num_hidden_layers": 8},
    "JambaForCausalLM": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "Lfm2MoeForCausalLM": {"layer_types": ["conv", "full_attention"] * 2},
    "HunYuanDenseV1ForCausalLM": {"head_dim": 16, **_ROTARY},
    "HunYuanMoEV1ForCausalLM": {"head_dim": 16, **_ROTARY},
    "HunYuanVLForConditionalGeneration": {"text_config": {"head_dim": 16, "rope_parameters": {
        "rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 2, 2, 2]}}},
    "MinistralForCausalLM": {"head_dim": 16, **_ROTARY},
    "Molmo2ForConditionalGeneration": {"adapter_config": {"vision_feature_layer": [3, 1]}},
    "MusicgenForCausalLM": {"num_codebooks": 1},
    "MusicgenMelodyForCausalLM": {"num_codebooks": 1},
    "NemotronForCausalLM": {"num_key_value_heads": 2, "head_dim": 16},
    "PaddleOCRVLForConditionalGeneration": {"text_config": _MROPE},
    "Qwen2VLForConditionalGeneration": {"text_config": _MROPE},
    "Qwen2_5_VLForConditionalGeneration": {"text_config": _MROPE},
    "Qwen2_5OmniThinkerForConditionalGeneration": {"vision_start_token_id": 120, "text_config": _MROPE},
    "Qwen3OmniMoeThinkerForConditionalGeneration": {"vision_start_token_id": 120, "text_config": _MROPE},
    "Qwen4ExpForCausalLM": _INDEXER,
    "Qwen4ExpForConditionalGeneration": {"text_config": _INDEXER},
    "ReformerModelWithLMHead": {"axial_pos_embds": False, "hash_seed": 1},
    "Step3p7ForConditionalGeneration": {"text_config": {
        "sliding_window": 12, "layer_types": ["full_attention", "sliding_attention"] * 2, **_ROTARY_BY_KIND}},
    "UnlimitedOcrForConditionalGeneration": {"text_config": {"num_key_value_heads": 4}},
    "XmodForCausalLM": {"default_language": "en_XX"},
    "xLSTMForCausalLM": {"qk_dim_factor": 1.0},
    "ZambaForCausalLM": {"layers_block_type": ["linear_attention", "hybrid"] * 2},
    "Zamba2ForCausalLM": {"layers_block_type": ["linear_attention", "hybrid"] * 2, "hybrid_layer_ids": [1, 3]},
    "Glm46VForConditionalGeneration": {"text_config": _MROPE},
    "Glm4vForConditionalGeneration": {"text_config": _MROPE},
    "GlmOcrForConditionalGeneration": {"text_config": _MROPE},
    "Glm4vMoeForConditionalGeneration": {"text_config": {"rope_parameters": {"mrope_section": [1, 1, 2]}}},
    # Answers are of more tokens than these: the rotary embedding changes its factors.
    "Phi3ForCausalLM": {"max_position_embeddings": 512, "original_max_position_embeddings": 48, "rope_parameters": {
        "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 8, "long_factor": [4.0] * 8,
        "original_max_position_embeddings": 48, "factor": 8.0}},
}

_PIXELS = "each call needs an image"
_TIMM = "its vision part needs the package timm"
_DRAFT = "a draft model, which reads the cache of another model"
# Why classes are not run, by name of the class, where no setting would help.
WHY_NOT_RUN = {
    "Blip2ForConditionalGeneration": _PIXELS, "BlipForConditionalGeneration": _PIXELS,
    "IdeficsForVisionText2Text": _PIXELS, "InstructBlipForConditionalGeneration": _PIXELS,
    "InstructBlipVideoForConditionalGeneration": _PIXELS, "PPFormulaNetForConditionalGeneration": _PIXELS,
    "Pix2StructForConditionalGeneration": _PIXELS, "VisionEncoderDecoderModel": _PIXELS,
    "UdopForConditionalGeneration": "each call needs the boxes of a layout",
    "MusicgenForCausalLM": "its prompts are codes of audio, of several codebooks",
    "PI0ForConditionalGeneration": "it makes actions of a robot, and has no generate()",
    "DiffusionGemmaForBlockDiffusion": "it makes blocks of tokens by diffusion",
    "FastVlmForConditionalGeneration": _TIMM, "Gemma3nForConditionalGeneration": _TIMM,
    "PerceptionLMForConditionalGeneration": _TIMM,
    "InklingForConditionalGeneration": "its vision part needs the package scipy",
    "Gemma4AssistantForCausalLM": _DRAFT, "Gemma4UnifiedAssistantForCausalLM": _DRAFT,
    "Llama4ForConditionalGeneration": "this version of transformers fails without an image",
}


def all_classes() -> dict[str, str]:
    """Return the model type of each class that transformers maps for causal or image-text generation."""
    found: dict[str, str] = {}
    for mapping in (modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
                    modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES):
        for model_type, names in mapping.items():
            for name in (names,) if isinstance(names, str) else names:
                found.setdefault(name, model_type)
    return dict(sorted(found.items()))


def make_small(name: str, model_type: str, **settings: Any) -> Any:
    """Return a model of a class with random weights in evaluation mode, whose prompts decide its answers."""
    import transformers
    torch.manual_seed(0)
    model_class = getattr(transformers, name)
    config_class = (model_class.config_class
                    or getattr(transformers, configuration_auto.CONFIG_MAPPING_NAMES[model_type]))
    is_decoder = name.endswith(("ForCausalLM", "LMHeadModel", "WithLMHead", "Decoder"))
    config = small_config(config_class, is_decoder, **{**_SPECIAL.get(name, {}), **settings})
    model = model_class._from_config(config, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        for parameter in model.parameters():
            # With the usual initialization, attention has hardly an effect in a model as small as this.
            if parameter.dim() > 1 and parameter.is_floating_point():
                parameter.normal_(std=parameter.shape[-1] ** -0.5)
    for part in (config, config.get_text_config(decoder=True)):
        part.eos_token_id = None
    model.generation_config.eos_token_id = model.generation_config.forced_eos_token_id = None
    model.generation_config.pad_token_id = 0
    model.generation_config.bos_token_id = model.generation_config.decoder_start_token_id = 1
    return model.eval()


def small_config(config_class: Any, is_decoder: bool, **settings: Any) -> Any:
    """Return a configuration of a class with small sizes."""
    values = _shrunk(config_class().to_dict(), iter(range(VOCABULARY - 1, 0, -1)))
    if is_decoder:
        # For classes that are encoders by default.
        values.update({key: key == "is_decoder" for key in ("is_decoder", "is_encoder_decoder") if key in values})
    _merge(values, settings)
    return config_class.from_dict(values)


def _merge(values: dict[str, Any], settings: dict[str, Any]) -> None:
    for key, value in settings.items():
        if isinstance(value, dict) and isinstance(values.get(key), dict):
            _merge(values[key], value)
        else:
            values[key] = value


def _shrunk(values: dict[str, Any], tokens: Iterator[int]) -> dict[str, Any]:
    n_layers = next((values[key] for key in ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers")
                     if isinstance(values.get(key), int)), 0)
    # Kinds of layers, by all lists that have a value for each.
    lists = [value for value in values.values() if isinstance(value, list) and n_layers and len(value) == n_layers]
    layers = _picked(list(zip(*lists)))
    small = {key: _value(key, value, n_layers, layers, tokens) for key, value in values.items()
             if key not in ("transformers_version", "_name_or_path", "architectures")}
    _fit(small, values)
    return small


def _fit(small: dict[str, Any], values: dict[str, Any]) -> None:
    """Change sizes that follow from others."""
    if isinstance(values.get("kv_lora_rank"), int):
        # MLA: K and V of all heads are made of the latent vectors.
        small["num_key_value_heads"] = small["num_attention_heads"]
        if values.get("head_dim") not in (None, values["qk_rope_head_dim"]):
            small["head_dim"] = small["qk_nope_head_dim"] + small["qk_rope_head_dim"]
    if isinstance(values.get("attention_hidden_size"), int):
        small["attention_hidden_size"] = values["attention_hidden_size"] * small["hidden_size"] // values["hidden_size"]
        if "attention_head_dim" in values:
            small["attention_head_dim"] = small["attention_hidden_size"] // small["num_attention_heads"]
    if {"mamba_headdim", "mamba_expand", "n_mamba_heads"} <= set(values):
        small["mamba_headdim"] = small["hidden_size"] * small["mamba_expand"] // small["n_mamba_heads"]
    if {"state_size", "expand", "num_heads", "head_dim"} <= set(values):
        small["head_dim"] = small["hidden_size"] * small["expand"] // small["num_heads"]


def _value(key: str, value: Any, n_layers: int, layers: list[int], tokens: Iterator[int]) -> Any:
    if key == "per_layer_config" and isinstance(value, dict):
        return {new: _shrunk(value[name], tokens) for new, old in enumerate(layers)
                for name in (old, str(old)) if name in value}
    if isinstance(value, dict):
        return _shrunk(value, tokens) if key.endswith("config") or key in ("encoder", "decoder") else _rotary(value)
    if key == "mrope_section":
        return [2, 3, 3]
    if isinstance(value, list) and n_layers and len(value) == n_layers:
        return [value[layer] for layer in layers]
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    if key.endswith(("_token_id", "_token_index")) or key in ("image_token", "video_token"):
        return value if value < 8 else next(tokens)
    if key in _SIZES:
        # A class with one expert a token may have no other number.
        return value if value <= 0 or value == 1 and "per_tok" in key else _SIZES[key]
    return 96 if value > 96 and any(part in key for part in _FEED_FORWARD) else value


def _rotary(values: dict[str, Any]) -> dict[str, Any]:
    """Return parameters of a rotary embedding, of one kind of layers or by kind, for 8 frequencies."""
    found = {key: _rotary(value) if isinstance(value, dict) else value for key, value in values.items()}
    if "mrope_section" in found:
        found["mrope_section"] = [2, 3, 3]
    return found


def _picked(kinds: list[Any]) -> list[int]:
    """Return N_LAYERS of the layers of these kinds, one of each kind if there is room."""
    picked = [i for i, kind in enumerate(kinds) if kind not in kinds[:i]][:N_LAYERS]
    for i in range(len(kinds)):
        if len(picked) < N_LAYERS and i not in picked:
            picked.append(i)
    return sorted(picked)
