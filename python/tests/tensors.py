# SPDX-License-Identifier: Apache-2.0
"""A small tensor framework over ctypes: every form of DLPack that the extension may meet, without dependencies."""
import ctypes
import math
import random
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

DTYPES = {"f32": (2, 32), "f16": (2, 16), "bf16": (4, 16), "f64": (2, 64), "i32": (0, 32), "i64": (0, 64), "i8": (0, 8),
          "u8": (1, 8), "u32": (1, 32), "bool": (6, 8), "e4m3": (10, 8), "e5m2": (12, 8), "complex64": (5, 64)}
FORMATS = {"f32": "f", "f16": "e", "f64": "d", "i32": "i", "i64": "q", "i8": "b", "u8": "B", "u32": "I", "bool": "?"}
HOST, CUDA, PINNED = 1, 2, 3
READ_ONLY = 1


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                ("deleter", Deleter), ("flags", ctypes.c_uint64), ("tensor", DLTensor)]


class Legacy(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", Deleter)]


SetError = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
Allocate = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(DLTensor), ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p,
                            SetError)
Export = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
Import = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
Borrow = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(DLTensor))
Stream = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))


class Exchange(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("previous", ctypes.c_void_p),
                ("allocate", Allocate), ("export", Export), ("take", Import), ("borrow", Borrow), ("stream", Stream)]


_api = ctypes.PyDLL(None)
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_api.PyCapsule_IsValid.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
_api.PyCapsule_SetName.argtypes = [ctypes.c_void_p, ctypes.c_char_p]

# Exported tensors whose deleter has not been called, by address.
lent: dict[int, Any] = {}


@Deleter    # type: ignore[untyped-decorator]
def _delete(address: int) -> None:
    del lent[address]


def _free_capsule(capsule: int) -> None:
    for name, kind in ((b"dltensor_versioned", Versioned), (b"dltensor", Legacy)):
        if _api.PyCapsule_IsValid(capsule, name):
            managed = kind.from_address(_api.PyCapsule_GetPointer(capsule, name))
            managed.deleter(ctypes.addressof(managed))


_destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_free_capsule)


def capsule_of(managed: Versioned | Legacy) -> Any:
    name = b"dltensor_versioned" if isinstance(managed, Versioned) else b"dltensor"
    capsule = _api.PyCapsule_New(ctypes.addressof(managed), name, ctypes.cast(_destructor, ctypes.c_void_p))
    capsule_names[id(capsule)] = name
    return capsule


# Capsules keep a pointer to their name.
capsule_names: dict[int, bytes] = {}
_USED = {b"dltensor_versioned": b"used_dltensor_versioned", b"dltensor": b"used_dltensor"}


