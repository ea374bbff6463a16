# SPDX-License-Identifier: Apache-2.0
# The C extension's interface: names and types.  tests/stub_docstrings.py writes the docstrings, which are those of
# python/ext.
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Literal, NamedTuple, TypeAlias, TypedDict, final

# A tensor: an object with DLPack's __dlpack__ or C exchange API, such as torch.Tensor, numpy.ndarray and jax.Array.
Tensor: TypeAlias = Any
# Integers: a list, an object with the buffer protocol (array.array, numpy.ndarray), or a tensor in host memory.
Integers: TypeAlias = Any
# An array of block indices: a dense int32 tensor in host memory, or a buffer of int32 and its shape.
BlockArray: TypeAlias = Tensor | tuple[Any, tuple[int, ...]]
# What BlockMask.arrays() returns, so that block_mask_from_arrays(**mask.arrays()) can be checked.
class _BlockArrays(TypedDict):
    num_blocks: tuple[Any, tuple[int, ...]]
    indices: tuple[Any, tuple[int, ...]]
    full_num_blocks: tuple[Any, tuple[int, ...]]
    full_indices: tuple[Any, tuple[int, ...]]

Dtype: TypeAlias = Literal["f32", "f16", "bf16", "e4m3", "e5m2", "i8", "i32", "u8", "i64"]

class Error(Exception):
    """A call of libpagedclient failed.  str() is the library's message.

    status and status_name are the number and name of its enum paged_status.
    Each status has a subclass.  A call that fails changes nothing, except
    after TimedOutError; a Batch.plan() that fails leaves the batch without a plan.
    """
    status: int         # enum paged_status
    status_name: str    # "PAGED_ERR_FULL"

class InvalidError(Error, ValueError):
    """An argument is outside what the call documents."""
class NoMemoryError(Error, MemoryError):
    """This process has no memory left."""
class NotFoundError(Error, LookupError):
    """There is no object of that name or id."""
class PermissionDeniedError(Error, PermissionError):
    """The object belongs to another session, or policy forbids the call."""
class FullError(Error):
    """Not enough free pages or sequence slots; nothing was taken.

    pages_missing, slots_missing: with so many more, the same call has enough.
    n_requested: the pages that it asked for.  Of the pool's pages, n_free, n_cached, n_own
    (only sequences of this session name them: erasing all of these makes them available),
    n_others and n_quarantined.  All are 0 if something else was missing: see the message.
    """
    pages_missing: int
    slots_missing: int
    n_requested: int
    n_free: int
    n_cached: int
    n_own: int
    n_others: int
    n_quarantined: int
class CapacityError(Error):
    """A length or position exceeds the capacity that is reserved for it."""
class LimitError(Error, ValueError):
    """A count or length exceeds a limit of the pool or the library."""
class StaleError(Error):
    """The sequence has ended, or page table entries that a plan or mask used have been replaced or removed."""
class RangeError(Error, IndexError):
    """An index is out of bounds: of a page, a position, an array element, a row."""
class GoneError(Error, ConnectionError):
    """The daemon has died, or has ended this client's session.

    Close the client and open a new one.
    """
class AgainError(Error):
    """A page table is being changed, or an object is busy: call again."""
class TimedOutError(Error, TimeoutError):
    """No reply in time.  The outcome is unknown.

    A reserve or truncate may be repeated, because its numbers are absolute.
    """
class ForkError(Error):
    """The object belongs to the parent process of a fork.

    Open a client in the child, or start processes by multiprocessing's "spawn".
    """
class UnsupportedError(Error):
    """This build, machine or back end does not support the call."""
class VersionError(Error):
    """Library and daemon have different major versions."""
class BackendError(Error):
    """The memory back end failed (mmap, CUDA)."""
class SystemCallError(Error):
    """A system call failed."""
class ProtocolError(Error):
    """A message is malformed or unexpected."""
class NoDaemonError(Error, ConnectionError):
    """No daemon listens at the runtime directory."""
class StoppingError(Error):
    """The daemon is stopping and accepts no new work, or the session is drained and gets no new sequences."""
class CorruptError(Error):
    """The page accounting of a pool is inconsistent."""
class QuotaError(Error):
    """The session's tenant may have no more pages of the pool; nothing was taken.

    The message names tenant, pool, limit, and what is charged and requested.

    pages_missing, slots_missing: with so many more, the same call has enough.
    n_requested: the pages that it asked for.  Of the pool's pages, n_free, n_cached, n_own
    (only sequences of this session name them: erasing all of these makes them available),
    n_others and n_quarantined.  All are 0 if something else was missing: see the message.
    """
    pages_missing: int
    slots_missing: int
    n_requested: int
    n_free: int
    n_cached: int
    n_own: int
    n_others: int
    n_quarantined: int

# Levels of log lines, as in syslog.
LOG_ERROR: int
LOG_WARNING: int
LOG_INFO: int
LOG_DEBUG: int

# Most sequences of a request, tokens in a page, elements of a head.
MAX_REQUEST_SEQS: int
MAX_HOLD_PAGES: int
MAX_PAGE_SIZE: int
MAX_DIM: int

# Kinds of changes.
CHANGE_STORED: int
CHANGE_REMOVED: int
CHANGE_CLEARED: int
PUBLISH_DONE: int
PUBLISH_REMOVED: int
PUBLISH_TRIMMED: int
PUBLISH_OTHER: int
PUBLISH_BUCKET: int

def version() -> str:
    """Version of libpagedclient, such as "0.1.0"."""
def salt(*parts: str) -> bytes:
    """SHA-256 of strings, each preceded by its length: a salt of 32 bytes for Prefix.

    Pass everything that K and V depend on besides the tokens and the pool, for
    example adapter, tenant and settings of the rotary embedding.
    """
def model_allowed(setting: str, name: str) -> bool:
    """Whether a model may use a pool: whether setting, which is Pool.model, is "" or
    names the model.  name is of the Hugging Face Hub, a directory or a GGUF file:
    "Llama-3@v1" allows "meta/llama-3" and "/models/Llama-3.gguf".
    """

class NamedMod(NamedTuple):
    """A ready-made mod.

    arguments  such as "window"; when omitted in a text, parameters of these names
               are used
    text       what the name stands for
    """
    name: str
    arguments: str
    text: str

def named_mods() -> list[NamedMod]:
    """Ready-made mods, which the text of a mod may call by name, as a list of NamedMod."""

def connect(runtime_dir: str | PathLike[str] | None = None, *, name: str | None = None,
            join_token: str | None = None, timeout: float | None = None, threads: int | None = None,
            run: Literal["own", "openmp"] | None = None, cpus: Sequence[int] | None = None, isa: str | None = None,
            observer: bool = False, outlive: bool = False, tables_only: bool = False, wait: float | None = None,
            log: Callable[[int, str], None] | None = None) -> Client:
    """Attach to the daemon pagedd and return a Client.

    runtime_dir
        Where the daemon listens.  None: $PAGED_RUNTIME_DIR, else /run/paged.
    name
        Shown by pagedctl.  None: the program's name.
    join_token
        Client.join_token of a session's first member, to join that session.
        None: start a session.
    timeout
        Longest time that a call waits for the daemon, seconds.  None: the environment
        variable PAGED_TIMEOUT_MS, else 5 seconds.
    threads
        Threads that run a batch's kernels, the calling one included.  None: the
        number of cpus, else torch.get_num_threads() if torch is imported, else one
        for each CPU of this process.
    run
        "own": the library starts threads for each batch.  "openmp": kernels run
        on the OpenMP threads that this process has, which are torch's.  None:
        "openmp" if torch is imported, cpus is None and the process was not forked.
        Threads of both kinds at once are slow, because torch's spin while they wait
        for work.  In a forked process "openmp" is refused: libgomp would wait for
        threads that only the parent has.
    cpus
        The CPU that each thread is bound to, as many as threads; the calling thread, the
        first, is not bound.  Only with run "own".  None: no thread is bound.
    isa
        Instruction set of the kernels: "generic", "avx2", "avx512",
        "avx512bf16" or "amx".  None: the best of this machine.  The environment
        variable PAGED_ISA overrides it.
    observer
        Read only: no session and no sequences.
    outlive
        The session lives until its last member has left, instead of its first.
    tables_only
        True: pools are opened without their pages, for a program that never touches K
        and V, such as a router; no GPU is used, and batches are refused.
    wait
        Longest time to wait for a daemon that is starting, or that stops and starts
        again, seconds.  None: not at all.
    log
        Called as log(level, text) for the library's log lines, with levels as in
        syslog: LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG.  It runs in the
        thread that is inside a call, and must not call this module.

    Raises NoDaemonError, PermissionDeniedError, VersionError, StoppingError,
    GoneError if the session of join_token has ended, TimedOutError, InvalidError,
    and UnsupportedError if this machine lacks isa.
    """

