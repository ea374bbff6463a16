# SPDX-License-Identifier: Apache-2.0
"""torch tensors in and out, by DLPack's C exchange API: layouts, types, new tensors, pages, threads."""
import gc
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import paged

torch = pytest.importorskip("torch", minversion="2.10")

POOL = {"name": "pool", "n_layers": 2, "n_kv_heads": 2, "k_dim": 40, "v_dim": 24, "dtype": "f32", "n_pages": 64,
        "page_size": 8}
TOLERANCE = {torch.float32: 3e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}


@pytest.fixture
def batch() -> Iterator[paged.Batch]:
    with paged.embedded(POOL) as client, client.pool("pool") as pool, pool.batch() as made:
        yield made
        gc.collect()


def reference(q: Any, k: Any, v: Any, lengths: list[int]) -> Any:
    """Causal attention of packed rows in float64."""
    out = []
    parts = (tensor.double().split(lengths) for tensor in (q, k, v))
    for each in zip(*parts, strict=True):
        out.append(torch.nn.functional.scaled_dot_product_attention(
            *(part.transpose(0, 1) for part in each), is_causal=True, enable_gqa=True).transpose(0, 1))
    return torch.cat(out)


def inputs(n: int, dtype: Any = torch.float32, heads: int = 6) -> tuple[Any, Any, Any]:
    return (torch.randn(n, heads, 40, dtype=dtype), torch.randn(n, 2, 40, dtype=dtype),
            torch.randn(n, 2, 24, dtype=dtype))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_against_float64(batch: paged.Batch, dtype: Any) -> None:
    generator = random.Random(1)
    for _ in range(10):
        lengths = [generator.randrange(1, 40) for _ in range(generator.randrange(1, 6))]
        q, k, v = inputs(sum(lengths), dtype, 2 * generator.randrange(1, 5))
        seqs = batch.pool.create(len(lengths), lengths)
        batch.plan(seqs, lengths, lengths)
        batch.append(1, k, v)
        out = batch.attention(1, q)
        assert type(out) is torch.Tensor and out.dtype == dtype and out.is_contiguous() and not out.requires_grad
        torch.testing.assert_close(out.double(), reference(q, k, v, lengths), atol=TOLERANCE[dtype],
                                   rtol=TOLERANCE[dtype])
        batch.pool.erase(seqs)


def test_what_pytorch_records_is_refused(batch: paged.Batch) -> None:
    """Gradients that would be lost, and signs that PyTorch has not applied."""
    seq, = batch.pool.create(1, 8)
    q, k, v = inputs(8)
    batch.plan([seq], 8, 8)
    batch.append(0, k, v)
    out = batch.attention(0, q)
    mod = batch.pool.mod("score", "score + bias[kv_idx]", bias=q[:, 0, 0])
    calls = {
        "q": lambda t: batch.attention(0, t(q)), "k": lambda t: batch.append(0, t(k), v),
        "v": lambda t: batch.append(0, k, t(v)), "out": lambda t: batch.attention(0, q, t(out.clone())),
        "sink": lambda t: batch.attention(0, q, sink=t(torch.zeros(6))),
        "lse": lambda t: batch.attention(0, q, lse=t(torch.zeros(8, 6))),
        "a": lambda t: batch.merge(t(out), torch.zeros(8, 6), out, torch.zeros(8, 6)),
        "bias": lambda t: batch.mods(score=mod, bias=t(torch.zeros(8))),
    }
    for name, call in calls.items():
        with pytest.raises(NotImplementedError, match=rf"^{name} requires a gradient.* torch.no_grad\(\), or detach"):
            call(lambda tensor: tensor.clone().requires_grad_())
        with pytest.raises(ValueError, match=rf"^{name} has PyTorch's negative bit .* resolve_neg\(\)"):
            call(torch._neg_view)
    with pytest.raises(ValueError, match="q has elements of complex64"):
        batch.attention(0, torch.complex(q, q).conj())
    for mode in torch.no_grad(), torch.inference_mode():
        with mode:
            assert torch.equal(batch.attention(0, q.clone().requires_grad_()), out)
    assert torch.equal(batch.attention(0, torch._neg_view(-q).resolve_neg()), out)


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "sliced", "one row"])
@pytest.mark.parametrize("length", [1, 9])
def test_layouts(batch: paged.Batch, layout: str, length: int) -> None:
    def arrange(packed: Any) -> Any:
        four = packed.view(3, length, *packed.shape[1:]).transpose(1, 2)
        if layout == "contiguous":
            return four.contiguous()
        if layout == "sliced":
            larger = torch.full((3, four.shape[1] + 2, length + 5, four.shape[3] + 8), torch.nan)
            larger[:, 1:-1, 2:-3, 4:-4] = four
            return larger[:, 1:-1, 2:-3, 4:-4]
        return packed.transpose(0, 1).unsqueeze(0) if layout == "one row" else four

    q, k, v = inputs(3 * length)
    batch.plan(batch.pool.create(3, length), length, length)
    batch.append(0, arrange(k), arrange(v))
    want = batch.attention(0, q)
    out = batch.attention(0, arrange(q))
    back = out.squeeze(0).transpose(0, 1) if layout == "one row" else out.transpose(1, 2).reshape(3 * length, 6, 24)
    assert torch.equal(back, want)
    # A new tensor has q's order of dimensions, so that transformers' transpose back is free.
    if layout == "transposed" and length > 1:
        assert out.transpose(1, 2).is_contiguous() and not out.is_contiguous()
    torch.testing.assert_close(want.double(), reference(q, k, v, [length] * 3), atol=3e-6, rtol=3e-6)


