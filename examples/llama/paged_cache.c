/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/paged_cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/llama/device.h"
#include "examples/llama/die.h"
#include "examples/llama/xalloc.h"

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
	uint32_t n_tokens;            /* of the plan */
	bool shares;                  /* sequences start on published prefixes, and are published */
	uint8_t salt[PAGED_DIGEST_SIZE];
	struct paged_prefix *prefixes;   /* [max_rows] */
	struct paged_publish *publishes; /* [max_rows] */
	enum paged_dtype dtype;
	struct device *device; /* of a pool in a GPU's memory */
};

static void
paged_cache_check(const struct paged_cache *cache, enum paged_status status)
{
	if (status != PAGED_OK)
		die("%s", cache->client != NULL ? paged_client_error(cache->client) : "out of memory");
}

/* --------------------------------------------------------------- sequences */

static struct paged_prefix
paged_cache_prefix(const struct paged_cache *cache, const uint32_t *tokens, uint32_t n_tokens)
{
	return (struct paged_prefix){
		.struct_size = sizeof(struct paged_prefix), .salt = cache->salt, .tokens = tokens, .n_tokens = n_tokens
	};
}

/* The pool is full, or the user's tenant is at its limit: in both cases sequences that end make room. */
static bool
lacks_pages(enum paged_status status)
{
	return status == PAGED_ERR_FULL || status == PAGED_ERR_QUOTA;
}

static bool
paged_cache_open(struct attention *attention, const uint32_t *tokens, uint32_t n_tokens, uint64_t *sequence_p,
		 uint32_t *n_found_p)
{
	struct paged_cache *cache = (struct paged_cache *)attention;
	struct paged_prefix prefix = paged_cache_prefix(cache, tokens, n_tokens);
	struct paged_start start = { .prefix = cache->shares ? &prefix : NULL, .reserve = n_tokens };
	enum paged_status status;

	/* With room for the first tokens of the answer, so that the first plan sends no request. */
	if (start.reserve + RESERVE_AHEAD <= attention->max_length)
		start.reserve += RESERVE_AHEAD;
	status = paged_seq_start(cache->pool, 1, &start, sequence_p, n_found_p);
	if (lacks_pages(status)) {
		start.reserve = n_tokens;
		status = paged_seq_start(cache->pool, 1, &start, sequence_p, n_found_p);
	}
	if (!lacks_pages(status))
		paged_cache_check(cache, status);
	return status == PAGED_OK;
}

static void
paged_cache_publish(struct attention *attention, const struct attention_tokens *written, uint32_t n)
{
	struct paged_cache *cache = (struct paged_cache *)attention;
	enum paged_status status;

	if (!cache->shares)
		return;
	for (uint32_t i = 0; i < n; i++) {
		cache->prefixes[i] = paged_cache_prefix(cache, written[i].ids, written[i].n);
		cache->publishes[i] =
			(struct paged_publish){ .seq = written[i].sequence, .prefix = &cache->prefixes[i] };
	}
	/* The library sends what is not published yet; on a GPU, as soon as the stream has come so far. */
	status = paged_batch_publish(cache->batch, n, cache->publishes);
	if (status == PAGED_ERR_UNSUPPORTED) /* the pool has publish = no */
		cache->shares = false;
	else
		paged_cache_check(cache, status);
}

static void
paged_cache_close(struct attention *attention, uint64_t sequence)
{
	struct paged_cache *cache = (struct paged_cache *)attention;

	/* If this fails, the daemon has ended, or it frees the pages when the session ends. */
	(void)paged_seq_erase(cache->client, 1, &sequence);
}

static uint32_t
paged_cache_n_pages(struct attention *attention, uint64_t sequence)
{
	struct paged_cache *cache = (struct paged_cache *)attention;
	struct paged_seq_info info = { .struct_size = sizeof(info) };

	return paged_seq_read(cache->pool, sequence, &info, NULL, 0) == PAGED_OK ? info.n_pages : 0;
}

/* ------------------------------------------------------------------ a step */

static bool
paged_cache_plan(struct attention *attention, const struct attention_row *rows, uint32_t n_rows, bool *waits)
{
	struct paged_cache *cache = (struct paged_cache *)attention;
	enum paged_status status;

	cache->n_tokens = 0;
	for (uint32_t r = 0; r < n_rows; r++) {
		cache->rows[r] = (struct paged_batch_row){ .seq = rows[r].sequence,
							   .q_len = rows[r].q_len,
							   .kv_len = rows[r].kv_len,
							   .flags = rows[r].is_written ? PAGED_ROW_NO_APPEND : 0 };
		cache->n_tokens += rows[r].q_len;
	}
	do
		status = paged_batch_plan(cache->batch, n_rows, cache->rows);
	while (status == PAGED_ERR_AGAIN);
	if (!lacks_pages(status)) {
		paged_cache_check(cache, status);
		return true;
	}
	for (uint32_t r = 0; r < n_rows; r++)
		waits[r] = paged_batch_pages_missing(cache->batch, r) > 0;
	return false;
}

