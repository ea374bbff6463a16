# SPDX-License-Identifier: Apache-2.0
"""Models of transformers on the pages of a pool.

PagedCache             a cache for `past_key_values` of any model; the attention "paged" reads its pages in place
enable(), disable()    generate() of all models of the process, with a PagedCache wherever that is possible
model_salt()           the salt of the prefixes of a model, as its weights are at the moment
pool_parameters()      the parameters of a pool that a model fits
model_window()         the window of a model all of whose layers have one

python -m paged.transformers runs a program after enable().
"""
# These two register the names "paged" with transformers.
from paged.transformers import attention as _attention  # noqa: F401
from paged.transformers import masks as _masks  # noqa: F401
from paged.transformers.cache import PagedCache
from paged.transformers.generation import disable, enable
from paged.transformers.geometry import model_window, pool_parameters
from paged.transformers.identity import model_salt

__all__ = ["PagedCache", "disable", "enable", "model_salt", "model_window", "pool_parameters"]
