# SPDX-License-Identifier: Apache-2.0
"""A prompt that workers share: run it twice, and the second worker computes only the end.  A test runs it."""
import numpy

import paged

TOKENS = 600

prompt = [i * i % 49152 for i in range(TOKENS)]     # token ids of the system prompt
# All that K and V depend on besides the tokens.
prefix = paged.Prefix(prompt, salt=paged.salt("adapter: none"))

with paged.connect() as client, client.pool("llama") as pool, pool.batch() as batch:
    cached = pool.match(prefix)                     # shared memory only: no request
    [(seq, shared)] = pool.start([(prefix, TOKENS + 100)])
    batch.plan([seq], q_len=TOKENS - shared, kv_len=TOKENS)
    k, v = numpy.zeros((2, TOKENS - shared, pool.n_kv_heads, pool.k_dim), numpy.float32)
    for layer in range(pool.n_layers):
        batch.append(layer, k, v)                   # K and V of the tokens that are not shared
    batch.publish(seq, prefix)
    print(f"{cached} tokens were cached, {shared} are shared, {TOKENS - shared} were computed")
    client.ping()                                   # the publish has arrived: requests are answered in order
# Published pages stay.
