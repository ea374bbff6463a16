/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/contiguous.h"

#include <math.h>
#include <stdlib.h>

#include "examples/llama/half.h"

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
	double *scores;
	uint32_t n_scores;
};

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

static enum attention_status
contiguous_plan(struct attention *attention, const struct attention_row *rows, uint32_t n_rows, bool *waits,
		struct error *error)
{
	struct contiguous *contiguous = (struct contiguous *)attention;
	double *scores;

	(void)waits;
	for (uint32_t r = 0; r < n_rows; r++) {
		if (rows[r].kv_len > contiguous->n_scores) {
			scores = realloc(contiguous->scores, 2 * (size_t)rows[r].kv_len * sizeof(*scores));
			if (scores != NULL) {
				contiguous->scores = scores;
				contiguous->n_scores = 2 * rows[r].kv_len;
			}
		}
		if (rows[r].kv_len > contiguous->n_scores ||
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

static bool
contiguous_run(struct attention *attention, uint32_t layer, const float *q, const float *k, const float *v, float *out,
	       struct error *error)
{
	struct contiguous *contiguous = (struct contiguous *)attention;
	uint32_t dim = contiguous->model->head_dim, n_heads = contiguous->model->n_heads;
	uint32_t group = n_heads / contiguous->model->n_kv_heads, width = contiguous->width;

	(void)error;
	for (uint32_t r = 0; r < contiguous->n_rows; r++) {
		const struct attention_row *row = &contiguous->rows[r];
		struct cache *cache = &contiguous->caches[row->sequence];

		for (uint32_t i = 0; i < row->q_len; i++) {
			uint32_t position = row->kv_len - row->q_len + i;

			for (uint32_t d = 0; d < width; d++) {
				cache->k[layer][(size_t)position * width + d] = rounded(contiguous->dtype, k[d]);
				cache->v[layer][(size_t)position * width + d] = rounded(contiguous->dtype, v[d]);
			}
			for (uint32_t h = 0; h < n_heads; h++)
				attend(contiguous, q + h * dim, cache->k[layer] + h / group * dim,
				       cache->v[layer] + h / group * dim, position + 1, out + h * dim);
			q += n_heads * dim;
			out += n_heads * dim;
			k += width;
			v += width;
		}
	}
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
	free(contiguous->scores);
	free(contiguous);
}
