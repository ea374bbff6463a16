/* SPDX-License-Identifier: Apache-2.0 */
/**
 * paged_mods.h - mask mods, score mods and block masks
 *
 * Part of pagedclient.h, which includes it; programs include that alone.
 *
 * A mod is an expression in C syntax, as in PyTorch's flex_attention.  A mask mod
 * decides which keys a query row sees; a score mod changes a score:
 *
 *     kv_idx <= q_idx && q_idx - kv_idx < window
 *     doc[q_idx] == doc[kv_idx]
 *     cap * tanh(score / cap)
 *     score + slope[h] * (kv_idx - q_idx)
 *
 * The names are score, b (the row of the plan), h (the query head), q_idx and
 * kv_idx (positions in the sequence), and the parameters and arrays that were
 * declared to paged_mod_parse().  paged_mods(7) describes the language.
 *
 * A block mask lists, for every query block, the KV blocks whose elements are all
 * seen (full) and those of which only some are (partial).  Attention visits no
 * other blocks, and evaluates the mask mod only in partial ones.  A block mask is
 * optional: without one, attention uses interval analysis to skip keys that the
 * mask mod hides.
 *
 * Objects.  Mods and block masks belong to a pool, and a struct paged_mod_set (a
 * mask mod and a score mod, bound to values and arrays) to a batch.  Closing the
 * pool or batch frees those that still exist.  All calls that create an object
 * write its handle on PAGED_OK only, and the caller destroys it.
 *
 * Threads.  Mods and block masks are immutable: any number of threads may use
 * them.  A struct paged_mod_set is used only by the thread that uses its batch.
 *
 * Nothing here sends a request to the owner, except paged_block_mask_create_remote(),
 * paged_array_upload() and paged_array_drop(), which block up to timeout_ms for
 * each of their requests.
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
	PAGED_MOD_MASK = 0, /* a condition: true if the key is seen */
	PAGED_MOD_SCORE = 1 /* a number: the new score */
};

/** Most dimensions of an array. */
#define PAGED_MAX_INDEXES 4u

/**
 * A captured array, or, with n_dims 0, a parameter.
 * Fill it with designated initialisers.
 */
struct paged_array {
	/** A letter or _, followed by letters, digits and _; at most 31 bytes. */
	const char *name;
	/** Address of element [0, 0, ...]; of a parameter, its value.  Not read by paged_mod_parse(). */
	const void *data;
	/**
	 * enum paged_dtype: F32, F16, BF16, I32, U8 or I64.  A mod does not
	 * distinguish I64 from I32: a name may be parsed as one and bound as the
	 * other.  Each call that reads I64 values copies and checks them; one
	 * outside 32 bits is PAGED_ERR_RANGE, with array, index and value in the
	 * message.
	 */
	uint32_t dtype;
	uint32_t n_dims;
	/** Number of elements in each dimension. */
	uint32_t extents[PAGED_MAX_INDEXES];
	/** Counted in elements, of any sign; all 0: row-major and dense. */
	int64_t strides[PAGED_MAX_INDEXES];
	uint64_t reserved[3];
};

/**
 * paged_mod_parse - parse an expression into a mod
 *
 * Values, array contents and extents are not part of the mod: bind new ones with
 * paged_mod_set_bind().
 *
 * @param[in] text   zero-terminated, at most 4096 bytes
 * @param[in] names  n_names (at most 255) parameters and arrays that the text may
 *                   use; only name, dtype and n_dims are read.  Unused names are
 *                   allowed
 * @retval PAGED_ERR_INVALID  not a valid expression; the message has line, column,
 *                            the line with a caret, what was expected, and the
 *                            nearest known name
 * @retval PAGED_ERR_LIMIT    the text is too long or nested too deeply, or has too
 *                            many operations or names
 */
enum paged_status paged_mod_parse(struct paged_pool *pool, enum paged_mod_kind kind, const char *text, size_t n_names,
				  const struct paged_array *names, struct paged_mod **mod_p);

/** paged_mod_destroy - free a mod that no struct paged_mod_set uses any more; takes NULL */
void paged_mod_destroy(struct paged_mod *mod);

/** paged_mod_text - canonical text of a mod, equal for texts with the same operations; valid as long as the mod */
const char *paged_mod_text(const struct paged_mod *mod);

