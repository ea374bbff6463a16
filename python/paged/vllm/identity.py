# SPDX-License-Identifier: Apache-2.0
"""The identity of a vLLM request's tokens in the pool: which prefixes it finds, and under which it publishes."""
from __future__ import annotations

import array
import hashlib
import json
import os
import re
import secrets
from dataclasses import fields
from typing import Any

from vllm.config import LoadConfig, ModelConfig, VllmConfig
from vllm.logger import init_logger
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec
from vllm.v1.request import Request

import paged
from paged._engines import prefix_salt, without_names
from paged.vllm.loaded import Loaded

# vLLM configures the loggers below its own name.
logger = init_logger(f"vllm.{__name__}")

# vLLM's hashes of images and audio: blake3, SHA-256 or SHA-512, as --mm-hasher-algorithm says.
HASH = re.compile("[0-9a-f]{64}|[0-9a-f]{128}")


# The dtype of engines whose K and V have the precision of a pool.
DTYPES: dict[str, Any] = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
# Ways to load all weights of a checkpoint as they are.
WHOLE_CHECKPOINT = {"auto", "hf", "safetensors"}
# In an hf_config, what says where it comes from.
NAMES = {"_name_or_path", "transformers_version", "_commit_hash", "dtype", "torch_dtype"}
# Fields of vLLM's ModelConfig that do not change K and V, are in the name of the weights or are part of hf_config.
# A field that a later vLLM adds counts as one that does.
IRRELEVANT = {
    "model", "runner", "convert", "tokenizer", "tokenizer_mode", "trust_remote_code", "seed", "hf_config",
    "hf_text_config", "hf_config_path", "allowed_local_media_path", "allowed_media_domains", "revision",
    "tokenizer_revision", "max_model_len", "spec_target_max_model_len", "allow_deprecated_quantization",
    "enforce_eager", "return_sampling_mask", "max_logprobs", "logprobs_mode", "use_fp64_gumbel", "enable_trace_replay",
    "disable_cascade_attn", "skip_tokenizer_init", "enable_prompt_embeds", "served_model_name", "config_format",
    "hf_token", "hf_overrides", "generation_config", "override_generation_config", "enable_sleep_mode",
    "sleep_preserve_parameter_names", "sleep_mode_backend", "sleep_mode_offload_cudagraph",
    "enable_nccl_comm_suspend", "enable_cumem_allocator", "logits_processors", "io_processor_plugin",
    "renderer_num_workers", "pooler_config", "multimodal_config",
}


def model_name(config: ModelConfig) -> str:
    """Return what stands for the weights where the pool's configuration does not name them.

    vLLM's name of the model, and what else of its arguments names weights; of a directory the path and the state of its
    files, so that an engine that loads others under an old path does not share with one that loaded the old ones.  An
    engine of another make uses other words, so engines of several kinds share only where pagedd.conf names the model.
    """
    parts = [_files_name(str(config.model)), config.revision, config.quantization, config.dtype]
    return "@".join(str(part) for part in parts if part)


def changes_to_model(config: VllmConfig, pool_dtype: str) -> str:
    """Return "" if an engine computes the model as its checkpoint describes it, or a digest of how it does.

    Compared is vLLM's configuration after all of the user's options with the one that vLLM has without any.
    """
    model = config.model_config
    dtype = DTYPES.get(pool_dtype, "auto")  # K and V of other pools are not as precise as those of any engine
    try:
        plain = ModelConfig(model=model.model, revision=model.revision, trust_remote_code=model.trust_remote_code,
                            tokenizer=model.tokenizer, skip_tokenizer_init=True, dtype=dtype)
    except Exception:
        logger.warning("vLLM cannot load the configuration of %s without options: this engine shares its prefixes with "
                       "engines that have the same options only", model.model, exc_info=True)
        plain = None
    text = _effective(model, config.load_config)
    if plain is not None and text == _effective(plain, LoadConfig()):
        return ""
    return hashlib.sha256(text.encode()).hexdigest()


def _effective(model: ModelConfig, load: LoadConfig) -> str:
    """Return all of vLLM's configuration that may change K and V, as a canonical text."""
    values = {field.name: getattr(model, field.name) for field in fields(model) if field.name not in IRRELEVANT}
    values["hf_config"] = without_names(model.hf_config.to_dict(), NAMES)
    values["load"] = ["auto" if load.load_format in WHOLE_CHECKPOINT else load.load_format, load.ignore_patterns,
                      load.model_loader_extra_config]
    return json.dumps(values, sort_keys=True, default=repr)


def media_settings(config: ModelConfig) -> str | None:
    """Return what else than the file determines the tokens of an image or of audio; vLLM's hashes do not cover it.

    None if vLLM hashes no files: without its cache of processed inputs it numbers them, in each engine from 1.
    """
    media = config.multimodal_config
    if media is None:
        return ""
    if media.mm_processor_cache_gb == 0:
        return None
    return json.dumps([media.mm_processor_kwargs, media.media_io_kwargs, media.video_pruning_rate,
                       media.video_pruning_method], sort_keys=True, default=str)


