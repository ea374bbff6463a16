# SPDX-License-Identifier: Apache-2.0
"""Pages as tensors: layout, contents, and the life of a pool whose pages are exported."""
import ctypes
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

import paged
from tensors import Taken, Tensor, gauss_tensor, unpack

POOL = {"name": "pool", "n_layers": 2, "n_kv_heads": 2, "k_dim": 8, "v_dim": 6, "dtype": "f32", "n_pages": 8,
        "page_size": 4}


@pytest.fixture
def client() -> Iterator[paged.Client]:
    with paged.embedded(POOL, threads=1) as made:
        yield made
        gc.collect()


@pytest.fixture
def pool(client: paged.Client) -> paged.Pool:
    return client.pool("pool")


def element(taken: Taken, dtype: str, *index: int) -> Any:
    return unpack(dtype, ctypes.string_at(taken.address(*index), taken.tensor.bits // 8))


def test_description(pool: paged.Pool) -> None:
    assert pool.k.shape == (2, 8, 2, 4, 8) and pool.v.shape == (2, 8, 2, 4, 6)
    assert pool.k.dtype == "f32" and pool.k.pool is pool and pool.k.strides[-2:] == (8, 1)
    assert pool.k.__dlpack_device__() == (1, 0)
    assert repr(pool.v) == "<paged.Pages f32, shape (2, 8, 2, 4, 6)>"
    with pytest.raises(TypeError, match="cannot create 'paged.Pages' instances"):
        type(pool.k)()


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_contents(dtype: str) -> None:
    """What append() writes is in the tensors, and what is written there attention sees."""
    with paged.embedded(POOL | {"dtype": dtype}, threads=1) as client, client.pool("pool") as pool:
        batch, seq = pool.batch(), pool.create(1, 7)[0]
        k, v = gauss_tensor((7, 2, 8), dtype, 1), gauss_tensor((7, 2, 6), dtype, 2)
        batch.plan([seq], 7, 7)
        batch.append(1, k, v)
        k_taken, v_taken = (Taken(pages.__dlpack__(max_version=(1, 0))) for pages in (pool.k, pool.v))
        pages = pool.page_table(seq)
        for taken, tensor in ((k_taken, k), (v_taken, v)):
            for token, head, d in tensor.indexes():
                assert element(taken, dtype, 1, pages[token // 4], head, token % 4, d) == tensor[token, head, d]
        assert k_taken.address(0, 0, 0, 0, 0) == pool.k.data_ptr
        for token in range(7):
            for d in range(6):
                at = v_taken.address(1, pages[token // 4], 0, token % 4, d)
                ctypes.memmove(at, b"\0" * (v_taken.tensor.bits // 8), v_taken.tensor.bits // 8)
        out = Tensor((7, 2, 6), dtype)
        batch.attention(1, gauss_tensor((7, 2, 8), dtype, 3), out)
        assert all(out[t, 0, d] == 0 and out[t, 1, d] != 0 for t in range(7) for d in range(6))
        k_taken.release()
        v_taken.release()


@pytest.mark.parametrize(("dtype", "code", "bits"), [("bf16", 4, 16), ("e4m3", 10, 8), ("e5m2", 12, 8), ("i8", 0, 8)])
def test_types(dtype: str, code: int, bits: int) -> None:
    with paged.embedded(POOL | {"dtype": dtype}, threads=1) as client, client.pool("pool") as pool:
        taken = Taken(pool.k.__dlpack__(max_version=(1, 1)))
        assert (taken.tensor.code, taken.tensor.bits, taken.tensor.lanes) == (code, bits, 1)
        assert taken.strides == pool.k.strides and pool.k.dtype == dtype
        taken.release()
        assert (pool.k_scale is None) == (dtype != "i8")


def test_scales_of_i8() -> None:
    with paged.embedded(POOL | {"dtype": "i8"}, threads=1) as client, client.pool("pool") as pool:
        batch, seq = pool.batch(), pool.create(1, 3)[0]
        batch.plan([seq], 3, 3)
        k, v = gauss_tensor((3, 2, 8), "f32", 1), gauss_tensor((3, 2, 6), "f32", 2)
        batch.append(0, k, v)
        assert pool.k_scale is not None and pool.k_scale.shape == (2, 8, 2, 4, 1) and pool.k_scale.dtype == "f32"
        elements, scales = (Taken(p.__dlpack__(max_version=(1, 1))) for p in (pool.k, pool.k_scale))
        page = pool.page_table(seq)[0]
        for token, head, d in k.indexes():
            scale = element(scales, "f32", 0, page, head, token, 0)
            largest = max(abs(k[token, head, i]) for i in range(8))
            assert scale == pytest.approx(largest / 127, rel=1e-6)
            assert scale * element(elements, "i8", 0, page, head, token, d) == \
                pytest.approx(k[token, head, d], abs=largest / 250)
        elements.release()
        scales.release()


def test_v_in_k() -> None:
    parameters = POOL | {"v_in_k": True}
    with paged.embedded(parameters, threads=1) as client, client.pool("pool") as pool:
        assert pool.v.shape == (2, 8, 2, 4, 6) and pool.v.strides == pool.k.strides
        assert pool.v.data_ptr == pool.k.data_ptr


# ------------------------------------------------------------------------------ DLPack

def test_versions(pool: paged.Pool) -> None:
    for keywords, versioned in (({}, False), ({"max_version": None}, False), ({"max_version": (0, 8)}, False),
                                ({"max_version": (1, 0)}, True), ({"max_version": (2, 0)}, True)):
        taken = Taken(pool.k.__dlpack__(**keywords))
        assert taken.versioned is versioned and taken.shape == pool.k.shape
        if versioned:
            assert taken.managed.major == 1 and taken.managed.flags == 0
        taken.release()


def test_arguments(pool: paged.Pool) -> None:
    Taken(pool.k.__dlpack__(dl_device=(1, 0), copy=False, stream=None)).release()
    for keywords, error, message in (
            ({"copy": True}, BufferError, "copy: the pages of a pool are only given in place"),
            ({"dl_device": (2, 0)}, BufferError, r"the pages are on device \(1, 0\), not \(2, 0\), and are not copied"),
            ({"stream": 1}, BufferError, "stream must be None: the pages are in host memory"),
            ({"dl_device": 1}, TypeError, "dl_device must be a tuple of two integers"),
            ({"max_version": (1,)}, TypeError, "max_version must be a tuple of two integers"),
            ({"max_version": "11"}, TypeError, "max_version must be a tuple of two integers"),
            ({"version": 1}, TypeError, "unexpected keyword argument 'version'")):
        with pytest.raises(error, match=message):
            pool.k.__dlpack__(**keywords)
    with pytest.raises(TypeError, match="positional"):
        pool.k.__dlpack__(None)
    pool.close()


def test_numpy(pool: paged.Pool) -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.from_dlpack(pool.k)
    assert array.shape == pool.k.shape and array.ctypes.data == pool.k.data_ptr
    assert tuple(s // 4 for s in array.strides) == pool.k.strides
    with pytest.raises(BufferError):
        pool.close()
    del array
    pool.close()


# -------------------------------------------------------------------------------- life

def test_pool_refuses_to_close(client: paged.Client, pool: paged.Pool) -> None:
    first, second = Taken(pool.k.__dlpack__()), Taken(pool.v.__dlpack__(max_version=(1, 1)))
    with pytest.raises(BufferError, match="pool pool cannot be closed: 2 tensors over its pages are alive"):
        pool.close()
    with pytest.raises(BufferError, match="2 tensors over its pages are alive"):
        client.close()
    first.release()
    with pytest.raises(BufferError, match="1 tensors"):
        pool.close()
    second.release()
    pool.close()
    assert pool.closed


def test_capsule_that_is_not_taken(pool: paged.Pool) -> None:
    for keywords in ({}, {"max_version": (1, 1)}):
        capsule = pool.k.__dlpack__(**keywords)
        with pytest.raises(BufferError):
            pool.close()
        del capsule
    pool.close()


def test_closed_pool(pool: paged.Pool) -> None:
    pages = pool.k
    pool.close()
    for call in (pages.__dlpack__, lambda: pages.data_ptr):
        with pytest.raises(RuntimeError, match="the pool is closed"):
            call()
    assert pages.shape == (2, 8, 2, 4, 8) and pages.__dlpack_device__() == (1, 0)


def test_tensor_keeps_the_pool() -> None:
    """No other reference remains: the memory of the pages lives as long as the tensor."""
    client = paged.embedded(POOL, threads=1)
    taken, alive = Taken(client.pool("pool").k.__dlpack__()), weakref.ref(client)
    del client
    gc.collect()
    assert alive() is not None
    ctypes.memset(taken.address(0, 0, 0, 0, 0), 7, 32)
    assert ctypes.string_at(taken.address(0, 0, 0, 0, 0), 32) == b"\7" * 32
    taken.release()
    gc.collect()
    assert alive() is None


def test_release_in_another_thread(pool: paged.Pool) -> None:
    """A framework may drop a tensor in a thread that has never run Python: here, one that holds no GIL."""
    taken = [Taken(pool.k.__dlpack__(max_version=(1, 1))) for _ in range(8)]
    libc = ctypes.CDLL(None)
    threads = []
    for each in taken:
        thread = ctypes.c_ulong()
        delete = ctypes.cast(each.managed.deleter, ctypes.c_void_p)
        assert libc.pthread_create(ctypes.byref(thread), None, delete,
                                   ctypes.c_void_p(ctypes.addressof(each.managed))) == 0
        threads.append(thread)
    for thread in threads:
        libc.pthread_join(thread, None)
    pool.close()


def test_release_without_the_gil(pool: paged.Pool) -> None:
    taken = [Taken(pool.k.__dlpack__()) for _ in range(100)]
    threads = [threading.Thread(target=lambda part=taken[i::4]: [each.release() for each in part]) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pool.close()


EXIT = """
import ctypes, sys, threading
sys.path[:0] = {path!r}
import paged
from tensors import Taken
client = paged.embedded({pool!r}, threads=1)
pool = client.pool("pool")
taken = [Taken(pool.k.__dlpack__(max_version=(1, 1))) for _ in range(3)]
capsule = pool.v.__dlpack__()
if {how!r} == "late":
    # libc's exit handlers run when Python is gone, as destructors of a framework's static variables do.
    delete = ctypes.cast(taken[0].managed.deleter, ctypes.c_void_p).value
    libc = ctypes.CDLL(None)
    on_exit = ctypes.cast(libc.on_exit, ctypes.c_void_p)
    body = (ctypes.c_ubyte * 0)()
    libc.__cxa_atexit(ctypes.c_void_p(delete), ctypes.c_void_p(ctypes.addressof(taken[0].managed)), None)
elif {how!r} == "module":
    sys.modules["kept"] = taken
sys.stdout.write("end")
"""


@pytest.mark.parametrize("how", ["plain", "late", "module"])
def test_exit_of_the_interpreter(how: str) -> None:
    code = EXIT.format(path=sys.path, pool=POOL, how=how)
    result = subprocess.run([sys.executable, "-X", "dev", "-c", code], capture_output=True, text=True, timeout=300)
    assert (result.returncode, result.stdout, result.stderr) == (0, "end", "")


# ---------------------------------------------------------------------------- a daemon

WRITER = """
import ctypes, sys
import paged
from tensors import Taken
with paged.connect(sys.argv[1], threads=1) as client, client.pool("test") as pool:
    taken = Taken(pool.v.__dlpack__(max_version=(1, 1)))
    for token in range(3):
        row = (ctypes.c_float * 16)(*[token + 0.5] * 16)
        ctypes.memmove(taken.address(1, int(sys.argv[2]), 1, token, 0), row, 64)
    taken.release()
"""


def test_pages_of_two_processes(daemon: Any, worker: Any) -> None:
    """The tensors of all processes are over the same memory."""
    with daemon.connect() as client, client.pool("test") as pool, pool.batch() as batch:
        seq, = pool.create(1, 3)
        taken = Taken(pool.v.__dlpack__(max_version=(1, 1)))
        page = pool.page_table(seq)[0]
        worker(WRITER, str(daemon.runtime_dir), str(page), PYTHONPATH=":".join(sys.path)).end()
        for token in range(3):
            assert element(taken, "f32", 1, page, 1, token, 5) == token + 0.5
        batch.plan([seq], 3, 3)
        back = Tensor((3, 2, 16))
        batch.gather(1, None, back)
        assert [back[token, 1, 0] for token in range(3)] == [0.5, 1.5, 2.5]
        taken.release()


def test_daemon_dies(daemon: Any) -> None:
    """Pages in host memory stay readable, and tensors over them valid."""
    client = daemon.connect()
    pool = client.pool("test")
    batch, seq = pool.batch(), pool.create(1, 4)[0]
    batch.plan([seq], 4, 4)
    k, v = gauss_tensor((4, 2, 16), "f32", 1), gauss_tensor((4, 2, 16), "f32", 2)
    batch.append(0, k, v)
    page = pool.page_table(seq)[0]
    taken = Taken(pool.k.__dlpack__())
    daemon.kill()
    with pytest.raises(paged.GoneError):
        client.ping()
    for call in (batch.validate, batch.mark, lambda: batch.fork([seq], 4), lambda: batch.plan([seq], 4, 4)):
        with pytest.raises(paged.GoneError):
            call()
    assert element(taken, "f32", 0, page, 1, 3, 7) == k[3, 1, 7]
    other = Taken(pool.v.__dlpack__())
    assert element(other, "f32", 0, page, 1, 3, 7) == v[3, 1, 7]
    with pytest.raises(BufferError):
        client.close()
    other.release()
    taken.release()
    batch.close()
    client.close()


def test_cycle_with_a_log() -> None:
    """A log function that refers to batch and pages does not keep them alive."""
    held: dict[str, Any] = {}
    client = paged.embedded(POOL, threads=1, log=lambda level, text: held.get("pages"))  # noqa: F821 (deleted below)
    pool = client.pool("pool")
    held.update(client=client, pages=pool.k, batch=pool.batch())
    alive = weakref.ref(client)
    del client, pool, held
    gc.collect()
    assert alive() is None
