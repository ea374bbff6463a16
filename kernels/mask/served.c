/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/mask/served.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/mask/batch_mask.h"

/* Ends every sentence about a limit of the owner's. */
#define ELSEWHERE "; paged_block_mask_create() builds it without this limit"

struct served {
	uint32_t n_rows, n_heads, q_block, kv_block, n_names;
	uint64_t max_bytes;
	bool own_limit; /* max_bytes is the owner's, not the asker's */
	size_t text_length;
	char text[MOD_MAX_TEXT + 1];
	struct mod_array names[MOD_MAX_NAMES];
	char name[MOD_MAX_NAMES][MOD_MAX_NAME + 1];
	uint32_t values[MOD_MAX_NAMES]; /* of parameters, as bytes */
	struct batch_mask_row rows[];
};

static uint32_t
heads_of(const struct served_request *request)
{
	return request->n_heads != 0 ? request->n_heads : 1;
}

static enum paged_status
elements_check(const struct served_request *request, struct paged_error *error)
{
	uint64_t n_elements = 0;

	for (uint32_t r = 0; r < request->n_rows; r++) {
		uint64_t n = (uint64_t)request->q_len[r] * request->kv_len[r];

		if (__builtin_mul_overflow(n, heads_of(request), &n) ||
		    __builtin_add_overflow(n_elements, n, &n_elements) || n_elements > SERVED_MAX_ELEMENTS)
			return paged_fail(error, PAGED_ERR_LIMIT,
					  "block mask: more than %" PRIu64 " elements up to row %" PRIu32 ELSEWHERE,
					  SERVED_MAX_ELEMENTS, r);
	}
	return PAGED_OK;
}

static enum paged_status
lists_check(const struct served_request *request, uint64_t max_bytes, struct paged_error *error)
{
	const uint64_t list_bytes = BLOCK_MASK_N_KINDS * sizeof(uint64_t);
	uint64_t n_lists = 0;

	/* No overflow: 2^32 rows of 2^32 query rows; heads are divided by. */
	for (uint32_t r = 0; r < request->n_rows; r++)
		n_lists += request->q_len[r] / request->q_block + (request->q_len[r] % request->q_block != 0);
	if (n_lists > max_bytes / list_bytes / heads_of(request))
		return paged_fail(error, PAGED_ERR_LIMIT,
				  "block mask: the lists of %" PRIu64 " query blocks and %" PRIu32
				  " heads alone pass the limit of %" PRIu64 " bytes" ELSEWHERE,
				  n_lists, heads_of(request), max_bytes);
	return PAGED_OK;
}

static enum paged_status
request_check(const struct served_request *request, uint64_t max_bytes, struct paged_error *error)
{
	enum paged_status status;

	if (request->n_rows == 0 || request->q_block == 0 || request->kv_block == 0)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "block mask: %" PRIu32 " rows, blocks of %" PRIu32 " x %" PRIu32 ": none may be 0",
				  request->n_rows, request->q_block, request->kv_block);
	if (request->n_names > MOD_MAX_NAMES || strlen(request->text) > MOD_MAX_TEXT)
		return paged_fail(error, PAGED_ERR_LIMIT,
				  "block mask: a mod of %zu bytes and %" PRIu32 " names; %u and %u are the most",
				  strlen(request->text), request->n_names, MOD_MAX_TEXT, MOD_MAX_NAMES);
	for (uint32_t i = 0; i < request->n_names; i++)
		if (strlen(request->names[i].name) > MOD_MAX_NAME)
			return paged_fail(error, PAGED_ERR_INVALID, "block mask: name %" PRIu32 " is longer than %u", i,
					  MOD_MAX_NAME);
	status = elements_check(request, error);
	return status == PAGED_OK ? lists_check(request, max_bytes, error) : status;
}

