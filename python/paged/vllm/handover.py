# SPDX-License-Identifier: Apache-2.0
"""Sequences that pass from an engine that computes prompts to one that continues them: vLLM's disaggregated prefill.

A request's kv_transfer_params say what is to be done, under the names that vLLM's own connectors have, so that their
proxies work unchanged:

    do_remote_decode    of a request to a producer: give the sequence away once the prompt is computed.  The output
                        then has kv_transfer_params for the consumer.
    do_remote_prefill   of a request to a consumer: adopt the sequence that the other parameters describe.

No byte of K or V moves: the sequence keeps its id and its pages.
"""
from __future__ import annotations

import reprlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vllm.logger import init_logger
from vllm.v1.request import Request, RequestStatus

import paged
from paged.vllm.identity import Identity

# vLLM configures the loggers below its own name.
logger = init_logger(f"vllm.{__name__}")

# Size of what Pool.give() returns.
TICKET_BYTES = 16
# How long a sequence that was given away waits for its taker, if kv_connector_extra_config has no ticket_timeout.
TICKET_TIMEOUT_S = 60.0
# What kv_transfer_params have of a ticket, in the order of its fields.
FIELDS = {"paged_ticket": str, "paged_pool": str, "paged_sequence": int, "remote_num_tokens": int, "paged_content": str}
# Between looks at a sequence whose ticket should have expired.
RETRY_S = 0.05
# The daemon's clock began to count before ours.  An answer that never came may mean that it has not begun yet.
LATE_S = 6.0


@dataclass(frozen=True)
class Ticket:
    """A sequence on its way, as kv_transfer_params describe it.

    They come from a proxy, so nothing in them is certain.
    """

    secret: bytes       # what Pool.give() returned
    pool: str
    seq: int            # its id, the same for giver and taker
    n_tokens: int       # tokens whose K and V are written
    content: str        # Identity.digest() of these tokens

    def params(self, engine_id: str | None, request_id: str, pages: list[int]) -> dict[str, Any]:
        """Return kv_transfer_params for the taker."""
        return {"do_remote_prefill": True, "do_remote_decode": False, "remote_engine_id": engine_id,
                "remote_request_id": request_id, "remote_block_ids": pages, "remote_num_tokens": self.n_tokens,
                "paged_ticket": self.secret.hex(), "paged_pool": self.pool, "paged_sequence": self.seq,
                "paged_content": self.content}

    @classmethod
    def of_params(cls, params: Mapping[str, Any]) -> Ticket:
        """Return the ticket in kv_transfer_params.  Raises ValueError if they have none."""
        values: list[Any] = [params.get(name) for name in FIELDS]
        for (name, kind), value in zip(FIELDS.items(), values):
            if type(value) is not kind:
                raise ValueError(f"{name} is {reprlib.repr(value)}" if name in params else f"there is no {name}")
        try:
            secret = bytes.fromhex(values[0])
        except ValueError:
            secret = b""
        ticket = cls(secret, *values[1:])
        for name, possible in (("paged_ticket", len(secret) == TICKET_BYTES),
                               ("paged_sequence", 0 < ticket.seq < 1 << 64),
                               ("remote_num_tokens", 0 < ticket.n_tokens < 1 << 32)):
            if not possible:
                raise ValueError(f"{name} is {reprlib.repr(params[name])}")
        return ticket


