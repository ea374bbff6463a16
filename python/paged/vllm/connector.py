# SPDX-License-Identifier: Apache-2.0
"""vLLM's KV connector: hands each call to the part of paged.vllm in the scheduler's, or in the worker's process."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.config import VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorRole,
)
from vllm.v1.kv_cache_interface import KVCacheConfig

import paged
from paged._engines import choose_pool
from paged.vllm import supported
from paged.vllm.backend import Backend, Implementation
from paged.vllm.ended import explain_end
from paged.vllm.handover import TICKET_TIMEOUT_S, Handover
from paged.vllm.identity import Identity, changes_to_model, media_settings, model_name
from paged.vllm.layers import check_layers
from paged.vllm.limits import check_pages
from paged.vllm.loaded import Loaded, loaded
from paged.vllm.memory import Untouched
from paged.vllm.request_sequences import RequestSequences
from paged.vllm.step import Step
from paged.vllm.worker import Worker

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import torch
    from vllm.forward_context import ForwardContext
    from vllm.v1.attention.backend import AttentionMetadata
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.request import Request


def _open_sequences(config: VllmConfig, cache: KVCacheConfig) -> RequestSequences:
    supported.check(config)
    geometry = supported.geometry(cache)
    transfer = config.kv_transfer_config
    assert transfer is not None
    runtime_dir = transfer.get_from_extra_config("runtime_dir", None)
    # The scheduler computes nothing but copies of partial pages.
    client = paged.connect(runtime_dir, name="vllm", threads=1, run="own")
    try:
        pool = choose_pool(client, geometry, config.model_config.model, transfer.get_from_extra_config("pool", None))
        n_seen = supported.tokens_seen(cache)
        supported.check_pool(config, pool)
        check_pages(config, pool, n_seen)
    except BaseException:
        client.close()
        raise
    # The pool is the prefix cache.  vLLM reads this after it made its scheduler's connector.
    config.cache_config.enable_prefix_caching = False
    model = config.model_config
    identity = Identity(pool, model_name(model), changes_to_model(config, pool.dtype), media_settings(model),
                        config.lora_config is not None)
    handover = Handover(pool, identity, engine_id=transfer.engine_id, gives=transfer.is_kv_producer,
                        adopts=transfer.is_kv_consumer,
                        timeout=float(transfer.get_from_extra_config("ticket_timeout", TICKET_TIMEOUT_S)))
    return RequestSequences(pool, identity, handover, runtime_dir,
                            config.num_speculative_tokens + config.num_lookahead_tokens, n_seen,
                            supported.pages_needed(config, n_seen))


class PagedConnector(KVConnectorBase_V1):
    """Keeps vLLM's K and V in a pool of pagedd.

    kv_connector_extra_config: pool (its name, needed if several fit), runtime_dir (that of pagedd, if not the usual),
    ticket_timeout (seconds that a sequence waits for the engine that is to continue it).
    kv_role: kv_producer gives sequences away, kv_consumer adopts them, kv_both does both (handover.py).
    """

    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self._sequences: RequestSequences
        self._worker: Worker
        if role == KVConnectorRole.SCHEDULER:
            self._sequences = _open_sequences(vllm_config, kv_cache_config)
        else:
            self._geometry = check_layers(vllm_config, Backend, Implementation)
            self._loaded: Loaded | None = None
            names = [name for group in kv_cache_config.kv_cache_groups for name in group.layer_names]
            self._worker = Worker(names, kv_cache_config.num_blocks, vllm_config.scheduler_config.max_num_seqs)

    @property
    def requires_kv_delivery(self) -> bool:
        # A request that vLLM preempts finds what it published; what is handed over is in the pool already.
        return False

    # In the scheduler's process.

    @property
    def pool(self) -> paged.Pool:
        return self._sequences.pool

    def may_grow(self, request: Request, n_tokens: int) -> bool:
        """Reserve pages for the request's first n_tokens tokens; return whether it has them.  For PoolScheduler."""
        with explain_end(self._sequences.pool.name):
            return self._sequences.may_grow(request, n_tokens)

    def take_failed(self) -> list[str]:
        """Return the ids of requests that can never start; they are to end with an error.  For PoolScheduler."""
        return self._sequences.take_failed()

    def on_new_request(self, request: Request) -> None:
        with explain_end(self._sequences.pool.name):
            self._sequences.expect(request)

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int | None, bool]:
        with explain_end(self._sequences.pool.name):
            return self._sequences.start(request), False

    def update_state_after_alloc(self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int) -> None:
        self._sequences.admit(request)

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> KVConnectorMetadata:
        with explain_end(self._sequences.pool.name):
            return self._sequences.build_step(scheduler_output)

    def request_finished(self, request: Request, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        with explain_end(self._sequences.pool.name):
            return False, self._sequences.finish(request)

    def reset_cache(self) -> bool | None:
        with explain_end(self._sequences.pool.name):
            self._sequences.forget()
        return True

    def set_xfer_handshake_metadata(self, metadata: dict[int, KVConnectorHandshakeMetadata]) -> None:
        for loaded_model in metadata.values():
            assert isinstance(loaded_model, Loaded)
            self._sequences.identity.add(loaded_model)

    # In the worker's process.

    def examine(self, runner: Any) -> None:
        """Check the model that a model runner has loaded, before any request.  For PoolWorker."""
        self._worker.examine(runner, self._geometry, self._vllm_config.model_config.dtype)
        self._loaded = loaded(runner.get_model())

    def get_handshake_metadata(self) -> KVConnectorHandshakeMetadata | None:
        return self._loaded

    def get_mem_pool_context(self) -> AbstractContextManager[Any]:
        # The pool replaces vLLM's KV tensors.
        return Untouched()

    def handle_preemptions(self, kv_connector_metadata: KVConnectorMetadata) -> None:
        assert isinstance(kv_connector_metadata, Step)
        with explain_end(kv_connector_metadata.pool):
            self._worker.begin_step(kv_connector_metadata)

    # Attention reads and writes pages in place, so there is nothing to load or to save.

    def start_load_kv(self, forward_context: ForwardContext, **kwargs: Any) -> None:
        pass

    def wait_for_layer_load(self, layer_name: str) -> None:
        pass

    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: AttentionMetadata,
                      **kwargs: Any) -> None:
        pass

    def wait_for_save(self) -> None:
        self._worker.end_step()

    # In both.

    def shutdown(self) -> None:
        if self.role == KVConnectorRole.SCHEDULER:
            self._sequences.close()
        else:
            self._worker.close()
