# SPDX-License-Identifier: Apache-2.0
"""vLLM on a pool: its requests are sequences of the pool, which other engines share with it."""
