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
 * session's pages after the process is gone.  When the daemon dies or
 * restarts, every call that needs it returns PAGED_ERR_GONE, and the ids, plans
 * and mappings of that daemon are void.  Calls that read shared memory and send no
 * request (plans, paged_pool_get_counts(), paged_seq_read(), searches of prefixes,
 * watches, physical block masks, and publishes) ask once a second whether the
 * daemon lives; that costs two system calls, and no lock is waited for.  Only calls about
 * what this process has (paged_pool_get_info(), paged_pool_check(),
 * paged_watch_get_info(), a plan's tables, append and attention) go on.  Pages in host memory stay readable until the
 * pool is closed.  Pages in GPU memory stay mapped until the last batch of the pool is destroyed after a call has
 * returned PAGED_ERR_GONE, because the next daemon may need that memory.  The contents of GPU pages that were opened by
 * a CUDA IPC handle are undefined as soon as the daemon has died (export = legacy in pagedd.conf(5)).  The same rules
 * apply to a session that the daemon has ended.
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
 *   PAGED_ERR_STOPPING  the daemon is stopping and accepts no new work; or the
 *                       session is drained (pagedctl drain), and the call
 *                       would give it a new sequence
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
 * Structs.  One rule: initialise each struct with its macro, PAGED_PREFIX_INIT for struct paged_prefix and so on, then
 * set the fields.  (A program in another language zeroes the struct and sets struct_size, if there is one.)
 * A parameter or report struct begins with struct_size, which the macro
 * sets to sizeof(the struct).  In parameters, a field past struct_size
 * is 0, and a NULL struct is all 0; the comment of a field says what 0 means.
 * A field that is set but that this library is too old to know is refused with
 * PAGED_ERR_UNSUPPORTED.  Reports are filled up to the caller's struct_size, and
 * bytes past those that the library knows are zeroed.  Structs that lie in
 * arrays or in other structs have a fixed size instead, with reserved words,
 * which must be zero, otherwise the call returns PAGED_ERR_INVALID.  Enums in structs are
 * uint32_t, so that each struct has the same layout for every compiler and
 * language.
 *
 * GPUs.  A pool may lie in GPU memory (paged_pool_info.backend "cuda").  Its
 * calls take device addresses and run asynchronously on a stream.
 * paged_marks.h describes the rules, CUDA graphs, and ordering across processes.
 *
 * Headers.  This one is about clients, pools and sequences.  It includes
 * paged_batch.h (batches and their plans), paged_attention.h (append, gather,
 * attention, merge), paged_mods.h (mods and block masks), paged_marks.h (GPUs),
 * paged_sharing.h (sequences that share pages), paged_watch.h (changes of what they share)
 * and paged_admin.h (administration).
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
struct paged_batch;   /* paged_batch.h */
struct paged_mod_set; /* paged_mods.h */

/* clang-format off */
/* ------------------------------------------------------------ initialisers */

/*
 * struct paged_client_params params = PAGED_CLIENT_PARAMS_INIT;
 *
 * Every struct that a program fills or passes has such a macro: struct_size is set if it has one, all else is 0.
 */
#ifdef __cplusplus
extern "C++" {
template <typename T>
static inline T
paged_sized_()
{
	T value = T();

	value.struct_size = sizeof(value);
	return value;
}
}
#define PAGED_SIZED_(name) paged_sized_<struct name>()
#define PAGED_ZEROED_(name) name()
#else
#define PAGED_SIZED_(name) { .struct_size = sizeof(struct name) }
#define PAGED_ZEROED_(name) { 0 }
#endif
#define PAGED_APPEND_PARAMS_INIT PAGED_SIZED_(paged_append_params)
#define PAGED_ATTENTION_PARAMS_INIT PAGED_SIZED_(paged_attention_params)
#define PAGED_BATCH_PARAMS_INIT PAGED_SIZED_(paged_batch_params)
#define PAGED_BLOCK_ARRAYS_INIT PAGED_SIZED_(paged_block_arrays)
#define PAGED_BLOCK_KEY_INIT PAGED_SIZED_(paged_block_key)
#define PAGED_BLOCK_LISTS_INIT PAGED_SIZED_(paged_block_lists)
#define PAGED_BLOCK_MASK_INFO_INIT PAGED_SIZED_(paged_block_mask_info)
#define PAGED_BLOCK_MASK_PARAMS_INIT PAGED_SIZED_(paged_block_mask_params)
#define PAGED_BLOCK_MASK_PART_INIT PAGED_SIZED_(paged_block_mask_part)
#define PAGED_BLOCK_MASK_ROW_INIT PAGED_SIZED_(paged_block_mask_row)
#define PAGED_CHECK_RESULT_INIT PAGED_SIZED_(paged_check_result)
#define PAGED_CLIENT_PARAMS_INIT PAGED_SIZED_(paged_client_params)
#define PAGED_DAEMON_INFO_INIT PAGED_SIZED_(paged_daemon_info)
#define PAGED_GATHER_PARAMS_INIT PAGED_SIZED_(paged_gather_params)
#define PAGED_GIVE_PARAMS_INIT PAGED_SIZED_(paged_give_params)
#define PAGED_MERGE_PARAMS_INIT PAGED_SIZED_(paged_merge_params)
#define PAGED_METRICS_INIT PAGED_SIZED_(paged_metrics)
#define PAGED_MOD_SET_PARAMS_INIT PAGED_SIZED_(paged_mod_set_params)
#define PAGED_PLAN_DEVICE_PARAMS_INIT PAGED_SIZED_(paged_plan_device_params)
#define PAGED_POOL_COUNTS_INIT PAGED_SIZED_(paged_pool_counts)
#define PAGED_POOL_INFO_INIT PAGED_SIZED_(paged_pool_info)
#define PAGED_POOL_PARAMS_INIT PAGED_SIZED_(paged_pool_params)
#define PAGED_POOL_TOTALS_INIT PAGED_SIZED_(paged_pool_totals)
#define PAGED_PREFIX_INIT PAGED_SIZED_(paged_prefix)
#define PAGED_ROTARY_INIT PAGED_SIZED_(paged_rotary)
#define PAGED_SEQ_INFO_INIT PAGED_SIZED_(paged_seq_info)
#define PAGED_SHORTAGE_INIT PAGED_SIZED_(paged_shortage)
#define PAGED_WATCH_INFO_INIT PAGED_SIZED_(paged_watch_info)
#define PAGED_ARRAY_INIT PAGED_ZEROED_(paged_array)
#define PAGED_BATCH_ROW_INIT PAGED_ZEROED_(paged_batch_row)
#define PAGED_EXTRA_INIT PAGED_ZEROED_(paged_extra)
#define PAGED_MOD_POINT_INIT PAGED_ZEROED_(paged_mod_point)
#define PAGED_NAMED_MOD_INIT PAGED_ZEROED_(paged_named_mod)
#define PAGED_PUBLISH_INIT PAGED_ZEROED_(paged_publish)
#define PAGED_SEQ_ITEM_INIT PAGED_ZEROED_(paged_seq_item)
#define PAGED_SEQ_PARAMS_INIT PAGED_ZEROED_(paged_seq_params)
#define PAGED_START_INIT PAGED_ZEROED_(paged_start)
#define PAGED_TENSOR_INIT PAGED_ZEROED_(paged_tensor)

/* clang-format on */

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
	/**
	 * Longest time that a call waits for the daemon, milliseconds.  0: the environment variable PAGED_TIMEOUT_MS,
	 * else 5000.
	 */
	uint32_t timeout_ms;
	/** Threads that run a batch's kernels, including the calling one; with `run`, its n.  0: 1. */
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
	 * For the client that starts a session.  1: the session lives until its
	 * last member has left; 0: until this client has left.
	 */
	uint32_t outlive;
	/**
	 * 1: pools are opened without their pages, for a program that never touches K and V: a router, a monitor, a
	 * scheduler.  Page tables and the index of published pages are mapped read-only, paged_pool_info.base is NULL,
	 * and no GPU is used.  Batches are refused, and so is an embedded owner.
	 */
	uint32_t tables_only;
	/**
	 * Longest time that paged_client_open() waits for a daemon that is starting, milliseconds: while none listens
	 * at the runtime directory, or the one that does stops, dies or does not answer, it tries again.  Then it fails
	 * with the status of the last attempt.  0: it tries once.  An embedded owner ignores it.
	 */
	uint32_t wait_ms;
	/**
	 * 1, or the environment variable PAGED_CHECK=1: attention and publish fail with PAGED_ERR_INVALID if they use a
	 * token that was never appended in the layer, or in all layers, and the message names sequence, token and
	 * layer.  For tests of an engine; takes memory and time.  Sequences are checked that this client created or
	 * started, whose tokens it alone writes, by paged_append(); those that were adopted, forked, or planned by
	 * paged_batch_plan_device() are not.  Publishes are checked once this client has appended to the pool: before,
	 * another process of its session may be the one that appends.
	 */
	uint32_t check;
};

