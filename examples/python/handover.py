# SPDX-License-Identifier: Apache-2.0
"""A prefill process computes a prompt, a decode process continues it on the same pages, as examples/handover.c.

Only a ticket of 16 bytes goes from one to the other.  A test runs it.
"""
import multiprocessing
from multiprocessing.connection import Connection

import numpy

import paged

PROMPT, ANSWER = 100, 20


def step(pool: paged.Pool, batch: paged.Batch, seq: int, n_tokens: int, length: int, value: float) -> float:
    """Stands for the model: writes the last n_tokens tokens, whose V is `value`, and attends equally to all."""
    batch.plan([seq], q_len=n_tokens, kv_len=length)
    k = numpy.zeros((n_tokens, pool.n_kv_heads, pool.k_dim), numpy.float32)
    for layer in range(pool.n_layers):
        batch.append(layer, k, numpy.full_like(k, value))
        out = batch.attention(layer, numpy.zeros((n_tokens, 9, pool.k_dim), numpy.float32))
    batch.finish()                                      # a GPU has done the work; on a CPU it is done already
    return float(out[-1, 0, 0])


def prefill(to_decode: Connection) -> None:
    with paged.connect(name="prefill") as client, client.pool("llama") as pool, pool.batch() as batch:
        [seq] = pool.create(1, PROMPT)
        step(pool, batch, seq, PROMPT, PROMPT, 1.0)
        print(f"prefill: {PROMPT} tokens in pages {pool.page_table(seq)}", flush=True)
        to_decode.send_bytes(pool.give(seq, PROMPT))    # from now on it can only be read


def decode(from_prefill: Connection) -> None:
    ticket = from_prefill.recv_bytes()
    with paged.connect(name="decode") as client, client.pool("llama") as pool, \
            pool.batch(reserve_ahead=32) as batch:
        [(seq, length)] = pool.adopt(ticket)
        print(f"decode: {length} tokens in pages {pool.page_table(seq)}")
        for i in range(ANSWER):
            mean = step(pool, batch, seq, 1, length + 1 + i, 0.0)
        print(f"attention of the last token: {mean:g}, the mean over {PROMPT} ones of prefill and {ANSWER} zeros")


if __name__ == "__main__":
    # A client does not survive a fork: each process opens its own.
    receive, send = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=prefill, args=(send,))
    process.start()
    send.close()                                        # so that recv_bytes() ends if the prefill process does
    decode(receive)
    process.join()
