# SPDX-License-Identifier: Apache-2.0
"""Console scripts of the wheel: run its own pagedd(8) and pagedctl(8).

The programs lie in paged/bin.  A script replaces its process by the program, so signals, exit status and process id
are the program's.
"""

import os
import sys
from typing import NoReturn

_DIRECTORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin")


def _run(name: str) -> NoReturn:
    os.execv(os.path.join(_DIRECTORY, name), [name, *sys.argv[1:]])


def pagedd() -> NoReturn:
    """Run pagedd(8) with the arguments of this process."""
    _run("pagedd")


def pagedctl() -> NoReturn:
    """Run pagedctl(8) with the arguments of this process."""
    _run("pagedctl")
