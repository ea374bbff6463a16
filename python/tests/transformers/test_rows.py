# SPDX-License-Identifier: Apache-2.0
"""Padding and Packing against loops over columns."""
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paged.transformers.rows import Packing, Padding


@st.composite
def masks(draw: st.DrawFn, n_rows: int | None = None, max_columns: int = 9) -> torch.Tensor:
    n_rows = n_rows or draw(st.integers(1, 4))
    n_columns = draw(st.integers(1, max_columns))
    bits = st.lists(st.booleans(), min_size=n_rows * n_columns, max_size=n_rows * n_columns)
    kind = draw(st.sampled_from(["any", "left", "right", "full"]))
    mask = torch.tensor(draw(bits)).view(n_rows, n_columns)
    if kind == "left":
        mask = mask.sort(1).values
    elif kind == "right":
        mask = mask.sort(1, descending=True).values
    elif kind == "full":
        mask = torch.ones_like(mask)
    return mask


def padding_of(mask: torch.Tensor) -> Padding:
    return Padding.of_mask(mask, *mask.shape)


def columns_of(mask: torch.Tensor) -> list[list[int]]:
    """The columns of each row that are tokens."""
    return [[column for column, kept in enumerate(row) if kept] for row in mask.tolist()]


def check(padding: Padding, mask: torch.Tensor) -> None:
    """The padding is that of a mask."""
    assert (padding.n_rows, padding.n_columns) == tuple(mask.shape)
    assert padding.lengths == [len(row) for row in columns_of(mask)]
    assert torch.equal(padding.kept if padding.kept is not None else torch.ones_like(mask), mask)
    for row, columns in zip(padding.positions().tolist(), columns_of(mask)):
        assert row[:len(columns)] == columns


@settings(deadline=None)
@given(masks(), st.integers(0, 5))
def test_of_mask(mask: torch.Tensor, n_more: int) -> None:
    longer = torch.cat([mask, torch.ones(len(mask), n_more, dtype=torch.bool)], 1).to(torch.int64)
    padding = Padding.of_mask(longer, *mask.shape)
    check(padding, mask)
    assert (padding.kept is None) == bool(mask.all())
    mask.logical_not_()
    check(padding, ~mask)   # the caller's tensor may change


@settings(deadline=None)
@given(masks())
def test_shift(mask: torch.Tensor) -> None:
    """shift() is the padding on the left if all of it is there."""
    shift = padding_of(mask).shift()
    lengths = mask.sum(1)
    on_left = torch.equal(mask, torch.arange(mask.shape[1]) >= mask.shape[1] - lengths[:, None])
    if on_left:
        assert shift is not None and shift.tolist() == (mask.shape[1] - lengths).tolist()
    else:
        assert shift is None


@settings(deadline=None)
@given(st.data(), masks())
def test_extended(data: st.DataObject, mask: torch.Tensor) -> None:
    new = data.draw(masks(n_rows=len(mask)))
    check(padding_of(mask).extended(new.shape[1], new), torch.cat([mask, new], 1))
    check(padding_of(mask).extended(3), torch.cat([mask, torch.ones(len(mask), 3, dtype=torch.bool)], 1))


@settings(deadline=None)
@given(st.data(), masks())
def test_cropped_and_selected(data: st.DataObject, mask: torch.Tensor) -> None:
    n_columns = data.draw(st.integers(0, mask.shape[1]))
    check(padding_of(mask).cropped(n_columns), mask[:, :n_columns])
    rows = data.draw(st.lists(st.integers(0, len(mask) - 1), min_size=1, max_size=6))
    check(padding_of(mask).selected(rows), mask[rows])


@settings(deadline=None)
@given(masks(), st.booleans())
def test_packing(mask: torch.Tensor, heads_first: bool) -> None:
    """pack() has the tokens row by row; unpack() puts them back, with zeros elsewhere."""
    n_rows, n_columns = mask.shape
    columns = torch.randn(n_rows, 2, n_columns, 3)
    if not heads_first:
        columns = columns.transpose(1, 2).contiguous().transpose(1, 2)
    packing = Packing(mask, columns.device)
    tokens = packing.pack(columns)
    expected = [columns[row, :, column] for row, kept in enumerate(columns_of(mask)) for column in kept]
    assert torch.equal(tokens, torch.stack(expected) if expected else columns.new_empty(0, 2, 3))
    assert torch.equal(packing.unpack(tokens), columns.transpose(1, 2) * mask[:, :, None, None])


def test_positions_keep_their_width() -> None:
    """Arrays of rows of similar lengths have one shape, so that a mod that reads them is translated once."""
    widths = {Padding(2, n).positions().shape for n in (1, 100, 256)}
    assert widths == {(2, 256)}
    assert Padding(2, 257).positions().shape == (2, 512)