/** One element of the score matrix. */
struct paged_mod_point {
	double score; /* read by score mods only */
	int32_t b, h, q_idx, kv_idx;
	uint32_t reserved[2];
};

/**
 * paged_mod_evaluate - evaluate a mod for one element, in float64
 *
 * For inspecting and testing mods: the f32 evaluation inside attention is tested
 * against this result.
 *
 * @param[in]  arrays   as for paged_mod_set_bind(), in host memory; read during the call only
 * @param[out] value_p  the new score of a score mod; for a mask mod 1 (seen) or 0
 * @retval PAGED_ERR_RANGE  an index out of bounds; the message has array, index and bounds
 * Statuses for names and arrays as for paged_mod_set_bind().
 */
enum paged_status paged_mod_evaluate(const struct paged_mod *mod, size_t n_arrays, const struct paged_array *arrays,
				     const struct paged_mod_point *point, double *value_p);

/** Inputs that a mod's result may depend on. */
enum paged_mod_input { PAGED_ON_SCORE = 1, PAGED_ON_B = 2, PAGED_ON_H = 4, PAGED_ON_Q_IDX = 8, PAGED_ON_KV_IDX = 16 };

/**
 * paged_mod_inputs - set of enum paged_mod_input that a mod depends on
 *
 * Without PAGED_ON_H, one head of a block mask is valid for all heads; without
 * PAGED_ON_B, one row is valid for all rows of the same lengths.
 */
uint32_t paged_mod_inputs(const struct paged_mod *mod);

/**
 * A ready-made mod, which a text may call by name: causal, sliding_window(4096), soft_cap(30.0), ...
 *
 * document reads one array doc for all rows of a batch.  ragged_document reads
 * the documents of row b in doc from index start[b] on; with PAGED_ROW_B, start
 * needs an element for each b up to the largest.
 */
struct paged_named_mod {
	const char *name;
	const char *arguments; /* "window"; "": none.  When omitted, parameters of these names are used */
	const char *text;
};

/** paged_mod_named - ready-made mod number `index`, from 0; NULL past the last */
const struct paged_named_mod *paged_mod_named(uint32_t index);

struct paged_mod_set_params {
	size_t struct_size;
	/** Mods of the batch's pool; borrowed until paged_mod_set_destroy().  NULL: none. */
	const struct paged_mod *mask;
	const struct paged_mod *score;
};

/**
 * paged_mod_set_create - prepare a mask mod, a score mod or both for use in a batch
 *
 * Create one for each kind of layer that the model has.  Mods that use no names
 * are ready to use; others need paged_mod_set_bind() first.  With neither mod, the
 * object only carries a block mask.
 *
 * @retval PAGED_ERR_INVALID  mask is a score mod or score is a mask mod; a mod belongs to another pool
 * @retval PAGED_ERR_NOMEM
 */
enum paged_status paged_mod_set_create(struct paged_batch *batch, const struct paged_mod_set_params *params,
				       struct paged_mod_set **set_p);

/**
 * paged_mod_set_prepare - check, or wait, for the compiled code of mods
 *
 * On the host, mods are interpreted: always PAGED_OK.  On a GPU, attention needs
 * a kernel with the mods compiled in:
 *
 *   built in  For heads of up to 128 in F16 and BF16: sliding_window,
 *             prefix_lm(prefix[b]), document, alibi, soft_cap, and
 *             sliding_window with soft_cap.  Values must be given as
 *             parameters, of I32 (cap: F32); with a number in the text, the
 *             mod is not one of these.
 *   JIT       All others are compiled by NVRTC, a part of the CUDA toolkit, which
 *             is loaded when first needed (PAGED_NVRTC names another file).
 *             Compiled code is cached on disk (PAGED_CACHE_DIR).
 *
 * A thread of the client compiles.  Compilation starts at paged_mod_set_create()
 * for queries of the pool's dtype (BF16 for pools of E4M3, E5M2 and I8), and at
 * the first call that needs the code for other queries.  paged_attention()
 * waits for code that is not ready, so results never depend on the time of
 * compilation.
 *
 * @param[in] q           dtype of the queries
 * @param[in] timeout_ms  0: check and return; negative: wait without limit
 * @retval PAGED_OK               attention with these mods allocates nothing and does not wait
 * @retval PAGED_ERR_AGAIN        not ready yet (timeout_ms 0)
 * @retval PAGED_ERR_TIMEOUT      not ready after timeout_ms
 * @retval PAGED_ERR_UNSUPPORTED  no NVRTC was found (the message lists what was tried), or it does not support
 *                                this device
 * @retval PAGED_ERR_BACKEND      NVRTC or the driver refused the code
 */
