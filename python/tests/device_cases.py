# SPDX-License-Identifier: Apache-2.0
"""Tensors and pools in GPU memory.  test_device.py runs each case in a process of its own.

    python device_cases.py DIRECTORY_OF_LIBCUDA CASE

The fake driver of tests/fake-cuda stands for the GPU.  It must be loaded before the library looks for libcuda.so.1, and
must not be in a process that has more to do.
"""
import ctypes
import os
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import paged
import tensors
from tensors import Taken, Tensor, gauss_tensor

POOL = {"name": "pool", "n_layers": 1, "n_kv_heads": 1, "k_dim": 64, "dtype": "f32", "n_pages": 8, "page_size": 16,
        "backend": "cuda"}
driver: Any


def call(name: str, *arguments: Any) -> None:
    status = getattr(driver, name)(*arguments)
    assert status == 0, f"{name}: {status}"


def enter_device(index: int = 0) -> None:
    """Make the device's primary context current, as a framework does."""
    device, context = ctypes.c_int(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), index)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxPushCurrent_v2", context)


def new_stream() -> int:
    stream = ctypes.c_void_p()
    call("cuStreamCreate", ctypes.byref(stream), 1)
    assert stream.value
    return stream.value


def copy_out(address: int, size: int) -> bytes:
    buffer = ctypes.create_string_buffer(size)
    call("cuCtxSynchronize")
    call("cuMemcpyDtoHAsync_v2", buffer, ctypes.c_uint64(address), ctypes.c_size_t(size), None)
    call("cuStreamSynchronize", None)
    return buffer.raw


class OnDevice:
    """Mixed into a Tensor: its elements are a copy in host memory, of what get() reads from the device."""
    device = (tensors.CUDA, 0)
    at: int | None = None

    def data(self: Any) -> Any:
        if self.at is None:
            address = ctypes.c_uint64()
            call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(len(self.memory)))
            call("cuMemcpyHtoDAsync_v2", address, self.memory, ctypes.c_size_t(len(self.memory)), None)
            call("cuCtxSynchronize")
            self.at = address.value
        return self.at

    def get(self: Any) -> Any:
        ctypes.memmove(self.memory, copy_out(self.data(), len(self.memory)), len(self.memory))
        return self.values()


class DeviceTensor(OnDevice, Tensor):
    pass


DeviceExchanging = tensors.exchange_type("DeviceExchanging", base=OnDevice)


@contextmanager
def opened(**parameters: Any) -> Iterator[tuple[paged.Pool, paged.Batch]]:
    with paged.embedded(POOL | parameters, threads=1) as client, client.pool("pool") as pool, pool.batch() as batch:
        yield pool, batch


def stand_for_torch(type_: Any) -> None:
    sys.modules["torch"] = types.ModuleType("torch")
    setattr(sys.modules["torch"], "Tensor", type_)
    type_.is_neg = lambda self: False
    type_.requires_grad = False


def inputs(n: int, type_: type = DeviceTensor) -> list[Any]:
    return [gauss_tensor((n, heads, 64), "f32", i, type_) for i, heads in enumerate((2, 1, 1))]


def rows(tensor: Tensor, head: int) -> list[list[float]]:
    return [[tensor[t, head, d] for d in range(64)] for t in range(tensor.shape[0])]


def check_attention(q: Tensor, k: Tensor, v: Tensor, out: Any) -> None:
    got = out.get()
    for head in range(2):
        want, _, _ = tensors.attention(rows(q, head), rows(k, 0), rows(v, 0), lambda i, j: j <= i)
        for i, row in enumerate(want):
            assert got[(i * 2 + head) * 64:(i * 2 + head) * 64 + 64] == pytest.approx(row, abs=1e-4)


