/* SPDX-License-Identifier: Apache-2.0 */
/* The calls on a planned batch: check the caller's tensors, then call the back end. */
#include "config.h"

#include "client/api/checking.h"
#include "client/api/batch/batch.h"
#include "client/api/compute_ops.h"
#include "client/api/enter.h"
#include "client/api/mods/mod_set.h"
#include "client/api/overlap.h"

#include <inttypes.h>
#include <math.h>

/* The number of query rows of the plan. */
static struct tensor_tokens
batch_plan_tokens(const struct paged_batch *batch)
{
	return (struct tensor_tokens){ .n = batch->total_q, .uniform = batch->on_device ? 0 : batch->uniform_q_len };
}

static enum paged_status
batch_enter_layer(const struct paged_batch *batch, uint32_t layer)
{
	enum paged_status status = batch_enter(batch);

	if (status == PAGED_OK && layer >= batch->pool->mapping.layout.params.n_layers)
		return client_failf(batch->pool->client, PAGED_ERR_INVALID, "layer %u of a pool of %u layers", layer,
				    batch->pool->mapping.layout.params.n_layers);
	return status;
}

static struct kernel_pages
batch_layer_pages(const struct paged_batch *batch, uint32_t layer)
{
	return (struct kernel_pages){ .layout = &batch->pool->mapping.layout,
				      .base = batch->pool->mapping.base,
				      .layer = layer };
}

static enum paged_status
scales_in(const struct paged_batch *batch, const float *k_scale, const float *v_scale, struct paged_error *error)
{
	static const char *const names[2] = { "k_scale", "v_scale" };
	const float *const scales[2] = { k_scale, v_scale };
	const struct owner_pool *mapping = &batch->pool->mapping;
	enum paged_dtype dtype = mapping->layout.params.dtype;

	for (unsigned int i = 0; i < 2; i++) {
		if (scales[i] == NULL)
			continue;
		if (i == 1 && mapping->layout.params.v_in_k)
			return paged_fail(error, PAGED_ERR_INVALID, "pool %s keeps V in K: v_scale is not possible",
					  mapping->name);
		if (dtype != PAGED_E4M3 && dtype != PAGED_E5M2)
			return paged_fail(error, PAGED_ERR_INVALID, "%s: pool %s keeps %s, scales are of e4m3 and e5m2",
					  names[i], mapping->name, paged_dtype_name(dtype));
		for (uint32_t head = 0;
		     !batch->pool->compute_ops->on_device && head < mapping->layout.params.n_kv_heads; head++) {
			float scale = scales[i][head];

			if (!(scale > 0) || !isfinite(scale) || !isfinite(1 / scale))
				return paged_fail(
					error, PAGED_ERR_INVALID,
					"%s: KV head %u has %g; a scale and its reciprocal are finite and above 0",
					names[i], head, (double)scale);
		}
	}
	return PAGED_OK;
}

static enum paged_status
rotary_queries_in(const struct paged_batch *batch, struct kernel_rotary *to, const struct paged_rotary *from,
		  struct paged_error *error)
{
	uint32_t k_dim = batch->pool->mapping.layout.params.k_dim;
	const struct tensor_tokens tokens = batch_plan_tokens(batch);
	enum paged_status status;

	if (from->q.data == NULL) {
		if (from->q_out.data == NULL)
			return PAGED_OK;
		return paged_fail(error, PAGED_ERR_INVALID, "rotary has a q_out and no q");
	}
	status = client_tensor_in(&to->q, "rotary q", &from->q, 0, k_dim, &tokens, error);
	if (status == PAGED_OK)
		status = client_tensor_out(&to->q_out, "rotary q_out", &from->q_out, from->q.n_heads, k_dim, &tokens,
					   error);
	return status == PAGED_OK ? client_tensor_check_in_place("rotary q_out", &to->q_out, "q", &to->q, error)
				  : status;
}

/* Check rotary positions.  Rows without K or Q to rotate are not checked. */
static enum paged_status
rotary_positions_check(const struct paged_batch *batch, const struct kernel_rotary *rotary, struct paged_error *error)
{
	const uint32_t *positions = rotary->positions;

	for (uint32_t r = 0; r < batch->n_rows; r++) {
		const struct kernel_row *row = &batch->kernel_row[r];
		/* Default positions ascend: the first and the last one are checked. */
		uint32_t step = positions != NULL || row->q_len < 2 ? 1 : row->q_len - 1;

		if (row->skip_append && rotary->q.data == NULL)
			continue;
		for (uint64_t i = 0; i < row->q_len; i += step) {
			int64_t position = positions != NULL ? positions[row->q_start + i] : row->q_base + (int64_t)i;

			if (position < 0 || position >= (int64_t)rotary->n_positions)
				return paged_fail(error, PAGED_ERR_RANGE,
						  "row %u: rotary position %" PRId64 " of query row %" PRIu64
						  ", the table has %u positions",
						  r, position, i, rotary->n_positions);
		}
	}
	return PAGED_OK;
}

