# SPDX-License-Identifier: Apache-2.0
"""Tensors of the caller: every form of DLPack, layouts, and what is refused."""
import gc
import math
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import paged
import tensors
from tensors import OldTensor, Tensor, gauss_tensor

LENGTHS = [5, 7]
TOLERANCE = {"f32": 2e-6, "f16": 2e-3, "bf16": 2e-2}


@pytest.fixture
def batch() -> Iterator[paged.Batch]:
    pool_of = {"name": "pool", "n_layers": 1, "n_kv_heads": 2, "k_dim": 8, "v_dim": 6, "dtype": "f32", "n_pages": 16,
               "page_size": 4}
    with paged.embedded(pool_of, threads=1) as client, client.pool("pool") as pool, pool.batch() as made:
        made.plan(pool.create(2, LENGTHS), LENGTHS, LENGTHS)
        yield made
    gc.collect()
    assert not tensors.lent


def expected(q: Tensor, k: Tensor, v: Tensor, lengths: list[int], heads_q: int, heads_kv: int,
             at: Any = lambda t, h, d: (t, h, d)) -> dict[tuple[int, int], list[float]]:
    """out of (token, head): causal attention of each row in float64.  at: index of (token, head, dim)."""
    out, first = {}, 0
    for length in lengths:
        tokens = range(first, first + length)
        for head in range(heads_q):
            kv = head // (heads_q // heads_kv)
            rows = [[t[at(i, h, d)] for d in range(t.shape[-1])] for t, h in ((q, head), (k, kv), (v, kv))
                    for i in tokens]
            result, _, _ = tensors.attention(rows[:length], rows[length:2 * length], rows[2 * length:],
                                             lambda i, j: j <= i)
            out.update({(first + i, head): result[i] for i in range(length)})
        first += length
    return out


def check(out: Tensor, want: dict[tuple[int, int], list[float]], tolerance: float,
          at: Any = lambda t, h, d: (t, h, d)) -> None:
    for (token, head), row in want.items():
        for d, value in enumerate(row):
            assert out[at(token, head, d)] == pytest.approx(value, abs=tolerance, rel=tolerance)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("type_", [Tensor, OldTensor, tensors.exchange_type("Borrowing"),
                                   tensors.exchange_type("Exporting", borrows=False)])
def test_packed(batch: paged.Batch, type_: type, dtype: str) -> None:
    q, k, v = (gauss_tensor((12, h, d), dtype, i, type_) for i, (h, d) in enumerate([(4, 8), (2, 8), (2, 6)]))
    batch.append(0, k, v)
    out = type_((12, 4, 6), dtype)
    assert batch.attention(0, q, out) is out
    check(out, expected(q, k, v, LENGTHS, 4, 2), TOLERANCE[dtype])


@pytest.mark.parametrize("keywords", [
    {"strides": (48, 12, 1)}, {"strides": (9, 120, 1)}, {"offset": 64}, {"null_strides": True}, {"legacy": True},
    {"null_strides": True, "legacy": True, "offset": 4}], ids=str)
def test_forms(batch: paged.Batch, keywords: dict[str, Any]) -> None:
    q, k = gauss_tensor((12, 2, 8), "f32", 0, **keywords), gauss_tensor((12, 2, 8), "f32", 1, **keywords)
    v = gauss_tensor((12, 2, 6), "f32", 2)
    batch.append(0, k, v)
    out = Tensor((12, 2, 6), "f32", offset=16)
    batch.attention(0, q, out)
    check(out, expected(q, k, v, LENGTHS, 2, 2), TOLERANCE["f32"])