def embedded(pools: Sequence[Mapping[str, Any]] | Mapping[str, Any], *, name: str | None = None,
             timeout: float | None = None, threads: int | None = None, run: Literal["own", "openmp"] | None = None,
             cpus: Sequence[int] | None = None, isa: str | None = None,
             log: Callable[[int, str], None] | None = None) -> Client:
    """Run the owner of the pools inside this process and return a Client.

    pools is a mapping of a pool's parameters, or a sequence of them:

    name, n_layers, n_kv_heads, n_pages
        Required.
    k_dim, v_dim
        Head dimension of K (required) and of V (default: k_dim).
    v_in_k
        True: V is the first v_dim dims of K and is not stored separately (MLA).
    dtype
        Required: "f32", "f16", "bf16", "e4m3", "e5m2" or "i8".
    page_size
        Tokens per page; default 16.
    n_slots
        Most sequences; default 1024.
    max_length
        Tokens that one sequence may reserve; default: as many as all pages hold.
    backend, device
        "host" (default) or "cuda"; the GPU's index or UUID.

    The other arguments are those of connect().  The memory is private to this
    process.  Raises InvalidError for an impossible geometry, and UnsupportedError if
    this machine lacks the back end or isa.
    """

class SequenceInfo(NamedTuple):
    """A sequence, as Pool.read() returns it.

    owner          session id
    capacity       tokens
    writable_from  first token that can be written; those before are shared or published
    n_pages        pages of its page table
    version        changes when page table entries are replaced or removed, or a truncate
                   ends inside a page; not when the table grows
    published      tokens that other sequences can share
    n_trimmed      of n_pages, those at the beginning that were given back
    frozen         True: given away, it can be read only
    hold           True: of Pool.hold(), it can be erased only
    publish_end    why not all of the last publish is published: paged.PUBLISH_DONE, all is, or
                   PUBLISH_REMOVED, PUBLISH_TRIMMED, PUBLISH_OTHER, PUBLISH_BUCKET (paged_sharing(3))
    """
    owner: int
    capacity: int
    writable_from: int
    n_pages: int
    version: int
    published: int
    n_trimmed: int
    frozen: bool
    hold: bool
    publish_end: int

class PoolCounts(NamedTuple):
    """Pages of a pool by state; the last four add up to n_pages.

    n_referenced   in sequences
    n_quarantined  of ended sessions, whose processes may still write to them
    n_cached       published, and in no sequence: a reserve may evict them
    """
    n_pages: int
    n_free: int
    n_referenced: int
    n_quarantined: int
    n_cached: int

class Started(NamedTuple):
    """A sequence that Pool.start() created, and the number of tokens that it shares."""
    seq: int
    n_shared: int

class Adopted(NamedTuple):
    """A sequence that Pool.adopt() took over, and its written tokens as the giver passed them."""
    seq: int
    length: int

class Change(NamedTuple):
    """A change of the index of published pages, as Watch.next() returns it.

    number  of the change, from 1 on, without gaps
    kind    CHANGE_STORED, CHANGE_REMOVED, or CHANGE_CLEARED: all nodes were removed, page
            and serial are 0.  Ignore others
    serial  of the node: identifies this publication of the page for ever
    hash    of the node's prefix, seeded by the pool: equal prefixes have equal hashes,
            others may
    """
    number: int
    kind: int
    page: int
    serial: int
    hash: int

class Node(NamedTuple):
    """A published page, as Watch.walk() returns it.

    serial, hash   as in Change
    parent         the page before it in its prefix; None: it is the first one
    parent_serial  of that page's node; 0: it is the first one
    hits           sequences that were started on it
    """
    page: int
    serial: int
    parent: int | None
    parent_serial: int
    hash: int
    hits: int

class BlockKey(NamedTuple):
    """What a published page holds, as Watch.read() returns it.

    parent, parent_serial  as in Node
    tokens                 list of token ids; None: not known, of a Prefix by keys
    extra                  32 bytes: a hash of salt and extras, zeros: none; keyed: the key
    keyed                  True: the key is extra alone, of a Prefix by keys; tokens are
                           with it
    """
    parent: int | None
    parent_serial: int
    tokens: list[int] | None
    extra: bytes
    keyed: bool

class WatchInfo(NamedTuple):
    """Where a watch stands, as Watch.info() returns it.

    position  number of the change that it has read last
    n_behind  changes made since then
    n_lost    changes that it has lost in all
    """
    position: int
    n_behind: int
    n_lost: int

class CheckResult(NamedTuple):
    """Result of a check of a pool's page accounting.

    holds  the totals add up and the reference count of every page is right
    text   the first error found; "": none

    The other fields are the counts, as in PoolCounts, and the number of live sequences.
    """
    holds: bool
    text: str
    n_pages: int
    n_free: int
    n_referenced: int
    n_cached: int
    n_quarantined: int
    n_sequences: int

