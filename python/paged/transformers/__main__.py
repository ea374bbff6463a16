# SPDX-License-Identifier: Apache-2.0
"""python -m paged.transformers: runs a program whose models keep K and V in the pages of a pool.

    python -m paged.transformers [OPTION]... SCRIPT [ARGUMENT]...
    python -m paged.transformers [OPTION]... -m MODULE [ARGUMENT]...
    python -m paged.transformers --print-pool MODEL [--pages N] [--dtype D]

The program needs no change: paged.transformers.enable() lets generate() use a pool.  The last form prints the section
of pagedd.conf(5) for a model, without loading its weights.
"""
from __future__ import annotations

import argparse
import builtins
import io
import os
import runpy
import sys
import types
import zipfile

from paged._engines import positive_option, text_option

_PAGES = 4096


def main() -> None:
    """Run the command line."""
    options = _parse(sys.argv[1:])
    if options.print_pool:
        _print_pool(options)
        return
    # Not before: the message of a wrong option needs no transformers.
    from paged.transformers import enable
    enable(options.pool, runtime_dir=options.runtime_dir)
    _hide_own_frames()
    if options.m:
        sys.argv = [options.m, *options.arguments]
        runpy.run_module(options.m, run_name="__main__", alter_sys=True)
        return
    sys.argv = options.arguments
    _run_script(sys.argv[0])


def _run_script(script: str) -> None:
    """Run a script as __main__, or a directory or archive that has a __main__.py."""
    if os.path.isdir(script) or zipfile.is_zipfile(script):
        runpy.run_path(script, run_name="__main__")
        return
    path = os.path.join(os.getcwd(), script)
    try:
        with io.open_code(path) as file:
            source = file.read()
    except OSError as error:
        print(f"{sys.executable}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr)
        sys.exit(2)
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=path, __builtins__=builtins, __annotations__={}, __cached__=None)
    sys.modules["__main__"] = module
    exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m paged.transformers", allow_abbrev=False,
                                     usage="%(prog)s [OPTION]... (SCRIPT | -m MODULE) [ARGUMENT]...\n"
                                           "       %(prog)s --print-pool MODEL [--pages N] [--dtype D]")
    parser.add_argument("-m", metavar="MODULE", type=text_option, help="run a module, as python -m does")
    parser.add_argument("--pool", type=text_option,
                        help="the name of the pool; the default is $PAGED_POOL, or the only one that fits")
    parser.add_argument("--runtime-dir", type=text_option,
                        help="the daemon's; the default is $PAGED_RUNTIME_DIR, or /run/paged")
    parser.add_argument("--print-pool", metavar="MODEL", type=text_option,
                        help="print the section of pagedd.conf for a model")
    parser.add_argument("--pages", type=positive_option, default=_PAGES,
                        help=f"with --print-pool; the default is {_PAGES}")
    parser.add_argument("--dtype", choices=("f32", "f16", "bf16", "i8"),
                        help="with --print-pool; the default is that of the weights")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    n_own = _count_own(arguments)
    options = parser.parse_args(arguments[:n_own])
    options.arguments = arguments[n_own:]
    if not options.print_pool and not options.m and not options.arguments:
        parser.error("name a script, or a module with -m")
    return options


def _count_own(arguments: list[str]) -> int:
    """Return how many arguments are options of this program; the others are the script's own."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        option = arguments[at]
        alone = option in ("-h", "--help") or "=" in option or option.startswith("-m") and option != "-m"
        at += 1 if alone else 2
        if option.startswith("-m"):
            break
    return min(at, len(arguments))


def _print_pool(options: argparse.Namespace) -> None:
    from transformers import AutoConfig

    from paged.transformers.geometry import pool_parameters, pool_section
    config = AutoConfig.from_pretrained(options.print_pool)
    name = os.path.basename(os.path.normpath(options.print_pool))
    pool = "".join(c if c.isalnum() or c in "-_" else "-" for c in name.lower())
    try:
        parameters = pool_parameters(config, n_pages=options.pages, dtype=options.dtype, name=pool)
    except ValueError as error:
        sys.exit(f"{options.print_pool}: {error}")
    print(pool_section(parameters, name), end="")


def _hide_own_frames() -> None:
    """Let a traceback begin with the program, as if python had run it."""
    shown = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
        rest = trace
        while rest is not None and rest.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>", runpy.__file__):
            rest = rest.tb_next
        shown(kind, error.with_traceback(rest), rest)

    sys.excepthook = hook


if __name__ == "__main__":
    main()
