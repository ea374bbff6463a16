/* SPDX-License-Identifier: Apache-2.0 */
/**
 * pagedclient.h - one KV cache for all model processes of a machine
 *
 * A daemon, pagedd(8), owns pools of pages and the page tables.  A worker
 * process opens a client and the pools that it uses, which maps their pages
 * into the process.  The worker creates sequences, reserves capacity for their
 * tokens, and runs attention on the pages in place.  Processes share the pages;
 * nothing is copied between processes.  paged_client_open_embedded() runs the
 * owner of the pools inside the calling process instead, with the same calls.
 * Below, "the owner" means the daemon or the embedded owner.
 *
 * Objects.  A client contains pools, a pool contains batches.  Each keeps a
 * pointer to the object that contains it, so close the inner object first.
 * paged_client_close() closes all pools and batches that are still open, and
 * paged_pool_close() all batches; their handles are then invalid.  Sequences
 * are ids, not objects.  The pages of a sequence belong to the owner and return to
 * the pool when the sequence is erased or its session ends.
 *
 * Sessions.  A session owns sequences.  paged_client_open() starts a session,
 * or joins an existing one as a further member by its join token.  A session
 * ends when its first member leaves or dies, or, with params.outlive, when its
 * last member does.
 *
 * Crashes.  When the death of a worker ends its session, the daemon frees the
 * session's pages after the process is gone.  When the daemon dies, every call
 * that needs it returns PAGED_ERR_GONE, and the ids, plans and mappings of that
 * daemon are void.  Pages in host memory stay readable until the pool is
 * closed.  Pages in GPU memory stay mapped until the last batch of the pool is
 * destroyed after a call has returned PAGED_ERR_GONE, because the next daemon
 * may need that memory.  The contents of GPU pages that were opened by a CUDA
 * IPC handle are undefined as soon as the daemon has died (export = legacy in
 * pagedd.conf(5)).  The same rules apply to a session that the daemon has
 * ended.
 *
 * Errors.  Every call that can fail returns enum paged_status.
 * paged_client_error() returns the message, which names the objects and numbers
 * involved.  Each @retval list names the statuses that are specific to its
 * call.  Any call may also return:
 *
 *   PAGED_ERR_INVALID  an argument is not what the call documents.  For a NULL
 *                      handle no message is kept, because there is no client
 *                      to keep it
 *   PAGED_ERR_NOMEM    this process has no memory left
 *   PAGED_ERR_FORK     the object belongs to the parent process
 *
 * and a call that sends a request to the owner:
 *
 *   PAGED_ERR_TIMEOUT   no reply within timeout_ms; the outcome is unknown
 *   PAGED_ERR_GONE      the daemon has died, or has ended this session
 *   PAGED_ERR_PERM      an observer may not make this request
 *   PAGED_ERR_STOPPING  the daemon is stopping and accepts no new work
 *   PAGED_ERR_SYSTEM    a system call failed
 *   PAGED_ERR_PROTOCOL  the daemon's reply is not understood
 *
 * A call that fails changes nothing, except after PAGED_ERR_TIMEOUT.  The
 * library never prints, exits or aborts, and callers need not look at errno.
 *
 * Threads.  Calls on one client may come from any thread; calls that send a
 * request to the owner are serialised.  A batch is used by one thread at a time.
 * Different batches run concurrently: each has its own kernel threads, or runs
 * on the program's threads (paged_run_fn).  A pool or batch may be closed when
 * no other thread is inside a call on it.  Different clients share nothing.
 *
 * Fork.  In a forked child, every call on the parent's objects returns
 * PAGED_ERR_FORK without a system call, and closing them only frees memory: the
 * channels and threads belong to the parent.  The pages are not mapped in the
 * child.  (On a kernel without MADV_WIPEONFORK, each call costs a getpid(2).)
 *
 * Structs.  A parameter or report struct begins with struct_size, which the
 * caller sets to sizeof(the struct).  In parameters, a field past struct_size
 * is 0, and a NULL struct is all 0; the comment of a field says what 0 means.
 * A field that is set but that this library is too old to know is refused with
 * PAGED_ERR_UNSUPPORTED.  Reports are filled up to the caller's struct_size, and
 * bytes past those that the library knows are zeroed.  Structs that lie in
 * arrays or in other structs have a fixed size instead, with reserved words:
 * zero them, otherwise the call returns PAGED_ERR_INVALID.  Enums in structs are
 * uint32_t, so that each struct has the same layout for every compiler and
 * language.
 *
 * GPUs.  A pool may lie in GPU memory (paged_pool_info.backend "cuda").  Its
 * calls take device addresses and run asynchronously on a stream.
 * paged_marks.h describes the rules, CUDA graphs, and ordering across processes.
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
struct paged_mod_set; /* paged_mods.h */

