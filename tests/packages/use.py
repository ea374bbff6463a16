# SPDX-License-Identifier: Apache-2.0
"""Use the installed package paged: embedded, and with the pagedd whose runtime directory is the argument.

Prints nothing; an exception says what is wrong.  It needs only Python, so that it runs where the package is installed
and nothing else.
"""

import os
import sys
from array import array

import paged

GEOMETRY = {"n_layers": 2, "n_kv_heads": 2, "k_dim": 8, "dtype": "f32", "page_size": 4, "n_pages": 8}


def use(client: paged.Client, name: str) -> None:
    """Create a sequence, publish its prefix, start another one on it, and leave nothing behind."""
    with client.pool(name) as pool:
        free = pool.counts().n_free
        [seq] = pool.create(1, 2 * pool.page_size)
        assert len(pool.page_table(seq)) == 2
        assert pool.counts().n_free == free - 2
        with pool.batch() as batch:
            batch.plan(seq, q_len=1, kv_len=1)
        prefix = paged.Prefix(array("I", range(2 * pool.page_size)), page_size=pool.page_size)
        assert prefix.n_tokens == 2 * pool.page_size
        assert pool.match(prefix) == 0
        pool.erase(seq)
        assert pool.counts().n_free == free
        assert pool.check().holds


def main() -> None:
    with paged.embedded({"name": "own", **GEOMETRY}) as client:
        use(client, "own")
    try:
        paged.connect(os.path.join(sys.argv[1], "missing"))
    except paged.NoDaemonError:
        pass
    else:
        raise AssertionError("connected without a daemon")
    with paged.connect(sys.argv[1], name="first") as first, paged.connect(sys.argv[1], name="second") as second:
        name = first.pools()[0]["name"]
        use(first, name)
        use(second, name)
        with first.pool(name) as mine, second.pool(name) as theirs:
            [seq] = mine.create(1, mine.page_size)
            assert theirs.page_table(seq) == mine.page_table(seq)


main()
