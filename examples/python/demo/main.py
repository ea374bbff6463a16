# SPDX-License-Identifier: Apache-2.0
"""Engines of different make answer questions about one document, each on the pages that another one has computed.

tools/demo prepares everything and runs this program.  Exit status: 0 if all answers are those of transformers with a
cache of its own, and the accounting of the pages holds; 1 otherwise.
"""
import argparse
import os
import sys
from pathlib import Path

import document
from engines import Failure, Setup
from soak import soak
from story import Story


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runtime-dir", type=Path, required=True, help="of pagedd")
    parser.add_argument("--pool", required=True)
    parser.add_argument("--gguf", type=Path, required=True, help="the model for paged-llama")
    parser.add_argument("--model", type=Path, required=True, help="the same model for transformers and vLLM")
    parser.add_argument("--llama", type=Path, required=True, help="the program paged-llama")
    parser.add_argument("--vllm-python", help="a Python that has vLLM; without it, vLLM does not take part")
    parser.add_argument("--logs", type=Path, required=True, help="a directory for the engines' messages")
    parser.add_argument("--short", action="store_true", help="a short document and short answers")
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="kill engines at random instead")
    parser.add_argument("--seed", type=int, default=1, help="of --soak")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    setup = Setup(runtime_dir=options.runtime_dir, pool=options.pool, gguf=options.gguf, model=options.model,
                  llama=options.llama, python=sys.executable, vllm_python=options.vllm_python,
                  n_threads=min(len(os.sched_getaffinity(0)), 16), logs=options.logs)
    size = document.SHORT if options.short or options.soak else document.LONG
    try:
        if options.soak:
            soak(setup, size, options.soak, options.seed)
        else:
            Story(setup, size).tell()
    except Failure as failure:
        print(f"\ndemo: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
