# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own tests of PagedAttention, unchanged, on paged.torch's class.

They are in no package: PAGED_PYTORCH_TESTS names the directory test/inductor of PyTorch's sources, of the version that
is installed.  They need expecttest and psutil; without psutil they skip themselves.
"""
import os
import re
import subprocess
import sys

import pytest

# Replaces the class before the file imports it.
RUN = """
import sys
import pytest
import torch.nn.attention.experimental._paged_attention as module
from paged.torch.attention import PagedAttention
module.PagedAttention = PagedAttention
sys.exit(pytest.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("file, tests", [("test_flex_attention.py", "TestPagedAttention"),
                                         ("test_flex_decoding.py", "paged")])
def test_file_of_pytorch(file, tests):
    directory = os.environ.get("PAGED_PYTORCH_TESTS")
    if not directory:
        pytest.skip("set PAGED_PYTORCH_TESTS to the directory test/inductor of PyTorch's sources")
    for package in "expecttest", "psutil":
        pytest.importorskip(package, reason=f"PyTorch's tests need {package}")
    command = [sys.executable, "-c", RUN, os.path.join(directory, file), "-k", tests, "-q", "-p", "no:cacheprovider",
               "-p", "no:randomly"]
    done = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout[-10000:])
    n_passed = re.search(r"(\d+) passed", done.stdout)
    if done.returncode in (0, 5) and n_passed is None:
        pytest.skip(f"{file} has no test for this machine: {done.stdout.splitlines()[-1]}")
    assert done.returncode == 0, f"{' '.join(command[3:])}: exit status {done.returncode}"