static enum paged_status
rotary_in(const struct paged_batch *batch, struct kernel_rotary *to, const struct paged_rotary *from,
	  struct paged_error *error)
{
	uint32_t k_dim = batch->pool->mapping.layout.params.k_dim;
	struct paged_rotary complete;
	enum paged_status status = client_params_in(&complete, sizeof(complete), from, "paged_rotary", error);

	if (status != PAGED_OK)
		return status;
	if (complete.cos_sin == NULL || complete.n_positions == 0)
		return paged_fail(error, PAGED_ERR_INVALID, "rotary has no table of cosines and sines");
	if (complete.dim == 0 || complete.dim % 2 != 0)
		return paged_fail(error, PAGED_ERR_INVALID, "rotary turns %u dims, which are no pairs", complete.dim);
	if (complete.dim > k_dim || complete.first > k_dim - complete.dim)
		return paged_fail(error, PAGED_ERR_INVALID, "rotary turns %u dims from %u on, K has %u", complete.dim,
				  complete.first, k_dim);
	if (complete.style != PAGED_ROTARY_NEOX && complete.style != PAGED_ROTARY_INTERLEAVED)
		return paged_fail(error, PAGED_ERR_INVALID, "rotary style %d is neither NeoX nor interleaved",
				  (int)complete.style);
	*to = (struct kernel_rotary){
		.cos_sin = complete.cos_sin,
		.n_positions = complete.n_positions,
		.dim = complete.dim,
		.first = complete.first,
		.interleaved = complete.style == PAGED_ROTARY_INTERLEAVED,
		.positions = complete.positions,
	};
	status = rotary_queries_in(batch, to, &complete, error);
	if (status != PAGED_OK || batch->pool->compute_ops->on_device)
		return status;
	return rotary_positions_check(batch, to, error);
}

static enum paged_status
positions_check(const struct paged_batch *batch, const uint32_t *positions, struct paged_error *error)
{
	for (uint32_t r = 0; r < batch->n_rows; r++) {
		const struct kernel_row *row = &batch->kernel_row[r];
		const struct batch_row *known = &batch->row[r];

		for (uint32_t i = 0; !row->skip_append && i < row->q_len; i++) {
			uint32_t position = positions[row->q_start + i];

			if (position >= known->capacity)
				return paged_fail(error, PAGED_ERR_CAPACITY,
						  "row %u: position %u is past the %u tokens it has room for", r,
						  position, known->capacity);
			if (position < known->writable_from)
				return paged_fail(error, PAGED_ERR_PERM,
						  "row %u: position %u may not be written, the row is writable from %u",
						  r, position, known->writable_from);
		}
	}
	return PAGED_OK;
}

static enum paged_status
append_check_rows(const struct paged_batch *batch, const uint32_t *positions, struct paged_error *error)
{
	uint32_t r = batch->bad_row_foreign, first;
	const struct kernel_row *row;

	if (r != BATCH_NO_ROW)
		return batch_row_fail_foreign(batch, r, error);
	if (positions != NULL && batch->pool->compute_ops->on_device)
		return PAGED_OK;
	if (positions != NULL)
		return positions_check(batch, positions, error);
	r = batch->bad_row_unwritable;
	if (r != BATCH_NO_ROW) {
		row = &batch->kernel_row[r];
		if (row->q_len > row->kv_len)
			return paged_fail(error, PAGED_ERR_INVALID,
					  "row %u: %u tokens to append end at kv_len %u: positions are needed", r,
					  row->q_len, row->kv_len);
		first = row->kv_len - row->q_len;
		if (batch->row[r].id == 0)
			return paged_fail(
				error, PAGED_ERR_PERM,
				"row %u: position %u lies in a page before kv_first %u, so its entry of pages is"
				" not used",
				r, first, row->kv_first);
		if (first < batch->row[r].first * batch->pool->mapping.view.page_size)
			return paged_fail(error, PAGED_ERR_PERM,
					  "row %u: the page of position %u of sequence " SEQ_FORMAT
					  " was given back; its first page begins at token %u",
					  r, first, SEQ_ARGS(batch->row[r].id),
					  batch->row[r].first * batch->pool->mapping.view.page_size);
		return paged_fail(error, PAGED_ERR_PERM,
				  "row %u: position %u of sequence " SEQ_FORMAT
				  " is shared or published: it is writable from %u; fork it at %u, or keep %u",
				  r, first, SEQ_ARGS(batch->row[r].id), batch->row[r].writable_from, first,
				  first - first % batch->pool->mapping.view.page_size);
	}
	if (batch->bad_row_duplicate != BATCH_NO_ROW)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "rows %u and %u write the same token: position %u of row %u", batch->duplicate_of,
				  batch->bad_row_duplicate, batch->duplicate_position, batch->bad_row_duplicate);
	return PAGED_OK;
}

