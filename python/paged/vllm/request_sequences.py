# SPDX-License-Identifier: Apache-2.0
"""The part of paged.vllm in vLLM's scheduler process: each request that vLLM schedules is a sequence of the pool.

A sequence starts when vLLM asks how much of a request is cached: on its longest published prefix, and with pages for
all known tokens.  It grows when vLLM allocates blocks, and ends when the request does or is preempted.  What it
published stays in the pool's cache, where requests of all engines find it, a preempted request its own part too.
A request may also start on a sequence that another engine hands over, and end by handing its own over (handover.py).
"""
from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vllm.logger import init_logger
from vllm.v1.request import Request, RequestStatus

import paged
from paged.vllm.handover import Handover
from paged.vllm.identity import Identity
from paged.vllm.limits import n_created_if_unused
from paged.vllm.step import Step
from paged.vllm.waiting import Waiting

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput

# vLLM configures the loggers below its own name.
logger = init_logger(f"vllm.{__name__}")

# Pages that growing sequences ask for beyond what they need, so that few steps send a request to the daemon.
PAGES_AHEAD = 4
# A request that would find so many pages more once a running request has computed its prompt waits for them.
COMING_PAGES = 4
# The part of a request's id that pagedctl sequences shows.
TAG_BYTES = 16
# The pool lacks pages, or the daemon did not answer in time: vLLM asks again.
NO_ROOM = (paged.FullError, paged.QuotaError)
NOT_NOW = (*NO_ROOM, paged.TimedOutError)
# The same for new sequences.  The session is drained, or the daemon stops: requests that run may finish.
NO_START = (*NOT_NOW, paged.StoppingError)


@dataclass
class Entry:
    """A request and its sequence."""

    request: Request
    seq: int
    n_shared: int               # tokens that the sequence started with
    capacity: int               # tokens
    n_published: int            # tokens, whole pages
    n_trimmed: int = 0          # tokens, whole pages that were given back
    admitted: bool = False      # vLLM has given it blocks
    n_written: int = 0          # tokens whose K and V the last scheduled step has computed, once it is done
    prefix: paged.Prefix | None = None  # of n_published tokens, once some were published