static void
names_copy(struct served *served, const struct served_request *request)
{
	served->n_names = request->n_names;
	for (uint32_t i = 0; i < request->n_names; i++) {
		served->names[i] = request->names[i];
		strcpy(served->name[i], request->names[i].name);
		served->names[i].name = served->name[i];
		if (request->names[i].n_dims != 0)
			continue;
		memcpy(&served->values[i], request->names[i].data, mod_dtype_size(request->names[i].dtype));
		served->names[i].data = &served->values[i];
	}
}

enum paged_status
served_create(const struct served_request *request, uint64_t max_bytes, struct served **served_p,
	      struct paged_error *error)
{
	enum paged_status status = request_check(request, max_bytes, error);
	struct served *served;

	if (status != PAGED_OK)
		return status;
	served = calloc(1, sizeof(*served) + request->n_rows * sizeof(served->rows[0]));
	if (served == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for %" PRIu32 " rows",
				  request->n_rows);
	served->n_rows = request->n_rows;
	served->n_heads = request->n_heads;
	served->q_block = request->q_block;
	served->kv_block = request->kv_block;
	served->own_limit = request->max_bytes == 0 || request->max_bytes >= max_bytes;
	served->max_bytes = served->own_limit ? max_bytes : request->max_bytes;
	served->text_length = strlen(request->text);
	memcpy(served->text, request->text, served->text_length);
	names_copy(served, request);
	for (uint32_t r = 0; r < request->n_rows; r++)
		served->rows[r] = (struct batch_mask_row){
			.seq = request->seq[r],
			.q_len = request->q_len[r],
			.kv_len = request->kv_len[r],
			.q_base = request->q_base != NULL ? request->q_base[r]
							  : (int64_t)request->kv_len[r] - request->q_len[r],
		};
	*served_p = served;
	return PAGED_OK;
}

void
served_destroy(struct served *served)
{
	free(served);
}

static bool
same_lists(const struct block_mask *a, const struct block_mask *b)
{
	uint64_t n = a->first_list[a->shape.n_rows];

	return n == b->first_list[b->shape.n_rows] &&
	       memcmp(a->start[0], b->start[0], (n + 1) * sizeof(uint64_t)) == 0 &&
	       memcmp(a->start[1], b->start[1], (n + 1) * sizeof(uint64_t)) == 0;
}

/* Rows whose pages follow each other from 0 on. */
struct straight {
	const struct batch_mask_order *order;
	uint32_t *pages;
};

static enum paged_status
straight_read(void *context, uint32_t s, struct block_mask_sequence *sequence, struct paged_error *error)
{
	const struct straight *straight = context;

	(void)error;
	*sequence = (struct block_mask_sequence){ straight->pages, straight->order->view->n_pages,
						  straight->order->rows[s].kv_len };
	return PAGED_OK;
}

/*
 * Logical blocks as fine as the physical ones, where KV blocks are several
 * pages: those that the same rules yield when logical pages lie in order.
 */
