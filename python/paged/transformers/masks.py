# SPDX-License-Identifier: Apache-2.0
"""The mask function that models of transformers call for the attention "paged".

transformers describes a mask by a function of batch, head, query column and key column, and by the attention mask of
the padding.  paged_mask() makes no matrix of it: PagedMask keeps the description until the attention asks, with the
plan of the forward pass at hand, for what the kernels need.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from transformers import AttentionMaskInterface
from transformers.masking_utils import bidirectional_mask_function, causal_mask_function, sdpa_mask

from paged.torch import UntranslatableError, translate
from paged.transformers.rows import Padding

__all__ = ["MAKE_ALL", "MaskText", "PagedMask", "dense_text", "element_text", "function_text", "paged_mask",
           "visible_columns"]


# Whether paged_mask() also makes the masks that no attention needs, for what they say of their window.
MAKE_ALL: ContextVar[bool] = ContextVar("MAKE_ALL", default=False)


class MaskText(NamedTuple):
    """A mask in the language of paged_mods(7).

    text
        The condition over tokens, not columns; "": none.
    arrays
        What it reads, by name.
    causal
        A query also sees no key after it.
    """

    text: str
    arrays: Mapping[str, Any]
    causal: bool


class PagedMask(torch.Tensor):
    """A mask [n_rows, 1, n_queries, n_keys] of bool that has no elements until something reads them.

    The attention "paged" reads the arguments that made it.  A model that slices or changes its mask, and attention
    without a PagedCache, see the mask that the attention "sdpa" would get.
    """

    arguments: dict[str, Any]

    @staticmethod
    def __new__(cls, arguments: dict[str, Any]) -> PagedMask:
        shape = (arguments["batch_size"], 1, arguments["q_length"], arguments["kv_length"])
        mask = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=torch.bool, device=arguments.get("device", "cpu"))
        mask.arguments = arguments
        return mask

    def __init__(self, arguments: dict[str, Any]) -> None:
        super().__init__()

    def dense(self, **changes: Any) -> torch.Tensor | None:
        """Return the mask as sdpa_mask() makes it: bool, or None if scaled_dot_product_attention needs none."""
        return sdpa_mask(**{**self.arguments, **changes})

    def full(self) -> torch.Tensor:
        """Return the mask as a tensor in any case."""
        mask = self.dense(allow_is_causal_skip=False, allow_is_bidirectional_skip=False)
        assert mask is not None
        return mask

    def kept(self, n_columns: int) -> Padding:
        """Return which of the first n_columns the attention mask shows."""
        mask, n_rows = self.arguments.get("attention_mask"), self.arguments["batch_size"]
        if mask is not None and mask.shape[1] < n_columns:
            # As transformers has it: a mask hides the columns that it lacks.
            mask = torch.nn.functional.pad(mask, (0, n_columns - mask.shape[1]))
        return Padding.of_mask(mask, n_rows, n_columns)

    @property
    def window(self) -> int | None:
        """The tokens that a query sees, its own included; of a chunk, the most; None: all."""
        window: int | None = self.arguments["local_size"]
        return window

    @property
    def plain(self) -> bool:
        """Whether the model's configuration and the padding alone make the mask."""
        return bool(self.arguments.get("allow_is_causal_skip", True))

    # Attributes such as shape are those of a tensor; an operation on the elements comes here.
    __torch_function__ = torch._C._disabled_torch_function_impl     # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (),  # type: ignore[override]
                           kwargs: Any = None) -> Any:
        args, kwargs = torch.utils._pytree.tree_map_only(PagedMask, PagedMask.full, (args, kwargs or {}))
        return func(*args, **kwargs)


def paged_mask(batch_size: int, q_length: int, kv_length: int, q_offset: int = 0, kv_offset: int = 0,
               mask_function: Callable[..., Any] = causal_mask_function, attention_mask: torch.Tensor | None = None,
               local_size: int | None = None, allow_is_causal_skip: bool = True, **kwargs: Any) -> PagedMask | None:
    """Make the mask of one forward pass; the arguments are those of transformers' sdpa_mask().

    Returns None for a causal mask without padding that scaled_dot_product_attention would need no matrix for, either.
    """
    is_local = local_size is not None and kv_length >= local_size
    if (not MAKE_ALL.get() and allow_is_causal_skip and not is_local and (q_length == 1 or q_length == kv_length)
            and (attention_mask is None or bool(attention_mask.all()))):
        return None
    return PagedMask({
        "batch_size": batch_size, "q_length": q_length, "kv_length": kv_length, "q_offset": q_offset,
        "kv_offset": kv_offset, "mask_function": mask_function, "attention_mask": attention_mask,
        "local_size": local_size, "allow_is_causal_skip": allow_is_causal_skip, **kwargs,
    })


