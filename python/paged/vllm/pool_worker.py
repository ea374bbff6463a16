# SPDX-License-Identifier: Apache-2.0
"""vLLM's worker, which checks the loaded model before the first request."""
from __future__ import annotations

from vllm.distributed.kv_transfer import get_kv_transfer_group
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheSpec
from vllm.v1.worker.cpu_worker import CPUWorker

from paged.vllm.arguments import CONNECTOR, WORKER
from paged.vllm.backend import Backend, Implementation
from paged.vllm.connector import PagedConnector
from paged.vllm.layers import check_layers


class PoolWorker(CPUWorker):
    """vLLM's worker on CPUs.  Engines with a PagedConnector need it: --worker-cls."""

    def get_kv_cache_spec(self) -> dict[str, KVCacheSpec]:
        # vLLM makes one of these specifications; where that fails, its error names no layer.
        check_layers(self.vllm_config, Backend, Implementation)
        return super().get_kv_cache_spec()

    def initialize_from_config(self, kv_cache_config: KVCacheConfig) -> None:
        super().initialize_from_config(kv_cache_config)
        connector = get_kv_transfer_group()
        if not isinstance(connector, PagedConnector):
            raise ValueError(f'--worker-cls {WORKER} needs kv_connector "{CONNECTOR}": '
                             "paged.vllm.arguments() returns both")
        connector.examine(self.model_runner)
