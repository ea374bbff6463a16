# SPDX-License-Identifier: Apache-2.0
"""The check of an engine's attention at its start: it accepts what a pool computes, and finds what it does not."""
from __future__ import annotations

import pytest

pytest.importorskip("vllm")

import torch
from vllm.config import set_current_vllm_config
from vllm.model_executor.layers.attention import Attention

from paged._engines import Geometry
from paged.vllm.worker import Worker

LAYER = "model.layers.{}.self_attn.attn"
KINDS = {
    "plain": {}, "window": {"per_layer_sliding_window": 7}, "cap": {"logits_soft_cap": 2.5},
    "sinks": {"sinks": torch.linspace(-1, 3, 8)}, "alibi": {"alibi_slopes": [2.0 ** -(1 + h) for h in range(8)]},
    "all": {"per_layer_sliding_window": 20, "logits_soft_cap": 5.0, "sinks": torch.linspace(-1, 3, 8)},
}


class Runner:
    """A model runner whose model has attention layers only."""

    def __init__(self, layers, dtype):
        self.layers, self.dtype, self.max_num_tokens, self.calls_again = layers, dtype, 8192, False

    def _dummy_run(self, n_tokens, randomize_inputs, skip_eplb):
        assert n_tokens <= self.max_num_tokens
        for layer in self.layers:
            q, k, v = (torch.randn(n_tokens, heads, 64).to(self.dtype) for heads in (8, 2, 2))
            self.output = torch.full_like(q, 7)
            layer.impl.forward(layer, q, k, v, torch.empty(0), None, self.output)
            if self.calls_again:
                layer.impl.forward(layer, -q, None, None, torch.empty(0), None, self.output)


@pytest.fixture
def model(vllm_config):
    """A function that returns a runner with layers of some kinds, and the worker whose layers they are."""
    workers = []

    def make(dtype, *kinds, shared=False):
        config = vllm_config(True, dtype=str(dtype).removeprefix("torch."))
        with set_current_vllm_config(config):
            layers = [Attention(8, 64, 0.125, 2, cache_config=config.cache_config, prefix=LAYER.format(i),
                                **KINDS[kind])
                      for i, kind in enumerate(kinds)]
            workers.append(Worker([layer.layer_name for layer in layers], 10, 4))
            if shared:
                layers.append(Attention(8, 64, 0.125, 2, cache_config=config.cache_config, prefix=LAYER.format(9),
                                        kv_sharing_target_layer_name=LAYER.format(0)))
        return Runner(layers, dtype), workers[-1], Geometry(len(kinds), 2, 64, 64)

    yield make


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_kinds(model, dtype):
    runner, worker, geometry = model(dtype, *KINDS, shared=True)
    worker.examine(runner, geometry, dtype)
    assert not (runner.output == 7).all()
    # The guard is gone: vLLM's other passes without metadata leave their output.
    assert worker.guard is None
    runner._dummy_run(4, True, True)
    assert (runner.output == 7).all()


def test_a_layer_is_called_again(model):
    """With other queries, on the K and V that it has; as IQuestLoopCoder."""
    runner, worker, geometry = model(torch.float32, *KINDS)
    runner.calls_again = True
    worker.examine(runner, geometry, torch.float32)


def test_small_steps(model):
    """--max-num-batched-tokens may be less than the tokens of the forward pass."""
    runner, worker, geometry = model(torch.float32, "plain")
    runner.max_num_tokens = 5
    worker.examine(runner, geometry, torch.float32)


@pytest.mark.parametrize("name, value", [("sliding_window", 5), ("logits_soft_cap", 0.5),
                                         ("alibi_slopes", torch.ones(8))])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_other_attention(model, dtype, name, value):
    """vLLM's own implementation of a layer would do something that the pool does not know of."""
    runner, worker, geometry = model(dtype, "plain", "plain")
    setattr(runner.layers[1].impl, name, value)
    with pytest.raises(RuntimeError, match="layer model.layers.1.self_attn.attn: attention on a pool differs from the "
                                           "layer's own by .* no pool can serve this model"):
        worker.examine(runner, geometry, dtype)
    assert worker.guard is None


def test_no_attention(model):
    """A model whose attention is computed elsewhere would have its K and V elsewhere, too."""
    runner, worker, geometry = model(torch.float32, "plain")
    runner.layers = []
    with pytest.raises(RuntimeError, match="no attention layer of the model computed K and V"):
        worker.examine(runner, geometry, torch.float32)