def visible_columns(padding: Padding, kept: Padding | None) -> torch.Tensor | None:
    """Compare the columns that the pages hold with those that a mask shows.

    padding
        What the pages hold.
    kept
        What the mask shows of the same columns; None: all.

    Returns None if they are equal, else a uint8 [n_rows, width]: whether the mask shows each token of the pages.

    Raises ValueError if the mask shows a column that has no K and V.
    """
    if kept is None:
        kept = Padding(padding.n_rows, padding.n_columns)
    if padding.kept is None and kept.kept is None:
        return None
    held, shown = padding.columns(), kept.columns()
    lacking = shown & ~held
    if bool(lacking.any()):
        row, column = lacking.nonzero()[0].tolist()
        raise ValueError(f"attention_mask shows column {column} of row {row}, which was padding when it was computed: "
                         "pass the attention_mask of all columns, with the same padding, to each forward pass")
    if torch.equal(held, shown):
        return None
    return shown.gather(1, padding.positions().to(torch.int64)).to(torch.uint8)


class _Columns:
    """Turns positions of tokens into columns, in Python and in text."""

    def __init__(self, padding: Padding, device: torch.device) -> None:
        self.arrays: dict[str, torch.Tensor] = {}
        if padding.kept is None:
            self.of, self.text = (lambda b, i: i), "{}"
            return
        shift = padding.shift()
        if shift is not None:
            shift = shift.to(device)
            self.arrays = {"paged_shift": shift}
            self.of, self.text = (lambda b, i: i + shift[b]), "({} + paged_shift[b])"
        else:
            positions = padding.positions().to(device)
            self.arrays = {"paged_columns": positions}
            self.of, self.text = (lambda b, i: positions[b, i]), "paged_columns[b][{}]"


def function_text(mask: PagedMask, padding: Padding, device: torch.device) -> MaskText:
    """Translate the function of a mask; a function that cannot be translated becomes a matrix."""
    arguments = mask.arguments
    function, local_size = arguments["mask_function"], arguments["local_size"]
    is_causal = function is causal_mask_function
    if arguments["allow_is_causal_skip"] and local_size is not None and arguments["kv_length"] < local_size:
        # The window or chunk hides nothing yet.
        is_causal = True
    if is_causal or function is bidirectional_mask_function:
        return MaskText("", {}, is_causal)
    columns = _Columns(padding, device)
    of = columns.of
    try:
        found = translate(lambda b, h, q_idx, kv_idx: function(b, h, of(b, q_idx), of(b, kv_idx)), "mask")
    except UntranslatableError:
        return dense_text(mask.full(), padding, arguments["q_offset"], device)
    return MaskText(found.text, {name: array.to(device) for name, array in found.arrays.items()}, False)


def dense_text(dense: torch.Tensor, padding: Padding, begin: int, device: torch.device) -> MaskText:
    """Describe a bool mask [n_rows or 1, n_heads or 1, n_queries or 1, n_keys]; the first query is column begin."""
    text, arrays = element_text("paged_mask", dense.view(torch.uint8), padding, begin, device)
    return MaskText(f"{text} != 0", arrays, False)


def element_text(name: str, dense: torch.Tensor, padding: Padding, begin: int, device: torch.device,
                 ) -> tuple[str, dict[str, Any]]:
    """Return the text of the element of a matrix over columns for query and key of the mod, and what it reads."""
    if dense.dim() != 4 or dense.shape[3] < padding.n_columns:
        raise ValueError(f"{name[len('paged_'):]} has shape {list(dense.shape)}; it needs 4 dimensions, the last with "
                         f"the {padding.n_columns} columns of the cache")
    columns = _Columns(padding, device)
    row, head = "b" if dense.shape[0] > 1 else "0", "h" if dense.shape[1] > 1 else "0"
    query = f"{columns.text.format('q_idx')} - paged_begin" if dense.shape[2] > 1 else "0"
    text = f"{name}[{row}][{head}][{query}][{columns.text.format('kv_idx')}]"
    return text, {**columns.arrays, name: dense, "paged_begin": begin}


AttentionMaskInterface.register("paged", paged_mask)