/* ----------------------------------------------------------------- version */

#define PAGED_VERSION_MAJOR 0
#define PAGED_VERSION_MINOR 1
#define PAGED_VERSION_PATCH 0
/** Version of this header; compare it with paged_version(). */
#define PAGED_VERSION ((PAGED_VERSION_MAJOR << 16) | (PAGED_VERSION_MINOR << 8) | PAGED_VERSION_PATCH)

/** paged_version - PAGED_VERSION of the library that the program runs with */
uint32_t paged_version(void);

/* ------------------------------------------------------------------ client */

/** Severity of a log line, as in syslog(3). */
enum paged_log_level { PAGED_LOG_ERROR = 3, PAGED_LOG_WARNING = 4, PAGED_LOG_INFO = 6, PAGED_LOG_DEBUG = 7 };

/**
 * paged_log_fn - receives the library's log lines
 *
 * The library calls it from the thread that is inside a library call.  text has
 * no newline and is valid during the call only.  The function must not call the
 * library.  Failed calls are logged as debug lines; notices from the daemon and
 * requests without a reply are logged as warnings.
 *
 * The thread that compiles mods for a GPU never calls this function.  The lines of
 * that thread (what was compiled and how long it took; as warnings, why compiled
 * mods are not cached, and damaged cache files) are queued.  The next call that
 * requests or awaits compiled code logs them, at the latest
 * paged_client_close().
 */
typedef void (*paged_log_fn)(void *argument, enum paged_log_level level, const char *text);

/** One part of a kernel's work, which the library passes to a paged_run_fn. */
typedef void (*paged_work_fn)(void *work_argument, uint32_t index);

/**
 * paged_run_fn - runs a section of a kernel's work on the program's own threads
 *
 * The function must call work(work_argument, i) exactly once for each i below n, and
 * return after all these calls have returned.  Writes before the call must be
 * visible to each part, and writes of the parts to the caller afterwards, as a
 * thread pool or an OpenMP loop ensures.  The program chooses the threads, their
 * number, the order, and whether parts run concurrently or one after another;
 * the results are bit-identical.  Parts take work items from a shared queue and
 * never wait for each other, so a part that starts late finds no work left.  If
 * run() omits or repeats an index, the library call returns PAGED_ERR_INVALID
 * and its results are void.
 *
 * The library calls it from the thread that is inside paged_append(),
 * paged_gather(), paged_attention() or paged_merge(), at most twice per call,
 * and not for work that is too small to share.  The function must not call the
 * library with the same batch, and must not be left by longjmp() or an
 * exception.
 */
typedef void (*paged_run_fn)(void *argument, paged_work_fn work, void *work_argument, uint32_t n);

struct paged_client_params {
	size_t struct_size;
	/** Shown by pagedctl; copied.  NULL: the program's name. */
	const char *name;
	/** From paged_client_join_token() of the session's first member.  NULL: start a session. */
	const char *join_token;
	/** Longest time that a call waits for the daemon, milliseconds.  0: 5000. */
	uint32_t timeout_ms;
	/** Threads that run the kernels of a batch, including the calling one; with run, parts of the work.  0: 1. */
	uint32_t n_threads;
	/**
	 * 1: read only (status, page tables, checks, plans that read other
	 * sessions' sequences).  An observer has no session and no sequences.
	 */
	uint32_t observer;
	/** NULL: no log. */
	paged_log_fn log;
	void *log_argument;
	/**
	 * [n_threads] distinct CPUs that this process may use: thread i of a batch
	 * is bound to cpus[i].  Thread 0 is the calling thread, which the library
	 * does not bind; that is up to the program.  Batches that run at the same
	 * time share these CPUs.  Copied.  Must be NULL with run.  NULL: no binding.
	 */
	const uint32_t *cpus;
	/** Equals n_threads, or 0 without cpus. */
	uint32_t n_cpus;
	/** NULL: the library starts n_threads - 1 threads for each batch; otherwise it starts none. */
	paged_run_fn run;
	void *run_argument;
	/**
	 * Instruction set of the host kernels: "generic", "avx2", "avx512",
	 * "avx512bf16" or "amx".  NULL: the best that this machine supports.  The
	 * environment variable PAGED_ISA overrides it, so that an operator can
	 * force one.
	 */
	const char *isa;
	/**
	 * 1: the session lives until its last member has left; 0: until this
	 * client, its first member, has left.  Members may join meanwhile.
	 */
	uint32_t outlive;
};