def heads_first(length: int) -> Any:
    return lambda t, h, d: (t // length, h, t % length, d)


@pytest.mark.parametrize("length", [1, 6])
@pytest.mark.parametrize("order", ["contiguous", "transposed", "padded"])
def test_four_dimensions(batch: paged.Batch, length: int, order: str) -> None:
    def strides(heads: int, dim: int) -> tuple[int, ...]:
        return {"contiguous": (heads * length * dim, length * dim, dim, 1),
                "transposed": (length * heads * dim, dim, heads * dim, 1),
                "padded": (heads * length * dim + 40, length * dim + 8, dim, 1)}[order]

    at = heads_first(length)
    seqs = batch.pool.create(3, length)
    batch.plan(seqs, length, length)
    q, k, v = (gauss_tensor((3, h, length, d), "f32", i, strides=strides(h, d))
               for i, (h, d) in enumerate([(4, 8), (2, 8), (2, 6)]))
    batch.append(0, k, v)
    out = Tensor((3, 4, length, 6), strides=strides(4, 6))
    batch.attention(0, q, out)
    check(out, expected(q, k, v, [length] * 3, 4, 2, at), TOLERANCE["f32"], at)


def test_one_row_of_all_tokens(batch: paged.Batch) -> None:
    """[1, heads, total_q, dim] fits any plan, as transformers packs its sequences."""
    at = heads_first(12)
    q, k, v = (gauss_tensor((1, h, 12, d), "f32", i) for i, (h, d) in enumerate([(4, 8), (2, 8), (2, 6)]))
    batch.append(0, k, v)
    out = Tensor((1, 4, 12, 6))
    batch.attention(0, q, out)
    check(out, expected(q, k, v, LENGTHS, 4, 2, at), TOLERANCE["f32"], at)


def test_nan_past_the_lengths(batch: paged.Batch) -> None:
    """Memory between strides is NaN, and no result is."""
    q, k = (gauss_tensor((12, 2, 8), "f32", i, strides=(50, 20, 1)) for i in range(2))
    v, out = gauss_tensor((12, 2, 6), "f32", 2, strides=(50, 20, 1)), Tensor((12, 2, 6))
    batch.append(0, k, v)
    batch.attention(0, q, out)
    assert not any(math.isnan(value) for value in out.values())
    k[0, 0, 0] = math.nan
    batch.append(0, k, v)
    batch.attention(0, q, out)
    assert all(math.isnan(out[t, 0, 0]) for t in range(5)) and not math.isnan(out[0, 1, 0])
    assert not math.isnan(out[5, 0, 0])


def test_empty(batch: paged.Batch) -> None:
    """Tensors without elements have no address."""
    seq, = batch.pool.create(1, 4)
    batch.plan([seq], 0, 0)
    empty = Tensor((0, 2, 8))
    assert empty.address == 0
    batch.append(0, empty, Tensor((0, 2, 6)))
    batch.attention(0, empty, Tensor((0, 2, 6)))


# ------------------------------------------------------------------------------- refused

def q_of(shape: tuple[int, ...], dtype: str = "f32", **keywords: Any) -> Tensor:
    return Tensor(shape, dtype, **keywords)


@pytest.mark.parametrize(("q", "message"), [
    (q_of((12, 2, 8), "f64"), "q has elements of float64; f32, f16 and bf16 are possible"),
    (q_of((12, 2, 8), "i32"), "q has elements of i32; f32, f16 and bf16 are possible"),
    (q_of((12, 2, 8), "bool"), "q has elements of bool; f32, f16 and bf16 are possible"),
    (q_of((12, 2, 8), "e4m3"), "q has elements of e4m3; f32, f16 and bf16 are possible"),
    (q_of((12, 2, 8), "complex64"), "q has elements of complex64; f32, f16 and bf16 are possible"),
    (q_of((12, 16)), "q has 2 dimensions; it must be [tokens, heads, dim] or [rows, heads, tokens, dim]"),
    (q_of((1, 1, 12, 2, 8)), "q has 5 dimensions; it must be [tokens, heads, dim] or [rows, heads, tokens, dim]"),
    (q_of((1,) * 9), "q has 9 dimensions; at most 8 are possible"),
    (q_of((12, 2, 8), strides=(32, 16, 2)), "q has a stride of 2 elements in its last dimension: make it contiguous"),
    (q_of((12, 2, 8), strides=(8, 0, 1)),
     "q has a stride of 0 elements in dimension 1; at least 8 are needed: make it contiguous"),
    (q_of((12, 2, 8), strides=(0, 8, 1)),
     "q has a stride of 0 elements in dimension 0; at least 8 are needed: make it contiguous"),
    (q_of((11, 2, 8)), "q has 11 tokens, not 12"),
    (q_of((2, 2, 5, 8)), "q has 10 tokens, not 12"),
    (q_of((3, 2, 4, 8)), "q has 3 rows; the plan has 2: make its tokens evenly spaced"),
    (q_of((12, 2, 8), version=2), "q: its framework speaks DLPack 2.0; this extension speaks 1.x"),
], ids=lambda value: value if isinstance(value, str) else "q")
def test_refused(batch: paged.Batch, q: Tensor, message: str) -> None:
    with pytest.raises(ValueError) as error:
        batch.attention(0, q)
    assert str(error.value) == message


def test_refused_by_the_library(batch: paged.Batch) -> None:
    with pytest.raises(paged.InvalidError, match="q has heads of 7 dims, not 8"):
        batch.attention(0, Tensor((12, 2, 7)), Tensor((12, 2, 6)))
    with pytest.raises(paged.InvalidError, match="rows must have equally many tokens"):
        batch.attention(0, Tensor((2, 2, 6, 8)), Tensor((2, 2, 6, 6)))
    with pytest.raises(paged.InvalidError, match="not aligned"):
        batch.attention(0, Tensor((12, 2, 8), offset=1), Tensor((12, 2, 6)))


def test_other_device(batch: paged.Batch) -> None:
    q = Tensor((12, 2, 8))
    q.device = (tensors.CUDA, 3)
    with pytest.raises(ValueError, match=r"q is on another device \(DLPack type 2\): pool pool is in host memory"):
        batch.attention(0, q)
    q.device = (tensors.PINNED, 0)
    batch.attention(0, q, Tensor((12, 2, 6)))


def test_read_only(batch: paged.Batch) -> None:
    q, k, v = (gauss_tensor((12, 2, d), "f32", d, read_only=True) for d in (8, 8, 6))
    batch.append(0, k, v)
    with pytest.raises(ValueError, match="out is read-only, and would be written"):
        batch.attention(0, q, Tensor((12, 2, 6), read_only=True))
    with pytest.raises(ValueError, match="lse is read-only"):
        batch.attention(0, q, Tensor((12, 2, 6)), lse=Tensor((12, 2), read_only=True))


def test_scores_have_heads_last(batch: paged.Batch) -> None:
    q, k, v = (gauss_tensor((12, 2, d), "f32", d) for d in (8, 8, 6))
    batch.append(0, k, v)
    for name in ("lse", "max_score"):
        with pytest.raises(ValueError, match=rf"last dimension of {name} must be the 2 heads: its shape is \[12, 2\]"):
            batch.attention(0, q, Tensor((12, 2, 6)), **{name: Tensor((2, 12))})


@pytest.mark.parametrize("value", [None, 3, "tensor", [[1.0]], object()], ids=repr)
def test_not_a_tensor(batch: paged.Batch, value: Any) -> None:
    with pytest.raises(TypeError, match=r"^q must be a tensor \(an object with __dlpack__\(\)\), not "):
        batch.attention(0, value)


class Broken:
    def __init__(self, result: Any) -> None:
        self.result = result

    def __dlpack__(self, **keywords: Any) -> Any:
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result


def test_broken_frameworks(batch: paged.Batch) -> None:
    with pytest.raises(TypeError, match=r"q: __dlpack__\(\) returned no DLPack capsule but 3"):
        batch.attention(0, Broken(3))
    with pytest.raises(ValueError, match="^q: cannot be lent$"):
        batch.attention(0, Broken(BufferError("cannot be lent\nand more")))
    with pytest.raises(ValueError, match="^q: no arguments either"):
        batch.attention(0, Broken(TypeError("no arguments either")))
    for error in (KeyboardInterrupt(), SystemExit(), MemoryError()):
        with pytest.raises(type(error)):
            batch.attention(0, Broken(error))
    used = Tensor((12, 2, 8)).__dlpack__()
    taken = tensors.Taken(used)
    with pytest.raises(TypeError, match="returned no DLPack capsule"):
        batch.attention(0, Broken(used))
    taken.release()
    null = Tensor((12, 2, 8))
    null.address = 0
    with pytest.raises(ValueError, match=r"q has no memory \(a fake tensor\?\)"):
        batch.attention(0, null)


class Claiming(Tensor):
    """A tensor that claims to be of any shape."""

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str = "f32") -> None:
        super().__init__((1,) * len(shape), dtype, [0])
        self.shape, self.strides = shape, strides


