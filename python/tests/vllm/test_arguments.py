# SPDX-License-Identifier: Apache-2.0
"""paged.vllm.arguments(), and the command that prints it; neither needs vLLM."""
import json
import subprocess
import sys

import pytest

import paged
from paged._engines import POOL_VARIABLE
from paged.vllm.arguments import arguments, command_line

POOLS = """
pool a {
    layers = 2
    kv-heads = 2
    head-dim = 16
    dtype = f32
    page-size = 32
    pages = 10
}
pool b {
    layers = 4
    kv-heads = 2
    head-dim = 16
    dtype = bf16
    page-size = 16
    pages = 20
}
"""


@pytest.fixture
def directory(start_daemon):
    return str(start_daemon(POOLS).runtime_dir)


def test_named_pool(directory):
    keywords = arguments("a", runtime_dir=directory)
    assert keywords["block_size"] == 32
    assert keywords["num_gpu_blocks_override"] == 4 * 10 + 1
    assert keywords["kv_transfer_config"] == {
        "kv_connector": "PagedConnector", "kv_role": "kv_both",
        "kv_connector_extra_config": {"pool": "a", "runtime_dir": directory}}
    assert keywords["scheduler_cls"] == "paged.vllm.pool_scheduler.PoolScheduler"
    assert arguments("b", runtime_dir=directory, n_blocks=7)["num_gpu_blocks_override"] == 7 + 1
    assert arguments("a", runtime_dir=directory, role="producer")["kv_transfer_config"]["kv_role"] == "kv_producer"
    with pytest.raises(ValueError, match="no role 'prefill'; there are both, producer, consumer"):
        arguments("a", runtime_dir=directory, role="prefill")


def test_choice_of_pool(directory, monkeypatch):
    monkeypatch.delenv(POOL_VARIABLE, raising=False)
    with pytest.raises(LookupError, match="pools a, b: name one"):
        arguments(runtime_dir=directory)
    with pytest.raises(LookupError, match="no pool c; there are a, b"):
        arguments("c", runtime_dir=directory)
    monkeypatch.setenv(POOL_VARIABLE, "b")
    assert arguments(runtime_dir=directory)["block_size"] == 16
    with pytest.raises(paged.NoDaemonError):
        arguments("a", runtime_dir=directory + "/none")


def test_command(directory):
    """A shell passes each printed word to vllm serve."""
    command = [sys.executable, "-m", "paged.vllm", "arguments", "--runtime-dir", directory]
    words = subprocess.run([*command, "--pool", "a"], capture_output=True, text=True, check=True).stdout.split()
    assert words == command_line(arguments("a", runtime_dir=directory))
    assert json.loads(words[words.index("--kv-transfer-config") + 1])["kv_connector"] == "PagedConnector"
    assert "--no-enable-prefix-caching" in words
    words = subprocess.run([*command, "--pool", "a", "--role", "consumer"], capture_output=True, text=True,
                           check=True).stdout.split()
    assert words == command_line(arguments("a", runtime_dir=directory, role="consumer"))
    failed = subprocess.run([*command, "--pool", "c"], capture_output=True, text=True)
    assert failed.returncode == 1 and failed.stderr == "python -m paged.vllm: there is no pool c; there are a, b\n"
