# SPDX-License-Identifier: Apache-2.0
"""Kernels on the OpenMP threads that the process has: same bits for any number of threads, teams that are too small."""
import contextlib
import ctypes
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import paged
from tensors import Tensor, gauss_tensor

POOL = {"name": "pool", "n_layers": 1, "n_kv_heads": 2, "k_dim": 16, "dtype": "f32", "n_pages": 64}
N_TOKENS = 300


@pytest.fixture(scope="module")
def gomp() -> Any:
    try:
        return ctypes.CDLL("libgomp.so.1")
    except OSError:
        pytest.skip("libgomp.so.1 is not installed")


def inputs() -> list[Tensor]:
    return [gauss_tensor((N_TOKENS, heads, 16), "f32", i) for i, heads in enumerate((4, 2, 2))]


@pytest.fixture(scope="module")
def data() -> list[Tensor]:
    return inputs()


def run(data: list[Tensor], **keywords: Any) -> bytes:
    with paged.embedded(POOL, **keywords) as client, client.pool("pool") as pool, pool.batch() as batch:
        return step(batch, data)


def step(batch: paged.Batch, data: list[Tensor]) -> bytes:
    q, k, v = data
    batch.plan(batch.pool.create(1, N_TOKENS), N_TOKENS, N_TOKENS)
    batch.append(0, k, v)
    out = Tensor(q.shape)
    batch.attention(0, q, out)
    return out.memory.raw


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_same_bits(gomp: Any, data: list[Tensor], threads: int) -> None:
    want = run(data, threads=1, run="own")
    assert run(data, threads=threads, run="openmp") == want
    assert run(data, threads=threads, run="own") == want


def test_names(gomp: Any) -> None:
    with paged.embedded(POOL, threads=2, run="openmp") as client:
        assert (client.run, client.threads) == ("openmp", 2)
    with paged.embedded(POOL, threads=2, run="own") as client:
        assert (client.run, client.threads) == ("own", 2)


def test_fork(gomp: Any, data: list[Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    """libgomp would wait in the child for threads that only the parent has."""
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(get_num_threads=lambda: 3))  # type: ignore[arg-type]
    want = run(data, threads=3, run="openmp")
    with paged.embedded(POOL) as client:
        assert (client.run, client.threads) == ("openmp", 3)
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException), open(sender, "wb") as answer:
            answer.write(run(data))
            try:
                paged.embedded(POOL, run="openmp")
            except paged.UnsupportedError as error:
                answer.write(str(error).encode())
        os._exit(0)
    os.close(sender)
    with open(receiver, "rb") as answer:
        got = answer.read()
    os.waitpid(child, 0)
    assert got[:len(want)] == want
    assert b'this process was forked' in got[len(want):] and b'use run="own"' in got[len(want):]


def test_no_libgomp() -> None:
    code = ("import paged\n"
            f"try: paged.embedded({POOL!r}, run='openmp')\n"
            "except paged.Error as error: print(error)")
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert "libgomp" in result.stdout, (result.stdout, result.stderr)


def test_inside_a_parallel_region(gomp: Any, data: list[Tensor]) -> None:
    """A nested region has one thread, which then does all parts."""
    results = []
    with paged.embedded(POOL, threads=4, run="openmp") as client, client.pool("pool") as pool:
        batches = [pool.batch() for _ in range(2)]

        @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        def body(argument: Any) -> None:
            results.append(step(batches[gomp.omp_get_thread_num()], data))

        gomp.GOMP_parallel(body, None, 2, 0)
    want = run(data, threads=1, run="own")
    assert results == [want, want]


def other_openmp() -> str:
    """A library of OpenMP that has libgomp's entry points: LLVM's, or Intel's."""
    for directory in (Path(sys.prefix) / "lib", *Path("/usr/lib").glob("llvm-*/lib")):
        for name in ("libiomp5.so", "libomp.so.5", "libomp.so"):
            if (directory / name).exists():
                return str(directory / name)
    pytest.skip("neither libiomp5 nor libomp is installed")


PRELOADED = """
import ctypes, os
gomp = ctypes.CDLL("libgomp.so.1", mode=ctypes.RTLD_GLOBAL)
body = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda argument: None)
# The team of compiled code, such as torch's.
ctypes.CDLL(None).GOMP_parallel(body, None, 3, 0)
before = os.listdir("/proc/self/task")
import test_threads
test_threads.run(test_threads.inputs(), threads=3, run="openmp")
print(before == os.listdir("/proc/self/task"), len(before))
"""


def test_preloaded(gomp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels use that of two libraries to which compiled code is bound: they start no second team."""
    # A build with sanitizers preloads their library, which must stay the first.
    monkeypatch.setenv("LD_PRELOAD", f"{os.environ.get('LD_PRELOAD', '')} {other_openmp()}".strip())
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    result = subprocess.run([sys.executable, "-c", PRELOADED], capture_output=True, text=True, timeout=300)
    assert result.stdout == "True 3\n", result.stdout + result.stderr


LIMITED = """
import contextlib
import ctypes
import os
gomp = ctypes.CDLL("libgomp.so.1")
import test_threads
data = test_threads.inputs()
print(test_threads.run(data, threads=1, run="own") == test_threads.run(data, threads=5, run="openmp"))
"""


@pytest.mark.parametrize("variable", ["OMP_THREAD_LIMIT=2", "OMP_THREAD_LIMIT=1", "OMP_DYNAMIC=true",
                                      "OMP_NUM_THREADS=1"])
def test_small_teams(gomp: Any, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenMP may give fewer threads than are asked for."""
    name, value = variable.split("=")
    monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    result = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, timeout=300)
    assert result.stdout == "True\n", result.stderr
