/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/contiguous.h"

#include <math.h>
#include <stdlib.h>

#include "examples/llama/half.h"
#include "examples/llama/matmul.h"

/* Products below which waking threads costs more than it saves. */
#define ALONE_PRODUCTS (256u << 10)

struct cache {
	float **k, **v; /* [n_layers], each [capacity][n_kv_heads * head_dim] */
	uint32_t capacity;
	bool open;
};

struct contiguous {
	struct attention base;
	const struct model *model;
	enum paged_dtype dtype;
	uint32_t width; /* of K or V of one token */
	struct cache *caches;
	uint32_t n_caches;
	const struct attention_row *rows; /* the plan; the caller keeps it until the step's end */
	uint32_t n_rows;
	void *scores;      /* [n_scores] doubles, or of each thread [MATMUL_BATCH][n_scores] floats */
	uint32_t n_scores; /* a multiple of MATMUL_ROWS */
	/* Where it is to be fast: */
	const struct matmul_ops *ops; /* else NULL */
	struct team *team;
	float *queries; /* of each thread [group][head_dim], scaled */
};

static uint32_t
group_of(const struct contiguous *contiguous)
{
	return contiguous->model->n_heads / contiguous->model->n_kv_heads;
}

static float
rounded(enum paged_dtype dtype, float value)
{
	switch (dtype) {
	case PAGED_F16:
		return half_to_float(half_of_float(value));
	case PAGED_BF16:
		return bfloat_to_float(bfloat_of_float(value));
	default:
		break;
	}
	return value;
}

static enum attention_status
contiguous_open(struct attention *attention, uint64_t *sequence_p, struct error *error)
{
	struct contiguous *contiguous = (struct contiguous *)attention;
	uint32_t n_layers = contiguous->model->n_layers, i = 0;
	struct cache *caches, cache = { .open = true };

	while (i < contiguous->n_caches && contiguous->caches[i].open)
		i++;
	caches = realloc(contiguous->caches, (contiguous->n_caches + 1) * sizeof(*caches));
	cache.k = calloc(n_layers, sizeof(*cache.k));
	cache.v = calloc(n_layers, sizeof(*cache.v));
	if (caches != NULL)
		contiguous->caches = caches;
	if (caches == NULL || cache.k == NULL || cache.v == NULL) {
		free(cache.k);
		free(cache.v);
		error_set(error, "no memory for a private cache");
		return ATTENTION_FAILED;
	}
	contiguous->caches[i] = cache;
	if (i == contiguous->n_caches)
		contiguous->n_caches++;
	*sequence_p = i;
	return ATTENTION_OK;
}

static void
contiguous_close(struct attention *attention, uint64_t sequence)
{
	struct contiguous *contiguous = (struct contiguous *)attention;
	struct cache *cache = &contiguous->caches[sequence];

	for (uint32_t layer = 0; layer < contiguous->model->n_layers; layer++) {
		free(cache->k[layer]);
		free(cache->v[layer]);
	}
	free(cache->k);
	free(cache->v);
	*cache = (struct cache){ 0 };
}

static bool
grow(const struct contiguous *contiguous, struct cache *cache, uint32_t n_tokens)
{
	uint32_t capacity = n_tokens + n_tokens / 2 + 64;
	size_t size = (size_t)capacity * contiguous->width * sizeof(float);

	if (n_tokens <= cache->capacity)
		return true;
	for (uint32_t layer = 0; layer < contiguous->model->n_layers; layer++) {
		float *k = realloc(cache->k[layer], size), *v = realloc(cache->v[layer], size);

		if (k != NULL)
			cache->k[layer] = k;
		if (v != NULL)
			cache->v[layer] = v;
		if (k == NULL || v == NULL)
			return false;
	}
	cache->capacity = capacity;
	return true;
}

static bool
grow_scores(struct contiguous *contiguous, uint32_t n_keys)
{
	uint32_t n = (2 * n_keys + MATMUL_ROWS) / MATMUL_ROWS * MATMUL_ROWS;
	size_t each = contiguous->ops != NULL ? team_n_threads(contiguous->team) * MATMUL_BATCH * sizeof(float)
					      : sizeof(double);
	void *scores;

	if (n_keys <= contiguous->n_scores)
		return true;
	scores = realloc(contiguous->scores, n * each);
	if (scores == NULL)
		return false;
	contiguous->scores = scores;
	contiguous->n_scores = n;
	return true;
}

