# SPDX-License-Identifier: Apache-2.0
"""Arguments of calls, replaced by objects that they cannot be: a precise exception in the words of Python."""
import functools
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

import paged
from tensors import Tensor

POOL = {"name": "test", "n_layers": 2, "n_kv_heads": 2, "k_dim": 16, "dtype": "f32", "page_size": 16, "n_pages": 64,
        "n_slots": 32, "max_length": 512}

# Words of C, of the library's parameters in C, and of Python's own conversions, which know no argument's name.
FOREIGN = re.compile(r"NULL|PAGED_(?!RUNTIME_DIR|TIMEOUT_MS|ISA)|struct\b|\bparams\b|reserved words|_p\b|bad argument|"
                     r"has no len\(\)|must be real number|object of type|not iterable|cannot be interpreted|"
                     r"argument \d|paged_\w+\(|not subscriptable|expected \d arguments|function takes|0x[0-9a-f]{6}")

# What Python itself or the operating system may raise for a wrong argument.  AttributeError or SystemError may not.
KINDS = (TypeError, ValueError, OverflowError, RuntimeError, BufferError, NotImplementedError, MemoryError,
         paged.Error)


class Call(NamedTuple):
    """A call that succeeds with these arguments.  `words`: what else names an argument in a message."""

    function: Callable[..., Any]
    arguments: dict[str, Any]
    positional: tuple[str, ...] = ()
    words: dict[str, str] = {}

    def __call__(self, **changed: Any) -> Any:
        values = self.arguments | changed
        return self.function(*(values.pop(name) for name in self.positional), **values)


class Fixture:
    """Objects of all types, also closed ones."""

    def __init__(self) -> None:
        self.client = paged.embedded(POOL, threads=1, run="own")
        self.pool = self.client.pool("test")
        self.seqs = self.pool.create(2, n_tokens=[64, 64])
        self.batch = self.pool.batch()
        self.mask = self.pool.block_mask("causal", 16, 16)
        self.mod = self.pool.mod("mask", "kv_idx <= q_idx + n", n=1)
        self.set = self.batch.mods(mask=self.mod, n=1)
        self.prefix = paged.Prefix(list(range(32)))
        self.k = Tensor((16, 2, 16), "f32", [0.0] * 512)
        self.q = Tensor((16, 4, 16), "f32", [0.0] * 1024)
        self.out = Tensor((16, 4, 16), "f32", [0.0] * 1024)
        self.scores = [Tensor((16, 4), "f32", [0.0] * 64) for _ in range(3)]
        self.table = Tensor((64, 16), "f32", [0.0] * 1024)
        self.heads = Tensor((4,), "f32", [0.0] * 4)
        self.closed = self._closed()
        self.replan()

    def replan(self) -> None:
        self.pool.reserve(self.seqs, 64)
        self.batch.plan(self.seqs, 8, 8)

    def _closed(self) -> list[Any]:
        client = paged.embedded(POOL, threads=1, run="own")
        pool = client.pool("test")
        batch = pool.batch()
        made = [client, pool, batch, pool.mod("mask", "causal"), batch.mods(mask="causal"),
                pool.block_mask("causal", 16, 16), pool.watch(), pool.k]
        client.close()
        other = self.pool.batch()
        made += [other, other.mods(mask="causal")]
        other.close()
        return made

    def odd(self) -> list[Any]:
        """Objects that are wrong for most arguments."""
        return [None, -1, 0, 2**31, 2**32, 2**80, 1.5, float("nan"), "", "x", "a\0b", b"", b"x" * 16, b"x" * 32, [],
                [None], ["x"], [-1], [[1], 2], [0] * 65, (), (1, 2), {}, {"x": None}, 1j, object(), int, self.client,
                self.pool, self.batch, self.mask, self.mod, self.set, self.prefix, self.pool.k,
                paged.Rotary(object()), paged.Rotary(Tensor((3,), "f32", [0.0] * 3)), self.k, self.heads,
                Tensor((0,), "f32"), Tensor((2, 2, 2), "i32"), Tensor((16, 2, 16), "f32", strides=(0, 0, 0)),
                Tensor((1,) * 9, "f32"), *self.closed]


