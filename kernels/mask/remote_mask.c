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
#define ELSEWHERE "; paged_block_mask_create() builds it without this limit"

struct served {
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
request_check(const struct mask_request *request, uint32_t n_heads, uint64_t max_bytes, struct paged_error *error)
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
	for (uint32_t r = 0; r < request->n_rows; r++) {
		uint64_t n = (uint64_t)request->q_len[r] * request->kv_len[r];

		if (__builtin_mul_overflow(n, n_heads, &n) || __builtin_add_overflow(n_elements, n, &n_elements) ||
		    n_elements > SERVED_MAX_ELEMENTS)
			return paged_fail(error, PAGED_ERR_LIMIT,
					  "block mask: more than %" PRIu64 " elements up to row %" PRIu32 ELSEWHERE,
					  SERVED_MAX_ELEMENTS, r);
		/* No overflow: at most 2^32 rows of 2^32 query blocks; the check below divides by n_heads. */
		n_lists += mask_count_parts(request->q_len[r], request->q_block);
	}
	if (n_lists > max_bytes / list_bytes / n_heads)
		return paged_fail(error, PAGED_ERR_LIMIT,
				  "block mask: the lists of %" PRIu64 " query blocks and %" PRIu32
				  " heads alone pass the limit of %" PRIu64 " bytes" ELSEWHERE,
				  n_lists, n_heads, max_bytes);
	return PAGED_OK;
}

enum paged_status
served_create(const struct mask_request *request, uint64_t max_bytes, struct served **served_p,
	      struct paged_error *error)
{
	const uint32_t n_heads = request->n_heads != 0 ? request->n_heads : 1;
	enum paged_status status = request_check(request, n_heads, max_bytes, error);
	struct served *served;

	if (status != PAGED_OK)
		return status;
	served = calloc(1, sizeof(*served) + request->n_rows * (sizeof(served->rows[0]) + sizeof(*served->b)));
	if (served == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for %" PRIu32 " rows",
				  request->n_rows);
	served->shape = (struct block_mask_shape){ .n_rows = request->n_rows,
						   .n_heads = n_heads,
						   .q_block = request->q_block,
						   .kv_block = request->kv_block,
						   .rows = served->rows };
	served->any_head = request->n_heads == 0;
	served->max_bytes = max_bytes;
	served->first_list = request->first_list;
	served->first_block = request->first_block;
	strcpy(served->text, request->text);
	for (uint32_t r = 0; r < request->n_rows; r++)
		served->rows[r] = (struct block_mask_row){
			.q_base = request->q_base != NULL ? request->q_base[r]
							  : (int64_t)request->kv_len[r] - request->q_len[r],
			.q_len = request->q_len[r],
			.kv_len = request->kv_len[r],
		};
	if (request->b != NULL) {
		served->b = (int32_t *)(served->rows + request->n_rows);
		memcpy(served->b, request->b, request->n_rows * sizeof(*served->b));
	}
	served->n_names = request->n_names;
	for (uint32_t i = 0; i < request->n_names; i++) {
		served->names[i] = request->names[i];
		served->arrays[i] = (struct mod_array){ .name = served->names[i].name,
							.dtype = (enum mod_dtype)served->names[i].dtype,
							.n_dims = served->names[i].n_dims,
							.data = served->names[i].value };
	}
	*served_p = served;
	return PAGED_OK;
}

void
served_array(struct served *served, uint32_t i, const uint32_t *extents, const void *data)
{
	memcpy(served->arrays[i].extents, extents, sizeof(served->arrays[i].extents));
	served->arrays[i].data = data;
}

void
served_destroy(struct served *served)
{
	free(served);
}

/* Appends the function without the owner's limit to the message, unless the 32 bits of mods are the limit. */
static void
limit_explain(const struct served *served, struct paged_error *error)
{
	char text[sizeof(error->text)];

	for (uint32_t r = 0; r < served->shape.n_rows; r++)
		if (!block_mask_row_counts(&served->rows[r]))
			return;
	memcpy(text, error->text, sizeof(text));
	paged_fail(error, PAGED_ERR_LIMIT, "%.*s" ELSEWHERE, (int)(sizeof(text) - sizeof(ELSEWHERE)), text);
}

static enum paged_status
bound_build(const struct served *served, struct mod_binding *binding, const atomic_bool *cancelled,
	    struct runs_writer *part, struct paged_error *error)
{
	enum paged_status status = mod_binding_index(binding, error);
	struct mod_rule rule;

	/*
	 * Masks need only vectors: stopping at AVX512 keeps an owner on a CPU with AMX from requesting
	 * tiles from Linux.
	 */
	if (status == PAGED_OK)
		status = mod_rule_open(&rule, binding, kernel_isa_best_up_to(KERNEL_AVX512), error);
	if (status != PAGED_OK)
		return status;
	rule.rule.cancelled = cancelled;
	rule.rule.b = served->b;
	if (served->any_head && !rule.rule.same_heads)
		status = paged_fail(error, PAGED_ERR_INVALID,
				    "block mask: '%.80s' depends on h: say with n_heads how many heads there are",
				    served->text);
	else
		status = block_mask_runs(&served->shape, &rule.rule, served->max_bytes, served->first_list,
					 served->first_block, part, error);
	if (status == PAGED_ERR_LIMIT)
		limit_explain(served, error);
	if (status == PAGED_OK)
		status = mod_rule_range(&rule, error);
	mod_rule_close(&rule);
	return status;
}

enum paged_status
served_build(const struct served *served, const atomic_bool *cancelled, struct runs_writer *part,
	     struct paged_error *error)
{
	struct mod_binding *binding = NULL;
	struct mod *mod = NULL;
	enum paged_status status =
		mod_parse(MOD_MASK, served->text, strlen(served->text), served->arrays, served->n_names, &mod, error);

	if (status == PAGED_OK)
		status = mod_bind(mod, served->arrays, served->n_names, &binding, error);
	if (status == PAGED_OK)
		status = bound_build(served, binding, cancelled, part, error);
	mod_binding_destroy(binding);
	mod_destroy(mod);
	return status;
}