@final
class Client:
    """An open connection to the daemon, or an embedded owner of pools; see connect() and
    embedded().

    A session owns sequences.  It ends when the client that began it closes or dies,
    or with outlive when its last member does.  When the daemon dies or ends the
    session, every call that needs it raises GoneError: close the client and open a
    new one.

    Calls may come from any thread; requests to the daemon are serialised.  A call
    releases the GIL.  It may wait for the daemon up to the client's timeout.
    """
    @property
    def closed(self) -> bool:
        """True after close()."""
    @property
    def session(self) -> int:
        """Id of the session that owns this client's sequences; 0: an observer."""
    @property
    def join_token(self) -> str:
        """Secret by which another process joins this session; "" unless this client began it.

        A bearer token: pass it through a pipe or the environment, not on a command line.
        """
    @property
    def threads(self) -> int:
        """Threads that run a batch's kernels."""
    @property
    def run(self) -> str:
        """"own" or "openmp": whose threads these are."""
    def close(self) -> None:
        """Leave the session and free everything; nothing if the client is closed.

        Closes its pools and batches.  The close of a session's first member ends the
        session, unless it was opened with outlive.  By closing, the caller promises that
        no kernel of this process still runs on the pages.

        Raises BufferError while a tensor over the pages of a pool lives, and
        RuntimeError while another thread is inside a call.
        """
    def __enter__(self) -> Client: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None: ...
    def fileno(self) -> int:
        """Descriptor that becomes readable when dispatch() has something to report.

        For select, selectors and asyncio; do not close it.  Raises UnsupportedError for
        an embedded client.
        """
    def dispatch(self) -> None:
        """Process pending messages of the daemon; never waits for it.

        Raises StoppingError if the daemon stops soon or the session is drained (finish, then
        close; a drained session gets no new sequences), and GoneError if it has died or has
        ended this session.
        """
    def ping(self) -> None:
        """One round trip to the owner of the pools.

        Raises TimedOutError or GoneError.
        """
    def pool(self, name: str) -> Pool:
        """Map a pool's pages and page tables into this process and return a Pool.

        Raises NotFoundError (the message lists the pools), PermissionDeniedError if the
        pool's allow-list refuses this user, BackendError if mapping failed.
        """
    def reserve(self, seqs: int | Integers, n_tokens: int | Integers, n_ahead: int | Integers = 0) -> None:
        """Raise the capacity of each sequence to at least n_tokens tokens.

        seqs: sequences of any pools of the client, at most 4096.  n_tokens and n_ahead:
        one number for all, or one for each.  n_tokens is absolute and capacity never
        shrinks, so that a call may be repeated.  n_ahead asks for tokens beyond n_tokens
        as far as the pool has spare pages.  One request, all or nothing.

        Raises FullError if too few pages are free, LimitError if n_tokens exceeds the
        pool's max_length, StaleError, PermissionDeniedError.
        """
    def truncate(self, seqs: int | Integers, n_tokens: int | Integers) -> None:
        """Keep n_tokens tokens of each sequence and free the whole pages past them.

        The sequences stay alive, also with n_tokens 0.  By truncating, the caller
        promises that no work of its session on the affected pages is running.

        Raises CapacityError if n_tokens exceeds a sequence's capacity, StaleError,
        PermissionDeniedError.
        """
    def trim(self, seqs: int | Integers, first_token: int | Integers) -> None:
        """Give the whole pages before first_token of each sequence back.

        For attention with a sliding window, which no longer reaches them.  Positions do not
        change; attention over the sequence begins at its first page.  Published pages stay
        in the cache.  By trimming, the caller promises that no work of its session on these
        pages is running.

        Raises CapacityError if first_token exceeds a sequence's capacity, StaleError,
        PermissionDeniedError.
        """
    def erase(self, seqs: int | Integers) -> None:
        """End the sequences and free their pages; their ids are stale from now on.

        Raises StaleError, PermissionDeniedError.
        """
    def cancel_ticket(self, ticket: bytes) -> None:
        """Take back the sequences of a ticket that this session gave.

        Raises NotFoundError if the ticket is unknown, used or expired,
        PermissionDeniedError if another session gave it.
        """
    # Administration.
    def status(self) -> dict[str, Any]:
        """The daemon, as a dict: version, boot_id, uptime_ms, n_requests, n_sessions, n_pools,
        pid, stopping.
        """
    def metrics(self) -> dict[str, Any]:
        """What the daemon has counted since it started, as a dict: uptime_ms, n_requests,
        n_dropped, n_attached, n_died, n_opened, n_members, n_sessions, turns,
        longest_turn_ns, requests.

        requests has, for each kind by its name, "replies", a dict of numbers by status,
        "latency", and "most_visited", the most entries, pages and nodes that a request, or a
        step of a long one, has visited.  turns and latency are histograms: (sum in ns, [(bound, n), ...]) with n
        durations up to each bound in ns and above the one before; None: no bound.
        """
    def pools(self) -> list[dict[str, Any]]:
        """All pools, as a list of dicts with the names of struct paged_pool_entry: name,
        backend, n_pages, n_free, page_size, dtype, memory and others.
        """
    def sessions(self) -> list[dict[str, Any]]:
        """Members of all sessions, as a list of dicts: session, member, first, ended, pid,
        uid, n_requests, n_sequences, n_pages, n_quarantined, name, draining,
        tenant.
        """
    def sequences(self, pool: str) -> list[dict[str, Any]]:
        """Live sequences of a pool, by its name, as a list of dicts: seq, session, pid,
        capacity, n_pages, n_trimmed, name, tag, state (1: given away).

        Raises NotFoundError, PermissionDeniedError.
        """
    def tickets(self) -> list[dict[str, Any]]:
        """Sequences that were given away and that no session has adopted yet, by ticket, as a
        list of dicts: number, session, ended, pool, n_sequences, n_pages, n_tokens,
        expires_ms, flags, to_session, to_uid.  The secret bytes are not listed.
        """
    def page_table(self, seq: int) -> tuple[dict[str, Any], list[int]]:
        """(dict as of sequences(), physical pages in logical order), from the daemon.

        Raises StaleError.
        """
    def check(self, pool: str) -> CheckResult:
        """Let the daemon recount a pool's pages from all page tables; a CheckResult.

        Raises PermissionDeniedError unless this user is the daemon's, root or of the
        admin group.
        """
    def kick(self, session: int, *, kill: bool = False) -> None:
        """End a session; kill: also send SIGKILL to its processes.

        Its pages stay in quarantine until its processes have ended.

        Raises NotFoundError, PermissionDeniedError as check() does, and SystemCallError if
        the session was ended, but not all of its processes could be killed.
        """
    def drain(self, session: int) -> None:
        """Give a session no new sequences from now on, and tell its members to leave.

        Their dispatch() raises StoppingError, as create(), start(), fork() do; the sequences
        of the session go on.

        Raises NotFoundError, and PermissionDeniedError as check() does.
        """
    def quotas(self) -> list[dict[str, Any]]:
        """The pages that each tenant is charged in each pool, as a list of dicts: tenant, pool
        (its number), n_charged, limited (whether there is a limit), limit.

        Empty for an embedded client, which has no tenants.
        """
    def log_level(self, level: str | None = None) -> str:
        """Set what the daemon logs, until it ends: 'error', 'warning', 'info' or 'debug'; None:
        leave it.  Returns the level before.

        Raises PermissionDeniedError as check() does.
        """
    def prefixes(self, pool: str) -> list[dict[str, Any]]:
        """Published pages of a pool, in the order of their numbers, as a list of dicts:
        serial, parent_serial, page, parent (None: the first page of a prefix),
        n_references, used_s, hits, pinned.
        """
    def pins(self, pool: str) -> list[dict[str, Any]]:
        """The pins of a pool, the oldest first, with who made them."""
    def unpin(self, pool: str, number: int) -> None:
        """End a pin of any member.  number: as pins() lists it.

        Raises NotFoundError, and PermissionDeniedError as check() does.
        """
    def evict(self, pool: str, n_pages: int = 0) -> int:
        """Free up to n_pages cached pages, least recently used first; 0: all.  Returns the
        number of pages freed.

        Raises PermissionDeniedError as check() does.
        """
    def pin_page(self, pool: str, page: int, serial: int, seconds: int) -> int:
        """Pin a published page and those before it in its prefix: they are evicted only after
        all unpinned pages.  serial: as prefixes() lists it.  seconds: from now on; 0 ends the
        pin.  Returns the number of pages of the prefix.

        Raises StaleError, LimitError, RangeError, PermissionDeniedError for an observer.
        """
    # Arrays for remote block masks.
    def upload(self, name: str, array: Tensor) -> None:
        """Store a copy of a tensor with the owner, for block masks with remote=True.

        The array belongs to the session, replaces one of the same name, and ends with the
        session.

        Raises RangeError for an i64 value outside 32 bits, LimitError, AgainError.
        """
    def drop(self, name: str) -> None:
        """Delete an uploaded array.  Raises NotFoundError."""

@final
class Pages:
    """K, V or scales of all pages of a pool, in place.

    Frameworks take it by DLPack: torch.from_dlpack(pool.k) is a tensor of shape
    [n_layers, n_pages, n_kv_heads, page_size, dim] over the pages themselves, which all
    processes share.  Elements are as stored: those of e4m3, e5m2 and i8 are not
    multiplied by their scales.  NumPy has no bf16, e4m3 and e5m2.  JAX refuses tensors
    that are not dense, and K and V of a page lie together.

    Pool.k, Pool.v, Pool.k_scale and Pool.v_scale are such objects.
    """
    @property
    def shape(self) -> tuple[int, int, int, int, int]:
        """n_layers, n_pages, n_kv_heads, page_size, dim."""
    @property
    def strides(self) -> tuple[int, int, int, int, int]:
        """Elements from one layer, page, head, token and dim to the next."""
    @property
    def dtype(self) -> Dtype:
        """Name of the element type: "bf16"."""
    @property
    def data_ptr(self) -> int:
        """Address of the first element; a device address on a GPU."""
    @property
    def pool(self) -> Pool:
        """The pool."""
    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """A DLPack capsule of the pages, in place.

        Frameworks call it: torch.from_dlpack(pool.k), numpy.from_dlpack(pool.k).  The pool
        cannot be closed while a tensor over its pages is alive.  On a GPU, work on the
        tensor is not ordered after that of batches: use the batch's stream, or call
        Batch.finish() first.

        Raises BufferError if copy is true or dl_device is another device.
        """
    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's device type and id: (1, 0) is host memory, (2, n) is GPU n."""

