# SPDX-License-Identifier: Apache-2.0
"""python -m paged.vllm arguments: prints the options with which vllm serve uses a pool.

    vllm serve MODEL $(python -m paged.vllm arguments --pool llama)
"""
from __future__ import annotations

import argparse
import sys

import paged
from paged.vllm.arguments import ROLES, arguments, command_line


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m paged.vllm",
                                     description="Use a pool of pagedd as vLLM's KV cache.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("arguments", help="print options for vllm serve",
                                  description="vllm serve MODEL $(python -m paged.vllm arguments)")
    command.add_argument("--pool", help="the pool's name; needed if pagedd has several, and $PAGED_POOL is not set")
    command.add_argument("--runtime-dir", help="pagedd's runtime directory, if not the usual one")
    command.add_argument("--blocks", type=int, help="vLLM's number of blocks, if not four for each page")
    command.add_argument("--role", choices=ROLES, default="both",
                         help="where prompts are computed in one engine and answers in another, the part of this one")
    options = parser.parse_args()
    try:
        keywords = arguments(options.pool, runtime_dir=options.runtime_dir, n_blocks=options.blocks, role=options.role)
    except (paged.Error, LookupError) as error:
        print(f"python -m paged.vllm: {error}", file=sys.stderr)
        return 1
    print(*command_line(keywords))
    return 0


if __name__ == "__main__":
    sys.exit(main())
