/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/contiguous.h"

#include <math.h>
#include <stdlib.h>

#include "examples/llama/matmul.h"
#include "examples/llama/xalloc.h"

/* Below this number of products, waking threads costs more than it saves. */
#define SINGLE_THREAD_PRODUCTS (256u << 10)

/* A sequence; its id is its address. */
struct sequence_cache {
	float **k, **v; /* [n_layers], each [capacity][n_kv_heads * head_dim] */
	uint32_t capacity;
};

struct contiguous {
	struct attention base;
	const struct model *model;
	enum paged_dtype dtype;
	uint32_t width;                   /* of K or V of one token */
	uint32_t group;                   /* query heads that share a KV head */
	const struct attention_row *rows; /* the plan */
	uint32_t n_rows;
	void *scores;      /* [n_scores] doubles, or of each thread [MATMUL_BATCH][n_scores] floats */
	uint32_t n_scores; /* a multiple of MATMUL_ROWS */
	/* Only for the fast mode: */
	const struct matmul *matmul; /* else NULL */
	float *queries;              /* of each thread [group][head_dim], scaled */
};

/* Round to the nearest f16 or bf16, ties to even, as rintf() does. */
static float
contiguous_round(enum paged_dtype dtype, float value)
{
	int digits = dtype == PAGED_F16 ? 11 : 8, least = dtype == PAGED_F16 ? -13 : -125, exponent;

	if (dtype != PAGED_F16 && dtype != PAGED_BF16)
		return value;
	frexpf(value, &exponent);
	exponent = (exponent > least ? exponent : least) - digits; /* of the last digit */
	value = ldexpf(rintf(ldexpf(value, -exponent)), exponent);
	return dtype == PAGED_F16 && fabsf(value) > 65504 ? copysignf(INFINITY, value) : value;
}

static bool
contiguous_open(struct attention *attention, const uint32_t *tokens, uint32_t n_tokens, uint64_t *sequence_p,
		uint32_t *n_found_p)
{
	const struct contiguous *contiguous = (struct contiguous *)attention;
	struct sequence_cache *cache = xcalloc(1, sizeof(*cache));

	cache->k = xcalloc(contiguous->model->n_layers, sizeof(*cache->k));
	cache->v = xcalloc(contiguous->model->n_layers, sizeof(*cache->v));
	*sequence_p = (uintptr_t)cache;
	*n_found_p = 0;
	(void)tokens;
	(void)n_tokens;
	return true;
}

/* Sequences have arrays of their own, and share nothing. */
static void
contiguous_publish(struct attention *attention, const struct attention_tokens *written, uint32_t n)
{
	(void)attention;
	(void)written;
	(void)n;
}

static void
contiguous_close(struct attention *attention, uint64_t sequence)
{
	const struct contiguous *contiguous = (struct contiguous *)attention;
	struct sequence_cache *cache = (struct sequence_cache *)(uintptr_t)sequence;

	for (uint32_t layer = 0; layer < contiguous->model->n_layers; layer++) {
		free(cache->k[layer]);
		free(cache->v[layer]);
	}
	free(cache->k);
	free(cache->v);
	free(cache);
}

static void
sequence_cache_grow(const struct contiguous *contiguous, struct sequence_cache *cache, uint32_t n_tokens)
{
	if (n_tokens <= cache->capacity)
		return;
	cache->capacity = n_tokens + n_tokens / 2 + 64;
	for (uint32_t layer = 0; layer < contiguous->model->n_layers; layer++) {
		size_t n = (size_t)cache->capacity * contiguous->width;

		cache->k[layer] = xreallocarray(cache->k[layer], n, sizeof(float));
		cache->v[layer] = xreallocarray(cache->v[layer], n, sizeof(float));
	}
}

static void
contiguous_grow_scores(struct contiguous *contiguous, uint32_t n_keys)
{
	const struct matmul *matmul = contiguous->matmul;

	if (n_keys <= contiguous->n_scores)
		return;
	contiguous->n_scores = (2 * n_keys + MATMUL_ROWS) / MATMUL_ROWS * MATMUL_ROWS;
	contiguous->scores =
		xreallocarray(contiguous->scores, contiguous->n_scores,
			      matmul != NULL ? thread_pool_n_threads(matmul->thread_pool) * MATMUL_BATCH * sizeof(float)
					     : sizeof(double));
}

static bool
contiguous_plan(struct attention *attention, const struct attention_row *rows, uint32_t n_rows, bool *waits)
{
	struct contiguous *contiguous = (struct contiguous *)attention;

	(void)waits;
	for (uint32_t r = 0; r < n_rows; r++) {
		contiguous_grow_scores(contiguous, rows[r].kv_len);
		sequence_cache_grow(contiguous, (struct sequence_cache *)(uintptr_t)rows[r].sequence, rows[r].kv_len);
	}
	contiguous->rows = rows;
	contiguous->n_rows = n_rows;
	return true;
}

/* --------------------------------------------------------------- attention */

/* A job: attention of a step's queries in one layer.  A part is the query heads of one token that share a KV head. */
struct contiguous_job {
	const struct contiguous *contiguous;
	uint32_t layer;
	const float *q;
	float *out;
};

struct contiguous_part {
	const float *q, *k, *v;
	float *out;
	uint32_t n_keys;
};

static struct contiguous_part
contiguous_find_part(const struct contiguous_job *job, uint32_t number)
{
	const struct contiguous *contiguous = job->contiguous;
	const struct attention_row *row = contiguous->rows;
	uint32_t dim = contiguous->model->head_dim, token = number / contiguous->model->n_kv_heads;
	size_t kv = (size_t)(number % contiguous->model->n_kv_heads) * dim,
	       q = (size_t)number * contiguous->group * dim;
	const struct sequence_cache *cache;

	for (; token >= row->q_len; row++)
		token -= row->q_len;
	cache = (const struct sequence_cache *)(uintptr_t)row->sequence;
	return (struct contiguous_part){ .q = job->q + q,
					 .k = cache->k[job->layer] + kv,
					 .v = cache->v[job->layer] + kv,
					 .out = job->out + q,
					 .n_keys = row->kv_len - row->q_len + token + 1 };
}

