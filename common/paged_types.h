/* SPDX-License-Identifier: Apache-2.0 */
/**
 * paged_types.h - the few types that every part of paged speaks
 *
 * Installed beside pagedclient.h, which includes it; programs include
 * pagedclient.h alone.  The numbers below travel in messages and lie in
 * shared memory: they are never reused, only added to.
 */
#ifndef PAGED_TYPES_H
#define PAGED_TYPES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum paged_status {
	PAGED_OK = 0,
	/** An argument is outside what the call documents. */
	PAGED_ERR_INVALID = 1,
	/** This process has no memory left. */
	PAGED_ERR_NOMEM = 2,
	/** No pool, session or sequence of that name or id. */
	PAGED_ERR_NOENT = 3,
	/** The object is another session's, or policy forbids the call. */
	PAGED_ERR_PERM = 4,
	/** Not enough free pages or sequence slots; nothing was taken. */
	PAGED_ERR_FULL = 5,
	/** A length exceeds the capacity that was reserved for it. */
	PAGED_ERR_CAPACITY = 6,
	/** A count or length exceeds a limit of the pool or the library. */
	PAGED_ERR_LIMIT = 7,
	/** The id names an ended sequence, or table entries that a plan used were replaced or removed since. */
	PAGED_ERR_STALE = 8,
	/** An index read from data (a page, an array) is out of bounds. */
	PAGED_ERR_RANGE = 9,
	/** The daemon, or this client's session in it, has ended; close the client and open a new one. */
	PAGED_ERR_GONE = 10,
	/** A row is being changed, or an object is busy; call again. */
	PAGED_ERR_AGAIN = 11,
	/** No answer in time.  The outcome is unknown; absolute requests may be repeated. */
	PAGED_ERR_TIMEOUT = 12,
	/** The object belongs to the parent process of a fork(). */
	PAGED_ERR_FORK = 13,
	/** This build, machine or back end cannot do that. */
	PAGED_ERR_UNSUPPORTED = 14,
	/** The two sides speak different major versions. */
	PAGED_ERR_VERSION = 15,
	/** The memory back end failed (mmap, CUDA). */
	PAGED_ERR_BACKEND = 16,
	/** A system call failed. */
	PAGED_ERR_SYSTEM = 17,
	/** A message could not be understood. */
	PAGED_ERR_PROTOCOL = 18,
	/** Nobody answers at the runtime directory. */
	PAGED_ERR_NO_DAEMON = 19,
	/** The daemon is stopping and takes no new work. */
	PAGED_ERR_STOPPING = 20,
	/** A check of the pool's books failed. */
	PAGED_ERR_CORRUPT = 21
};

/**
 * Element types: of a pool's planes all but I32, U8 and I64, of tensors F32,
 * F16 and BF16, of arrays that mods read those three, I32, U8 and I64.
 */
enum paged_dtype {
	PAGED_DTYPE_NONE = 0,
	PAGED_F32 = 1,
	PAGED_F16 = 2,
	PAGED_BF16 = 3,
	/** OCP FP8 with 4 bits of exponent: at most 448, no infinity. */
	PAGED_E4M3 = 4,
	/** OCP FP8 with 5 bits of exponent: at most 57344. */
	PAGED_E5M2 = 5,
	PAGED_I32 = 16,
	PAGED_U8 = 17,
	/** -127 to 127, with a scale for each token and head. */
	PAGED_I8 = 18,
	/** Of arrays that the library copies as I32; see struct paged_array. */
	PAGED_I64 = 19
};

/**
 * A sequence in one life of the daemon: its generation in the high 32 bits,
 * the number of its pool in the next 8, its slot in the low 24.  Printed as
 * "slot.generation" where the pool is named.  0 is never a sequence.
 */
typedef uint64_t paged_seq_id;

#define PAGED_SEQ(generation, pool, slot) ((paged_seq_id)(generation) << 32 | (uint32_t)(pool) << 24 | (uint32_t)(slot))
#define PAGED_SEQ_SLOT(id) ((uint32_t)(id)&0xffffffu)
#define PAGED_SEQ_POOL(id) ((uint32_t)(id) >> 24)
#define PAGED_SEQ_GENERATION(id) ((uint32_t)((uint64_t)(id) >> 32))

/** A sequence of a request, and tokens: to have room for, or to keep. */
struct paged_seq_item {
	paged_seq_id seq;
	uint32_t n_tokens;
	/** Of a reserve: tokens past n_tokens, as far as the pool has pages to spare (paged_seq_reserve()).  Else 0. */
	uint32_t n_ahead;
	uint32_t reserved[2]; /* 0 */
};

/** Most pools of a daemon or an embedded client, and most sequences of a pool: what an id has bits for. */
#define PAGED_MAX_POOLS 256u
#define PAGED_MAX_SLOTS (1u << 24)
/** Most sequences that one request may name. */
#define PAGED_MAX_REQUEST_SEQS 4096u
/** Most rows of a block mask that the owner builds. */
#define PAGED_MAX_MASK_ROWS 2048u
/** Most tokens in a page. */
#define PAGED_MAX_PAGE_SIZE 256u
/** Longest pool name, without the terminating zero. */
#define PAGED_MAX_NAME 63u
/** Longest tag of a sequence, without the terminating zero, and of all tags of one request together. */
#define PAGED_MAX_TAG 31u
#define PAGED_MAX_REQUEST_TAGS 8192u
/** Largest head dimension. */
#define PAGED_MAX_DIM 576u

#ifdef __cplusplus
}
#endif

#endif
