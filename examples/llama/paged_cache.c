/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/paged_cache.h"

#include <stdlib.h>
#include <string.h>

#include "examples/llama/device.h"

/* Tokens reserved beyond what a step needs. */
#define RESERVE_AHEAD 32u
#define EMBEDDED_PAGE_SIZE 16u

struct paged_cache {
	struct attention base;
	const struct model *model;
	struct paged_client *client;
	struct paged_pool *pool;
	struct paged_batch *batch;
	struct paged_batch_row *rows; /* [max_rows] */
	uint32_t max_rows;
	uint32_t n_tokens; /* of the plan */
	enum paged_dtype dtype;
	struct device *device; /* of a pool in a GPU's memory */
};

static enum attention_status
fail(const struct paged_cache *cache, struct error *error)
{
	error_set(error, "%s", paged_client_error(cache->client));
	return ATTENTION_FAILED;
}

static enum attention_status
paged_cache_open(struct attention *attention, uint64_t *sequence_p, struct error *error)
{
	struct paged_cache *cache = (struct paged_cache *)attention;

	switch (paged_seq_create(cache->client, 1, &(struct paged_seq_params){ .pool = cache->pool }, sequence_p)) {
	case PAGED_OK:
		return ATTENTION_OK;
	case PAGED_ERR_FULL:
		return ATTENTION_FULL;
	default:
		return fail(cache, error);
	}
}

static void
paged_cache_close(struct attention *attention, uint64_t sequence)
{
	struct paged_cache *cache = (struct paged_cache *)attention;

	/* If this fails, the daemon has ended or will take the pages with the session. */
	(void)paged_seq_erase(cache->client, 1, &sequence);
}

static enum attention_status
paged_cache_plan(struct attention *attention, const struct attention_row *rows, uint32_t n_rows, bool *waits,
		 struct error *error)
{
	struct paged_cache *cache = (struct paged_cache *)attention;
	enum paged_status status;

	cache->n_tokens = 0;
	for (uint32_t r = 0; r < n_rows; r++) {
		cache->rows[r] = (struct paged_batch_row){ .seq = rows[r].sequence,
							   .q_len = rows[r].q_len,
							   .kv_len = rows[r].kv_len };
		cache->n_tokens += rows[r].q_len;
	}
	do
		status = paged_batch_plan(cache->batch, n_rows, cache->rows);
	while (status == PAGED_ERR_AGAIN);
	if (status == PAGED_OK)
		return ATTENTION_OK;
	if (status != PAGED_ERR_FULL)
		return fail(cache, error);
	for (uint32_t r = 0; r < n_rows; r++)
		waits[r] = paged_batch_missing(cache->batch, r) > 0;
	return ATTENTION_FULL;
}

/* The tensors' places on the GPU; the work on the last layer's is done, for its result was waited for. */
static bool
tensors_in(struct paged_cache *cache, struct paged_tensor *q, struct paged_tensor *k, struct paged_tensor *v,
	   struct paged_tensor *out, struct error *error)
{
	size_t head = cache->n_tokens * (size_t)cache->model->head_dim * sizeof(float);

	q->data = device_in(cache->device, DEVICE_Q, q->data, head * q->n_heads, error);
	if (q->data != NULL)
		k->data = device_in(cache->device, DEVICE_K, k->data, head * k->n_heads, error);
	if (q->data != NULL && k->data != NULL)
		v->data = device_in(cache->device, DEVICE_V, v->data, head * v->n_heads, error);
	if (q->data != NULL && k->data != NULL && v->data != NULL)
		out->data = device_room(cache->device, DEVICE_OUT, head * out->n_heads, error);
	return q->data != NULL && k->data != NULL && v->data != NULL && out->data != NULL;
}

