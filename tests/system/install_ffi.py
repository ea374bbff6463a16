# SPDX-License-Identifier: Apache-2.0
"""libpagedclient by ctypes alone: an embedded owner, one step, compared with the formula."""

import ctypes
import math
from ctypes import byref, c_char_p, c_float, c_int64, c_size_t, c_uint32, c_uint64, c_void_p, sizeof

F32 = 1
HEADS, DIM, TOKENS = 2, 8, 5


class PoolParams(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p)] + [
        (name, c_uint32)
        for name in (
            "n_layers n_kv_heads k_dim v_dim v_in_k dtype page_size n_pages n_slots max_length".split()
        )
    ]


class Row(ctypes.Structure):
    _fields_ = [
        ("seq", c_uint64),
        ("pages", c_void_p),
        ("n_pages", c_uint32),
        ("q_len", c_uint32),
        ("kv_len", c_uint32),
        ("flags", c_uint32),
        ("q_base", c_int64),
        ("b", c_uint32),
        ("reserved", c_uint32 * 5),
    ]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("dtype", c_uint32),
        ("n_heads", c_uint32),
        ("dim", c_uint32),
        ("reserved", c_uint32 * 5),
        ("token_stride", c_int64),
        ("head_stride", c_int64),
        ("batch_stride", c_int64),
    ]


class Array(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("data", c_void_p),
        ("dtype", c_uint32),
        ("n_dims", c_uint32),
        ("extents", c_uint32 * 4),
        ("strides", c_int64 * 4),
        ("reserved", c_uint64 * 3),
    ]


class ModSetParams(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("mask", c_void_p), ("score", c_void_p)]


class SeqParams(ctypes.Structure):
    _fields_ = [("pool", c_void_p), ("tag", c_char_p), ("n_tokens", c_uint32), ("reserved", c_uint32 * 5)]


class SeqItem(ctypes.Structure):
    _fields_ = [("seq", c_uint64), ("n_tokens", c_uint32), ("reserved", c_uint32)]


class AttentionParams(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("scale", c_float),
        ("mask", c_uint32),
        ("lse", c_void_p),
        ("max_score", c_void_p),
        ("mod_set", c_void_p),
        ("sink", c_void_p),
        ("lse_without_sink", c_uint32),
    ]


paged = ctypes.CDLL("libpagedclient.so.0")
paged.paged_client_error.restype = c_char_p
paged.paged_client_error.argtypes = [c_void_p]
paged.paged_client_close.argtypes = [c_void_p]
client, pool, batch, seq = c_void_p(), c_void_p(), c_void_p(), c_uint64()


def call(name, *arguments):
    status = getattr(paged, name)(*arguments)
    if status != 0:
        raise SystemExit(f"{name}: {status}: {paged.paged_client_error(client).decode()}")


def tensor(values):
    return Tensor(ctypes.cast(values, c_void_p), F32, HEADS, DIM)


size = TOKENS * HEADS * DIM
q, k, v = ((c_float * size)(*(math.sin(i * step) for i in range(size))) for step in (1, 2, 3))
out = (c_float * size)()

params = PoolParams(sizeof(PoolParams), b"test", n_layers=1, n_kv_heads=HEADS, k_dim=DIM, dtype=F32, page_size=3,
                    n_pages=4)
call("paged_client_open_embedded", byref(params), c_size_t(1), None, byref(client))
call("paged_pool_open", client, b"test", byref(pool))
call("paged_seq_create", client, c_size_t(1), byref(SeqParams(pool, None, TOKENS)), byref(seq))
call("paged_batch_create", pool, None, byref(batch))
call("paged_batch_plan", batch, c_size_t(1), byref(Row(seq=seq, q_len=TOKENS, kv_len=TOKENS)))
call("paged_append", batch, c_uint32(0), byref(tensor(k)), byref(tensor(v)), None)
call("paged_attention", batch, c_uint32(0), byref(tensor(q)), byref(tensor(out)), None)


def at(values, token, head, i):
    return values[(token * HEADS + head) * DIM + i]


def expect(modified):
    for token in range(TOKENS):
        for head in range(HEADS):
            scores = [
                sum(at(q, token, head, i) * at(k, key, head, i) for i in range(DIM)) / math.sqrt(DIM)
                for key in range(token + 1)
            ]
            scores = [modified(score, head, token, key) for key, score in enumerate(scores)]
            weights = [math.exp(score - max(scores)) for score in scores]
            for i in range(DIM):
                expected = sum(w * at(v, key, head, i) for key, w in enumerate(weights)) / sum(weights)
                assert abs(at(out, token, head, i) - expected) < 1e-5, (token, head, i)


expect(lambda score, head, token, key: score)

# The same with a score mod, whose array is bound by name.
slope = (c_float * HEADS)(0.5, 0.25)
array = Array(b"slope", ctypes.cast(slope, c_void_p), F32, 1, (c_uint32 * 4)(HEADS))
mod, mods = c_void_p(), c_void_p()
text = b"score + slope[h] * (kv_idx - q_idx)"
call("paged_mod_parse", pool, c_uint32(1), text, c_size_t(1), byref(array), byref(mod))
call("paged_mod_set_create", batch, byref(ModSetParams(sizeof(ModSetParams), None, mod)), byref(mods))
call("paged_mod_set_bind", mods, c_size_t(1), byref(array), None)
attention = AttentionParams(sizeof(AttentionParams), mod_set=mods)
call("paged_attention", batch, c_uint32(0), byref(tensor(q)), byref(tensor(out)), byref(attention))
expect(lambda score, head, token, key: score + slope[head] * (key - token))

# Failures are a status and a sentence, here as in C.
assert paged.paged_seq_reserve(client, c_size_t(1), byref(SeqItem(seq, 13))) != 0
sentence = paged.paged_client_error(client).decode()
assert "pool test" in sentence, sentence
paged.paged_client_close(client)
print(sentence)