@final
class Prefix:
    """Identifies the content of a sequence's first tokens.

    tokens
        Token ids, each below 2**32 - 1.
    salt
        32 bytes, from salt().  Prefixes of different salts never match.  It must
        cover everything that K and V depend on and that the pool's configuration
        does not state.  None: zeros.
    extras
        Content that token ids do not express, such as images: (first, n_tokens,
        digest) with the position of the first token that stands for it, the number of
        these tokens and the SHA-256 of the content; in ascending order of first.
    keys, page_size
        Instead of all others: 32 bytes for each page, each a collision-free hash of
        the prefix up to the end of its page, such as vLLM's SHA-256 block hashes, and
        the pool's page size.  tokens may be given with them, for programs that watch
        the index, such as paged-events; they are no part of the identity then.
    """
    def __init__(self, tokens: Integers | None = None, *, salt: bytes | None = None,
                 extras: Iterable[tuple[int, int, bytes]] = (), keys: bytes | None = None,
                 page_size: int | None = None) -> None: ...
    @property
    def n_tokens(self) -> int:
        """Number of tokens; also len()."""
    def __len__(self) -> int: ...
    def extended(self, tokens: int | Integers, *, extras: Iterable[tuple[int, int, bytes]] = ()) -> Prefix:
        """The prefix with further tokens at its end, and extras that begin in them.

        For a sequence that grows: takes as long as the new tokens, however many the prefix
        has, because both share them.  Not for prefixes by keys.
        """

