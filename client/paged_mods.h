/* SPDX-License-Identifier: Apache-2.0 */
/**
 * paged_mods.h - mask mods, score mods and block masks
 *
 * Part of pagedclient.h, which includes it; programs include that alone.
 *
 * A mod is an expression in C's syntax that says which keys a query row sees
 * (a mask mod) or what becomes of a score (a score mod), as in PyTorch's
 * flex_attention:
 *
 *     kv_idx <= q_idx && q_idx - kv_idx < window
 *     doc[q_idx] == doc[kv_idx]
 *     cap * tanh(score / cap)
 *     score + slope[h] * (kv_idx - q_idx)
 *
 * Names are score, b (the row of the plan), h (the query head), q_idx and
 * kv_idx (positions in the sequence), and the parameters and arrays that
 * paged_mod_parse() was told of.  libpagedclient(3) has the whole language.
 *
 * A block mask lists, for every query block, the KV blocks of which every
 * element is seen (full) and those of which some are (partial).  Attention
 * visits no others, and asks the mask mod in partial ones alone.  It is
 * optional: without one, attention finds out by interval analysis which keys
 * a mask mod cannot see.
 *
 * Life: mods and block masks belong to a pool, a struct paged_mods to a batch;
 * what is still there when its pool or batch is closed is freed with it.
 * Mods and block masks never change: any number of threads may use them.  A
 * struct paged_mods is used by the thread that uses its batch.
 */
#ifndef PAGED_MODS_H
#define PAGED_MODS_H

#include <pagedclient.h>