/**
 * paged_client_open - attach to the daemon at a runtime directory
 *
 * On PAGED_OK the daemon has answered over both of its channels, the control
 * socket and ZeroMQ.
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
 * Blocks: up to wait_ms + timeout_ms.
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
 * daemon.  The memory is private.  On host it is allocated on first touch, in
 * transparent huge pages where the system allows them; on cuda it is allocated
 * at once.
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
 * Blocks: up to timeout_ms, until the daemon has confirmed.  If the session has
 * ended and has no other member, its pages are free then.  If it has other
 * members, the pages stay in quarantine until these have left.
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

/**
 * paged_client_shortage - how much the calling thread's last failed call on this client lacked, after PAGED_ERR_FULL or
 * PAGED_ERR_QUOTA
 *
 * Of every call that takes pages or slots: create, reserve, start, fork, a plan that reserves, adopt, hold.  What a
 * program does next is decided by these numbers:
 *
 *   pages_missing <= n_own    preempt own sequences that have so many pages together, then repeat the call
 *   n_others, n_quarantined   others have pages that will become free: paged_pool_wait_free() for n_requested
 *   neither                   the request is larger than what the pool, or the tenant's limit, has: give up
 *
 * Counts n_own and n_others in shared memory, which takes as long as to read the page tables of the session's
 * sequences.  Sends no request and never waits for the owner.
 *
 * @param[out] shortage  filled up to its struct_size
 * @retval PAGED_ERR_NOENT  that call did not fail for want of pages or slots, or none has failed
 */
