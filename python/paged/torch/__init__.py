# SPDX-License-Identifier: Apache-2.0
"""PyTorch's interfaces of paged attention, on the pools of paged.

PagedAttention   page tables, block masks and mods, as torch.nn.attention.experimental._paged_attention has them
flex_attention   flex_attention by the library's kernels, with Python mask mods and score mods
translate        a Python mod in the language of paged_mods(7), for paged.Pool.mod()
ops              operators for torch.compile

Needs PyTorch 2.10 or later.
"""
from paged.torch import ops
from paged.torch.attention import PagedAttention
from paged.torch.flex_attention import flex_attention
from paged.torch.mods import Translated, UntranslatableError, translate

__all__ = ["PagedAttention", "Translated", "UntranslatableError", "flex_attention", "ops", "translate"]