static bool
append_and_attend(struct paged_cache *cache, uint32_t layer, const struct paged_tensor *q, const struct paged_tensor *k,
		  const struct paged_tensor *v, const struct paged_tensor *out, struct error *error)
{
	return (paged_append(cache->batch, layer, k, v, NULL) == PAGED_OK &&
		paged_attention(cache->batch, layer, q, out, NULL) == PAGED_OK) ||
	       error_set(error, "%s", paged_client_error(cache->client));
}

/* What kernels on a GPU find wrong they tell here; once a step is enough. */
static bool
faults_none(struct paged_cache *cache, struct error *error)
{
	return paged_batch_validate(cache->batch) == PAGED_OK ||
	       error_set(error, "%s", paged_client_error(cache->client));
}

static bool
paged_cache_run(struct attention *attention, uint32_t layer, const float *q, const float *k, const float *v, float *out,
		struct error *error)
{
	struct paged_cache *cache = (struct paged_cache *)attention;
	const struct model *model = cache->model;
	struct paged_tensor tensor_k = {
		.data = (void *)k, .dtype = PAGED_F32, .n_heads = model->n_kv_heads, .dim = model->head_dim
	};
	struct paged_tensor tensor_v = {
		.data = (void *)v, .dtype = PAGED_F32, .n_heads = model->n_kv_heads, .dim = model->head_dim
	};
	struct paged_tensor tensor_q = {
		.data = (void *)q, .dtype = PAGED_F32, .n_heads = model->n_heads, .dim = model->head_dim
	};
	struct paged_tensor tensor_out = {
		.data = out, .dtype = PAGED_F32, .n_heads = model->n_heads, .dim = model->head_dim
	};

	if (cache->device == NULL)
		return append_and_attend(cache, layer, &tensor_q, &tensor_k, &tensor_v, &tensor_out, error);
	if (tensors_in(cache, &tensor_q, &tensor_k, &tensor_v, &tensor_out, error) &&
	    append_and_attend(cache, layer, &tensor_q, &tensor_k, &tensor_v, &tensor_out, error) &&
	    device_out(cache->device, DEVICE_OUT, out,
		       cache->n_tokens * (size_t)model->n_heads * model->head_dim * sizeof(float), error))
		return layer + 1 < model->n_layers || faults_none(cache, error);
	/* Whoever is told may give back the pages. */
	device_wait(cache->device);
	return false;
}

static uint32_t
paged_cache_n_pages(struct attention *attention, uint64_t sequence)
{
	struct paged_cache *cache = (struct paged_cache *)attention;
	struct paged_seq_info info = { .struct_size = sizeof(info) };

	return paged_seq_read(cache->pool, sequence, &info, NULL, 0) == PAGED_OK ? info.n_pages : 0;
}

static const struct attention_ops paged_cache_ops = {
	.open = paged_cache_open,
	.close = paged_cache_close,
	.plan = paged_cache_plan,
	.run = paged_cache_run,
	.n_pages = paged_cache_n_pages,
};

/* The library's parts of its work as parts of a job of ours. */
struct lent {
	paged_work_fn work;
	void *argument;
};

static void
lent_part(void *job, uint32_t part, uint32_t thread)
{
	const struct lent *lent = job;

	(void)thread;
	lent->work(lent->argument, part);
}

static void
run_on_team(void *argument, paged_work_fn work, void *work_argument, uint32_t n)
{
	struct lent lent = { work, work_argument };

	team_run(argument, n, lent_part, &lent);
}

static enum paged_status
attach(struct paged_cache *cache, const struct paged_attachment *attachment)
{
	struct paged_client_params params = { .struct_size = sizeof(params),
					      .name = attachment->name,
					      .n_threads = attachment->n_threads };
	struct paged_pool_params pool = { .struct_size = sizeof(pool),
					  .name = attachment->pool,
					  .n_layers = cache->model->n_layers,
					  .n_kv_heads = cache->model->n_kv_heads,
					  .k_dim = cache->model->head_dim,
					  .dtype = attachment->embedded_dtype,
					  .page_size = EMBEDDED_PAGE_SIZE,
					  .n_pages = attachment->embedded_pages,
					  .backend = attachment->embedded_backend };

	if (attachment->team != NULL) {
		params.n_threads = team_n_threads(attachment->team);
		params.run = run_on_team;
		params.run_argument = attachment->team;
	}
	if (attachment->embedded_pages > 0)
		return paged_client_open_embedded(&pool, 1, &params, &cache->client);
	return paged_client_open(attachment->runtime_dir, &params, &cache->client);
}

