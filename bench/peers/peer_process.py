# SPDX-License-Identifier: Apache-2.0
"""What the peers' programs on the CPU share: the protocol with paged-bench, and the tensors of a batch.

Requests and replies are JSON lines on standard input and output:

  {"ready": "torch 2.x"} or {"missing": "..."}       once, at the start
  {"open": 3, "work": "attention" or "append", "rows": [[n, q_len, kv_len], ...], "q_heads": .., "kv_heads": ..,
   "dim": .., "data": "PATH" or "", "quick": bool}
                              -> {"us": .., "method": ".."} or {"error": ".."}
  {"sample": 3}               -> {"us": ..}
  {"result": 3, "data": "PATH"}  -> {}, after one more run, whose result is then in the file
  {"close": 3}                -> {}

The file has q, K, V and room for the result, in bf16 (bench/kv/kv_peer.c).  The caller
sets the number of threads, their CPUs and their wait policy by OMP_*.
"""
import json
import os
import sys
import time

TRIES = 3
# CPU time of this thread: only where the caller allows one thread.
CLOCK = time.thread_time if os.environ.get("PAGED_PEER_CLOCK") == "cpu" else time.perf_counter
SAMPLE_S = 0.005


def seconds(call):
    began = CLOCK()
    call()
    return CLOCK() - began


class Case:
    """A batch that is open.  A subclass has run(), and method, a text."""

    def __init__(self, what):
        self.what = what
        self.repeats = 1

    def set_repeats(self):
        took = min(seconds(self.run) for _ in range(1 if self.what["quick"] else TRIES))
        while not self.what["quick"] and took * self.repeats < SAMPLE_S:
            self.repeats *= 2

    def sample_us(self):
        self.run()  # to bring its data into the caches, which the caller's own samples have used meanwhile
        return sum(seconds(self.run) for _ in range(self.repeats)) / self.repeats * 1e6


class Tensors:
    """q and the result [total_q, q_heads, dim], K and V [total_kv, kv_heads, dim], views of the file."""

    def __init__(self, torch, what, path):
        q = (sum(n * q_len for n, q_len, _ in what["rows"]), what["q_heads"], what["dim"])
        kv = (sum(n * kv_len for n, _, kv_len in what["rows"]), what["kv_heads"], what["dim"])
        shapes = [q, kv, kv, q]
        sizes = [a * b * c for a, b, c in shapes]
        flat = torch.from_file(path, shared=True, size=sum(sizes), dtype=torch.bfloat16)
        self.q, self.k, self.v, self.out = (part.view(shape) for part, shape in zip(flat.split(sizes), shapes))


def reply_to(cases, open_case, request):
    if "open" in request:
        cases[request["open"]] = case = open_case(request)
        return {"us": case.sample_us(), "method": case.method}
    if "sample" in request:
        return {"us": cases[request["sample"]].sample_us()}
    if "result" in request:
        cases[request["result"]].write_result(request["data"])
        return {}
    cases.pop(request["close"], None)
    return {}


def serve(start):
    """Answers requests until the caller closes standard input.

    start() imports the peer and returns its name with version, and a function that makes a Case of an open request.
    """
    # Replies use a copy of stdout; everything else that is printed goes to stderr.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def send(reply):
        print(json.dumps(reply), file=out, flush=True)

    try:
        import torch

        torch.manual_seed(1)
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        ready, open_case = start()
    except Exception as error:
        send({"missing": str(error)})
        return 0
    send({"ready": ready})
    cases = {}
    for line in sys.stdin:
        try:
            with torch.no_grad():
                send(reply_to(cases, open_case, json.loads(line)))
        except Exception as error:
            send({"error": f"{type(error).__name__}: {str(error)[:200]}"})
    return 0