enum paged_status paged_mod_set_prepare(struct paged_mod_set *set, enum paged_dtype q, int timeout_ms);

/**
 * paged_mod_set_destroy - free a mod set; takes NULL
 *
 * On a GPU, no work on the stream may use the mods any more, nor may any graph
 * contain them (paged_marks.h, Graphs): their kernels are unloaded.
 * paged_batch_validate() still reports an index that was out of bounds with these
 * mods, unless the stream is being captured, when the library cannot wait for it.
 */
void paged_mod_set_destroy(struct paged_mod_set *set);

/**
 * paged_mod_set_bind - set the values and arrays of the names, and a block mask
 *
 * Arrays are read in place: the caller keeps them unchanged until the attention
 * that uses them is done, and binds again when values, contents or extents
 * change.  Parameter values and arrays of PAGED_I64 are copied.  For a pool in GPU
 * memory, array data are device addresses, parameter values are in host memory,
 * and the binding applies to attention that is launched after it.
 *
 * After an error the previous binding of mods and block mask remains.  Whether
 * the block mask fits the plan is checked by paged_attention().  The call
 * allocates memory only at the first bind without a block mask, when an array is
 * larger than any bound to its name before, and for arrays of PAGED_I64.
 *
 * @param[in] arrays  n_arrays, matched by name, in any order; names that no mod uses are ignored
 * @param[in] blocks  borrowed until the next bind; NULL: none.  The mask has as
 *                    many rows as the plan, or one for all; as many heads as q, or one
 *                    for all; and lengths of at least the plan's, whose lengths
 *                    also apply.  The first query block of a row begins at the
 *                    row's first query row
 * @retval PAGED_ERR_NOENT    a name that a mod uses is missing
 * @retval PAGED_ERR_INVALID  a dtype or rank differs from paged_mod_parse(), data is NULL, a name is
 *                            given twice, or the block mask belongs to another pool
 * @retval PAGED_ERR_LIMIT    an array spans more than 2^62 bytes
 * @retval PAGED_ERR_RANGE    a value of PAGED_I64 is outside 32 bits
 * @retval PAGED_ERR_UNSUPPORTED  an array of PAGED_I64 in GPU memory
 * @retval PAGED_ERR_NOMEM
 */
enum paged_status paged_mod_set_bind(struct paged_mod_set *set, size_t n_arrays, const struct paged_array *arrays,
				     const struct paged_block_mask *blocks);

/* ------------------------------------------------------------- block masks */

struct paged_block_mask_params {
	size_t struct_size;
	/**
	 * [n_rows] q_len, kv_len, kv_first, q_base (without PAGED_ROW_Q_BASE: kv_len -
	 * q_len) and b, as in a plan.  seq or pages are read for a physical mask only.
	 * One row may stand for all rows of a plan.  Blocks wholly before kv_first are
	 * in no list, and the one that it divides is partial: attention refuses such a
	 * mask for a plan whose kv_first is smaller.
	 */
	const struct paged_batch_row *rows;
	size_t n_rows;
	/** 0: one head stands for all.  Required if the mask mod depends on h (paged_mod_inputs()). */
	uint32_t n_heads;
	/**
	 * Query rows per block.  0: 128.  As in PyTorch, a query block that q_len
	 * cuts short has no full blocks, so set it to q_len for decoding.
	 */
	uint32_t q_block;
	/** Tokens per KV block.  0: 128; in a physical mask the page size. */
	uint32_t kv_block;
	/** 1: identify KV blocks by their physical place in the pool; see paged_block_mask_to_physical(). */
	uint32_t physical;
	/** Limit of the mask's memory, bytes.  0: 2^36. */
	uint64_t max_bytes;
};

