# SPDX-License-Identifier: Apache-2.0
"""One KV cache for all model processes of a machine.

The daemon pagedd owns pools of pages.  A process connects to it, or runs the owner of the pools itself:

    client = paged.connect()
    client = paged.embedded({"name": "llama", "n_layers": 30, "n_kv_heads": 3, "k_dim": 64,
                             "dtype": "bf16", "n_pages": 4096})

A pool has sequences, which are integers.  A batch plans a step of some of them, appends K and V of their new tokens to
the pages, and runs attention on the pages in place:

    pool = client.pool("llama")
    a, b = pool.create(2, n_tokens=[512, 40])
    with pool.batch() as batch:
        batch.plan([a, b], q_len=[512, 40], kv_len=[512, 40])
        for layer in range(pool.n_layers):
            batch.append(layer, k, v)
            out = batch.attention(layer, q)

Tensors are those of any framework with DLPack: PyTorch, NumPy, JAX and others.  paged.torch has PyTorch's interface of
paged attention.

Objects keep those alive that they need: a batch its pool, a pool its client.  close() and with statements release
memory at once.  Errors are subclasses of Error.  In a forked child every call raises ForkError.
"""
from paged._paged import (
    Adopted, AgainError, BackendError, Batch, BlockKey, BlockMask, CHANGE_CLEARED, CHANGE_REMOVED, CHANGE_STORED,
    CapacityError, Change, CheckResult, Client, CorruptError, Error, ForkError, FullError, GoneError, InvalidError,
    LOG_DEBUG, LOG_ERROR, LOG_INFO, LOG_WARNING, LimitError, MAX_DIM, MAX_HOLD_PAGES, MAX_PAGE_SIZE, MAX_REQUEST_SEQS,
    Mod, ModSet, NamedMod, NoDaemonError, NoMemoryError, Node, NotFoundError, Pages, PermissionDeniedError, Pool,
    PUBLISH_BUCKET, PUBLISH_DONE, PUBLISH_OTHER, PUBLISH_REMOVED, PUBLISH_TRIMMED,
    PoolCounts, Prefix, ProtocolError, QuotaError, RangeError, Rotary, SequenceInfo, StaleError, Started,
    StoppingError, SystemCallError, TimedOutError, UnsupportedError, VersionError, Watch, WatchInfo, connect, embedded,
    model_allowed, named_mods, salt, version,
)

__all__ = [
    "Adopted", "AgainError", "BackendError", "Batch", "BlockKey", "BlockMask", "CHANGE_CLEARED", "CHANGE_REMOVED",
    "CHANGE_STORED", "CapacityError", "Change", "CheckResult", "Client", "CorruptError", "Error", "ForkError",
    "FullError", "GoneError", "InvalidError", "LOG_DEBUG", "LOG_ERROR", "LOG_INFO", "LOG_WARNING", "LimitError",
    "MAX_DIM", "MAX_HOLD_PAGES", "MAX_PAGE_SIZE", "MAX_REQUEST_SEQS", "Mod", "ModSet", "NamedMod", "NoDaemonError",
    "PUBLISH_BUCKET", "PUBLISH_DONE", "PUBLISH_OTHER", "PUBLISH_REMOVED", "PUBLISH_TRIMMED",
    "NoMemoryError", "Node", "NotFoundError", "Pages", "PermissionDeniedError", "Pool", "PoolCounts", "Prefix",
    "ProtocolError", "QuotaError", "RangeError", "Rotary", "SequenceInfo", "StaleError", "Started", "StoppingError",
    "SystemCallError", "TimedOutError", "UnsupportedError", "VersionError", "Watch", "WatchInfo", "connect",
    "embedded", "model_allowed", "named_mods", "salt", "version",
]

__version__ = version()
