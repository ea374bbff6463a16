# SPDX-License-Identifier: Apache-2.0
"""The attention backend next to vLLM's own one and to float64, on batches of many steps, without vLLM's scheduler."""
from __future__ import annotations

import math

import numpy
import pytest

pytest.importorskip("vllm")

import torch
from vllm.config import set_current_vllm_config
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.attention.chunked_local_attention import create_chunked_local_attention_backend
from vllm.v1.attention.backend import AttentionType, CommonAttentionMetadata
from vllm.v1.attention.backends.cpu_attn import (
    CPUAttentionBackend,
    CPUAttentionBackendImpl,
    CPUAttentionMetadataBuilder,
)
from vllm.v1.kv_cache_interface import EncoderOnlyAttentionSpec, FullAttentionSpec

from paged.vllm.backend import Backend, Builder, Implementation
from paged.vllm.step import Step
from paged.vllm.worker import Worker

N_LAYERS = 2
N_BLOCKS = 160
# Largest difference from float64, of outputs of about 1: some units in the last place of K, V and output.
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
NAMES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
LAYER = "model.layers.{}.self_attn.attn"


class Engine:
    """Attention layers of one engine, and what its model runner has: block table, lengths, KV tensors."""

    def __init__(self, config, n_heads, n_kv_heads, dim, page_size, **layer):
        self.config, self.dim = config, dim
        self.names = [LAYER.format(i) for i in range(N_LAYERS)]
        torch.set_default_dtype(config.model_config.dtype)
        try:
            with set_current_vllm_config(config):
                self.layers = [Attention(n_heads, dim, dim ** -0.5, n_kv_heads, cache_config=config.cache_config,
                                         prefix=name, **layer) for name in self.names]
                for each in self.layers:
                    each.process_weights_after_loading(config.model_config.dtype)
                spec = FullAttentionSpec(block_size=page_size, num_kv_heads=n_kv_heads, head_size=dim,
                                         dtype=config.model_config.dtype)
                builder = self.layers[0].attn_backend.get_builder_cls()
                self.builder = builder(spec, self.names, config, torch.device("cpu"))
        finally:
            torch.set_default_dtype(torch.float32)
        self.kv = None

    def allocate(self, n_kv_heads, page_size):
        """KV tensors, which vLLM's own backend needs."""
        self.kv = [torch.zeros(N_BLOCKS, n_kv_heads, page_size, 2 * self.dim, dtype=self.config.model_config.dtype)
                   for _ in self.layers]

    def attend(self, i, common, metadata, q, k, v):
        layer, out = self.layers[i], torch.zeros_like(q)
        kv = self.kv[i] if self.kv else torch.empty(0)
        with set_current_vllm_config(self.config):
            if not layer.attn_backend.forward_includes_kv_cache_update:
                layer.impl.do_kv_cache_update(layer, k, v, kv, common.slot_mapping)
            layer.impl.forward(layer, q, k, v, kv, metadata, out)
        return out


