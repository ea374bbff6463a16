# SPDX-License-Identifier: Apache-2.0
"""Models of transformers on the pages of a pool.

PagedCache             a cache for `past_key_values` of any model; with it the attention "paged" reads the pages in place
pool_parameters()      the parameters of a pool that a model fits
"""
from paged.transformers import attention, masks
from paged.transformers.cache import PagedCache
from paged.transformers.geometry import pool_parameters

__all__ = ["PagedCache", "attention", "masks", "pool_parameters"]