def case_attention() -> None:
    """append, attention, gather and merge on tensors of a framework with __dlpack__() only."""
    enter_device()
    with opened() as (pool, batch):
        assert pool.backend == "cuda" and pool.isa.startswith("sm_")
        q, k, v = inputs(5)
        batch.plan(pool.create(1, 16), 5, 5)
        batch.append(0, k, v)
        out, lse = DeviceTensor((5, 2, 64)), DeviceTensor((5, 2))
        batch.attention(0, q, out, lse=lse)
        batch.validate()
        check_attention(q, k, v, out)
        back = DeviceTensor((5, 1, 64))
        batch.gather(0, back)
        batch.finish()
        assert back.get() == k.values()
        part = DeviceTensor((5, 1, 64))
        batch.gather(0, part, begin=DeviceTensor((1,), "i32", [3]), end=DeviceTensor((1,), "i32", [5]))
        batch.validate()
        assert part.get()[:128] == k.values()[192:]
        with pytest.raises(ValueError, match="k has 2 tokens; with begin or end on the GPU it needs room for 5"):
            batch.gather(0, DeviceTensor((2, 1, 64)), begin=DeviceTensor((1,), "i32", [3]))
        # Two equal halves: the mean of the same rows is the rows.
        merged = DeviceTensor((5, 2, 64))
        batch.merge(out, lse, out, lse, merged)
        batch.finish()
        assert merged.get() == pytest.approx(out.get(), rel=1e-5)


def case_new_tensor() -> None:
    """out is allocated by q's framework, on the device."""
    enter_device()
    with opened() as (pool, batch):
        q, k, v = inputs(5, DeviceExchanging)
        batch.plan(pool.create(1, 16), 5, 5)
        batch.append(0, k, v)
        out = batch.attention(0, q)
        batch.finish()
        assert type(out) is DeviceExchanging and DeviceExchanging.n_allocated == 1
        check_attention(q, k, v, out)


def case_positions() -> None:
    enter_device()
    with opened() as (pool, batch):
        _, k, v = inputs(2)
        batch.plan(pool.create(1, 16), 2, 9)
        batch.append(0, k, v, positions=DeviceTensor((2,), "i32", [8, 0]))
        batch.validate()
        back = DeviceTensor((9, 1, 64))
        batch.gather(0, back)
        batch.finish()
        assert back.get()[:64] == k.values()[64:] and back.values()[-64:] == k.values()[:64]
        with pytest.raises(TypeError, match="positions must be a tensor"):
            batch.append(0, k, v, positions=[8, 0])
        with pytest.raises(ValueError, match="positions has elements of i64, not i32"):
            batch.append(0, k, v, positions=DeviceTensor((2,), "i64", [8, 0]))
        batch.append(0, k, v, positions=DeviceTensor((2,), "i32", [8, 100]))
        with pytest.raises(paged.CapacityError):
            batch.validate()


def case_pages() -> None:
    enter_device()
    with opened() as (pool, batch):
        assert pool.k.__dlpack_device__() == (2, 0)
        _, k, v = inputs(3)
        seq, = pool.create(1, 16)
        batch.plan([seq], 3, 3)
        batch.append(0, k, v)
        batch.finish()
        taken = Taken(pool.k.__dlpack__(stream=1, max_version=(1, 1), dl_device=(2, 0)))
        assert (taken.tensor.device_type, taken.tensor.device_id) == (2, 0)
        page = pool.page_table(seq)[0]
        for token in range(3):
            data = copy_out(taken.address(0, page, 0, token, 0), 256)
            assert data == k.memory.raw[token * 256:token * 256 + 256]
        with pytest.raises(BufferError, match=r"the pages are on device \(2, 0\), not \(1, 0\)"):
            pool.k.__dlpack__(dl_device=(1, 0))
        with pytest.raises(BufferError, match="1 tensors"):
            pool.close()
        taken.release()


def case_devices() -> None:
    """DLPack's number of a device is CUDA's, and both backends refuse tensors of others."""
    enter_device(1)
    with opened(device="1") as (pool, batch):
        assert pool.k.__dlpack_device__() == (2, 1)
        batch.plan(pool.create(1, 16), 5, 5)
        q, k, v = inputs(5)
        with pytest.raises(ValueError, match=r"k is on another device \(DLPack type 2, id 0\): pool pool is in memory "
                                             "of CUDA device 1"):
            batch.append(0, k, v)
        with pytest.raises(ValueError, match=r"k is on another device \(DLPack type 1, id 0\)"):
            batch.append(0, gauss_tensor((5, 1, 64), "f32", 1), v)
        for tensor in (q, k, v):
            tensor.device = (tensors.CUDA, 1)
        batch.append(0, k, v)
        out = DeviceTensor((5, 2, 64))
        out.device = (tensors.CUDA, 1)
        batch.attention(0, q, out)
        batch.finish()
        check_attention(q, k, v, out)