class Requests:
    """Running requests: their blocks, lengths, and all K and V of each layer."""

    def __init__(self, n, page_size, generator):
        self.page_size = page_size
        self.lens = [0] * n
        # Ids in an order without meaning; block 0 is vLLM's null block.
        self.free = (1 + torch.randperm(N_BLOCKS - 1, generator=generator)).tolist()
        self.blocks = [[] for _ in range(n)]
        self.k = [[[] for _ in range(N_LAYERS)] for _ in range(n)]
        self.v = [[[] for _ in range(N_LAYERS)] for _ in range(n)]

    def grow(self, n_new):
        """Add tokens to the requests; returns vLLM's metadata, and for each request the blocks that it received."""
        received = []
        for r, n in enumerate(n_new):
            self.lens[r] += n
            missing = -(-self.lens[r] // self.page_size) - len(self.blocks[r])
            received.append([self.free.pop() for _ in range(missing)])
            self.blocks[r] += received[r]
        rows = [r for r, n in enumerate(n_new) if n]
        table = torch.zeros(len(rows), max(len(self.blocks[r]) for r in rows) + 3, dtype=torch.int32)
        for row, r in enumerate(rows):
            table[row, :len(self.blocks[r])] = torch.tensor(self.blocks[r])
        starts = torch.tensor([0, *numpy.cumsum([n_new[r] for r in rows])], dtype=torch.int32)
        lens = torch.tensor([self.lens[r] for r in rows], dtype=torch.int32)
        slots = [self.blocks[r][p // self.page_size] * self.page_size + p % self.page_size
                 for r in rows for p in range(self.lens[r] - n_new[r], self.lens[r])]
        common = CommonAttentionMetadata(
            query_start_loc=starts, query_start_loc_cpu=starts, seq_lens=lens, num_reqs=len(rows),
            num_actual_tokens=int(starts[-1]), max_query_len=max(n_new), max_seq_len=int(lens.max()),
            block_table_tensor=table, slot_mapping=torch.tensor(slots))
        return common, received, rows


def reference(q, k, v, scale, window=None, slopes=None, cap=None, sinks=None):
    """Attention of one request in float64: q [n, heads, dim], k and v [len, kv heads, dim]."""
    q, k, v = q.double(), k.double(), v.double()
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = torch.einsum("qhd,khd->hqk", q, k) * scale
    if cap:
        scores = cap * torch.tanh(scores / cap)
    position = torch.arange(len(k))
    distance = position[len(k) - len(q):, None] - position[None]
    if slopes is not None:
        scores = scores - torch.tensor(slopes, dtype=torch.float64)[:, None, None] * distance
    hidden = distance < 0 if window is None else (distance < 0) | (distance >= window)
    scores = scores.masked_fill(hidden, -math.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.double()[:, None, None].expand(-1, len(q), 1)], -1)
    weights = scores.softmax(-1)[..., :len(k)]
    return torch.einsum("hqk,khd->qhd", weights, v)


def steps(n, generator):
    """New tokens of n requests: a prefill, one in chunks while others decode, then decoding."""
    def number(low, high):
        return int(torch.randint(low, high, (1,), generator=generator))

    yield [number(1, 200) for _ in range(n)]
    yield [number(2, 70) if r % 2 else 1 for r in range(n)]
    yield [0 if r == 1 else 1 for r in range(n)]
    yield [1] * n


class Scene:
    """An engine on a pool with the same requests as one on vLLM's own memory."""

    def __init__(self, start_daemon, vllm_config, dtype, n_heads, n_kv_heads, dim, page_size, **layer):
        self.dtype, self.n_heads, self.n_kv_heads, self.dim = dtype, n_heads, n_kv_heads, dim
        self.page_size, self.layer = page_size, layer
        self.daemon = start_daemon(f"""
            pool test {{
                layers = {N_LAYERS}
                kv-heads = {n_kv_heads}
                head-dim = {dim}
                dtype = {NAMES[dtype]}
                page-size = {page_size}
                pages = {N_BLOCKS}
                max-length = 4096
            }}""")
        arguments = {"dtype": str(dtype).removeprefix("torch."), "block_size": page_size}
        self.worker = Worker([LAYER.format(i) for i in range(N_LAYERS)], N_BLOCKS, 16)
        self.paged = Engine(vllm_config(True, **arguments), n_heads, n_kv_heads, dim, page_size, **layer)
        self.own = Engine(vllm_config(False, **arguments), n_heads, n_kv_heads, dim, page_size, **layer)
        self.own.allocate(n_kv_heads, page_size)
        self.client = self.daemon.connect()
        self.pool = self.client.pool("test")

    def step(self, **marks):
        return Step(str(self.daemon.runtime_dir), self.client.join_token, "test", **marks)

    def close(self):
        self.worker.close()
        self.pool.close()
        self.client.close()


@pytest.fixture
def scene(start_daemon, vllm_config):
    scenes = []

    def make(*shape, **layer):
        scenes.append(Scene(start_daemon, vllm_config, *shape, **layer))
        return scenes[-1]

    yield make
    for each in scenes:
        each.close()


def compare(scene, seed):
    """Run steps on both engines, and compare their outputs with float64."""
    generator = torch.Generator().manual_seed(seed)
    n = 5
    requests = Requests(n, scene.page_size, generator)
    sequences = scene.pool.create(n)
    layer = scene.layer
    arguments = {"window": layer.get("per_layer_sliding_window"), "slopes": layer.get("alibi_slopes"),
                 "cap": layer.get("logits_soft_cap"), "sinks": layer.get("sinks")}
    for n_new in steps(n, generator):
        common, received, rows = requests.grow(n_new)
        scene.pool.reserve(sequences, requests.lens)
        scene.worker.begin_step(scene.step(
            placed=[(sequence, blocks) for sequence, blocks in zip(sequences, received) if blocks],
            rows={sequences[r]: (n_new[r], requests.lens[r]) for r in rows}))
        built = scene.paged.builder.build(0, common)
        with set_current_vllm_config(scene.own.config):
            own_built = scene.own.builder.build(0, common)
        for i in range(N_LAYERS):
            # As the model's: parts of one tensor.
            n_all = scene.n_heads + 2 * scene.n_kv_heads
            qkv = torch.randn(common.num_actual_tokens, n_all * scene.dim, generator=generator).to(scene.dtype)
            q, k, v = (part.view(len(qkv), -1, scene.dim) for part in qkv.split(
                [heads * scene.dim for heads in (scene.n_heads, scene.n_kv_heads, scene.n_kv_heads)], -1))
            out = scene.paged.attend(i, common, built, q, k, v)
            other = scene.own.attend(i, common, own_built, q, k, v)
            starts = common.query_start_loc.tolist()
            for row, r in enumerate(rows):
                here = slice(starts[row], starts[row + 1])
                requests.k[r][i].append(k[here].clone())
                requests.v[r][i].append(v[here].clone())
                expected = reference(q[here], torch.cat(requests.k[r][i]), torch.cat(requests.v[r][i]),
                                     scene.dim ** -0.5, **arguments)
                error, other_error = ((each[here].double() - expected).abs().max().item() for each in (out, other))
                assert error <= TOLERANCE[scene.dtype], (n_new, r, i)
                # Not next to nothing: what is compared is vLLM's computation, too.
                assert other_error <= 4 * TOLERANCE[scene.dtype], (n_new, r, i)
        scene.worker.end_step()


SHAPES = [
    (torch.float32, 9, 3, 64, 16), (torch.float32, 4, 4, 80, 32), (torch.float32, 8, 2, 128, 128),
    (torch.bfloat16, 9, 3, 64, 64), (torch.bfloat16, 4, 1, 96, 32), (torch.bfloat16, 8, 2, 128, 16),
    (torch.float16, 4, 2, 64, 128), (torch.float16, 6, 2, 80, 64),
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join([NAMES[shape[0]], *map(str, shape[1:])]))
def test_random_batches(scene, shape):
    compare(scene(*shape), seed=sum(shape[1:]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=NAMES.get)
@pytest.mark.parametrize("layer", [
    {"per_layer_sliding_window": 48}, {"logits_soft_cap": 2.5},
    {"per_layer_sliding_window": 33, "logits_soft_cap": 5.0},
    {"alibi_slopes": [2.0 ** -(1 + h) for h in range(8)]},
    {"sinks": torch.linspace(-1, 3, 8)}, {"per_layer_sliding_window": 20, "sinks": torch.linspace(-1, 3, 8)},
], ids=lambda layer: "+".join(layer))
def test_layers(scene, dtype, layer):
    compare(scene(dtype, 8, 2, 64, 32, **layer), seed=7)


def prefill(scene, n_tokens, **marks):
    """One request of n_tokens whose sequence has that capacity; returns what a layer needs, and the sequence."""
    generator = torch.Generator().manual_seed(n_tokens)
    requests = Requests(1, scene.page_size, generator)
    sequence, = scene.pool.create(1, n_tokens)
    common, (blocks,), _ = requests.grow([n_tokens])
    tensors = [torch.randn(n_tokens, heads, scene.dim, generator=generator)
               for heads in (scene.n_heads, scene.n_kv_heads, scene.n_kv_heads)]
    scene.worker.begin_step(scene.step(placed=[(sequence, blocks)], rows={sequence: (n_tokens, n_tokens)}, **marks))
    return common, tensors, sequence, blocks, requests


F32 = (torch.float32, 4, 2, 64, 32)


def test_selection(vllm_config):
    paged_config, own_config = vllm_config(True, dtype="float32"), vllm_config(False, dtype="float32")
    with set_current_vllm_config(paged_config):
        layer = Attention(4, 64, 0.125, 2, cache_config=paged_config.cache_config, prefix=LAYER.format(0))
    assert layer.attn_backend is Backend and type(layer.impl) is Implementation
    assert layer.attn_backend.get_builder_cls() is Builder
    with set_current_vllm_config(own_config):
        layer = Attention(4, 64, 0.125, 2, cache_config=own_config.cache_config, prefix=LAYER.format(0))
    assert layer.attn_backend is CPUAttentionBackend and type(layer.impl) is CPUAttentionBackendImpl
    assert layer.attn_backend.get_builder_cls() is CPUAttentionMetadataBuilder
    # Compiled models of both have the same operators, because vLLM may load one of these for the other.
    assert Backend.forward_includes_kv_cache_update == CPUAttentionBackend.forward_includes_kv_cache_update


def test_warm_up(scene):
    """Without a step, and without metadata, layers leave their output alone."""
    scene = scene(*F32)
    common, (q, k, v), *_ = prefill(scene, 40)
    scene.worker.end_step()
    assert not scene.paged.attend(0, common, scene.paged.builder.build(0, common), q, k, v).any()
    assert not scene.paged.attend(0, common, None, q, k, v).any()


def test_padded_tensors(scene):
    """The model's tensors may have more tokens than the step."""
    scene = scene(*F32)
    common, (q, k, v), *_ = prefill(scene, 40)
    metadata = scene.paged.builder.build(0, common)
    expected = scene.paged.attend(0, common, metadata, q, k, v)
    longer = [torch.cat([each, torch.full_like(each[:5], math.nan)]) for each in (q, k, v)]
    out = scene.paged.attend(1, common, metadata, *longer)
    assert torch.equal(out[:40], expected) and not out[40:].any()


def test_written(scene):
    """A row whose K and V are there writes none: here its last token, which belongs to a published page."""
    scene = scene(*F32)
    common, (q, k, v), sequence, blocks, requests = prefill(scene, 64)
    metadata = scene.paged.builder.build(0, common)
    expected = scene.paged.attend(0, common, metadata, q, k, v)
    requests.lens = [63]
    common, _, _ = requests.grow([1])
    scene.worker.begin_step(scene.step(written={sequence}, rows={sequence: (1, 64)}))
    metadata = scene.paged.builder.build(0, common)
    nothing = torch.full_like(k[:1], math.nan)
    out = scene.paged.attend(0, common, metadata, q[63:], nothing, nothing)
    assert (out - expected[63:]).abs().max() <= TOLERANCE[scene.dtype]


def test_unknown_block(scene):
    scene = scene(*F32)
    common, (q, k, v), sequence, blocks, _ = prefill(scene, 40)
    common.block_table_tensor[0, 1] = next(block for block in range(1, N_BLOCKS) if block not in blocks)
    with pytest.raises(RuntimeError, match="row 0 of 1 has 40 tokens, and block .*, which belongs to no sequence"):
        scene.paged.attend(0, common, scene.paged.builder.build(0, common), q, k, v)


def test_rows_of_another_step(scene):
    """The scheduler said what each sequence computes; a layer that computes something else is an error."""
    scene = scene(*F32)
    common, (q, k, v), sequence, *_ = prefill(scene, 40)
    for rows in {sequence: (39, 40)}, {sequence: (40, 41)}, {sequence + 1: (40, 40)}, {}:
        scene.worker.begin_step(scene.step(rows=rows))
        with pytest.raises(RuntimeError, match=f"a layer's rows are not those of the step: 1 rows, among them sequence "
                                               f"{sequence} with 40 new tokens of 40, instead of {len(rows)} rows"):
            scene.paged.attend(0, common, scene.paged.builder.build(0, common), q, k, v)


def test_rows_of_another_layer(scene):
    """All layers of a step compute on one plan, whichever comes first."""
    scene = scene(*F32)
    common, (q, k, v), sequence, *_ = prefill(scene, 40)
    metadata = scene.paged.builder.build(0, common)
    expected = scene.paged.attend(0, common, metadata, q, k, v)
    # Another group of layers, with the same rows.
    out = scene.paged.attend(1, common, scene.paged.builder.build(0, common), q, k, v)
    assert torch.equal(out, expected)
    starts = torch.tensor([0, 39], dtype=torch.int32)
    other = common.replace(query_start_loc=starts, query_start_loc_cpu=starts, num_actual_tokens=39)
    with pytest.raises(RuntimeError, match="layers of one step have different rows"):
        scene.paged.attend(1, common, scene.paged.builder.build(0, other), q, k, v)


def test_chunks(scene):
    """Llama 4: vLLM describes each chunk as a row of its own."""
    scene = scene(*F32)
    backend = create_chunked_local_attention_backend(Backend, 32)
    builder = backend.get_builder_cls()(scene.paged.builder.kv_cache_spec, scene.paged.names, scene.paged.config,
                                        torch.device("cpu"))
    common, (q, k, v), *_ = prefill(scene, 20)
    out = scene.paged.attend(0, common, builder.build(0, common), q, k, v)
    assert (out.double() - reference(q, k, v, scene.dim ** -0.5)).abs().max() <= TOLERANCE[scene.dtype]
    scene.worker.end_step()
    common, (q, k, v), *_ = prefill(scene, 80)
    with pytest.raises(RuntimeError, match="a layer's rows are not those of the step: 3 rows, among them sequence "
                                           ".* with 32 new tokens of 32, instead of 1 rows, among them sequence .* 80"):
        scene.paged.attend(0, common, builder.build(0, common), q, k, v)


def test_not_causal(scene):
    """K and V of a prefix would depend on what follows it."""
    scene = scene(*F32)
    common, *_ = prefill(scene, 40)
    for causal in False, torch.tensor([True]):
        with pytest.raises(NotImplementedError, match="not causal"):
            scene.paged.builder.build(0, common.replace(causal=causal))


def test_window_without_first_blocks(scene):
    """vLLM replaces blocks that a window has left by block 0."""
    scene = scene(*F32, per_layer_sliding_window=10)
    common, (q, k, v), *_ = prefill(scene, 100)
    common.block_table_tensor[0, :2] = 0
    out = scene.paged.attend(0, common, scene.paged.builder.build(0, common), q, k, v)
    assert (out.double() - reference(q, k, v, scene.dim ** -0.5, window=10)).abs().max() <= TOLERANCE[scene.dtype]


def test_shared_layer(scene):
    """A layer that shares another's K and V attends to these, and writes none."""
    scene = scene(*F32)
    with set_current_vllm_config(scene.paged.config):
        scene.paged.layers[1] = Attention(
            4, 64, 0.125, 2, cache_config=scene.paged.config.cache_config, prefix="model.layers.9.self_attn.attn",
            kv_sharing_target_layer_name=LAYER.format(0))
    common, (q, k, v), *_ = prefill(scene, 40)
    metadata = scene.paged.builder.build(0, common)
    expected = scene.paged.attend(0, common, metadata, q, k, v)
    assert torch.equal(scene.paged.attend(1, common, metadata, q, torch.full_like(k, math.nan), v), expected)


def test_encoder(scene):
    """Attention of an encoder has no KV cache: vLLM's own computes it."""
    scene = scene(*F32)
    with set_current_vllm_config(scene.paged.config):
        scene.paged.layers[0] = Attention(4, 64, 0.125, 2, cache_config=scene.paged.config.cache_config,
                                          prefix="encoder.layers.0.attn", attn_type=AttentionType.ENCODER_ONLY)
        spec = EncoderOnlyAttentionSpec(block_size=32, num_kv_heads=2, head_size=64, dtype=torch.float32)
        builder = Builder(spec, ["encoder.layers.0.attn"], scene.paged.config, torch.device("cpu"))
        common, (q, k, v), *_ = prefill(scene, 40)
        common.positions = torch.arange(40)
        common = common.replace(causal=False)
        metadata = builder.build(0, common)
    out = scene.paged.attend(0, common, metadata, q, k, v)
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(each.double().transpose(0, 1) for each in (q, k, v)), enable_gqa=True).transpose(0, 1)
    assert (out.double() - expected).abs().max() <= TOLERANCE[scene.dtype]


def test_end_of_the_daemon(scene):
    """The worker's process says what happened, as the scheduler's does."""
    place = scene(torch.float32, 2, 1, 64, 16)
    requests = Requests(1, 16, torch.Generator().manual_seed(1))
    sequence, = place.pool.create(1)
    common, received, _ = requests.grow([20])
    place.pool.reserve([sequence], [20])
    place.worker.begin_step(place.step(placed=[(sequence, received[0])], rows={sequence: (20, 20)}))
    assert place.paged.builder.build(0, common).plan() is not None
    place.daemon.kill()
    with pytest.raises(ConnectionError, match="pool test: pagedd has ended, and with it the KV cache of this engine"):
        while True:
            place.worker.begin_step(place.step(rows={sequence: (20, 20)}))
            place.paged.builder.build(0, common).plan()
