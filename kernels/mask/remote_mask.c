/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/mask/remote_mask.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/mask/mod_evaluator.h"

static_assert(MASK_MAX_NAME == MOD_MAX_NAME && MASK_MAX_NAMES == MOD_MAX_NAMES, "a mod's names fit a request");

/* Ends each error message about a limit of the owner. */
#define UNLIMITED_FUNCTION_HINT "; a mask that is not remote has no such limit"

struct remote_mask {
	struct block_mask_shape shape;
	bool any_head; /* n_heads was 0: one head stands for all */
	uint64_t max_bytes, first_list;
	uint32_t first_block, n_names;
	char text[MOD_MAX_TEXT + 1];
	struct mask_request_name names[MOD_MAX_NAMES];
	struct mod_array arrays[MOD_MAX_NAMES]; /* `names`, bound */
	int32_t *b;                             /* [n_rows], stored after rows[]; NULL: a row's b is its index */
	struct block_mask_row rows[];
};

static enum paged_status
remote_mask_check_request(const struct mask_request *request, uint32_t n_heads, uint64_t max_bytes,
			  struct paged_error *error)
{
	const uint64_t list_bytes = BLOCK_MASK_N_KINDS * sizeof(uint64_t);
	uint64_t n_elements = 0, n_lists = 0;

	if (request->n_rows == 0 || request->q_block == 0 || request->kv_block == 0)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "block mask: %" PRIu32 " rows, blocks of %" PRIu32 " x %" PRIu32 ": none may be 0",
				  request->n_rows, request->q_block, request->kv_block);
	for (uint32_t r = 0; request->b != NULL && r < request->n_rows; r++)
		if (request->b[r] > INT32_MAX)
			return paged_fail(error, PAGED_ERR_INVALID,
					  "block mask: row %" PRIu32 ": b is %" PRIu32 "; it is at most 2^31 - 1", r,
					  request->b[r]);
	if (request->n_names > MOD_MAX_NAMES || strlen(request->text) > MOD_MAX_TEXT)
		return paged_fail(error, PAGED_ERR_LIMIT,
				  "block mask: a mod of %zu bytes and %" PRIu32 " names; %u and %u are the most",
				  strlen(request->text), request->n_names, MOD_MAX_TEXT, MOD_MAX_NAMES);
	for (uint32_t r = 0; request->kv_first != NULL && r < request->n_rows; r++)
		if (request->kv_first[r] > request->kv_len[r])
			return paged_fail(error, PAGED_ERR_INVALID,
					  "block mask: row %" PRIu32 ": kv_first %" PRIu32
					  " exceeds its kv_len %" PRIu32,
					  r, request->kv_first[r], request->kv_len[r]);
	for (uint32_t r = 0; r < request->n_rows; r++) {
		uint32_t kv_first = request->kv_first != NULL ? request->kv_first[r] : 0;
		uint64_t n = (uint64_t)request->q_len[r] * (request->kv_len[r] - kv_first);

		if (__builtin_mul_overflow(n, n_heads, &n) || __builtin_add_overflow(n_elements, n, &n_elements) ||
		    n_elements > REMOTE_MASK_MAX_ELEMENTS)
			return paged_fail(error, PAGED_ERR_LIMIT,
					  "block mask: more than %" PRIu64
					  " elements up to row %" PRIu32 UNLIMITED_FUNCTION_HINT,
					  REMOTE_MASK_MAX_ELEMENTS, r);
		/* No overflow: at most 2^32 rows of 2^32 query blocks; the check below divides by n_heads. */
		n_lists += mask_ceil_div(request->q_len[r], request->q_block);
	}
	if (n_lists > max_bytes / list_bytes / n_heads)
		return paged_fail(error, PAGED_ERR_LIMIT,
				  "block mask: the lists of %" PRIu64 " query blocks and %" PRIu32
				  " heads alone pass the limit of %" PRIu64 " bytes" UNLIMITED_FUNCTION_HINT,
				  n_lists, n_heads, max_bytes);
	return PAGED_OK;
}

enum paged_status
remote_mask_create(const struct mask_request *request, uint64_t max_bytes, struct remote_mask **remote_mask_p,
		   struct paged_error *error)
{
	const uint32_t n_heads = request->n_heads != 0 ? request->n_heads : 1;
	enum paged_status status = remote_mask_check_request(request, n_heads, max_bytes, error);
	struct remote_mask *remote_mask;