@final
class Pool:
    """A pool of pages, mapped into this process; see Client.pool().

    Sequences are integers.  A sequence has a page table: the physical pages of its
    tokens, in logical order.  The capacity of a sequence is the tokens that its pages
    hold.  Calls may come from any thread.
    """
    @property
    def closed(self) -> bool:
        """True after close() of the pool or of its client."""
    @property
    def client(self) -> Client:
        """The Client."""
    @property
    def name(self) -> str:
        """Name of the pool."""
    @property
    def backend(self) -> str:
        """"host" or "cuda"."""
    @property
    def device(self) -> str | None:
        """UUID of the GPU, "GPU-8a1b..."; None: host memory."""
    @property
    def isa(self) -> str:
        """Instruction set of this client's kernels: "avx512", "sm_90" and so on."""
    @property
    def model(self) -> str:
        """"name@revision", as pagedd.conf(5) says; "": not stated."""
    @property
    def number(self) -> int:
        """Number of the pool, which its sequences' ids contain."""
    @property
    def n_layers(self) -> int:
        """Number of layers."""
    @property
    def n_kv_heads(self) -> int:
        """Number of KV heads."""
    @property
    def k_dim(self) -> int:
        """Head dimension of K."""
    @property
    def v_dim(self) -> int:
        """Head dimension of V."""
    @property
    def v_in_k(self) -> bool:
        """True: V is the first v_dim dims of K and is not stored separately (MLA)."""
    @property
    def dtype(self) -> Dtype:
        """Type of the elements in the pages: "f32", "f16", "bf16", "e4m3", "e5m2", "i8"."""
    @property
    def page_size(self) -> int:
        """Tokens per page."""
    @property
    def n_pages(self) -> int:
        """Number of pages."""
    @property
    def n_slots(self) -> int:
        """Most sequences."""
    @property
    def max_length(self) -> int:
        """Tokens that one sequence may reserve."""
    @property
    def page_bytes(self) -> int:
        """Bytes of one page, all layers."""
    @property
    def size(self) -> int:
        """Bytes of all pages."""
    @property
    def publishes(self) -> bool:
        """Whether sequences can be published."""
    @property
    def k(self) -> Pages:
        """K of all pages, as Pages."""
    @property
    def v(self) -> Pages:
        """V of all pages, as Pages."""
    @property
    def k_scale(self) -> Pages | None:
        """Scales of K, as Pages; None unless dtype is "i8"."""
    @property
    def v_scale(self) -> Pages | None:
        """Scales of V, as Pages; None unless dtype is "i8"."""
    def close(self) -> None:
        """Unmap the pool and close its batches; nothing if it is closed.

        Raises BufferError while a tensor over its pages lives, and RuntimeError while
        another thread is inside a call.
        """
    def __enter__(self) -> Pool: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None: ...
    def counts(self) -> PoolCounts:
        """Pages by state, from shared memory, as PoolCounts.

        Raises AgainError if they were changed during every attempt, GoneError.
        """
    def totals(self) -> dict[str, int]:
        """What has happened in the pool since it was created, from shared memory, as a dict
        with the names of struct paged_pool_totals: n_created, n_ended, n_tokens_asked and
        others.

        Raises GoneError.
        """
    def wait_free(self, n_pages: int, timeout: float) -> None:
        """Sleep until n_pages pages are free or cached; timeout in seconds.

        A hint: another session may take the pages first.  Reserve, and wait again on
        FullError.  Sends no request.

        Raises TimedOutError, LimitError if the pool has fewer pages in all, GoneError.
        """
    def check(self) -> CheckResult:
        """Recount the pool's pages from the mapped page tables, as CheckResult.

        Raises AgainError if the tables were changed during every attempt.
        """
    # Sequences.
    def create(self, n: int = 1, n_tokens: int | Integers = 0, *, tag: str | None = None) -> list[int]:
        """Create n sequences, owned by this session, and return their ids.

        n_tokens: capacity to reserve, tokens; one number for all or one for each.  tag:
        shown by pagedctl, at most 31 bytes.  One request, all or nothing.

        Raises FullError if the pool lacks slots or pages, LimitError if n_tokens
        exceeds max_length, n exceeds 4096 or the tag is too long, and
        PermissionDeniedError for an observer.
        """
    def reserve(self, seqs: int | Integers, n_tokens: int | Integers, n_ahead: int | Integers = 0) -> None:
        """Raise the capacity of sequences of this pool, as Client.reserve().

        Also raises InvalidError for a sequence of another pool.
        """
    def truncate(self, seqs: int | Integers, n_tokens: int | Integers) -> None:
        """Keep n_tokens tokens of sequences of this pool, as Client.truncate().

        Also raises InvalidError for a sequence of another pool.
        """
    def trim(self, seqs: int | Integers, first_token: int | Integers) -> None:
        """Give the pages before first_token of sequences of this pool back, as Client.trim().

        Also raises InvalidError for a sequence of another pool.
        """
    def erase(self, seqs: int | Integers) -> None:
        """End sequences of this pool, as Client.erase().

        Also raises InvalidError for a sequence of another pool.
        """
    def read(self, seq: int) -> SequenceInfo:
        """A live sequence of any session, from shared memory, as SequenceInfo.

        Raises StaleError, AgainError, GoneError, InvalidError for a sequence of another
        pool.
        """
    def page_table(self, seq: int) -> list[int]:
        """Physical pages of a live sequence of any session, in logical order; 2**32 - 1
        for those that trim() gave back.

        Raises as read() does.
        """
    # Sharing.
    def match(self, prefix: Prefix) -> int:
        """Number of tokens of the longest published part of a prefix.

        A multiple of the page size.  A hint, because pages may be evicted before start()
        takes them.  Sends no request.  Raises InvalidError, GoneError.
        """
    def wait_prefix(self, prefix: Prefix, n_tokens: int, timeout: float) -> None:
        """Sleep until the first n_tokens tokens of a prefix are published; timeout in seconds.

        n_tokens is rounded down to whole pages.  For a worker that waits until another one
        has computed the prompt that both need.  Sends no request.

        Raises TimedOutError, LimitError if n_tokens exceeds the prefix or max_length,
        UnsupportedError if the pool publishes nothing, GoneError.
        """
    def start(self, items: Iterable[tuple[Prefix | None, int]], *, max_tokens: int = 0,
              tag: str | None = None) -> list[Started]:
        """Create sequences on their longest published prefixes; return a list of Started.

        items: for each sequence a pair (prefix or None, n_tokens).  n_tokens is the capacity
        to reserve; 0: that of the shared pages.  max_tokens: share at most this many tokens,
        rounded down to whole pages; 0: all that match.  tag: as for create().  All or nothing.

        If a whole prompt is shared, its last token's query is still to be computed: plan
        it with q_len 1 and no_append.

        Raises FullError if the pool lacks slots or pages, LimitError if n_tokens exceeds
        max_length or the tag is too long, and PermissionDeniedError for an observer.
        """
    def publish(self, seqs: int | Integers, prefixes: Prefix | Sequence[Prefix]) -> None:
        """Let other sequences share the whole pages of these prefixes.

        prefixes: one Prefix for each sequence, or one for all: the content of its first
        tokens.  The caller promises that K and V of these tokens have been written, in all
        layers; from now on they cannot be written.  Pass the whole prefix each time; only
        what is not yet published is sent.  The call does not wait for the daemon, and
        SequenceInfo.published tells how far publishing has come.  For a pool on a GPU, use
        Batch.publish().

        Raises CapacityError if a prefix exceeds the sequence's capacity,
        PermissionDeniedError, StaleError, UnsupportedError if the pool publishes nothing.
        """
    def pin(self, prefix: Prefix, seconds: int) -> int:
        """Pin the published part of a prefix: it is evicted only after all unpinned pages.

        seconds: from now on, at most a year; replaces an earlier pin; 0: unpin.  Returns
        the number of tokens that were found and are pinned.

        Raises LimitError if the pool's pin-limit would be exceeded, StaleError if pages
        were evicted during each attempt.
        """
    def prefix_pages(self, prefix: Prefix) -> tuple[list[int], list[int]]:
        """The published pages of a prefix and their serials, as a pair of lists.

        A page that is published again has another serial.  Pages may be evicted at any
        time until a sequence or a hold has them.  Sends no request.

        Raises InvalidError, GoneError.
        """
    def hold(self, pages: int | Integers, serials: int | Integers) -> int:
        """Keep published pages from eviction, while the program copies them; return an id.

        pages, serials: as prefix_pages() or Client.prefixes() lists them, in any order.
        erase() of the id releases them, and so does the end of the session.  Nothing else
        can be done with the id, except for read() and page_table(): to read K and V, plan
        a row of explicit pages.

        Raises StaleError if a page was evicted or published again, LimitError if there are
        more pages than MAX_HOLD_PAGES or than the pool's pin-limit leaves, FullError if no
        sequence is free, RangeError, InvalidError, PermissionDeniedError for an observer.
        """
    def prefix_tokens(self, page: int, serial: int) -> list[int]:
        """Token ids of a published page; serial as Client.prefixes() lists it.

        Raises StaleError if the page is no longer published with this serial,
        NotFoundError if it was published under a key, RangeError.
        """
    # Hand-over.
    def give(self, seqs: int | Integers, lengths: int | Integers, *, timeout: float | None = None,
             session: int | None = None, uid: int | None = None) -> bytes:
        """Let another session adopt sequences; return a ticket, 16 bytes.

        lengths: written tokens, which adopt() returns; one number for all or one for each.
        timeout: seconds until the sequences return to this session, if no session has adopted
        them; at most max-ticket-time of pagedd.conf(5), ten minutes unless set.  session, uid:
        only this session, or processes of this user, may adopt.

        Until then every session may read the sequences, and none may change them.  The ticket
        is a bearer secret.  By giving, the caller promises that no work of its session that
        writes to the sequences is running; on a GPU, call Batch.finish() before.

        Raises CapacityError if a length exceeds a sequence's capacity, InvalidError,
        NotFoundError if there is no such session, PermissionDeniedError, LimitError, StaleError.
        """
    def adopt(self, ticket: bytes) -> list[Adopted]:
        """Make this session the owner of a ticket's sequences; return a list of Adopted.

        Ids, pages and K and V stay.  Needs no free page.

        Raises NotFoundError if the ticket is unknown, used or expired, or is of another pool,
        PermissionDeniedError if it is for another session or user.
        """
    # Batches and mods.
    def watch(self) -> Watch:
        """A Watch of the index of published pages, from now on.

        Raises UnsupportedError if the pool publishes nothing (publish = no), GoneError.
        """
    def batch(self, *, max_rows: int = 256, reserve_ahead: int = 0, max_q_tokens: int = 0,
              max_q_heads: int = 0) -> Batch:
        """A Batch, which plans steps of sequences and runs them.

        max_rows
            Most rows (sequences) of a plan, at most 4096.
        reserve_ahead
            Tokens to keep reserved past those that a plan uses, so that steady decoding
            never waits for the daemon.  plan() then also reserves what it lacks.  0: the
            caller reserves.
        max_q_tokens, max_q_heads
            Of pools in GPU memory, whose buffers they size.  Most query tokens of a plan, 0:
            512, or max_rows if that is more.  Most query heads, 0: 8 for each KV head; 128
            if V lies in K.

        Raises LimitError if max_rows is too large, BackendError if the GPU has no memory
        left, and GoneError.
        """
    def mod(self, kind: Literal["mask", "score"], text: str, /, **names: Tensor | int | float) -> Mod:
        """Parse the text of a mask mod (kind "mask") or score mod ("score") to a Mod.

        names: the arrays and parameters that the text reads: tensors, of which only dtype
        and number of dimensions count, and numbers.  paged_mods(7) describes the
        language.

            causal = pool.mod("mask", "kv_idx <= q_idx")
            alibi = pool.mod("score", "score + slope[h] * (kv_idx - q_idx)", slope=slopes)

        Raises InvalidError, whose message points into the text.
        """
    def block_mask(self, mod: Mod | str | None, q_len: int | Integers, kv_len: int | Integers, *,
                   seqs: int | Integers | None = None, q_base: int | Integers | None = None,
                   b: int | Integers | None = None, n_heads: int = 0, q_block: int = 0, kv_block: int = 0,
                   physical: bool = False, max_bytes: int = 0, remote: bool = False,
                   arrays: Mapping[str, Tensor | int | float] = ...) -> BlockMask:
        """The BlockMask of a mask mod: for each query block the KV blocks that it shows.

        mod
            A Mod or its text; None: nothing is hidden.
        q_len, kv_len, q_base, b
            Rows, as for Batch.plan().  One row may stand for all rows of a plan.
        seqs
            Sequences of the rows; needed with physical.
        n_heads
            Query heads; 0: one head stands for all.  Needed if the mod depends on h.
        q_block, kv_block
            Query rows and tokens of a block.  0: 128; kv_block of a physical mask: the
            page size.  For decoding, set q_block to q_len.
        physical
            True: KV blocks are physical pages, as PyTorch's
            convert_logical_block_mask() makes them.
        max_bytes
            Limit of the mask's memory; 0: 2**36.
        remote
            True: the daemon builds the mask, from arrays of Client.upload() by their names.
            If the mod reads arrays, pass a Mod; arrays then has its parameters only.
        arrays
            Arrays and parameters of the mod by name, in host memory.

        Raises InvalidError if a text is not valid or the mod depends on h and n_heads is 0,
        LimitError if the mask exceeds max_bytes or, with remote, the daemon's limits,
        NotFoundError for a name that the mod uses and arrays lacks, RangeError for an index
        out of bounds, and with remote AgainError if too many builds are queued, and
        PermissionDeniedError for an observer.
        """
    def block_mask_from_arrays(self, q_len: int | Integers, kv_len: int | Integers, *,
                               num_blocks: BlockArray | None = None, indices: BlockArray | None = None,
                               full_num_blocks: BlockArray | None = None, full_indices: BlockArray | None = None,
                               seqs: int | Integers | None = None,
                               q_base: int | Integers | None = None, b: int | Integers | None = None,
                               n_heads: int = 0, q_block: int = 0, kv_block: int = 0,
                               physical: bool = False) -> BlockMask:
        """A BlockMask from the arrays of PyTorch's BlockMask.

        num_blocks [n_rows, n_heads, n_q_blocks] and indices [n_rows, n_heads, n_q_blocks,
        width] list the partial blocks, full_num_blocks and full_indices the full ones: dense
        int32 tensors in host memory, or pairs (buffer, shape) as BlockMask.arrays() returns
        them.  n_heads 0: that of the arrays.  The other arguments are those of
        block_mask().

        Raises InvalidError, RangeError for a block index out of bounds.
        """

