# SPDX-License-Identifier: Apache-2.0
import paged


def test_version():
    assert paged.version() == paged.__version__