	if (status != PAGED_OK)
		return status;
	remote_mask = calloc(1, sizeof(*remote_mask) +
					request->n_rows * (sizeof(remote_mask->rows[0]) + sizeof(*remote_mask->b)));
	if (remote_mask == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for %" PRIu32 " rows",
				  request->n_rows);
	remote_mask->shape = (struct block_mask_shape){ .n_rows = request->n_rows,
							.n_heads = n_heads,
							.q_block = request->q_block,
							.kv_block = request->kv_block,
							.rows = remote_mask->rows };
	remote_mask->any_head = request->n_heads == 0;
	remote_mask->max_bytes = max_bytes;
	remote_mask->first_list = request->first_list;
	remote_mask->first_block = request->first_block;
	strcpy(remote_mask->text, request->text);
	for (uint32_t r = 0; r < request->n_rows; r++)
		remote_mask->rows[r] = (struct block_mask_row){
			.q_base = request->q_base != NULL ? request->q_base[r]
							  : (int64_t)request->kv_len[r] - request->q_len[r],
			.q_len = request->q_len[r],
			.kv_len = request->kv_len[r],
			.kv_first = request->kv_first != NULL ? request->kv_first[r] : 0,
		};
	if (request->b != NULL) {
		remote_mask->b = (int32_t *)(remote_mask->rows + request->n_rows);
		memcpy(remote_mask->b, request->b, request->n_rows * sizeof(*remote_mask->b));
	}
	remote_mask->n_names = request->n_names;
	for (uint32_t i = 0; i < request->n_names; i++) {
		remote_mask->names[i] = request->names[i];
		remote_mask->arrays[i] = (struct mod_array){ .name = remote_mask->names[i].name,
							     .dtype = (enum mod_dtype)remote_mask->names[i].dtype,
							     .n_dims = remote_mask->names[i].n_dims,
							     .data = remote_mask->names[i].value };
	}
	*remote_mask_p = remote_mask;
	return PAGED_OK;
}

void
remote_mask_set_array(struct remote_mask *remote_mask, uint32_t i, const uint32_t *extents, const void *data)
{
	memcpy(remote_mask->arrays[i].extents, extents, sizeof(remote_mask->arrays[i].extents));
	remote_mask->arrays[i].data = data;
}

void
remote_mask_destroy(struct remote_mask *remote_mask)
{
	free(remote_mask);
}

/* Appends the function without the owner's limit to the message, unless the 32 bits of mods are the limit. */
static void
remote_mask_explain_limit(const struct remote_mask *remote_mask, struct paged_error *error)
{
	char text[sizeof(error->text)];

	for (uint32_t r = 0; r < remote_mask->shape.n_rows; r++)
		if (!block_mask_row_fits_int32(&remote_mask->rows[r]))
			return;
	memcpy(text, error->text, sizeof(text));
	paged_fail(error, PAGED_ERR_LIMIT, "%.*s" UNLIMITED_FUNCTION_HINT,
		   (int)(sizeof(text) - sizeof(UNLIMITED_FUNCTION_HINT)), text);
}

static enum paged_status
remote_mask_build_bound(const struct remote_mask *remote_mask, struct mod_binding *binding,
			const atomic_bool *cancelled, struct rle_writer *part, struct paged_error *error)
{
	enum paged_status status = mod_binding_add_range_trees(binding, error);
	struct mod_evaluator evaluator;

	/*
	 * Masks need only vectors: stopping at AVX512 keeps an owner on a CPU with AMX from requesting
	 * tiles from Linux.
	 */
	if (status == PAGED_OK)
		status = mod_evaluator_open(&evaluator, binding, kernel_isa_best_up_to(KERNEL_AVX512), error);
	if (status != PAGED_OK)
		return status;
	evaluator.base.cancelled = cancelled;
	evaluator.base.b = remote_mask->b;
	if (remote_mask->any_head && !evaluator.base.same_heads)
		status = paged_fail(error, PAGED_ERR_INVALID,
				    "block mask: '%.80s' depends on h: say with n_heads how many heads there are",
				    remote_mask->text);
	else
		status = block_mask_encode_part(&remote_mask->shape, &evaluator.base, remote_mask->max_bytes,
						remote_mask->first_list, remote_mask->first_block, part, error);
	if (status == PAGED_ERR_LIMIT)
		remote_mask_explain_limit(remote_mask, error);
	if (status == PAGED_OK)
		status = mod_evaluator_bad_index(&evaluator, error);
	mod_evaluator_close(&evaluator);
	return status;
}

enum paged_status
remote_mask_build(const struct remote_mask *remote_mask, const atomic_bool *cancelled, struct rle_writer *part,
		  struct paged_error *error)
{
	struct mod_binding *binding = NULL;
	struct mod *mod = NULL;
	enum paged_status status = mod_parse(MOD_MASK, remote_mask->text, strlen(remote_mask->text),
					     remote_mask->arrays, remote_mask->n_names, &mod, error);

	if (status == PAGED_OK)
		status = mod_bind(mod, remote_mask->arrays, remote_mask->n_names, &binding, error);
	if (status == PAGED_OK)
		status = remote_mask_build_bound(remote_mask, binding, cancelled, part, error);
	mod_binding_destroy(binding);
	mod_destroy(mod);
	return status;
}