static enum attention_status
contiguous_plan(struct attention *attention, const struct attention_row *rows, uint32_t n_rows, bool *waits,
		struct error *error)
{
	struct contiguous *contiguous = (struct contiguous *)attention;

	(void)waits;
	for (uint32_t r = 0; r < n_rows; r++) {
		if (!grow_scores(contiguous, rows[r].kv_len) ||
		    !grow(contiguous, &contiguous->caches[rows[r].sequence], rows[r].kv_len)) {
			error_set(error, "no memory for a private cache of %u tokens", rows[r].kv_len);
			return ATTENTION_FAILED;
		}
	}
	contiguous->rows = rows;
	contiguous->n_rows = n_rows;
	return ATTENTION_OK;
}

/* softmax(q K^T / sqrt(dim)) V over keys 0 .. n_keys-1 of one head. */
static void
attend(const struct contiguous *contiguous, const float *q, const float *k, const float *v, uint32_t n_keys, float *out)
{
	uint32_t dim = contiguous->model->head_dim, width = contiguous->width;
	double *scores = contiguous->scores, largest = -INFINITY, sum = 0;

	for (uint32_t i = 0; i < n_keys; i++) {
		double score = 0;

		for (uint32_t d = 0; d < dim; d++)
			score += (double)q[d] * (double)k[(size_t)i * width + d];
		scores[i] = score / sqrt(dim);
		largest = scores[i] > largest ? scores[i] : largest;
	}
	for (uint32_t i = 0; i < n_keys; i++) {
		scores[i] = exp(scores[i] - largest);
		sum += scores[i];
	}
	for (uint32_t d = 0; d < dim; d++) {
		double value = 0;

		for (uint32_t i = 0; i < n_keys; i++)
			value += scores[i] * (double)v[(size_t)i * width + d];
		out[d] = (float)(value / sum);
	}
}

/* What attends to a step's queries in one layer. */
struct attend_job {
	const struct contiguous *contiguous;
	uint32_t layer;
	const float *q;
	float *out;
};

/* A packed query row's cache and how many keys it sees. */
static const struct cache *
find_cache(const struct contiguous *contiguous, uint32_t token, uint32_t *n_keys_p)
{
	const struct attention_row *row = contiguous->rows;

	for (; token >= row->q_len; row++)
		token -= row->q_len;
	*n_keys_p = row->kv_len - row->q_len + token + 1;
	return &contiguous->caches[row->sequence];
}

/* All heads of one token, in f64. */
static void
attend_token(const struct attend_job *job, uint32_t token)
{
	const struct contiguous *contiguous = job->contiguous;
	uint32_t dim = contiguous->model->head_dim, n_heads = contiguous->model->n_heads, n_keys;
	const struct cache *cache = find_cache(contiguous, token, &n_keys);
	size_t at = (size_t)token * n_heads * dim;

	for (uint32_t h = 0; h < n_heads; h++, at += dim) {
		size_t kv = (size_t)(h / group_of(contiguous)) * dim;

		attend(contiguous, job->q + at, cache->k[job->layer] + kv, cache->v[job->layer] + kv, n_keys,
		       job->out + at);
	}
}

/* The heads of one token that share a KV head.  Keys past the last are looked at, and nothing comes of it. */
static void
attend_part(void *argument, uint32_t part, uint32_t thread)
{
	const struct attend_job *job = argument;
	const struct contiguous *contiguous = job->contiguous;
	const struct matmul_ops *ops = contiguous->ops;
	uint32_t dim = contiguous->model->head_dim, group = group_of(contiguous), stride = contiguous->n_scores;
	uint32_t kv_head = part % contiguous->model->n_kv_heads, n_keys, width = contiguous->width;
	const struct cache *cache = find_cache(contiguous, part / contiguous->model->n_kv_heads, &n_keys);
	const float *k = cache->k[job->layer] + (size_t)kv_head * dim,
		    *v = cache->v[job->layer] + (size_t)kv_head * dim;
	float *scores = (float *)contiguous->scores + (size_t)thread * MATMUL_BATCH * stride;
	float *q = contiguous->queries + (size_t)thread * group * dim, scale = 1 / sqrtf((float)dim);
	size_t at = (size_t)part * group * dim;

	for (uint32_t i = 0; i < group * dim; i++)
		q[i] = job->q[at + i] * scale;
	for (uint32_t h = 0; h < group; h += MATMUL_BATCH) {
		uint32_t n = group - h < MATMUL_BATCH ? group - h : MATMUL_BATCH;

		for (uint32_t key = 0; key < n_keys; key += MATMUL_ROWS)
			ops->dot(k + (size_t)key * width, width, q + h * dim, dim, n, dim, scores + key, stride);
		for (uint32_t i = 0; i < n; i++)
			ops->weigh(scores + (size_t)i * stride, n_keys, v, width, dim, job->out + at + (h + i) * dim);
	}
}

