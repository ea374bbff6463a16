# SPDX-License-Identifier: Apache-2.0
"""Models of transformers on the pages of a pool.

PagedCache   a cache for `past_key_values` of any model; with it the attention "paged" reads the pages in place
"""
from paged.transformers import attention, masks
from paged.transformers.cache import PagedCache

__all__ = ["PagedCache", "attention", "masks"]
