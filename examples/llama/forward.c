/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/forward.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "examples/llama/support.h"
#include "examples/llama/matmul.h"
#include "examples/llama/thread_pool.h"

/* Arguments of the parts of a job over rows. */
struct row_job {
	struct forward *forward;
	const struct forward_step *step;
	const float *weights;
};

static void
norm_row(void *argument, uint32_t row, uint32_t thread)
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
prepare_row(void *argument, uint32_t row, uint32_t thread)
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
	matmul_expand_row(forward->matmul.ops, &forward->model->embedding, job->step->tokens[row],
			  forward->x + (size_t)row * forward->model->n_embedding);
}

/* GGUF's Llama stores the two elements of each rotated pair next to each other (interleaved pairs). */
static void
rotate(float *heads, uint32_t n_heads, uint32_t dim, const float *rotations)
{
	for (uint32_t h = 0; h < n_heads; h++, heads += dim)
		for (uint32_t d = 0; d < dim; d += 2) {
			float a = heads[d], b = heads[d + 1];

			heads[d] = a * rotations[d] - b * rotations[d + 1];
			heads[d + 1] = a * rotations[d + 1] + b * rotations[d];
		}
}

static void
rotate_row(void *argument, uint32_t row, uint32_t thread)
{
	const struct row_job *job = argument;
	const struct model *model = job->forward->model;
	const float *rotations = job->forward->rotations + (size_t)row * model->head_dim;

	(void)thread;
	rotate(job->forward->q + (size_t)row * job->forward->n_q, model->n_heads, model->head_dim, rotations);
	rotate(job->forward->k + (size_t)row * job->forward->n_kv, model->n_kv_heads, model->head_dim, rotations);
}

/* gate = silu(gate) * up */
static void
gate_row(void *argument, uint32_t row, uint32_t thread)
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
run_rows(struct forward *forward, const struct forward_step *step, uint32_t n_rows, team_fn run, const float *weights)
{
	struct row_job job = { .forward = forward, .step = step, .weights = weights };

	team_run(forward->matmul.team, n_rows, run, &job);
}

static void
multiply(struct forward *forward, const struct product *products, uint32_t n_products, const float *x, uint32_t n_rows)
{
	double begin = now_s();

	matmul_run(&forward->matmul, products, n_products, x, n_rows);
	forward->times.products += now_s() - begin;
}

/* x += product, by way of `normed`, which is free here. */
static void
multiply_add(struct forward *forward, const struct matrix *weights, const float *from, uint32_t n_rows)
{
	size_t n = (size_t)n_rows * weights->n_rows;

	multiply(forward, &(struct product){ weights, forward->normed }, 1, from, n_rows);
	for (size_t i = 0; i < n; i++)
		forward->x[i] += forward->normed[i];
}

static void
run_layer(struct forward *forward, struct attention *attention, const struct forward_step *step, uint32_t number)
{
	const struct model_layer *layer = &forward->model->layers[number];
	const struct product projections[] = { { &layer->q, forward->q },
					       { &layer->k, forward->k },
					       { &layer->v, forward->v } };
	const struct product gates[] = { { &layer->gate, forward->gate }, { &layer->up, forward->up } };
	uint32_t n = step->n_tokens;
	double begin;

	run_rows(forward, step, n, norm_row, layer->attention_norm);
	multiply(forward, projections, 3, forward->normed, n);
	run_rows(forward, step, n, rotate_row, NULL);
	begin = now_s();
	attention->ops->run(attention, number, forward->q, forward->k, forward->v, forward->attended);
	forward->times.attention += now_s() - begin;
	multiply_add(forward, &layer->o, forward->attended, n);

	run_rows(forward, step, n, norm_row, layer->ffn_norm);
	multiply(forward, gates, 2, forward->normed, n);
	run_rows(forward, step, n, gate_row, NULL);
	multiply_add(forward, &layer->down, forward->gate, n);
}

const float *
forward_run(struct forward *forward, struct attention *attention, const struct forward_step *step)
{
	const struct model *model = forward->model;
	uint32_t n = model->n_embedding;

	assert(step->n_tokens <= forward->max_tokens && step->n_logits <= forward->max_logits);
	run_rows(forward, step, step->n_tokens, prepare_row, NULL);
	for (uint32_t layer = 0; layer < model->n_layers; layer++)
		run_layer(forward, attention, step, layer);
	/* Move the wanted rows to the front.  They are in ascending order, so none is overwritten before it moves. */
	for (uint32_t i = 0; i < step->n_logits; i++) {
		assert(i == 0 || step->wanted[i] > step->wanted[i - 1]);
		memmove(forward->x + (size_t)i * n, forward->x + (size_t)step->wanted[i] * n, n * sizeof(float));
	}
	if (step->n_logits > 0) {
		run_rows(forward, step, step->n_logits, norm_row, model->output_norm);
		multiply(forward, &(struct product){ &model->output, forward->logits }, 1, forward->normed,
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
buffer(struct forward *forward, uint32_t n_rows, uint32_t n)
{
	assert(forward->n_buffers < sizeof(forward->buffers) / sizeof(forward->buffers[0]));
	return forward->buffers[forward->n_buffers++] = allocate((size_t)n_rows * n, sizeof(float));
}

struct forward *
forward_create(const struct model *model, uint32_t n_threads, uint32_t max_tokens, uint32_t max_logits)
{
	struct forward *forward = allocate(1, sizeof(*forward));
	uint32_t max_columns = model->n_embedding > model->n_ffn ? model->n_embedding : model->n_ffn;

	forward->model = model;
	forward->max_tokens = max_tokens;
	forward->max_logits = max_logits;
	forward->n_q = model->n_heads * model->head_dim;
	forward->n_kv = model->n_kv_heads * model->head_dim;
	forward->frequencies = buffer(forward, 1, model->head_dim / 2);
	forward->rotations = buffer(forward, max_tokens, model->head_dim);
	forward->x = buffer(forward, max_tokens, model->n_embedding);
	forward->normed = buffer(forward, max_tokens, model->n_embedding);
	forward->q = buffer(forward, max_tokens, forward->n_q);
	forward->k = buffer(forward, max_tokens, forward->n_kv);
	forward->v = buffer(forward, max_tokens, forward->n_kv);
	forward->attended = buffer(forward, max_tokens, forward->n_q);
	forward->gate = buffer(forward, max_tokens, model->n_ffn);
	forward->up = buffer(forward, max_tokens, model->n_ffn);
	forward->logits = buffer(forward, max_logits, model->n_vocabulary);
	/* In f32, as the reference computes them. */
	for (uint32_t i = 0; i < model->head_dim / 2; i++)
		forward->frequencies[i] = 1 / powf(model->rope_base, (float)(2 * i) / (float)model->head_dim);
	matmul_create(&forward->matmul, matmul_ops_best(), team_create(n_threads),
		      max_columns > forward->n_q ? max_columns : forward->n_q);
	return forward;
}

void
forward_destroy(struct forward *forward)
{
	if (forward == NULL)
		return;
	team_destroy(forward->matmul.team);
	matmul_destroy(&forward->matmul);
	for (unsigned int i = 0; i < forward->n_buffers; i++)
		free(forward->buffers[i]);
	free(forward);
}
