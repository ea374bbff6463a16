/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/forward.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "examples/llama/clock.h"
#include "examples/llama/matmul.h"
#include "examples/llama/thread_pool.h"
#include "examples/llama/xalloc.h"

/* Argument of the thread_pool jobs that process one row per part. */
struct row_job {
	struct forward *forward;
	const struct forward_step *step;
	const float *weights;
};

static void
forward_norm_row(void *argument, uint32_t row, uint32_t thread)
{
	const struct row_job *job = argument;
	uint32_t n = job->forward->model->n_embedding;
	const float *x = job->forward->x + (size_t)row * n;
	float *out = job->forward->normed + (size_t)row * n;
	double squares = 0;
	float scale;

	(void)thread;
	for (uint32_t i = 0; i < n; i++)
		squares += (double)x[i] * (double)x[i];
	scale = 1 / sqrtf((float)(squares / n) + job->forward->model->norm_epsilon);
	for (uint32_t i = 0; i < n; i++)
		out[i] = job->weights[i] * (x[i] * scale);
}

/* cos and sin of the row's position, shared by all heads and layers. */
static void
forward_embed_row(void *argument, uint32_t row, uint32_t thread)
{
	const struct row_job *job = argument;
	struct forward *forward = job->forward;
	uint32_t half = forward->model->head_dim / 2;
	float *rotations = forward->rotations + (size_t)row * 2 * half;

	(void)thread;
	for (uint32_t i = 0; i < half; i++) {
		float angle = (float)job->step->positions[row] * forward->frequencies[i];

		rotations[2 * i] = cosf(angle);
		rotations[2 * i + 1] = sinf(angle);
	}
	matmul_dequantize_row(forward->matmul.ops, &forward->model->embedding, job->step->tokens[row],
			      forward->x + (size_t)row * forward->model->n_embedding);
}

/*
 * The weights of a GGUF file give the two elements of each rotated pair next to each other.  transformers and vLLM
 * have the first elements of all pairs in the first half of a head, the second ones in the other half.  The results
 * are stored in their order, so that pages can be shared with them; scores do not depend on the order.
 */
static void
forward_rotate(float *heads, uint32_t n_heads, uint32_t dim, const float *rotations)
{
	uint32_t half = dim / 2;
	float pairs[MODEL_MAX_HEAD_DIM];

	for (uint32_t h = 0; h < n_heads; h++, heads += dim) {
		memcpy(pairs, heads, dim * sizeof(*pairs));
		for (uint32_t i = 0; i < half; i++) {
			const float *pair = pairs + 2 * i, *rotation = rotations + 2 * i;

			heads[i] = pair[0] * rotation[0] - pair[1] * rotation[1];
			heads[half + i] = pair[0] * rotation[1] + pair[1] * rotation[0];
		}
	}
}

static void
forward_rotary_row(void *argument, uint32_t row, uint32_t thread)
{
	const struct row_job *job = argument;
	const struct model *model = job->forward->model;
	const float *rotations = job->forward->rotations + (size_t)row * model->head_dim;

	(void)thread;
	forward_rotate(job->forward->q + (size_t)row * job->forward->n_q, model->n_heads, model->head_dim, rotations);
	forward_rotate(job->forward->k + (size_t)row * job->forward->n_kv, model->n_kv_heads, model->head_dim,
		       rotations);
}

/* gate = silu(gate) * up */
static void
forward_silu_row(void *argument, uint32_t row, uint32_t thread)
{
	const struct row_job *job = argument;
	uint32_t n = job->forward->model->n_ffn;
	float *gate = job->forward->gate + (size_t)row * n;
	const float *up = job->forward->up + (size_t)row * n;

	(void)thread;
	for (uint32_t i = 0; i < n; i++)
		gate[i] = gate[i] / (1 + expf(-gate[i])) * up[i];
}

static void
forward_run_rows(struct forward *forward, const struct forward_step *step, uint32_t n_rows, thread_pool_fn run,
		 const float *weights)
{
	struct row_job job = { .forward = forward, .step = step, .weights = weights };

	thread_pool_run(forward->matmul.thread_pool, n_rows, run, &job);
}

static void
forward_matmul(struct forward *forward, const struct product *products, uint32_t n_products, const float *x,
	       uint32_t n_rows)
{
	double begin = clock_now_s();

	matmul_run(&forward->matmul, products, n_products, x, n_rows);
	forward->times.products += clock_now_s() - begin;
}

/* x += product; `normed` holds the product, because it is not in use here. */
static void
forward_matmul_add(struct forward *forward, const struct matrix *weights, const float *from, uint32_t n_rows)
{
	size_t n = (size_t)n_rows * weights->n_rows;

	forward_matmul(forward, &(struct product){ weights, forward->normed }, 1, from, n_rows);
	for (size_t i = 0; i < n; i++)
		forward->x[i] += forward->normed[i];
}