/**
 * paged_client_open - attach to the daemon at a runtime directory
 *
 * On PAGED_OK both channels to the daemon work: each has answered a request.
 *
 * @param[in]  runtime_dir  NULL: $PAGED_RUNTIME_DIR, else /run/paged
 * @param[in]  params       NULL: defaults
 * @param[out] client_p     caller closes it with paged_client_close().  Also set
 *                          on failure, so that paged_client_error() has the
 *                          message; NULL only on PAGED_ERR_NOMEM
 * @retval PAGED_ERR_NO_DAEMON    no daemon listens at runtime_dir
 * @retval PAGED_ERR_PERM         policy refuses this uid, or this pid is not visible to the daemon
 * @retval PAGED_ERR_VERSION      the daemon has another major protocol version
 * @retval PAGED_ERR_GONE         the session of join_token has ended
 * @retval PAGED_ERR_STOPPING     the daemon is stopping
 * @retval PAGED_ERR_TIMEOUT      the daemon does not accept or does not reply
 * @retval PAGED_ERR_INVALID      parameters contradict each other.  For cpus the
 *                                message names the bad CPU and the CPUs that
 *                                this process may use
 * @retval PAGED_ERR_UNSUPPORTED  this machine lacks the instruction set that isa or PAGED_ISA names
 *
 * Blocks: up to timeout_ms.
 */
enum paged_status paged_client_open(const char *runtime_dir, const struct paged_client_params *params,
				    struct paged_client **client_p);

/** Geometry of a pool for paged_client_open_embedded(). */
struct paged_pool_params {
	size_t struct_size;
	const char *name; /* copied; at most PAGED_MAX_NAME bytes */
	uint32_t n_layers;
	uint32_t n_kv_heads;
	/** Head dimension of K, at most PAGED_MAX_DIM. */
	uint32_t k_dim;
	/** Head dimension of V, at most PAGED_MAX_DIM.  0: k_dim. */
	uint32_t v_dim;
	/** 1: V is the first v_dim dims of K and is not stored separately (MLA). */
	uint32_t v_in_k;
	/** enum paged_dtype of the elements in the pages: F32, F16, BF16, E4M3, E5M2 or I8 (see paged_append()). */
	uint32_t dtype;
	/** Tokens per page, 1 to PAGED_MAX_PAGE_SIZE.  0: 16. */
	uint32_t page_size;
	uint32_t n_pages;
	/** Sequence slots, at most PAGED_MAX_SLOTS.  0: 1024. */
	uint32_t n_slots;
	/** Tokens that one sequence may reserve.  0: as many as all pages hold. */
	uint32_t max_length;
	/** Where the pages lie: "host" or "cuda".  NULL: "host". */
	const char *backend;
	/** With backend "cuda": the GPU, by index or UUID.  NULL: "0". */
	const char *device;
};

/**
 * paged_client_open_embedded - run the owner of the pools inside this process
 *
 * For single-process programs, tests and experiments.  Calls behave as with a
 * daemon.  The memory is private and is allocated on first touch, in
 * transparent huge pages where the system allows them.
 *
 * @param[in]  pools     n_pools geometries, 1 to PAGED_MAX_POOLS, all with the same struct_size; copied
 * @param[in]  params    NULL: defaults
 * @param[out] client_p  as for paged_client_open()
 * @retval PAGED_ERR_INVALID      an impossible geometry, or two pools of the same name
 * @retval PAGED_ERR_UNSUPPORTED  params has a join_token, which no other member
 *                                can have issued; or this machine lacks the
 *                                back end or the instruction set
 */
enum paged_status paged_client_open_embedded(const struct paged_pool_params *pools, size_t n_pools,
					     const struct paged_client_params *params, struct paged_client **client_p);

/**
 * paged_client_close - leave the session and free everything; takes NULL
 *
 * By closing, the caller promises that no kernel of this process still runs on
 * the pages.  The close of a session's first member ends the session, unless it
 * was opened with outlive.
 *
 * Threads: no thread may be inside, or begin, a call on the client or on
 * anything opened from it.
 * Blocks: up to timeout_ms, until the daemon has freed the session's pages.
 */
