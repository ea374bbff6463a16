# SPDX-License-Identifier: Apache-2.0
"""What happens to a PagedCache when the pool is full, in forked children, among processes, and at its end."""
import copy
import gc
import os
import weakref
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch
from model_cases import (
    PAGE_SIZE,
    attention,
    check_empty,
    expected,
    make_model,
    pool_for,
    pool_settings,
    random_tokens,
    run,
)

import paged
from paged.transformers import PagedCache

TOLERANCE = {"atol": 1e-4, "rtol": 1e-4}
CONFIGURATION = f"""
pool test {{
    layers = 4
    kv-heads = 2
    head-dim = 16
    dtype = f32
    page-size = {PAGE_SIZE}
    pages = 128
    max-length = 512
}}
"""


def expected_eager(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    with attention(model, "eager"):
        return expected(model, tokens)


@pytest.mark.parametrize("dense", [False, True])
def test_full_pool(dense: bool) -> None:
    """A pass that finds no pages changes nothing; it can be repeated when there are some."""
    model = make_model("llama")
    tokens = random_tokens(2, 5 * PAGE_SIZE)
    with pool_for(model, n_pages=12) as pool, attention(model, "eager" if dense else "paged"):
        other = pool.create(1, 4 * PAGE_SIZE)
        cache = PagedCache(pool, reserve_ahead=0, dense=dense)
        logits = [run(model, cache, tokens[:, :3 * PAGE_SIZE])]
        for _ in range(2):
            with pytest.raises(paged.FullError):
                run(model, cache, tokens, begin=3 * PAGE_SIZE)
            assert cache.get_seq_length() == 3 * PAGE_SIZE
        pool.erase(other)
        logits.append(run(model, cache, tokens, begin=3 * PAGE_SIZE))
        cache.close()
    torch.testing.assert_close(torch.cat(logits, 1), expected_eager(model, tokens), **TOLERANCE)


def test_first_pass_in_a_full_pool() -> None:
    """The next first pass may have other rows."""
    model = make_model("llama")
    tokens = random_tokens(3, 4 * PAGE_SIZE)
    with pool_for(model, n_pages=10) as pool, attention(model, "paged"):
        cache = PagedCache(pool)
        with pytest.raises(paged.FullError):
            run(model, cache, tokens)
        torch.testing.assert_close(run(model, cache, tokens[:2]), expected_eager(model, tokens[:2]), **TOLERANCE)
        with pytest.raises(ValueError, match="the cache has 2 rows, the batch 3"):
            run(model, cache, random_tokens(3, 1))
        assert cache.get_seq_length() == 4 * PAGE_SIZE
        cache.close()


def test_failure_inside_of_a_pass() -> None:
    """A pass that fails between two layers has lengthened some; crop() takes it back."""
    model = make_model("llama")
    tokens = random_tokens(2, 20)

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    with pool_for(model) as pool, attention(model, "paged"):
        cache = PagedCache(pool)
        run(model, cache, tokens[:, :15])
        hook = model.model.layers[2].register_forward_pre_hook(fail)
        with pytest.raises(KeyboardInterrupt):
            run(model, cache, tokens, begin=15)
        hook.remove()
        cache.crop(15 - cache.get_seq_length())
        logits = run(model, cache, tokens, begin=15)
        torch.testing.assert_close(logits, expected_eager(model, tokens)[:, 15:], **TOLERANCE)
        cache.close()


def test_end() -> None:
    """close(), reset() and the end of the last reference give the pages back; no garbage collection is needed."""
    model = make_model("llama")
    tokens = random_tokens(2, 20)
    gc.disable()
    try:
        with pool_for(model) as pool, attention(model, "paged"):
            cache = PagedCache(pool)
            run(model, cache, tokens)
            cache.reset()
            check_empty(pool)
            assert cache.get_seq_length() == 0 and cache.sequences == [] and cache.batch_size == -1
            run(model, cache, tokens[:1])
            collected = weakref.ref(cache)
            del cache
            assert collected() is None
            check_empty(pool)
            cache = PagedCache(pool)
            run(model, cache, tokens)
            cache.close()
            cache.close()
            check_empty(pool)
            for use in (lambda: run(model, cache, tokens), lambda: cache.start(tokens), lambda: copy.deepcopy(cache)):
                with pytest.raises(ValueError, match="the cache is closed"):
                    use()
    finally:
        gc.enable()


def test_client_closes_first() -> None:
    """The pages have gone with the client; the cache ends in silence."""
    model = make_model("llama")
    client = paged.embedded(pool_settings(model), threads=1, run="own")
    with attention(model, "paged"):
        cache = PagedCache(client.pool("test"))
        run(model, cache, random_tokens(1, 9))
        client.close()
        with pytest.raises(RuntimeError, match="closed"):
            run(model, cache, random_tokens(1, 1))
    cache.close()


def test_forked_child() -> None:
    """Every use raises ForkError; the end of the cache in the child leaves the parent's pages alone."""
    model = make_model("llama")
    tokens = random_tokens(1, 20)
    with pool_for(model) as pool, attention(model, "paged"):
        cache = PagedCache(pool)
        run(model, cache, tokens[:, :15])
        child = os.fork()
        if child == 0:
            status = 1
            try:
                torch.set_num_threads(1)    # the threads of the parent are not here
                try:
                    cache.reorder_cache(torch.tensor([0, 0]))
                except paged.ForkError:
                    status = 0
                del cache
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        logits = run(model, cache, tokens, begin=15)
        torch.testing.assert_close(logits, expected_eager(model, tokens)[:, 15:], **TOLERANCE)
        cache.close()


PROCESS = """
import sys
sys.path.insert(0, sys.argv[2])
import torch
from model_cases import attention, make_model, random_tokens, run
import paged
from paged.transformers import PagedCache

model = make_model("llama")
tokens = random_tokens(2, 40)
pool = paged.connect(sys.argv[1], threads=1, run="own").pool("test")
cache = PagedCache(pool, salt=paged.salt("model"))
with attention(model, "paged"):
    begin = cache.start(tokens)
    run(model, cache, tokens, begin=begin)
cache.publish(tokens)
print(begin, flush=True)
input()
"""


def test_processes(start_daemon: Any, worker: Any) -> None:
    """Two processes share what one computed.  The pages of one that is killed are free, or cached."""
    daemon = start_daemon(CONFIGURATION)
    with daemon.connect() as client:
        pool = client.pool("test")
        first = worker(PROCESS, str(daemon.runtime_dir), str(Path(__file__).parent))
        assert first.line() == "0"
        second = worker(PROCESS, str(daemon.runtime_dir), str(Path(__file__).parent))
        assert second.line() == "39"
        first.kill()
        second.kill()
        pool.wait_free(128, 30)
        assert pool.counts().n_referenced == 0 and pool.counts().n_cached == 10
        result = pool.check()
        assert result.holds and result.n_sequences == 0, result.text