/**
 * paged_block_mask_create - build the block mask of a mask mod
 *
 * The result is exactly that of evaluating every element; the cost is
 * proportional to the blocks at the borders of the seen area, not to elements.
 *
 * @param[in] arrays  as for paged_mod_set_bind(), in host memory; read during the call only
 * @retval PAGED_ERR_INVALID  a score mod, a mod of another pool, or it depends on h and n_heads is 0
 * @retval PAGED_ERR_LIMIT    the mask exceeds max_bytes, or a q_idx or kv_idx exceeds 2^31 - 1
 * @retval PAGED_ERR_RANGE    an index out of bounds; the message has array, index and bounds.
 *                            Not reported for a block that is partial whatever the array holds
 * @retval PAGED_ERR_NOENT    a name that the mod uses is missing
 * Statuses for a physical mask also as for paged_block_mask_to_physical().
 */
enum paged_status paged_block_mask_create(struct paged_pool *pool, const struct paged_block_mask_params *params,
					  const struct paged_mod *mod, size_t n_arrays,
					  const struct paged_array *arrays, struct paged_block_mask **mask_p);

/**
 * paged_block_mask_create_remote - paged_block_mask_create(), computed by the owner
 *
 * The daemon builds the logical mask on its background thread and returns it in
 * parts of 64 KiB, one request each.  A physical mask is derived from it in this
 * process.  At most PAGED_MAX_MASK_ROWS rows.
 *
 * @param[in] arrays  parameters (n_dims 0) only; the mod's arrays come from paged_array_upload()
 * @retval PAGED_ERR_NOENT    a parameter is missing, or an array was not uploaded
 * @retval PAGED_ERR_INVALID  an uploaded array has another dtype or rank than at paged_mod_parse()
 * @retval PAGED_ERR_LIMIT    the mask is larger or slower to build than the daemon's
 *                            limits: use paged_block_mask_create()
 * @retval PAGED_ERR_AGAIN    too many builds are queued, or arrays of the mask were
 *                            replaced during every attempt
 * @retval PAGED_ERR_PERM     the client is an observer
 * Other statuses as for paged_block_mask_create().
 */
enum paged_status paged_block_mask_create_remote(struct paged_pool *pool, const struct paged_block_mask_params *params,
						 const struct paged_mod *mod, size_t n_arrays,
						 const struct paged_array *arrays, struct paged_block_mask **mask_p);

/**
 * paged_array_upload - store a copy of an array with the owner, for paged_block_mask_create_remote()
 *
 * The array belongs to the session, whose members all use it, and is freed at the
 * session's end.  An upload replaces an array of the same name once all of it has
 * arrived.  PAGED_I64 is sent as PAGED_I32.
 *
 * @retval PAGED_ERR_RANGE  a value of PAGED_I64 is outside 32 bits
 * @retval PAGED_ERR_QUOTA  the sessions of the tenant have their share of all arrays
 * @retval PAGED_ERR_LIMIT  exceeds what the daemon stores for a session, or for all;
 *                          paged_block_mask_create() has no such limit
 * @retval PAGED_ERR_AGAIN  another member is uploading an array of this name
 */
enum paged_status paged_array_upload(struct paged_client *client, const struct paged_array *array);

/** paged_array_drop - delete an uploaded array; PAGED_ERR_NOENT: there is none of this name */
enum paged_status paged_array_drop(struct paged_client *client, const char *name);

enum paged_block_kind { PAGED_BLOCKS_PARTIAL = 0, PAGED_BLOCKS_FULL = 1 };

/**
 * All lists of a mask, ordered by row, then head, then query block.  The lists of
 * row r begin at first_list[r]; first_list[n_rows] is n_lists, the total.  List i
 * of a kind (enum paged_block_kind) is indices[kind][start[kind][i]] up to, not
 * including, indices[kind][start[kind][i + 1]].
 */
struct paged_block_lists {
	size_t struct_size;
	const uint64_t *first_list; /* [n_rows + 1] */
	const uint64_t *start[2];   /* [n_lists + 1] */
	const uint32_t *indices[2];
};

