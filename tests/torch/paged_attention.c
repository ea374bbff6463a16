/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/torch/paged_attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/torch/pa_memory.h"
#include "tests/support/reference.h"
#include "tests/support/sequences.h"

/** The maximum of query rows in a batch on a GPU. */
#define MAX_Q_TOKENS 2048u
#define MAX_Q_HEADS 32u

void
pa_open(struct pa *pa, const struct pa_params *params)
{
	struct paged_pool_params geometry = {
		.struct_size = sizeof(geometry),
		.name = "torch",
		.n_layers = params->n_layers != 0 ? params->n_layers : 1,
		.n_kv_heads = params->kv_heads != 0 ? params->kv_heads : 1,
		.k_dim = params->k_dim != 0 ? params->k_dim : 1,
		.v_dim = params->v_dim,
		.v_in_k = params->v_in_k,
		.dtype = params->dtype != PAGED_DTYPE_NONE ? params->dtype : PAGED_F32,
		.page_size = params->page_size,
		.n_pages = params->n_pages,
		.n_slots = params->max_batch,
		.backend = pa_backend,
	};
	struct paged_batch_params batch = { .struct_size = sizeof(batch),
					    .max_q_tokens = MAX_Q_TOKENS,
					    .max_q_heads = geometry.n_kv_heads > MAX_Q_HEADS ? geometry.n_kv_heads
											     : MAX_Q_HEADS };

	pa_memory_open();
	*pa = (struct pa){ .max_batch = params->max_batch };
	cr_assert_leq(params->max_batch, PA_MAX_BATCH);
	expect_ok(paged_client_open_embedded(&geometry, 1, NULL, &client));
	pa->client = client;
	expect_ok(paged_pool_open(client, "torch", &pa->pool));
	expect_ok(paged_batch_create(pa->pool, &batch, &pa->batch));
	expect_ok(seqs_create(pa->client, pa->pool, params->max_batch, pa->page_table));
	pa->info.struct_size = sizeof(pa->info);
	expect_ok(paged_pool_get_info(pa->pool, &pa->info));
	pa_fill_bytes(pa->info.base, 0xff, pa->info.size);
}

void
pa_close(struct pa *pa)
{
	paged_client_close(pa->client);
}

enum paged_status
pa_reserve(struct pa *pa, uint32_t b, uint32_t seq_len)
{
	return seqs_reserve(pa->client, 1, &pa->page_table[b], &seq_len);
}

void
pa_batch_reserve(struct pa *pa, uint32_t n, const uint32_t *seq_len)
{
	for (uint32_t b = 0; b < n; b++)
		expect_ok(pa_reserve(pa, b, seq_len[b]));
}

enum paged_status
pa_erase(struct pa *pa, uint32_t n, const uint32_t *batch_idx)
{
	static const uint32_t nothing[PA_MAX_BATCH];
	paged_seq_id ids[PA_MAX_BATCH];

	for (uint32_t i = 0; i < n; i++)
		ids[i] = pa->page_table[batch_idx[i]];
	return seqs_truncate(pa->client, n, ids, nothing);
}

/* Sequence i of a [B, H, S, D] tensor as the tensor of one plan row. */
static struct paged_tensor
tensor_of(struct pa_device_copies *copies, const struct pa_tensor *tensor, uint32_t i)
{
	bool dense = tensor->batch_stride == 0 && tensor->token_stride == 0;
	int64_t tokens = (int64_t)tensor->n_tokens * tensor->dim;
	int64_t batch_stride = dense ? tensor->n_heads * tokens : tensor->batch_stride;
	int64_t token_stride = dense ? tensor->dim : tensor->token_stride;
	int64_t head_stride = dense ? tokens : tensor->head_stride;
	size_t n = 0;

	if (tensor->n_tokens > 0)
		n = (size_t)((tensor->n_tokens - 1) * token_stride + (tensor->n_heads - 1) * head_stride) + tensor->dim;
	return (struct paged_tensor){ .data = pa_upload(copies, tensor->data + i * batch_stride, n * sizeof(float)),
				      .dtype = PAGED_F32,
				      .n_heads = tensor->n_heads,
				      .dim = tensor->dim,
				      .token_stride = token_stride,
				      .head_stride = head_stride };
}

