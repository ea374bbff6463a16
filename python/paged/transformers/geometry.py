# SPDX-License-Identifier: Apache-2.0
"""The K and V of a model, read from its configuration, and the pool that they fit."""
from __future__ import annotations

from typing import Any

from paged._engines import Geometry

__all__ = ["config_dtype", "model_geometry", "model_window", "pool_parameters", "pool_section"]

# Kinds of layers in config.layer_types that keep K and V of one shape, at most those of all tokens.
_KV_LAYERS = {"full_attention", "sliding_attention", "chunked_attention"}
# Attributes of configurations whose layers keep something else than K and V of the model's head dimension: latent
# vectors (MLA), K and V of other layers, states, or heads of several sizes.
_OTHER_KV = ("kv_lora_rank", "num_kv_shared_layers", "mamba_d_state", "ssm_state_size", "linear_num_value_heads",
             "global_head_dim", "swa_num_key_value_heads", "attn_layer_period", "full_attn_idxs", "attention_k_eq_v",
             "conv_L_cache", "cross_attention_layers")
# Names that configurations without num_key_value_heads use.
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "multi_query_group_num")
_DTYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}


def model_geometry(config: Any) -> Geometry | None:
    """Return what a pool must have for a model of this configuration (transformers.PreTrainedConfig).

    None: the layers' K and V are not all of one shape, as with recurrent layers, latent attention (MLA) or layers that
    use those of others; or the model has no decoder.
    """
    if config.is_encoder_decoder:
        return None
    try:
        return _text_geometry(config.get_text_config(decoder=True))
    except RuntimeError:
        # A setting that differs between layers cannot be read as one.
        return None


def model_window(config: Any) -> int | None:
    """Return the tokens that a query sees, its own included, if all layers of a model have a sliding window, else None.

    The layers are those for which DynamicCache keeps no more.
    """
    try:
        text = config.get_text_config(decoder=True)
        window, kinds = getattr(text, "sliding_window", None), getattr(text, "layer_types", None)
    except RuntimeError:
        # A setting that differs between layers cannot be read as one.
        return None
    if not isinstance(window, int) or window < 1 or (kinds is not None and set(kinds) != {"sliding_attention"}):
        return None
    return window


def _text_geometry(text: Any) -> Geometry | None:
    kinds = getattr(text, "layer_types", None)
    if kinds is not None and not _KV_LAYERS.issuperset(kinds):
        return None
    if any(getattr(text, name, None) for name in _OTHER_KV):
        return None
    n_layers: Any = getattr(text, "num_hidden_layers", None)
    n_heads: Any = getattr(text, "num_attention_heads", None)
    n_kv_heads = _kv_heads(text)
    if not all(isinstance(n, int) and n > 0 for n in (n_layers, n_heads, n_kv_heads)):
        return None
    dim: Any = getattr(text, "head_dim", None) or getattr(text, "hidden_size", 0) // n_heads
    v_dim: Any = getattr(text, "v_head_dim", None) or dim
    if not (isinstance(dim, int) and isinstance(v_dim, int) and dim > 0):
        return None
    return Geometry(n_layers, n_kv_heads, dim, v_dim)


def _kv_heads(text: Any) -> Any:
    """Return the number of K and V heads of a layer, of whatever type the configuration gives it."""
    # Falcon's newer architecture repeats K and V for all query heads before it stores them.
    if getattr(text, "new_decoder_architecture", None):
        return getattr(text, "num_attention_heads", None)
    # Falcon and StarCoder.
    if getattr(text, "multi_query", None):
        return 1
    for name in (*_KV_HEADS, "num_attention_heads"):
        found = getattr(text, name, None)
        if found is not None:
            return found
    return None


def config_dtype(config: Any) -> str:
    """Return the pool's name of the type of a model's weights, where pages can have it, else "f32"."""
    dtype = config.dtype if config.dtype is not None else config.get_text_config(decoder=True).dtype
    return _DTYPES.get(str(dtype).removeprefix("torch."), "f32")


def pool_parameters(config: Any, *, n_pages: int, dtype: str | None = None, page_size: int = 16,
                    name: str = "transformers") -> dict[str, Any]:
    """Return the parameters of a pool, for paged.embedded(), that the model of a configuration fits.

    n_pages
        The memory is n_pages pages of page_size tokens.
    dtype
        The type of the pages: "f32", "f16", "bf16" or "i8"; None: that of the model's weights.

    The layers are those of a model without weights that computes a few tokens; if its class needs weights to run, those
    that the configuration describes.

    Raises ValueError if the model's K and V fit no pool.
    """
    geometry = model_geometry(config)
    if geometry is None:
        raise ValueError(f"a model of type {config.model_type} has K and V that fit no pool: "
                         "they are not all of one shape, or it has none")
    from paged.transformers.trial import layout_of_config  # it needs all of the package
    layout = layout_of_config(config)
    if isinstance(layout, str):
        raise ValueError(f"a model of type {config.model_type} has K and V that fit no pool: {layout}")
    geometry = layout or geometry
    length = getattr(config.get_text_config(decoder=True), "max_position_embeddings", None)
    parameters = {"name": name, **geometry._asdict(), "dtype": dtype or config_dtype(config),
                  "page_size": page_size, "n_pages": n_pages}
    if isinstance(length, int) and length > 0:
        parameters["max_length"] = length
    return parameters


def pool_section(parameters: dict[str, Any], model: str) -> str:
    """Return the section of pagedd.conf(5) for pool_parameters(); model is the text of its setting "model"."""
    dims = [f"head-dim = {parameters['k_dim']}"]
    if parameters["v_dim"] != parameters["k_dim"]:
        dims = [f"k-dim = {parameters['k_dim']}", f"v-dim = {parameters['v_dim']}"]
    lines = [f"layers = {parameters['n_layers']}", f"kv-heads = {parameters['n_kv_heads']}", *dims,
             f"dtype = {parameters['dtype']}", f"page-size = {parameters['page_size']}",
             f"pages = {parameters['n_pages']}"]
    if "max_length" in parameters:
        lines.append(f"max-length = {parameters['max_length']}")
    lines.append(f'model = "{model}"')
    return f"pool {parameters['name']} {{\n" + "".join(f"    {line}\n" for line in lines) + "}\n"
