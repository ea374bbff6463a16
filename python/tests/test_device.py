# SPDX-License-Identifier: Apache-2.0
"""Tensors and pools in GPU memory, on the fake CUDA driver: runs device_cases.py."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

import device_cases
import paged

FAKE = Path(os.environ.get("PAGED_BUILDDIR", Path(paged.__file__).parents[2])) / "tests" / "fake-cuda" / ".libs"
CASES = [name.removeprefix("case_") for name in vars(device_cases) if name.startswith("case_")]


@pytest.mark.parametrize("case", CASES)
def test_device(case: str) -> None:
    if not (FAKE / "libcuda.so.1").exists():
        pytest.skip("the fake CUDA driver is not built")
    environment = os.environ | {"PYTHONPATH": ":".join(sys.path), "PAGED_FAKE_CUDA_DEVICES": "2"}
    result = subprocess.run([sys.executable, "-X", "dev", device_cases.__file__, FAKE, case], env=environment,
                            capture_output=True, text=True, timeout=300)
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr
