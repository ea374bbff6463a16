# SPDX-License-Identifier: Apache-2.0
"""vLLM's scheduler with PagedConnector on a real pagedd, and in place of a model a runner that checks each K and V.

The runner writes for each token a number that depends on all tokens up to it, and before each step it reads back what
the sequence holds for the tokens that are said to be computed.  So a page that is shared wrongly, missing, or written
by another one, is found at once, without a model.
"""
from __future__ import annotations

import hashlib
import json
import random
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
from vllm.config import KVTransferConfig, VllmConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.sampling_params import SamplingParams
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, SlidingWindowSpec
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

import paged
from paged.vllm import register
from paged.vllm.arguments import arguments
from paged.vllm.pool_scheduler import PoolScheduler
from paged.vllm.step import Step

PAGE = 16
N_TOKEN_IDS = 100
N_ENCODER_TOKENS = 4096
POOL = """
pool test {{
    layers = 1
    kv-heads = 1
    head-dim = 4
    dtype = f32
    page-size = 16
    pages = {pages}
    sequences = 64
    max-length = 1024
    {more}
}}
"""


def pool_configuration(pages: int = 64, more: str = "") -> str:
    return POOL.format(pages=pages, more=more)


def write_model(path: Path) -> Path:
    """Write a configuration of a model, which is never loaded.  What is there already stays: engines compare times."""
    if path.exists():
        return path
    path.mkdir()
    (path / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "vocab_size": 128,
        "intermediate_size": 64, "num_attention_heads": 1, "num_key_value_heads": 1, "num_hidden_layers": 1,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-5}))
    return path


def engine_config(model: Path, runtime_dir: Path, *, n_blocks: int = 0, pool: str = "test", role: str = "both",
                  ticket_timeout: float | None = None, **keywords: Any) -> VllmConfig:
    """vLLM's configuration of an engine that uses the daemon's pool "test"."""
    register()
    values = arguments(pool, runtime_dir=str(runtime_dir), n_blocks=n_blocks or None, role=role)
    if ticket_timeout is not None:
        values["kv_transfer_config"]["kv_connector_extra_config"]["ticket_timeout"] = ticket_timeout
    values = {**values, "max_model_len": 512, "max_num_batched_tokens": 512, "max_num_seqs": 16, **keywords}
    if isinstance(values["kv_transfer_config"], dict):
        values["kv_transfer_config"] = KVTransferConfig(**values["kv_transfer_config"])
    return EngineArgs(model=str(model), skip_tokenizer_init=True, enforce_eager=True, **values).create_engine_config()


def cache_config(config: VllmConfig, **spec: Any) -> KVCacheConfig:
    """The KV cache that vLLM would find for a model with the geometry of pool "test".

    With sliding_window in spec: for one whose layers all have that window.
    """
    import torch
    values = {"block_size": config.cache_config.block_size, "num_kv_heads": 1, "head_size": 4, "dtype": torch.float32}
    config.cache_config.num_gpu_blocks = config.cache_config.num_gpu_blocks_override
    kind = SlidingWindowSpec if "sliding_window" in spec else FullAttentionSpec
    group = KVCacheGroupSpec(["model.layers.0.attn"], kind(**{**values, **spec}))
    return KVCacheConfig(num_blocks=config.cache_config.num_gpu_blocks, kv_cache_tensors=[], kv_cache_groups=[group])


def marks(tokens: Sequence[int]) -> numpy.ndarray:
    """For each token a number that all tokens up to it determine.  Exact in f32."""
    values, crc = [], 0
    for token in tokens:
        crc = zlib.crc32(int(token).to_bytes(4, "little", signed=True), crc)
        values.append(crc & 0xffffff)
    return numpy.array(values, dtype=numpy.float32)


def contents(request: Request) -> list[int]:
    """What the "model" computes on: the tokens, where an image is its picture instead, and the adapter."""
    tokens = list(request._all_token_ids)
    for feature in request.mm_features:
        data: Any = feature.data
        begin, length = feature.mm_position.offset, feature.mm_position.length
        tokens[begin:begin + length] = [-data["picture"]] * length
    if request.lora_request is not None:
        tokens[0] += N_TOKEN_IDS * (1 + zlib.crc32(request.lora_request.lora_path.encode()) % 1000)
    return tokens


