# SPDX-License-Identifier: Apache-2.0
"""The operators of paged.torch.ops, eager and in graphs that torch.compile makes without a break."""
from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import paged  # noqa: E402
from paged.torch import ops  # noqa: E402

HEADS, KV_HEADS, DIM, V_DIM = 4, 2, 16, 24


@pytest.fixture
def pool() -> Iterator[paged.Pool]:
    with paged.embedded({"name": "ops", "n_layers": 2, "n_kv_heads": KV_HEADS, "k_dim": DIM, "v_dim": V_DIM,
                         "dtype": "f32", "n_pages": 32}) as client:
        yield client.pool("ops")


def step(n_tokens: int) -> tuple[Any, Any, Any]:
    return (torch.randn(n_tokens, HEADS, DIM), torch.randn(n_tokens, KV_HEADS, DIM),
            torch.randn(n_tokens, KV_HEADS, V_DIM))


def expected(q: Any, k: Any, v: Any) -> Any:
    """Causal attention of one sequence's last rows, in float64."""
    return torch.nn.functional.scaled_dot_product_attention(
        q.double().transpose(0, 1), k.double().transpose(0, 1), v.double().transpose(0, 1), enable_gqa=True,
        attn_mask=torch.arange(len(k)) <= torch.arange(len(k) - len(q), len(k))[:, None]).transpose(0, 1).float()


def layer(handle: Any, q: Any, k: Any, v: Any) -> Any:
    ops.append(handle, 0, k, v)
    return ops.attention(handle, 0, q * 1.0, v_dim=V_DIM) + 0


def run(function: Any, pool: paged.Pool, steps: int = 3) -> None:
    seq, = pool.create()
    keys, values = torch.empty(0, KV_HEADS, DIM), torch.empty(0, KV_HEADS, V_DIM)
    with pool.batch(reserve_ahead=16) as batch:
        handle = ops.handle(batch)
        for n in [20] + [1] * (steps - 1):
            q, k, v = step(n)
            keys, values = torch.cat([keys, k]), torch.cat([values, v])
            batch.plan([seq], n, len(keys))
            torch.testing.assert_close(function(handle, q, k, v), expected(q, keys, values), atol=2e-6, rtol=0)


def test_eager(pool: paged.Pool) -> None:
    run(layer, pool)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compiled(pool: paged.Pool, backend: str) -> None:
    torch.compiler.reset()
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    run(compiled, pool)
    # Another batch has another handle, which is an input like others.
    with torch.compiler.set_stance("fail_on_recompile"):
        run(compiled, pool)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_append_alone_is_not_removed(pool: paged.Pool, backend: str) -> None:
    torch.compiler.reset()

    def two_layers(handle: Any, k: Any, v: Any) -> None:
        for number in range(2):
            ops.append(handle, number, k + number, v)

    seq, = pool.create(n_tokens=5)
    q, k, v = step(5)
    with pool.batch() as batch:
        handle = ops.handle(batch)
        batch.plan([seq], 5, 5)
        torch.compile(two_layers, fullgraph=True, backend=backend)(handle, k, v)
        for number in range(2):
            got = torch.empty_like(k)
            batch.gather(number, got)
            assert torch.equal(got, k + number)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_order_is_kept(pool: paged.Pool, backend: str) -> None:
    """The same attention before and after an append is computed twice."""
    torch.compiler.reset()

    def twice(handle: Any, q: Any, k: Any, v: Any) -> tuple[Any, Any, Any]:
        ops.append(handle, 0, k, v)
        before = ops.attention(handle, 0, q, v_dim=V_DIM)
        ops.append(handle, 0, k, v * 2)
        return before, ops.attention(handle, 0, q, v_dim=V_DIM), handle

    seq, = pool.create(n_tokens=5)
    q, k, v = step(5)
    with pool.batch() as batch:
        handle = ops.handle(batch)
        batch.plan([seq], 5, 5)
        before, after, same = torch.compile(twice, fullgraph=True, backend=backend)(handle, q, k, v)
        torch.testing.assert_close(after, before * 2)
        assert same is handle