@final
class Watch:
    """The index of a pool's published pages, and its changes; see Pool.watch().

    Reads shared memory only: a watcher that is slow, stopped or killed affects no other
    process.  To mirror the index, walk first, then apply changes:

        nodes = {node.serial: node for node in watch.walk()}
        for change in watch.next(timeout=1.0):
            if change.kind == paged.CHANGE_REMOVED:
                nodes.pop(change.serial, None)

    A change may be applied twice, because the walk may have seen it; serials never
    repeat.  A watch is used by one thread at a time.
    """
    @property
    def closed(self) -> bool:
        """True after close() of the watch, its pool or its client."""
    @property
    def pool(self) -> Pool:
        """The Pool."""
    def close(self) -> None:
        """Free the watch; nothing if it is closed.  Closing the pool or client closes it.

        Raises RuntimeError if another thread is inside a call of the watch.
        """
    def __enter__(self) -> Watch: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None: ...
    def next(self, timeout: float | None = None, *, n_max: int = 1024) -> list[Change]:
        """The next changes, a list of at most n_max Change.

        If there is none, waits for the first one; after `timeout` seconds the list is
        empty.  None: no limit; 0: does not wait.

        Raises StaleError if the watch was too far behind and changes were lost: it goes on
        after the last change of now, so walk again.  Raises GoneError.
        """
    def walk(self) -> Iterator[Node]:
        """An iterator over the Node of all published pages, in the order of their pages.

        Nodes may change meanwhile.  Those that were published before the watch's position
        and still are will be listed; of later changes, next() tells.  Parents may follow
        their children.
        """
    def read(self, page: int, serial: int) -> BlockKey:
        """What a node's page holds, as BlockKey.

        Raises StaleError if the page is no longer published, or was published again: a
        change of kind CHANGE_REMOVED follows.  Raises RangeError.
        """
    def info(self) -> WatchInfo:
        """Where the watch stands, as WatchInfo."""