enum paged_status
pa_assign(struct pa *pa, uint32_t layer, uint32_t n, const uint32_t *batch_idx, const uint32_t *input_pos,
	  const struct pa_tensor *k, const struct pa_tensor *v)
{
	enum paged_status status = PAGED_OK;

	for (uint32_t i = 0; i < n && status == PAGED_OK; i++) {
		struct paged_batch_row row = { .seq = pa->page_table[batch_idx != NULL ? batch_idx[i] : i],
					       .q_len = k->n_tokens };
		struct pa_device_copies copies = { .n = 0 };
		struct paged_append_params params = { .struct_size = sizeof(params),
						      .positions = pa_upload(&copies, &input_pos[i * k->n_tokens],
									     k->n_tokens * sizeof(*input_pos)) };
		struct paged_tensor keys = tensor_of(&copies, k, i), values = { .data = NULL };

		if (v != NULL)
			values = tensor_of(&copies, v, i);
		status = paged_batch_plan(pa->batch, 1, &row);
		if (status == PAGED_OK)
			status = paged_append(pa->batch, layer, &keys, v != NULL ? &values : NULL, &params);
		if (status == PAGED_OK)
			status = paged_batch_validate(pa->batch);
		pa_download_outputs(&copies);
	}
	return status;
}

void
pa_fill(struct pa *pa, uint32_t layer, uint32_t n, const struct pa_tensor *k, const struct pa_tensor *v)
{
	uint32_t *positions = calloc((size_t)n * k->n_tokens + 1, sizeof(*positions));

	for (uint32_t i = 0; i < n * k->n_tokens; i++)
		positions[i] = i % k->n_tokens;
	expect_ok(pa_assign(pa, layer, n, NULL, positions, k, v));
	free(positions);
}

static enum paged_status
rows_of(const struct pa *pa, const struct pa_rows *rows, struct paged_batch_row *to)
{
	enum paged_status status = PAGED_OK;

	for (uint32_t i = 0; i < rows->n && status == PAGED_OK; i++) {
		struct paged_seq_info info = { .struct_size = sizeof(info) };

		to[i] = (struct paged_batch_row){
			.seq = pa->page_table[rows->batch_idx != NULL ? rows->batch_idx[i] : i],
			.q_len = rows->q_len != NULL ? rows->q_len[i] : 1,
			.flags = PAGED_ROW_Q_BASE,
			.q_base = rows->q_base != NULL ? rows->q_base[i] : 0
		};
		status = paged_seq_read(pa->pool, to[i].seq, &info, NULL, 0);
		to[i].kv_len = rows->kv_len != NULL ? rows->kv_len[i] : info.capacity;
	}
	return status;
}

enum paged_status
pa_convert_logical_block_mask(struct pa *pa, const struct paged_block_mask *block_mask, const struct pa_rows *rows,
			      struct paged_block_mask **converted_p)
{
	struct paged_batch_row batch[PA_MAX_BATCH];
	enum paged_status status = rows_of(pa, rows, batch);

	return status != PAGED_OK ? status : paged_block_mask_to_physical(block_mask, rows->n, batch, converted_p);
}

struct pa_converted_mod
pa_get_mask_mod(struct pa *pa, const struct pa_mod *mask_mod, const struct pa_rows *rows)
{
	return (struct pa_converted_mod){ pa, *mask_mod, *rows };
}

struct pa_converted_mod
pa_get_score_mod(struct pa *pa, const struct pa_mod *score_mod, const struct pa_rows *rows)
{
	return (struct pa_converted_mod){ pa, *score_mod, *rows };
}