class Handover:
    """Gives sequences of an engine away, and adopts those of other engines.

    gives, adopts
        Which of the two the engine's kv_role allows.
    timeout
        Seconds until a sequence that nobody adopted comes back, and is erased.

    Methods are called by vLLM's scheduler.  A thread erases what comes back, because the scheduler does nothing as long
    as it has no requests.  All methods raise paged.GoneError if the daemon has ended.
    """

    def __init__(self, pool: paged.Pool, identity: Identity, *, engine_id: str | None = None, gives: bool = False,
                 adopts: bool = False, timeout: float = TICKET_TIMEOUT_S) -> None:
        self._pool = pool
        self._identity = identity
        self._engine_id = engine_id
        self._gives = gives
        self._adopts = adopts
        self._timeout = timeout
        self._unsure: set[str] = set()      # requests whose adopt() had no answer
        # What follows belongs to whoever holds the lock.
        self._changed = threading.Condition()
        self._due: dict[int, float] = {}    # sequences that were given, and when to look whether they came back
        self._thread: threading.Thread | None = None
        self._closed = False

    def close(self) -> None:
        """Stop the thread.  Tickets stay valid until they expire; their sequences end then."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    # Giving

    def is_to_give(self, request: Request) -> bool:
        """Whether the request's sequence goes to another engine when its prompt is computed."""
        params = request.kv_transfer_params
        return self._gives and bool(params) and bool(params.get("do_remote_decode"))

    def give(self, request: Request, seq: int, n_tokens: int) -> dict[str, Any] | None:
        """Give the sequence of a request that has ended; return the kv_transfer_params of its output.

        None: it is still the caller's, because no other engine could continue it, or the daemon refuses.  Empty: the
        daemon did not answer, and the sequence is erased later.
        """
        if request.status not in (RequestStatus.FINISHED_STOPPED, RequestStatus.FINISHED_LENGTH_CAPPED):
            return None     # aborted
        n_tokens = min(n_tokens, request.num_prompt_tokens)
        content = self._identity.digest(request, n_tokens) if n_tokens > 0 else None
        if content is None:
            logger.info("request %s: its sequence is not handed over: nothing identifies its tokens",
                        request.request_id)
            return None
        n_trimmed = self._pool.read(seq).n_trimmed
        pages = self._pool.page_table(seq)[n_trimmed:-(-n_tokens // self._pool.page_size)]
        try:
            secret = self._pool.give([seq], [n_tokens], timeout=self._timeout)
        except paged.TimedOutError:
            # It may have been given, and nobody has the ticket.
            self._expect_back(seq, self._timeout + LATE_S)
            return {}
        except (paged.LimitError, paged.PermissionDeniedError, paged.InvalidError) as error:
            # Too many tickets; or a window has left the end of the prompt behind.
            logger.warning("request %s: its sequence is not handed over: %s", request.request_id, error)
            return None
        self._expect_back(seq, self._timeout)
        ticket = Ticket(secret, self._pool.name, seq, n_tokens, content)
        return ticket.params(self._engine_id, request.request_id, pages)

    def _expect_back(self, seq: int, seconds: float) -> None:
        with self._changed:
            self._due[seq] = time.monotonic() + seconds
            if self._thread is None:
                self._thread = threading.Thread(target=self._erase_returned, name="paged tickets", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _erase_returned(self) -> None:
        """The thread: erase sequences that nobody has adopted."""
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                for seq in [seq for seq, due in self._due.items() if due <= now]:
                    try:
                        settled = self._settle(seq)
                    except (paged.GoneError, paged.StoppingError):
                        return      # the daemon has ended, and all sequences with it
                    if settled:
                        del self._due[seq]
                    else:
                        self._due[seq] = now + RETRY_S
                self._changed.wait(min(self._due.values()) - now if self._due else None)

    def _settle(self, seq: int) -> bool:
        """Erase a sequence that came back; return whether it is no longer on its way."""
        try:
            info = self._pool.read(seq)
            if info.owner != self._pool.client.session:
                return True
            if info.frozen:
                return False
            self._pool.erase([seq])
        except paged.StaleError:
            pass
        except (paged.GoneError, paged.StoppingError):
            raise
        except paged.Error:
            return False
        return True

    # Adopting

    def adopt(self, request: Request, in_use: Callable[[int], bool]) -> Ticket | None:
        """Adopt the sequence that another engine has computed for the request; return what it is.

        in_use
            Whether a sequence is the caller's already.

        None if there is none that the request can use.  Raises paged.TimedOutError and paged.QuotaError if that is to
        be asked again.  After any other outcome, the request's kv_transfer_params ask for nothing more.
        """
        if not _has_ticket(request):
            return None
        ticket, reason = self._read_ticket(request)
        if ticket is not None:
            reason = self._take(request, ticket, in_use)
        self._forget(request)
        if ticket is not None and not reason and not self._is_of(ticket, request):
            # Other requests cannot use it either: each has a ticket of its own.
            self._erase([ticket.seq])
            reason = "its tokens are not those of the request"
        if reason:
            logger.info("request %s: its prompt is computed here; the sequence that was handed over cannot be used: %s",
                        request.request_id, reason)
        return None if reason else ticket

    def release(self, request: Request, in_use: Callable[[int], bool]) -> None:
        """Free the sequence that was computed for a request that does not need it."""
        if not _has_ticket(request):
            return
        ticket, _ = self._read_ticket(request)
        try:
            if ticket is not None and not self._take(request, ticket, in_use):
                self._erase([ticket.seq])
        except (paged.TimedOutError, paged.QuotaError):
            pass    # the ticket expires
        self._forget(request)

    def _read_ticket(self, request: Request) -> tuple[Ticket | None, str]:
        """Return the ticket of the request; or None, and why there is none that this engine can use."""
        if not self._adopts:
            return None, "this engine is a producer (kv_role)"
        assert request.kv_transfer_params is not None
        try:
            return Ticket.of_params(request.kv_transfer_params), ""
        except ValueError as error:
            return None, str(error)

    def _is_of(self, ticket: Ticket, request: Request) -> bool:
        return (ticket.n_tokens <= request.num_tokens
                and self._identity.digest(request, ticket.n_tokens) == ticket.content)

    def _forget(self, request: Request) -> None:
        assert request.kv_transfer_params is not None
        request.kv_transfer_params["do_remote_prefill"] = False
        self._unsure.discard(request.request_id)

    def _take(self, request: Request, ticket: Ticket, in_use: Callable[[int], bool]) -> str:
        """Adopt the ticket's sequence; return why that failed, or "".  Raises TimedOutError and QuotaError."""
        if ticket.pool != self._pool.name:
            return f"it is in pool {ticket.pool}"
        # With the lock: a sequence that this engine gave itself did not come back.
        with self._changed:
            try:
                adopted = [tuple(item) for item in self._pool.adopt(ticket.secret)]
            except paged.TimedOutError:
                self._unsure.add(request.request_id)
                raise
            except paged.NotFoundError as error:
                # The adopt that had no answer may have been served.
                if request.request_id not in self._unsure or in_use(ticket.seq) or not self._is_left(ticket.seq):
                    return str(error)
                adopted = [(ticket.seq, ticket.n_tokens)]
            except (paged.PermissionDeniedError, paged.NoMemoryError) as error:
                return str(error)
            self._due.pop(ticket.seq, None)
        if adopted == [(ticket.seq, ticket.n_tokens)]:
            return ""
        self._erase([seq for seq, _ in adopted])
        return "the ticket is of another sequence"

    def _is_left(self, seq: int) -> bool:
        """Whether the sequence is this engine's, and not one that it gave away."""
        try:
            info = self._pool.read(seq)
        except (paged.StaleError, paged.InvalidError):
            return False
        return info.owner == self._pool.client.session and not info.frozen and seq not in self._due

    def _erase(self, seqs: list[int]) -> None:
        try:
            self._pool.erase(seqs)
        except paged.TimedOutError:
            for seq in seqs:
                self._expect_back(seq, 0)


def _has_ticket(request: Request) -> bool:
    """Whether the request says that a sequence was computed for it."""
    return bool(request.kv_transfer_params) and bool(request.kv_transfer_params.get("do_remote_prefill"))
