/* SPDX-License-Identifier: Apache-2.0 */
/**
 * pagedclient.h - one KV cache for all the model processes of a machine
 *
 * A daemon, pagedd(8), owns pools of pages and the page tables.  A worker
 * opens a client, opens pools in it (which maps their pages), creates
 * sequences, reserves tokens for them, and runs attention on the pages in
 * place.  Nothing is copied between processes.  paged_client_open_embedded()
 * runs the owner inside the calling process instead, behind the same calls.
 *
 * Objects.  struct paged_client > struct paged_pool > struct paged_batch; an
 * inner one keeps a pointer to its outer one, so close them inside out:
 * paged_client_close() closes pools and batches that are still open, and
 * their handles are then invalid.  Sequences are ids, not objects; their
 * pages are the daemon's and return to the pool when the sequence is erased
 * or the session ends.
 *
 * Crashes.  When a worker dies, the daemon takes its session's pages back
 * once the process is gone.  When the daemon dies, every call that needs it
 * answers PAGED_ERR_GONE; ids, plans and mappings of that life are void.  The
 * mapped memory itself stays readable until the pool is closed; a GPU's, which
 * the next daemon may be waiting for, until the last batch of the pool is
 * destroyed after a call has said so (and not at all where a CUDA IPC handle
 * opened it: pagedd.conf(5), export = legacy).  The same goes for a session
 * that the daemon has ended.
 *
 * Errors.  Every call that can fail returns enum paged_status, and
 * paged_client_error() gives the sentence.  A handle that is NULL is refused
 * with PAGED_ERR_INVALID, without a sentence: there is no client to ask.  A call that fails changes
 * nothing; a call that times out has an unknown outcome.  The library never
 * prints, exits, aborts, or leaves an errno to decode.
 *
 * Threads.  Calls of one client may come from any thread; those that ask the
 * owner take turns.  A batch belongs to one thread at a time, and different
 * batches run at the same time: each has kernel threads of its own, or lends
 * its work to the program's (paged_run_fn).  A pool or batch may be closed when
 * no other thread is inside a call on it.  Different clients share nothing.
 *
 * Fork.  In a forked child every call on the parent's objects answers
 * PAGED_ERR_FORK without a system call, and closing them frees memory only:
 * channels and threads are the parent's.  The pages are not mapped in the
 * child.  (A kernel without MADV_WIPEONFORK costs each call a getpid(2).)
 *
 * Structs.  Parameters and reports begin with struct_size, which the caller
 * sets to sizeof(the struct); fields past it, and a NULL struct, mean the
 * defaults.  A zero field means the default that its comment names.  Structs
 * that lie in arrays or in other structs have a fixed size instead, with
 * reserved words: zero them, PAGED_ERR_INVALID otherwise.  Enums in structs are
 * uint32_t, so that each struct has one layout for every compiler and language.
 */
#ifndef PAGEDCLIENT_H
#define PAGEDCLIENT_H

#include <stddef.h>
#include <stdint.h>

#include <paged_types.h>