def _expressible(text: str) -> str:
    """Return a text for paged.salt(), which takes neither a zero byte nor half of a surrogate pair."""
    if "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text):
        return text
    return "sha256:" + hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _files_name(name: str) -> str:
    """Return what stands for the files that a name means now: a name of the hub itself, or a path and their state.

    A path means the same in every working directory.  The state is size and time of change of each file.
    """
    if not os.path.exists(name):
        return name
    path = os.path.realpath(name)
    files = [path] if os.path.isfile(path) else sorted(entry.path for entry in os.scandir(path) if entry.is_file())
    states = [[os.path.basename(file), status.st_size, status.st_mtime_ns]
              for file, status in ((file, os.stat(file)) for file in files)]
    return f"{path}@{hashlib.sha256(json.dumps(states).encode()).hexdigest()}"


class Identity:
    """Makes paged.Prefix objects of requests, for one pool and model.

    model, changes, media
        What model_name(), changes_to_model() and media_settings() return.
    has_adapters
        Whether requests of the engine may have one (--enable-lora).
    """

    def __init__(self, pool: paged.Pool, model: str, changes: str, media: str | None, has_adapters: bool) -> None:
        self._pool = pool
        self._model = model
        self._media = media
        self._has_adapters = has_adapters
        # What changes K and V although the model's name is the same.
        self._changes = changes
        self._salts: dict[tuple[str, str], bytes] = {}
        # By number and path, because vLLM loads the files of an adapter when the first request has it.
        self._adapters: dict[tuple[int, str], str] = {}

    def add(self, loaded: Loaded) -> None:
        """Tell what the engine has loaded, before the first request.

        Where pagedd.conf names the model and the engine computes it as its checkpoint describes it, the name stands for
        all of that, and engines of other makes share.
        """
        if self._changes or not loaded.is_plain or not self._pool.model:
            self._changes = f"{self._changes} {loaded.weights} {loaded.rotary}"
            self._salts.clear()

    def forget(self) -> None:
        """Find nothing that was published until now: the weights changed.

        From now on this engine shares with itself only.
        """
        self._changes = secrets.token_hex(16)
        self._salts.clear()

    def prefix(self, request: Request, n_tokens: int, before: paged.Prefix | None = None) -> paged.Prefix | None:
        """Return the identity of the request's first n_tokens tokens; None if nothing expresses it.

        before
            That of fewer of its tokens: the call then takes as long as the further ones.
        """
        extras = self._extras(request, n_tokens)
        if extras is None:
            return None
        if before is not None:
            return before.extended(request.all_token_ids[len(before):n_tokens],
                                   extras=[extra for extra in extras if extra[0] >= len(before)])
        return paged.Prefix(request.all_token_ids[:n_tokens], salt=self._salt(request), extras=extras)

    def digest(self, request: Request, n_tokens: int) -> str | None:
        """Return a text that is equal for two requests, of any engines, if prefix() is; None if there is none."""
        extras = self._extras(request, n_tokens)
        if extras is None:
            return None
        parts = [array.array("Q", request.all_token_ids[:n_tokens]).tobytes(), self._salt(request)]
        parts += [b"%d %d " % (first, length) + digest for first, length, digest in extras]
        return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()

    def _extras(self, request: Request, n_tokens: int) -> list[tuple[int, int, bytes]] | None:
        """Return what else than tokens and salt identifies the request's first n_tokens tokens, in order.

        None if nothing identifies them.
        """
        if request.prompt_embeds is not None or request.prompt_token_ids is None:
            return None
        if self._has_adapters and request.lora_request is None:
            # In a batch with adapters, vLLM's LoRA on CPUs takes the index -1 of such a request for the last adapter.
            return None
        features = [feature for feature in request.mm_features if feature.mm_position.offset < n_tokens]
        if not all(self._is_hashed(feature) for feature in features):
            return None
        extras = sorted((feature.mm_position.offset, feature.mm_position.length,
                         hashlib.sha256(f"{self._media}@{feature.identifier}".encode()).digest())
                        for feature in features)
        if any(a[0] + a[1] > b[0] for a, b in zip(extras, extras[1:])):
            return None     # a prefix describes each token by one content
        return extras

    def may_share(self, a: Request, b: Request) -> bool:
        """Whether equal tokens of the requests are the same content, as far as that is cheap to say."""
        return self._salt(a) == self._salt(b) and not (a.mm_features or b.mm_features or a.prompt_embeds is not None
                                                       or b.prompt_embeds is not None)

    def _is_hashed(self, feature: MultiModalFeatureSpec) -> bool:
        """Whether vLLM's name of an image or of audio is a hash of its content, and so means the same in each engine.

        A request may bring names of its own (multi_modal_uuids).
        """
        return self._media is not None and HASH.fullmatch(feature.mm_hash or feature.identifier) is not None

    def _adapter(self, lora: LoRARequest) -> str:
        """Return what stands for an adapter.  Two engines may load different ones under one name."""
        key = (lora.lora_int_id, lora.lora_path)
        if key not in self._adapters or lora.load_inplace:
            self._adapters[key] = f"{lora.lora_name}@{_files_name(lora.lora_path)}"
        return self._adapters[key]

    def _salt(self, request: Request) -> bytes:
        lora = request.lora_request
        key = (self._adapter(lora) if lora is not None else "", request.cache_salt or "")
        if key not in self._salts:
            salt = prefix_salt(self._pool, self._model, adapter=_expressible(key[0]), tenant=_expressible(key[1]))
            self._salts[key] = paged.salt(salt.hex(), self._changes) if self._changes else salt
        return self._salts[key]
