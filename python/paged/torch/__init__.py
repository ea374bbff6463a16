# SPDX-License-Identifier: Apache-2.0
"""PyTorch's interfaces of paged attention, on the pools of paged.

translate   a Python mod in the language of paged_mods(7), for paged.Pool.mod()

Needs PyTorch 2.10 or later.
"""
from paged.torch.mods import Translated, UntranslatableError, translate

__all__ = ["Translated", "UntranslatableError", "translate"]