static bool
check_shape(struct paged_cache *cache, struct error *error)
{
	const struct model *model = cache->model;
	struct paged_pool_info info = { .struct_size = sizeof(info) };

	if (paged_pool_get_info(cache->pool, &info) != PAGED_OK)
		return error_set(error, "%s", paged_client_error(cache->client));
	cache->dtype = info.k.dtype;
	cache->base.max_length = info.max_length < model->n_context ? info.max_length : model->n_context;
	if (info.n_layers != model->n_layers || info.n_kv_heads != model->n_kv_heads || info.k.dim != model->head_dim ||
	    info.v.dim != model->head_dim || info.v_in_k)
		return error_set(
			error,
			"pool %s has %u layers, %u KV heads, K and V of %u and %u; the model needs %u, %u, %u and %u",
			info.name, info.n_layers, info.n_kv_heads, info.k.dim, info.v.dim, model->n_layers,
			model->n_kv_heads, model->head_dim, model->head_dim);
	if (strcmp(info.backend, "cuda") == 0)
		cache->device = device_open(info.base, error);
	return strcmp(info.backend, "cuda") != 0 || cache->device != NULL;
}

bool
paged_cache_create(const struct model *model, const struct paged_attachment *attachment, struct attention **attention_p,
		   struct error *error)
{
	struct paged_batch_params params = { .struct_size = sizeof(params),
					     .max_rows = attachment->max_rows,
					     .reserve_ahead = RESERVE_AHEAD };
	struct paged_cache *cache = calloc(1, sizeof(*cache));
	enum paged_status status;

	if (cache == NULL)
		return error_set(error, "no memory for a client");
	cache->base.ops = &paged_cache_ops;
	cache->model = model;
	cache->max_rows = attachment->max_rows;
	cache->rows = calloc(attachment->max_rows, sizeof(*cache->rows));
	if (cache->rows == NULL) {
		error_set(error, "no memory for %u rows", attachment->max_rows);
		goto err_destroy;
	}
	status = attach(cache, attachment);
	if (status == PAGED_OK)
		status = paged_pool_open(cache->client, attachment->pool, &cache->pool);
	if (status != PAGED_OK) {
		error_set(error, "%s%s", cache->client != NULL ? paged_client_error(cache->client) : "out of memory",
			  status == PAGED_ERR_UNSUPPORTED && attachment->embedded_backend != NULL
				  ? "; without a GPU, leave out --backend cuda"
				  : "");
		goto err_destroy;
	}
	if (!check_shape(cache, error))
		goto err_destroy;
	if (paged_batch_create(cache->pool, &params, &cache->batch) != PAGED_OK ||
	    (cache->device != NULL && paged_batch_stream(cache->batch, device_stream(cache->device)) != PAGED_OK)) {
		fail(cache, error);
		goto err_destroy;
	}
	*attention_p = &cache->base;
	return true;

err_destroy:
	paged_cache_destroy(&cache->base);
	return false;
}

void
paged_cache_destroy(struct attention *attention)
{
	struct paged_cache *cache = (struct paged_cache *)attention;

	if (cache == NULL)
		return;
	/* A plan that failed may have left copies into the batch's memory. */
	if (cache->device != NULL)
		device_wait(cache->device);
	paged_batch_destroy(cache->batch);
	device_close(cache->device);
	paged_pool_close(cache->pool);
	paged_client_close(cache->client);
	free(cache->rows);
	free(cache);
}

enum paged_dtype
paged_cache_dtype(const struct attention *attention)
{
	return ((const struct paged_cache *)attention)->dtype;
}
