/* SPDX-License-Identifier: Apache-2.0 */
/**
 * paged_types.h - types that the API, messages and shared memory have in common
 *
 * Installed with pagedclient.h, which includes it; programs include
 * pagedclient.h alone.  The numbers below are part of the protocol and of the
 * layout of shared memory: numbers are added, never reused.
 */
#ifndef PAGED_TYPES_H
#define PAGED_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** "Retry" says whether the same call may succeed later, and after what. */
enum paged_status {
	PAGED_OK = 0,
	/** An argument is outside what the call documents.  Retry: no. */
	PAGED_ERR_INVALID = 1,
	/** This process has no memory left.  Retry: after memory was freed. */
	PAGED_ERR_NOMEM = 2,
	/** There is no object of that name or id.  Retry: no. */
	PAGED_ERR_NOENT = 3,
	/** The object belongs to another session, or policy forbids the call.  Retry: no. */
	PAGED_ERR_PERM = 4,
	/**
	 * Not enough free pages or sequence slots; nothing was taken.  Retry: after own sequences gave pages back, or
	 * paged_pool_wait_free(); paged_client_shortage() has the numbers.
	 */
	PAGED_ERR_FULL = 5,
	/** A length or position exceeds the capacity that is reserved for it.  Retry: after paged_seq_reserve(). */
	PAGED_ERR_CAPACITY = 6,
	/** A count or length exceeds a limit of the pool or the library.  Retry: no. */
	PAGED_ERR_LIMIT = 7,
	/**
	 * The sequence has ended, or page table entries that a plan or mask used have been replaced or removed.  Retry:
	 * after a new plan, mask or search; with a sequence that has ended, no.
	 */
	PAGED_ERR_STALE = 8,
	/** An index is out of bounds: of a page, a position, an array element, a row.  Retry: no. */
	PAGED_ERR_RANGE = 9,
	/**
	 * The daemon has died, or has ended this client's session.  Retry: not with this client: close it, open a new
	 * one (paged_client_params.wait_ms) and compute the sequences again.
	 */
	PAGED_ERR_GONE = 10,
	/** A page table is being changed, or an object is busy.  Retry: yes, at once. */
	PAGED_ERR_AGAIN = 11,
	/**
	 * No reply in time; the outcome is unknown.  Retry: a reserve, truncate or trim, being absolute, yes; a create,
	 * start or fork, whose late sequences the library erases, too.
	 */
	PAGED_ERR_TIMEOUT = 12,
	/** The object belongs to the parent process of a fork().  Retry: no. */
	PAGED_ERR_FORK = 13,
	/** This build, machine or back end does not support the call.  Retry: no. */
	PAGED_ERR_UNSUPPORTED = 14,
	/** The two sides have different major versions.  Retry: no. */
	PAGED_ERR_VERSION = 15,
	/** The memory back end failed (mmap, CUDA).  Retry: no. */
	PAGED_ERR_BACKEND = 16,
	/** A system call failed.  Retry: after what the message names was mended. */
	PAGED_ERR_SYSTEM = 17,
	/** A message is malformed or unexpected.  Retry: no. */
	PAGED_ERR_PROTOCOL = 18,
	/** No daemon listens at the runtime directory.  Retry: yes, or open with wait_ms. */
	PAGED_ERR_NO_DAEMON = 19,
	/**
	 * The daemon is stopping and accepts no new work, or the session is drained and gets no new sequences.  Retry:
	 * not with this client: finish its sequences, close it, and open a new one.
	 */
	PAGED_ERR_STOPPING = 20,
	/** The page accounting of a pool is inconsistent.  Retry: no. */
	PAGED_ERR_CORRUPT = 21,
	/**
	 * The session's tenant (pagedd.conf(5)) may have no more pages of the pool, whether or not pages are free; see
	 * PAGED_ERR_FULL for a pool without free pages.  Retry: after own sequences gave pages back.
	 */
	PAGED_ERR_QUOTA = 22
};

/**
 * Element types.  Pools: F32, F16, BF16, E4M3, E5M2, I8.  Tensors: F32, F16,
 * BF16.  Arrays that mods read: F32, F16, BF16, I32, U8, I64.
 */
enum paged_dtype {
	PAGED_DTYPE_NONE = 0,
	PAGED_F32 = 1,
	PAGED_F16 = 2,
	PAGED_BF16 = 3,
	/** OCP FP8 with 4 exponent bits: largest number 448, no infinity. */
	PAGED_E4M3 = 4,
	/** OCP FP8 with 5 exponent bits: largest number 57344. */
	PAGED_E5M2 = 5,
	PAGED_I32 = 16,
	PAGED_U8 = 17,
	/** -127 to 127, with an f32 scale for each token and head. */
	PAGED_I8 = 18,
	/** Arrays only, which the library copies as I32; see struct paged_array. */
	PAGED_I64 = 19
};

