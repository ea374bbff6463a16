# SPDX-License-Identifier: Apache-2.0
"""Append, attention, gather and merge from Python against float64."""
import math
from collections.abc import Iterator
from typing import Any

import pytest

import paged
import tensors
from tensors import Tensor, gauss, gauss_tensor

K_DIM, V_DIM, N_KV_HEADS, N_HEADS = 8, 6, 2, 4
POOL = {"name": "pool", "n_layers": 2, "n_kv_heads": N_KV_HEADS, "k_dim": K_DIM, "v_dim": V_DIM, "dtype": "f32",
        "n_pages": 32, "page_size": 4}
TOLERANCE = 3e-6


@pytest.fixture
def pool() -> Iterator[paged.Pool]:
    with paged.embedded(POOL, threads=1) as client, client.pool("pool") as made:
        yield made


@pytest.fixture
def batch(pool: paged.Pool) -> Iterator[paged.Batch]:
    with pool.batch() as made:
        yield made


def head_rows(tensor: Tensor, head: int, tokens: range) -> list[list[float]]:
    return [[tensor[t, head, d] for d in range(tensor.shape[2])] for t in tokens]


def check(got: Any, want: float, tolerance: float = TOLERANCE) -> None:
    if math.isinf(want) or math.isnan(want):
        assert got == want
    else:
        assert got == pytest.approx(want, abs=tolerance, rel=tolerance)


