# SPDX-License-Identifier: Apache-2.0
"""Which of vLLM's configurations a pool can serve.  What it cannot is refused at the start, with the reason."""
from __future__ import annotations

from vllm.config import VllmConfig
from vllm.v1.kv_cache_interface import AttentionSpec, KVCacheConfig, SlidingWindowSpec

import paged
from paged._engines import Geometry
from paged.vllm.arguments import SCHEDULER, WORKER
from paged.vllm.layers import spec_refusal, spec_shape


def geometry(cache: KVCacheConfig) -> Geometry:
    """Return what the model needs of a pool.  Raises ValueError if pages cannot hold its K and V.

    vLLM tells the scheduler's process the specification of the first layer only: layers.check_layers() sees all of
    them, in the worker's process, which starts earlier.
    """
    if len(cache.kv_cache_groups) != 1:
        raise ValueError(f"the model's layers need {len(cache.kv_cache_groups)} kinds of KV cache; the pages of a "
                         f"pool are of one kind")
    group = cache.kv_cache_groups[0]
    spec = group.kv_cache_spec
    refusal = spec_refusal(spec)
    if refusal is not None:
        raise ValueError(f"the model has {refusal}")
    assert isinstance(spec, AttentionSpec)
    return Geometry(len(group.layer_names), *spec_shape(spec))


def tokens_seen(cache: KVCacheConfig) -> int | None:
    """Return how many tokens before its own a query sees at most; None: all.

    That of a model whose layers all have one sliding window.  vLLM gives models with other layers too a spec without
    one.
    """
    spec = cache.kv_cache_groups[0].kv_cache_spec
    return spec.sliding_window - 1 + spec.extra_retained_tokens if isinstance(spec, SlidingWindowSpec) else None


def pages_needed(config: VllmConfig, n_seen: int | None) -> int:
    """Return how many pages the longest request may need at a time; n_seen: tokens_seen()."""
    n_tokens, page_size = config.model_config.max_model_len, config.cache_config.block_size
    n_step = config.scheduler_config.max_num_batched_tokens + config.num_lookahead_tokens
    if n_seen is None or n_seen + n_step >= n_tokens:
        return -(-n_tokens // page_size)
    # One more, because the window may begin inside of a page.
    return -(-(n_seen + n_step) // page_size) + 1


def check(config: VllmConfig) -> None:
    """Raise ValueError if vLLM is configured to do what paged.vllm does not support."""
    parallel = config.parallel_config
    speculative = config.speculative_config
    refusals = [
        (parallel.tensor_parallel_size > 1,
         f"--tensor-parallel-size {parallel.tensor_parallel_size}: a pool holds all heads"),
        (parallel.pipeline_parallel_size > 1,
         f"--pipeline-parallel-size {parallel.pipeline_parallel_size}: a pool holds all layers"),
        (parallel.decode_context_parallel_size > 1,
         "--decode-context-parallel-size: a sequence has all of its pages here"),
        (bool(config.scheduler_config.async_scheduling), "--async-scheduling: pages change hands between steps"),
        (config.scheduler_config.scheduler_cls != SCHEDULER,
         f"another scheduler: start vLLM with --scheduler-cls {SCHEDULER}"),
        (config.parallel_config.worker_cls != WORKER, f"another worker: start vLLM with --worker-cls {WORKER}"),
        (config.model_config.runner_type == "pooling", "a pooling model: it has no K and V to keep"),
        (bool(config.model_config.is_diffusion), "a diffusion model: its tokens attend to later ones"),
        (bool(config.cache_config.kv_sharing_fast_prefill),
         "--kv-sharing-fast-prefill: layers of one step then have different rows"),
        (config.model_config.is_encoder_decoder, "an encoder-decoder model: cross attention has a cache of its own"),
        (config.cache_config.cache_dtype.startswith("fp8"),
         f"--kv-cache-dtype {config.cache_config.cache_dtype}: set the pool's dtype in pagedd.conf instead"),
        (speculative is not None and (speculative.use_eagle() or speculative.uses_draft_model()),
         "a draft model: it has K and V of its own; ngram speculative decoding works"),
    ]
    reasons = [reason for refused, reason in refusals if refused]
    if reasons:
        raise ValueError("paged.vllm does not support " + "; nor ".join(reasons))


def check_pool(config: VllmConfig, pool: paged.Pool) -> None:
    """Raise ValueError if vLLM's settings do not agree with the pool's."""
    if config.cache_config.block_size != pool.page_size:
        raise ValueError(f"pool {pool.name} has pages of {pool.page_size} tokens, vLLM blocks of "
                         f"{config.cache_config.block_size}: start vLLM with --block-size {pool.page_size}")
    if config.model_config.max_model_len > pool.max_length:
        raise ValueError(f"pool {pool.name} holds sequences of {pool.max_length} tokens, vLLM allows "
                         f"{config.model_config.max_model_len}: start vLLM with --max-model-len {pool.max_length}, "
                         f"or raise max-length in pagedd.conf")
    if config.scheduler_config.max_num_seqs > paged.MAX_REQUEST_SEQS:
        raise ValueError(f"vLLM may run {config.scheduler_config.max_num_seqs} requests at once: start it with "
                         f"--max-num-seqs {paged.MAX_REQUEST_SEQS} or less")