/**
 * paged_block_mask_from_lists - build a logical mask from given lists, which are copied and checked
 *
 * A full block that extends past q_len or kv_len, or begins before kv_first, becomes
 * partial; blocks wholly before kv_first are dropped.  Lists keep their order.
 *
 * @param[in] params  with physical 0
 * @param[in] lists   first_list is not read, it follows from the rows' lengths;
 *                    start[kind] NULL: all lists of the kind are empty
 * @retval PAGED_ERR_INVALID  starts descend, or a query block lists a block twice
 * @retval PAGED_ERR_RANGE    a block at or past the row's number of KV blocks
 * @retval PAGED_ERR_LIMIT    the mask exceeds max_bytes
 */
enum paged_status paged_block_mask_from_lists(struct paged_pool *pool, const struct paged_block_mask_params *params,
					      const struct paged_block_lists *lists, struct paged_block_mask **mask_p);

/**
 * PyTorch's BlockMask arrays, for rows with equal numbers of query blocks:
 * num_blocks [n_rows][n_heads][query blocks] and indices
 * [n_rows][n_heads][query blocks][width], indexed by enum paged_block_kind:
 * kv_num_blocks, kv_indices and full_kv_num_blocks, full_kv_indices.  Entries past
 * a count are not read, and written as 0.  The caller owns the arrays.
 */
struct paged_block_arrays {
	size_t struct_size;
	int32_t *num_blocks[2]; /* NULL: all lists of the kind are empty */
	int32_t *indices[2];
	uint64_t width[2];
};

/** paged_block_mask_from_arrays - paged_block_mask_from_lists() with PyTorch's arrays */
enum paged_status paged_block_mask_from_arrays(struct paged_pool *pool, const struct paged_block_mask_params *params,
					       const struct paged_block_arrays *arrays,
					       struct paged_block_mask **mask_p);

/** paged_block_mask_from_dense - build a logical mask from a dense one, [row][head][q_len][kv_len] with 0: not seen */
enum paged_status paged_block_mask_from_dense(struct paged_pool *pool, const struct paged_block_mask_params *params,
					      const uint8_t *dense, struct paged_block_mask **mask_p);

/**
 * paged_block_mask_destroy - free a mask that no mod set uses any more; takes NULL
 *
 * Until it is closed, the pool keeps up to four arrays of destroyed masks, at most
 * 16 MiB each, and reuses them.  A mask that is rebuilt in each step then causes
 * no page faults, whatever malloc() does.
 */
void paged_block_mask_destroy(struct paged_block_mask *mask);

/**
 * paged_block_mask_to_physical - translate KV blocks to their physical places in the pool
 *
 * PyTorch's convert_logical_block_mask.  kv_block must equal the page size, divide
 * it, or be a multiple of it; a block of several pages is listed as its pages, in
 * order.  Part i of page p has the physical index p * (page size / kv_block) + i.
 * A full block that contains a row's end or kv_first becomes partial, and blocks past
 * the end or wholly before kv_first are dropped; so are pages that paged_seq_trim()
 * gave back.  Attention accepts a physical mask, because the mask also keeps the
 * logical blocks.
 *
 * @param[in] rows  [n_rows] seq or pages, kv_len and kv_first.  n_rows is the mask's number of
 *                  rows; for a mask of one row, any number.  The sequences may be
 *                  others than those that the mask was made for, and may repeat
 * @retval PAGED_ERR_INVALID   the mask is physical, the number of rows differs, or page and KV block do not divide
 * @retval PAGED_ERR_CAPACITY  kv_len exceeds a row's capacity
 * @retval PAGED_ERR_STALE     an id names no live sequence
 * @retval PAGED_ERR_PERM      an id is of paged_pages_hold(), whose pages have no order
 * @retval PAGED_ERR_RANGE     an explicit page is outside the pool
 * @retval PAGED_ERR_AGAIN     the owner was changing a page table during every attempt to read it
 */
enum paged_status paged_block_mask_to_physical(const struct paged_block_mask *mask, size_t n_rows,
					       const struct paged_batch_row *rows, struct paged_block_mask **mask_p);

/**
 * paged_block_mask_to_logical - the logical mask from which a physical one was made
 *
 * The result has the rows and lengths of the physical mask, which may be stale.
 *
 * @retval PAGED_ERR_INVALID  the mask is logical
 */