class RequestSequences:
    """The sequences of an engine's requests.

    n_spec_tokens
        Tokens of a step, beyond those that vLLM counts as computed.
    n_seen, n_pages
        supported.tokens_seen() and supported.pages_needed().

    vLLM schedules a step only when the one before it is done, so sequences change while nothing computes on them.  All
    methods raise paged.GoneError if the daemon has ended.  Not thread-safe.
    """

    def __init__(self, pool: paged.Pool, identity: Identity, handover: Handover, runtime_dir: str | None,
                 n_spec_tokens: int = 0, n_seen: int | None = None, n_pages: int | None = None) -> None:
        self._pool = pool
        self.identity = identity
        self._handover = handover
        self._runtime_dir = runtime_dir
        self._n_spec_tokens = n_spec_tokens
        self._n_seen = n_seen
        self._n_start_tokens = min(pool.max_length, pool.page_size * min(n_pages or pool.n_pages, pool.n_pages))
        self._entries: dict[str, Entry] = {}
        self._to_erase: list[list[int]] = []    # sequences that no request has any more, in lists for one call each
        self._full = False      # since the last step a request could not start
        self._published = False     # since the last step all that was written
        self._failed: list[str] = []    # requests that can never start
        self._waiting = Waiting(pool)

    @property
    def pool(self) -> paged.Pool:
        return self._pool

    def expect(self, request: Request) -> None:
        """vLLM has a new request.  It may wait for longer than the sequence that another engine hands over to it."""
        with suppress(*NO_START):
            self._adopt(request)

    def start(self, request: Request) -> int | None:
        """Start the request's sequence; return how many of its first tokens need no computation.

        vLLM calls this again for a request that it could not admit, or that it preempted.  None: the pool is full now.
        """
        entry = self._entries.get(request.request_id)
        if entry is not None and entry.admitted:
            self._end([entry])
            entry = None
        if entry is None:
            try:
                entry = self._adopt(request)
            except NO_START as error:
                self._wait(request, error, 1)
                return None
        if entry is not None:
            return _n_computed(entry)
        # Requests start in vLLM's order: none gets pages that an earlier one waits for.
        if self._full:
            return None
        self._publish_written()
        prefix = None if request.skip_reading_prefix_cache else self.identity.prefix(request, request.num_tokens)
        if prefix is not None and self._pool.publishes and self._is_coming(request, self._pool.match(prefix)):
            return None
        return self._start(request, prefix)

    def may_grow(self, request: Request, n_tokens: int) -> bool:
        """Reserve pages for the request's first n_tokens tokens; return whether it has them."""
        entry = self._entries.get(request.request_id)
        if entry is None:
            # Where a request computes its whole prompt, vLLM does not look whether start() returned None.
            return False
        n_tokens = min(n_tokens, self._pool.max_length)
        if entry.capacity >= n_tokens or self._grow([entry], [n_tokens]):
            return True
        # vLLM has preempted since, or could not admit: those pages come first, of the newest request at first.
        for other in reversed(list(self._entries.values())):
            if other is not entry and not _is_running(other):
                self._end([other])
                if self._grow([entry], [n_tokens]):
                    return True
        return False

    def admit(self, request: Request) -> None:
        """vLLM gave the request its first blocks: it is in the next step."""
        self._entries[request.request_id].admitted = True

    def build_step(self, output: SchedulerOutput) -> Step:
        """Describe a step that vLLM has scheduled, publish what earlier steps wrote, and reserve pages ahead."""
        step = Step(self._runtime_dir, self._pool.client.join_token, self._pool.name)
        self._end([entry for entry in self._entries.values()
                   if entry.admitted and entry.request.status == RequestStatus.PREEMPTED])
        cached = output.scheduled_cached_reqs
        placed = [(data.req_id, data.block_ids) for data in output.scheduled_new_reqs]
        placed += [(i, blocks) for i, blocks in zip(cached.req_ids, cached.new_block_ids) if blocks is not None]
        step.placed = [(self._entries[i].seq, blocks[0]) for i, blocks in placed]
        for request_id, n_scheduled in output.num_scheduled_tokens.items():
            entry = self._entries[request_id]
            n_computed = entry.request.num_computed_tokens
            if n_computed < entry.n_shared:
                # The whole prompt was found, and vLLM computes its last token for the logits.
                step.written.add(entry.seq)
                entry.n_shared = 0
            self._publish(entry, n_computed)
            entry.n_written = n_computed + n_scheduled
            step.rows[entry.seq] = (n_scheduled, entry.n_written)
        self._reserve_ahead()
        self._full = self._published = False
        if output.num_scheduled_tokens:
            self._waiting.end()
        return step

    def take_failed(self) -> list[str]:
        """Return the ids of requests that can never start, once."""
        failed, self._failed = self._failed, []
        return failed

    def finish(self, request: Request) -> dict[str, Any] | None:
        """Publish what the request wrote, and end its sequence, if it has one, or give it away.

        Returns the kv_transfer_params of the request's output.
        """
        entry = self._entries.get(request.request_id)
        if entry is None:
            self._handover.release(request, self._uses)
            return None
        params = None
        if self._handover.is_to_give(request):
            n_written = _n_written(entry)
            self._publish(entry, n_written)
            params = self._handover.give(request, entry.seq, n_written)
        if params is None:
            self._end([entry])
        else:
            del self._entries[request.request_id]
        return params or None

    def forget(self) -> None:
        """Share nothing that was computed until now: the weights changed."""
        logger.info("pool %s: this engine finds nothing that was published before, and shares with itself only",
                    self._pool.name)
        self.identity.forget()
        for entry in self._entries.values():
            entry.n_published = self._pool.max_length
        # These may have started on what is to be forgotten.
        self._end([entry for entry in self._entries.values() if not entry.admitted])

    def close(self) -> None:
        """End all sequences.  Call nothing afterwards."""
        client = self._pool.client
        self._handover.close()
        self._pool.close()
        client.close()

    def _adopt(self, request: Request) -> Entry | None:
        """Let the request continue a sequence that another engine computed for it; None if there is none.

        Needs no page and no place, so it waits for no other request.  Raises one of NOT_NOW.
        """
        if request.skip_reading_prefix_cache:
            self._handover.release(request, self._uses)
            return None
        ticket = self._handover.adopt(request, self._uses)
        if ticket is None:
            return None
        n_shared = ticket.n_tokens
        if self._n_spec_tokens:
            n_shared = min(n_shared, request.num_tokens - 1)    # as in _start()
        info = self._pool.read(ticket.seq)
        first = min(n_shared, request.num_tokens - 1) - self._n_seen if self._n_seen is not None else 0
        if info.writable_from > n_shared or info.n_trimmed * self._pool.page_size > max(first, 0):
            # What it has published, the request finds.
            self._to_erase.append([ticket.seq])
            self._erase()
            return None
        entry = Entry(request, ticket.seq, n_shared, info.capacity, info.published,
                      info.n_trimmed * self._pool.page_size)
        self._entries[request.request_id] = entry
        return entry

    def _uses(self, seq: int) -> bool:
        return any(entry.seq == seq for entry in self._entries.values()) or any(seq in seqs for seqs in self._to_erase)

    def _start(self, request: Request, prefix: paged.Prefix | None) -> int | None:
        page_size = self._pool.page_size
        n_tokens = min(request.num_tokens + page_size, self._n_start_tokens)
        max_tokens = 0
        if self._n_spec_tokens:
            # vLLM schedules drafts with the last token, and a row writes either all of its tokens or none.
            max_tokens = (request.num_tokens - 1) // page_size * page_size
            prefix = prefix if max_tokens else None
        # A client may choose the id.  A tag has no control characters and no invisible ones.
        tag = "".join(letter if letter.isascii() and letter.isprintable() else "?" for letter in request.request_id)
        tag = tag.encode()[:TAG_BYTES].decode(errors="ignore")

        def start(n_tokens: int) -> paged.Started:
            return self._pool.start([(prefix, n_tokens)], max_tokens=max_tokens, tag=tag)[0]

        try:
            started = start(n_tokens)
        except NO_START as error:
            alone = self._start_alone(request, start, error)
            if alone is None:
                return None
            started = alone
        entry = Entry(request, started.seq, started.n_shared, self._pool.read(started.seq).capacity, started.n_shared)
        self._entries[request.request_id] = entry
        return _n_computed(entry)

    def _start_alone(self, request: Request, start: Callable[[int], paged.Started], error: paged.Error,
                     ) -> paged.Started | None:
        """Start a request that was refused, if there is no sequence whose end it could wait for.

        It starts with no more pages than its tokens need, or it fails.  If there are sequences, it waits.
        """
        n_tokens = min(request.num_tokens, self._n_start_tokens)
        try:
            n_created = n_created_if_unused(self._pool, error) if isinstance(error, NO_ROOM) else None
            if n_created is not None:
                try:
                    return start(n_tokens)
                except NO_ROOM as refusal:
                    error = refusal
                if n_created == n_created_if_unused(self._pool, error):
                    logger.error("request %s ends with an error: no sequence has pages, and yet it cannot have its "
                                 "own: %s", request.request_id, error)
                    self._failed.append(request.request_id)
                    return None
        except NO_START as late:
            error = late
        self._full = True
        self._wait(request, error, -(-n_tokens // self._pool.page_size))
        return None

    def _wait(self, request: Request, error: paged.Error, n_pages: int) -> None:
        self._waiting.say_stopping(error)
        if not any(_is_running(entry) for entry in self._entries.values()):
            self._waiting.wait(request, error, n_pages)

    def _reserve_ahead(self) -> None:
        """Reserve what running requests may need in the next step, in one request; may_grow() repeats what fails."""
        running = [entry for entry in self._entries.values() if _is_running(entry)]
        needed = [min(entry.n_written + 1 + self._n_spec_tokens, self._pool.max_length) for entry in running]
        if any(entry.capacity < n for entry, n in zip(running, needed)):
            self._grow(running, needed)

    def _grow(self, entries: list[Entry], n_tokens: list[int]) -> bool:
        try:
            self._trim(entries)
            self._pool.reserve([entry.seq for entry in entries], n_tokens, PAGES_AHEAD * self._pool.page_size)
        except NOT_NOW:
            return False
        for entry in entries:
            entry.capacity = self._pool.read(entry.seq).capacity
        return True

    def _trim(self, entries: list[Entry]) -> None:
        """Give back the pages that the sliding window of these requests, whose last step is done, has left behind."""
        if self._n_seen is None:
            return
        trimmed = []
        for entry in entries:
            n_computed = max(entry.request.num_computed_tokens, _n_computed(entry))
            first = max(n_computed - self._n_seen, 0) // self._pool.page_size * self._pool.page_size
            if first > entry.n_trimmed:
                # What is published stays in the pool's cache.
                self._publish(entry, n_computed)
                trimmed.append((entry, first))
        if trimmed:
            self._pool.trim([entry.seq for entry, _ in trimmed], [first for _, first in trimmed])
        for entry, first in trimmed:
            entry.n_trimmed = first

    def _publish_written(self) -> None:
        """Publish what the last step wrote, before requests start that may want it."""
        if self._published:
            return
        self._published = True
        running = [entry for entry in self._entries.values() if _is_running(entry)]
        if any([self._publish(entry, entry.request.num_computed_tokens) for entry in running]):
            # Publishing does not wait for the daemon; start() looks for what is published now.
            with suppress(paged.TimedOutError):
                self._pool.client.ping()

    def _is_coming(self, request: Request, n_found: int) -> bool:
        """Whether running requests compute much more of the request's prompt than the n_found tokens that are found.

        Several answers to one prompt arrive together: the first computes it for all.
        """
        return any(_is_running(entry) and entry.n_published < entry.request.num_prompt_tokens - self._pool.page_size
                   and self._n_common(entry.request, request) >= n_found + COMING_PAGES * self._pool.page_size
                   for entry in self._entries.values())

    def _n_common(self, a: Request, b: Request) -> int:
        """Return the length of a's prompt, in whole pages, that b begins with too."""
        if not self.identity.may_share(a, b):
            return 0
        n, size = 0, self._pool.page_size
        while n + size < a.num_prompt_tokens and a.all_token_ids[n:n + size] == b.all_token_ids[n:n + size]:
            n += size
        return n

    def _publish(self, entry: Entry, n_tokens: int) -> bool:
        """Publish the whole pages of the entry's first n_tokens tokens, whose K and V are written.

        Returns whether there was something to publish.
        """
        if self._handover.is_to_give(entry.request):
            # The taker writes its own tokens after the prompt, also in the prompt's last page.
            n_tokens = min(n_tokens, entry.request.num_prompt_tokens)
        n_tokens -= n_tokens % self._pool.page_size
        if n_tokens <= entry.n_published or not self._pool.publishes:
            return False
        entry.n_published = n_tokens
        entry.prefix = self.identity.prefix(entry.request, n_tokens, entry.prefix)
        if entry.prefix is not None:
            self._pool.publish([entry.seq], entry.prefix)
        return True

    def _end(self, entries: list[Entry]) -> None:
        """Publish and erase the sequences."""
        for entry in entries:
            self._publish(entry, _n_written(entry))
            del self._entries[entry.request.request_id]
        if entries:
            self._to_erase.append([entry.seq for entry in entries])
        self._erase()

    def _erase(self) -> None:
        while self._to_erase:
            try:
                self._pool.erase(self._to_erase[0])
            except paged.TimedOutError:
                return      # tried again in the next step
            except paged.StaleError:
                pass        # an erase that timed out was done after all
            del self._to_erase[0]


def _n_computed(entry: Entry) -> int:
    """Return how many tokens vLLM need not compute: all but the last one, of which it needs the logits."""
    return min(entry.n_shared, int(entry.request.num_tokens) - 1)


def _n_written(entry: Entry) -> int:
    """Return how many tokens of a request, whose last step is done, have their K and V in its sequence."""
    # Those of the last token are never written; drafts that were rejected are not computed tokens.
    n_written = min(entry.n_written, int(entry.request.num_tokens) - 1)
    if entry.request.status != RequestStatus.PREEMPTED:     # vLLM has reset num_computed_tokens of these
        n_written = min(n_written, int(entry.request.num_computed_tokens))
    return n_written


def _is_running(entry: Entry) -> bool:
    return entry.admitted and entry.request.status != RequestStatus.PREEMPTED