def image(picture: int, offset: int, length: int, identifier: str | None = None) -> MultiModalFeatureSpec:
    """An image in a prompt; identifier: vLLM's hash of it, if not another one."""
    data: Any = {"picture": picture}    # the scheduler passes on what the real model has here
    identifier = identifier or hashlib.sha256(b"%d" % picture).hexdigest()
    return MultiModalFeatureSpec(data, "image", identifier, PlaceholderRange(offset, length), identifier)


def next_token(tokens: Sequence[int]) -> int:
    """What the "model" samples after these tokens."""
    return int(marks(tokens)[-1]) % N_TOKEN_IDS


def prompt(n: int, seed: int = 0) -> list[int]:
    generator = random.Random(seed)
    return [generator.randrange(N_TOKEN_IDS) for _ in range(n)]


def answer(prompt: Sequence[int], n: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(n):
        tokens.append(next_token(tokens))
    return tokens[len(prompt):]


class Engine:
    """A scheduler and its runner.

    daemon
        The test's, for its use.
    window
        The sliding window of the "model"; its answers depend on all tokens all the same.
    """

    def __init__(self, config: VllmConfig, daemon: Any = None, window: int | None = None) -> None:
        self.config = config
        self.daemon = daemon
        self.window = window
        cache = cache_config(config, **({"sliding_window": window} if window is not None else {}))
        self.scheduler = PoolScheduler(vllm_config=config, kv_cache_config=cache, log_stats=True,
                                       structured_output_manager=StructuredOutputManager(config),
                                       block_size=config.cache_config.block_size)
        # As for a model with images, which the one of write_model() is not.
        self.scheduler.max_num_encoder_input_tokens = N_ENCODER_TOKENS
        self.scheduler.encoder_cache_manager = EncoderCacheManager(N_ENCODER_TOKENS)
        self.part = self.scheduler.connector._sequences
        self.pool: paged.Pool | None = None         # the runner's
        self.owners: dict[int, int] = {}
        self.answers: dict[str, list[int]] = {}
        self.finished: dict[str, str] = {}
        self.transfers: dict[str, dict[str, Any] | None] = {}   # kv_transfer_params of finished requests
        self.n_computed = 0                         # tokens, in all steps
        self.n_preempted = 0
        self._n = 0

    def add(self, prompt: Sequence[int], max_tokens: int = 20, *, request_id: str | None = None, priority: int = 0,
            cache_salt: str | None = None, images: Sequence[MultiModalFeatureSpec] = (),
            lora: LoRARequest | None = None, resumable: bool = False, transfer: dict[str, Any] | None = None,
            **sampling: Any) -> str:
        """Add a request; with the request_id of a session that waits (resumable), its next turn or its end.

        transfer: kv_transfer_params.
        """
        self._n += 1
        name = request_id or f"r{self._n}"
        extra = {"kv_transfer_params": dict(transfer)} if transfer is not None else None
        parameters = SamplingParams(max_tokens=max_tokens, temperature=0, ignore_eos=True, extra_args=extra, **sampling)
        self.scheduler.add_request(Request(name, list(prompt), parameters, None, priority=priority,
                                           cache_salt=cache_salt, mm_features=list(images), lora_request=lora,
                                           resumable=resumable))
        self.answers.setdefault(name, [])
        return name

    def abort(self, name: str) -> None:
        self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)
        self.answers.pop(name, None)

    def step(self, drafts: Any = None) -> int:
        """Run one step; return how many tokens it computed."""
        self.n_preempted -= self._count_preempted()
        output = self.scheduler.schedule()
        self.n_preempted += self._count_preempted()
        step = output.kv_connector_metadata
        assert isinstance(step, Step)
        result = self._run(step, output)
        if drafts is not None:
            names = list(output.num_scheduled_tokens)
            self.scheduler_drafts = DraftTokenIds(names, [drafts(name) for name in names])
        for items in self.scheduler.update_from_output(output, result).values():
            for item in items.outputs:
                if item.request_id in self.answers:
                    self.answers[item.request_id] += item.new_token_ids
                if item.finish_reason is not None:
                    self.finished[item.request_id] = str(item.finish_reason)
                    self.transfers[item.request_id] = item.kv_transfer_params
        if drafts is not None:
            self.scheduler.update_draft_token_ids(self.scheduler_drafts)
        self.n_computed += output.total_num_scheduled_tokens
        return output.total_num_scheduled_tokens

    def run(self, drafts: Any = None, limit: int = 2000) -> None:
        """Run steps until no request is left."""
        for _ in range(limit):
            if not self.scheduler.has_unfinished_requests():
                # As vLLM does: one more step tells the worker of finished requests.
                self.step()
                return
            self.step(drafts)
        raise AssertionError(f"requests are left after {limit} steps: {self.scheduler.get_num_unfinished_requests()}")

    def close(self) -> None:
        if self.pool is not None:
            client = self.pool.client
            self.pool.close()
            client.close()
        self.scheduler.shutdown()

    def _count_preempted(self) -> int:
        return sum(request.num_preemptions for request in self.scheduler.requests.values())

    def _run(self, step: Step, output: Any) -> ModelRunnerOutput:
        if self.pool is None:
            client = paged.connect(step.runtime_dir, join_token=step.join_token, threads=1, run="own")
            self.pool = client.pool(step.pool)
        for seq, blocks in step.placed:
            self.owners.update(dict.fromkeys(blocks, seq))
        names = list(output.num_scheduled_tokens)
        return ModelRunnerOutput(names, {name: i for i, name in enumerate(names)},
                                 [self._row(step, name, output) for name in names])

    def _row(self, step: Step, name: str, output: Any) -> list[int]:
        request = self.scheduler.requests[name]
        n = output.num_scheduled_tokens[name]
        first = request.num_computed_tokens - n     # schedule() has advanced it
        drafts = output.scheduled_spec_decode_tokens.get(name, [])
        tokens = contents(request)[:first + n - len(drafts)] + drafts
        blocks = self.scheduler.kv_cache_manager.get_block_ids(name)[0]
        seq = self.owners[blocks[(first + n - 1) // PAGE]]
        info = self.pool.read(seq)
        assert info.capacity >= first + n, (name, info, first, n)
        self._check(seq, tokens, first, first + (1 if seq in step.written else 0))
        if seq not in step.written:
            assert info.writable_from <= first, (name, info, first)
            self._append(seq, tokens, first)
        return self._sample(request, tokens, first + n, drafts)

    def _check(self, seq: int, tokens: list[int], query: int, n: int) -> None:
        """K and V of the first n tokens that the query at a position sees are those that the tokens determine."""
        begin = max(0, query - self.window + 1) if self.window is not None else 0
        if n == begin:
            return
        k = numpy.zeros((n - begin, 1, 4), dtype=numpy.float32)
        v = numpy.zeros_like(k)
        with self.pool.batch(max_rows=1) as batch:
            batch.plan([seq], 0, n)
            batch.gather(0, k, v, begin=[begin])
        expected = marks(tokens[:n])[begin:]
        assert (k[:, 0, 0] == expected).all(), (k[:, 0, 0], expected)
        assert (v[:, 0, 3] == -expected).all()

    def _append(self, seq: int, tokens: list[int], first: int) -> None:
        values = marks(tokens)[first:]
        k = numpy.repeat(values, 4).reshape(len(values), 1, 4).astype(numpy.float32)
        with self.pool.batch(max_rows=1) as batch:
            batch.plan([seq], len(values), len(tokens))
            batch.append(0, k, -k)

    def _sample(self, request: Request, tokens: list[int], n: int, drafts: list[int]) -> list[int]:
        if n < request.num_tokens:
            return []       # a chunk of the prompt
        sampled = [next_token(tokens[:len(tokens) - len(drafts)])]
        for i, draft in enumerate(drafts):
            if draft != sampled[-1]:
                break
            sampled.append(next_token(tokens[:len(tokens) - len(drafts) + i + 1]))
        return sampled


def report(engine: Engine) -> tuple[Any, list[dict[str, Any]]]:
    """What pagedd says of the pool: its counts and sequences."""
    with engine.daemon.connect() as client:
        check = client.check("test")
        assert check.holds, check.text
        return check, client.sequences("test")


def assert_idle(engine: Engine) -> None:
    check, sequences = report(engine)
    assert sequences == [] and check.n_referenced == 0
    assert check.n_free + check.n_cached == check.n_pages