/* softmax(q K^T / sqrt(dim)) V, head by head. */
static void
contiguous_attend_reference(const struct contiguous *contiguous, struct contiguous_part part)
{
	uint32_t dim = contiguous->model->head_dim, width = contiguous->width;

	for (uint32_t h = 0; h < contiguous->group; h++, part.q += dim, part.out += dim) {
		double *scores = contiguous->scores, largest = -INFINITY, sum = 0;

		for (uint32_t i = 0; i < part.n_keys; i++) {
			double score = 0;

			for (uint32_t d = 0; d < dim; d++)
				score += (double)part.q[d] * (double)part.k[(size_t)i * width + d];
			scores[i] = score / sqrt(dim);
			largest = scores[i] > largest ? scores[i] : largest;
		}
		for (uint32_t i = 0; i < part.n_keys; i++) {
			scores[i] = exp(scores[i] - largest);
			sum += scores[i];
		}
		for (uint32_t d = 0; d < dim; d++) {
			double value = 0;

			for (uint32_t i = 0; i < part.n_keys; i++)
				value += scores[i] * (double)part.v[(size_t)i * width + d];
			part.out[d] = (float)(value / sum);
		}
	}
}

/* The last block also reads keys past the end; their scores are ignored. */
static void
contiguous_attend_vectors(void *argument, uint32_t number, uint32_t thread)
{
	const struct contiguous_job *job = argument;
	const struct contiguous *contiguous = job->contiguous;
	const struct matmul_ops *ops = contiguous->matmul->ops;
	struct contiguous_part part = contiguous_find_part(job, number);
	uint32_t dim = contiguous->model->head_dim, group = contiguous->group;
	uint32_t width = contiguous->width, stride = contiguous->n_scores;
	float *scores = (float *)contiguous->scores + (size_t)thread * MATMUL_BATCH * stride;
	float *q = contiguous->queries + (size_t)thread * group * dim, scale = 1 / sqrtf((float)dim);

	for (uint32_t i = 0; i < group * dim; i++)
		q[i] = part.q[i] * scale;
	for (uint32_t h = 0; h < group; h += MATMUL_BATCH) {
		uint32_t n = group - h < MATMUL_BATCH ? group - h : MATMUL_BATCH;

		for (uint32_t key = 0; key < part.n_keys; key += MATMUL_ROWS)
			ops->dot(part.k + (size_t)key * width, width, q + h * dim, dim, n, dim, scores + key, stride);
		for (uint32_t i = 0; i < n; i++)
			ops->softmax_v(scores + (size_t)i * stride, part.n_keys, part.v, width, dim,
				       part.out + (h + i) * dim);
	}
}

static void
contiguous_run(struct attention *attention, uint32_t layer, const float *q, const float *k, const float *v, float *out)
{
	struct contiguous *contiguous = (struct contiguous *)attention;
	const struct model *model = contiguous->model;
	struct contiguous_job job = { contiguous, layer, q, out };
	uint32_t n_parts = 0;
	uint64_t n_products = 0;

	for (uint32_t r = 0; r < contiguous->n_rows; r++) {
		const struct attention_row *row = &contiguous->rows[r];
		const struct sequence_cache *cache = (const struct sequence_cache *)(uintptr_t)row->sequence;
		size_t from = (size_t)(row->kv_len - row->q_len) * contiguous->width;
		size_t to = (size_t)row->kv_len * contiguous->width;

		for (size_t i = from; i < to; i++) {
			cache->k[layer][i] = contiguous_round(contiguous->dtype, *k++);
			cache->v[layer][i] = contiguous_round(contiguous->dtype, *v++);
		}
		n_parts += row->q_len * model->n_kv_heads;
		n_products += (uint64_t)2 * row->q_len * row->kv_len * model->n_heads * model->head_dim;
	}
	if (contiguous->matmul != NULL && n_products >= SINGLE_THREAD_PRODUCTS)
		thread_pool_run(contiguous->matmul->thread_pool, n_parts, contiguous_attend_vectors, &job);
	else
		for (uint32_t part = 0; part < n_parts; part++)
			if (contiguous->matmul != NULL)
				contiguous_attend_vectors(&job, part, 0);
			else
				contiguous_attend_reference(contiguous, contiguous_find_part(&job, part));
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
	.publish = contiguous_publish,
	.n_pages = contiguous_n_pages,
};

struct attention *
contiguous_create(const struct model *model, enum paged_dtype dtype, const struct matmul *matmul)
{
	struct contiguous *contiguous = xcalloc(1, sizeof(*contiguous));

	contiguous->base.ops = &contiguous_ops;
	contiguous->base.max_length = model->n_context;
	contiguous->model = model;
	contiguous->dtype = dtype;
	contiguous->width = model->n_kv_heads * model->head_dim;
	contiguous->group = model->n_heads / model->n_kv_heads;
	contiguous->matmul = matmul;
	if (matmul != NULL)
		contiguous->queries = xcalloc((size_t)thread_pool_n_threads(matmul->thread_pool) * contiguous->group,
					      model->head_dim * sizeof(float));
	return &contiguous->base;
}

void
contiguous_destroy(struct attention *attention)
{
	struct contiguous *contiguous = (struct contiguous *)attention;

	if (contiguous == NULL)
		return;
	free(contiguous->queries);
	free(contiguous->scores);
	free(contiguous);
}