def case_streams() -> None:
    """The plan takes torch's stream, and calls under another one are refused."""
    enter_device()
    first, second = new_stream(), new_stream()
    stand_for_torch(DeviceExchanging)
    with opened() as (pool, batch):
        seqs = pool.create(1, 16)
        q, k, v = inputs(5, DeviceExchanging)
        out = DeviceExchanging((5, 2, 64))
        DeviceExchanging.current_stream = first
        batch.plan(seqs, 5, 5)
        batch.append(0, k, v)
        DeviceExchanging.current_stream = second
        with pytest.raises(ValueError, match=rf"works on stream {hex(second)} and the plan on {hex(first)}: plan and "
                                             "call under the same stream"):
            batch.attention(0, q, out)
        with pytest.raises(ValueError, match="works on stream"):
            batch.append(0, k, v)
        batch.plan(seqs, 5, 5)
        batch.attention(0, q, out)
        batch.finish()
        check_attention(q, k, v, out)
        # The plan's stream may be any that the caller names.
        for stream in (first, types.SimpleNamespace(cuda_stream=first)):
            batch.plan(seqs, 5, 5, stream=stream)
            batch.append(0, k, v)
        # A framework without a stream query: its tensors are not checked.
        batch.plan(seqs, 5, 5)
        batch.append(0, *inputs(5)[1:])
        batch.finish()
        call("cuStreamDestroy_v2", ctypes.c_void_p(first))
        DeviceExchanging.current_stream = 0
        batch.plan(seqs, 5, 5)
        batch.finish()


def case_torch_without_streams() -> None:
    """A torch that finds no GPU leaves the batch on the legacy default stream."""
    enter_device()
    type_ = tensors.exchange_type("NoStreams", base=OnDevice)
    type_.fails = "stream"
    stand_for_torch(type_)
    with opened() as (pool, batch):
        seqs = pool.create(1, 16)
        batch.plan(seqs, 5, 5)
        batch.plan(seqs, 5, 5)
        assert type_.n_streams == 1
        _, k, v = inputs(5)
        batch.append(0, k, v)
        batch.finish()


def case_bad_stream() -> None:
    enter_device()
    with opened() as (pool, batch):
        seqs = pool.create(1, 16)
        for stream, error in (("s", TypeError), (1 << 80, OverflowError),
                              (types.SimpleNamespace(cuda_stream="s"), TypeError), (12345, paged.BackendError)):
            with pytest.raises(error):
                batch.plan(seqs, 1, 1, stream=stream)
        # The work on 12345 cannot be awaited; then the batch works on.
        with pytest.raises(paged.BackendError):
            batch.plan(seqs, 1, 1)
        batch.plan(seqs, 1, 1)
        batch.finish()


def case_publish_and_fork() -> None:
    enter_device()
    with opened() as (pool, batch):
        seq, = pool.create(1, 32)
        batch.plan([seq], 20, 20)
        _, k, v = inputs(20)
        batch.append(0, k, v)
        prefix = paged.Prefix(range(20))
        batch.publish([seq], prefix)
        children = batch.fork([seq], 20)
        batch.finish()
        assert pool.match(prefix) == 16
        batch.plan(children, 0, 20)
        back = DeviceTensor((20, 1, 64))
        batch.gather(0, back)
        batch.finish()
        assert back.get() == k.values()
        mark = batch.mark()
        with pool.batch() as other:
            other.wait(mark)


if __name__ == "__main__":
    driver = ctypes.CDLL(os.path.join(sys.argv[1], "libcuda.so.1"))
    globals()[f"case_{sys.argv[2]}"]()
    print("done")