static enum paged_status
append_tensors_in(const struct paged_batch *batch, struct append_args *args, const struct paged_tensor *k,
		  const struct paged_tensor *v, struct paged_error *error)
{
	const struct layout_params *geometry = &batch->pool->mapping.layout.params;
	const struct tensor_tokens tokens = batch_plan_tokens(batch);
	enum paged_status status =
		client_tensor_in(&args->k, "k", k, geometry->n_kv_heads, geometry->k_dim, &tokens, error);

	if (status != PAGED_OK)
		return status;
	if (!geometry->v_in_k)
		return client_tensor_in(&args->v, "v", v, geometry->n_kv_heads, geometry->v_dim, &tokens, error);
	if (v == NULL)
		return PAGED_OK;
	return paged_fail(error, PAGED_ERR_INVALID, "pool %s keeps V in K: there is no v to append",
			  batch->pool->mapping.name);
}

/*
 * After an append: if tokens that it wrote have become protected meanwhile, by another thread or process, the pages may
 * hold other values than what was published or shared.  paged_batch_validate() reports it.  On a device, appends come
 * to an end later, when publishing them is no error.
 */
static void
append_check_again(struct paged_batch *batch, const uint32_t *positions)
{
	struct paged_error why;

	if (batch->pool->compute_ops->on_device || batch->overtaken.status != PAGED_OK)
		return;
	/* An entry that was replaced is what validate finds anyway. */
	if (batch_protect(batch, &why) != PAGED_OK || append_check_rows(batch, positions, &why) == PAGED_OK)
		return;
	paged_fail(&batch->overtaken, PAGED_ERR_STALE, "while an append wrote: %s", why.text);
}

enum paged_status
paged_append(struct paged_batch *batch, uint32_t layer, const struct paged_tensor *k, const struct paged_tensor *v,
	     const struct paged_append_params *params)
{
	enum paged_status status = batch_enter_layer(batch, layer);
	struct append_args args = { 0 };
	struct paged_append_params complete;
	struct kernel_rotary rotary;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	status = client_params_in(&complete, sizeof(complete), params, "paged_append_params", &error);
	if (status == PAGED_OK)
		status = batch_protect(batch, &error);
	if (status == PAGED_OK)
		status = append_check_rows(batch, complete.positions, &error);
	if (status == PAGED_OK)
		status = append_tensors_in(batch, &args, k, v, &error);
	if (status == PAGED_OK)
		status = scales_in(batch, complete.k_scale, complete.v_scale, &error);
	if (status == PAGED_OK && complete.rotary != NULL)
		status = rotary_in(batch, &rotary, complete.rotary, &error);
	args.positions = complete.positions;
	args.k_scale = complete.k_scale;
	args.v_scale = complete.v_scale;
	args.rotary = complete.rotary != NULL ? &rotary : NULL;
	if (status == PAGED_OK)
		status = overlap_check_append(batch, &args, &error);
	if (status != PAGED_OK)
		return client_fail(batch->pool->client, &error);
	args.pages = batch_layer_pages(batch, layer);
	args.rows = batch->kernel_row;
	args.n_rows = batch->n_rows;
	status = batch->pool->compute_ops->append(batch, &args, &error);
	append_check_again(batch, complete.positions);
	if (status == PAGED_OK && batch->pool->checking != NULL)
		checking_append(batch, layer, complete.positions != NULL);
	return client_leave(batch->pool->client, status, &error);
}

/* Checks the bounds of a gather and counts its tokens; bounds in device memory give an upper bound of the count. */
static enum paged_status
gather_count_tokens(const struct paged_batch *batch, const struct paged_gather_params *params,
		    struct tensor_tokens *tokens, struct paged_error *error)
{
	bool known = !batch->pool->compute_ops->on_device;
	bool uniform = !batch->on_device && (known || (params->begin == NULL && params->end == NULL));