def test_mods_and_lse(pool: paged.Pool) -> None:
    torch.compiler.reset()
    slope = torch.rand(HEADS)

    def with_mods(handle: Any, mods: Any, q: Any) -> tuple[Any, Any]:
        return ops.attention_with_lse(handle, 0, q, v_dim=V_DIM, mods=mods, causal=False, scale=0.3)

    seq, = pool.create(n_tokens=9)
    q, k, v = step(9)
    with pool.batch() as batch:
        batch.plan([seq], 9, 9)
        batch.append(0, k, v)
        mod_set = batch.mods(score=pool.mod("score", "score + slope[h]", slope=slope), slope=slope)
        handle, mods = ops.handle(batch), ops.handle(mod_set)
        out, lse = torch.compile(with_mods, fullgraph=True)(handle, mods, q)
        same, same_lse = torch.empty_like(out), torch.empty(9, HEADS)
        batch.attention(0, q, same, mods=mod_set, causal=False, scale=0.3, lse=same_lse)
        assert torch.equal(out, same) and torch.equal(lse, same_lse)
        score = torch.einsum("qhd,khd->qhk", q, k.repeat_interleave(2, 1)).double() * 0.3 + slope[:, None]
        torch.testing.assert_close(lse, score.logsumexp(-1).float(), atol=2e-6, rtol=0)


def test_rows_of_four_dimensions(pool: paged.Pool) -> None:
    q, k, v = torch.randn(2, HEADS, 6, DIM), torch.randn(2, KV_HEADS, 6, DIM), torch.randn(2, KV_HEADS, 6, V_DIM)
    with pool.batch() as batch:
        batch.plan(pool.create(2, n_tokens=6), 6, 6)
        handle = ops.handle(batch)
        out = torch.compile(layer, fullgraph=True)(handle, q, k, v)
    reference = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True,
                                                                 enable_gqa=True)
    torch.testing.assert_close(out, reference.float(), atol=2e-6, rtol=0)


@pytest.mark.parametrize("name", ["attention", "attention_with_lse", "append"])
def test_opcheck(pool: paged.Pool, name: str) -> None:
    """PyTorch's own checks of the schema, the fake implementation and functionalization."""
    seq, = pool.create(n_tokens=5)
    q, k, v = step(5)
    with pool.batch() as batch:
        batch.plan([seq], 5, 5)
        batch.append(0, k, v)
        handle = ops.handle(batch)
        arguments = (handle, 0, k, v) if name == "append" else (handle, 0, q, V_DIM, None, True, None)
        # opcheck copies the arguments; what a copied handle names lives as long as the handle.
        torch.library.opcheck(getattr(torch.ops.paged, name).default, arguments)


def test_handles(pool: paged.Pool) -> None:
    q, k, v = step(1)
    with pool.batch() as batch:
        batch.plan(pool.create(n_tokens=1), 1, 1)
        handle, mods = ops.handle(batch), ops.handle(batch.mods(mask="causal"))
        with pytest.raises(ValueError, match="is that of no set of mods"):
            ops.attention(handle, 0, q, v_dim=V_DIM, mods=handle)
        with pytest.raises(ValueError, match="is that of no batch"):
            ops.append(mods, 0, k, v)
        n_objects, copy = len(ops._objects), handle.clone()
        del handle
        gc.collect()
        assert len(ops._objects) == n_objects - 1
        with pytest.raises(ValueError, match="is that of no batch"):
            ops.attention(copy, 0, q)


def test_errors_of_the_library_pass_through(pool: paged.Pool) -> None:
    torch.compiler.reset()
    q, k, v = step(1)
    batch = pool.batch()
    handle = ops.handle(batch)
    compiled = torch.compile(layer, fullgraph=True)
    with pytest.raises(paged.InvalidError, match="plan"):
        compiled(handle, q, k, v)
    batch.close()
    with pytest.raises(RuntimeError, match="closed"):
        compiled(handle, q, k, v)


def test_gradients_are_refused(pool: paged.Pool) -> None:
    q, k, v = step(4)
    with pool.batch() as batch:
        batch.plan(pool.create(1, n_tokens=4), 4, 4)
        handle = ops.handle(batch)
        with pytest.raises(NotImplementedError, match="gradients"):
            ops.append(handle, 0, k.requires_grad_(), v)
        ops.append(handle, 0, k.detach(), v)
        for function in ops.attention, ops.attention_with_lse:
            with pytest.raises(NotImplementedError, match="gradients"):
                function(handle, 0, q.requires_grad_(), v_dim=V_DIM)
        with torch.no_grad():
            assert not ops.attention(handle, 0, q, v_dim=V_DIM).requires_grad


def test_handle_refuses_other_objects() -> None:
    with pytest.raises(TypeError, match="a paged.Batch or a paged.ModSet, not for <class 'int'>"):
        ops.handle(3)  # type: ignore[arg-type]
