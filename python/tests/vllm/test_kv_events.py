# SPDX-License-Identifier: Apache-2.0
"""Frames of paged-events, decoded by vLLM's own classes; their hashes are those that vLLM's functions compute."""
from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

import msgspec
import zmq
from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, KVEventBatch, ZmqEventPublisher
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core import kv_cache_utils

import paged

PAGE_SIZE = 16
MODEL = "small@1"
POOL = f"""
pool test {{
    layers = 1
    kv-heads = 1
    head-dim = 16
    dtype = f32
    page-size = {PAGE_SIZE}
    pages = 256
    model = "{MODEL}"
}}
"""
LIMIT_MS = 20000


class Subscriber:
    """A router: a subscription and a replay socket, and the hashes of the blocks that can be found."""

    def __init__(self, directory: Path) -> None:
        self.context = zmq.Context()
        self.subscription = self.context.socket(zmq.SUB)
        self.subscription.connect(f"ipc://{directory}/events")
        self.subscription.subscribe("")
        self.requests = self.context.socket(zmq.DEALER)
        self.requests.connect(f"ipc://{directory}/replay")
        self.requests.setsockopt(zmq.RCVTIMEO, LIMIT_MS)
        self.decode = msgspec.msgpack.Decoder(type=KVEventBatch).decode
        self.next = 0
        self.stored: dict[Any, BlockStored] = {}

    def close(self) -> None:
        self.context.destroy(linger=0)

    def follow(self, done: Callable[[], bool]) -> None:
        """Apply batches until the condition holds."""
        for _ in range(100):
            if done():
                return
            if self.subscription.poll(200):
                _, number, payload = self.subscription.recv_multipart()
                if int.from_bytes(number, "big") == self.next:
                    self.apply(payload)
                    continue
            self.catch_up()
        assert done()

    def catch_up(self) -> None:
        """Get the batches that were missed, as vLLM's example of a subscriber does."""
        self.requests.send_multipart((b"", self.next.to_bytes(8, "big")))
        while True:
            empty, topic, number, payload = self.requests.recv_multipart()
            assert empty == b""
            if number == ZmqEventPublisher.END_SEQ:
                assert (topic, payload) == (b"", b"")
                return
            assert int.from_bytes(number, "big") == self.next
            self.apply(payload)

    def apply(self, payload: bytes) -> None:
        self.next += 1
        batch = self.decode(payload)
        assert batch.data_parallel_rank == 0
        for event in batch.events:
            if isinstance(event, AllBlocksCleared):
                self.stored.clear()
            elif isinstance(event, BlockRemoved):
                for block in event.block_hashes:
                    del self.stored[block]
            else:
                assert isinstance(event, BlockStored)
                assert event.block_size == PAGE_SIZE and event.medium == "CPU" and event.group_idx == 0
                assert event.kv_cache_spec_kind == "full_attention" and event.locality == "LOCAL"
                assert getattr(event, "lookahead_token_ids", None) is None  # of vLLM 0.33
                assert event.parent_block_hash is None or event.parent_block_hash in self.stored
                for block in event.block_hashes:
                    assert block not in self.stored
                    self.stored[block] = event


@pytest.fixture
def start_events(tmp_path: Path) -> Iterator[Callable[..., Subscriber]]:
    """A function that starts paged-events on a daemon, and returns a subscriber."""
    program = Path(os.environ.get("PAGED_BUILDDIR", Path(paged.__file__).parents[2])) / "events" / "paged-events"
    if not program.exists():
        pytest.skip("paged-events was not built")
    processes: list[subprocess.Popen[bytes]] = []
    subscribers: list[Subscriber] = []

    def start(runtime_dir: Path, *arguments: str) -> Subscriber:
        directory = runtime_dir.parent
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        processes.append(subprocess.Popen(
            [program, "--runtime-dir", runtime_dir, "--endpoint", f"ipc://{directory}/events", "--replay-endpoint",
             f"ipc://{directory}/replay", *arguments], env=environment))
        subscribers.append(Subscriber(directory))
        return subscribers[-1]

    yield start
    for subscriber in subscribers:
        subscriber.close()
    for process in processes:
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0


def block_hashes(function: Callable[[Any], bytes], tokens: list[int], extra: str | None) -> list[bytes]:
    """Return the hashes of a prompt's blocks, by vLLM's own function; the extra key is the first block's."""
    hashes: list[bytes] = []
    for first in range(0, len(tokens), PAGE_SIZE):
        keys = (("cache_salt", extra),) if extra and first == 0 else None
        hashes.append(kv_cache_utils.hash_block_tokens(function, hashes[-1] if hashes else None,
                                                       tokens[first:first + PAGE_SIZE], keys))
    return hashes


def publish(pool: paged.Pool, tokens: list[int], tenant: str) -> str | None:
    """Publish a prompt as an engine does; return the extra key of its first block."""
    salt = paged.salt(MODEL, "", tenant)
    prefix = paged.Prefix(tokens, salt=salt)
    (started,) = pool.start([(prefix, len(tokens))])
    pool.publish(started.seq, prefix)
    pool.client.ping()
    pool.erase(started.seq)
    return hashlib.sha256(salt).hexdigest() if tenant else None


@pytest.mark.parametrize("algorithm", ["sha256", "sha256_cbor"])
@pytest.mark.parametrize("form", ["int", "bytes"])
def test_events_are_vllms(start_daemon, start_events, monkeypatch, algorithm, form):
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    monkeypatch.setenv("VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES", str(int(form == "int")))
    function = get_hash_fn_by_name(algorithm)
    kv_cache_utils.init_none_hash(function)
    daemon = start_daemon(POOL)
    subscriber = start_events(daemon.runtime_dir, "--prefix-caching-hash-algo", algorithm, "--block-hashes", form)
    numbers = random.Random(1)
    expected: dict[Any, list[int]] = {}
    with daemon.connect() as client:
        pool = client.pool("test")
        for i in range(12):
            tokens = [numbers.randrange(150000) for _ in range(PAGE_SIZE * numbers.randrange(1, 8))]
            extra = publish(pool, tokens, "a tenant" if i % 3 == 2 else "")
            for k, block in enumerate(block_hashes(function, tokens, extra)):
                expected[kv_cache_utils.maybe_convert_block_hash(block)] = tokens[k * PAGE_SIZE:(k + 1) * PAGE_SIZE]
        subscriber.follow(lambda: subscriber.stored.keys() == expected.keys())
        for block, event in subscriber.stored.items():
            k = event.block_hashes.index(block)
            assert event.token_ids[k * PAGE_SIZE:(k + 1) * PAGE_SIZE] == expected[block]
        client.evict("test")
        subscriber.follow(lambda: not subscriber.stored)
    assert subscriber.next > 1