@final
class Batch:
    """Rows of one step: plan() once, then append() and attention() for each layer.

    Pool.batch() makes batches.  A batch is used by one thread at a time; different
    batches run at the same time.  A with statement closes the batch at its end.
    """
    @property
    def closed(self) -> bool:
        """The batch, its pool or its client is closed."""
    @property
    def pool(self) -> Pool:
        """The pool."""
    @property
    def n_rows(self) -> int:
        """Rows of the plan; 0: there is no plan."""
    @property
    def total_q(self) -> int:
        """Query tokens of the plan, all rows together."""
    def close(self) -> None:
        """Wait for the batch's work on its stream, and free its buffers and mods.

        A second call does nothing.  Closing the pool or client closes its batches.
        Raises RuntimeError if another thread is inside a call of the batch.
        """
    def __enter__(self) -> Batch: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None: ...
    def plan(self, seqs: int | Integers | None, q_len: int | Integers, kv_len: int | Integers, *,
             kv_first: int | Integers | None = None, q_base: int | Integers | None = None,
             b: int | Integers | None = None, no_append: bool | Sequence[bool] = False,
             pages: Sequence[Integers] | None = None, stream: Any = None) -> None:
        """Set rows, lengths and page tables for one step.

        seqs
            Ids of the sequences, one row each.
        q_len
            Query tokens of each row, or one number for all.  0: the row is idle.
        kv_len
            Tokens of each sequence, those of this step included, or one number for all.
        kv_first
            The first key of each row that attention reads, at most its kv_len, or one
            number for all.  None: 0.
        q_base
            Position (q_idx) of each row's first query.  None: kv_len - q_len.
        b
            What mods see as b, for each row or one number for all.  None: the row's index.
        no_append
            True: append() writes nothing.  Or one bool for each row.
        pages
            With seqs None: for each row its physical pages, in order.  Those that lie
            wholly before kv_first may be any number.
        stream
            For a pool in GPU memory: a CUstream as int, or an object with cuda_stream.
            None: the stream that torch works on; without torch, the legacy default
            stream.  If it is not the last plan's, the call waits for the work on that.

        The plan reads the page tables from shared memory, and sends no request unless it
        has to reserve.  A batch with reserve_ahead reserves the pages that are missing, and
        may then wait for the daemon.  After a failure the batch has no plan.

        Raises CapacityError if kv_len exceeds a row's capacity and the batch cannot
        reserve, FullError if the pool lacks pages or QuotaError if the session's tenant may
        not have them (see pages_missing() for both), LimitError for
        more rows than max_rows, a length past max_length, or more queries than max_q_tokens
        (GPU), StaleError if an id names no live sequence, InvalidError for a sequence of
        another pool or a kv_first past kv_len, and RangeError for a page outside the pool.
        """
    def pages_missing(self) -> list[int]:
        """Number of pages that each row of the last plan lacks, as a list.

        For a plan that raised FullError.  Free pages are assigned in the order of the
        plan, so the rows with 0 can be planned together.  After QuotaError, only the
        last row that lacks pages has its number: plan again without it.
        """
    def append(self, layer: int, k: Tensor, v: Tensor | None = None, *, positions: Integers | None = None,
               k_scale: Tensor | None = None, v_scale: Tensor | None = None, rotary: Rotary | None = None) -> None:
        """Write this step's K and V of one layer into the pages.

        k, v
            Tensors [total_q, n_kv_heads, dim], or [n_rows, n_kv_heads, q_len, dim] where
            all rows have the same q_len.  f32, f16 or bf16, converted to the pool's dtype.
            No v in a pool whose V lies in K.
        positions
            [total_q] positions in the sequences, in any order; on a GPU a tensor of int32.
            None: consecutive, the last at kv_len - 1.
        k_scale, v_scale
            [n_kv_heads] of f32, for pools of e4m3 and e5m2: K and V are divided by them.
            Pass the same to attention() and gather().
        rotary
            A Rotary, applied to K.

        Gradients are not recorded.

        Raises ValueError if a tensor does not fit the plan or the pool, or if two rows
        write the same token, PermissionDeniedError if a sequence belongs to another session
        or a token is shared or published, CapacityError if a position exceeds the
        sequence's capacity, and RangeError if a rotary position is outside cos_sin.
        """
    def attention(self, layer: int, q: Tensor, out: Tensor | None = None, *, mods: ModSet | None = None,
                  causal: bool = True, scale: float | None = None, lse: Tensor | None = None,
                  max_score: Tensor | None = None, sink: Tensor | None = None, lse_without_sink: bool = False,
                  k_scale: Tensor | None = None, v_scale: Tensor | None = None) -> Tensor:
        """Return softmax(scale q K^T) V over the planned pages of one layer.

        q
            Tensor [total_q, n_heads, k_dim], or [n_rows, n_heads, q_len, k_dim] where all
            rows have the same q_len.  f32, f16 or bf16.  n_heads is a multiple of the
            pool's n_kv_heads.
        out
            Written and returned: [total_q, n_heads, v_dim] or [n_rows, n_heads, q_len,
            v_dim]; must not overlap q.  None: a new tensor of q's type, dtype and layout, for
            a q of NumPy or of a framework with DLPack's C exchange API (TypeError otherwise).
        mods
            A ModSet of this batch.  Its mods apply in addition to causal.
        causal
            True: a query sees keys up to its own position (kv_idx <= q_idx).  False: all
            keys, or those that the mods show.
        scale
            Factor of the scores, not 0.  None: 1 / sqrt(k_dim).
        lse
            [total_q, n_heads] of f32, dense, also for a q of four dimensions; written:
            natural logarithm of the softmax denominator, -inf if the query sees no key.
        max_score
            As lse: the largest score after scale and score mod.
        sink
            [n_heads] of f32: adds exp(sink) to the softmax denominator.
        lse_without_sink
            True: lse excludes the sink.
        k_scale, v_scale
            As passed to append().

        A query that sees no key yields 0.  Gradients are not recorded.

        Raises ValueError if a tensor does not fit the plan or the pool, or if the mods
        belong to another batch or have no binding, StaleError if a physical block mask was
        made for other pages, and LimitError if q has more heads than max_q_heads (GPU).
        An index out of bounds of an array that a mod reads is reported by validate().
        """
    def gather(self, layer: int, k: Tensor | None, v: Tensor | None = None, *, begin: Integers | None = None,
               end: Integers | None = None, k_scale: Tensor | None = None, v_scale: Tensor | None = None) -> None:
        """Copy K and V of the planned rows from the pages of one layer into tensors.

        k, v
            Written: [tokens, n_kv_heads, dim], the tokens of the first row first; or
            [n_rows, n_kv_heads, tokens of a row, dim].  None: not wanted.
        begin, end
            For each row the first token and the one past the last.  None: the plan's
            kv_first, or the first token of a trimmed sequence if that is later, and kv_len.
            On a GPU tensors of int32; k and v then have room for all these tokens.
        k_scale, v_scale
            As passed to append().

        Raises ValueError if a tensor does not fit, and RangeError if begin exceeds end,
        end exceeds kv_len, or a token is before the first.
        """
    def merge(self, a: Tensor, a_lse: Tensor, b: Tensor, b_lse: Tensor, out: Tensor | None = None, *,
              lse: Tensor | None = None) -> Tensor:
        """Combine two attention results over disjoint keys into the result over all of them.

        a, b
            Results of attention() for the same queries: [tokens, n_heads, v_dim], or
            [rows, n_heads, q_len, v_dim].
        a_lse, b_lse
            [tokens, n_heads] of f32.  At most one includes a sink.
        out
            Written and returned; may be a or b.  None: a new tensor like a.
        lse
            [tokens, n_heads] of f32, written: the merged lse; may be a_lse or b_lse.

        Needs no plan.  Raises ValueError if the tensors have different shapes.
        """
    def validate(self) -> None:
        """Check after a step that what it read was valid.

        Call it if rows read sequences of other sessions, if mods read arrays, and on a
        GPU, where the device finds some errors; there it waits for the stream.  Rows with
        an error were not computed.

        Raises StaleError if pages of a planned sequence were replaced or removed since
        the plan, RangeError if a mod read an array out of bounds (it got 0), and GoneError
        if the daemon has died.  On a GPU also CapacityError, PermissionDeniedError,
        LimitError and BackendError.
        """
    def finish(self) -> None:
        """Wait until all work on the batch's stream has ended.

        In host memory, calls have done their work when they return.
        """
    def mark(self) -> bytes:
        """Mark the work that the batch has put on its stream; return the mark as bytes.

        Send the bytes to another thread or process, whose batch passes them to wait().
        Neither thread waits.  A mark is valid on this machine, for batches of the same pool.
        """
    def wait(self, mark: bytes, /) -> None:
        """Order the later work of this batch after the work of a mark.

        The stream waits; the thread does not.  Raises ValueError if the bytes are no mark,
        or one of another pool, and GoneError if the process that made it has exited.
        """
    def publish(self, seqs: int | Integers, prefixes: Prefix | Sequence[Prefix]) -> None:
        """Publish sequences as soon as the work on the stream has ended; does not wait.

        The arguments and errors are those of Pool.publish(), before which work on a GPU must
        have ended.
        """
    def fork(self, parents: int | Integers, n_tokens: int | Integers) -> list[int]:
        """Create sequences with the first n_tokens tokens of each parent; return their ids.

        parents
            One id or several.  To fork a parent 64 times, pass it 64 times.
        n_tokens
            One number for all or one for each.

        Whole pages are shared, and parent and child cannot write them from now on.  A
        partial last page is copied; on a GPU, call finish() before a parent is truncated or
        erased.  Children have the capacity of their pages.

        Raises CapacityError if n_tokens exceeds a parent's capacity, FullError if the pool
        lacks slots or pages (nothing is created), PermissionDeniedError if a parent belongs
        to another session, and StaleError if an id names no live sequence.
        """
    def tables_csr(self) -> tuple[Any, Any, Any]:
        """The plan's page tables in FlashInfer's format: (indptr, indices, last_page_len).

        Objects array.array of int32, which torch.frombuffer() and numpy.asarray() take.
        Row r has the physical pages indices[indptr[r]:indptr[r + 1]] and last_page_len[r]
        tokens in the last of them, 0 if it has no tokens.
        """
    def tables_padded(self, width: int, /) -> tuple[Any, Any]:
        """The plan's page tables in the format of vLLM and FlashAttention: (table, kv_len).

        Objects array.array of int32.  table has n_rows * width elements, row by row; those
        past a row's pages are 0.  kv_len has n_rows elements, in tokens.  Raises LimitError
        if a row has more pages than width.
        """
    def mods(self, *, mask: Mod | str | None = None, score: Mod | str | None = None, blocks: BlockMask | None = None,
             **arrays: Tensor | int | float) -> ModSet:
        """Return a ModSet: a mask mod, a score mod and a block mask for attention().

        mask, score
            A Mod of the batch's pool, or the text of one, as Pool.mod() takes it.
        blocks, arrays
            As in ModSet.bind().  A text uses only names that are given here.  A Mod that
            uses names may be bound later, before attention().  No array can be named mask,
            score or blocks.

        Make a set once, and bind() new values to it in each step.

        Raises InvalidError if a text is not valid or uses another name, NotFoundError if
        arrays lack a name that a Mod uses, and ValueError if a mod is of the other kind or
        of another pool.
        """

@final
class Rotary:
    """A rotary embedding, which append() applies to K as it writes the pages.

    cos_sin
        Tensor [n_positions, dim] of f32: for each position the cosines of its dim / 2
        pairs, then their sines, as in the cache of vLLM.  dim is the number of dims that
        are rotated.
    style
        Which dims form pair i: "neox" i and i + dim / 2, "interleaved" 2 i and 2 i + 1.
    first
        First rotated dim.
    positions
        [total_q] positions, below n_positions; on a GPU a tensor of int32.  None: q_idx.
    q, q_out
        Queries [total_q, n_heads, k_dim] to rotate as well, and where to.  They may be
        the same tensor.

    The object keeps references to the tensors, and each append() reads them.
    """
    def __init__(self, cos_sin: Tensor, *, style: Literal["neox", "interleaved"] = "neox", first: int = 0,
                 positions: Integers | None = None, q: Tensor | None = None, q_out: Tensor | None = None) -> None: ...