static void
paged_cache_run(struct attention *attention, uint32_t layer, const float *q, const float *k, const float *v, float *out)
{
	struct paged_cache *cache = (struct paged_cache *)attention;
	const struct model *model = cache->model;
	struct paged_tensor q_tensor = {
		.data = (void *)q, .dtype = PAGED_F32, .n_heads = model->n_heads, .dim = model->head_dim
	};
	struct paged_tensor k_tensor = {
		.data = (void *)k, .dtype = PAGED_F32, .n_heads = model->n_kv_heads, .dim = model->head_dim
	};
	struct paged_tensor v_tensor = k_tensor, out_tensor = q_tensor;
	size_t q_bytes = (size_t)cache->n_tokens * model->n_heads * model->head_dim * sizeof(float);
	size_t kv_bytes = (size_t)cache->n_tokens * model->n_kv_heads * model->head_dim * sizeof(float);

	v_tensor.data = (void *)v;
	out_tensor.data = out;
	if (cache->device != NULL) {
		q_tensor.data = device_in(cache->device, DEVICE_Q, q, q_bytes);
		k_tensor.data = device_in(cache->device, DEVICE_K, k, kv_bytes);
		v_tensor.data = device_in(cache->device, DEVICE_V, v, kv_bytes);
		out_tensor.data = device_in(cache->device, DEVICE_OUT, NULL, q_bytes);
	}
	paged_cache_check(cache, paged_append(cache->batch, layer, &k_tensor, &v_tensor, NULL));
	paged_cache_check(cache, paged_attention(cache->batch, layer, &q_tensor, &out_tensor, NULL));
	if (cache->device == NULL)
		return;
	device_out(cache->device, DEVICE_OUT, out, q_bytes);
	/* Errors of GPU kernels are reported here; once per step is enough. */
	if (layer + 1 == model->n_layers)
		paged_cache_check(cache, paged_batch_validate(cache->batch));
}

static const struct attention_ops paged_cache_ops = {
	.open = paged_cache_open,
	.close = paged_cache_close,
	.plan = paged_cache_plan,
	.run = paged_cache_run,
	.publish = paged_cache_publish,
	.n_pages = paged_cache_n_pages,
};

/* ---------------------------------------------------------------- creation */

/* Run the library's parts of work as a job of the thread pool. */
struct library_job {
	paged_work_fn work;
	void *argument;
};

static void
library_job_part(void *job, uint32_t part, uint32_t thread)
{
	const struct library_job *library_job = job;

	(void)thread;
	library_job->work(library_job->argument, part);
}

static void
paged_cache_run_parts(void *argument, paged_work_fn work, void *work_argument, uint32_t n)
{
	struct library_job library_job = { work, work_argument };

	thread_pool_run(argument, n, library_job_part, &library_job);
}

/* Attach to the daemon or to an embedded owner, and open the pool. */
static void
paged_cache_attach(struct paged_cache *cache, const struct options *options, struct thread_pool *thread_pool,
		   const char *name)
{
	struct paged_client_params params = { .struct_size = sizeof(params),
					      .name = name,
					      .n_threads = thread_pool_n_threads(thread_pool),
					      .run = paged_cache_run_parts,
					      .run_argument = thread_pool };
	struct paged_pool_params pool = { .struct_size = sizeof(pool),
					  .name = options->pool,
					  .n_layers = cache->model->n_layers,
					  .n_kv_heads = cache->model->n_kv_heads,
					  .k_dim = cache->model->head_dim,
					  .dtype = options->dtype,
					  .page_size = EMBEDDED_PAGE_SIZE,
					  .n_pages = options->embedded_pages,
					  .backend = options->backend };
	enum paged_status status;

	if (options->embedded_pages > 0)
		status = paged_client_open_embedded(&pool, 1, &params, &cache->client);
	else
		status = paged_client_open(options->runtime_dir, &params, &cache->client);
	if (status == PAGED_ERR_UNSUPPORTED && options->backend != NULL)
		die("%s; without a GPU, leave out --backend cuda", paged_client_error(cache->client));
	paged_cache_check(cache, status);
	paged_cache_check(cache, paged_pool_open(cache->client, options->pool, &cache->pool));
}

