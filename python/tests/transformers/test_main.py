# SPDX-License-Identifier: Apache-2.0
"""python -m paged.transformers runs programs as python does."""
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from model_cases import make_model, pool_settings

from paged.transformers.__main__ import _count_own, _parse
from paged.transformers.geometry import pool_section

# A program that knows nothing of paged.
PROGRAM = """
import sys
import torch
from transformers import AutoModelForCausalLM

torch.set_num_threads(1)
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
tokens = torch.arange(1, 38)[None]
print(model.generate(tokens, do_sample=False, max_new_tokens=20).tolist())
"""


def run(arguments, directory, **environment):
    return subprocess.run([sys.executable, *arguments], cwd=directory, text=True, capture_output=True, check=False,
                          env={**os.environ, **environment})


def run_paged(arguments, directory, **environment):
    return run(["-m", "paged.transformers", *arguments], directory, **environment)


@pytest.fixture
def directory(tmp_path):
    """Where the programs of a test are."""
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "argv.py").write_text("import sys\nprint(__name__, __file__, sys.argv, sys.path[0])\n")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__main__.py").write_text("import sys\nprint(__name__, __package__, sys.argv)\n")
    return tmp_path


def test_an_unmodified_program(directory, start_daemon):
    model = make_model("llama")
    model.save_pretrained(directory / "tiny")
    daemon = start_daemon(pool_section({**pool_settings(model), "v_dim": 16}, "tiny@1"))
    own = run(["program.py", "tiny"], directory)
    assert own.returncode == 0, own.stderr
    for _ in range(2):
        result = run_paged(["program.py", "tiny"], directory, PAGED_RUNTIME_DIR=str(daemon.runtime_dir))
        assert (result.returncode, result.stdout) == (0, own.stdout), result.stderr
        with daemon.connect() as client:
            assert client.check("test").holds
            counts = client.pool("test").counts()
            # 37 tokens and 19 of the answer have K and V, in pages of 8.
            assert (counts.n_referenced, counts.n_cached) == (0, 7)


def test_without_a_daemon(directory):
    make_model("llama").save_pretrained(directory / "tiny")
    own = run(["program.py", "tiny"], directory)
    result = run_paged(["program.py", "tiny"], directory, PAGED_RUNTIME_DIR=str(directory))
    assert (result.returncode, result.stdout) == (0, own.stdout)
    assert result.stderr.count(f"no daemon at {directory}") == 1


@pytest.mark.parametrize("arguments", [["./argv.py", "-m", "--pool", "a b", ""], ["package", "--help"],
                                       ["-m", "package", "-x", "1"]], ids=str)
def test_the_program_sees_what_python_shows_it(directory, arguments):
    expected = run(arguments, directory)
    found = run_paged(arguments, directory)
    assert expected.returncode == 0, expected.stderr
    assert (found.returncode, found.stdout) == (0, expected.stdout), found.stderr


ENDS = {
    "status": "import atexit, sys\natexit.register(print, 'end')\nsys.exit(3)",
    "error": "def f():\n    {}['x']\n\ntry:\n    f()\nexcept KeyError as e:\n    raise ValueError('wrong') from e",
    "syntax": "def f(:",
    # Where the tests run in the background of a shell, SIGINT is ignored.
    "interrupt": "import os, signal, time\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
                 "os.kill(os.getpid(), signal.SIGINT)\ntime.sleep(10)",
}


@pytest.mark.parametrize("end", ENDS)
def test_status_and_traceback(directory, end):
    (directory / "end.py").write_text(ENDS[end])
    expected = run(["end.py"], directory)
    found = run_paged(["end.py"], directory)
    assert (found.returncode, found.stdout) == (expected.returncode, expected.stdout)
    assert found.stderr == expected.stderr
    assert end != "interrupt" or found.returncode == -signal.SIGINT


def test_missing_program(directory):
    expected = run(["nothing.py"], directory)
    found = run_paged(["nothing.py"], directory)
    assert (found.returncode, found.stderr) == (expected.returncode, expected.stderr)


def test_no_program(directory):
    result = run_paged([], directory)
    assert result.returncode == 2 and "name a script, or a module with -m" in result.stderr


@pytest.mark.parametrize("arguments, reason", [
    (["--print-pool", "m", "--pages", "-5"], "argument --pages: needs a number of 1 or more, not '-5'"),
    (["--print-pool", "m", "--pages", "0"], "argument --pages: needs a number of 1 or more, not '0'"),
    (["--print-pool", "m", "--pages", "1k"], "argument --pages: needs a number of 1 or more, not '1k'"),
    (["--print-pool", ""], "argument --print-pool: is empty"), (["--pool", "", "a.py"], "argument --pool: is empty"),
    (["--runtime-dir=", "a.py"], "argument --runtime-dir: is empty"), (["-m", ""], "argument -m: is empty")])
def test_options_without_a_meaning(capsys, arguments, reason):
    with pytest.raises(SystemExit):
        _parse(arguments)
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"error: {reason}")


@pytest.mark.parametrize("arguments, n_own", [
    ([], 0), (["a.py", "--pool", "x"], 0), (["--pool", "x", "a.py"], 2), (["--pool=x", "a.py", "-m"], 1),
    (["-m", "a", "-m"], 2), (["-ma", "b"], 1), (["--pool", "x", "-m", "a", "b"], 4), (["--help"], 1)])
def test_which_options_are_its_own(arguments, n_own):
    assert _count_own(arguments) == n_own


def test_print_pool(directory, start_daemon):
    make_model("llama").save_pretrained(directory / "Tiny.1")
    result = run_paged(["--print-pool", "Tiny.1", "--pages", "64", "--dtype", "bf16"], directory)
    assert result.returncode == 0, result.stderr
    with start_daemon(result.stdout).connect() as client:
        pool = client.pool("tiny-1")
        assert (pool.n_layers, pool.n_kv_heads, pool.k_dim, pool.n_pages) == (4, 2, 16, 64)
        assert (pool.dtype, pool.model, pool.max_length) == ("bf16", "Tiny.1", 512)


def test_print_pool_of_a_model_that_fits_none(directory):
    Path(directory / "mamba").mkdir()
    (directory / "mamba" / "config.json").write_text('{"model_type": "mamba", "num_hidden_layers": 2}')
    result = run_paged(["--print-pool", "mamba"], directory)
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert "a model of type mamba has K and V that fit no pool" in result.stderr