@pytest.mark.parametrize("shape, strides", [
    ((-8, -2, 8), (16, 8, 1)), ((12, 2, -8), (16, 8, 1)), ((12, -2, 8), (16, 8, 1)), ((1 << 62, 2, 8), (16, 8, 1)),
    ((12, 2, 8), (1 << 62, 8, 1)), ((12, 2, 8), (16, -1 << 63, 1)), ((1 << 31, 1 << 31, 1 << 31), (0, 0, 0)),
    ((-1, -2, 6, 8), (16, 8, 8, 1)), ((2, 2, 6, 8), (1 << 60, 48, 8, 1)), ((8,), (1 << 62,)), ((-1,), (1,)),
    ((8,), (-1 << 62,)), ((-1, -1, 1, 4), (4, 4, 4, 1)),
])
def test_impossible_shape(batch: paged.Batch, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    x = Claiming(shape, strides)
    ids = Claiming(shape, strides, "i32")
    for call in (lambda: batch.attention(0, x), lambda: batch.append(0, x, x), lambda: batch.gather(0, x),
                 lambda: batch.merge(x, x, x, x), lambda: batch.mods(mask="x[0] > 0", x=x),
                 lambda: batch.pool.erase(ids), lambda: batch.pool.client.upload("x", x),
                 lambda: batch.pool.block_mask_from_arrays(8, 8, num_blocks=ids, indices=ids)):
        with pytest.raises(ValueError, match="^[a-z_]+ has .*(elements with a stride of|too many elements)"):
            call()


def test_strides_without_meaning(batch: paged.Batch) -> None:
    """Frameworks set any stride for a dimension of one element."""
    batch.pool.client.upload("x", Claiming((1, 1), (1 << 62, -1 << 63)))
    with pytest.raises(paged.InvalidError, match="0 is not a sequence id"):
        batch.pool.erase(Claiming((1,), ((1 << 63) - 1,), "i32"))


class OnDevice(Tensor):
    device = (tensors.CUDA, 0)


def test_upload_of_device_memory(batch: paged.Batch) -> None:
    """The library copies the array on the host."""
    with pytest.raises(ValueError, match=r"^doc is on another device \(DLPack type 2\)"):
        batch.pool.client.upload("doc", OnDevice((4,), address=16))


def test_call_from_dlpack(batch: paged.Batch) -> None:
    """__dlpack__() runs while the batch is in use, so it cannot use the batch."""
    class Reentrant(Tensor):
        def __dlpack__(self, **keywords: Any) -> Any:
            batch.finish()

    with pytest.raises(ValueError, match="the batch is inside another call"):
        batch.attention(0, Reentrant((12, 2, 8)))
    batch.finish()


def test_references(batch: paged.Batch) -> None:
    """Neither success nor failure keeps a reference, whichever argument fails."""
    good = {"q": Tensor((12, 2, 8)), "out": Tensor((12, 2, 6)), "lse": Tensor((12, 2)), "max_score": Tensor((12, 2)),
            "sink": gauss_tensor((2,), "f32", 1)}
    bad = Tensor((3,), "f64")
    before = [sys.getrefcount(value) for value in (*good.values(), bad)]
    for name in [None, *good]:
        arguments = good | ({name: bad} if name else {})
        for _ in range(20):
            try:
                batch.attention(0, **arguments)
                assert name is None
            except ValueError:
                assert name is not None
        arguments.clear()
    assert [sys.getrefcount(value) for value in (*good.values(), bad)] == before


# ------------------------------------------------------------------- C exchange API

def test_exchange_borrows(batch: paged.Batch) -> None:
    type_ = tensors.exchange_type("Counted")
    batch.attention(0, type_((12, 2, 8)), type_((12, 2, 6)))
    assert type_.n_borrowed == 2 and not tensors.lent


def test_exchange_of_a_subclass(batch: paged.Batch) -> None:
    type_ = tensors.exchange_type("Base")
    batch.attention(0, type("Sub", (type_,), {})((12, 2, 8)), type_((12, 2, 6)))
    assert type_.n_borrowed == 1


def test_exchange_versions(batch: paged.Batch) -> None:
    """A newer table leads to one of version 1; without one, __dlpack__() is called."""
    first = tensors.exchange_type("First")
    newer = tensors.exchange_type("Newer", major=2, previous=first.table)
    batch.attention(0, newer((12, 2, 8)), first((12, 2, 6)))
    assert first.n_borrowed == newer.n_borrowed == 1
    newest = tensors.exchange_type("Newest", major=2)
    batch.attention(0, newest((12, 2, 8)), first((12, 2, 6)))
    assert newest.n_borrowed == 0


def test_exchange_fails(batch: paged.Batch) -> None:
    type_ = tensors.exchange_type("Failing")
    q = type_((12, 2, 8))
    type_.fails = "borrow"
    with pytest.raises(ValueError, match="^q: DLPack cannot describe the tensor$"):
        batch.attention(0, q)
    type_.fails = "allocate"
    with pytest.raises(RuntimeError, match="^a new tensor like the first argument: MemoryError: no memory for it$"):
        batch.attention(0, q)
    type_.fails = "take"
    with pytest.raises(RuntimeError, match="like the first argument: its framework cannot make a tensor$"):
        batch.attention(0, q)
    type_.fails = None
    batch.attention(0, q)


def test_many_types(batch: paged.Batch) -> None:
    """More types than the cache holds, in turns."""
    types = [tensors.exchange_type(f"Type{i}") for i in range(20)]
    for _ in range(3):
        for type_ in types:
            batch.attention(0, type_((12, 2, 8)), Tensor((12, 2, 6)))
    assert all(type_.n_borrowed == 3 for type_ in types)


# ----------------------------------------------------------------------- new tensors

def test_new_tensor(batch: paged.Batch) -> None:
    type_ = tensors.exchange_type("Allocating")
    q, k, v = (gauss_tensor((12, h, d), "bf16", i, type_) for i, (h, d) in enumerate([(4, 8), (2, 8), (2, 6)]))
    batch.append(0, k, v)
    out = batch.attention(0, q)
    assert type(out) is type_ and out.shape == (12, 4, 6) and out.dtype == "bf16" and out.strides == (24, 6, 1)
    check(out, expected(q, k, v, LENGTHS, 4, 2), TOLERANCE["bf16"])
    assert type_.n_allocated == 1


def test_new_tensor_keeps_the_layout(batch: paged.Batch) -> None:
    """out of a transposed q is transposed too, so that transposing it back makes it dense."""
    type_ = tensors.exchange_type("Ordered")
    at = heads_first(6)
    batch.plan(batch.pool.create(2, 6), 6, 6)
    q = gauss_tensor((2, 4, 6, 8), "f32", 0, type_, strides=(6 * 4 * 8, 8, 4 * 8, 1))
    k, v = gauss_tensor((12, 2, 8), "f32", 1), gauss_tensor((12, 2, 6), "f32", 2)
    batch.append(0, k, v)
    out = batch.attention(0, q)
    assert out.shape == (2, 4, 6, 6) and out.strides == (6 * 4 * 6, 6, 4 * 6, 1)
    want = Tensor((12, 4, 6))
    batch.attention(0, type_((12, 4, 8), "f32", [q[at(t, h, d)] for t, h, d in want_indexes((12, 4, 8))]), want)
    assert [out[at(*index)] for index in want.indexes()] == want.values()


def want_indexes(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    return list(Tensor(shape).indexes())


def test_new_tensor_of_an_unknown_type(batch: paged.Batch) -> None:
    with pytest.raises(TypeError, match=r"a new tensor of <class 'tensors.Tensor'> and dtype f32 cannot be made here: "
                                        "pass out"):
        batch.attention(0, Tensor((12, 2, 8)))


def test_numpy(batch: paged.Batch) -> None:
    numpy = pytest.importorskip("numpy")
    generator = numpy.random.default_rng(1)
    q, k, v = (generator.standard_normal((12, h, d), dtype=numpy.float32) for h, d in [(4, 8), (2, 8), (2, 6)])
    batch.append(0, k, v)
    for dtype, tolerance in ((numpy.float32, 2e-6), (numpy.float16, 2e-3)):
        out = batch.attention(0, q.astype(dtype))
        assert type(out) is numpy.ndarray and out.dtype == dtype and out.shape == (12, 4, 6)
        want = expected(Tensor((12, 4, 8), "f32", q.astype(dtype).astype(float).ravel()),
                        Tensor((12, 2, 8), "f32", k.ravel()), Tensor((12, 2, 6), "f32", v.ravel()), LENGTHS, 4, 2)
        assert numpy.abs(out - numpy.array([[want[t, h] for h in range(4)] for t in range(12)])).max() < tolerance
    turned = numpy.asfortranarray(numpy.zeros((12, 4, 8), numpy.float32))
    with pytest.raises(ValueError, match="last dimension"):
        batch.attention(0, turned)
    locked = numpy.zeros((12, 4, 6), numpy.float32)
    locked.flags.writeable = False
    with pytest.raises(ValueError, match="out"):
        batch.attention(0, q, locked)
    four = numpy.zeros((1, 12, 4, 8), numpy.float32).transpose(0, 2, 1, 3)
    assert batch.attention(0, four).strides == (12 * 4 * 6 * 4, 6 * 4, 4 * 6 * 4, 4)


