# SPDX-License-Identifier: Apache-2.0
"""What the tests of PagedAttention have in common: scattered pages, mask mods."""
import torch


def reserve_interleaved(attentions, lengths, rounds=4):
    """Raise all rows by turns, so that the pages of each are scattered."""
    for i in range(1, rounds + 1):
        for row, length in enumerate(lengths):
            for attention in attentions:
                attention.reserve(torch.tensor(row), torch.tensor(length * i // rounds))


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def window(b, h, q_idx, kv_idx):
    return (q_idx >= kv_idx) & (q_idx - kv_idx < 20 + 8 * b)
