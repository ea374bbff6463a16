# SPDX-License-Identifier: Apache-2.0
"""Exceptions by status, and bad arguments."""
import ctypes
import pickle
import socket
import threading

import pytest

import paged

# Status, name, exception, built-in class.
STATUSES = [
    (1, "PAGED_ERR_INVALID", paged.InvalidError, ValueError),
    (2, "PAGED_ERR_NOMEM", paged.NoMemoryError, MemoryError),
    (3, "PAGED_ERR_NOENT", paged.NotFoundError, LookupError),
    (4, "PAGED_ERR_PERM", paged.PermissionDeniedError, PermissionError),
    (5, "PAGED_ERR_FULL", paged.FullError, None),
    (6, "PAGED_ERR_CAPACITY", paged.CapacityError, None),
    (7, "PAGED_ERR_LIMIT", paged.LimitError, ValueError),
    (8, "PAGED_ERR_STALE", paged.StaleError, None),
    (9, "PAGED_ERR_RANGE", paged.RangeError, IndexError),
    (10, "PAGED_ERR_GONE", paged.GoneError, ConnectionError),
    (11, "PAGED_ERR_AGAIN", paged.AgainError, None),
    (12, "PAGED_ERR_TIMEOUT", paged.TimedOutError, TimeoutError),
    (13, "PAGED_ERR_FORK", paged.ForkError, None),
    (14, "PAGED_ERR_UNSUPPORTED", paged.UnsupportedError, None),
    (15, "PAGED_ERR_VERSION", paged.VersionError, None),
    (16, "PAGED_ERR_BACKEND", paged.BackendError, None),
    (17, "PAGED_ERR_SYSTEM", paged.SystemCallError, None),
    (18, "PAGED_ERR_PROTOCOL", paged.ProtocolError, None),
    (19, "PAGED_ERR_NO_DAEMON", paged.NoDaemonError, ConnectionError),
    (20, "PAGED_ERR_STOPPING", paged.StoppingError, None),
    (21, "PAGED_ERR_CORRUPT", paged.CorruptError, None),
    (22, "PAGED_ERR_QUOTA", paged.QuotaError, None),
]


def refuse(listener: socket.socket, status: int, text: bytes) -> None:
    """Be a daemon that refuses one client: ControlReply.refusal of proto/paged.proto."""
    connection, _ = listener.accept()
    with connection:
        connection.recv(4096)
        refusal = bytes([0x08, status, 0x12, len(text)]) + text
        connection.send(bytes([0x1A, len(refusal)]) + refusal)
        connection.recv(1)


@pytest.mark.parametrize("status, name, exception, builtin", STATUSES)
def test_every_status_has_its_exception(tmp_path, monkeypatch, status, name, exception, builtin):
    assert exception.status == status
    assert exception.status_name == name
    assert issubclass(exception, paged.Error)
    assert builtin is None or issubclass(exception, builtin)
    assert exception.__module__ == "paged"
    assert exception.__doc__

    # The library passes on a daemon's refusal: the exception has its sentence.
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind("control")
        listener.listen()
        daemon = threading.Thread(target=refuse, args=(listener, status, b"pool test: a sentence"))
        daemon.start()
        with pytest.raises(exception, match="^pool test: a sentence$") as caught:
            paged.connect(".")
        daemon.join()
    assert type(caught.value) is exception
    assert caught.value.status == status
    assert type(pickle.loads(pickle.dumps(caught.value))) is exception