enum paged_status paged_client_shortage(struct paged_client *client, struct paged_shortage *shortage);

/** paged_status_name - "PAGED_ERR_FULL" and so on; never NULL */
const char *paged_status_name(enum paged_status status);

/** paged_client_session - id of the session that owns this client's sequences; 0: an observer, or the open failed */
uint32_t paged_client_session(const struct paged_client *client);

/**
 * paged_client_join_token - secret by which another process joins this session
 *
 * A bearer token: pass it through a pipe or the environment, not on a command
 * line.  Only the first member has one; for all other clients it is "".  The
 * token can be used until the session ends; the string is valid until the client
 * is closed.
 */
const char *paged_client_join_token(const struct paged_client *client);

/**
 * paged_client_fd - becomes readable when paged_client_dispatch() has something to report
 *
 * For poll(2) and epoll(7).  The client owns the descriptor; do not close it.
 * Other calls may read a message first, and the descriptor is not readable
 * then: also call paged_client_dispatch() from time to time.
 * -1 for an embedded client.
 */
int paged_client_fd(const struct paged_client *client);

/**
 * paged_client_dispatch - process pending messages of the daemon; never waits for it
 *
 * @retval PAGED_OK            the daemon and the session are alive
 * @retval PAGED_ERR_STOPPING  the daemon stops soon, or the session is drained and gets no new sequences, as the
 *                             message says: finish the sequences, or give a drained session's away, then close
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
 * One array in the pages: K, V, or the scales of one of them.  The dim elements of
 * one token and head are contiguous, at base + offset + layer * layer_stride +
 * page * page_stride + head * head_stride + token * token_stride.  Offsets and
 * strides count bytes; `token` counts within the page.
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
	uint32_t number;    /* PAGED_SEQ_POOL() of the pool's sequences */
	uint32_t publishes; /* 1: sequences can be published (paged_sharing.h) */
	/** "name@revision", as pagedd.conf(5) says; "": not stated.  Valid until the pool is closed. */
	const char *model;
};

/**
 * paged_pool_open - map a pool's pages and page tables
 *
 * @param[out] pool_p  written on PAGED_OK only; caller closes it with paged_pool_close()
 * @retval PAGED_ERR_NOENT    no pool of this name; the message lists the pools
 * @retval PAGED_ERR_PERM     the pool's allow-list refuses this uid
 * @retval PAGED_ERR_BACKEND  mapping the memory failed
 * @retval PAGED_ERR_SYSTEM   this process has no room for the pool's two descriptors (RLIMIT_NOFILE)
 *
 * Blocks: up to timeout_ms.
 */
