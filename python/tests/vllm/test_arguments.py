# SPDX-License-Identifier: Apache-2.0
"""paged.vllm.arguments(), and the command that prints it; neither needs vLLM."""
import json
import os
import re
import shlex
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
    for n in -5, 0, 1 << 31:
        with pytest.raises(ValueError, match=f"1 to {(1 << 31) - 2} blocks, not {n}"):
            arguments("a", runtime_dir=directory, n_blocks=n)
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


def run_command(*words, **environment):
    return subprocess.run([sys.executable, "-m", "paged.vllm", *words], capture_output=True, text=True,
                          env={**os.environ, **environment})


def test_command(directory):
    """A shell passes each printed word to vllm serve."""
    command = ["arguments", "--runtime-dir", directory]
    words = run_command(*command, "--pool", "a").stdout.split()
    assert words == command_line(arguments("a", runtime_dir=directory))
    assert json.loads(words[words.index("--kv-transfer-config") + 1])["kv_connector"] == "PagedConnector"
    assert "--no-enable-prefix-caching" in words
    # vLLM's worker on CPUs wants 92 % of the machine's memory to be available where this has no number.
    assert words[words.index("--kv-cache-memory-bytes") + 1] == str(1 << 20)
    words = run_command(*command, "--pool", "a", "--role", "consumer", "--blocks", "7").stdout.split()
    assert words == command_line(arguments("a", runtime_dir=directory, role="consumer", n_blocks=7))


@pytest.mark.parametrize("words, reason", [
    (["--pool", "c"], "there is no pool c; there are a, b"),
    (["--pool", ""], "argument --pool: is empty"),
    (["--pool", "*"], "there is no pool *; there are a, b"),
    (["--runtime-dir", ""], "argument --runtime-dir: is empty"),
    (["--blocks", "-5"], "argument --blocks: needs a number of 1 or more, not '-5'"),
    (["--blocks", "0"], "argument --blocks: needs a number of 1 or more, not '0'"),
    (["--blocks", "x"], "argument --blocks: needs a number of 1 or more, not 'x'"),
    (["--blocks", str(1 << 31)], f"vLLM may have 1 to {(1 << 31) - 2} blocks, not {1 << 31}"),
    (["--wait", "-1"], "argument --wait: needs a number of seconds, not '-1'"),
    (["--wait", "nan"], "argument --wait: needs a number of seconds, not 'nan'"),
    (["--no-such"], "unrecognized arguments: --no-such"),
])
def test_command_fails(directory, words, reason):
    """The reason stands on the standard error, and in an option that vLLM does not have: $(...) is not empty."""
    failed = run_command("arguments", "--runtime-dir", directory, *words)
    assert failed.returncode in (1, 2)
    assert failed.stderr.splitlines()[-1] == f"python -m paged.vllm: {reason}"
    assert failed.stdout == f"--paged-vllm-failed={re.sub('[ *]+', '_', reason)}\n"


def in_a_shell(runtime_dir, more=""):
    """The words that vllm serve would get of a shell, and what is on the standard error."""
    script = f'"$0" -c "import json, sys; print(json.dumps(sys.argv[1:]))" $("$0" -m paged.vllm arguments {more})'
    result = subprocess.run(["sh", "-c", script, sys.executable], capture_output=True, text=True, check=True,
                            env={**os.environ, "PAGED_RUNTIME_DIR": str(runtime_dir)})
    return json.loads(result.stdout), result.stderr


def test_directory_of_any_name(start_daemon, tmp_path):
    """What a shell splits or takes for a pattern is one word all the same."""
    runtime_dir = start_daemon(POOLS).runtime_dir
    link = tmp_path / "a  b\t*?[x]\u00e4\\"
    link.symlink_to(runtime_dir)
    words, _ = in_a_shell(runtime_dir, f"--pool a --runtime-dir {shlex.quote(str(link))}")
    assert words == command_line(arguments("a", runtime_dir=str(link)))
    value = json.loads(words[words.index("--kv-transfer-config") + 1])
    assert value["kv_connector_extra_config"]["runtime_dir"] == str(link)
    with paged.connect(value["kv_connector_extra_config"]["runtime_dir"]):
        pass


def test_daemon_that_starts(start_daemon):
    """pagedd ... & and at once $(python -m paged.vllm arguments): it waits, and says so."""
    daemon = start_daemon(POOLS)
    daemon.stop()
    with subprocess.Popen([sys.executable, "-m", "paged.vllm", "arguments", "--pool", "a", "--wait", "3600",
                           "--runtime-dir", str(daemon.runtime_dir)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as process:
        assert process.stderr.readline().startswith("python -m paged.vllm: waiting for pagedd, up to 3600 s: ")
        daemon.start()
        assert process.stdout.read().split() == command_line(arguments("a", runtime_dir=str(daemon.runtime_dir)))
        assert process.wait() == 0


def test_no_daemon(tmp_path):
    words, said = in_a_shell(tmp_path, "--wait 0")
    assert words == [f"--paged-vllm-failed=no_daemon_at_{tmp_path}:_is_pagedd_running_"]
    assert said == f"python -m paged.vllm: no daemon at {tmp_path}: is pagedd running?\n"


def test_vllm_refuses_what_a_failure_prints(tmp_path):
    """With the command of docs/VLLM.md, and the reason in vLLM's message."""
    pytest.importorskip("vllm")
    words, _ = in_a_shell(tmp_path, "--wait 0")
    serve = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", "no-model"]
    refused = subprocess.run([*serve, *words], capture_output=True, text=True)
    assert refused.returncode == 2
    assert f"error: unrecognized arguments: {words[0]}" in refused.stderr
