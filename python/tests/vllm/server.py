# SPDX-License-Identifier: Apache-2.0
"""vLLM's HTTP server with the small model, in a process of its own."""
from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from engine import install_plugin, kill_group

from paged.vllm.arguments import command_line

WAIT_S = 1800
OPTIONS = ["--skip-tokenizer-init", "--enforce-eager", "--dtype", "float32", "--max-model-len", "1024",
           "--max-num-seqs", "8"]


def completion(model: Path, prompt: Sequence[int], n_tokens: int, **more: Any) -> dict[str, Any]:
    """The body of a request for so many tokens, greedy if more does not say otherwise."""
    return {"model": str(model), "prompt": list(prompt), "max_tokens": n_tokens, "temperature": 0, "ignore_eos": True,
            "return_token_ids": True, **more}


def post(port: int, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """Return a server's answer, of JSON if it has one.  Raises urllib.error.HTTPError."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body or {}).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
        text = answer.read()
    return json.loads(text) if text else None


class Server:
    """A running server.

    directory
        The server's own: for the log and the entry point of the plug-in.  vLLM's cache is next to it, for all servers.
    keywords
        What paged.vllm.arguments() returns.
    options
        Further options of vllm serve.
    environment
        Variables in addition to those of this process.
    """

    def __init__(self, directory: Path, model: Path, keywords: Mapping[str, Any], *options: str,
                 **environment: str) -> None:
        directory.mkdir()
        install_plugin(directory)
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        self.model = model
        self.log = directory / "log"
        # "nobind": engines that run at the same time would all bind their first thread to the first CPU.
        variables = {**os.environ, "VLLM_CACHE_ROOT": str(directory.parent / "cache"), "VLLM_NO_USAGE_STATS": "1",
                     "HF_HUB_OFFLINE": "1", "VLLM_PLUGINS": "paged", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                     **environment, "PYTHONPATH": ":".join([str(directory), *filter(None, sys.path)])}
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model),
                 "--port", str(self.port), "--host", "127.0.0.1", *OPTIONS, *command_line(dict(keywords)), *options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=variables, start_new_session=True)

    def wait(self) -> None:
        """Wait until the server answers."""
        self.wait_for(self.is_healthy)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait for something that the server, which has to live, does."""
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert self.process.poll() is None and time.monotonic() < deadline, self.end_of_log()
            time.sleep(0.2)

    def wait_for_end(self) -> None:
        """Wait until the server, which has no request, is no longer healthy."""
        deadline = time.monotonic() + WAIT_S
        while self.process.poll() is None and self.is_healthy():
            assert time.monotonic() < deadline, self.end_of_log()
            time.sleep(0.2)

    def end_of_log(self) -> str:
        return self.log.read_text(errors="replace")[-6000:]

    def is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=60):
                return True
        except OSError:
            return False

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the answer, of JSON if it has one.  Raises urllib.error.HTTPError."""
        return post(self.port, path, body)

    def complete(self, prompt: Sequence[int], n_tokens: int, **more: Any) -> Any:
        """Return the answer to a prompt of token ids, with usage and kv_transfer_params."""
        return self.post("/v1/completions", completion(self.model, prompt, n_tokens, **more))

    def tokens(self, prompt: Sequence[int], n_tokens: int, **more: Any) -> list[int]:
        """Return the tokens of the answer."""
        return list(self.complete(prompt, n_tokens, **more)["choices"][0]["token_ids"])

    def metric(self, name: str) -> float:
        """Return the sum of a metric over the server's engines, as Prometheus scrapes it."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=WAIT_S) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.split("{")[0] == name)

    def kill(self) -> None:
        """Kill all processes of the server at once."""
        kill_group(self.process)