enum paged_status paged_pool_open(struct paged_client *client, const char *name, struct paged_pool **pool_p);

/** paged_pool_close - unmap the pool; destroys its batches, mods and block masks; takes NULL */
void paged_pool_close(struct paged_pool *pool);

/** paged_pool_get_info - fill info up to its struct_size */
enum paged_status paged_pool_get_info(const struct paged_pool *pool, struct paged_pool_info *info);

/** Pages of a pool by state.  free, referenced, cached and quarantined add up to n_pages. */
struct paged_pool_counts {
	size_t struct_size;
	uint32_t n_pages;
	uint32_t n_free;
	uint32_t n_referenced;  /* by sequences */
	uint32_t n_quarantined; /* of ended sessions, whose processes may still write to them */
	uint32_t n_cached;      /* published, and in no sequence: a reserve may evict them (paged_sharing.h) */
	uint32_t n_pinned;      /* published pages that are pinned, whatever their state */
};

/**
 * paged_pool_get_counts - page counts from shared memory, without a request; fills counts up to its struct_size
 *
 * @retval PAGED_ERR_AGAIN  the owner changed the counts during every attempt to read them
 * @retval PAGED_ERR_GONE   the daemon died, or ended this session
 */
enum paged_status paged_pool_get_counts(struct paged_pool *pool, struct paged_pool_counts *counts);

/** What has happened in a pool since it was created.  A hold counts as a sequence. */
struct paged_pool_totals {
	size_t struct_size;
	uint64_t n_created;       /* sequences */
	uint64_t n_ended;         /* sequences */
	uint64_t n_forked;        /* of those created, children of forks */
	uint64_t n_given;         /* sequences given away; each is adopted, cancelled, expired, or still in a ticket */
	uint64_t n_adopted;       /* sequences */
	uint64_t n_cancelled;     /* sequences returned because their ticket was cancelled */
	uint64_t n_expired;       /* sequences returned because their ticket expired */
	uint64_t n_starts;        /* sequences started with a prefix to look for */
	uint64_t n_tokens_asked;  /* tokens of these prefixes */
	uint64_t n_tokens_found;  /* of these, tokens that the sequences share */
	uint64_t n_taken;         /* pages that sequences took from the free list */
	uint64_t n_trimmed;       /* page table entries that trims removed */
	uint64_t n_published;     /* pages */
	uint64_t n_evicted;       /* published pages that were freed because their memory was needed */
	uint64_t n_orphaned;      /* published pages that were freed because the page before them in their prefix was */
	uint32_t n_sequences;     /* now */
	uint32_t peak_sequences;  /* the largest n_sequences */
	uint32_t peak_referenced; /* the largest number of referenced pages */
	uint32_t reserved;
	/* Bytes of page tables; 0 if an older owner does not count them. */
	uint64_t table_used;        /* that sequences need */
	uint64_t table_populated;   /* that take memory: at least as many, as small remainders are kept */
	uint64_t table_limit;       /* the most of these: a request that needs more fails with PAGED_ERR_FULL */
	uint64_t n_displaced;       /* published pages that lost their place in a full bucket of the index */
	uint64_t n_stopped_removed; /* publishes that ended with PAGED_PUBLISH_REMOVED (paged_sharing.h) */
	uint64_t n_stopped_trimmed; /* with PAGED_PUBLISH_TRIMMED */
	uint64_t n_stopped_other;   /* with PAGED_PUBLISH_OTHER */
	uint64_t n_stopped_bucket;  /* with PAGED_PUBLISH_BUCKET */
};

/**
 * paged_pool_get_totals - totals from shared memory, without a request; fills totals up to its struct_size
 *
 * Each number is exact; they are read one after the other, so that two of them may differ by what happened in between.
 * The numbers of a daemon that does not count them are 0.
 *
 * @retval PAGED_ERR_GONE  the daemon died, or ended this session
 */
enum paged_status paged_pool_get_totals(struct paged_pool *pool, struct paged_pool_totals *totals);