	*tokens = (struct tensor_tokens){ 0 };
	for (uint32_t r = 0; r < batch->n_rows; r++) {
		uint32_t kv_first = batch->kernel_row[r].kv_first, kv_len = batch->kernel_row[r].kv_len;
		uint32_t begin = known && params->begin != NULL ? params->begin[r] : kv_first;
		uint32_t end = known && params->end != NULL ? params->end[r] : kv_len;

		if (begin > end || end > kv_len)
			return paged_fail(error, PAGED_ERR_RANGE,
					  "row %u: tokens %u to %u are wanted, its kv_len is %u", r, begin, end,
					  kv_len);
		if (begin < kv_first && begin != end)
			return paged_fail(error, PAGED_ERR_RANGE,
					  "row %u: tokens %u to %u are wanted, its kv_first is %u", r, begin, end,
					  kv_first);
		uniform = uniform && (r == 0 || tokens->uniform == end - begin);
		tokens->uniform = end - begin;
		tokens->n += end - begin;
	}
	if (!uniform)
		tokens->uniform = 0;
	return PAGED_OK;
}

static enum paged_status
gather_tensors_out(const struct paged_batch *batch, struct gather_args *args, const struct paged_tensor *k,
		   const struct paged_tensor *v, const struct tensor_tokens *tokens, struct paged_error *error)
{
	const struct layout_params *geometry = &batch->pool->mapping.layout.params;
	enum paged_status status = PAGED_OK;

	if (k == NULL && v == NULL)
		return paged_fail(error, PAGED_ERR_INVALID, "neither k nor v is wanted");
	if (k != NULL)
		status = client_tensor_out(&args->k, "k", k, geometry->n_kv_heads, geometry->k_dim, tokens, error);
	if (status == PAGED_OK && v != NULL)
		status = client_tensor_out(&args->v, "v", v, geometry->n_kv_heads, geometry->v_dim, tokens, error);
	return status;
}

enum paged_status
paged_gather(struct paged_batch *batch, uint32_t layer, const struct paged_tensor *k, const struct paged_tensor *v,
	     const struct paged_gather_params *params)
{
	enum paged_status status = batch_enter_layer(batch, layer);
	struct gather_args args = { 0 };
	struct paged_gather_params complete;
	struct paged_error error;
	struct tensor_tokens tokens;

	if (status != PAGED_OK)
		return status;
	status = client_params_in(&complete, sizeof(complete), params, "paged_gather_params", &error);
	if (status == PAGED_OK)
		status = gather_count_tokens(batch, &complete, &tokens, &error);
	if (status == PAGED_OK)
		status = gather_tensors_out(batch, &args, k, v, &tokens, &error);
	if (status == PAGED_OK)
		status = scales_in(batch, complete.k_scale, complete.v_scale, &error);
	args.begin = complete.begin;
	args.end = complete.end;
	args.k_scale = complete.k_scale;
	args.v_scale = complete.v_scale;
	if (status == PAGED_OK)
		status = overlap_check_gather(batch, &args, &tokens, &error);
	if (status != PAGED_OK)
		return client_fail(batch->pool->client, &error);
	args.pages = batch_layer_pages(batch, layer);
	args.rows = batch->kernel_row;
	args.n_rows = batch->n_rows;
	status = batch->pool->compute_ops->gather(batch, &args, &error);
	return client_leave(batch->pool->client, status, &error);
}

static enum paged_status
attention_tensors_in(const struct paged_batch *batch, struct attention_args *args, const struct paged_tensor *q,
		     const struct paged_tensor *out, struct paged_error *error)
{
	const struct layout_params *geometry = &batch->pool->mapping.layout.params;
	const struct tensor_tokens tokens = batch_plan_tokens(batch);
	enum paged_status status = client_tensor_in(&args->q, "q", q, 0, geometry->k_dim, &tokens, error);

	if (status == PAGED_OK && q->n_heads % geometry->n_kv_heads != 0)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "q has %u heads, which is not a multiple of the pool's %u KV heads", q->n_heads,
				  geometry->n_kv_heads);
	if (status == PAGED_OK)
		status = client_tensor_out(&args->out, "out", out, q->n_heads, geometry->v_dim, &tokens, error);
	return status;
}

static enum paged_status
attention_check_args(const struct paged_batch *batch, const struct attention_args *args,
		     const struct paged_attention_params *params, struct paged_error *error)
{
	if (!isfinite(params->scale))
		return paged_fail(error, PAGED_ERR_INVALID, "scale is not finite");
	if (params->mask != PAGED_MASK_CAUSAL && params->mask != PAGED_MASK_NONE)
		return paged_fail(error, PAGED_ERR_INVALID, "mask %d is neither causal nor none", (int)params->mask);
	if (params->lse_without_sink > 1)
		return paged_fail(error, PAGED_ERR_INVALID, "lse_without_sink is %u, neither 0 nor 1",
				  params->lse_without_sink);
	return params->mod_set != NULL ? mod_set_check(params->mod_set, batch, args->q.n_heads, error) : PAGED_OK;
}

