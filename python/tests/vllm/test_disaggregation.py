# SPDX-License-Identifier: Apache-2.0
"""Whole engines of which one computes prompts and others continue them, behind a proxy as vLLM's examples have it."""
from __future__ import annotations

import itertools
import json
import random
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("vllm")

from server import Server, completion, post

from conftest import pool_configuration
from paged.vllm.arguments import arguments

PAGE = 32
REMOTE_DECODE = {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None,
                 "remote_block_ids": None, "remote_host": None, "remote_port": None}
WAIT_S = 300


def prompt(n, seed=0):
    generator = random.Random(seed)
    return [generator.randrange(3, 128) for _ in range(n)]


def prefill(engine, tokens):
    engine.start([tokens], 1, transfers=[REMOTE_DECODE])
    return engine.result()["transfers"][0]


def wait_for(engine, condition):
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert engine.process.poll() is None, engine.log.read_text()[-6000:]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_same_tokens_on_the_same_pages(start_daemon, start_engine):
    """Two consumers in turn; then one is killed in mid-answer, then the producer."""
    daemon = start_daemon(pool_configuration())
    own = start_engine(wait=False)
    producer, *consumers = (start_engine({"runtime_dir": str(daemon.runtime_dir), "role": role}, wait=False)
                            for role in ("producer", "consumer", "consumer"))
    for engine in (own, producer, *consumers):
        assert engine.receive() == "ready"
    prompts = [prompt(n, seed) for seed, n in enumerate((200, 64, 7, 333))]
    right = own.generate(prompts, 60)
    with daemon.connect() as client:
        pool = client.pool("small")
        for i, tokens in enumerate(prompts):
            params = prefill(producer, tokens)
            given, = client.sequences("small")
            assert given["seq"] == params["paged_sequence"]
            n_pages = -(-len(tokens) // PAGE)
            assert pool.page_table(given["seq"])[:n_pages] == params["remote_block_ids"]
            consumer = consumers[i % 2]
            consumer.start([tokens], 60, transfers=[params])
            # The consumer's answer is on the pages that the producer wrote.
            wait_for(consumer, lambda: client.tickets() == [])
            adopted = client.sequences("small")
            assert all(entry["seq"] == given["seq"] and entry["session"] != given["session"] for entry in adopted)
            result = consumer.result()
            assert result["tokens"] == [[right[i]]]
            # As vLLM counts it: what the producer found in the cache.
            assert client.sequences("small") == []
        params = prefill(producer, prompts[0])
        consumers[0].start([prompts[0]], 500, transfers=[params])
        wait_for(consumers[0], lambda: client.tickets() == [])
        consumers[0].kill()
        consumers[1].start([prompts[0]], 60, transfers=[params])
        assert consumers[1].result()["tokens"] == [[right[0]]]
        params = prefill(producer, prompts[1])
        producer.kill()
        consumers[1].start([prompts[1]], 60, transfers=[params])
        assert consumers[1].result()["tokens"] == [[right[1]]]
        assert client.tickets() == [] and client.sequences("small") == []
        check = client.check("small")
        assert check.holds and check.n_referenced == 0, check.text


# Servers, and a proxy


def start_proxy(prefiller, decoders):
    """What vLLM's toy_proxy_server.py does: prefill with max_tokens 1, then the decoders in turn."""
    turns = itertools.cycle(decoders)

    class Proxy(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            first = prefiller.post(self.path, {**body, "kv_transfer_params": REMOTE_DECODE, "max_tokens": 1})
            if first.get("kv_transfer_params"):
                body["kv_transfer_params"] = first["kv_transfer_params"]
            answer = json.dumps(next(turns).post(self.path, body)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *arguments):
            pass

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    return proxy


def test_proxy(tmp_path, start_daemon, start_engine, small_model):
    """Requests over HTTP to a prefill server and, in turn, to two decode servers; half of them at the same time."""
    daemon = start_daemon(pool_configuration(pages=128))
    servers = [Server(tmp_path / role, small_model, arguments("small", runtime_dir=str(daemon.runtime_dir),
                                                              role=role.rstrip("12")))
               for role in ("producer", "consumer1", "consumer2")]
    try:
        own = start_engine()
        prompts = [prompt(n, seed) for seed, n in enumerate((200, 64, 7, 333, 100, 90))]
        right = own.generate(prompts, 40)
        own.close()
        for server in servers:
            server.wait()
        proxy = start_proxy(servers[0], servers[1:])
        port = proxy.server_address[1]
        answers = [None] * len(prompts)

        def ask(i):
            answers[i] = post(port, "/v1/completions", completion(small_model, prompts[i], 40))

        for i in range(3):
            ask(i)
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(3, 6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        proxy.shutdown()
        assert [answer["choices"][0]["token_ids"] for answer in answers] == right
        with daemon.connect() as client:
            assert client.tickets() == [] and client.sequences("small") == []
            check = client.check("small")
            assert check.holds and check.n_referenced == 0, check.text
        # Each decode server adopted three sequences, and refused none.
        assert not any("handed over cannot be used" in server.log.read_text() for server in servers)
        # They would have said so.
        for params, reason in (({}, "there is no paged_ticket"), ({"paged_ticket": "00"}, "paged_ticket is '00'")):
            params = {**servers[0].complete(prompts[0], 1, kv_transfer_params=REMOTE_DECODE)["kv_transfer_params"],
                      **params} if params else {"do_remote_prefill": True}
            assert servers[1].tokens(prompts[0], 40, kv_transfer_params=params) == right[0]
            assert f"the sequence that was handed over cannot be used: {reason}" in servers[1].log.read_text()
    finally:
        for server in servers:
            server.kill()
