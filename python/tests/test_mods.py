# SPDX-License-Identifier: Apache-2.0
"""Mod and ModSet: parsing, evaluation, binding, attention with mods."""
import contextlib
import gc
import math
import random
import sys
import threading
import weakref

import pytest

import paged
from tensors import Tensor

N_HEADS, N_KV_HEADS, DIM, PAGE_SIZE = 4, 2, 16, 8
GEOMETRY = {"name": "mods", "n_layers": 1, "n_kv_heads": N_KV_HEADS, "k_dim": DIM, "dtype": "f32",
            "page_size": PAGE_SIZE, "n_pages": 256}


@pytest.fixture
def client():
    with paged.embedded(GEOMETRY, threads=2, run="own") as client:
        yield client


@pytest.fixture
def pool(client):
    with client.pool("mods") as pool:
        yield pool


@pytest.fixture
def np():
    return pytest.importorskip("numpy")


def points(n, seed=1):
    rng = random.Random(seed)
    for _ in range(n):
        yield {"score": rng.uniform(-40, 40), "b": rng.randrange(3), "h": rng.randrange(N_HEADS),
               "q_idx": rng.randrange(64), "kv_idx": rng.randrange(64)}


# ---------------------------------------------------------------------------------------------------- named mods

# For each ready-made mod its parameters, and what it computes from score, b, h, q, kv.
NAMED = {
    "noop": ({}, lambda s, b, h, q, kv: True),
    "causal": ({}, lambda s, b, h, q, kv: kv <= q),
    "causal_offset": ({"offset": 5}, lambda s, b, h, q, kv, offset: kv <= q + offset),
    "sliding_window": ({"window": 7}, lambda s, b, h, q, kv, window: 0 <= q - kv < window),
    "two_sided_window": ({"window": 7}, lambda s, b, h, q, kv, window: abs(q - kv) <= window),
    "sink_window": ({"sink": 4, "window": 9},
                    lambda s, b, h, q, kv, sink, window: kv <= q and (kv < sink or q - kv < window)),
    "dilated": ({"step": 3}, lambda s, b, h, q, kv, step: kv <= q and (q - kv) % step == 0),
    "prefix_lm": ({"prefix": 20}, lambda s, b, h, q, kv, prefix: kv < prefix or kv <= q),
    "padding": ({"length": 33}, lambda s, b, h, q, kv, length: kv < length),
    "chunked": ({"chunk": 16}, lambda s, b, h, q, kv, chunk: q // chunk == kv // chunk and kv <= q),
    "block_diffusion": ({"block": 8}, lambda s, b, h, q, kv, block: kv // block <= q // block),
    "neighbourhood": ({"width": 8, "radius": 2},
                      lambda s, b, h, q, kv, width, radius: abs(q // width - kv // width) <= radius
                      and abs(q % width - kv % width) <= radius),
    "identity": ({}, lambda s, b, h, q, kv: s),
    "alibi": ({"heads": N_HEADS}, lambda s, b, h, q, kv, heads: s + 2.0 ** (-8.0 * (h + 1) / heads) * (kv - q)),
    "relative": ({}, lambda s, b, h, q, kv: s + (q - kv)),
    "soft_cap": ({"cap": 30.0}, lambda s, b, h, q, kv, cap: cap * math.tanh(s / cap)),
}
# These read arrays.
NAMED_WITH_ARRAYS = {"document", "ragged_document"}


def test_list_of_named_mods():
    mods = paged.named_mods()
    assert {mod.name for mod in mods} == set(NAMED) | NAMED_WITH_ARRAYS
    assert next(mod.text for mod in mods if mod.name == "causal") == "kv_idx <= q_idx"


@pytest.mark.parametrize("name", NAMED)
def test_named_mod(pool, name):
    values, function = NAMED[name]
    kind = "score" if name in ("identity", "alibi", "relative", "soft_cap") else "mask"
    by_parameters = pool.mod(kind, name, **values)
    literal = f"{name}({', '.join(map(str, values.values()))})" if values else name
    by_literals = pool.mod(kind, literal)
    for point in points(400):
        expected = float(function(*point.values(), **values))
        assert by_parameters.evaluate(**point, arrays=values) == pytest.approx(expected, rel=1e-12, abs=1e-12)
        assert by_literals.evaluate(**point) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_document(pool, np):
    doc = np.repeat(np.arange(8), 8)
    mod = pool.mod("mask", "document && causal", doc=doc)
    for point in points(400):
        q, kv = point["q_idx"], point["kv_idx"]
        assert mod.evaluate(**point, arrays={"doc": doc}) == (doc[q] == doc[kv] and kv <= q)


def test_ragged_document(pool, np):
    lengths = [40, 64, 50]
    docs = [np.arange(n) // 9 for n in lengths]
    arrays = {"doc": np.concatenate(docs), "start": np.cumsum([0] + lengths[:-1]).astype(np.int32)}
    mod = pool.mod("mask", "ragged_document", **arrays)
    for point in points(400):
        b, q, kv = point["b"], point["q_idx"], point["kv_idx"]
        if max(q, kv) < lengths[b]:
            assert mod.evaluate(**point, arrays=arrays) == (docs[b][q] == docs[b][kv])


# ------------------------------------------------------------------------------------------------------- parsing

def test_attributes(pool):
    mod = pool.mod("mask", "kv_idx<=q_idx&&q_idx-kv_idx<window", window=4)
    assert mod.pool is pool and mod.kind == "mask"
    assert mod.inputs == {"q_idx", "kv_idx"}
    assert mod.text == pool.mod("mask", "  kv_idx <= q_idx && q_idx - kv_idx < window ", window=9).text
    assert "window" in repr(mod)
    assert pool.mod("score", "score * (h + b)").inputs == {"score", "h", "b"}
    with pytest.raises(TypeError):
        paged.Mod()


def test_unknown_name_is_explained(pool):
    with pytest.raises(paged.InvalidError, match=r"(?s)windw.*nearest is 'window'.*\^") as info:
        pool.mod("mask", "q_idx - kv_idx < windw", window=4)
    assert info.value.status_name == "PAGED_ERR_INVALID" and isinstance(info.value, ValueError)


@pytest.mark.parametrize("arguments, keywords, error", [
    (("mask",), {}, TypeError),
    (("mask", "causal", 1), {}, TypeError),
    (("mask", 1), {}, TypeError),
    (("sieve", "causal"), {}, ValueError),
    (("mask", "causal\0"), {}, ValueError),
    (("mask", "\ud800"), {}, UnicodeEncodeError),
    (("mask", "score > 1.0"), {}, paged.InvalidError),
    (("mask", "x" * 5000), {}, paged.LimitError),
    (("mask", "kv_idx < n"), {"n": 2**31}, OverflowError),
    (("mask", "kv_idx < n"), {"n": -2**31 - 1}, OverflowError),
    (("mask", "kv_idx < n"), {"n": 2**70}, OverflowError),
    (("mask", "kv_idx < n"), {"n": "4"}, TypeError),
    (("mask", "kv_idx < n"), {"n": [4]}, TypeError),
    (("mask", "kv_idx < n"), {"n": None}, TypeError),
    (("mask", "kv_idx < n"), {"n": 1j}, TypeError),
    (("mask", "causal"), {"2nd": 1}, paged.InvalidError),
])
def test_refused_text(pool, arguments, keywords, error):
    with pytest.raises(error):
        pool.mod(*arguments, **keywords)


def test_parameters_of_python_types(pool):
    mod = pool.mod("score", "score + x", x=1.5)
    assert mod.evaluate(score=1, arrays={"x": 2.5}) == 3.5
    # A parameter is an f32.
    assert mod.evaluate(arrays={"x": 0.1}) == pytest.approx(0.1, rel=2**-24)
    assert mod.evaluate(arrays={"x": 0.1}) != 0.1
    assert math.isinf(mod.evaluate(arrays={"x": math.inf}))
    integer = pool.mod("score", "float(x)", x=True)
    assert integer.evaluate(arrays={"x": -2**31}) == -2.0**31
    with pytest.raises(paged.InvalidError, match="x"):
        integer.evaluate(arrays={"x": 1.5})

    class Index:
        def __index__(self):
            return 12

    class Float:
        def __float__(self):
            return 0.5

    assert integer.evaluate(arrays={"x": Index()}) == 12
    assert mod.evaluate(arrays={"x": Float()}) == 0.5


def test_parameters_of_array_types(pool, np):
    for value in (np.int64(7), np.int32(7), np.uint8(7), np.array(7, np.int64), np.array(7, np.int32)):
        assert pool.mod("score", "float(x)", x=value).evaluate(arrays={"x": value}) == 7
    for value in (np.float64(0.5), np.float32(0.5), np.array(0.5, np.float32)):
        assert pool.mod("score", "x", x=value).evaluate(arrays={"x": value}) == 0.5


def test_error_of_evaluate_is_its_own(pool):
    """The end of a tensor runs Python code, whose failing call of paged has a text too."""
    class Failing(Tensor):
        def __dlpack__(self, **keywords):
            lent = Tensor(self.shape, self.dtype)
            lent.on_end = OnEnd()
            return lent.__dlpack__()

    class OnEnd:
        def __del__(self):
            with pytest.raises(paged.NotFoundError):
                pool.client.pool("other")

    mod = pool.mod("mask", "doc[kv_idx] == 0", doc=Tensor((3,), "i32", [0] * 3))
    with pytest.raises(paged.RangeError, match="doc"):
        mod.evaluate(kv_idx=3, arrays={"doc": Failing((3,), "i32")})


def test_evaluate_arguments(pool, np):
    mod = pool.mod("mask", "doc[q_idx] == doc[kv_idx]", doc=np.zeros(1, np.int32))
    doc = np.array([0, 0, 1])
    assert mod.evaluate(q_idx=1, kv_idx=0, arrays={"doc": doc, "unused": 1}) == 1.0
    with pytest.raises(paged.RangeError, match=r"doc.*3") as info:
        mod.evaluate(q_idx=3, kv_idx=0, arrays={"doc": doc})
    assert isinstance(info.value, IndexError)
    with pytest.raises(paged.NotFoundError, match="doc"):
        mod.evaluate()
    with pytest.raises(paged.InvalidError, match="doc"):
        mod.evaluate(arrays={"doc": np.zeros((2, 2), np.int32)})
    with pytest.raises(paged.InvalidError, match="doc"):
        mod.evaluate(arrays={"doc": np.zeros(3, np.float32)})
    with pytest.raises(paged.RangeError, match=str(2**40)):
        mod.evaluate(arrays={"doc": np.array([2**40])})
    with pytest.raises(OverflowError):
        mod.evaluate(q_idx=2**31, arrays={"doc": doc})
    with pytest.raises(TypeError):
        mod.evaluate(1.0)
    with pytest.raises(TypeError):
        mod.evaluate(arrays={1: doc})
    with pytest.raises((TypeError, AttributeError)):
        mod.evaluate(arrays=3)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int64", "uint8", "bool"])
def test_array_dtypes_and_strides(pool, np, dtype):
    if dtype == "bool" and np.lib.NumpyVersion(np.__version__) < "1.25.0":
        pytest.skip("this NumPy has no DLPack of bool")
    base = (np.arange(60).reshape(3, 4, 5) % 2).astype(dtype)
    for array in (base, base[:, ::-1, ::2], base.T, base[1:, 1:, 1:]):
        mod = pool.mod("score", "score + a[b][q_idx][kv_idx]", a=array)
        for index in np.ndindex(array.shape):
            b, q, kv = index
            assert mod.evaluate(score=1, b=b, q_idx=q, kv_idx=kv, arrays={"a": array}) == 1 + float(array[index])


def test_arrays_that_are_refused(pool, np):
    with pytest.raises(ValueError, match="5 dimensions"):
        pool.mod("score", "score", a=np.zeros((1, 1, 1, 1, 1), np.float32))
    with pytest.raises(ValueError, match="float64|f64|dtype"):
        pool.mod("score", "score", a=np.zeros(2))


def test_broadcast_array(pool):
    torch = pytest.importorskip("torch")
    one = torch.tensor([5], dtype=torch.int32)
    with pytest.raises(ValueError, match="repeats one element"):
        pool.mod("mask", "a[q_idx] == 5", a=one.expand(10))
    # With a stride that is not 0, it is read as it is.
    rows = torch.arange(4, dtype=torch.int32).expand(3, 4)
    mod = pool.mod("score", "a[q_idx][kv_idx]", a=rows)
    assert mod.evaluate(q_idx=2, kv_idx=3, arrays={"a": rows}) == 3


# ----------------------------------------------------------------------------------------------------- attention

def reference(np, q, k, v, seen, score=lambda s, h, q, kv: s):
    """Attention of one row in float64.  q: [tokens, heads, dim]; seen: function of h, q_idx, kv_idx."""
    n_q, n_kv = len(q), len(k)
    h, qi, kv = np.meshgrid(np.arange(N_HEADS), np.arange(n_kv - n_q, n_kv), np.arange(n_kv), indexing="ij")
    k, v = (np.repeat(x.astype(np.float64), N_HEADS // N_KV_HEADS, axis=1) for x in (k, v))
    scores = np.einsum("qhd,khd->hqk", q.astype(np.float64), k) / math.sqrt(DIM)
    scores = np.where(seen(h, qi, kv), score(scores, h, qi, kv), -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.einsum("hqk,khd->qhd", weights / weights.sum(axis=-1, keepdims=True), v)


class Step:
    """Two sequences whose K and V are appended, and queries for all their tokens."""

    def __init__(self, np, pool, lengths=(40, 23)):
        rng = np.random.default_rng(3)
        self.np, self.lengths = np, list(lengths)
        total = sum(lengths)
        self.q = rng.standard_normal((total, N_HEADS, DIM)).astype(np.float32)
        self.k, self.v = (rng.standard_normal((total, N_KV_HEADS, DIM)).astype(np.float32) for _ in "kv")
        self.seqs = pool.create(len(lengths), n_tokens=self.lengths)
        self.batch = pool.batch()
        self.batch.plan(self.seqs, q_len=self.lengths, kv_len=self.lengths)
        self.batch.append(0, self.k, self.v)

    def attention(self, mods):
        out = self.np.zeros_like(self.q)
        self.batch.attention(0, self.q, out, mods=mods, causal=False)
        return out

    def check(self, mods, *rows):
        """rows: for each row (seen, score).  The tolerance is that of f32 scores and weights."""
        out, first = self.attention(mods), 0
        for n, functions in zip(self.lengths, rows, strict=True):
            part = slice(first, first + n)
            expected = reference(self.np, self.q[part], self.k[part], self.v[part], *functions)
            self.np.testing.assert_allclose(out[part], expected, rtol=2e-5, atol=2e-5)
            first += n


@pytest.fixture
def step(np, pool):
    return Step(np, pool)


def causal(h, q, kv):
    return kv <= q


def window(n):
    return lambda h, q, kv: (kv <= q) & (q - kv < n)


def test_attention_with_texts(np, step):
    mods = step.batch.mods(mask="causal && q_idx - kv_idx < window", score="soft_cap(cap)", window=9, cap=1.5)
    assert mods.batch is step.batch
    assert mods.mask.kind == "mask" and mods.score.kind == "score"
    capped = (window(9), lambda s, h, q, kv: 1.5 * np.tanh(s / 1.5))
    step.check(mods, capped, capped)


def test_attention_with_mods_and_arrays(np, pool, step):
    slope = np.array([0.5, -0.25, 0.125, 1], np.float32)
    mask = pool.mod("mask", "causal")
    score = pool.mod("score", "score + slope[h] * (kv_idx - q_idx)", slope=slope)
    mods = step.batch.mods(mask=mask, score=score, slope=slope)
    assert mods.mask is mask and mods.score is score
    biased = (causal, lambda s, h, q, kv: s + slope[h] * (kv - q))
    step.check(mods, biased, biased)


def test_mods_of_rows(np, step):
    mods = step.batch.mods(mask="causal && q_idx - kv_idx < window[b]", window=np.array([4, 17]))
    step.check(mods, (window(4),), (window(17),))


def test_bind_again(np, pool, step):
    mods = step.batch.mods(mask="causal && q_idx - kv_idx < window[b]", window=np.array([4, 17]))
    mask = mods.mask
    assert mods.bind(window=np.array([1, 2], np.int32)) is None
    step.check(mods, (window(1),), (window(2),))
    mods.bind(window=np.array([30, 3, 99])[:2])
    step.check(mods, (window(30),), (window(3),))
    assert mods.mask is mask
    # After an error the previous binding remains.
    for wrong, error in (({}, paged.NotFoundError), ({"window": 3}, paged.InvalidError),
                         ({"window": np.zeros((2, 2), np.int32)}, paged.InvalidError),
                         ({"window": np.zeros(2, np.float32)}, paged.InvalidError),
                         ({"window": np.array([1, 2**40])}, paged.RangeError)):
        with pytest.raises(error, match="window"):
            mods.bind(**wrong)
        step.check(mods, (window(30),), (window(3),))


def test_bind_later(step, pool):
    mods = step.batch.mods(mask=pool.mod("mask", "sliding_window", window=1))
    with pytest.raises(paged.InvalidError, match="never bound"):
        step.attention(mods)
    mods.bind(window=5)
    step.check(mods, (window(5),), (window(5),))


def test_mods_with_a_block_mask(np, pool, step):
    blocks = pool.block_mask("causal", step.lengths, step.lengths, q_block=16, kv_block=16)
    mods = step.batch.mods(mask="causal", blocks=blocks)
    step.check(mods, (causal,), (causal,))
    del blocks
    gc.collect()
    step.check(mods, (causal,), (causal,))
    mods.bind()
    step.check(mods, (causal,), (causal,))
    carrier = step.batch.mods(blocks=pool.block_mask(None, step.lengths, step.lengths))
    assert carrier.mask is None and carrier.score is None
    step.check(carrier, *[(lambda h, q, kv: kv >= 0,)] * 2)


def test_out_of_bounds_at_validate(np, step):
    mods = step.batch.mods(mask="causal && doc[q_idx] == doc[kv_idx]", doc=np.zeros(39, np.int32))
    step.attention(mods)
    with pytest.raises(paged.RangeError, match="doc.*39"):
        step.batch.validate()


def test_prepare(step):
    mods = step.batch.mods(mask="causal")
    assert mods.prepare("bf16") is None and mods.prepare("f32", timeout=0) is None
    for dtype, error in (("i8", paged.InvalidError), ("f64", ValueError), (32, TypeError)):
        with pytest.raises(error):
            mods.prepare(dtype)


def test_refused_mods(pool, step):
    mask, score = pool.mod("mask", "causal"), pool.mod("score", "score")
    with pytest.raises(ValueError, match="score mod"):
        step.batch.mods(mask=score)
    with pytest.raises(ValueError, match="mask mod"):
        step.batch.mods(score=mask)
    with pytest.raises(TypeError):
        step.batch.mods(mask)
    with pytest.raises(TypeError, match="Mod or a str"):
        step.batch.mods(mask=lambda b, h, q, kv: True)
    with pytest.raises(TypeError, match="BlockMask"):
        step.batch.mods(blocks=mask)
    with pytest.raises(paged.InvalidError, match="q_index"):
        step.batch.mods(mask="kv_idx <= q_index")
    with pytest.raises(paged.NotFoundError, match="window"):
        step.batch.mods(mask=pool.mod("mask", "sliding_window", window=1), other=3)
    with pool.client.pool("mods") as other:
        with pytest.raises(ValueError, match="another Pool"):
            step.batch.mods(mask=other.mod("mask", "causal"))
        with pytest.raises(ValueError, match="another Pool"):
            step.batch.mods(blocks=other.block_mask("causal", 8, 8))


# ------------------------------------------------------------------------------------------------------ lifetimes

def test_references_to_arrays(np, step):
    first, second = np.zeros(64, np.int32), np.zeros(64, np.int32)
    before = sys.getrefcount(first)
    mods = step.batch.mods(mask="document", doc=first)
    assert sys.getrefcount(first) > before
    mods.bind(doc=second)
    assert sys.getrefcount(first) == before
    with pytest.raises(paged.InvalidError):
        mods.bind(doc=np.zeros(4, np.float32))
    del mods
    assert sys.getrefcount(second) == before


def test_array_in_a_cycle_with_its_set(step):
    torch = pytest.importorskip("torch")
    array = torch.zeros(64, dtype=torch.int32)
    array.mods = step.batch.mods(mask="document", doc=array)
    dead = weakref.ref(array)
    del array
    gc.collect()
    assert dead() is None


def test_bound_array_outlives_its_variable(np, step):
    mods = step.batch.mods(mask="causal && q_idx - kv_idx < window[b]", window=np.array([4, 17], np.int32))
    gc.collect()
    noise = [np.full(2, -1, np.int32) for _ in range(1000)]
    step.check(mods, (window(4),), (window(17),))
    del noise


@pytest.mark.parametrize("outer", ["batch", "pool", "client"])
def test_outer_object_is_closed_first(np, client, pool, outer):
    step = Step(np, pool)
    mod = pool.mod("mask", "causal")
    blocks = pool.block_mask(mod, 8, 8)
    mods = step.batch.mods(mask=mod, score="score + a[h]", a=np.zeros(4, np.float32), blocks=blocks)
    {"batch": step.batch, "pool": pool, "client": client}[outer].close()
    with pytest.raises(RuntimeError):
        mods.bind(a=np.zeros(4, np.float32))
    with pytest.raises(RuntimeError):
        mods.prepare("f32")
    with pytest.raises(RuntimeError):
        step.batch.mods(mask=mod)
    assert mod.kind == "mask" and repr(mod)
    if outer != "batch":
        for use in (lambda m, b: m.text, lambda m, b: m.inputs, lambda m, b: m.evaluate(), lambda m, b: b.n_rows,
                    lambda m, b: b.arrays(), lambda m, b: b.picture(), lambda m, b: pool.mod("mask", "causal"),
                    lambda m, b: pool.block_mask(m, 8, 8)):
            with pytest.raises(RuntimeError):
                use(mod, blocks)
    del mods, blocks, mod
    gc.collect()


def test_mod_outlives_the_variables_of_outer_objects(client):
    mod = client.pool("mods").mod("mask", "causal")
    gc.collect()
    assert mod.evaluate(q_idx=1) == 1.0 and mod.pool.client is client


def test_repr(client):
    pool = client.pool("mods")
    mods = pool.batch().mods(mask="causal", score="score * x", x=2.0)
    assert repr(mods) == (f"<paged.ModSet of pool mods: mask {mods.mask!r}, score {mods.score!r}, 1 arrays>")
    mask = pool.block_mask("causal", 256, 256)
    assert repr(mask) == "<paged.BlockMask of pool mods: logical, 1 rows, 1 heads, 3 blocks of 128 x 128>"
    rotary = paged.Rotary(object(), style="interleaved", first=4, positions=[1])
    assert repr(rotary) == "<paged.Rotary interleaved, first dim 4, with positions>"
    client.close()
    assert repr(mods).endswith(", closed>")
    assert repr(mask) == "<paged.BlockMask of a closed pool>"


def test_sets_are_dropped_while_their_batch_is_busy(np, pool):
    """A set that another thread gives up during attention() is freed later."""
    step = Step(np, pool, (1000,))
    mods = step.batch.mods(mask="causal")
    extra = [step.batch.mods(mask="document", doc=np.zeros(1000, np.int32)) for _ in range(200)]
    threads = [threading.Thread(target=step.attention, args=(mods,)), threading.Thread(target=extra.clear)]
    for thread in threads:
        thread.start()
    while extra:
        with contextlib.suppress(RuntimeError):
            step.batch.mods(mask="causal")
    for thread in threads:
        thread.join()
    step.check(mods, (causal,))


def test_mods_are_dropped_in_the_log_function(np):
    """The library calls the log function inside a call; objects that end there are freed with the pool."""
    garbage, lines = [], []

    def log(level, text):
        lines.append(text)
        garbage.clear()

    with paged.embedded(GEOMETRY, log=log, run="own", threads=1) as client, client.pool("mods") as pool:
        garbage += [pool.mod("mask", "causal"), pool.block_mask("causal", 8, 8)]
        lines.clear()
        with pytest.raises(paged.InvalidError):
            pool.mod("mask", "nonsense")
        assert lines and not garbage


def test_cycle_through_the_log_function():
    """log -> mod -> pool -> client -> log."""
    def log(level, text):
        kept.append(text)  # noqa: F821 (deleted below)

    kept = []
    client = paged.embedded(GEOMETRY, log=log, run="own", threads=1)
    kept += [client.pool("mods").mod("mask", "causal"), client.pool("mods").block_mask("causal", 8, 8)]
    dead = weakref.ref(client)
    del client, log, kept
    gc.collect()
    assert dead() is None


@pytest.mark.parametrize("call", [
    lambda pool, batch, np: pool.mod("mask", "causal"),
    lambda pool, batch, np: pool.mod("mask", "causal && n", n=1.0, doc=np.zeros(4, np.int32)),
    lambda pool, batch, np: pool.mod("mask", "nonsense", doc=np.zeros(4, np.int32)),
    lambda pool, batch, np: pool.mod("mask", "causal", a=np.zeros(4, np.int32), b="text"),
    lambda pool, batch, np: pool.mod("mask", "n", n=1).inputs,
    lambda pool, batch, np: pool.mod("mask", "n", n=1).evaluate(arrays={"n": 1, "doc": np.zeros(4, np.int32)}),
    lambda pool, batch, np: pool.mod("mask", "n", n=1).evaluate(arrays={"doc": np.zeros(4, np.int32)}),
    lambda pool, batch, np: pool.mod("mask", "n", n=1).evaluate(arrays={"doc": np.zeros(4)}),
    lambda pool, batch, np: batch.mods(mask="document", score="score", doc=np.zeros(4, np.int32)),
    lambda pool, batch, np: batch.mods(mask="document", score="nonsense", doc=np.zeros(4, np.int32)),
    lambda pool, batch, np: batch.mods(mask=pool.mod("mask", "n", n=1), doc=np.zeros(4, np.int32)),
    lambda pool, batch, np: batch.mods(mask="causal", blocks=pool.block_mask("causal", 8, 8)).bind(x=1),
    lambda pool, batch, np: batch.mods(mask="document", doc=np.zeros(4, np.int32)).bind(doc=np.zeros(3, np.float32)),
    lambda pool, batch, np: batch.mods(mask="document", doc=np.zeros(4, np.int32)).bind(blocks=3),
    lambda pool, batch, np: pool.block_mask("n", 64, 64, arrays={"n": 1, "doc": np.zeros(4, np.int32)}).arrays(),
    lambda pool, batch, np: pool.block_mask("causal", [64] * 20, [64] * 20, q_block=16).arrays(1),
    lambda pool, batch, np: pool.block_mask("causal", 64, 64, max_bytes=1),
    lambda pool, batch, np: pool.block_mask("causal", 64, 64, arrays={"n": object()}),
    lambda pool, batch, np: pool.block_mask("causal", 64, 64).to_physical([1], 64),
    lambda pool, batch, np: pool.block_mask("causal", 64, 64).to_logical(),
    lambda pool, batch, np: pool.block_mask("causal", 64, 64).dense(),
    lambda pool, batch, np: pool.block_mask("causal", 64, 64).picture(),
    lambda pool, batch, np: pool.block_mask_from_arrays(
        64, 64, q_block=16, kv_block=16, **pool.block_mask("causal", 64, 64, q_block=16, kv_block=16).arrays()),
    lambda pool, batch, np: pool.block_mask_from_arrays(
        64, 32, q_block=16, kv_block=16, **pool.block_mask("causal", 64, 64, q_block=16, kv_block=16).arrays()),
    lambda pool, batch, np: pool.block_mask_from_arrays(64, 64, num_blocks=(b"", (1,)), indices=np.zeros(3, np.int32)),
])
def test_calls_leak_no_references(np, pool, call):
    def repeat(n):
        for _ in range(n):
            with contextlib.suppress(Exception):
                call(pool, batch, np)

    with pool.batch() as batch:
        repeat(50)
        grown = []
        for _ in range(3):
            gc.collect()
            before = sys.getallocatedblocks()
            repeat(500)
            gc.collect()
            grown.append(sys.getallocatedblocks() - before)
        # A leak grows in each round; Python's own caches do not.
        assert min(grown) < 100