int64_t
pa_logical(const struct pa *pa, uint32_t b, uint32_t physical)
{
	uint32_t *pages = calloc(pa->info.n_pages, sizeof(*pages));
	uint32_t n = pa_pages(pa, b, pages, pa->info.n_pages), page_size = pa->info.page_size;
	int64_t logical = -1;

	for (uint32_t i = 0; i < n && logical < 0; i++)
		if (pages[i] == physical / page_size)
			logical = i * page_size + physical % page_size;
	free(pages);
	return logical;
}

static bool
converted_point(const struct pa_converted_mod *mod, uint32_t b, uint32_t physical, struct paged_mod_point *point)
{
	int64_t logical = pa_logical(mod->pa, mod->rows.batch_idx != NULL ? mod->rows.batch_idx[b] : b, physical);

	point->b = (int32_t)b;
	point->kv_idx = (int32_t)logical;
	return logical >= 0 && (mod->rows.kv_len == NULL || logical < mod->rows.kv_len[b]);
}

bool
pa_mask_at(const struct pa_converted_mod *mod, uint32_t b, uint32_t h, int32_t q_idx, uint32_t physical_kv_idx)
{
	struct paged_mod_point point = { .h = (int32_t)h, .q_idx = q_idx };
	double visible = 1;

	if (!converted_point(mod, b, physical_kv_idx, &point))
		return false;
	if (mod->mod.mod != NULL)
		expect_ok(paged_mod_evaluate(mod->mod.mod, mod->mod.n_arrays, mod->mod.arrays, &point, &visible));
	return visible != 0;
}

double
pa_score_at(const struct pa_converted_mod *mod, double score, uint32_t b, uint32_t h, int32_t q_idx,
	    uint32_t physical_kv_idx)
{
	struct paged_mod_point point = { .score = score, .h = (int32_t)h, .q_idx = q_idx };

	if (!converted_point(mod, b, physical_kv_idx, &point))
		return -INFINITY;
	if (mod->mod.mod != NULL)
		expect_ok(paged_mod_evaluate(mod->mod.mod, mod->mod.n_arrays, mod->mod.arrays, &point, &score));
	return score;
}

/* The elements of the array before and after its first one (strides may be negative). */
static void
array_reach(const struct paged_array *array, int64_t *before, int64_t *after)
{
	int64_t stride = 1;
	bool dense = true;

	*before = *after = 0;
	for (uint32_t d = 0; d < array->n_dims; d++)
		dense &= array->strides[d] == 0;
	for (uint32_t d = array->n_dims; d-- > 0; stride *= array->extents[d]) {
		int64_t reach = ((int64_t)array->extents[d] - 1) * (dense ? stride : array->strides[d]);

		if (array->extents[d] == 0)
			return;
		*(reach < 0 ? before : after) += reach;
	}
}

/* Copy arrays to the device; parameters stay in host memory. */
static void
arrays_upload(struct pa_device_copies *copies, size_t n, const struct paged_array *arrays, struct paged_array *to)
{
	for (size_t i = 0; i < n; i++) {
		enum paged_dtype dtype = arrays[i].dtype;
		int64_t size = dtype == PAGED_U8 ? 1 : dtype == PAGED_F16 || dtype == PAGED_BF16 ? 2 : 4;
		int64_t before, after;
		const uint8_t *first = arrays[i].data;

		to[i] = arrays[i];
		if (arrays[i].n_dims == 0 || first == NULL)
			continue;
		array_reach(&arrays[i], &before, &after);
		to[i].data =
			(uint8_t *)pa_upload(copies, first + before * size, (size_t)((after - before + 1) * size)) -
			before * size;
	}
}