void paged_client_close(struct paged_client *client);

/**
 * paged_client_error - message of this thread's last failed call on this client
 *
 * Covers calls on the client's pools and batches.  Empty before the first
 * failure.  The text is valid until the next failing call of this thread.  A
 * thread keeps the messages of the eight clients that failed in it most
 * recently.
 */
const char *paged_client_error(const struct paged_client *client);

/** paged_status_name - "PAGED_ERR_FULL" and so on; never NULL */
const char *paged_status_name(enum paged_status status);

/** paged_client_session - id of the session that owns this client's sequences; 0: an observer, or the open failed */
uint32_t paged_client_session(const struct paged_client *client);

/**
 * paged_client_join_token - secret by which another process joins this session
 *
 * A bearer token: pass it through a pipe or the environment, not on a command
 * line.  Only the first member has one; for all other clients it is "".  Valid
 * until the client is closed.
 */
const char *paged_client_join_token(const struct paged_client *client);

/**
 * paged_client_fd - becomes readable when paged_client_dispatch() has something to report
 *
 * For poll(2) and epoll(7).  The client owns the descriptor; do not close it.
 * -1 for an embedded client.
 */
int paged_client_fd(const struct paged_client *client);

/**
 * paged_client_dispatch - process pending messages of the daemon; never waits for it
 *
 * @retval PAGED_OK            the daemon and the session are alive
 * @retval PAGED_ERR_STOPPING  the daemon stops soon: finish, then close
 * @retval PAGED_ERR_GONE      the daemon died, or ended this session
 */
enum paged_status paged_client_dispatch(struct paged_client *client);

/**
 * paged_client_ping - one round trip to the owner
 *
 * @retval PAGED_ERR_TIMEOUT  no reply within timeout_ms
 * @retval PAGED_ERR_GONE     the daemon died, or ended this session; further calls will not succeed
 */
enum paged_status paged_client_ping(struct paged_client *client);

/* -------------------------------------------------------------------- pool */

/**
 * One array in the pages.  Offsets and strides count bytes; the address of an
 * element vector is base + offset + layer * layer_stride + page * page_stride +
 * head * head_stride + token * token_stride, and holds dim elements.
 */
struct paged_plane_info {
	uint32_t dtype; /* enum paged_dtype */
	uint32_t dim;
	uint64_t offset;
	uint64_t layer_stride;
	uint64_t page_stride;
	uint64_t head_stride;
	uint64_t token_stride;
	uint64_t reserved[2];
};

struct paged_pool_info {
	size_t struct_size;
	const char *name;    /* valid until the pool is closed */
	const char *backend; /* "host", "cuda" */
	/** This process's mapping of the pages.  "cuda": a device address, NULL once unmapped (Crashes, above). */
	void *base;
	uint64_t size;       /* bytes */
	uint64_t page_bytes; /* of one page, all layers */
	uint32_t n_layers;
	uint32_t n_kv_heads;
	uint32_t n_pages;
	uint32_t page_size;  /* tokens */
	uint32_t max_length; /* tokens that one sequence may reserve */
	uint32_t n_slots;
	uint32_t v_in_k;
	struct paged_plane_info k, v;
	const char *isa;    /* instruction set of this client's kernels: "avx512", "sm_90", ... */
	const char *device; /* "cuda": the GPU's UUID, "GPU-8a1b..." as in nvidia-smi -L; "host": NULL */
	/** I8 pools: one f32 scale for each token and head.  All 0 in other pools. */
	struct paged_plane_info k_scale, v_scale;
	uint32_t number; /* PAGED_SEQ_POOL() of the pool's sequences */
};

/**
 * paged_pool_open - map a pool's pages and page tables
 *
 * @param[out] pool_p  written on PAGED_OK only; caller closes it with paged_pool_close()
 * @retval PAGED_ERR_NOENT    no pool of this name; the message lists the pools
 * @retval PAGED_ERR_PERM     the pool's allow-list refuses this uid
 * @retval PAGED_ERR_BACKEND  mapping the memory failed
 *
 * Blocks: up to timeout_ms.
 */
enum paged_status paged_pool_open(struct paged_client *client, const char *name, struct paged_pool **pool_p);

/** paged_pool_close - unmap the pool; destroys its batches, mods and block masks; takes NULL */
void paged_pool_close(struct paged_pool *pool);