class Taken:
    """A consumer of a capsule: it owns the tensor until release()."""

    def __init__(self, capsule: Any) -> None:
        address = id(capsule)
        self.versioned = bool(_api.PyCapsule_IsValid(address, b"dltensor_versioned"))
        name = b"dltensor_versioned" if self.versioned else b"dltensor"
        kind = Versioned if self.versioned else Legacy
        self.managed = kind.from_address(_api.PyCapsule_GetPointer(address, name))
        _api.PyCapsule_SetName(address, _USED[name])

    @property
    def tensor(self) -> DLTensor:
        tensor: DLTensor = self.managed.tensor
        return tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape[:self.tensor.ndim])

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(self.tensor.strides[:self.tensor.ndim])

    def address(self, *index: int) -> int:
        at = sum(i * s for i, s in zip(index, self.strides, strict=True))
        return int(self.tensor.data + self.tensor.byte_offset + at * self.tensor.bits // 8)

    def release(self) -> None:
        self.managed.deleter(ctypes.addressof(self.managed))


def bf16_bits(value: float) -> int:
    """Round to nearest even."""
    bits = int(struct.unpack("I", struct.pack("f", value))[0])
    if math.isnan(value):
        return 0x7fc0
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16 & 0xffff


def pack(dtype: str, value: float) -> bytes:
    if dtype == "bf16":
        return struct.pack("H", bf16_bits(value))
    return struct.pack(FORMATS[dtype], value)


def unpack(dtype: str, data: bytes) -> Any:
    if dtype == "bf16":
        return struct.unpack("f", b"\0\0" + data)[0]
    return struct.unpack(FORMATS[dtype], data)[0]


def dense(shape: Sequence[int]) -> list[int]:
    strides = [1] * len(shape)
    for i in range(len(shape) - 1, 0, -1):
        strides[i - 1] = strides[i] * max(shape[i], 1)
    return strides


class Tensor:
    """A tensor in memory of ctypes, which __dlpack__() exports.

    strides    elements; default dense
    offset     bytes before the first element, passed as byte_offset
    null_strides, legacy, read_only, version   forms of the DLPack struct
    """
    device = (HOST, 0)

    def __init__(self, shape: Sequence[int], dtype: str = "f32", values: Iterable[float] | None = None, *,
                 strides: Sequence[int] | None = None, offset: int = 0, null_strides: bool = False,
                 legacy: bool = False, read_only: bool = False, version: int = 1, address: int | None = None) -> None:
        self.shape, self.dtype = tuple(shape), dtype
        self.strides = tuple(strides if strides is not None else dense(shape))
        self.offset, self.null_strides, self.legacy = offset, null_strides, legacy
        self.read_only, self.version = read_only, version
        self.size = DTYPES[dtype][1] // 8
        n = 0 if 0 in self.shape else 1 + sum((e - 1) * s for e, s in zip(self.shape, self.strides, strict=True))
        self.memory = ctypes.create_string_buffer(b"\xff" * (offset + n * self.size), offset + n * self.size)
        self.address = address if address is not None else ctypes.addressof(self.memory)
        if not n and address is None:
            self.address = 0
        if values is not None:
            for index, value in zip(self.indexes(), values, strict=True):
                self[index] = value

    def indexes(self) -> Iterable[tuple[int, ...]]:
        def walk(prefix: tuple[int, ...], rest: tuple[int, ...]) -> Iterable[tuple[int, ...]]:
            if not rest:
                yield prefix
                return
            for i in range(rest[0]):
                yield from walk(prefix + (i,), rest[1:])
        return walk((), self.shape)

    def _at(self, index: tuple[int, ...]) -> int:
        return self.address + self.offset + self.size * sum(i * s for i, s in zip(index, self.strides, strict=True))

    def __getitem__(self, index: tuple[int, ...]) -> Any:
        return unpack(self.dtype, ctypes.string_at(self._at(index), self.size))

    def __setitem__(self, index: tuple[int, ...], value: float) -> None:
        ctypes.memmove(self._at(index), pack(self.dtype, value), self.size)

    def values(self) -> list[Any]:
        return [self[index] for index in self.indexes()]

    def data(self) -> int:
        """The data pointer of the DLPack struct."""
        return self.address

    def fill_struct(self, tensor: DLTensor) -> Any:
        n = len(self.shape)
        shape, strides = (ctypes.c_int64 * n)(*self.shape), (ctypes.c_int64 * n)(*self.strides)
        tensor.data, tensor.byte_offset = self.data() or None, self.offset
        tensor.device_type, tensor.device_id = self.device
        tensor.ndim, (tensor.code, tensor.bits), tensor.lanes = n, DTYPES[self.dtype], 1
        tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
        if not self.null_strides:
            tensor.strides = ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64))
        return shape, strides

    def lend(self) -> Versioned | Legacy:
        managed = Legacy() if self.legacy else Versioned(major=self.version, minor=0)
        managed.deleter = _delete
        if not self.legacy and self.read_only:
            managed.flags = READ_ONLY
        lent[ctypes.addressof(managed)] = (managed, self, self.fill_struct(managed.tensor))
        return managed

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
                   copy: Any = None) -> Any:
        return capsule_of(self.lend())

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


class OldTensor(Tensor):
    """A tensor of before DLPack 1.0, whose __dlpack__() does not know max_version."""

    def __dlpack__(self, stream: Any = None) -> Any:  # type: ignore[override]
        self.legacy = True
        return capsule_of(self.lend())