static void
paged_cache_check_pool(struct paged_cache *cache, const struct paged_pool_info *info, const char *file)
{
	const struct model *model = cache->model;

	if (info->n_layers != model->n_layers || info->n_kv_heads != model->n_kv_heads ||
	    info->k.dim != model->head_dim || info->v.dim != model->head_dim || info->v_in_k)
		die("pool %s has %u layers, %u KV heads, K and V of %u and %u; the model needs %u, %u, %u and %u",
		    info->name, info->n_layers, info->n_kv_heads, info->k.dim, info->v.dim, model->n_layers,
		    model->n_kv_heads, model->head_dim, model->head_dim);
	/* Pages of another model of this shape fit, but give wrong answers. */
	if (!paged_model_allowed(info->model, file))
		die("pool %s is for the model %s, not for %s: use another pool (--pool), or if it is the same model, "
		    "a link of that name to the file",
		    info->name, info->model, file);
	cache->dtype = info->k.dtype;
	cache->base.max_length = info->max_length < model->n_context ? info->max_length : model->n_context;
	if (strcmp(info->backend, "cuda") == 0)
		cache->device = device_open(info->base);
}

/* As prefix_salt() of the Python package: engines of different make share a pool that names its model. */
static void
paged_cache_make_salt(struct paged_cache *cache, const struct paged_pool_info *info, const struct options *options)
{
	const char *adapter = "", *tenant = options->salt != NULL ? options->salt : "";
	char checksum[17];

	snprintf(checksum, sizeof(checksum), "%016llx", (unsigned long long)cache->model->checksum);
	paged_salt(cache->salt, 3,
		   (const char *const[]){ info->model[0] != '\0' ? info->model : checksum, adapter, tenant });
}

struct attention *
paged_cache_create(const struct model *model, const struct options *options, struct thread_pool *thread_pool,
		   const char *name)
{
	struct paged_batch_params params = { .struct_size = sizeof(params),
					     .max_rows = options->max_running,
					     .reserve_ahead = RESERVE_AHEAD };
	struct paged_pool_info info = { .struct_size = sizeof(info) };
	struct paged_cache *cache = xcalloc(1, sizeof(*cache));

	cache->base.ops = &paged_cache_ops;
	cache->model = model;
	cache->rows = xcalloc(options->max_running, sizeof(*cache->rows));
	cache->prefixes = xcalloc(options->max_running, sizeof(*cache->prefixes));
	cache->publishes = xcalloc(options->max_running, sizeof(*cache->publishes));
	paged_cache_attach(cache, options, thread_pool, name);
	paged_cache_check(cache, paged_pool_get_info(cache->pool, &info));
	paged_cache_check_pool(cache, &info, options->model);
	paged_cache_make_salt(cache, &info, options);
	paged_cache_share(&cache->base, options->prefix_cache);
	paged_cache_check(cache, paged_batch_create(cache->pool, &params, &cache->batch));
	if (cache->device != NULL)
		paged_cache_check(cache, paged_batch_stream(cache->batch, device_stream(cache->device)));
	return &cache->base;
}

void
paged_cache_destroy(struct attention *attention)
{
	struct paged_cache *cache = (struct paged_cache *)attention;

	if (cache == NULL)
		return;
	/* A plan that found the pool full may have left copies into the batch's memory. */
	if (cache->device != NULL)
		device_wait(cache->device);
	paged_batch_destroy(cache->batch);
	device_close(cache->device);
	paged_pool_close(cache->pool);
	paged_client_close(cache->client);
	free(cache->publishes);
	free(cache->prefixes);
	free(cache->rows);
	free(cache);
}

void
paged_cache_share(struct attention *attention, bool on)
{
	((struct paged_cache *)attention)->shares = on;
}

void
paged_cache_give(struct attention *attention, uint64_t sequence, uint32_t n_tokens, struct paged_ticket *ticket)
{
	struct paged_cache *cache = (struct paged_cache *)attention;

	/* A GPU must have written the pages before another process reads them. */
	paged_cache_check(cache, paged_batch_finish(cache->batch));
	paged_cache_check(cache, paged_seq_give(cache->pool, 1, &sequence, &n_tokens, NULL, ticket));
}

uint64_t
paged_cache_adopt(struct attention *attention, const struct paged_ticket *ticket, uint32_t *n_tokens_p)
{
	struct paged_cache *cache = (struct paged_cache *)attention;
	paged_seq_id sequence;
	size_t n;

	paged_cache_check(cache, paged_seq_adopt(cache->pool, ticket, 1, &sequence, n_tokens_p, &n));
	return sequence;
}

enum paged_dtype
paged_cache_dtype(const struct attention *attention)
{
	return ((const struct paged_cache *)attention)->dtype;
}