/** paged_pool_get_info - fill info up to its struct_size */
enum paged_status paged_pool_get_info(const struct paged_pool *pool, struct paged_pool_info *info);

/** Pages of a pool by state.  free, referenced and quarantined add up to n_pages. */
struct paged_pool_counts {
	size_t struct_size;
	uint32_t n_pages;
	uint32_t n_free;
	uint32_t n_referenced;  /* by sequences */
	uint32_t n_quarantined; /* of ended sessions, whose processes may still write to them */
};

/**
 * paged_pool_get_counts - page counts from shared memory, without a request; fills counts up to its struct_size
 *
 * @retval PAGED_ERR_AGAIN  the owner changed the counts during every attempt to read them
 * @retval PAGED_ERR_GONE   the daemon died, or ended this session
 */
enum paged_status paged_pool_get_counts(struct paged_pool *pool, struct paged_pool_counts *counts);

/**
 * paged_pool_wait_free - sleep until n_pages pages are free or timeout_ms have passed; no request
 *
 * PAGED_OK is a hint: another session may take the pages first.  Reserve, and
 * wait again on PAGED_ERR_FULL.
 *
 * @retval PAGED_ERR_TIMEOUT  fewer pages are free after timeout_ms
 * @retval PAGED_ERR_LIMIT    the pool has fewer than n_pages pages in all
 * @retval PAGED_ERR_GONE     the daemon died, or ended this session; noticed within 0.1 s
 *
 * Threads: any; other calls on the client proceed meanwhile.
 */
enum paged_status paged_pool_wait_free(struct paged_pool *pool, uint32_t n_pages, uint32_t timeout_ms);

/* --------------------------------------------------------------- sequences */

/*
 * Each call that creates, reserves, truncates or erases is one request for its
 * whole array of 1 to PAGED_MAX_REQUEST_SEQS elements, which may belong to
 * different pools of the client.  A request is all or nothing.  Naming a
 * sequence twice in one request is PAGED_ERR_INVALID.  An id contains the number
 * of its pool (PAGED_SEQ_POOL), and a call that takes a pool refuses the ids of
 * other pools.  By truncating or erasing, the caller promises that no work of
 * its session on the affected pages is running.
 *
 * All of them may return, in addition to their own statuses:
 *
 *   PAGED_ERR_LIMIT  the array is too long
 *   PAGED_ERR_STALE  an id names no live sequence
 *   PAGED_ERR_PERM   a sequence belongs to another session, or the client is an observer
 *
 * Blocks: up to timeout_ms.
 */

/** A sequence to create. */
struct paged_seq_params {
	/** A pool of the client. */
	struct paged_pool *pool;
	/**
	 * Shown by pagedctl; copied.  UTF-8 without control characters, at most
	 * PAGED_MAX_TAG bytes, and PAGED_MAX_REQUEST_TAGS bytes in one request.
	 * NULL: none.
	 */
	const char *tag;
	/** Tokens of capacity to reserve at once. */
	uint32_t n_tokens;
	uint32_t reserved[5]; /* 0 */
};

/**
 * paged_seq_create - create n empty sequences, owned by this session
 *
 * After PAGED_ERR_TIMEOUT the library erases the sequences when the late reply
 * arrives.
 *
 * @param[out] ids  [n], written on PAGED_OK only
 * @retval PAGED_ERR_FULL   a pool lacks slots or pages for all of them; none was created
 * @retval PAGED_ERR_LIMIT  n_tokens exceeds the pool's max_length, or a tag is too long
 */
enum paged_status paged_seq_create(struct paged_client *client, size_t n, const struct paged_seq_params *params,
				   paged_seq_id *ids);

/**
 * paged_seq_reserve - raise the capacity of each sequence to at least n_tokens
 *
 * n_tokens is absolute and capacity never shrinks, so repeating the call is
 * harmless.  n_ahead asks for tokens beyond n_tokens, up to the pool's
 * max_length, as far as the pool has spare pages; if they do not suffice, the
 * items share them in proportion to what they ask for.  An eighth of the pool's
 * pages is never given out for n_ahead and stays available for n_tokens.
 *
 * @retval PAGED_ERR_FULL   too few free pages for the n_tokens of all items; none was taken
 * @retval PAGED_ERR_LIMIT  n_tokens exceeds the pool's max_length
 */
enum paged_status paged_seq_reserve(struct paged_client *client, size_t n, const struct paged_seq_item *items);