def test_what_was_missing(embedded):
    pool = embedded.pool("test")
    pages = pool.n_pages
    own = pool.create(1, pool.page_size * 3)
    assert (paged.FullError.pages_missing, paged.QuotaError.slots_missing) == (0, 0)
    with pytest.raises(paged.FullError) as caught:
        pool.create(2, pool.page_size * (pages // 2))
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.pages_missing, error.slots_missing) == (3, 0)
    assert (error.n_requested, error.n_free, error.n_cached) == (pages, pages - 3, 0)
    assert (error.n_own, error.n_others, error.n_quarantined) == (3, 0, 0)
    with pytest.raises(paged.FullError) as caught:
        pool.create(pool.n_slots)
    assert (caught.value.pages_missing, caught.value.slots_missing) == (0, 1)
    pool.erase(own)
    pool.create(2, pool.page_size * (pages // 2))


def test_what_the_library_says(embedded, served, daemon, tmp_path):
    pool = embedded.pool("test")
    seq, = pool.create(1, 32)
    stale, = pool.create()
    pool.erase(stale)
    for exception, sentence, call in [
        (paged.InvalidError, "12345 is not a sequence id", lambda: pool.read(12345)),
        (paged.InvalidError, "named twice|twice", lambda: pool.reserve([seq, seq], 1)),
        (paged.NotFoundError, "test", lambda: embedded.pool("other")),
        (paged.FullError, "pages", lambda: pool.create(3, 512)),
        (paged.CapacityError, "32", lambda: pool.truncate(seq, 33)),
        (paged.LimitError, "512 tokens, 513 requested", lambda: pool.reserve(seq, 513)),
        (paged.LimitError, "4096", lambda: pool.create(4097)),
        (paged.StaleError, "not a live sequence|ended|no live", lambda: pool.read(stale)),
        (paged.RangeError, "64", lambda: pool.prefix_tokens(64, 1)),
        (paged.TimedOutError, "fewer than 64 pages are free or cached after 0 s", lambda: pool.wait_free(64, 0)),
        (paged.UnsupportedError, "an embedded client has no descriptor", embedded.fileno),
        (paged.NoDaemonError, "is pagedd running", lambda: paged.connect(tmp_path)),
    ]:
        with pytest.raises(exception, match=sentence) as caught:
            call()
        assert str(caught.value) and not str(caught.value).startswith("PAGED_")

    with daemon.connect(observer=True) as observer:
        with pytest.raises(paged.PermissionDeniedError):
            observer.pool("test").create()
    with pytest.raises(paged.PermissionDeniedError), daemon.connect() as other:
        other.erase(served.pool("test").create())


# Each call with the exception's class and a part of its message.
BAD_ARGUMENTS = [
    (lambda c, p: p.create("1"), TypeError, "n must be an integer"),
    (lambda c, p: p.create(-1), OverflowError, "n: -1 is negative"),
    (lambda c, p: p.create(1 << 32), OverflowError, "n: 4294967296 exceeds 4294967295"),
    (lambda c, p: p.create(1 << 70), OverflowError, "does not fit in 64 bits"),
    (lambda c, p: p.create(-1 << 70), OverflowError, "does not fit in 64 bits"),
    (lambda c, p: p.create(2, [1]), ValueError, "n_tokens has 1 numbers; 2 are needed"),
    (lambda c, p: p.create(2, [1, 2, 3]), ValueError, "n_tokens has 3 numbers; 2 are needed"),
    (lambda c, p: p.create(2, [1, "2"]), TypeError, "n_tokens must be an integer"),
    (lambda c, p: p.create(1, 1.5), TypeError, "n_tokens must be integers"),
    (lambda c, p: p.create(1, "12"), TypeError, "n_tokens must be integers"),
    (lambda c, p: p.create(1, 1, "tag"), TypeError, "takes at most 2 positional arguments"),
    (lambda c, p: p.create(tag=5), TypeError, "tag must be a str"),
    (lambda c, p: p.create(tag="a\0b"), ValueError, "contains a zero byte"),
    (lambda c, p: p.create(tag="x" * 32), paged.LimitError, "31"),
    (lambda c, p: p.create(m=1), TypeError, "unexpected keyword argument 'm'"),
    (lambda c, p: p.create(1, n=1), TypeError, "multiple values for argument 'n'"),
    (lambda c, p: p.reserve(), TypeError, "missing required argument 'seqs'"),
    (lambda c, p: p.reserve(1), TypeError, "missing required argument 'n_tokens'"),
    (lambda c, p: p.reserve([], 5), paged.InvalidError, None),
    (lambda c, p: p.reserve([1 << 24 | 1 << 32], 1), paged.InvalidError, "belongs to pool number 1, not to pool test"),
    (lambda c, p: p.reserve({"a": 1}, 1), TypeError, "seqs must be an integer"),
    (lambda c, p: p.erase(None), TypeError, "seqs must be integers"),
    (lambda c, p: p.erase(memoryview(b"1234").cast("f")), TypeError, "format 'f' are not integers"),
    (lambda c, p: p.erase(memoryview(b"1234").cast("B", (2, 2))), ValueError, "one dimension, not 2"),
    (lambda c, p: p.wait_free(1, "1"), TypeError, "timeout must be a number of seconds"),
    (lambda c, p: p.wait_free(1, -1), ValueError, "not between 0 and"),
    (lambda c, p: p.wait_free(1, float("nan")), ValueError, "not between 0 and"),
    (lambda c, p: p.wait_free(1, float("inf")), ValueError, "not between 0 and"),
    (lambda c, p: p.wait_free(65, 1), paged.LimitError, "64"),
    (lambda c, p: p.match([1, 2]), TypeError, "prefix must be a paged.Prefix"),
    (lambda c, p: p.publish([1], [1]), TypeError, "prefixes must be a paged.Prefix"),
    (lambda c, p: p.publish([1, 2], [paged.Prefix([1])]), ValueError, "prefixes has 1 elements for 2 sequences"),
    (lambda c, p: p.start([None]), TypeError, None),
    (lambda c, p: p.start([(None,)]), ValueError, "item 0 has 1 elements"),
    (lambda c, p: p.start([([1], 1)]), TypeError, "items: prefix must be a paged.Prefix"),
    (lambda c, p: p.start(5), TypeError, None),
    (lambda c, p: c.pool(5), TypeError, "name must be a str"),
    (lambda c, p: c.pool("a\0"), ValueError, "zero byte"),
    (lambda c, p: c.kick(), TypeError, "missing required argument 'session'"),
    (lambda c, p: c.kick(999), paged.NotFoundError, "999"),
    (lambda c, p: c.sequences("x"), paged.NotFoundError, "test"),
    (lambda c, p: c.page_table(5), paged.Error, None),
    (lambda c, p: c.drop("nothing"), paged.NotFoundError, "nothing"),
    (lambda c, p: paged.Client(), TypeError, "cannot create 'paged.Client' instances"),
    (lambda c, p: paged.Pool(), TypeError, "cannot create 'paged.Pool' instances"),
    (lambda c, p: paged.Prefix(), TypeError, "tokens or keys"),
    (lambda c, p: paged.Prefix([1], keys=b"", page_size=16), ValueError, "keys are of 0 tokens, and there are 1"),
    (lambda c, p: paged.Prefix(keys=b""), TypeError, "needs page_size"),
    (lambda c, p: paged.Prefix(keys=b"1", page_size=16), ValueError, "1 bytes; each key has 32"),
    (lambda c, p: paged.Prefix(keys=b"", page_size=16, salt=bytes(32)), TypeError, "cover salt and extras"),
    (lambda c, p: paged.Prefix([1], salt=b"1"), ValueError, "salt has 1 bytes; 32 are needed"),
    (lambda c, p: paged.Prefix([1], salt="1"), TypeError, "salt must be bytes"),
    (lambda c, p: paged.Prefix([1], extras=[(0, 1)]), ValueError, "an item has 2 elements"),
    (lambda c, p: paged.Prefix([1], extras=[(0, 1, b"")]), ValueError, "0 bytes; 32 are needed"),
    (lambda c, p: paged.Prefix([-1]), OverflowError, "tokens: -1 is negative"),
    (lambda c, p: p.match(paged.Prefix([0xffffffff] * 16)), paged.InvalidError, None),
    (lambda c, p: paged.salt(b"x"), TypeError, "must be a str"),
    (lambda c, p: paged.connect(5), TypeError, None),
    (lambda c, p: paged.connect(timeout=0), ValueError, "more than 0 seconds"),
    (lambda c, p: paged.connect(threads=0), ValueError, "at least 1"),
    (lambda c, p: paged.connect(run="mine"), ValueError, "'mine' is neither"),
    (lambda c, p: paged.connect(log=5), TypeError, "log must be a function"),
    (lambda c, p: paged.embedded(), TypeError, "missing required argument 'pools'"),
    (lambda c, p: paged.embedded(5), TypeError, None),
    (lambda c, p: paged.embedded([5]), TypeError, "a pool must be a mapping"),
    (lambda c, p: paged.embedded([]), paged.InvalidError, None),
    (lambda c, p: paged.embedded({"name": "a"}), TypeError, "a pool needs the parameter n_layers"),
    (lambda c, p: paged.embedded({"nme": "a"}), TypeError, "a pool has no parameter 'nme'"),
    (lambda c, p: paged.embedded({5: "a"}), TypeError, "a pool has no parameter 5"),
    (lambda c, p: paged.embedded({**POOL, "dtype": "f64"}), ValueError, "'f64' is none of f32"),
    (lambda c, p: paged.embedded({**POOL, "dtype": "i64"}), ValueError, "'i64' is none of f32"),
    (lambda c, p: paged.embedded({**POOL, "k_dim": 1000}), paged.LimitError, "the largest is 576"),
    (lambda c, p: paged.embedded({**POOL, "page_size": 0}), ValueError, "page_size is 0; None is the default"),
    (lambda c, p: paged.embedded({**POOL, "v_dim": 0}), ValueError, "v_dim is 0; None is the default"),
    (lambda c, p: paged.embedded({**POOL, "n_slots": 0}), ValueError, "n_slots is 0; None is the default"),
    (lambda c, p: paged.embedded({**POOL, "n_pages": 0}), ValueError, "n_pages is 0$"),
    (lambda c, p: paged.Prefix(keys=b"k" * 32, page_size=0), ValueError, "page_size is 0"),
    (lambda c, p: paged.embedded([POOL, POOL]), paged.InvalidError, "test"),
    (lambda c, p: paged.embedded(POOL, join_token="x"), TypeError, "unexpected keyword argument 'join_token'"),
    (lambda c, p: paged.embedded(POOL, cpus=[0, 0]), paged.InvalidError, None),
    (lambda c, p: paged.embedded(POOL, isa="none"), paged.InvalidError, "isa=none is none of generic"),
]
POOL = {"name": "test", "n_layers": 1, "n_kv_heads": 1, "k_dim": 16, "dtype": "f32", "n_pages": 4}


@pytest.mark.parametrize("call, exception, sentence", BAD_ARGUMENTS)
def test_bad_arguments(embedded, call, exception, sentence):
    pool = embedded.pool("test")
    before = embedded.pools()
    with pytest.raises(exception, match=sentence):
        call(embedded, pool)
    assert embedded.pools() == before


class Index:
    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number


@pytest.mark.parametrize("make", [
    list, tuple, iter, lambda ids: [Index(i) for i in ids], lambda ids: (ctypes.c_uint64 * len(ids))(*ids),
    lambda ids: memoryview(b"".join(i.to_bytes(8, "little") for i in ids)).cast("q"),
    lambda ids: memoryview(b"".join(i.to_bytes(8, "little") + bytes(8) for i in ids)).cast("Q")[::2],
    lambda ids: dict.fromkeys(ids), lambda ids: range(ids[0], ids[-1] + 1),
], ids=["list", "tuple", "iterator", "index", "ctypes", "i64", "strides", "dict", "range"])
@pytest.mark.parametrize("n", [1, 2, 30])
def test_lists_of_integers(embedded, make, n):
    pool = embedded.pool("test")
    ids = pool.create(n)
    embedded.reserve(make(ids), [16] * n)
    assert all(pool.read(i).capacity == 16 for i in ids)
    pool.erase(make(ids))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_arrays_of_numpy(embedded, dtype):
    numpy = pytest.importorskip("numpy")
    pool = embedded.pool("test")
    ids = pool.create(3, numpy.array([1, 17, 33], dtype))
    assert [pool.read(i).n_pages for i in ids] == [1, 2, 3]
    pool.reserve(numpy.array(ids), numpy.array(40, dtype), numpy.zeros(1, dtype)[0])
    assert [pool.read(i).n_pages for i in ids] == [3, 3, 3]
    if dtype[0] == "i":
        with pytest.raises(OverflowError, match="n_tokens: -5 is negative"):
            pool.reserve(ids, numpy.array([1, -5, 3], dtype))


def test_version_and_salt():
    assert paged.version() == paged.__version__
    assert len(paged.salt()) == 32
    assert paged.salt("a", "bc") != paged.salt("ab", "c")
    assert {mod.name for mod in paged.named_mods()} >= {"causal", "sliding_window", "document"}


def test_every_object_has_a_docstring():
    undocumented = []
    for name in dir(paged):
        value = getattr(paged, name)
        if name.startswith("_") or isinstance(value, int) or type(value) is type(paged):
            continue
        members = {} if not isinstance(value, type) or issubclass(value, BaseException) else vars(value)
        for member, item in [(name, value), *((f"{name}.{m}", v) for m, v in members.items() if m[0] != "_")]:
            if not item.__doc__:
                undocumented.append(member)
    assert undocumented == []
