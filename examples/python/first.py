# SPDX-License-Identifier: Apache-2.0
"""The whole life of a worker, as examples/first.c; README.md shows it, a test runs it."""
import numpy

import paged

client = paged.connect()                            # $PAGED_RUNTIME_DIR or /run/paged
pool = client.pool("llama")                         # maps the pages
a, b = pool.create(2, n_tokens=[512, 40])
q, k, v = (numpy.random.rand(552, n_heads, 64).astype(numpy.float32) for n_heads in (9, 3, 3))
with pool.batch() as batch:
    # One step: plan once, run once a layer.  512 rows of a, then 40 rows of b.
    batch.plan([a, b], q_len=[512, 40], kv_len=[512, 40])
    for layer in range(pool.n_layers):
        batch.append(layer, k, v)                   # this step's K and V go into the pages
        out = batch.attention(layer, q)             # causal, scale 1/sqrt(64)
print(f"out[0] = {out[0, 0, 0]:g}, the first value = {v[0, 0, 0]:g}")  # the first token attends only to itself
print("K of all pages, in place:", list(numpy.from_dlpack(pool.k).shape))
client.close()