@final
class Mod:
    """A mask mod or a score mod: an expression as in paged_mods(7), parsed by Pool.mod().

    A Mod is immutable; any thread may use it.  Values and arrays are no part of it:
    bind new ones with ModSet.bind().  It is usable until its pool is closed.
    """
    @property
    def pool(self) -> Pool:
        """The Pool that parsed the mod."""
    @property
    def kind(self) -> Literal['mask', 'score']:
        """"mask" or "score"."""
    @property
    def text(self) -> str:
        """Canonical text of the mod: equal for texts with the same operations."""
    @property
    def inputs(self) -> frozenset[str]:
        """Names of the inputs that the result may depend on, a frozenset of "score",
        "b", "h", "q_idx" and "kv_idx".  Without "h", one head of a block mask is
        valid for all heads; without "b", one row for all rows of the same lengths.
        """
    def evaluate(self, *, score: float = 0.0, b: int = 0, h: int = 0, q_idx: int = 0, kv_idx: int = 0,
                 arrays: Mapping[str, Tensor | int | float] = ...) -> float:
        """Evaluate the mod for one element of the score matrix, in float64.

        For inspecting and testing mods.  Attention computes in float32.

        score
            The scaled score; read by score mods only.
        b
            Row of the plan.
        h
            Query head.
        q_idx
            Position of the query in its sequence.
        kv_idx
            Position of the key.
        arrays
            A mapping of names to tensors in host memory, ints and floats.

        Return the new score of a score mod, and 1.0 (seen) or 0.0 for a mask mod.
        Raises RangeError if an index is out of bounds, NotFoundError if a name that
        the mod uses is missing, and InvalidError if a type or the number of
        dimensions differs from the declared one.
        """

@final
class ModSet:
    """A mask mod and a score mod for attention() of one Batch, made by Batch.mods().

    Make one for each kind of layer that the model has, and bind new values and
    arrays in each step.  It is used by one thread at a time, as its batch is, and
    until the batch is closed.
    """
    @property
    def batch(self) -> Batch:
        """The Batch that the set was made for."""
    @property
    def mask(self) -> Mod | None:
        """The mask mod, or None."""
    @property
    def score(self) -> Mod | None:
        """The score mod, or None."""
    def bind(self, *, blocks: BlockMask | None = None, **arrays: Tensor | int | float) -> None:
        """Set the values and arrays that the mods use, and a block mask.

        blocks
            A BlockMask with as many rows as the plan, or one for all; as many heads as
            q, or one for all; lengths of at least the plan's.
        arrays
            By name: tensors of up to four dimensions (float32, float16, bfloat16,
            int32, int64, uint8 or bool; any strides) in the memory of the pool, ints
            and floats.  Names that no mod uses are ignored.

        The arguments replace those of the previous bind() or Batch.mods(); nothing is
        compiled again.  Types and numbers of dimensions must be those that were
        declared; sizes may differ.  The library reads arrays in place: do not change
        or resize them until the attention that uses them is done.  The set keeps a
        reference to each.  Numbers and int64 arrays are copied.

        If bind() raises an exception, the previous binding remains.  Raises
        NotFoundError if a name that a mod uses is missing, InvalidError if a type or
        the number of dimensions differs from the declared one, RangeError if a value of
        an int64 array is outside 32 bits, and ValueError if an array is not in the
        pool's memory.  Whether the block mask fits the plan is checked by attention().
        """
    def prepare(self, dtype: Dtype, timeout: float | None = None) -> None:
        """Wait until the mods are compiled for queries of this dtype.

        On the host, mods are interpreted, and the method returns at once.  On a GPU,
        attention() waits for code that is not ready; after prepare() it does not.

        dtype
            "f32", "f16" or "bf16".
        timeout
            Seconds; 0: only check; None: without limit.

        Raises AgainError if the code is not ready (timeout 0), TimedOutError if it is
        not ready in time, UnsupportedError if no compiler (NVRTC) was found, and
        BackendError if the compiler or the driver refused the code.
        """

@final
class BlockMask:
    """The KV blocks that each query block attends to.

    A block is full if the mask mod is true for all its elements, and partial if it is
    true for some; attention visits no other blocks.  Pool.block_mask() and
    Pool.block_mask_from_arrays() make masks.  A BlockMask is immutable; any thread may
    use it until its pool is closed.
    """
    @property
    def pool(self) -> Pool:
        """The Pool that the mask belongs to."""
    @property
    def n_rows(self) -> int:
        """Number of rows."""
    @property
    def n_heads(self) -> int:
        """Number of heads; 1: one stands for all."""
    @property
    def q_block(self) -> int:
        """Query rows per block."""
    @property
    def kv_block(self) -> int:
        """Tokens per KV block."""
    @property
    def physical(self) -> bool:
        """True: KV blocks are identified by their places in the pool."""
    @property
    def n_blocks(self) -> int:
        """Number of listed blocks, partial and full."""
    @property
    def n_bytes(self) -> int:
        """Memory in use, bytes."""
    @property
    def sparsity(self) -> float:
        """Percent of the blocks that are in no list."""
    def to_physical(self, seqs: int | Integers | None, kv_len: int | Integers, *,
                    pages: Sequence[Integers] | None = None) -> BlockMask:
        """Return the mask with KV blocks identified by their places in the pool.

        The counterpart of PyTorch's convert_logical_block_mask().  Part i of page p has
        the index p * (page_size // kv_block) + i.  kv_block must equal the page size,
        divide it, or be a multiple of it.  Attention takes both kinds of masks.

        seqs
            For each row its sequence; for a mask of one row, any number of them. They
            may be others than those that the mask was made for.
        kv_len
            Tokens of each row: one number for all, or one for each.
        pages
            Instead of seqs (None): for each row its physical pages.

        Raises InvalidError if the mask is physical or the number of rows differs,
        CapacityError if kv_len exceeds the capacity of a row, StaleError if an id
        names no live sequence, and RangeError if a page is outside the pool.
        """
    def to_logical(self) -> BlockMask:
        """Return the logical mask from which this physical mask was made.

        Raises InvalidError if the mask is logical.
        """
    def validate(self) -> None:
        """Check that a physical mask still matches the page tables.

        Growth of a sequence is not a change, and a logical mask is always valid.  Raises
        StaleError if pages of a row were replaced or removed since the mask was made,
        and GoneError if the daemon has died or has ended this session.
        """
    def crop(self, q_len: int, kv_len: int) -> BlockMask:
        """Return a copy of a logical mask, cut to at most q_len queries and kv_len keys.

        A full block that extends past a length becomes partial.  Raises InvalidError if
        the mask is physical.
        """
    def transpose(self) -> BlockMask:
        """Return a mask that lists for each KV block the query blocks that see it.

        These are PyTorch's q_num_blocks and q_indices.  The result is a logical mask.
        """
    def arrays(self, width: int | None = None) -> _BlockArrays:
        """Return the lists of blocks as the arrays of PyTorch's BlockMask.

        The result is a dict of "num_blocks" and "indices" (partial blocks, PyTorch's
        kv_num_blocks and kv_indices), "full_num_blocks" and "full_indices".  Each
        value is an array.array of int32 and its shape: (n_rows, n_heads, query blocks),
        and for indices also the width.  Entries past a count are 0.
        Pool.block_mask_from_arrays() takes the dict as keyword arguments.

        width
            Of both arrays of indices; None: the longest list of each.

        Raises InvalidError if rows differ in their numbers of query blocks, or a list
        is longer than width.
        """
    def dense(self) -> tuple[bytes, tuple[int, int, int, int]]:
        """Return which blocks are listed, as bytes of 0 and 1, and their shape.

        The shape is (n_rows, n_heads, query blocks, KV blocks).  Raises ValueError if rows
        differ in their numbers of blocks.
        """
    def picture(self, rows: int = 20, columns: int = 20, limit: int = 4) -> str:
        """Return a picture of the mask as text, as PyTorch prints a BlockMask.

        rows, columns
            Height and width in characters.
        limit
            Most pairs of row and head to show.
        """
