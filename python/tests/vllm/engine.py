# SPDX-License-Identifier: Apache-2.0
"""An engine of vLLM in a process that obeys lines of JSON; Engine is the other end.

The first line has the keywords of vllm.LLM, each further line prompts and sampling parameters.  Each is answered by a
line, once the engine is ready or the requests are finished.
"""
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

# The plug-in's entry point, as a wheel of paged has it.
METADATA = {"METADATA": "Metadata-Version: 2.1\nName: paged\nVersion: 0\n",
            "entry_points.txt": "[vllm.general_plugins]\npaged = paged.vllm:register\n"}

Prompt = Sequence[int] | Mapping[str, Any]
Adapter = tuple[str, int, str]      # arguments of LoRARequest: name, number, path


def install_plugin(directory: Path) -> None:
    """Make vLLM find the plug-in, in processes that have the directory in PYTHONPATH."""
    info = directory / "paged-0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    for name, text in METADATA.items():
        (info / name).write_text(text)


class Engine:
    """A running engine.

    directory
        The engine's own: for the log, vLLM's cache and the entry point of the plug-in.
    keywords
        Arguments of vllm.LLM.
    environment
        Variables in addition to those of this process.
    """

    def __init__(self, directory: Path, keywords: Mapping[str, Any], **environment: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        install_plugin(directory)
        self.log = directory / "log"
        # "nobind": engines that run at the same time would all bind their first thread to the first CPU.
        variables = {"VLLM_CACHE_ROOT": str(directory / "cache"), "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1",
                     "VLLM_PLUGINS": "paged", "VLLM_CPU_OMP_THREADS_BIND": "nobind", **os.environ, **environment,
                     "PYTHONPATH": ":".join([str(directory), *filter(None, sys.path)])}
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=log, text=True, env=variables, start_new_session=True)
        self.send(keywords)

    def send(self, value: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(value) + "\n")
        self.process.stdin.flush()

    def receive(self) -> Any:
        """Return the next answer.  Raises RuntimeError with the log's end if the engine has failed."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the engine has ended:\n{self.log.read_text(errors='replace')[-6000:]}")
        return json.loads(line)

    def start(self, prompts: Sequence[Prompt], n_tokens: int = 16, adapters: Sequence[Adapter | None] | None = None,
              transfers: Sequence[Mapping[str, Any] | None] | None = None, **sampling: Any) -> None:
        """Begin to generate; result() waits for the tokens.

        prompts
            Token ids, or mappings of vLLM's TokensPrompt.
        n_tokens
            Tokens of each output, its end token notwithstanding.  Greedy, if the sampling parameters tell nothing else.
        adapters
            One for each prompt.
        transfers
            kv_transfer_params of each prompt.
        structured_outputs
            One of the sampling parameters: arguments of vLLM's StructuredOutputsParams.
        """
        items = [prompt if isinstance(prompt, Mapping) else {"prompt_token_ids": list(prompt)} for prompt in prompts]
        self.send({"prompts": items, "adapters": adapters, "transfers": transfers or [None] * len(items),
                   "sampling": {"max_tokens": n_tokens, "ignore_eos": True, "temperature": 0, **sampling}})

    def result(self) -> Any:
        """Return a mapping.

        tokens: [[ids of an output, ...] of a prompt, ...].  cached: of each prompt, how many tokens vLLM did not
        compute.  transfers: kv_transfer_params of each output.  seconds: of generate().  preemptions: until now, or
        None if the engine does not count them.
        """
        return self.receive()

    def generate(self, prompts: Sequence[Prompt], n_tokens: int = 16, **keywords: Any) -> list[list[int]]:
        """Return the tokens of the first output of each prompt."""
        self.start(prompts, n_tokens, **keywords)
        return [outputs[0] for outputs in self.result()["tokens"]]

    def kill(self) -> None:
        """Kill all processes of the engine at once."""
        kill_group(self.process)

    def close(self) -> None:
        """Let the engine end; kill what is left of it after a minute."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
            self.process.wait(300)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            pass
        self.kill()


def kill_group(process: subprocess.Popen[Any]) -> None:
    """Kill all processes of a process's group at once, and wait for it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def preemptions(llm: Any) -> int | None:
    """How many times the engine has preempted a request; None without statistics."""
    if not llm.llm_engine.log_stats:
        return None
    return sum(metric.value for metric in llm.get_metrics() if metric.name == "vllm:num_preemptions")


def serve(commands: TextIO, answers: TextIO) -> None:
    from vllm import LLM, SamplingParams
    from vllm.lora.request import LoRARequest
    from vllm.sampling_params import StructuredOutputsParams

    def answer(value: Any) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    llm = LLM(**json.loads(commands.readline()))
    answer("ready")
    for line in commands:
        call = json.loads(line)
        keywords = call["sampling"]
        if "structured_outputs" in keywords:
            keywords["structured_outputs"] = StructuredOutputsParams(**keywords["structured_outputs"])
        sampling = [SamplingParams(**keywords, detokenize=False,
                                   extra_args={"kv_transfer_params": transfer} if transfer else None)
                    for transfer in call["transfers"]]
        adapters = call["adapters"] and [item and LoRARequest(*item) for item in call["adapters"]]
        begin = time.perf_counter()
        outputs = llm.generate(call["prompts"], sampling, lora_request=adapters, use_tqdm=False)
        seconds = time.perf_counter() - begin
        answer({"tokens": [[list(one.token_ids) for one in output.outputs] for output in outputs], "seconds": seconds,
                "cached": [output.num_cached_tokens for output in outputs], "preemptions": preemptions(llm),
                "transfers": [output.kv_transfer_params for output in outputs]})


if __name__ == "__main__":
    # vLLM prints to the standard output, too.
    stream = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(sys.stdin, stream)