def inputs(n: int, dtype: str = "f32", seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    return (gauss_tensor((n, N_HEADS, K_DIM), dtype, seed + 1), gauss_tensor((n, N_KV_HEADS, K_DIM), dtype, seed + 2),
            gauss_tensor((n, N_KV_HEADS, V_DIM), dtype, seed + 3))


# --------------------------------------------------------------------------- attention

@pytest.mark.parametrize("keywords", [
    {}, {"causal": False}, {"scale": 0.3}, {"sink": [0.5, -1.0, 2.0, -math.inf]},
    {"sink": [0.5, -1.0, 2.0, 0.0], "lse_without_sink": True, "causal": False, "scale": -0.7}], ids=str)
def test_against_float64(batch: paged.Batch, keywords: dict[str, Any]) -> None:
    """Two rows, one of them in two steps; out, lse and the largest score."""
    a, b = batch.pool.create(2, 16)
    q, k, v = inputs(16)
    batch.plan([a], 5, 5)
    batch.append(1, *(Tensor((5, 2, t.shape[2]), "f32", t.values()[:5 * 2 * t.shape[2]]) for t in (k, v)))
    batch.plan([a, b], [4, 7], [9, 7])
    rest = [Tensor((11, t.shape[1], t.shape[2]), "f32", t.values()[5 * t.shape[1] * t.shape[2]:]) for t in (q, k, v)]
    batch.append(layer=1, k=rest[1], v=rest[2])
    out, lse, largest = Tensor((11, N_HEADS, V_DIM)), Tensor((11, N_HEADS)), Tensor((11, N_HEADS))
    sink = keywords.get("sink")
    arguments = keywords | ({"sink": Tensor((N_HEADS,), "f32", sink)} if sink else {})
    assert batch.attention(1, rest[0], out, lse=lse, max_score=largest, **arguments) is out
    causal = keywords.get("causal", True)
    for first, n_q, tokens, base in ((0, 4, range(9), 5), (4, 7, range(9, 16), 0)):
        for head in range(N_HEADS):
            want = tensors.attention(
                head_rows(rest[0], head, range(first, first + n_q)), head_rows(k, head // 2, tokens),
                head_rows(v, head // 2, tokens), lambda i, j: not causal or j <= i + base,  # noqa: B023
                scale=keywords.get("scale"), sink=sink[head] if sink and not math.isinf(sink[head]) else None)
            if keywords.get("lse_without_sink"):
                want = (want[0], tensors.attention(
                    head_rows(rest[0], head, range(first, first + n_q)), head_rows(k, head // 2, tokens),
                    head_rows(v, head // 2, tokens), lambda i, j: True, scale=keywords["scale"])[1], want[2])
            for i in range(n_q):
                for d in range(V_DIM):
                    check(out[first + i, head, d], want[0][i][d])
                check(lse[first + i, head], want[1][i])
                check(largest[first + i, head], want[2][i])


def test_plan_without_rows(batch: paged.Batch) -> None:
    """Nothing is computed, so that a tensor with tokens does not fit the plan."""
    n_heads, k_dim, v_dim = batch.pool.n_kv_heads, batch.pool.k_dim, batch.pool.v_dim
    batch.plan([], [], [])
    batch.attention(0, Tensor((0, n_heads, k_dim)), Tensor((0, n_heads, v_dim)))
    q, k, v = (Tensor((5, n_heads, dim)) for dim in (k_dim, k_dim, v_dim))
    for call in (lambda: batch.attention(0, q, v), lambda: batch.append(0, k, v), lambda: batch.gather(0, k)):
        with pytest.raises(ValueError, match="has 5 tokens, not 0"):
            call()


def test_error_of_merge_is_its_own(batch: paged.Batch) -> None:
    """The end of a tensor runs Python code, whose failing call of paged has a text too."""
    class Failing(Tensor):
        def __dlpack__(self, **keywords: Any) -> Any:
            lent = Tensor(self.shape)
            lent.on_end = OnEnd()
            return lent.__dlpack__()

    class OnEnd:
        def __del__(self) -> None:
            with pytest.raises(paged.NotFoundError):
                batch.pool.client.pool("other")

    v_dim = batch.pool.v_dim
    out, lse = (lambda: Failing((2, 3, v_dim))), (lambda: Failing((2, 3)))
    with pytest.raises(paged.InvalidError, match="4 heads, not 3"):
        batch.merge(out(), lse(), Failing((2, 4, v_dim)), lse(), Tensor((2, 3, v_dim)))


def test_no_key(batch: paged.Batch) -> None:
    seq, = batch.pool.create(1, 4)
    q, k, v = inputs(2)
    batch.plan([seq], 2, 2, q_base=-1)
    batch.append(0, k, v)
    out, lse = Tensor((2, N_HEADS, V_DIM)), Tensor((2, N_HEADS))
    batch.attention(0, q, out, lse=lse)
    assert [out[0, 0, d] for d in range(V_DIM)] == [0.0] * V_DIM and lse[0, 0] == -math.inf
    assert [out[1, 0, d] for d in range(V_DIM)] == pytest.approx([v[0, 0, d] for d in range(V_DIM)])


@pytest.mark.parametrize(("dtype", "tolerance"), [("f16", 2e-3), ("bf16", 2e-2), ("e4m3", 0.2), ("e5m2", 0.4),
                                                  ("i8", 3e-2)])
def test_pools_of_other_types(dtype: str, tolerance: float) -> None:
    with paged.embedded(POOL | {"dtype": dtype}, threads=1) as client, client.pool("pool") as pool:
        batch, seq = pool.batch(), pool.create(1, 12)[0]
        q, k, v = inputs(12)
        scales = {}
        if dtype in ("e4m3", "e5m2"):
            scales = {"k_scale": Tensor((2,), "f32", [0.5, 0.25]), "v_scale": Tensor((2,), "f32", [2.0, 1.0])}
        batch.plan([seq], 12, 12)
        batch.append(0, k, v, **scales)
        out = Tensor((12, N_HEADS, V_DIM))
        batch.attention(0, q, out, **scales)
        for head in range(N_HEADS):
            want, _, _ = tensors.attention(head_rows(q, head, range(12)), head_rows(k, head // 2, range(12)),
                                           head_rows(v, head // 2, range(12)), lambda i, j: j <= i)
            for i in range(12):
                for d in range(V_DIM):
                    check(out[i, head, d], want[i][d], tolerance)
        back_k, back_v = Tensor(k.shape), Tensor(v.shape)
        batch.gather(0, back_k, back_v, **scales)
        for tensor, back in ((k, back_k), (v, back_v)):
            for index in tensor.indexes():
                check(back[index], tensor[index], tolerance)
        if not scales:
            with pytest.raises(paged.InvalidError, match="scale"):
                batch.attention(0, q, out, k_scale=Tensor((2,), "f32", [1.0, 1.0]))
        batch.close()


def test_refused(batch: paged.Batch) -> None:
    seq, = batch.pool.create(1, 4)
    batch.plan([seq], 2, 2)
    q, k, v = inputs(2)
    out = Tensor((2, N_HEADS, V_DIM))
    for keywords, error, message in (
            ({"lse": Tensor((2, 3))}, ValueError, "lse has 6 elements, not 8"),
            ({"lse": Tensor((2, 4), "f64")}, ValueError, "lse has elements of float64, not f32"),
            ({"lse": Tensor((2, 4), strides=(5, 1))}, ValueError, "lse is not contiguous"),
            ({"max_score": Tensor((2, 4, 2))}, ValueError, "max_score has 16 elements, not 8"),
            ({"sink": Tensor((2,))}, ValueError, "sink has 2 elements, not 4"),
            ({"sink": [0.0] * 4}, TypeError, "sink must be a tensor"),
            ({"scale": 0}, ValueError, "scale is 0; None means"),
            ({"scale": "1"}, TypeError, "scale must be a number, not <class 'str'>"),
            ({"mods": 3}, TypeError, "mods must be a ModSet"),
            ({"k_scale": Tensor((2,), "f32", [1, 1])}, paged.InvalidError, "scale"),
            ({"dropout": 1}, TypeError, "unexpected keyword argument 'dropout'")):
        with pytest.raises(error, match=message):
            batch.attention(0, q, out, **keywords)
    for arguments, error, message in (
            ((), TypeError, "missing required argument 'layer'"), ((0,), TypeError, "missing required argument 'q'"),
            ((2, q, out), paged.InvalidError, "layer"), ((-1, q, out), OverflowError, "layer: -1 is negative"),
            ((0, q, out, None), TypeError, "takes at most 3 positional arguments")):
        with pytest.raises(error, match=message):
            batch.attention(*arguments)
    with pytest.raises(paged.InvalidError):
        batch.append(0, k)
    with pytest.raises(ValueError, match="v has 3 tokens, not 2"):
        batch.append(0, k, Tensor((3, 2, V_DIM)))
    with pytest.raises(TypeError, match="rotary must be a Rotary"):
        batch.append(0, k, v, rotary=1)


# ------------------------------------------------------------------------------ append

@pytest.mark.parametrize("positions", [[5, 0, 3], "i32", "i64", "u32"])
def test_positions(batch: paged.Batch, positions: Any) -> None:
    """A scatter: tokens in any order."""
    seq, = batch.pool.create(1, 8)
    batch.plan([seq], 3, 8)
    _, k, v = inputs(3)
    given = positions if isinstance(positions, list) else Tensor((3,), positions, [5, 0, 3])
    if positions == "u32":
        with pytest.raises(TypeError, match="positions"):
            batch.append(0, k, v, positions=given)
        return
    batch.append(0, k, v, positions=given)
    back = Tensor((8, N_KV_HEADS, K_DIM))
    batch.gather(0, back)
    for i, position in enumerate([5, 0, 3]):
        assert [back[position, 1, d] for d in range(K_DIM)] == [k[i, 1, d] for d in range(K_DIM)]
    with pytest.raises(paged.CapacityError):
        batch.append(0, k, v, positions=[8, 9, 10])
    with pytest.raises(ValueError, match="positions has 2 numbers; 3 are needed"):
        batch.append(0, k, v, positions=[1, 2])
    with pytest.raises(OverflowError, match="positions"):
        batch.append(0, k, v, positions=[-1, 0, 1])


def rotate(row: list[float], position: int, dim: int, first: int, style: str) -> list[float]:
    result = list(row)
    for i in range(dim // 2):
        angle = position / 10 ** (i / 2)
        a, b = (first + i, first + i + dim // 2) if style == "neox" else (first + 2 * i, first + 2 * i + 1)
        result[a] = row[a] * math.cos(angle) - row[b] * math.sin(angle)
        result[b] = row[b] * math.cos(angle) + row[a] * math.sin(angle)
    return result


@pytest.mark.parametrize("style", ["neox", "interleaved"])
@pytest.mark.parametrize("positions", [None, [4, 9, 0, 4, 7], "i64"])
@pytest.mark.parametrize(("dim", "first"), [(8, 0), (4, 0), (4, 2)])
def test_rotary(batch: paged.Batch, style: str, positions: Any, dim: int, first: int) -> None:
    table = Tensor((10, dim), "f32", [f(p / 10 ** (i / 2)) for p in range(10) for f in (math.cos, math.sin)
                                      for i in range(dim // 2)])
    q, k, v = inputs(5)
    q_out = Tensor(q.shape)
    given = Tensor((5,), "i64", [4, 9, 0, 4, 7]) if positions == "i64" else positions
    rotary = paged.Rotary(table, style=style, first=first, positions=given, q=q, q_out=q_out)
    seq, = batch.pool.create(1, 8)
    batch.plan([seq], 5, 7)
    batch.append(0, k, v, rotary=rotary)
    back = Tensor((7, N_KV_HEADS, K_DIM))
    batch.gather(0, back)
    at = [4, 9, 0, 4, 7] if positions else [2, 3, 4, 5, 6]
    for i in range(5):
        for head in range(N_KV_HEADS):
            want = rotate([k[i, head, d] for d in range(K_DIM)], at[i], dim, first, style)
            assert [back[2 + i, head, d] for d in range(K_DIM)] == pytest.approx(want, abs=TOLERANCE)
        for head in range(N_HEADS):
            want = rotate([q[i, head, d] for d in range(K_DIM)], at[i], dim, first, style)
            assert [q_out[i, head, d] for d in range(K_DIM)] == pytest.approx(want, abs=TOLERANCE)


def test_rotary_refused(batch: paged.Batch) -> None:
    seq, = batch.pool.create(1, 8)
    batch.plan([seq], 1, 1)
    q, k, v = inputs(1)
    table = gauss_tensor((10, 4), "f32", 0)
    for arguments, error, message in (
            ({"style": "gpt"}, ValueError, "style is \"gpt\"; it must be \"neox\" or \"interleaved\""),
            ({"q": q}, ValueError, "q and q_out must be given together"),
            ({"first": -1}, OverflowError, "first: -1 is negative"),
            ({"base": 1}, TypeError, "base")):
        with pytest.raises(error, match=message):
            paged.Rotary(table, **arguments)
    with pytest.raises(TypeError, match="cos_sin must be a tensor, not None"):
        paged.Rotary(None)
    with pytest.raises(TypeError, match="rotary must be a Rotary, not <class 'tensors.Tensor'>"):
        batch.append(0, k, v, rotary=table)
    for rotary, error, message in (
            (paged.Rotary(3), TypeError, "cos_sin must be a tensor"),
            (paged.Rotary(Tensor((10,))), ValueError, r"cos_sin has 1 dimensions; it must be \[positions, dim\]"),
            (paged.Rotary(Tensor((10, 4), "f16")), ValueError, "cos_sin has elements of f16, not f32"),
            (paged.Rotary(table, positions=[1, 2]), ValueError, "positions of the rotary embedding has 2 numbers"),
            (paged.Rotary(table, positions=[10]), paged.RangeError, "10"),
            (paged.Rotary(table, first=6), paged.InvalidError, "rotary"),
            (paged.Rotary(table, q=q, q_out=Tensor(q.shape, read_only=True)), ValueError, "q_out is read-only")):
        with pytest.raises(error, match=message):
            batch.append(0, k, v, rotary=rotary)


class Overlapping(Tensor):
    """A tensor at an address inside another one."""

    def __init__(self, of: Tensor, first: int, shape: tuple[int, ...], **keywords: Any) -> None:
        super().__init__(shape, of.dtype, address=of.address + first * of.size, **keywords)
        self.of = of


def test_outputs_share_no_memory(batch: paged.Batch) -> None:
    seq, = batch.pool.create(1, 8)
    q, k, v = inputs(8)
    batch.plan([seq], 8, 8)
    batch.append(0, k, v)
    n = 8 * N_HEADS * V_DIM
    memory = Tensor((4 * n,), "f32", [0.0] * 4 * n)
    out, scores = Overlapping(memory, 0, (8, N_HEADS, V_DIM)), (8, N_HEADS)
    bias = Overlapping(memory, n - 1, (8,))
    table = gauss_tensor((10, 4), "f32", 0)
    for call, message in (
            (lambda: batch.attention(0, q, Overlapping(q, 1, out.shape)), "q shares memory with out"),
            (lambda: batch.attention(0, q, out, lse=Overlapping(memory, n - 1, scores)), "lse shares memory with out"),
            (lambda: batch.attention(0, q, out, lse=Overlapping(q, 0, scores)), "q shares memory with lse"),
            (lambda: batch.attention(0, q, out, sink=Overlapping(memory, 5, (N_HEADS,))),
             "sink shares memory with out"),
            (lambda: batch.attention(0, q, out, mods=batch.mods(score="score + bias[kv_idx]", bias=bias)),
             "out shares memory with the array bias of mods"),
            (lambda: batch.gather(0, Overlapping(memory, 0, k.shape), Overlapping(memory, 60, v.shape)),
             "v shares memory with k"),
            (lambda: batch.gather(0, Tensor(k.shape, address=batch.pool.k.data_ptr)), "the pool's pages shares"),
            (lambda: batch.append(0, Tensor(k.shape, address=batch.pool.k.data_ptr), v),
             "k shares memory with the pool"),
            (lambda: batch.append(0, k, v, rotary=paged.Rotary(table, q=q, q_out=Overlapping(q, 8, q.shape))),
             "rotary q shares memory with rotary q_out"),
            (lambda: batch.merge(out, Overlapping(memory, 2 * n, scores), out, Overlapping(memory, 3 * n, scores),
                                 Overlapping(memory, 1, out.shape)), r"part\[0\] \(a\) shares memory with out")):
        with pytest.raises(paged.InvalidError if "array" not in message else ValueError, match=message):
            call()
    # In place, where the call says so, and bounds that only touch.
    batch.append(0, k, v, rotary=paged.Rotary(table, q=q, q_out=q))
    lse = Overlapping(memory, n, scores)
    assert batch.attention(0, q, out, lse=lse) is out
    assert batch.merge(out, lse, out, lse, out, lse=lse) is out


def test_immutable_arrays_are_not_written(batch: paged.Batch) -> None:
    """JAX's arrays never change, and their DLPack capsules do not say so."""
    immutable = type("ArrayImpl", (Tensor,), {"__module__": "jaxlib._jax"})
    seq, = batch.pool.create(1, 8)
    q, k, v = inputs(8)
    batch.plan([seq], 8, 8)
    batch.append(0, immutable(k.shape, "f32", k.values()), v)
    for call in (lambda: batch.attention(0, q, immutable((8, N_HEADS, V_DIM))),
                 lambda: batch.attention(0, q, Tensor((8, N_HEADS, V_DIM)), lse=immutable((8, N_HEADS))),
                 lambda: batch.gather(0, immutable(k.shape))):
        with pytest.raises(ValueError, match=r"(out|lse|k) is an immutable array, .*ArrayImpl.*, and would be written"):
            call()
    numpy = pytest.importorskip("numpy")
    out = numpy.zeros((8, N_HEADS, V_DIM), "f4")
    for wrong in (numpy.broadcast_to(out[:1], out.shape), out.view()):
        wrong.flags.writeable = False
        with pytest.raises(ValueError, match="out.*(read-only|readonly)"):
            batch.attention(0, q, wrong)


def test_v_in_k() -> None:
    with paged.embedded(POOL | {"v_in_k": True, "n_kv_heads": 1}, threads=1) as client, client.pool("pool") as pool, \
            pool.batch() as batch:
        seq, = pool.create(1, 8)
        batch.plan([seq], 6, 6)
        k, q = gauss_tensor((6, 1, K_DIM), "f32", 1), gauss_tensor((6, N_HEADS, K_DIM), "f32", 2)
        batch.append(0, k)
        out = Tensor((6, N_HEADS, V_DIM))
        batch.attention(0, q, out)
        rows = head_rows(k, 0, range(6))
        for head in range(N_HEADS):
            want, _, _ = tensors.attention(head_rows(q, head, range(6)), rows, [row[:V_DIM] for row in rows],
                                           lambda i, j: j <= i)
            for i in range(6):
                assert [out[i, head, d] for d in range(V_DIM)] == pytest.approx(want[i], abs=TOLERANCE)


# ------------------------------------------------------------------------------ gather

def test_gather(batch: paged.Batch) -> None:
    a, b = batch.pool.create(2, 8)
    batch.plan([a, b], [5, 7], [5, 7])
    _, k, v = inputs(12)
    batch.append(0, k, v)
    back_k, back_v = Tensor(k.shape), Tensor(v.shape, "f16")
    batch.gather(0, back_k, back_v)
    assert back_k.values() == k.values()
    assert back_v.values() == pytest.approx(v.values(), rel=1e-3)
    only_v = Tensor(v.shape)
    batch.gather(0, None, only_v)
    assert only_v.values() == v.values()
    part = Tensor((5, N_KV_HEADS, K_DIM))
    for begin, end in (([1, 4], [3, 7]), (Tensor((2,), "i32", [1, 4]), Tensor((2,), "i64", [3, 7])), ([1, 4], [3, 7])):
        batch.gather(0, part, begin=begin, end=end)
        for i, token in enumerate((1, 2, 9, 10, 11)):
            assert [part[i, 0, d] for d in range(K_DIM)] == [k[token, 0, d] for d in range(K_DIM)]
    rows = Tensor((2, N_KV_HEADS, 5, K_DIM))
    batch.gather(0, rows, begin=[0, 2])
    for i in range(5):
        assert rows[1, 1, i, 3] == k[7 + i, 1, 3]


def test_gather_from_kv_first(batch: paged.Batch) -> None:
    """Without begin, a row's tokens are those from kv_first on; a trimmed sequence has none before its first page."""
    a, b = batch.pool.create(2, 40)
    batch.plan([a, b], [40, 7], [40, 7])
    _, k, v = inputs(47)
    batch.append(0, k, v)
    batch.plan([a, b], 0, [40, 7], kv_first=[9, 2])
    part = Tensor((36, N_KV_HEADS, K_DIM))
    batch.gather(0, part)
    for i, token in enumerate([*range(9, 40), *range(42, 47)]):
        assert [part[i, 1, d] for d in range(K_DIM)] == [k[token, 1, d] for d in range(K_DIM)]
    with pytest.raises(ValueError, match="k has 47 tokens, not 36"):
        batch.gather(0, Tensor((47, N_KV_HEADS, K_DIM)))
    with pytest.raises(paged.RangeError, match="its kv_first is 9"):
        batch.gather(0, Tensor((38, N_KV_HEADS, K_DIM)), begin=[7, 2])
    size = batch.pool.page_size
    batch.pool.trim(a, 3 * size)
    batch.plan([a, b], 0, [40, 7], kv_first=2)
    kept = Tensor((40 - 3 * size + 5, N_KV_HEADS, K_DIM))
    batch.gather(0, kept)
    for i, token in enumerate([*range(3 * size, 40), *range(42, 47)]):
        assert [kept[i, 0, d] for d in range(K_DIM)] == [k[token, 0, d] for d in range(K_DIM)]


def test_gather_refused(batch: paged.Batch) -> None:
    a, b = batch.pool.create(2, 8)
    batch.plan([a, b], 0, [5, 7])
    k = Tensor((12, N_KV_HEADS, K_DIM))
    with pytest.raises(ValueError, match="k has 11 tokens, not 12"):
        batch.gather(0, Tensor((11, N_KV_HEADS, K_DIM)))
    with pytest.raises(ValueError, match="k has 12 tokens, not 11"):
        batch.gather(0, k, begin=[1, 0])
    with pytest.raises(ValueError, match="k is read-only"):
        batch.gather(0, Tensor((12, N_KV_HEADS, K_DIM), read_only=True))
    with pytest.raises(paged.RangeError):
        batch.gather(0, k, begin=[0, 0], end=[4, 8])
    with pytest.raises(paged.RangeError):
        batch.gather(0, k, begin=[6, 0], end=[5, 7])
    with pytest.raises(paged.RangeError):
        batch.gather(0, k, begin=[9, 9])
    with pytest.raises(paged.InvalidError):
        batch.gather(0, None, None)
    with pytest.raises(ValueError, match="begin has 1 numbers; 2 are needed"):
        batch.gather(0, k, begin=[1])


# ------------------------------------------------------------------------------- merge

@pytest.mark.parametrize("in_place", [False, True])
def test_merge(batch: paged.Batch, in_place: bool) -> None:
    """Attention over the first keys and over the rest, merged, is attention over all."""
    first, rest = batch.pool.create(2, 8)
    q, k, v = inputs(8)
    parts = [[Tensor((4, 2, t.shape[2]), "f32", t.values()[i * 8 * t.shape[2]:(i + 1) * 8 * t.shape[2]])
              for t in (k, v)] for i in range(2)]
    query = Tensor((4, N_HEADS, K_DIM), "f32", q.values()[:4 * N_HEADS * K_DIM])
    results = []
    for seq, part in zip((first, rest), parts, strict=True):
        batch.plan([seq], 4, 4)
        batch.append(0, *part)
        out, lse = Tensor((4, N_HEADS, V_DIM)), Tensor((4, N_HEADS))
        batch.attention(0, query, out, causal=False, lse=lse)
        results += [out, lse]
    a, a_lse, b, b_lse = results
    out, lse = (a, a_lse) if in_place else (Tensor((4, N_HEADS, V_DIM)), Tensor((4, N_HEADS)))
    assert batch.merge(a, a_lse, b, b_lse, out, lse=lse) is out
    for head in range(N_HEADS):
        want, want_lse, _ = tensors.attention(head_rows(query, head, range(4)), head_rows(k, head // 2, range(8)),
                                              head_rows(v, head // 2, range(8)), lambda i, j: True)
        for i in range(4):
            assert [out[i, head, d] for d in range(V_DIM)] == pytest.approx(want[i], abs=TOLERANCE)
            check(lse[i, head], want_lse[i])


def test_merge_layouts(pool: paged.Pool) -> None:
    """[rows, heads, tokens, dim], contiguous, without a plan; out new and of the same layout."""
    type_ = tensors.exchange_type("Merged")
    with pool.batch() as batch:
        values = [gauss(2 * 3 * 5 * 4, seed) for seed in range(2)]
        a, b = (Tensor((2, 3, 5, 4), "f32", each) for each in values)
        a = type_((2, 3, 5, 4), "f32", values[0])
        packed = [Tensor((10, 3, 4), "f32", [t[i // 5, h, i % 5, d] for i in range(10) for h in range(3)
                                             for d in range(4)]) for t in (a, b)]
        lse = [gauss_tensor((10, 3), "f32", seed) for seed in (5, 6)]
        want = Tensor((10, 3, 4))
        batch.merge(packed[0], lse[0], packed[1], lse[1], want)
        for other in (b, packed[1]):
            out = batch.merge(a, lse[0], other, lse[1])
            assert type(out) is type_ and out.shape == (2, 3, 5, 4)
            assert [out[i // 5, h, i % 5, d] for i, h, d in want.indexes()] == want.values()
        with pytest.raises(ValueError, match="b has rows of 2 tokens, not 5"):
            batch.merge(a, lse[0], Tensor((5, 3, 2, 4)), lse[1])
        with pytest.raises(ValueError, match="b has 9 tokens, not 10"):
            batch.merge(a, lse[0], Tensor((9, 3, 4)), lse[1])
        with pytest.raises(ValueError, match="a_lse has 3 elements, not 30"):
            batch.merge(a, Tensor((3,)), b, lse[1])
        with pytest.raises(paged.InvalidError):
            batch.merge(a, lse[0], Tensor((10, 2, 4)), lse[1], want)
