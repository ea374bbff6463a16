# SPDX-License-Identifier: Apache-2.0
"""A pool in GPU memory, on the fake CUDA driver: where its tensors are."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

import paged

FAKE = Path(os.environ.get("PAGED_BUILDDIR", Path(paged.__file__).parents[2])) / "tests" / "fake-cuda" / ".libs"
# torch does not look for the driver before something is computed on a GPU.
PROGRAM = """
import ctypes, sys
import device_cases
device_cases.driver = ctypes.CDLL(sys.argv[1])
import torch
from paged.transformers.connection import Connection, Unavailable
from paged.transformers.geometry import Geometry
from paged.transformers.sequences import pool_device
geometry = Geometry(1, 1, 64, 64)
for index in 0, 1:
    device_cases.enter_device(index)
    with device_cases.opened(device=str(index)) as (pool, _):
        assert pool_device(pool) == torch.device("cuda", index), pool_device(pool)
        connection = Connection(pool)
        assert connection.pool(geometry, torch.device("cuda", index), torch.float32) is pool
        try:
            connection.pool(geometry, torch.device("cpu"), torch.float32)
        except Unavailable as reason:
            assert str(reason) == f"the pages of pool pool are on cuda:{index}, the model is on cpu", reason
        else:
            raise AssertionError("a model elsewhere")
        del connection
"""


def test_pool_device() -> None:
    if not (FAKE / "libcuda.so.1").exists():
        pytest.skip("the fake CUDA driver is not built")
    environment = os.environ | {"PYTHONPATH": ":".join(sys.path), "PAGED_FAKE_CUDA_DEVICES": "2"}
    result = subprocess.run([sys.executable, "-c", PROGRAM, FAKE / "libcuda.so.1"], env=environment,
                            capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