static uint32_t
keep_rows(struct contiguous *contiguous, uint32_t layer, const float *k, const float *v)
{
	uint32_t n_tokens = 0, width = contiguous->width;

	for (uint32_t r = 0; r < contiguous->n_rows; r++) {
		const struct attention_row *row = &contiguous->rows[r];
		struct cache *cache = &contiguous->caches[row->sequence];
		size_t at = (size_t)(row->kv_len - row->q_len) * width, n = (size_t)row->q_len * width;

		for (size_t i = 0; i < n; i++) {
			cache->k[layer][at + i] = rounded(contiguous->dtype, *k++);
			cache->v[layer][at + i] = rounded(contiguous->dtype, *v++);
		}
		n_tokens += row->q_len;
	}
	return n_tokens;
}

static uint64_t
count_products(const struct contiguous *contiguous)
{
	uint64_t n = 0;

	for (uint32_t r = 0; r < contiguous->n_rows; r++)
		n += (uint64_t)contiguous->rows[r].q_len * contiguous->rows[r].kv_len;
	return 2 * n * contiguous->model->n_heads * contiguous->model->head_dim;
}

static bool
contiguous_run(struct attention *attention, uint32_t layer, const float *q, const float *k, const float *v, float *out,
	       struct error *error)
{
	struct contiguous *contiguous = (struct contiguous *)attention;
	struct attend_job job = { contiguous, layer, q, out };
	uint32_t n_tokens = keep_rows(contiguous, layer, k, v);

	(void)error;
	if (contiguous->ops == NULL)
		for (uint32_t token = 0; token < n_tokens; token++)
			attend_token(&job, token);
	else if (count_products(contiguous) >= ALONE_PRODUCTS)
		team_run(contiguous->team, n_tokens * contiguous->model->n_kv_heads, attend_part, &job);
	else
		for (uint32_t part = 0; part < n_tokens * contiguous->model->n_kv_heads; part++)
			attend_part(&job, part, 0);
	return true;
}

static uint32_t
contiguous_n_pages(struct attention *attention, uint64_t sequence)
{
	(void)attention;
	(void)sequence;
	return 0;
}

static const struct attention_ops contiguous_ops = {
	.open = contiguous_open,
	.close = contiguous_close,
	.plan = contiguous_plan,
	.run = contiguous_run,
	.n_pages = contiguous_n_pages,
};

bool
contiguous_create(const struct model *model, enum paged_dtype dtype, struct attention **attention_p,
		  struct error *error)
{
	struct contiguous *contiguous = calloc(1, sizeof(*contiguous));

	if (contiguous == NULL)
		return error_set(error, "no memory for a private cache");
	contiguous->base.ops = &contiguous_ops;
	contiguous->base.max_length = model->n_context;
	contiguous->model = model;
	contiguous->dtype = dtype;
	contiguous->width = model->n_kv_heads * model->head_dim;
	*attention_p = &contiguous->base;
	return true;
}

bool
contiguous_create_fast(const struct model *model, const struct forward *forward, struct attention **attention_p,
		       struct error *error)
{
	struct attention *attention = NULL;
	struct contiguous *contiguous;

	if (!contiguous_create(model, PAGED_F32, &attention, error))
		return false;
	contiguous = (struct contiguous *)attention;
	contiguous->ops = forward_ops(forward);
	contiguous->team = forward_team(forward);
	contiguous->queries = calloc((size_t)team_n_threads(contiguous->team) * group_of(contiguous) * model->head_dim,
				     sizeof(float));
	if (contiguous->queries == NULL) {
		contiguous_destroy(attention);
		return error_set(error, "no memory for the queries of %u threads", team_n_threads(contiguous->team));
	}
	*attention_p = attention;
	return true;
}

void
contiguous_destroy(struct attention *attention)
{
	struct contiguous *contiguous = (struct contiguous *)attention;

	if (contiguous == NULL)
		return;
	for (uint32_t i = 0; i < contiguous->n_caches; i++)
		if (contiguous->caches[i].open)
			contiguous_close(attention, i);
	free(contiguous->caches);
	free(contiguous->queries);
	free(contiguous->scores);
	free(contiguous);
}