static void
forward_run_layer(struct forward *forward, struct attention *attention, const struct forward_step *step,
		  uint32_t number)
{
	const struct model_layer *layer = &forward->model->layers[number];
	const struct product projections[] = { { &layer->q, forward->q },
					       { &layer->k, forward->k },
					       { &layer->v, forward->v } };
	const struct product gates[] = { { &layer->gate, forward->gate }, { &layer->up, forward->up } };
	uint32_t n = step->n_tokens;
	double begin;

	forward_run_rows(forward, step, n, forward_norm_row, layer->attention_norm);
	forward_matmul(forward, projections, 3, forward->normed, n);
	forward_run_rows(forward, step, n, forward_rotary_row, NULL);
	begin = clock_now_s();
	attention->ops->run(attention, number, forward->q, forward->k, forward->v, forward->attention_out);
	forward->times.attention += clock_now_s() - begin;
	forward_matmul_add(forward, &layer->o, forward->attention_out, n);

	forward_run_rows(forward, step, n, forward_norm_row, layer->ffn_norm);
	forward_matmul(forward, gates, 2, forward->normed, n);
	forward_run_rows(forward, step, n, forward_silu_row, NULL);
	forward_matmul_add(forward, &layer->down, forward->gate, n);
}

const float *
forward_run(struct forward *forward, struct attention *attention, const struct forward_step *step)
{
	const struct model *model = forward->model;
	uint32_t n = model->n_embedding;

	assert(step->n_tokens <= forward->max_tokens && step->n_logits <= forward->max_logits);
	forward_run_rows(forward, step, step->n_tokens, forward_embed_row, NULL);
	for (uint32_t layer = 0; layer < model->n_layers; layer++)
		forward_run_layer(forward, attention, step, layer);
	/*
	 * Move the rows of logit_tokens to the front.  They are in ascending order,
	 * so none is overwritten before it moves.
	 */
	for (uint32_t i = 0; i < step->n_logits; i++) {
		assert(i == 0 || step->logit_tokens[i] > step->logit_tokens[i - 1]);
		memmove(forward->x + (size_t)i * n, forward->x + (size_t)step->logit_tokens[i] * n, n * sizeof(float));
	}
	if (step->n_logits > 0) {
		forward_run_rows(forward, step, step->n_logits, forward_norm_row, model->output_norm);
		forward_matmul(forward, &(struct product){ &model->output, forward->logits }, 1, forward->normed,
			       step->n_logits);
	}
	return forward->logits;
}

uint32_t
forward_best(const float *logits, uint32_t n)
{
	uint32_t best = 0;

	for (uint32_t i = 1; i < n; i++)
		if (logits[i] > logits[best])
			best = i;
	return best;
}

static float *
forward_buffer(struct forward *forward, uint32_t n_rows, uint32_t n)
{
	assert(forward->n_buffers < sizeof(forward->buffers) / sizeof(forward->buffers[0]));
	return forward->buffers[forward->n_buffers++] = xcalloc((size_t)n_rows * n, sizeof(float));
}

struct forward *
forward_create(const struct model *model, uint32_t n_threads, uint32_t max_tokens, uint32_t max_logits)
{
	struct forward *forward = xcalloc(1, sizeof(*forward));
	uint32_t max_columns = model->n_embedding > model->n_ffn ? model->n_embedding : model->n_ffn;

	forward->model = model;
	forward->max_tokens = max_tokens;
	forward->max_logits = max_logits;
	forward->n_q = model->n_heads * model->head_dim;
	forward->n_kv = model->n_kv_heads * model->head_dim;
	forward->frequencies = forward_buffer(forward, 1, model->head_dim / 2);
	forward->rotations = forward_buffer(forward, max_tokens, model->head_dim);
	forward->x = forward_buffer(forward, max_tokens, model->n_embedding);
	forward->normed = forward_buffer(forward, max_tokens, model->n_embedding);
	forward->q = forward_buffer(forward, max_tokens, forward->n_q);
	forward->k = forward_buffer(forward, max_tokens, forward->n_kv);
	forward->v = forward_buffer(forward, max_tokens, forward->n_kv);
	forward->attention_out = forward_buffer(forward, max_tokens, forward->n_q);
	forward->gate = forward_buffer(forward, max_tokens, model->n_ffn);
	forward->up = forward_buffer(forward, max_tokens, model->n_ffn);
	forward->logits = forward_buffer(forward, max_logits, model->n_vocabulary);
	/* In f32, as the reference implementation computes them. */
	for (uint32_t i = 0; i < model->head_dim / 2; i++)
		forward->frequencies[i] = 1 / powf(model->rope_base, (float)(2 * i) / (float)model->head_dim);
	matmul_create(&forward->matmul, matmul_ops_best(), thread_pool_create(n_threads),
		      max_columns > forward->n_q ? max_columns : forward->n_q);
	return forward;
}

void
forward_destroy(struct forward *forward)
{
	if (forward == NULL)
		return;
	thread_pool_destroy(forward->matmul.thread_pool);
	matmul_destroy(&forward->matmul);
	for (unsigned int i = 0; i < forward->n_buffers; i++)
		free(forward->buffers[i]);
	free(forward);
}