enum paged_status paged_block_mask_to_logical(const struct paged_block_mask *mask, struct paged_block_mask **mask_p);

/**
 * paged_block_mask_validate - check whether a physical mask still matches the page tables
 *
 * Checks the sequences of the mask's own rows; growth of a sequence is not a
 * change.  A logical mask is always valid.
 *
 * @retval PAGED_ERR_STALE  page table entries of a row were replaced or removed since the mask was made
 * @retval PAGED_ERR_GONE   the daemon died, or ended this session
 */
enum paged_status paged_block_mask_validate(const struct paged_block_mask *mask);

/** A part of a mask: ranges of rows, heads and query rows.  A count of 0: to the end. */
struct paged_block_mask_part {
	size_t struct_size;
	uint32_t first_row, n_rows;
	uint32_t first_head, n_heads;
	uint64_t first_q, n_q; /* query rows; first_q is a multiple of the query block */
};

/** paged_block_mask_select - copy a part of a mask; query rows keep their q_idx; PAGED_ERR_RANGE: not within it */
enum paged_status paged_block_mask_select(const struct paged_block_mask *mask, const struct paged_block_mask_part *part,
					  struct paged_block_mask **mask_p);

/**
 * paged_block_mask_crop - copy a logical mask, cut to at most these lengths
 *
 * A full block that extends past a length becomes partial.
 *
 * @retval PAGED_ERR_INVALID  the mask is physical
 */
enum paged_status paged_block_mask_crop(const struct paged_block_mask *mask, uint32_t q_len, uint32_t kv_len,
					struct paged_block_mask **mask_p);

/**
 * paged_block_mask_transpose - for each KV block, list the query blocks that see it (PyTorch's q_indices)
 *
 * The result is a logical mask, also of a physical one, because it lists query
 * blocks.  Its rows have kv_first 0: blocks before that of the mask have empty lists.
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
	uint64_t n_blocks; /* entries of all lists, both kinds */
	uint64_t n_lists;  /* of each kind */
	uint64_t bytes;    /* memory in use */
	double sparsity;   /* percent of blocks that are in no list */
};

/** paged_block_mask_get_info - fill info up to its struct_size */
enum paged_status paged_block_mask_get_info(const struct paged_block_mask *mask, struct paged_block_mask_info *info);

struct paged_block_mask_row {
	size_t struct_size;
	int64_t q_base;
	uint64_t q_len;
	uint64_t kv_len;  /* in a physical mask: tokens of the whole pool */
	paged_seq_id seq; /* physical masks only; 0: explicit pages */
	uint64_t version; /* of the sequence, as in struct paged_seq_info */
	/* Blocks wholly before it are in no list; the one that it divides is partial.  In a physical mask: 0 */
	uint64_t kv_first;
};

/** paged_block_mask_get_row - fill info of a row up to its struct_size; PAGED_ERR_RANGE past the last row */
enum paged_status paged_block_mask_get_row(const struct paged_block_mask *mask, size_t row,
					   struct paged_block_mask_row *info);

/** paged_block_mask_lists - addresses of the mask's own lists, read-only; valid as long as the mask */
enum paged_status paged_block_mask_lists(const struct paged_block_mask *mask, struct paged_block_lists *lists);

/**
 * paged_block_mask_arrays - fill PyTorch's arrays, which the caller allocated
 *
 * @param[in,out] arrays  num_blocks[kind] NULL: not wanted.  If all arrays are
 *                        NULL, only width is written: the longest list of each kind
 * @retval PAGED_ERR_INVALID  rows differ in their numbers of query blocks, or a width is too small
 */
enum paged_status paged_block_mask_arrays(const struct paged_block_mask *mask, struct paged_block_arrays *arrays);

/** paged_block_mask_dense - fill [row][head][query block][KV block] with 1 for each listed block, else 0 */
enum paged_status paged_block_mask_dense(const struct paged_block_mask *mask, uint8_t *dense);

/**
 * paged_block_mask_picture - text picture of a mask, as PyTorch prints a BlockMask
 *
 * @param[in]  rows, columns  height and width in characters, 0: 20
 * @param[in]  limit          most (row, head) pairs to show, 0: 4
 * @param[out] text_p         UTF-8; caller frees it with paged_free()
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
