# SPDX-License-Identifier: Apache-2.0
"""Prints block_hashes.txt: hashes of blocks by vLLM's own functions.

    python generate.py >block_hashes.txt      with vLLM 0.32 and the package xxhash

A line has the algorithm, the seed ("-": vLLM's default), the extra of the block in hexadecimal ("-": none), the token
ids, and the hash.  The lines of one algorithm and seed are a chain: a block follows the one before it, and "first"
begins another.
"""
import os
import random

from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core import kv_cache_utils

SIZES = [1, 2, 3, 4, 16, 23, 24, 255, 256]
# The bounds at which pickle and CBOR write a number in another way.
BOUNDS = [0, 23, 24, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 2]


def blocks() -> list[tuple[bool, list[int], str | None]]:
    """Return whether each block begins a chain, its token ids, and its extra."""
    numbers = random.Random(20261127)
    result = [(True, BOUNDS, None)]
    for i, size in enumerate(SIZES):
        extra = numbers.randbytes(32).hex() if i % 3 == 1 else None
        result.append((i == 4, [numbers.randrange(200000) for _ in range(size)], extra))
    return result


def main() -> None:
    for name in ("sha256", "sha256_cbor", "xxhash", "xxhash_cbor"):
        function = get_hash_fn_by_name(name)
        for seed in (None, "0", "a longer seed"):
            if seed is None and name.startswith("xxhash"):
                continue
            os.environ.pop("PYTHONHASHSEED", None)
            if seed is not None:
                os.environ["PYTHONHASHSEED"] = seed
            kv_cache_utils.init_none_hash(function)
            parent = None
            for first, tokens, extra in blocks():
                keys = (("cache_salt", extra),) if extra else None
                parent = kv_cache_utils.hash_block_tokens(function, None if first else parent, tokens, keys)
                print(name, (seed or "-").replace(" ", "_"), "first" if first else "next", extra or "-",
                      ",".join(map(str, tokens)), parent.hex())


main()