def calls(f: Fixture) -> dict[str, Call]:
    batch, pool, client = f.batch, f.pool, f.client
    return {
        "connect": Call(paged.connect, dict(
            runtime_dir="/nonexistent", name="n", join_token=None, timeout=1, threads=1, run="own", cpus=None, isa=None,
            observer=False, outlive=False, tables_only=False, log=None), words=dict(runtime_dir="daemon")),
        "embedded": Call(paged.embedded, dict(pools=POOL, name="n", timeout=1, threads=1, run="own", cpus=None,
                                              isa=None, log=None), words=dict(pools="pool")),
        "Rotary": Call(lambda **keywords: batch.append(0, f.k, f.k, rotary=paged.Rotary(**keywords)), dict(
            cos_sin=f.table, style="neox", first=0, positions=None, q=f.q, q_out=f.q),
            words=dict(q="q_out", first="rotary turns")),
        "Prefix": Call(paged.Prefix, dict(tokens=[1, 2], salt=None, extras=())),
        "Prefix of keys": Call(paged.Prefix, dict(tokens=None, keys=b"k" * 32, page_size=2),
                               words=dict(keys="tokens", tokens="keys")),
        "model_allowed": Call(paged.model_allowed, dict(setting="", name="x")),
        "Client.pool": Call(client.pool, dict(name="test"), words=dict(name="pool")),
        "Client.evict": Call(client.evict, dict(pool="test", n_pages=0)),
        "Client.upload": Call(client.upload, dict(name="a", array=f.heads), words=dict(array="\\ba\\b")),
        "Client.drop": Call(client.drop, dict(name="a"), words=dict(name="array")),
        "Client.log_level": Call(client.log_level, dict(level="info"), words=dict(level="log")),
        "Pool.create": Call(pool.create, dict(n=1, n_tokens=None, tag=None),
                            words=dict(n="sequences?", n_tokens="tokens")),
        "Pool.publish": Call(pool.publish, dict(seqs=f.seqs, prefixes=f.prefix),
                             words=dict(seqs="sequences?|prefixes|pool")),
        "Batch.plan": Call(batch.plan, dict(seqs=f.seqs, q_len=8, kv_len=8, kv_first=None, q_base=None, b=None,
                                            no_append=False, pages=None, stream=None),
                           words=dict(seqs="sequence|pool|q_len|kv_len|pages", pages="seqs", stream="streams",
                                      q_len="row", kv_len="row", q_base="row", b="row")),
        "Batch.plan, pages": Call(lambda pages: batch.plan(None, 8, 8, pages=pages), dict(pages=[[0, 1]]),
                                  words=dict(pages="q_len|seqs|kv_len|row|page")),
        "Batch.append": Call(batch.append, dict(layer=0, k=f.k, v=f.k, positions=None, k_scale=None, v_scale=None,
                                                rotary=None), words=dict(rotary="cos_sin", positions="position")),
        "Batch.attention": Call(batch.attention, dict(
            layer=0, q=f.q, out=f.out, mods=None, causal=True, scale=None, lse=None, max_score=None, sink=None,
            lse_without_sink=False, k_scale=None, v_scale=None), words=dict(q="out")),
        "Batch.gather": Call(batch.gather, dict(layer=0, k=f.k, v=None, begin=None, end=None, k_scale=None,
                                                v_scale=None),
                             words=dict(begin="row|\\bk\\b", end="row|\\bk\\b")),
        "Batch.merge": Call(batch.merge, dict(a=f.q, a_lse=f.scores[0], b=f.q, b_lse=f.scores[1], out=f.out, lse=None),
                            words=dict(a="a_lse", a_lse="no lse", b_lse="no lse", out=r"\(a\)")),
        "Batch.fork": Call(batch.fork, dict(parents=f.seqs, n_tokens=16),
                           words=dict(parents="sequence|n_tokens|pool", n_tokens="tokens|fork")),
        "Batch.publish": Call(batch.publish, dict(seqs=f.seqs, prefixes=f.prefix),
                              words=dict(seqs="sequence|prefixes|pool")),
        "Batch.wait": Call(batch.wait, dict(mark=batch.mark()), ("mark",)),
        "Batch.tables_padded": Call(batch.tables_padded, dict(width=8), ("width",)),
        "Batch.mods": Call(batch.mods, dict(mask=f.mod, score=None, blocks=None, n=1),
                           words=dict(mask="mod", score="mod", n="value")),
    } | {f"{where}.{call.function.__name__}": call for where, call in requests(f)}


