# SPDX-License-Identifier: Apache-2.0
"""The extension and the interpreter: subinterpreters, loading, the end, references."""
import os
import subprocess
import sys

import pytest

import paged
from conftest import POOL


def test_subinterpreter_is_refused():
    source = """if True:
        import sys
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        if len(sys.argv) > 1:
            import paged
        try:
            text = interpreters.run_string(interpreters.create(), "import paged")
        except Exception as error:
            text = error
        # From 3.12 on, Python itself refuses an interpreter with a GIL of its own.
        assert "subinterpreter" in str(text) and "ImportError" in repr(text), text
    """
    pytest.importorskip("_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters")
    for arguments in ([], ["after the main interpreter"]):
        subprocess.run([sys.executable, "-c", source, *arguments], check=True)


def test_module_is_loaded_once():
    source = """if True:
        import sys, paged
        first = paged.connect
        for name in [name for name in sys.modules if name.startswith("paged")]:
            del sys.modules[name]
        try:
            import paged
        except ImportError as error:
            assert "cannot be loaded twice" in str(error), error
        else:
            sys.exit("loaded twice")
    """
    subprocess.run([sys.executable, "-c", source], check=True)


def test_end_of_the_interpreter_with_open_objects(daemon):
    source = """if True:
        import os, paged, sys, threading
        client = paged.connect(threads=1, log=lambda level, text: None)
        pool = client.pool("test")
        pool.create(1, 16)
        threading.Thread(target=pool.wait_free, args=(64, 60), daemon=True).start()
        while not threading.active_count() == 2:
            pass
    """
    subprocess.run([sys.executable, "-X", "dev", "-c", source], check=True,
                   env={**os.environ, "PAGED_RUNTIME_DIR": str(daemon.runtime_dir)})


def test_no_call_leaks_references(embedded):
    """Failing and succeeding calls leave the number of references to their arguments alone."""
    pool = embedded.pool("test")
    name, tokens = "a name".upper(), [1 << 40] * 20
    thing = object()
    arguments = [name, tokens, thing]
    before = [sys.getrefcount(argument) for argument in arguments]
    for _ in range(3):
        for call in [lambda: pool.create(1, tokens), lambda: embedded.pool(name), lambda: pool.match(name),
                     lambda: pool.erase(thing), lambda: pool.create(2, tag=thing), lambda: paged.Prefix(tokens),
                     lambda: paged.embedded({"name": name}), lambda: paged.embedded({**POOL, "name": thing}),
                     lambda: paged.embedded({**POOL, "name": name}, log=thing), lambda: pool.start([(thing, 1)]),
                     lambda: pool.publish(tokens, [thing] * 20), lambda: embedded.kick(thing)]:
            with pytest.raises((TypeError, OverflowError, paged.Error, ValueError)):
                call()
    assert [sys.getrefcount(argument) for argument in arguments] == before