def test_values_that_are_not_plain_memory(batch: paged.Batch) -> None:
    from torch._subclasses import FakeTensorMode

    q, k, v = inputs(4)
    batch.plan(batch.pool.create(1, 4), 4, 4)
    batch.append(0, k, v)
    with FakeTensorMode():
        fake = torch.empty(4, 6, 40)
    with pytest.raises(ValueError, match="q has no memory"):
        batch.attention(0, fake)
    with pytest.raises(ValueError, match="^q: Cannot pack tensors on meta$"):
        batch.attention(0, torch.empty(4, 6, 40, device="meta"))
    with pytest.raises(ValueError, match="^q: "):
        batch.attention(0, torch.zeros(4, 6, 40).to_sparse())
    with pytest.raises(ValueError, match="q has elements of complex64"):
        batch.attention(0, torch.zeros(4, 6, 40, dtype=torch.complex64))
    with pytest.raises(ValueError, match="q has elements of float64"):
        batch.attention(0, q.double())
    with pytest.raises(ValueError, match="q has a stride of 0 elements in dimension 1"):
        batch.attention(0, torch.zeros(4, 1, 40).expand(4, 6, 40))


def test_parameters_and_modes(batch: paged.Batch) -> None:
    q, k, v = inputs(4)
    batch.plan(batch.pool.create(1, 4), 4, 4)
    want = reference(q, k, v, [4])
    with torch.no_grad():
        batch.append(0, torch.nn.Parameter(k), torch.nn.Parameter(v))
        for each in (torch.nn.Parameter(q), q.clone().requires_grad_()):
            torch.testing.assert_close(batch.attention(0, each).double(), want, atol=3e-6, rtol=3e-6)
    with torch.inference_mode():
        out = batch.attention(0, q.clone())
    torch.testing.assert_close(out.double(), want, atol=3e-6, rtol=3e-6)


def test_lse_and_positions(batch: paged.Batch) -> None:
    q, k, v = inputs(4)
    lse, order = torch.empty(4, 6), torch.tensor([3, 1, 0, 2])
    batch.plan(batch.pool.create(1, 4), 4, 4)
    for positions in (order, order.int(), order.tolist(), order.numpy()):
        batch.append(0, k[order], v[order], positions=positions)
        out = batch.attention(0, q, lse=lse)
        torch.testing.assert_close(out.double(), reference(q, k, v, [4]), atol=3e-6, rtol=3e-6)
    scores = torch.einsum("qhd,khd->hqk", q.double(), k.double().repeat_interleave(3, 1)) / 40 ** 0.5
    scores.masked_fill_(torch.ones(4, 4).triu(1).bool(), -torch.inf)
    torch.testing.assert_close(lse.double(), scores.logsumexp(-1).T, atol=3e-6, rtol=3e-6)


# ------------------------------------------------------------------------------- pages

@pytest.mark.parametrize(("dtype", "torch_dtype"), [
    ("f32", torch.float32), ("f16", torch.float16), ("bf16", torch.bfloat16), ("e4m3", torch.float8_e4m3fn),
    ("e5m2", torch.float8_e5m2), ("i8", torch.int8)])