/** How the last publish of a sequence ended (paged_sharing.h). */
enum paged_publish_end {
	/** All that it asked for is published; or there was none. */
	PAGED_PUBLISH_DONE = 0,
	/** A page before it is no longer published: the next publish goes on from there. */
	PAGED_PUBLISH_REMOVED = 1,
	/** The next page was given back by a trim: the sequence can publish nothing more. */
	PAGED_PUBLISH_TRIMMED = 2,
	/** The next page is published already, as part of another prefix. */
	PAGED_PUBLISH_OTHER = 3,
	/** Eight pages of the prefix itself fill the bucket of the index that the next one belongs in. */
	PAGED_PUBLISH_BUCKET = 4
};

#pragma GCC visibility push(default)
/** paged_dtype_name - "f32", "bf16", "e4m3" and so on, as in pagedd.conf(5); "?" for any other number; never NULL */
const char *paged_dtype_name(enum paged_dtype dtype);
#pragma GCC visibility pop

/**
 * Id of a sequence, valid while one daemon runs: generation in the high 32 bits,
 * number of its pool in the next 8, slot in the low 24.  A slot that is reused
 * has another generation.  Printed as "slot.generation" where the pool is named.
 * 0 is never a sequence.
 */
typedef uint64_t paged_seq_id;

#define PAGED_SEQ(generation, pool, slot) ((paged_seq_id)(generation) << 32 | (uint32_t)(pool) << 24 | (uint32_t)(slot))
#define PAGED_SEQ_SLOT(id) ((uint32_t)(id)&0xffffffu)
#define PAGED_SEQ_POOL(id) ((uint32_t)(id) >> 24)
#define PAGED_SEQ_GENERATION(id) ((uint32_t)((uint64_t)(id) >> 32))

/** One sequence of a reserve or truncate request. */
struct paged_seq_item {
	paged_seq_id seq;
	/** paged_seq_reserve(): capacity to have.  paged_seq_truncate(): tokens to keep. */
	uint32_t n_tokens;
	/** paged_seq_reserve(): tokens past n_tokens, as far as the pool has spare pages.  Otherwise 0. */
	uint32_t n_ahead;
	uint32_t reserved[2]; /* 0 */
};

/**
 * What the owner lacked for a request that failed with PAGED_ERR_FULL or PAGED_ERR_QUOTA: paged_client_shortage().
 *
 * n_free, n_cached, n_own, n_others and n_quarantined count pages of the pool at the time of the request, n_own and
 * n_others at the time of paged_client_shortage().
 */
struct paged_shortage {
	size_t struct_size;
	/** Number of the pool (PAGED_SEQ_POOL() of its sequences). */
	uint32_t pool;
	/**
	 * After PAGED_ERR_FULL: if so many more pages become free or cached, the same request has enough.  After
	 * PAGED_ERR_QUOTA: if the tenant is charged so many fewer.
	 */
	uint32_t pages_missing;
	/** Slots of sequences, in the same way. */
	uint32_t slots_missing;
	/** Pages that the request asked for, beyond those that its sequences have or share. */
	uint32_t n_requested;
	uint32_t n_free;
	/** Cached pages that the request could evict: without those that it shares. */
	uint32_t n_cached;
	/** Pages that sequences of this session name and no others: to erase all of these makes them free or cached. */
	uint32_t n_own;
	/** Pages that a sequence of another session names. */
	uint32_t n_others;
	/** Pages of ended sessions whose processes have not ended yet. */
	uint32_t n_quarantined;
	/** Of n_free and n_cached, pages that unfinished requests of other sessions take. */
	uint32_t n_promised;
};

/** Most pools of a daemon or an embedded client, and most sequences of a pool; limited by the bits of an id. */
#define PAGED_MAX_POOLS 256u
#define PAGED_MAX_SLOTS (1u << 24)
/** Most sequences that one request may name. */
#define PAGED_MAX_REQUEST_SEQS 4096u
/** Most rows of a block mask for paged_block_mask_create_remote(). */
#define PAGED_MAX_MASK_ROWS 2048u
/** Most tokens in a page. */
#define PAGED_MAX_PAGE_SIZE 256u
/** Longest name of a pool or session, bytes without the terminating zero. */
#define PAGED_MAX_NAME 63u
/** Longest tag of a sequence, and most bytes of all tags of one request, both without the terminating zeros. */
#define PAGED_MAX_TAG 31u
#define PAGED_MAX_REQUEST_TAGS 8192u
/** Largest head dimension. */
#define PAGED_MAX_DIM 576u

/** Bytes of a salt, of an extra's digest, and of a key. */
#define PAGED_DIGEST_SIZE 32

/** Bytes of a ticket. */
#define PAGED_TICKET_SIZE 16
/** Who may adopt the sequences of a ticket, if not every session of the pool: one session, processes of one user. */
#define PAGED_GIVE_SESSION 1u
#define PAGED_GIVE_UID 2u
/** Most tickets of a session that are neither used nor expired. */
#define PAGED_MAX_TICKETS 1024u
/** Most pages of a hold. */
#define PAGED_MAX_HOLD_PAGES 5400u

#ifdef __cplusplus
}
#endif

#endif