/**
 * paged_seq_truncate - keep n_tokens tokens of each sequence and free the whole pages past them
 *
 * The sequences stay alive, also with n_tokens 0.
 *
 * @retval PAGED_ERR_CAPACITY  n_tokens exceeds the sequence's capacity
 * @retval PAGED_ERR_INVALID   n_ahead is not 0
 */
enum paged_status paged_seq_truncate(struct paged_client *client, size_t n, const struct paged_seq_item *items);

/** paged_seq_erase - end the sequences and free their pages; their ids are stale from now on */
enum paged_status paged_seq_erase(struct paged_client *client, size_t n, const paged_seq_id *ids);

struct paged_seq_info {
	size_t struct_size;
	uint32_t owner;         /* session id */
	uint32_t capacity;      /* tokens */
	uint32_t writable_from; /* tokens before it must not be written in place */
	uint32_t n_pages;
	uint64_t version; /* changes when page table entries are replaced or removed, not when the table grows */
};

/**
 * paged_seq_read - read the page table of any live sequence from shared memory, without a request
 *
 * The sequence may belong to any session.
 *
 * @param[out] info    filled up to its struct_size; NULL: not wanted
 * @param[out] pages   the first min(n_max, n_pages) physical pages, in logical order; NULL with n_max 0
 * @retval PAGED_ERR_INVALID  the id belongs to another pool
 * @retval PAGED_ERR_STALE    no live sequence has this id
 * @retval PAGED_ERR_AGAIN    the owner was changing the page table during every attempt to read it
 * @retval PAGED_ERR_GONE     the daemon died, or ended this session
 */
enum paged_status paged_seq_read(struct paged_pool *pool, paged_seq_id seq, struct paged_seq_info *info,
				 uint32_t *pages, size_t n_max);

/* ------------------------------------------------------------------- batch */

/*
 * A batch holds one plan at a time: the rows (sequences) of one step, with their
 * lengths and page tables.  Plan once per step, then call paged_append() and
 * paged_attention() once per layer (paged_attention.h).  A call that needs a
 * plan returns PAGED_ERR_INVALID if the batch has none.
 */

struct paged_batch_params {
	size_t struct_size;
	/** Most rows of a plan, at most PAGED_MAX_REQUEST_SEQS.  0: 256. */
	uint32_t max_rows;
	/**
	 * Tokens to keep reserved beyond what a plan uses, so that steady decoding
	 * never waits for the daemon.  When fewer tokens are reserved for a row, the
	 * plan requests the next pages without waiting.  The request raises every
	 * row to 2 * reserve_ahead tokens beyond its kv_len (never past max_length),
	 * so that the rows need their next request at the same time, and a batch
	 * sends about one request in reserve_ahead steps.  A client has at most one
	 * such request outstanding.  While an eighth of the pool's pages or less is
	 * free, nothing is requested ahead; the plan reserves what it needs and
	 * waits for it.  0: the caller reserves.
	 */
	uint32_t reserve_ahead;
	/**
	 * Only for pools in GPU memory, where it sizes the batch's buffers: most
	 * query rows of a plan, all sequences together.  0: 512, or max_rows if
	 * that is more.
	 */
	uint32_t max_q_tokens;
	/** Only for pools in GPU memory: most heads of q, at least the KV heads.  0: 8 per KV head; 128 if V lies in K.
	 */
	uint32_t max_q_heads;
};

/**
 * paged_batch_create - allocate a batch with all buffers that its steps need
 *
 * @param[in]  params   NULL: defaults
 * @param[out] batch_p  written on PAGED_OK only; caller destroys it with paged_batch_destroy()
 * @retval PAGED_ERR_LIMIT    max_rows is too large
 * @retval PAGED_ERR_BACKEND  the GPU has no memory for the buffers, or its driver failed
 * @retval PAGED_ERR_GONE     the daemon died, or ended this session
 */
enum paged_status paged_batch_create(struct paged_pool *pool, const struct paged_batch_params *params,
				     struct paged_batch **batch_p);

/**
 * paged_batch_destroy - free a batch and its mods; takes NULL
 *
 * On a GPU, all work that the batch has put on its stream must have ended, also
 * work of a plan that failed: call paged_batch_finish() first.
 */
void paged_batch_destroy(struct paged_batch *batch);

/** q_base of the row is valid; without it q_base is kv_len - q_len. */
#define PAGED_ROW_Q_BASE 1u
/** paged_append() skips this row (reading another session's sequence, cross-attention). */
#define PAGED_ROW_NO_APPEND 2u
/** b of the row is valid; without it mods see the row's index in the plan. */
#define PAGED_ROW_B 4u