/**
 * paged_pool_wait_free - sleep until n_pages pages are free or cached, or timeout_ms have passed; sends no request
 *
 * PAGED_OK is a hint: another session may take the pages first.  Reserve, and
 * wait again on PAGED_ERR_FULL.
 *
 * @retval PAGED_ERR_TIMEOUT  fewer pages are free or cached after timeout_ms
 * @retval PAGED_ERR_LIMIT    the pool has fewer than n_pages pages in all
 * @retval PAGED_ERR_GONE     the daemon died, or ended this session; noticed within 0.1 s
 *
 * Threads: any; other calls on the client proceed meanwhile.
 */
enum paged_status paged_pool_wait_free(struct paged_pool *pool, uint32_t n_pages, uint32_t timeout_ms);

/* --------------------------------------------------------------- sequences */

/*
 * Each call that creates, reserves, truncates or erases takes an array of 1 to
 * PAGED_MAX_REQUEST_SEQS elements, of any pools of the client, and sends one
 * request, which is all or nothing.  Naming a sequence twice in one request is
 * PAGED_ERR_INVALID.  An id contains the number
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
	 * Shown by pagedctl; copied.  UTF-8 without control characters and
	 * invisible ones (those that reorder or join others, or take no room),
	 * at most PAGED_MAX_TAG bytes, and PAGED_MAX_REQUEST_TAGS bytes in one request.
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
 * @retval PAGED_ERR_QUOTA  the session's tenant may not have so many pages; none was created
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
 * A session of a tenant (pagedd.conf(5)) gets for n_ahead no more than the tenant's limit leaves.
 *
 * @retval PAGED_ERR_FULL   too few free pages for the n_tokens of all items; none was taken
 * @retval PAGED_ERR_QUOTA  the session's tenant may not have so many pages; none was taken.  The message names tenant,
 *                          pool, limit, and what is charged and requested
 * @retval PAGED_ERR_LIMIT  n_tokens exceeds the pool's max_length
 */
enum paged_status paged_seq_reserve(struct paged_client *client, size_t n, const struct paged_seq_item *items);

/**
 * paged_seq_truncate - keep n_tokens tokens of each sequence and free the whole pages past them
 *
 * The sequences stay alive, also with n_tokens 0.  If n_tokens ends inside a page, the page stays.  Its tokens
 * past n_tokens are to be written again, so plans made before are stale, and publishes that were sent before and
 * are not handled yet are dropped.
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
	uint32_t writable_from; /* paged_append() refuses tokens before it: they are shared or published */
	uint32_t n_pages;
	/* Changes when page table entries are replaced or removed, or a truncate ends inside a page; not by growth. */
	uint64_t version;
	uint32_t published; /* tokens that other sequences can share (paged_sharing.h) */
	uint32_t n_trimmed; /* of n_pages, those at the beginning that were given back (paged_seq_trim()) */
	uint32_t frozen;    /* 1: given away (paged_sharing.h): it can be read only, and writable_from is UINT32_MAX */
	uint32_t hold;      /* 1: of paged_pages_hold(): it can be erased only, and writable_from is UINT32_MAX */
	uint32_t publish_end; /* enum paged_publish_end: why not all of the last publish is published */
	uint32_t reserved;
};

/**
 * paged_seq_read - read the page table of any live sequence from shared memory, without a request
 *
 * The sequence may belong to any session.
 *
 * @param[out] info    filled up to its struct_size; NULL: not wanted
 * @param[out] pages   the first min(n_max, n_pages) physical pages, in logical order, UINT32_MAX for those that were
 *                     given back; NULL with n_max 0
 * @retval PAGED_ERR_INVALID  the id belongs to another pool
 * @retval PAGED_ERR_STALE    no live sequence has this id
 * @retval PAGED_ERR_AGAIN    the owner was changing the page table during every attempt to read it
 * @retval PAGED_ERR_GONE     the daemon died, or ended this session
 */
enum paged_status paged_seq_read(struct paged_pool *pool, paged_seq_id seq, struct paged_seq_info *info,
				 uint32_t *pages, size_t n_max);

#ifdef __cplusplus
}
#endif
#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#include <paged_admin.h>
#include <paged_attention.h>
#include <paged_batch.h>
#include <paged_marks.h>
#include <paged_mods.h>
#include <paged_sharing.h>
#include <paged_watch.h>

#endif
