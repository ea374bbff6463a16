# SPDX-License-Identifier: Apache-2.0
"""python -m paged.vllm arguments: prints the options with which vllm serve uses a pool.

    vllm serve MODEL $(python -m paged.vllm arguments --pool llama)

A shell ignores that the command in $(...) failed, and with an empty output vLLM would start without a pool.  So this
one waits for pagedd, and where it fails it prints an option that vLLM refuses, with the reason in it.
"""
from __future__ import annotations

import argparse
import math
import re
import sys
from typing import Any, NoReturn

import paged
from paged._engines import positive_option, text_option
from paged.vllm.arguments import ROLES, arguments, command_line

PROGRAM = "python -m paged.vllm"
# An option that vLLM does not have.
FAILED = "--paged-vllm-failed"
# How long pagedd may take to start, if --wait does not say otherwise.
WAIT_S = 60.0
# pagedd has not started yet, or a former one has not ended yet.
NOT_YET = (paged.NoDaemonError, paged.TimedOutError, paged.StoppingError, paged.GoneError)


class UsageError(Exception):
    """The command line is wrong."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors main() reports, as all others."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        raise UsageError(message)


def seconds_option(text: str) -> float:
    """Return the number of seconds that an option has."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"needs a number of seconds, not {text!r}")
    return seconds


def parse() -> argparse.Namespace:
    parser = Parser(prog=PROGRAM, description="Use a pool of pagedd as vLLM's KV cache.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("arguments", help="print options for vllm serve",
                                  description="vllm serve MODEL $(python -m paged.vllm arguments)")
    command.add_argument("--pool", type=text_option,
                         help="the pool's name; needed if pagedd has several, and $PAGED_POOL is not set")
    command.add_argument("--runtime-dir", type=text_option, help="pagedd's runtime directory, if not the usual one")
    command.add_argument("--blocks", type=positive_option, help="vLLM's number of blocks, if not four for each page")
    command.add_argument("--role", choices=ROLES, default="both",
                         help="where prompts are computed in one engine and answers in another, the part of this one")
    command.add_argument("--wait", type=seconds_option, default=WAIT_S, metavar="SECONDS",
                         help=f"how long to wait for pagedd, if it is not running yet; the default is {WAIT_S:g}")
    return parser.parse_args()


def wait_for_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """Return arguments(), once pagedd answers."""
    def ask(wait: float) -> dict[str, Any]:
        return arguments(options.pool, runtime_dir=options.runtime_dir, n_blocks=options.blocks, role=options.role,
                         wait=wait)

    try:
        return ask(0)
    except NOT_YET as error:
        if options.wait == 0:
            raise
        print(f"{PROGRAM}: waiting for pagedd, up to {options.wait:g} s: {error}", file=sys.stderr)
    return ask(options.wait)


def refusal(reason: str) -> str:
    """Return an option for vLLM to refuse: one word for every shell, which begins no pattern of file names."""
    text = re.sub(r"[\s*?\[\]]+", "_", reason).encode("ascii", "backslashreplace").decode()
    return f"{FAILED}={text}"


def main() -> int:
    try:
        words = command_line(wait_for_arguments(parse()))
    except BaseException as error:
        if isinstance(error, SystemExit):   # of --help
            raise
        if not sys.stdout.isatty():
            print(refusal(str(error) or type(error).__name__))
        if not isinstance(error, (UsageError, paged.Error, LookupError, ValueError)):
            raise
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    print(*words)
    return 0


if __name__ == "__main__":
    sys.exit(main())
