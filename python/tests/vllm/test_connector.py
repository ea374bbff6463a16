# SPDX-License-Identifier: Apache-2.0
"""PagedConnector at the start of an engine: geometry comes from the daemon, and what does not fit it is refused."""
from __future__ import annotations

import pytest

pytest.importorskip("vllm")

import torch
from scheduling import cache_config, engine_config, pool_configuration, write_model
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, MLAAttentionSpec

import paged


@pytest.fixture
def connect(tmp_path, start_daemon):
    """A function that makes the connector of an engine's scheduler, with arguments of vLLM and of the KV cache."""
    connectors = []

    def make(cache=None, spec=None, pool="test", change=None, **arguments):
        config = engine_config(write_model(tmp_path / "model"), make.daemon.runtime_dir, pool="test", **arguments)
        config.kv_transfer_config.kv_connector_extra_config["pool"] = pool
        if change is not None:
            change(config)
        cache = cache or cache_config(config, **(spec or {}))
        connectors.append(KVConnectorFactory.create_connector(config=config, role=KVConnectorRole.SCHEDULER,
                                                              kv_cache_config=cache))
        return connectors[-1], config

    make.daemon = start_daemon(pool_configuration())
    yield make
    for connector in connectors:
        connector.shutdown()


def sessions(daemon):
    """Names of the sessions other than this one's."""
    with daemon.connect(name="observer") as client:
        return [session["name"] for session in client.sessions() if session["session"] != client.session]


def test_settings_that_follow_from_the_pool(connect):
    connector, config = connect(change=lambda config: setattr(config.cache_config, "enable_prefix_caching", True))
    assert config.cache_config.enable_prefix_caching is False
    assert not connector.requires_kv_delivery
    assert sessions(connect.daemon) == ["vllm"]


def test_block_size(connect):
    with pytest.raises(ValueError, match="pool test has pages of 16 tokens, vLLM blocks of 32: .* --block-size 16"):
        connect(block_size=32)
    # Nothing is left of the attempt.
    assert sessions(connect.daemon) == []


def test_length(connect):
    with pytest.raises(ValueError, match="holds sequences of 1024 tokens, vLLM allows 2048: .* --max-model-len 1024"):
        connect(max_model_len=2048, max_num_batched_tokens=2048)


def test_geometry(connect):
    """GMS: a standby whose layout differs from the owner's is refused, with both numbers."""
    with pytest.raises(ValueError, match="pool test has n_kv_heads = 1, the model needs 2"):
        connect(spec={"num_kv_heads": 2})
    with pytest.raises(ValueError, match="pool test has k_dim = 4, the model needs 8"):
        connect(spec={"head_size": 8})


def test_model(connect, start_daemon):
    """The pool names another model of the same geometry: its pages would give wrong answers."""
    connect.daemon = start_daemon(pool_configuration(more='model = "model-instruct@v1"'))
    with pytest.raises(ValueError, match="pool test is for the model model-instruct@v1, not for .*/model: use another"):
        connect()
    assert sessions(connect.daemon) == []
    connect.daemon = start_daemon(pool_configuration(more='model = "Model@v1"'))
    assert connect()[0]._sequences.pool.name == "test"


def test_pool_is_found_by_geometry(connect, monkeypatch):
    monkeypatch.delenv("PAGED_POOL", raising=False)
    connector, _ = connect(pool=None)
    assert connector._sequences.pool.name == "test"
    with pytest.raises(LookupError, match="no pool has n_layers = 1, n_kv_heads = 3"):
        connect(pool=None, spec={"num_kv_heads": 3})


def test_kinds_of_cache(connect):
    group = KVCacheGroupSpec(["model.layers.0.attn"], FullAttentionSpec(16, num_kv_heads=1, head_size=4,
                                                                        dtype=torch.float32))
    with pytest.raises(ValueError, match="2 kinds of KV cache"):
        connect(cache=KVCacheConfig(num_blocks=10, kv_cache_tensors=[], kv_cache_groups=[group, group]))
    mla = KVCacheGroupSpec(["model.layers.0.attn"], MLAAttentionSpec(16, num_kv_heads=1, head_size=4,
                                                                     dtype=torch.float32))
    with pytest.raises(ValueError, match="MLAAttentionSpec"):
        connect(cache=KVCacheConfig(num_blocks=10, kv_cache_tensors=[], kv_cache_groups=[mla]))


@pytest.mark.parametrize("change, reason", [
    (lambda config: setattr(config.parallel_config, "tensor_parallel_size", 2), "--tensor-parallel-size 2"),
    (lambda config: setattr(config.parallel_config, "pipeline_parallel_size", 2), "--pipeline-parallel-size 2"),
    (lambda config: setattr(config.scheduler_config, "async_scheduling", True), "--async-scheduling"),
    (lambda config: setattr(config.model_config, "runner_type", "pooling"), "a pooling model"),
    (lambda config: setattr(config.cache_config, "cache_dtype", "fp8_e5m2"), "--kv-cache-dtype fp8_e5m2"),
])
def test_unsupported_configurations(connect, change, reason):
    with pytest.raises(ValueError, match=f"paged.vllm does not support {reason}"):
        connect(change=change)


def test_ngram_is_supported(connect):
    connect(speculative_config={"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3})


def test_no_daemon(connect):
    connect.daemon.stop()
    with pytest.raises(paged.NoDaemonError):
        connect()


def test_end_of_the_daemon(connect):
    """The engine gets an error that says what to do; nothing waits."""
    from vllm.sampling_params import SamplingParams
    from vllm.v1.request import Request
    connector, _ = connect()
    connect.daemon.kill()
    with pytest.raises(ConnectionError, match="pool test: pagedd has ended"):
        connector.get_num_new_matched_tokens(Request("1", [1, 2, 3], SamplingParams(max_tokens=1), None), 0)