enum paged_status
paged_attention(struct paged_batch *batch, uint32_t layer, const struct paged_tensor *q, const struct paged_tensor *out,
		const struct paged_attention_params *params)
{
	enum paged_status status = batch_enter_layer(batch, layer);
	struct attention_args args = { 0 };
	struct paged_attention_params complete;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	status = client_params_in(&complete, sizeof(complete), params, "paged_attention_params", &error);
	if (status == PAGED_OK)
		status = attention_tensors_in(batch, &args, q, out, &error);
	if (status == PAGED_OK)
		status = attention_check_args(batch, &args, &complete, &error);
	if (status == PAGED_OK)
		status = scales_in(batch, complete.k_scale, complete.v_scale, &error);
	args.sink = complete.sink;
	args.lse = complete.lse;
	args.max_score = complete.max_score;
	args.k_scale = complete.k_scale;
	args.v_scale = complete.v_scale;
	if (status == PAGED_OK)
		status = overlap_check_attention(batch, &args, &error);
	if (status == PAGED_OK && batch->pool->checking != NULL)
		status = checking_attention(batch, layer, &error);
	if (status != PAGED_OK)
		return client_fail(batch->pool->client, &error);
	args.pages = batch_layer_pages(batch, layer);
	args.rows = batch->kernel_row;
	args.n_rows = batch->n_rows;
	args.scale = complete.scale != 0 ? complete.scale : 1.0f / sqrtf((float)args.q.dim);
	args.causal = complete.mask == PAGED_MASK_CAUSAL;
	args.mod_set = complete.mod_set != NULL ? complete.mod_set->kernel : NULL;
	args.lse_without_sink = complete.lse_without_sink != 0;
	status = batch->pool->compute_ops->attention(batch, &args, complete.mod_set, &error);
	return client_leave(batch->pool->client, status, &error);
}

static enum paged_status
merge_args_in(struct merge_args *args, const struct paged_merge_params *params, struct paged_error *error)
{
	static const char *const names[2] = { "part[0] (a)", "part[1] (b)" };
	const struct paged_tensor *out = &params->out;
	const struct tensor_tokens tokens = { .n = params->n_tokens, .uniform = params->q_len };
	enum paged_status status;

	if (params->q_len != 0 && params->n_tokens % params->q_len != 0)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "n_tokens is %" PRIu64 ", which is not a multiple of q_len %" PRIu64,
				  params->n_tokens, params->q_len);
	if (out->dim == 0 || out->dim > PAGED_MAX_DIM)
		return paged_fail(error, PAGED_ERR_INVALID, "out has %u dims, 1 to %u are possible", out->dim,
				  PAGED_MAX_DIM);
	status = client_tensor_out(&args->out, "out", out, 0, out->dim, &tokens, error);
	for (unsigned int i = 0; status == PAGED_OK && i < 2; i++) {
		status = client_tensor_in(&args->part[i].out, names[i], &params->part[i], out->n_heads, out->dim,
					  &tokens, error);
		if (status == PAGED_OK && params->part_lse[i] == NULL && params->n_tokens != 0)
			return paged_fail(error, PAGED_ERR_INVALID, "%s has no lse", names[i]);
		args->part[i].lse = params->part_lse[i];
		if (status == PAGED_OK && params->n_tokens != 0)
			status = client_tensor_check_in_place("out", &args->out, names[i], &args->part[i].out, error);
	}
	args->n_tokens = params->n_tokens;
	args->lse = params->lse;
	return status == PAGED_OK ? overlap_check_merge(args, &tokens, error) : status;
}

enum paged_status
paged_merge(struct paged_batch *batch, const struct paged_merge_params *params)
{
	struct paged_client *client = batch_client(batch);
	enum paged_status status = client_enter(client);
	struct paged_merge_params complete;
	struct merge_args args = { 0 };
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	status = client_params_in(&complete, sizeof(complete), params, "paged_merge_params", &error);
	if (status == PAGED_OK)
		status = merge_args_in(&args, &complete, &error);
	if (status != PAGED_OK)
		return client_fail(client, &error);
	status = batch->pool->compute_ops->merge(batch, &args, &error);
	return client_leave(batch->pool->client, status, &error);
}