#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif
#ifdef __cplusplus
extern "C" {
#endif

struct paged_mod;
struct paged_block_mask;

/* -------------------------------------------------------------------- mods */

enum paged_mod_kind {
	PAGED_MOD_MASK = 0, /* a condition: true is seen */
	PAGED_MOD_SCORE = 1 /* a number: the new score */
};

/** Most indexes of an array. */
#define PAGED_MAX_INDEXES 4u

/**
 * A captured array, or with n_dims 0 a parameter.
 * Plain data: fill it with designated initialisers.
 */
struct paged_array {
	/** A letter or _, then letters, digits, _; at most 31. */
	const char *name;
	/** Element [0, 0, ...]; a parameter's value.  Not read by paged_mod_parse(). */
	const void *data;
	/**
	 * enum paged_dtype: any of tensors, PAGED_I32, PAGED_U8 and PAGED_I64.
	 * To a mod PAGED_I64 is PAGED_I32: a name may be one when it is parsed
	 * and the other when it is bound.  Values are copied and checked by each
	 * call that reads them; one outside 32 bits is PAGED_ERR_RANGE, with
	 * array, index and value.
	 */
	uint32_t dtype;
	uint32_t n_dims;
	/** Elements. */
	uint32_t extents[PAGED_MAX_INDEXES];
	/** Elements, of any sign; all 0: row-major and dense. */
	int64_t strides[PAGED_MAX_INDEXES];
	uint64_t reserved[3];
};

/**
 * paged_mod_parse - check a text and make a mod of it
 *
 * @param[in] text   zero-terminated, at most 4096 bytes
 * @param[in] names  n_names parameters and arrays that the text may name;
 *                   name, dtype and n_dims count here.  It need not use all
 * @retval PAGED_ERR_INVALID  no such expression: the sentence has line, column,
 *                            the line with a caret, what was expected and the
 *                            nearest known name
 * @retval PAGED_ERR_LIMIT    too long, too deep, too many operations or names
 *
 * A new value, array or extent needs no new mod.
 */
enum paged_status paged_mod_parse(struct paged_pool *pool, enum paged_mod_kind kind, const char *text, size_t n_names,
				  const struct paged_array *names, struct paged_mod **mod_p);

/** paged_mod_destroy - when no struct paged_mods uses it any more; takes NULL */
void paged_mod_destroy(struct paged_mod *mod);

/** paged_mod_text - the canonical text: equal for texts that mean the same operations; valid as long as the mod */
const char *paged_mod_text(const struct paged_mod *mod);

/** One element of the matrix of scores. */
struct paged_mod_point {
	double score; /* a score mod's alone */
	int32_t b, h, q_idx, kv_idx;
	uint32_t reserved[2];
};

/**
 * paged_mod_evaluate - what a mod says of one element, in float64
 *
 * To look at a mod and to test one: what attention evaluates over tiles, in
 * f32, is held to this.
 *
 * @param[in]  arrays   as for paged_mods_bind(); read within the call
 * @param[out] value_p  a score mod's new score; of a mask mod 1 (seen) or 0
 * @retval PAGED_ERR_RANGE  an index out of bounds, with array, index and bounds
 * and for names and arrays what paged_mods_bind() says.
 */
enum paged_status paged_mod_evaluate(const struct paged_mod *mod, size_t n_arrays, const struct paged_array *arrays,
				     const struct paged_mod_point *point, double *value_p);

/** What a mod's result may depend on. */
enum paged_mod_input { PAGED_ON_SCORE = 1, PAGED_ON_B = 2, PAGED_ON_H = 4, PAGED_ON_Q_IDX = 8, PAGED_ON_KV_IDX = 16 };

/**
 * paged_mod_inputs - a set of enum paged_mod_input
 *
 * Without PAGED_ON_H one head of a block mask stands for all, without
 * PAGED_ON_B one row for all rows of the same lengths.
 */
uint32_t paged_mod_inputs(const struct paged_mod *mod);

/**
 * A ready-made mod, which a text may call by name: causal, sliding_window(4096), soft_cap(30.0), ...
 *
 * document has one array doc for all rows of a batch.  ragged_document has the
 * documents of all rows in doc, those of row b from start[b] on: where
 * PAGED_ROW_B numbers the rows, start reaches the largest b.
 */
struct paged_named_mod {
	const char *name;
	const char *arguments; /* "window"; "" for none.  A call without them uses parameters of these names */
	const char *text;
};

/** paged_mod_named - the index-th ready-made mod; NULL past the last */
const struct paged_named_mod *paged_mod_named(uint32_t index);

struct paged_mods_params {
	size_t struct_size;
	/** Borrowed until paged_mods_destroy(); NULL: none. */
	const struct paged_mod *mask;
	const struct paged_mod *score;
};

/**
 * paged_mods_create - memory to run a mask mod, a score mod or both in a batch
 *
 * One pair for all layers, or as many as a model has kinds of layers.  Mods
 * that name nothing are ready to use; others want paged_mods_bind() first.
 * Without either mod it is what a block mask is bound to.
 *
 * @retval PAGED_ERR_INVALID  a score mod for a mask, or the reverse; a mod of another pool
 * @retval PAGED_ERR_NOMEM
 */
enum paged_status paged_mods_create(struct paged_batch *batch, const struct paged_mods_params *params,
				    struct paged_mods **mods_p);

/**
 * paged_mods_prepare - is the code there that attention will run?
 *
 * On a GPU mods are compiled code.  Ready-made ones are built into the library
 * for heads of up to 128 in f16 and bf16: sliding_window, prefix_lm(prefix[b]),
 * document, alibi, soft_cap, and sliding_window with soft_cap.  Their
 * parameters must be parameters, i32 but for cap, which is f32; a number in the
 * text makes another mod.  The others are compiled by NVRTC, which comes
 * with the CUDA toolkit and is loaded when the first is wanted (PAGED_NVRTC
 * names another file), on a thread of the client's, from paged_mods_create() on
 * for queries of the pool's dtype (of BF16 where it is one byte), from the first
 * call on for others; code
 * that is on disk (PAGED_CACHE_DIR) is not compiled again.  Attention waits for
 * what is not there, so a result never depends on when a compilation ended.
 * On the host mods are interpreted: always PAGED_OK.
 *
 * @param[in] q           dtype of the queries to come
 * @param[in] timeout_ms  0: look, and return; negative: wait without end
 * @retval PAGED_OK               attention allocates nothing any more and does not wait
 * @retval PAGED_ERR_AGAIN        not yet (timeout_ms 0)
 * @retval PAGED_ERR_TIMEOUT      not yet
 * @retval PAGED_ERR_UNSUPPORTED  no NVRTC here (the sentence says what was tried), or none for this device
 * @retval PAGED_ERR_BACKEND      NVRTC or the driver refused it
 */
enum paged_status paged_mods_prepare(struct paged_mods *mods, enum paged_dtype q, int timeout_ms);

/**
 * paged_mods_destroy - takes NULL
 *
 * What paged_batch_validate() is to say of indexes out of bounds stays, unless
 * the stream is being captured, when nobody can wait for it.  On a GPU nothing
 * on the stream uses the mods any more.
 */
void paged_mods_destroy(struct paged_mods *mods);

/**
 * paged_mods_bind - give the names their values and arrays, and say which blocks to visit
 *
 * Arrays are read where they lie: the caller leaves them unchanged until the
 * attention that uses them is done, and binds again when values, contents or
 * extents are others.  Parameters' values, and arrays of PAGED_I64, are copied.
 * On a pool in a GPU's memory arrays' data are device addresses, parameters' the
 * host's, and what is bound serves attention that is launched after it.
 *
 * @param[in] arrays  by name, in any order; those that no mod uses are ignored
 * @param[in] blocks  borrowed until the next bind; NULL: none.  It has the
 *                    plan's rows or one for all, the query heads or one for
 *                    all, and lengths that reach the plan's (lengths of the
 *                    plan bound what it lists).  Its first query block begins
 *                    at the row's first query row
 * @retval PAGED_ERR_NOENT    a name that a mod uses is not there
 * @retval PAGED_ERR_INVALID  another dtype or rank than at paged_mod_parse(), no data, a name twice;
 *                            a block mask of another pool
 * @retval PAGED_ERR_LIMIT    an array reaches over more than 2^62 bytes
 * @retval PAGED_ERR_RANGE    a value of PAGED_I64 outside 32 bits
 * @retval PAGED_ERR_UNSUPPORTED  an array of PAGED_I64 in a GPU's memory
 * @retval PAGED_ERR_NOMEM
 *
 * On an error the earlier binding stays, of both mods and the blocks.
 * Allocates nothing, but at the first bind without blocks, when an array is
 * larger than any bound to this name before, and for arrays of PAGED_I64.
 * Whether the blocks fit the plan is judged by paged_attention().
 */
enum paged_status paged_mods_bind(struct paged_mods *mods, size_t n_arrays, const struct paged_array *arrays,
				  const struct paged_block_mask *blocks);

/* ------------------------------------------------------------- block masks */

struct paged_block_mask_params {
	size_t struct_size;
	/**
	 * Of each row: q_len, kv_len and q_base, as in a plan (q_base is kv_len
	 * - q_len without PAGED_ROW_Q_BASE).  seq or pages count in a physical
	 * mask alone.  One row may stand for all.
	 */
	const struct paged_batch_row *rows;
	size_t n_rows;
	/** 0: one stands for all; a mask mod that depends on h (paged_mod_inputs()) wants the number. */
	uint32_t n_heads;
	/**
	 * Query rows.  0: 128.  A query block that q_len cuts has no full
	 * blocks, as in PyTorch: to decode, say q_len.
	 */
	uint32_t q_block;
	/** Tokens.  0: 128; in a physical mask the page size. */
	uint32_t kv_block;
	/** 1: name blocks by where they lie in the pool; see paged_block_mask_to_physical(). */
	uint32_t physical;
	/** Most memory of the mask, bytes.  0: 2^36. */
	uint64_t max_bytes;
};

/**
 * paged_block_mask_create - the block mask of a mask mod
 *
 * The cost goes with the blocks at the borders of what is seen, not with
 * elements.  Exactly what evaluating every element would give.
 *
 * @param[in] arrays  as for paged_mods_bind(); read within the call
 * @retval PAGED_ERR_INVALID  a score mod; it depends on h and n_heads is 0
 * @retval PAGED_ERR_LIMIT    past max_bytes, or a q_idx or kv_idx past 2^31 - 1
 * @retval PAGED_ERR_RANGE    an index out of bounds, with array, index and bounds.
 *                            Not told of a block that is partial whatever is read
 * @retval PAGED_ERR_NOENT    a name that the mod uses is not there
 * and for a physical one what paged_block_mask_to_physical() says.
 */
enum paged_status paged_block_mask_create(struct paged_pool *pool, const struct paged_block_mask_params *params,
					  const struct paged_mod *mod, size_t n_arrays,
					  const struct paged_array *arrays, struct paged_block_mask **mask_p);

/**
 * paged_block_mask_serve - the same mask, built by the owner
 *
 * The daemon builds the logical mask, on a thread of its own, in parts of
 * 64 KiB, a request each; a physical one is made of it here, as
 * paged_block_mask_to_physical() does.  At most PAGED_MAX_MASK_ROWS rows.
 *
 * @param[in] arrays  parameters (n_dims 0) alone; arrays are those of
 *                    paged_array_upload()
 * @retval PAGED_ERR_NOENT    an array was not uploaded
 * @retval PAGED_ERR_INVALID  it was, with another dtype or rank than at paged_mod_parse()
 * @retval PAGED_ERR_LIMIT    larger or slower than the daemon builds for
 *                            others: build it with paged_block_mask_create()
 * @retval PAGED_ERR_AGAIN    too many builds wait; or arrays that the mask
 *                            names were replaced whenever it was built
 * @retval PAGED_ERR_PERM     an observer asks
 * and what paged_block_mask_create() says.
 */
enum paged_status paged_block_mask_serve(struct paged_pool *pool, const struct paged_block_mask_params *params,
					 const struct paged_mod *mod, size_t n_arrays, const struct paged_array *arrays,
					 struct paged_block_mask **mask_p);

/**
 * paged_array_upload - keep a copy of an array with the owner, for paged_block_mask_serve()
 *
 * Belongs to the session, all members use it; replaces one of the same name
 * once it is there as a whole.  Ends with the session.  PAGED_I64 becomes
 * PAGED_I32 on the way.
 * @retval PAGED_ERR_RANGE  a value of PAGED_I64 outside 32 bits
 * @retval PAGED_ERR_LIMIT  past what the daemon keeps for a session; arrays for
 *                          paged_block_mask_create() have no such limit
 * @retval PAGED_ERR_AGAIN  another member uploads one of this name just now
 */
enum paged_status paged_array_upload(struct paged_client *client, const struct paged_array *array);

/** paged_array_drop - forget an uploaded array; PAGED_ERR_NOENT for none */
enum paged_status paged_array_drop(struct paged_client *client, const char *name);

enum paged_block_kind { PAGED_BLOCKS_PARTIAL = 0, PAGED_BLOCKS_FULL = 1 };

/**
 * Lists one after another: rows outermost, then heads, then query blocks.
 * Row r's lists begin at first_list[r] (first_list[n_rows] is the number of
 * all), list i of a kind is indices[kind][start[kind][i]] up to, not
 * including, indices[kind][start[kind][i + 1]].
 */
struct paged_block_lists {
	size_t struct_size;
	const uint64_t *first_list; /* [n_rows + 1] */
	const uint64_t *start[2];   /* [n_lists + 1] */
	const uint32_t *indices[2];
};

/**
 * paged_block_mask_from_lists - a mask from given lists, copied and checked
 *
 * A full block that a length cuts becomes partial.  Lists keep their order.
 *
 * @param[in] params  a logical mask's
 * @param[in] lists   first_list is not read (the rows' lengths say it);
 *                    start[kind] NULL: all lists of the kind are empty
 * @retval PAGED_ERR_INVALID  starts that descend, a block named twice in a query block
 * @retval PAGED_ERR_RANGE    a block at or past the row's KV blocks
 */
enum paged_status paged_block_mask_from_lists(struct paged_pool *pool, const struct paged_block_mask_params *params,
					      const struct paged_block_lists *lists, struct paged_block_mask **mask_p);

/**
 * PyTorch's arrays of equal rows: num_blocks [n_rows][n_heads][query blocks]
 * and indices [n_rows][n_heads][query blocks][width], by enum paged_block_kind:
 * kv_num_blocks, kv_indices and full_kv_num_blocks, full_kv_indices.  Entries
 * past a count are not read, and written as 0.
 */
struct paged_block_arrays {
	size_t struct_size;
	int32_t *num_blocks[2]; /* NULL: no lists of the kind */
	int32_t *indices[2];
	uint64_t width[2];
};

/** paged_block_mask_from_arrays - as paged_block_mask_from_lists(), from PyTorch's arrays */
enum paged_status paged_block_mask_from_arrays(struct paged_pool *pool, const struct paged_block_mask_params *params,
					       const struct paged_block_arrays *arrays,
					       struct paged_block_mask **mask_p);

/** paged_block_mask_from_dense - of a dense mask [row][head][q_len][kv_len], 0 or not, rows one after another */
enum paged_status paged_block_mask_from_dense(struct paged_pool *pool, const struct paged_block_mask_params *params,
					      const uint8_t *dense, struct paged_block_mask **mask_p);

/**
 * paged_block_mask_destroy - when no binding uses it any more; takes NULL
 *
 * Until it is closed, the pool keeps up to four arrays of such masks, 16 MiB
 * each at most, for masks that follow: a mask rebuilt in each step then costs
 * no page faults, whatever malloc() does.
 */
void paged_block_mask_destroy(struct paged_block_mask *mask);

/**
 * paged_block_mask_to_physical - name the same blocks by where they lie in the pool
 *
 * PyTorch's convert_logical_block_mask.  The KV block is the page, a divisor
 * of it, or a multiple, which is listed as its pages in order.  Index =
 * page * (page size / KV block) + part.  Lengths always apply: a full block
 * that holds a row's end becomes partial, blocks past it vanish.
 *
 * @param[in] rows  n_rows, as many as the mask has unless it has one; of each
 *                  seq or pages, and kv_len.  Any choice of sequences, repeats too
 * @retval PAGED_ERR_INVALID   a physical mask; numbers that do not match; page and KV block do not divide
 * @retval PAGED_ERR_CAPACITY  kv_len exceeds a row's capacity
 * @retval PAGED_ERR_STALE     an id names no live sequence
 * @retval PAGED_ERR_RANGE     an explicit page is outside the pool
 *
 * Attention takes a physical mask too: it knows the logical blocks that it
 * was made of.
 */
enum paged_status paged_block_mask_to_physical(const struct paged_block_mask *mask, size_t n_rows,
					       const struct paged_batch_row *rows, struct paged_block_mask **mask_p);

/**
 * paged_block_mask_to_logical - the way back
 *
 * The logical mask that a physical one was made of, over its rows and cut to
 * their lengths; it may have gone stale.
 */
enum paged_status paged_block_mask_to_logical(const struct paged_block_mask *mask, struct paged_block_mask **mask_p);

/**
 * paged_block_mask_validate - does a physical mask still say where blocks lie?
 *
 * Judged by its own rows: what other sequences do is no matter, and growth is
 * no change.  A logical mask says nothing that could be wrong.
 * @retval PAGED_ERR_STALE  entries that it used were replaced or removed since
 */
enum paged_status paged_block_mask_validate(const struct paged_block_mask *mask);

/** A part of a mask; a number of 0: all that follow. */
struct paged_block_mask_part {
	size_t struct_size;
	uint32_t first_row, n_rows;
	uint32_t first_head, n_heads;
	uint64_t first_q, n_q; /* query rows; first_q a multiple of the query block */
};

/** paged_block_mask_select - the part of a mask; query rows keep their q_idx */
enum paged_status paged_block_mask_select(const struct paged_block_mask *mask, const struct paged_block_mask_part *part,
					  struct paged_block_mask **mask_p);

/** paged_block_mask_crop - a logical mask cut to at most these lengths; full blocks that they cut become partial */
enum paged_status paged_block_mask_crop(const struct paged_block_mask *mask, uint32_t q_len, uint32_t kv_len,
					struct paged_block_mask **mask_p);

/**
 * paged_block_mask_transpose - of each KV block, the query blocks that see it (PyTorch's q_indices)
 *
 * The result names query blocks, so it is a logical mask, of a physical one too.
 */
enum paged_status paged_block_mask_transpose(const struct paged_block_mask *mask, struct paged_block_mask **mask_p);

struct paged_block_mask_info {
	size_t struct_size;
	uint32_t n_rows;
	uint32_t n_heads;
	uint32_t q_block;
	uint32_t kv_block;
	uint32_t physical;
	uint32_t reserved;
	uint64_t n_blocks; /* in lists, of both kinds */
	uint64_t n_lists;  /* of a kind */
	uint64_t bytes;    /* memory that it holds */
	double sparsity;   /* percent of blocks in no list */
};

/** paged_block_mask_get_info - fill the caller's struct as far as its struct_size goes */
enum paged_status paged_block_mask_get_info(const struct paged_block_mask *mask, struct paged_block_mask_info *info);

struct paged_block_mask_row {
	size_t struct_size;
	int64_t q_base;
	uint64_t q_len;
	uint64_t kv_len;  /* in a physical mask the pool's tokens */
	paged_seq_id seq; /* of a physical mask; 0: explicit pages */
	uint64_t version; /* of the sequence's entries, as in struct paged_seq_info */
};

/** paged_block_mask_get_row - PAGED_ERR_RANGE past the last row */
enum paged_status paged_block_mask_get_row(const struct paged_block_mask *mask, size_t row,
					   struct paged_block_mask_row *info);

/** paged_block_mask_lists - the mask's own lists; valid as long as the mask */
enum paged_status paged_block_mask_lists(const struct paged_block_mask *mask, struct paged_block_lists *lists);

/**
 * paged_block_mask_arrays - fill PyTorch's arrays, which the caller allocated
 *
 * @param[in,out] arrays  num_blocks[kind] NULL: not wanted.  With every array
 *                        NULL, only width is written: the longest list of each kind
 * @retval PAGED_ERR_INVALID  rows have unlike numbers of query blocks, or a width is too small
 */
enum paged_status paged_block_mask_arrays(const struct paged_block_mask *mask, struct paged_block_arrays *arrays);

/** paged_block_mask_dense - [row][head][query block][KV block], 1 for every block in a list, else 0 */
enum paged_status paged_block_mask_dense(const struct paged_block_mask *mask, uint8_t *dense);

/**
 * paged_block_mask_picture - as PyTorch prints a BlockMask
 *
 * @param[in]  rows, columns  characters down and across, 0: 20
 * @param[in]  limit          (row, head) pairs shown, 0: 4
 * @param[out] text_p         UTF-8, freed with paged_free()
 */
enum paged_status paged_block_mask_picture(const struct paged_block_mask *mask, uint32_t rows, uint32_t columns,
					   uint32_t limit, char **text_p);

#ifdef __cplusplus
}
#endif
#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#endif