class Exchanging(Tensor):
    """A tensor with DLPack's C exchange API, as torch.Tensor has it."""
    current_stream = 0
    n_borrowed = n_allocated = n_streams = 0
    fails: str | None = None  # the function that returns -1; callbacks of ctypes cannot raise

    @classmethod
    def _borrow(cls, object_: int, out: Any) -> int:
        self = ctypes.cast(object_, ctypes.py_object).value
        type(self).n_borrowed += 1
        if type(self).fails == "borrow":
            return -1
        self.kept = self.fill_struct(out[0])
        return 0

    @classmethod
    def _export(cls, object_: int, out: Any) -> int:
        self = ctypes.cast(object_, ctypes.py_object).value
        out[0] = ctypes.addressof(self.lend())
        return 0

    @classmethod
    def _allocate(cls, prototype: Any, out: Any, context: Any, set_error: Any) -> int:
        if cls.fails == "allocate":
            set_error(context, b"MemoryError", b"no memory for it")
            return -1
        want = prototype[0]
        names = [k for k, v in DTYPES.items() if v == (want.code, want.bits)]
        made = cls(list(want.shape[:want.ndim]), names[0])
        cls.n_allocated += 1
        out[0] = ctypes.addressof(made.lend())
        return 0

    @classmethod
    def _take(cls, address: int, out: Any) -> int:
        if cls.fails == "take":
            return -1
        managed, made, _ = lent[address]
        n = managed.tensor.ndim
        made.shape, made.strides = tuple(managed.tensor.shape[:n]), tuple(managed.tensor.strides[:n])
        managed.deleter(address)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
        out[0] = id(made)
        return 0

    @classmethod
    def _stream(cls, device_type: int, device_id: int, out: Any) -> int:
        cls.n_streams += 1
        if cls.fails == "stream":
            return -1
        out[0] = cls.current_stream or None
        return 0


def exchange_type(name: str, *, major: int = 1, borrows: bool = True, previous: Exchange | None = None,
                  base: type = object) -> Any:
    """A new type of tensor with an exchange API of its own; base is mixed in."""
    type_: Any = type(name, (Exchanging,) if base is object else (base, Exchanging), {})
    table = Exchange(major=major, minor=3, allocate=Allocate(type_._allocate), export=Export(type_._export),
                     take=Import(type_._take), stream=Stream(type_._stream))
    if borrows:
        table.borrow = Borrow(type_._borrow)
    if previous is not None:
        table.previous = ctypes.addressof(previous)
    type_.table = table
    type_.__dlpack_c_exchange_api__ = _api.PyCapsule_New(ctypes.addressof(table), b"dlpack_exchange_api", None)
    return type_


# ------------------------------------------------------------------ data and references

def gauss(n: int, seed: int) -> list[float]:
    generator = random.Random(seed)
    return [generator.gauss(0, 1) for _ in range(n)]


def gauss_tensor(shape: Sequence[int], dtype: str, seed: int, type_: type = Tensor, **keywords: Any) -> Any:
    return type_(shape, dtype, gauss(math.prod(shape), seed), **keywords)


def attention(q: list[list[float]], k: list[list[float]], v: list[list[float]], sees: Callable[[int, int], bool], *,
              scale: float | None = None, sink: float | None = None) -> tuple[list[list[float]], list[float],
                                                                             list[float]]:
    """softmax(scale q k^T) v of one head in float64: out, lse and largest score of each query."""
    scale = scale if scale is not None else 1 / math.sqrt(len(q[0]))
    out, lse, largest = [], [], []
    for i, query in enumerate(q):
        keys = [j for j in range(len(k)) if sees(i, j)]
        scores = [scale * math.fsum(a * b for a, b in zip(query, k[j], strict=True)) for j in keys]
        top = max(scores, default=-math.inf)
        largest.append(top)
        weights = [math.exp(s - top) for s in scores]
        total = math.fsum(weights)
        if sink is not None:
            total += math.exp(sink - top) if keys else 0
        if not keys:
            out.append([0.0] * len(v[0]))
            lse.append(sink if sink is not None else -math.inf)
            continue
        out.append([math.fsum(w * v[j][d] for w, j in zip(weights, keys, strict=True)) / total
                    for d in range(len(v[0]))])
        lse.append(top + math.log(total))
    return out, lse, largest