static enum paged_status
flex_run(struct pa *pa, const struct pa_rows *rows, const struct paged_batch_row *batch, const struct pa_flex *flex,
	 struct pa_device_copies *copies, uint64_t n_q)
{
	size_t n_q_rows = n_q * flex->q_heads, floats = sizeof(float);
	int64_t token_stride = flex->q_token_stride, head_stride = flex->q_head_stride;
	struct paged_mod_set_params mods = { sizeof(mods), flex->mask_mod, flex->score_mod };
	struct paged_attention_params params = { .struct_size = sizeof(params),
						 .scale = flex->scale,
						 .mask = PAGED_MASK_NONE,
						 .lse = pa_upload_output(copies, flex->lse, n_q_rows * floats),
						 .max_score =
							 pa_upload_output(copies, flex->max_score, n_q_rows * floats),
						 .sink = pa_upload(copies, flex->sink, flex->q_heads * floats) };
	struct paged_tensor q = { .dtype = PAGED_F32,
				  .n_heads = flex->q_heads,
				  .dim = pa->info.k.dim,
				  .token_stride = token_stride != 0 ? token_stride : flex->q_heads * pa->info.k.dim,
				  .head_stride = head_stride != 0 ? head_stride : pa->info.k.dim };
	struct paged_tensor out = { .data = pa_upload_output(copies, flex->out, n_q_rows * pa->info.v.dim * floats),
				    .dtype = PAGED_F32,
				    .n_heads = flex->q_heads,
				    .dim = pa->info.v.dim };
	struct paged_array arrays[PA_MAX_COPIES];
	enum paged_status status;

	if (n_q > 0)
		q.data = pa_upload(
			copies, flex->q,
			(size_t)((int64_t)(n_q - 1) * q.token_stride + (q.n_heads - 1) * q.head_stride + q.dim) *
				floats);
	arrays_upload(copies, flex->n_arrays, flex->arrays, arrays);
	status = paged_mod_set_create(pa->batch, &mods, &params.mod_set);
	if (status == PAGED_OK)
		status = paged_mod_set_bind(params.mod_set, flex->n_arrays, arrays, flex->block_mask);
	if (status == PAGED_OK)
		status = paged_batch_plan(pa->batch, rows->n, batch);
	if (status == PAGED_OK)
		status = paged_attention(pa->batch, flex->layer, &q, &out, &params);
	if (status == PAGED_OK)
		status = paged_batch_validate(pa->batch);
	paged_mod_set_destroy(params.mod_set);
	return status;
}

enum paged_status
pa_flex_attention(struct pa *pa, const struct pa_rows *rows, const struct pa_flex *flex)
{
	struct paged_batch_row batch[PA_MAX_BATCH];
	struct pa_device_copies copies = { .n = 0 };
	enum paged_status status = rows_of(pa, rows, batch);
	uint64_t n_q = 0;

	for (uint32_t i = 0; i < rows->n; i++)
		n_q += batch[i].q_len;
	if (status == PAGED_OK)
		status = flex_run(pa, rows, batch, flex, &copies, n_q);
	pa_download_outputs(&copies);
	return status;
}

float
pa_cached(const struct pa *pa, char plane, uint32_t head, uint32_t physical, uint32_t dim)
{
	const struct paged_plane_info *at = plane == 'k' ? &pa->info.k : &pa->info.v;
	uint32_t page = physical / pa->info.page_size, token = physical % pa->info.page_size;
	float row[PAGED_MAX_DIM];

	pa_download(row,
		    (const uint8_t *)pa->info.base + at->offset + page * at->page_stride + head * at->head_stride +
			    token * at->token_stride,
		    at->token_stride);
	return reference_load(row, at->dtype, dim);
}

uint32_t
pa_pages(const struct pa *pa, uint32_t b, uint32_t *pages, uint32_t n_max)
{
	struct paged_seq_info info = { .struct_size = sizeof(info) };

	expect_ok(paged_seq_read(pa->pool, pa->page_table[b], &info, pages, n_max));
	return info.n_pages;
}

uint32_t
pa_capacity(const struct pa *pa, uint32_t b)
{
	struct paged_seq_info info = { .struct_size = sizeof(info) };

	expect_ok(paged_seq_read(pa->pool, pa->page_table[b], &info, NULL, 0));
	return info.capacity;
}

uint32_t
pa_n_free(const struct pa *pa)
{
	struct paged_check_result result = { .struct_size = sizeof(result) };

	expect_ok(paged_pool_check(pa->pool, &result));
	cr_assert(result.holds, "%s", result.text);
	return result.n_free;
}