/** One sequence's part of a batch.  Zero unused fields. */
struct paged_batch_row {
	paged_seq_id seq;
	/**
	 * Instead of seq, an explicit page table: n_pages physical pages, copied
	 * by the plan.  The library checks that each entry is a page of the pool.
	 * The caller ensures that the pages belong to the right sequence and that
	 * nothing else writes them.
	 */
	const uint32_t *pages;
	uint32_t n_pages;
	/** Query rows of this row in the packed tensors.  0: the row is idle in this step. */
	uint32_t q_len;
	/** Tokens written once this step's append is done.  Attention never reads keys at or past it. */
	uint32_t kv_len;
	uint32_t flags;
	/** With PAGED_ROW_Q_BASE: q_idx of the first query row. */
	int64_t q_base;
	/**
	 * With PAGED_ROW_B: the value that mods see as b, at most 2^31 - 1.  A
	 * sequence that keeps its b while others come and go finds its data at the
	 * same index of captured arrays.  Several rows may have the same b.
	 */
	uint32_t b;
	uint32_t reserved[5];
};

/**
 * paged_batch_plan - set rows, lengths and page tables for one step
 *
 * The plan reads the page tables from shared memory.  It allocates nothing and
 * sends no request, except with reserve_ahead; its only other system calls are
 * one check of the channels to the daemon per second.  If a row's capacity is
 * too small and the batch has reserve_ahead, the plan reserves the missing
 * pages and waits for the daemon, up to timeout_ms; it may then also return any
 * status of paged_seq_reserve().  After a failure the batch has no plan.
 *
 * @param[in] rows  n_rows; not kept, explicit page tables are copied
 * @retval PAGED_ERR_CAPACITY  kv_len exceeds a row's capacity, and the batch cannot reserve:
 *                             reserve_ahead is 0, the sequence belongs to another
 *                             session, or the row has explicit pages
 * @retval PAGED_ERR_FULL      the pool lacks pages; paged_batch_pages_missing() names the
 *                             rows to leave out.  Plan again without them
 * @retval PAGED_ERR_INVALID   also: an id belongs to another pool
 * @retval PAGED_ERR_STALE     an id names no live sequence
 * @retval PAGED_ERR_LIMIT     more rows than max_rows, kv_len or n_pages past max_length,
 *                             or, on a GPU, more query rows than max_q_tokens
 * @retval PAGED_ERR_RANGE     an entry of a page table is outside the pool
 * @retval PAGED_ERR_GONE      the daemon died, or ended this session
 * @retval PAGED_ERR_AGAIN     the owner is changing a page table; call again
 * @retval PAGED_ERR_UNSUPPORTED  the stream is being captured: use paged_batch_plan_device()
 */
enum paged_status paged_batch_plan(struct paged_batch *batch, size_t n_rows, const struct paged_batch_row *rows);

/**
 * paged_batch_pages_missing - number of pages that row `row` of the last refused plan lacks
 *
 * 0: the row lacks none, or the free pages suffice for it.  Free pages are
 * assigned to rows in plan order, so put the most urgent rows first.
 * The rows with 0 can be planned together, unless other sessions have taken the
 * pages meanwhile.
 */
uint32_t paged_batch_pages_missing(const struct paged_batch *batch, size_t row);

/**
 * paged_batch_stream - set the CUDA stream on which this batch runs from now on
 *
 * A new batch uses the legacy default stream.  The call discards the plan: plan
 * again.  The batch's buffers are reused, so work on the old stream must have
 * ended, or the new stream must wait for it (with an event).
 *
 * @param[in] stream  CUstream or cudaStream_t of the pool's device; borrowed
 *                    until another is set or the batch is destroyed.  NULL: the
 *                    legacy default stream; the only value for a pool in host
 *                    memory
 * @retval PAGED_ERR_UNSUPPORTED  a stream for a pool in host memory
 */
enum paged_status paged_batch_stream(struct paged_batch *batch, void *stream);

