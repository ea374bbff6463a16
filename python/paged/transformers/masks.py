# SPDX-License-Identifier: Apache-2.0
"""The mask function that models of transformers call for the attention "paged"."""
from __future__ import annotations

from transformers import AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

AttentionMaskInterface.register("paged", sdpa_mask)
