# SPDX-License-Identifier: Apache-2.0
"""vLLM on a pool: its requests are sequences of the pool, which other engines share with it.

vLLM finds this package through the entry point "paged" of vllm.general_plugins.  An engine with kv_connector
"PagedConnector" then has its K and V in a pool; other engines stay as they are.
"""
from __future__ import annotations

from paged.vllm.arguments import CONNECTOR, arguments

__all__ = ["arguments", "register"]


def register() -> None:
    """Tell vLLM of the connector and of the attention backend.  vLLM calls it in each of its processes."""
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

    register_backend(AttentionBackendEnum.CPU_ATTN, "paged.vllm.backend.selected")
    # A program that starts several engines loads the plug-ins for each.
    if CONNECTOR not in KVConnectorFactory._registry:
        KVConnectorFactory.register_connector(CONNECTOR, "paged.vllm.connector", "PagedConnector")