static enum paged_status
logical_split(const struct batch_mask_order *order, struct block_mask **logical_p, struct paged_error *error)
{
	const uint32_t n_pages = order->view->n_pages;
	struct straight straight = { order, malloc((n_pages + UINT64_C(1)) * sizeof(uint32_t)) };
	const struct block_mask_table table = { .n_sequences = order->n_rows,
						.page_size = order->view->page_size,
						.n_pages = n_pages,
						.read = straight_read,
						.context = &straight };
	struct block_mask *split;
	enum paged_status status;

	if (straight.pages == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for %" PRIu32 " pages", n_pages);
	for (uint32_t i = 0; i < n_pages; i++)
		straight.pages[i] = i;
	status = block_mask_to_physical(*logical_p, &table, order->max_bytes, &split, error);
	free(straight.pages);
	if (status != PAGED_OK)
		return status;
	for (uint32_t r = 0; r < order->n_rows; r++)
		((struct block_mask_row *)split->shape.rows)[r].kv_len = order->rows[r].kv_len;
	block_mask_destroy(*logical_p);
	*logical_p = split;
	return PAGED_OK;
}

/* Both masks, and the versions of the rows that the physical one was made by. */
static enum paged_status
masks_build(const struct batch_mask_order *order, struct mod_binding *binding, struct image *image, uint64_t *version,
	    struct paged_error *error)
{
	/* Masks use vectors alone: an owner on a CPU with AMX need not have Linux give it tiles. */
	enum kernel_isa isa = kernel_isa_best_to(KERNEL_AVX512);
	enum paged_status status = batch_mask_create(order, binding, isa, &image->logical, error);

	if (status == PAGED_OK)
		status = batch_mask_place(order, image->logical, &image->mask, version, error);
	if (status == PAGED_OK && !same_lists(image->logical, image->mask))
		status = logical_split(order, &image->logical, error);
	return status;
}

static enum paged_status
image_fill(const struct served *served, const struct region_view *view, const uint64_t *version, struct image *image,
	   struct paged_error *error)
{
	image->rows = calloc(served->n_rows, sizeof(*image->rows));
	if (image->rows == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for %" PRIu32 " rows", served->n_rows);
	memcpy(image->boot_id, view->header->boot_id, sizeof(image->boot_id));
	image->page_size = view->page_size;
	image->n_pages = view->n_pages;
	for (uint32_t r = 0; r < served->n_rows; r++)
		image->rows[r] = (struct image_row){
			.seq = served->rows[r].seq,
			.version = version[r],
			.q_base = served->rows[r].q_base,
			.q_len = served->rows[r].q_len,
			.kv_len = served->rows[r].kv_len,
		};
	return PAGED_OK;
}

static enum paged_status
bound_build(const struct served *served, const struct region_view *view, const atomic_bool *cancelled,
	    struct mask_memory *memory, struct mod_binding *binding, struct image *image, struct paged_error *error)
{
	const struct batch_mask_order order = {
		.rows = served->rows,
		.n_rows = served->n_rows,
		.n_heads = served->n_heads,
		.q_block = served->q_block,
		.kv_block = served->kv_block,
		.max_bytes = served->max_bytes,
		.memory = memory,
		.view = view,
		.cancelled = cancelled,
	};
	uint64_t *version = calloc(served->n_rows, sizeof(*version));
	enum paged_status status;

	if (version == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for %" PRIu32 " rows", served->n_rows);
	status = masks_build(&order, binding, image, version, error);
	if (status == PAGED_OK)
		status = image_fill(served, view, version, image, error);
	free(version);
	return status;
}

static bool
rows_count(const struct served *served)
{
	for (uint32_t r = 0; r < served->n_rows; r++) {
		const struct batch_mask_row *from = &served->rows[r];
		const struct block_mask_row row = { from->q_base, from->q_len, from->kv_len };

		if (!block_mask_row_counts(&row))
			return false;
	}
	return true;
}

/* Whose limit it was that the builder met.  What mods count in is everybody's. */
static void
limit_explain(const struct served *served, struct paged_error *error)
{
	char text[sizeof(error->text)];

	if (error->status != PAGED_ERR_LIMIT || !served->own_limit || !rows_count(served))
		return;
	memcpy(text, error->text, sizeof(text));
	paged_fail(error, PAGED_ERR_LIMIT, "%.*s" ELSEWHERE, (int)(sizeof(text) - sizeof(ELSEWHERE)), text);
}

enum paged_status
served_build(const struct served *served, const struct region_view *view, const atomic_bool *cancelled,
	     struct mask_memory *memory, struct image *image, struct paged_error *error)
{
	struct mod_binding *binding = NULL;
	struct mod *mod = NULL;
	enum paged_status status;

	*image = (struct image){ 0 };
	status = mod_parse(MOD_MASK, served->text, served->text_length, served->names, served->n_names, &mod, error);
	if (status == PAGED_OK)
		status = mod_bind(mod, served->names, served->n_names, &binding, error);
	if (status == PAGED_OK) {
		status = bound_build(served, view, cancelled, memory, binding, image, error);
		if (status != PAGED_OK)
			limit_explain(served, error);
	}
	mod_binding_destroy(binding);
	mod_destroy(mod);
	if (status != PAGED_OK)
		image_free(image);
	return status;
}