#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif
#ifdef __cplusplus
extern "C" {
#endif

struct paged_client;
struct paged_pool;
struct paged_batch;
struct paged_mods; /* paged_mods.h */

/* ----------------------------------------------------------------- version */

#define PAGED_VERSION_MAJOR 0
#define PAGED_VERSION_MINOR 1
#define PAGED_VERSION_PATCH 0
/** Of this header, to be compared. */
#define PAGED_VERSION ((PAGED_VERSION_MAJOR << 16) | (PAGED_VERSION_MINOR << 8) | PAGED_VERSION_PATCH)

/** paged_version - PAGED_VERSION of the library that the program runs with */
uint32_t paged_version(void);

/* ------------------------------------------------------------------ client */

/** Severity of a log line, as in syslog(3). */
enum paged_log_level { PAGED_LOG_ERROR = 3, PAGED_LOG_WARNING = 4, PAGED_LOG_INFO = 6, PAGED_LOG_DEBUG = 7 };

/**
 * Called from the thread that is inside a call; text has no newline and is
 * the library's.  Must not call the library.  Failed calls are logged as
 * debug lines, notices of the daemon and requests without an answer as
 * warnings.  The thread that compiles mods for a GPU calls nobody: what it has
 * to say (what it compiled and how long that took; as warnings, why compiled
 * mods are not kept, and damaged files) is kept and told by the next call that
 * waits for its code or asks for it, at the latest by paged_client_close().
 */
typedef void (*paged_log_fn)(void *argument, enum paged_log_level level, const char *text);

/** A part of a kernel's work, which the library hands to a paged_run_fn. */
typedef void (*paged_work_fn)(void *work_argument, uint32_t index);

/**
 * paged_run_fn - the program's own threads, for a stretch of a kernel's work
 *
 * Calls work(work_argument, i) once for each i below n, and returns when all
 * these calls have; both as a thread pool or an OpenMP loop does it, so that what
 * one thread wrote before is seen by the others after.  On which threads, how
 * many, at once or one after another, in which order, is the program's affair,
 * and results have the same bits: parts take what is left of the work and wait
 * for nobody, so one that comes late finds nothing to do.  A call whose run() left
 * out or repeated an index answers PAGED_ERR_INVALID, and its results are void.
 *
 * Called from the thread that is inside paged_append(), paged_gather(),
 * paged_attention() or paged_merge(), up to twice a call; not for work too small to
 * be shared.  Must not call the library with the same batch, nor be left by
 * longjmp() or an exception.
 */
typedef void (*paged_run_fn)(void *argument, paged_work_fn work, void *work_argument, uint32_t n);

struct paged_client_params {
	size_t struct_size;
	/** Shown by pagedctl; copied.  NULL: the program's name. */
	const char *name;
	/** From paged_client_join_token() of the session's first member; NULL: a session of its own. */
	const char *join_token;
	/** Longest wait of a call for the daemon, milliseconds.  0: 5000. */
	uint32_t timeout_ms;
	/** Threads that run the kernels of a batch, the calling one included; with run, parts of their work.  0: 1. */
	uint32_t n_threads;
	/** 1: look only (status, tables, check, plans of reads): no session, no sequences. */
	uint32_t observer;
	/** NULL: silent. */
	paged_log_fn log;
	void *log_argument;
	/**
	 * [n_threads] of the CPUs that this process may use, no two alike: thread
	 * i of a batch runs on cpus[i] alone.  The calling thread is the first, and
	 * is left where it is: binding it is the program's affair.  Batches that
	 * run at the same time share these CPUs.  Copied.  NULL: any.
	 */
	const uint32_t *cpus;
	/** As n_threads, or 0 without cpus. */
	uint32_t n_cpus;
	/** NULL: the library starts n_threads - 1 threads for each batch; else it starts none. */
	paged_run_fn run;
	void *run_argument;
	/**
	 * Instruction set of the host's kernels: "generic", "avx2", "avx512",
	 * "avx512bf16" or "amx".  NULL: the best of this machine.  The environment
	 * variable PAGED_ISA wins, so that an operator can force one.
	 */
	const char *isa;
	/**
	 * 1: the session and its sequences live until its last member has left,
	 * not until this one, its first, has.  Members may join meanwhile.
	 */
	uint32_t outlive;
};

/**
 * paged_client_open - attach to the daemon at a runtime directory
 *
 * @param[in]  runtime_dir  NULL: $PAGED_RUNTIME_DIR, else /run/paged
 * @param[in]  params       NULL: defaults
 * @param[out] client_p     a client also on failure, to be asked for the
 *                          sentence and closed; NULL only without memory
 * @retval PAGED_ERR_NO_DAEMON  nobody listens there
 * @retval PAGED_ERR_PERM       policy refuses this uid, or the pid is not visible to the daemon
 * @retval PAGED_ERR_VERSION    the daemon speaks another major version
 * @retval PAGED_ERR_GONE       join_token's session has ended
 * @retval PAGED_ERR_STOPPING   the daemon is stopping
 * @retval PAGED_ERR_TIMEOUT    it accepts or answers nothing
 * @retval PAGED_ERR_INVALID    parameters that do not go together; of cpus the sentence
 *                              names the one at fault, and those that this process may use
 * @retval PAGED_ERR_UNSUPPORTED  this machine lacks the instruction set that isa or PAGED_ISA names
 *
 * Opened means that both channels work: each was asked once.
 * Blocks: up to timeout_ms.
 */
enum paged_status paged_client_open(const char *runtime_dir, const struct paged_client_params *params,
				    struct paged_client **client_p);

/** Geometry of a pool for paged_client_open_embedded(). */
struct paged_pool_params {
	size_t struct_size;
	const char *name; /* copied */
	uint32_t n_layers;
	uint32_t n_kv_heads;
	uint32_t k_dim;
	/** 0: as k_dim. */
	uint32_t v_dim;
	/** 1: V is the first v_dim dims of K and is not stored twice (MLA). */
	uint32_t v_in_k;
	/** enum paged_dtype of the elements in the pages: F32, F16, BF16, E4M3, E5M2 or I8 (see paged_append()). */
	uint32_t dtype;
	/** Tokens a page, 1 to 256.  0: 16. */
	uint32_t page_size;
	uint32_t n_pages;
	/** Sequence slots, at most PAGED_MAX_SLOTS.  0: 1024. */
	uint32_t n_slots;
	/** Tokens a sequence may reserve.  0: what all the pages hold. */
	uint32_t max_length;
	/** Where the pages lie: "host" or "cuda".  NULL: "host". */
	const char *backend;
	/** Of cuda: the GPU, by its number or UUID.  NULL: "0". */
	const char *device;
};

/**
 * paged_client_open_embedded - run the owner inside this process
 *
 * For one process, for tests, for trying things out.  Same calls, same
 * semantics; memory is private and untouched pages cost nothing, but for
 * those that share a transparent huge page with touched ones.
 *
 * @param[in] pools  n_pools geometries, at most PAGED_MAX_POOLS, each with its own struct_size (all equal)
 * @retval PAGED_ERR_INVALID      a geometry that cannot be, or a name twice
 * @retval PAGED_ERR_UNSUPPORTED  params has a join_token: there are no other members;
 *                                or a back end that this machine has not
 */
enum paged_status paged_client_open_embedded(const struct paged_pool_params *pools, size_t n_pools,
					     const struct paged_client_params *params, struct paged_client **client_p);

/**
 * paged_client_close - leave the session and free everything; takes NULL
 *
 * Closing promises that no kernel of this process runs on the pages any
 * more.  The first member's close ends the session, unless it asked that the
 * session outlive it.
 * Threads: none may be inside, or begin, any call on the client or what it opened.
 * Blocks: up to timeout_ms, until the daemon has taken everything back.
 */
void paged_client_close(struct paged_client *client);

/**
 * paged_client_error - the sentence of this thread's last failed call on this client
 *
 * Covers calls on the client's pools and batches.  Empty before the first
 * failure.  The text is valid until this thread's next failing call.  A
 * thread keeps the sentences of the eight clients that failed last in it.
 */
const char *paged_client_error(const struct paged_client *client);

/** paged_status_name - "PAGED_ERR_FULL" and so on; never NULL */
const char *paged_status_name(enum paged_status status);

/** paged_client_session - the id of the session that owns what it creates; 0: an observer, or never opened */
uint32_t paged_client_session(const struct paged_client *client);

/**
 * paged_client_join_token - what lets another process join this session
 *
 * A secret: pass it by pipe or environment, not by command line.  Only the
 * first member has one; "" otherwise.  Valid as long as the client.
 */
const char *paged_client_join_token(const struct paged_client *client);

/**
 * paged_client_fd - readable when paged_client_dispatch() has something to say
 *
 * For poll(2) and epoll(7); owned by the client.  -1 for an embedded client.
 */
int paged_client_fd(const struct paged_client *client);

/**
 * paged_client_dispatch - take in what the daemon said; never blocks
 *
 * @retval PAGED_OK            all is well
 * @retval PAGED_ERR_STOPPING  the daemon stops soon: finish, then close
 * @retval PAGED_ERR_GONE      the daemon died, or ended this session
 */
enum paged_status paged_client_dispatch(struct paged_client *client);

/**
 * paged_client_ping - one round trip to the owner: does it answer?
 *
 * @retval PAGED_ERR_TIMEOUT  not within timeout_ms
 * @retval PAGED_ERR_GONE     never again: the daemon died, or the session has ended
 */
enum paged_status paged_client_ping(struct paged_client *client);

/* -------------------------------------------------------------------- pool */

/** One array in a page; offsets and strides count bytes. */
struct paged_plane_info {
	uint32_t dtype; /* enum paged_dtype */
	uint32_t dim;
	/** Address of (layer, page, head, token) is base + offset + layer * layer_stride + ... */
	uint64_t offset;
	uint64_t layer_stride;
	uint64_t page_stride;
	uint64_t head_stride;
	uint64_t token_stride;
	uint64_t reserved[2];
};

struct paged_pool_info {
	size_t struct_size;
	const char *name;    /* valid as long as the pool is open */
	const char *backend; /* "host", "cuda" */
	/** This process's mapping of the pages; on cuda a device address, NULL once it was let go (Crashes, above). */
	void *base;
	uint64_t size;       /* bytes */
	uint64_t page_bytes; /* of one page, all layers */
	uint32_t n_layers;
	uint32_t n_kv_heads;
	uint32_t n_pages;
	uint32_t page_size;  /* tokens */
	uint32_t max_length; /* tokens a sequence may reserve */
	uint32_t n_slots;
	uint32_t v_in_k;
	struct paged_plane_info k, v;
	const char *isa;    /* instruction set that this client's kernels run: "avx512", "sm_90", ... */
	const char *device; /* of backend "cuda": the GPU, "GPU-8a1b..." as nvidia-smi -L says it; NULL: the host */
	/** Of i8: one f32 for each token and head; elsewhere all zero. */
	struct paged_plane_info k_scale, v_scale;
	uint32_t number; /* PAGED_SEQ_POOL() of its sequences */
};

/**
 * paged_pool_open - map a pool's pages and tables
 *
 * @retval PAGED_ERR_NOENT    no such pool; the sentence names those that exist
 * @retval PAGED_ERR_PERM     the pool's allow-list refuses this uid
 * @retval PAGED_ERR_BACKEND  mapping failed
 */
enum paged_status paged_pool_open(struct paged_client *client, const char *name, struct paged_pool **pool_p);

/** paged_pool_close - unmap; batches of the pool are destroyed; takes NULL */
void paged_pool_close(struct paged_pool *pool);

/** paged_pool_get_info - fill the caller's struct as far as its struct_size goes */
enum paged_status paged_pool_get_info(const struct paged_pool *pool, struct paged_pool_info *info);

/** Pages of a pool, by state; they add up to n_pages. */
struct paged_pool_counts {
	size_t struct_size;
	uint32_t n_pages;
	uint32_t n_free;
	uint32_t n_referenced;  /* by sequences */
	uint32_t n_quarantined; /* of ended sessions, while their processes may still write */
};

/**
 * paged_pool_get_counts - fill the caller's struct as far as its struct_size goes; no request
 *
 * @retval PAGED_ERR_AGAIN  the owner changed pages all the while
 * @retval PAGED_ERR_GONE   the daemon or the session has ended
 */
enum paged_status paged_pool_get_counts(struct paged_pool *pool, struct paged_pool_counts *counts);

/**
 * paged_pool_wait_free - sleep until n_pages pages are free, or timeout_ms have passed; no request
 *
 * A hint: another session may reserve the pages first, so reserve, and wait
 * again on PAGED_ERR_FULL.
 * @retval PAGED_ERR_TIMEOUT  fewer are free
 * @retval PAGED_ERR_LIMIT    the pool has fewer pages
 * @retval PAGED_ERR_GONE     the daemon or the session has ended; noticed within 0.1 s
 *
 * Threads: any; other calls of the client go on meanwhile.
 */
enum paged_status paged_pool_wait_free(struct paged_pool *pool, uint32_t n_pages, uint32_t timeout_ms);

/* --------------------------------------------------------------- sequences */

/*
 * Each of these is one request for the whole array, at most
 * PAGED_MAX_REQUEST_SEQS long, of any pools, all or nothing.  A sequence's id
 * names its pool (PAGED_SEQ_POOL); calls that are given a pool refuse the id of
 * another one.  Asking to change a sequence promises that no work of this
 * session on the affected pages is running.
 */

/** A sequence to create. */
struct paged_seq_params {
	/** Of the client. */
	struct paged_pool *pool;
	/**
	 * Shown by pagedctl; copied; UTF-8 without control characters, at most
	 * PAGED_MAX_TAG bytes, PAGED_MAX_REQUEST_TAGS in all.  NULL: none.
	 */
	const char *tag;
	/** Capacity to reserve at once. */
	uint32_t n_tokens;
	uint32_t reserved[5]; /* 0 */
};

/**
 * paged_seq_create - n sequences without tokens, owned by this session
 *
 * @param[out] ids  [n], written on PAGED_OK only
 * @retval PAGED_ERR_FULL   a pool lacks slots or pages for all together
 * @retval PAGED_ERR_LIMIT  n_tokens past the pool's max_length, or tags too long
 */
enum paged_status paged_seq_create(struct paged_client *client, size_t n, const struct paged_seq_params *params,
				   paged_seq_id *ids);

/**
 * paged_seq_reserve - let each sequence hold at least n_tokens tokens
 *
 * Absolute, never shrinks: repeating it is harmless.  All n_tokens are
 * reserved, or nothing is.  n_ahead asks for more: as many tokens past n_tokens
 * as the pool can spare, up to its max_length.  An eighth of a pool's pages is
 * never given out for n_ahead, so that it cannot make another session's reserve
 * fail; if less than all n_ahead can be spared, each item gets its share.
 * @retval PAGED_ERR_FULL   not enough pages for all together; none was taken
 * @retval PAGED_ERR_LIMIT  past the pool's max_length
 * @retval PAGED_ERR_STALE  an id names no live sequence
 * @retval PAGED_ERR_PERM   a sequence belongs to another session
 */
enum paged_status paged_seq_reserve(struct paged_client *client, size_t n, const struct paged_seq_item *items);

/**
 * paged_seq_truncate - keep n_tokens tokens of each, give back whole pages past them; the sequences stay
 *
 * @retval PAGED_ERR_CAPACITY  n_tokens exceeds what the sequence has reserved
 * @retval PAGED_ERR_INVALID   n_ahead is not 0
 */
enum paged_status paged_seq_truncate(struct paged_client *client, size_t n, const struct paged_seq_item *items);

/** paged_seq_erase - end the sequences; their ids are stale from now on */
enum paged_status paged_seq_erase(struct paged_client *client, size_t n, const paged_seq_id *ids);

struct paged_seq_info {
	size_t struct_size;
	uint32_t owner;         /* session id */
	uint32_t capacity;      /* tokens */
	uint32_t writable_from; /* tokens before it may not be written in place */
	uint32_t n_pages;
	uint64_t version; /* changes when entries are replaced or removed, not when the row grows */
};

/**
 * paged_seq_read - look at any live sequence's row; no request
 *
 * @param[out] info    NULL: not wanted
 * @param[out] pages   the first min(n_max, n_pages) physical pages, in logical order; NULL with n_max 0
 * @retval PAGED_ERR_INVALID  the id is another pool's
 * @retval PAGED_ERR_STALE  no live sequence has this id
 * @retval PAGED_ERR_AGAIN  the row is being changed just now
 */
enum paged_status paged_seq_read(struct paged_pool *pool, paged_seq_id seq, struct paged_seq_info *info,
				 uint32_t *pages, size_t n_max);

/* ------------------------------------------------------------------- batch */

struct paged_batch_params {
	size_t struct_size;
	/** Most rows of a plan, at most PAGED_MAX_REQUEST_SEQS.  0: 256. */
	uint32_t max_rows;
	/**
	 * Tokens to have reserved beyond what a plan uses.  When a row's reserve
	 * falls below it, plan asks for the next pages without waiting, so that
	 * steady decoding never waits for the daemon.  It then tops up all rows
	 * to twice the reserve (never past max_length), so that they ask
	 * together and a batch asks about once in reserve_ahead steps.  At most
	 * one such request of a client is outstanding.  While no more than an
	 * eighth of the pool's pages is free, nothing is asked for: plan then
	 * reserves what it needs, and waits for it.  0: the caller reserves.
	 */
	uint32_t reserve_ahead;
	/**
	 * Of a pool in a GPU's memory, what the batch's buffers there are made
	 * for; the host's memory has no such limits.  Query rows of a plan, all
	 * sequences together.  0: 512, or max_rows if that is more.
	 */
	uint32_t max_q_tokens;
	/** Likewise heads of q.  0: 8 for each KV head; 128 where V lies in K. */
	uint32_t max_q_heads;
};

/*
 * Pools in a GPU's memory (paged_pool_info.backend "cuda").  Tensors' data,
 * lse, max_score, sink, positions, scales, the table and positions of a rotary
 * embedding, the bounds of a gather, and the parts of a merge are then device
 * addresses, in memory of the pool's device or any that it may access, and
 * nothing follows them on the host.  Rows, page tables and parameter structs
 * stay the host's.  Calls launch on the batch's stream and return; what was
 * wrong is found by paged_batch_validate(), which waits.  So
 *   - what a call reads on the device must be written before it on the
 *     stream, and stay as it is until the call's kernels have ended;
 *   - rows, explicit page tables and parameter structs may be reused at once;
 *   - asking for changes of a sequence (truncate, erase, close) promises that
 *     no kernel of this session works on it: wait for the stream first
 *     (paged_batch_finish());
 *   - whoever reads what another batch writes comes after it: paged_marks.h;
 *   - a batch is destroyed when all that it put on the stream has ended, also
 *     by a plan that failed.
 * The pool's device is used by its primary context, which the CUDA runtime
 * uses too; the calling thread's current context is what it was afterwards.
 */

/**
 * paged_batch_create - a plan with its buffers; everything is allocated here, nothing in a step
 *
 * @retval PAGED_ERR_GONE  the daemon or the session has ended
 */
enum paged_status paged_batch_create(struct paged_pool *pool, const struct paged_batch_params *params,
				     struct paged_batch **batch_p);

/** paged_batch_destroy - takes NULL */
void paged_batch_destroy(struct paged_batch *batch);

/** q_base of the row counts; else it is kv_len - q_len. */
#define PAGED_ROW_Q_BASE 1u
/** paged_append() leaves this row alone (a read of another session's sequence, cross-attention). */
#define PAGED_ROW_NO_APPEND 2u
/** b counts; else mods see the row's place in the plan. */
#define PAGED_ROW_B 4u

/** One sequence's part of a batch.  Zero what is not used. */
struct paged_batch_row {
	paged_seq_id seq;
	/**
	 * Instead of seq: an explicit page table, n_pages physical pages, copied
	 * by plan.  Every entry is checked to be a page of the pool; whose page
	 * it is, and that nobody else writes it, is the caller's affair.
	 */
	const uint32_t *pages;
	uint32_t n_pages;
	/** Query rows in the packed tensors; 0: the row waits. */
	uint32_t q_len;
	/** Tokens written once this step's append is done; keys at or past it are never seen. */
	uint32_t kv_len;
	uint32_t flags;
	/** q_idx of the first query row, with PAGED_ROW_Q_BASE. */
	int64_t q_base;
	/**
	 * With PAGED_ROW_B what mods see as b, at most 2^31 - 1.  A sequence that
	 * keeps its number while others come and go finds its part of captured
	 * arrays in the same place.  Rows may share a number.
	 */
	uint32_t b;
	uint32_t reserved[5];
};

/**
 * paged_batch_plan - fix rows, lengths and page tables for one step
 *
 * Reads the shared tables; makes no request (but see reserve_ahead), no
 * allocation, and no system call but a look at the control socket once a
 * second.  A row whose capacity is short is reserved here and now when the
 * batch has reserve_ahead (that waits for the daemon).  A batch whose plan
 * failed has no plan.
 *
 * @retval PAGED_ERR_CAPACITY  kv_len exceeds a row's capacity (reserve_ahead 0)
 * @retval PAGED_ERR_FULL      the pool lacks pages; paged_batch_missing() says
 *                             which rows to leave out; plan again without them
 * @retval PAGED_ERR_INVALID   also: an id is another pool's
 * @retval PAGED_ERR_STALE     an id names no live sequence
 * @retval PAGED_ERR_LIMIT     more rows than max_rows, kv_len past max_length,
 *                             or on a GPU more query rows than max_q_tokens
 * @retval PAGED_ERR_RANGE     an explicit page is outside the pool
 * @retval PAGED_ERR_GONE      the daemon or the session has ended
 * @retval PAGED_ERR_AGAIN     a row is being changed; nothing is wrong, call again
 */
enum paged_status paged_batch_plan(struct paged_batch *batch, size_t n_rows, const struct paged_batch_row *rows);

/**
 * paged_batch_missing - pages that row `row` of the last refused plan lacks
 *
 * 0: none, or the pool still has them.  What is free serves the rows in their
 * order: the ones with 0 can be planned together, unless others took the
 * pages meanwhile.  Put first who is to wait last.
 */
uint32_t paged_batch_missing(const struct paged_batch *batch, size_t row);

/**
 * paged_batch_stream - where plan, append, attention and merge of this batch run from now on
 *
 * A new batch has the legacy default stream.  The plan goes: plan again.  The
 * batch's buffers go along, so what was launched on the old stream must have
 * ended, or the new one must wait for it (an event).
 *
 * @param[in] stream  CUstream or cudaStream_t, of the pool's device; borrowed
 *                    until another is set or the batch destroyed.  NULL: the
 *                    legacy default stream, and all that a pool in the host's
 *                    memory takes
 * @retval PAGED_ERR_UNSUPPORTED  a stream for a pool in the host's memory
 */
enum paged_status paged_batch_stream(struct paged_batch *batch, void *stream);

struct paged_plan_device_params {
	size_t struct_size;
	size_t n_rows;
	/**
	 * [n_rows] seq or pages, and PAGED_ROW_NO_APPEND.  q_len and kv_len are
	 * upper bounds of what the device's arrays will say: capacity is judged,
	 * and reserved, by these.  A row that may be empty names neither seq
	 * nor pages and has bounds of 0.
	 */
	const struct paged_batch_row *rows;
	/* On the device: */
	/** [n_rows + 1] where each row's query rows begin in the packed tensors, and where the last one's end. */
	const int32_t *q_indptr;
	/** [n_rows] as paged_batch_row.kv_len; rows without query rows included. */
	const int32_t *kv_len;
	/** [n_rows] q_idx of each row's first query row.  NULL: kv_len - q_len. */
	const int32_t *q_base;
	/** 1: bring the tables over and launch nothing, for the next replay of a captured plan. */
	uint32_t tables_only;
};

/**
 * paged_batch_plan_device - as paged_batch_plan(), with lengths that the device has
 *
 * They are read on the stream, when it comes there, and may have been written
 * by a kernel before; they must not change until the plan's last kernel has
 * ended.  What passes the bounds is not computed, nor is written what lies
 * before a row's writable_from, and both are told by paged_batch_validate().
 * Sums of the rows' bounds stand for lengths in other calls: tensors have that
 * many query rows, block masks reach that far, paged_batch_tables_csr() and
 * _padded() give the tables so far.
 *
 * Graphs.  A stream that is being captured takes this call, then append,
 * attention and merge.  Nothing is copied from the host then, so page tables
 * are not in the graph: the captured rows are bounds alone, and may name
 * nothing.  Mods are bound and prepared before.  Before each replay, the first
 * too, outside of any capture and on the stream that the graph is launched on,
 * tables_only brings over what has changed in the tables meanwhile.  Rows may
 * be any sequences then, n_rows and the sum of q_len at most what they were at
 * the capture: a smaller batch has empty rows, on the device too, and another
 * session's row needs PAGED_ROW_NO_APPEND.  Append and attention take a
 * captured plan within its capture alone, and none of tables alone; that one
 * can be validated, after the replay.  The graph holds addresses: of the
 * batch's buffers, mods and masks, and of the caller's arrays; it is launched
 * as long as they are there.
 *
 * A call that a capture cannot take is refused before anything is put on the
 * stream, and the capture goes on, but for a plan refused: plan again.  Calls
 * of this library on other streams, and those that allocate, leave a capture
 * alone whatever its mode, for they are made in the relaxed one.
 *
 * @param[in] params  needed
 * @retval PAGED_ERR_UNSUPPORTED  a pool in the host's memory; tables_only, and
 *                                the stream is being captured
 * @retval PAGED_ERR_PERM         tables_only, and a captured append would write
 *                                to another session's row
 * @retval PAGED_ERR_LIMIT        also: the bounds of q_len add up to more than max_q_tokens
 * Others as paged_batch_plan().
 */
enum paged_status paged_batch_plan_device(struct paged_batch *batch, const struct paged_plan_device_params *params);

/**
 * paged_batch_validate - were the pages the plan's own all the time, and every index in bounds?
 *
 * Call it after the kernels when rows name other sessions' sequences, or when
 * mods read arrays.  On a GPU it first waits for the stream, and looks at what
 * the kernels since the plan found wrong; a row with a fault was left out.
 * @retval PAGED_ERR_STALE  entries that the plan used were replaced or removed
 *                          since: results of that row are void.  A truncate
 *                          of pages past them says so too.
 * @retval PAGED_ERR_RANGE  a mod read an array out of bounds since the plan, for
 *                          a key that is seen but for it: it got 0.  Names
 *                          array, index and bounds.  On a GPU also lengths
 *                          and positions that are none, with their row
 * @retval PAGED_ERR_CAPACITY  on a GPU: a length or position past a row's pages
 * @retval PAGED_ERR_PERM      on a GPU: lengths or positions of the device were to
 *                             append before a row's writable_from, or to another
 *                             session's row; nothing was written there
 * @retval PAGED_ERR_BACKEND   on a GPU: its driver's error
 * @retval PAGED_ERR_UNSUPPORTED  on a GPU: the stream is being captured
 */
enum paged_status paged_batch_validate(struct paged_batch *batch);

/**
 * paged_batch_tables_csr - the plan's page tables as FlashInfer takes them
 *
 * @param[out] indptr         [n_rows + 1]
 * @param[out] indices        [n_indices] pages of all rows, in order
 * @param[out] last_page_len  [n_rows] tokens in the last page, 1 to page_size; 0 for a row without tokens
 * @param[out] n_needed       entries that indices takes; NULL: not wanted
 * @retval PAGED_ERR_LIMIT  indices is too short; n_needed is written
 * Any of indptr, indices (with n_indices 0), last_page_len may be NULL.
 */
enum paged_status paged_batch_tables_csr(const struct paged_batch *batch, int32_t *indptr, int32_t *indices,
					 size_t n_indices, int32_t *last_page_len, size_t *n_needed);

/**
 * paged_batch_tables_padded - as vLLM and FlashAttention take them
 *
 * @param[out] table   [n_rows][width] pages of each row; 0 past the row's own (never read by a
 *                     kernel that is given kv_len)
 * @param[out] kv_len  [n_rows] tokens; NULL: not wanted
 * @retval PAGED_ERR_LIMIT  a row has more pages than width
 */
enum paged_status paged_batch_tables_padded(const struct paged_batch *batch, int32_t *table, size_t width,
					    int32_t *kv_len);

#ifdef __cplusplus
}
#endif
#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#include <paged_admin.h>
#include <paged_attention.h>
#include <paged_marks.h>
#include <paged_mods.h>

#endif