def at_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with a timeout of 0, under its name: an odd time could be a long one."""
    return functools.wraps(function)(functools.partial(function, timeout=0))


def requests(f: Fixture) -> list[tuple[str, Call]]:
    pool, client, seq = f.pool, f.client, f.seqs[0]
    of_seqs = dict(seqs="sequence|pool", n_tokens="tokens", first_token="token", n_ahead="tokens")
    of_pages = dict(page="pages", serial="published", pages="page|serials", serials="pages|published")
    return [
        ("Client", Call(client.reserve, dict(seqs=f.seqs, n_tokens=64, n_ahead=0), words=of_seqs)),
        ("Client", Call(client.truncate, dict(seqs=f.seqs, n_tokens=64), words=of_seqs)),
        ("Client", Call(client.trim, dict(seqs=f.seqs, first_token=0), words=of_seqs)),
        ("Client", Call(client.erase, dict(seqs=pool.create(1)), words=of_seqs)),
        ("Client", Call(client.cancel_ticket, dict(ticket=b"t" * 16))),
        ("Client", Call(client.sequences, dict(pool="test"))),
        ("Client", Call(client.page_table, dict(seq=seq), words=dict(seq="sequence|pool"))),
        ("Client", Call(client.check, dict(pool="test"))),
        ("Client", Call(client.kick, dict(session=2**31, kill=False))),
        ("Client", Call(client.drain, dict(session=2**31))),
        ("Client", Call(client.prefixes, dict(pool="test"))),
        ("Client", Call(client.pins, dict(pool="test"))),
        ("Client", Call(client.unpin, dict(pool="test", number=1), words=dict(number="pin"))),
        ("Client", Call(client.pin_page, dict(pool="test", page=0, serial=1, seconds=1), words=of_pages)),
        ("Pool", Call(at_once(pool.wait_free), dict(n_pages=1), words=dict(n_pages="pages"))),
        ("Pool", Call(pool.reserve, dict(seqs=f.seqs, n_tokens=64), words=of_seqs)),
        ("Pool", Call(pool.truncate, dict(seqs=f.seqs, n_tokens=64), words=of_seqs)),
        ("Pool", Call(pool.trim, dict(seqs=f.seqs, first_token=0), words=of_seqs)),
        ("Pool", Call(pool.erase, dict(seqs=pool.create(1)), words=of_seqs)),
        ("Pool", Call(pool.read, dict(seq=seq), words=dict(seq="sequence|pool"))),
        ("Pool", Call(pool.page_table, dict(seq=seq), words=dict(seq="sequence|pool"))),
        ("Pool", Call(pool.match, dict(prefix=f.prefix))),
        ("Pool", Call(at_once(pool.wait_prefix), dict(prefix=f.prefix, n_tokens=0), words=dict(n_tokens="tokens"))),
        ("Pool", Call(pool.start, dict(items=[(None, 1)], max_tokens=0, tag=None),
                      words=dict(items="item|prefix|sequence"))),
        ("Pool", Call(pool.pin, dict(prefix=f.prefix, seconds=1))),
        ("Pool", Call(pool.prefix_pages, dict(prefix=f.prefix))),
        ("Pool", Call(pool.hold, dict(pages=[], serials=[]), words=of_pages)),
        ("Pool", Call(pool.prefix_tokens, dict(page=0, serial=1), words=of_pages)),
        ("Pool", Call(pool.give, dict(seqs=pool.create(1), lengths=0, timeout=1.0), words=dict(
            seqs="sequence|pool|lengths", lengths="tokens|sequence", timeout="given away"))),
        ("Pool", Call(pool.adopt, dict(ticket=b"t" * 16))),
        ("Pool", Call(pool.batch, dict(max_rows=4, reserve_ahead=0, max_q_tokens=0))),
        ("Pool", Call(pool.mod, dict(kind="mask", text="causal"), ("kind", "text"), dict(text="mod"))),
        ("Pool", Call(pool.block_mask, dict(mod="causal", q_len=16, kv_len=16), words=dict(
            q_len="row", kv_len="row"))),
        ("Watch", Call(at_once(pool.watch().next), dict(n_max=4))),
        ("Watch", Call(pool.watch().read, dict(page=0, serial=1), words=of_pages)),
        ("Mod", Call(f.mod.evaluate, dict(score=0.0, b=0, h=0, q_idx=0, kv_idx=0, n=1), words=dict(n="value"))),
        ("ModSet", Call(f.set.bind, dict(blocks=None, n=1), words=dict(n="value"))),
        ("ModSet", Call(at_once(f.set.prepare), dict(dtype="f32"))),
        ("BlockMask", Call(f.mask.to_physical, dict(seqs=f.seqs, kv_len=16), words=dict(
            seqs="sequence|pool|row", kv_len="row"))),
    ]


@pytest.fixture
def fixture() -> Iterator[Fixture]:
    made = Fixture()
    yield made
    made.client.close()


def parameters() -> list[tuple[str, str]]:
    made = Fixture()
    found = [(name, argument) for name, call in calls(made).items() for argument in call.arguments]
    made.client.close()
    return found


@pytest.mark.parametrize("name,argument", parameters(), ids=str)
def test_argument(fixture: Fixture, name: str, argument: str) -> None:
    """Every odd object in place of one argument."""
    call = calls(fixture)[name]
    named = re.compile(rf"\b{argument}\b" + "".join(f"|{w}" for w in [call.words.get(argument)] if w))
    try:
        unchanged = None
        call()
    except KINDS as error:
        unchanged = str(error)
    wrong = []
    for value in fixture.odd():
        try:
            fixture.replan()
        except paged.Error:     # a call has given a sequence away
            fixture.seqs[:] = fixture.pool.create(2, n_tokens=[64, 64])
            fixture.replan()
        try:
            made = call(**{argument: value})
        except KINDS as error:
            text = str(error)
            if text != unchanged and (FOREIGN.search(text) or not named.search(text) or len(text) > 400):
                wrong.append(f"{type(error).__name__}: {text:.300}")
        except Exception as error:
            wrong.append(f"{type(error).__name__}: {error!s:.300}")
        else:
            if isinstance(made, paged.Client):
                made.close()
            del made
    assert not wrong, "\n".join(["", *dict.fromkeys(wrong)])
