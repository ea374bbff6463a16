# SPDX-License-Identifier: Apache-2.0
"""Random sequences of operations on a PagedCache, against a model without a cache."""
from typing import Any

import pytest

pytest.importorskip("transformers")

import copy

import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from model_cases import PAGE_SIZE, VOCABULARY, check_empty, expected, make_model, pool_settings, run

import paged
from paged.transformers import PagedCache

MODEL = make_model("mistral", num_hidden_layers=2)
PAGED_MODEL = make_model("mistral", num_hidden_layers=2)
PAGED_MODEL.set_attn_implementation("paged")
SALT = paged.salt("mistral")
MAX_ROWS, MAX_COLUMNS = 4, 6 * PAGE_SIZE
TOLERANCE = {"atol": 1e-4, "rtol": 1e-4}


class Caches(RuleBasedStateMachine):
    """A cache, the tokens that it has, and copies of both."""

    def __init__(self) -> None:
        super().__init__()
        self.client = paged.embedded(pool_settings(MODEL, n_pages=512, n_slots=256), threads=1, run="own")
        self.pool = self.client.pool("test")
        self.cache = PagedCache(self.pool, salt=SALT, reserve_ahead=0)
        self.tokens = self.mask = torch.zeros(0, 0, dtype=torch.int64)
        self.copies: list[tuple[PagedCache, torch.Tensor, torch.Tensor]] = []

    def teardown(self) -> None:
        for cache in [self.cache, *(cache for cache, _, _ in self.copies)]:
            cache.close()
        check_empty(self.pool)
        self.client.close()

    def _tokens(self, data: Any, n_rows: int, n_columns: int) -> torch.Tensor:
        # Few texts, so that prefixes are found.
        seeds = data.draw(st.lists(st.integers(0, 2), min_size=n_rows, max_size=n_rows))
        first = self.tokens.shape[1]
        rows = [torch.randint(2, VOCABULARY, (MAX_COLUMNS,), generator=torch.Generator().manual_seed(seed))
                for seed in seeds]
        return torch.stack(rows)[:, first:first + n_columns]

    def _mask(self, data: Any, n_rows: int, n_columns: int) -> torch.Tensor:
        mask = torch.ones(n_rows, n_columns, dtype=torch.int64)
        for row in range(n_rows):
            n = data.draw(st.sampled_from([0, 0, 0, 1, 5, n_columns]))
            where = data.draw(st.sampled_from(["left", "right"]))
            mask[row, :n] = mask[row, :n] if where == "right" else 0
            mask[row, n_columns - n:] = mask[row, n_columns - n:] if where == "left" else 0
        return mask

    def _run(self, begin: int) -> None:
        """Compute the columns that the cache lacks, and compare those of tokens."""
        logits = run(PAGED_MODEL, self.cache, self.tokens, self.mask, begin=begin)
        shown = self.mask[:, begin:].bool()
        wanted = expected(MODEL, self.tokens, self.mask)[:, begin:]
        torch.testing.assert_close(logits[shown], wanted[shown], **TOLERANCE)

    @initialize(data=st.data(), n_rows=st.integers(1, MAX_ROWS), n_columns=st.integers(1, 3 * PAGE_SIZE))
    def first_pass(self, data: Any, n_rows: int, n_columns: int) -> None:
        self.tokens = self._tokens(data, n_rows, n_columns)
        self.mask = self._mask(data, n_rows, n_columns)
        self._run(0)

    def _has_room(self) -> bool:
        return self.tokens.shape[1] < MAX_COLUMNS

    @precondition(_has_room)
    @rule(data=st.data(), n_columns=st.sampled_from([1, 1, 2, PAGE_SIZE - 1, PAGE_SIZE + 3]))
    def append(self, data: Any, n_columns: int) -> None:
        n_rows, begin = self.tokens.shape
        n_columns = min(n_columns, MAX_COLUMNS - begin)
        self.tokens = torch.cat([self.tokens, self._tokens(data, n_rows, n_columns)], 1)
        self.mask = torch.cat([self.mask, self._mask(data, n_rows, n_columns)], 1)
        self._run(begin)

    @rule(data=st.data())
    def select(self, data: Any) -> None:
        rows = data.draw(st.lists(st.integers(0, len(self.tokens) - 1), min_size=1, max_size=MAX_ROWS))
        self.cache.batch_select_indices(torch.tensor(rows))
        self.tokens, self.mask = self.tokens[rows], self.mask[rows]

    @rule(n=st.integers(0, 2 * PAGE_SIZE))
    def crop(self, n: int) -> None:
        n = min(n, self.tokens.shape[1])
        self.cache.crop(-n)
        end = self.tokens.shape[1] - n
        self.tokens, self.mask = self.tokens[:, :end], self.mask[:, :end]

    @rule()
    def publish(self) -> None:
        self.cache.publish(self.tokens, self.mask)

    @rule(data=st.data(), n_rows=st.integers(1, MAX_ROWS), n_columns=st.integers(1, 4 * PAGE_SIZE))
    def start(self, data: Any, n_rows: int, n_columns: int) -> None:
        self.cache.reset()
        self.tokens = self.mask = torch.zeros(0, 0, dtype=torch.int64)
        self.tokens, mask = self._tokens(data, n_rows, n_columns), self._mask(data, n_rows, n_columns)
        self.mask = mask
        begin = self.cache.start(self.tokens, mask)
        # In one pass or two, of which the first may end inside of the prefix.
        middle = data.draw(st.integers(begin, n_columns))
        tokens = self.tokens
        if begin < middle < n_columns:
            self.tokens, self.mask = tokens[:, :middle], mask[:, :middle]
            self._run(begin)
            begin, self.tokens, self.mask = middle, tokens, mask
        self._run(begin)

    @precondition(lambda self: len(self.copies) < 2)
    @rule()
    def fork(self) -> None:
        self.copies.append((copy.deepcopy(self.cache), self.tokens, self.mask))

    @precondition(lambda self: self.copies)
    @rule(i=st.integers(0, 1))
    def swap(self, i: int) -> None:
        i %= len(self.copies)
        mine = self.cache, self.tokens, self.mask
        (self.cache, self.tokens, self.mask), self.copies[i] = self.copies[i], mine

    @invariant()
    def lengths(self) -> None:
        assert self.cache.get_seq_length() == self.tokens.shape[1]


Caches.TestCase.settings = settings(max_examples=30, stateful_step_count=20, deadline=None,
                                    suppress_health_check=list(HealthCheck))
test_caches = Caches.TestCase