struct paged_plan_device_params {
	size_t struct_size;
	size_t n_rows;
	/**
	 * [n_rows] in host memory: seq or pages, flags without PAGED_ROW_Q_BASE,
	 * and b.  q_len and kv_len are upper bounds of the lengths on the device;
	 * capacity is checked and reserved for these bounds.  A row that may be
	 * empty has neither seq nor pages, and bounds of 0.
	 */
	const struct paged_batch_row *rows;
	/* Device addresses, aligned to 4 bytes: */
	/** [n_rows + 1] first query row of each row in the packed tensors, and the end of the last row. */
	const int32_t *q_indptr;
	/** [n_rows] as paged_batch_row.kv_len, also for rows without query rows. */
	const int32_t *kv_len;
	/** [n_rows] q_idx of each row's first query row.  NULL: kv_len - q_len. */
	const int32_t *q_base;
	/** 1: only update the page tables, for the next replay of a captured plan; launch nothing. */
	uint32_t tables_only;
};

/**
 * paged_batch_plan_device - paged_batch_plan() with lengths in GPU memory
 *
 * The lengths are read on the stream, so an earlier kernel on it may write
 * them.  The lengths must not change until the last kernel of the plan has
 * ended.  A row whose lengths exceed its bounds is not computed, and tokens
 * before a row's writable_from are not written; paged_batch_validate() reports
 * both.  Wherever another call needs a length on the host, the bound stands for
 * it: tensors have as many query rows as the q_len bounds add up to, a block
 * mask must reach the bounds, and paged_batch_tables_csr() and _padded() cover
 * them.
 *
 * The call may be captured into a CUDA graph.  paged_marks.h describes how, and
 * how tables_only updates the page tables before each replay.
 *
 * @param[in] params  required
 * @retval PAGED_ERR_LIMIT        also: the bounds of q_len add up to more than max_q_tokens
 * @retval PAGED_ERR_PERM         tables_only, and a captured append would write
 *                                to another session's sequence
 * @retval PAGED_ERR_UNSUPPORTED  the pool is in host memory; or tables_only while
 *                                the stream is being captured
 * Other statuses as for paged_batch_plan().
 */
enum paged_status paged_batch_plan_device(struct paged_batch *batch, const struct paged_plan_device_params *params);

/**
 * paged_batch_validate - check after the kernels that what they read was valid
 *
 * Needed when rows read sequences of other sessions, which may have changed
 * meanwhile, when mods read arrays, and on a GPU for every error that only the
 * device can find.  On a GPU it waits for the stream first; the kernels have
 * left out rows with an error.
 *
 * @retval PAGED_ERR_STALE     page table entries of a planned sequence were replaced
 *                             or removed since the plan, also by a truncate of
 *                             pages past the plan's: results of that row are void
 * @retval PAGED_ERR_RANGE     a mod read an array out of bounds since the plan, for a key
 *                             that is not otherwise masked out; the mod got 0.  The message
 *                             names array, index and bounds.  On a GPU also: an
 *                             invalid length or position, with its row
 * @retval PAGED_ERR_CAPACITY  on a GPU: a length or position exceeds a row's pages
 * @retval PAGED_ERR_PERM      on a GPU: an append before a row's writable_from, or to
 *                             another session's sequence; it wrote nothing there
 * @retval PAGED_ERR_LIMIT     on a GPU: more work than the batch's buffers hold
 * @retval PAGED_ERR_BACKEND   on a GPU: an error of its driver
 * @retval PAGED_ERR_UNSUPPORTED  on a GPU: the stream is being captured
 * @retval PAGED_ERR_GONE      the daemon died, or ended this session
 */
enum paged_status paged_batch_validate(struct paged_batch *batch);

/**
 * paged_batch_tables_csr - copy the plan's page tables in FlashInfer's format
 *
 * indptr, last_page_len, and indices with n_indices 0, may be NULL: not wanted.
 *
 * @param[out] indptr         [n_rows + 1] first entry of each row in indices, and the end of the last
 * @param[out] indices        [n_indices] physical pages of all rows, in plan order
 * @param[out] last_page_len  [n_rows] tokens in the last page, 1 to page_size; 0 for a row without tokens
 * @param[out] n_needed       entries that indices needs; NULL: not wanted
 * @retval PAGED_ERR_LIMIT  indices is too short; n_needed is written
 */
enum paged_status paged_batch_tables_csr(const struct paged_batch *batch, int32_t *indptr, int32_t *indices,
					 size_t n_indices, int32_t *last_page_len, size_t *n_needed);

/**
 * paged_batch_tables_padded - copy the plan's page tables in the format of vLLM and FlashAttention
 *
 * @param[out] table   [n_rows][width] physical pages of each row; entries past the row's own are 0
 *                     (a kernel that has kv_len never reads them)
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
