# SPDX-License-Identifier: Apache-2.0
"""The log function of a client."""
import gc
import sys
import weakref

import pytest

import paged
from conftest import POOL


def test_log(daemon):
    lines = []
    with daemon.connect(log=lambda level, text: lines.append((level, text))) as client:
        with pytest.raises(paged.NotFoundError) as caught:
            client.pool("other")
    assert any(level == paged.LOG_DEBUG and str(caught.value) in text for level, text in lines)


def test_log_function_that_fails(monkeypatch):
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", seen.append)

    def log(level, text):
        raise KeyError(text)

    with paged.embedded(POOL, threads=1, log=log) as client:
        with pytest.raises(paged.NotFoundError):
            client.pool("other")
    assert seen[0].exc_type is KeyError
    assert seen[0].object is log


def test_log_function_must_not_call_paged():
    errors = []

    def log(level, text):
        for call in (client.ping, client.close, lambda: client.session, pool.counts, pool.close):
            try:
                call()
            except RuntimeError as error:
                errors.append(str(error))

    with paged.embedded(POOL, threads=1, log=log) as client:
        pool = client.pool("test")
        with pytest.raises(paged.InvalidError):
            pool.read(12345)
        assert len(errors) == 5
        assert errors[0] == "a log function must not call paged"
        client.ping()


def test_log_function_of_one_client_and_another_client(daemon):
    """The end of a client inside a log function may log too: the outer function must still not call paged."""
    errors = []

    def log(level, text):
        others.clear()
        for call in (client.ping, pool.counts, kept.close):
            try:
                call()
            except RuntimeError as error:
                errors.append(str(error))

    others = [daemon.connect_impatient(0.1, log=lambda level, text: lines.append(text))]
    lines = []
    with paged.embedded(POOL, threads=1) as kept, paged.embedded(POOL, threads=1, log=log) as client:
        pool = client.pool("test")
        daemon.kill()
        with pytest.raises(paged.NotFoundError):
            client.pool("other")
        assert errors == ["a log function must not call paged"] * 3
        assert not kept.closed


def test_log_function_may_drop_a_pool():
    pools = []

    with paged.embedded(POOL, threads=1, log=lambda level, text: pools.clear()) as client:
        pools.append(client.pool("test"))
        with pytest.raises(paged.NotFoundError):
            client.pool("other")
        assert pools == []


def test_cycle_through_the_log_function_is_collected():
    class Owner:
        pass

    owner = Owner()
    owner.client = paged.embedded(POOL, threads=1, log=lambda level, text, owner=owner: None)
    owner.pool = owner.client.pool("test")
    client = weakref.ref(owner.client)
    del owner
    gc.collect()
    assert client() is None