def test_pages(dtype: str, torch_dtype: Any) -> None:
    with paged.embedded(POOL | {"dtype": dtype}) as client, client.pool("pool") as pool, pool.batch() as batch:
        k_pages, v_pages = torch.from_dlpack(pool.k), torch.from_dlpack(pool.v)
        assert k_pages.dtype == torch_dtype and k_pages.shape == pool.k.shape and k_pages.stride() == pool.k.strides
        assert k_pages.data_ptr() == pool.k.data_ptr
        seq, = pool.create(1, 20)
        batch.plan([seq], 20, 20)
        _, k, v = inputs(20)
        batch.append(1, k, v)
        pages = torch.tensor(pool.page_table(seq))
        got = k_pages[1, pages].transpose(1, 2).reshape(-1, 2, 40)[:20]
        if dtype == "i8":
            scale = torch.from_dlpack(pool.k_scale)[1, pages].transpose(1, 2).reshape(-1, 2, 1)[:20]
            torch.testing.assert_close(got * scale, k, atol=3e-2, rtol=0)
            del scale
        else:
            want = k.clamp(-448, 448).to(torch_dtype) if dtype == "e4m3" else k.to(torch_dtype)
            assert torch.equal(got.view(torch.uint8), want.view(torch.uint8))
        with pytest.raises(BufferError, match="2 tensors"):
            pool.close()
        del k_pages, v_pages


def test_pages_written_by_torch(batch: paged.Batch) -> None:
    pool = batch.pool
    k_pages, v_pages = torch.from_dlpack(pool.k), torch.from_dlpack(pool.v)
    seq, = pool.create(1, 20)
    q, k, v = inputs(20)
    for pages, tensor in ((k_pages, k), (v_pages, v)):
        for token in range(20):
            pages[0, pool.page_table(seq)[token // 8], :, token % 8] = tensor[token]
    batch.plan([seq], 20, 20, no_append=True)
    torch.testing.assert_close(batch.attention(0, q).double(), reference(q, k, v, [20]), atol=3e-6, rtol=3e-6)
    del k_pages, v_pages, pages


def test_pages_copy(batch: paged.Batch) -> None:
    copied = torch.from_dlpack(batch.pool.k, copy=False)
    assert copied.data_ptr() == batch.pool.k.data_ptr
    with pytest.raises(BufferError):
        torch.from_dlpack(batch.pool.k, copy=True)
    del copied


def test_views_keep_the_pool() -> None:
    client = paged.embedded(POOL)
    pool = client.pool("pool")
    view = torch.from_dlpack(pool.k)[0, 3, 1].T[2:4]
    with pytest.raises(BufferError):
        client.close()
    del client, pool
    gc.collect()
    view.fill_(3)
    assert view.sum() == 3 * view.numel()


def test_released_by_another_thread(batch: paged.Batch) -> None:
    held = [torch.from_dlpack(batch.pool.k) for _ in range(50)]
    threads = [threading.Thread(target=held.__delitem__, args=(0,)) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    batch.close()
    batch.pool.close()


# ----------------------------------------------------------------------------- threads

def test_runs_on_the_threads_of_torch() -> None:
    with paged.embedded(POOL) as client:
        assert client.run == "openmp" and client.threads == torch.get_num_threads()


def test_bits_do_not_depend_on_threads() -> None:
    q, k, v = inputs(300)
    results = []
    for keywords in ({"threads": 1, "run": "own"}, {"threads": 3, "run": "own"}, {"threads": 1}, {"threads": 4}, {}):
        with paged.embedded(POOL, **keywords) as client, client.pool("pool") as pool, pool.batch() as batch:
            batch.plan(pool.create(1, 300), 300, 300)
            batch.append(0, k, v)
            results.append(batch.attention(0, q))
            # torch's own parallel regions in between
            torch.mm(torch.randn(200, 200), torch.randn(200, 200))
    assert all(torch.equal(results[0], each) for each in results)


def test_in_a_thread_of_python() -> None:
    """OpenMP teams belong to the thread that starts them."""
    q, k, v = inputs(200)
    want = reference(q, k, v, [200])
    with paged.embedded(POOL, threads=2) as client, client.pool("pool") as pool:
        def work() -> None:
            with pool.batch() as batch:
                seqs = pool.create(1, 200)
                batch.plan(seqs, 200, 200)
                batch.append(0, k, v)
                results.append(batch.attention(0, q))
                pool.erase(seqs)

        results: list[Any] = []
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(results) == 2
        for out in results:
            torch.testing.assert_close(out.double(), want, atol=3e-6, rtol=3e-6)
