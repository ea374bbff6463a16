/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/forward.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "examples/llama/matmul.h"
#include "examples/llama/team.h"

struct forward {
	const struct model *model;
	const struct matmul_ops *ops;
	struct team *team;
	struct matmul_scratch scratch;
	uint32_t max_tokens, max_logits;
	uint32_t n_q, n_kv; /* width of a token's queries, and of its K or V */
	float *frequencies; /* [head_dim / 2] */
	/* [max_tokens] of each */
	float *rotations; /* [head_dim / 2][cos, sin] */
	float *x;         /* the residual stream */
	float *normed;
	float *q, *k, *v, *attended;
	float *gate, *up;
	float *logits; /* [max_logits][n_vocabulary] */
	struct forward_times times;
};

static double
now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* What the parts of a job over rows need. */
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
	matmul_expand_row(forward->ops, &forward->model->embedding, job->step->tokens[row],
			  forward->x + (size_t)row * forward->model->n_embedding);
}

/* GGUF's Llama has the two halves of each rotated pair side by side. */
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

	if (n_rows == 1)
		run(&job, 0, 0);
	else
		team_run(forward->team, n_rows, run, &job);
}

static void
multiply(struct forward *forward, const struct matmul *products, uint32_t n_products, const float *x, uint32_t n_rows)
{
	double begin = now_s();

	matmul_run(forward->ops, forward->team, &forward->scratch, products, n_products, x,
		   products[0].weights->n_columns, n_rows);
	forward->times.products += now_s() - begin;
}

/* x += product, by way of `normed`, which is free here. */
static void
multiply_add(struct forward *forward, const struct matrix *weights, const float *from, uint32_t n_rows)
{
	size_t n = (size_t)n_rows * weights->n_rows;

	multiply(forward, &(struct matmul){ weights, forward->normed, weights->n_rows }, 1, from, n_rows);
	for (size_t i = 0; i < n; i++)
		forward->x[i] += forward->normed[i];
}

static bool
attend(struct forward *forward, struct attention *attention, uint32_t layer, struct error *error)
{
	double begin = now_s();
	bool ok = attention->ops->run(attention, layer, forward->q, forward->k, forward->v, forward->attended, error);

	forward->times.attention += now_s() - begin;
	return ok;
}

static bool
run_layer(struct forward *forward, struct attention *attention, const struct forward_step *step, uint32_t number,
	  struct error *error)
{
	const struct model_layer *layer = &forward->model->layers[number];
	uint32_t n = step->n_tokens, n_ffn = forward->model->n_ffn;
	const struct matmul projections[] = { { &layer->q, forward->q, forward->n_q },
					      { &layer->k, forward->k, forward->n_kv },
					      { &layer->v, forward->v, forward->n_kv } };
	const struct matmul gates[] = { { &layer->gate, forward->gate, n_ffn }, { &layer->up, forward->up, n_ffn } };

	run_rows(forward, step, n, norm_row, layer->attention_norm);
	multiply(forward, projections, 3, forward->normed, n);
	run_rows(forward, step, n, rotate_row, NULL);
	if (!attend(forward, attention, number, error))
		return false;
	multiply_add(forward, &layer->o, forward->attended, n);

	run_rows(forward, step, n, norm_row, layer->ffn_norm);
	multiply(forward, gates, 2, forward->normed, n);
	run_rows(forward, step, n, gate_row, NULL);
	multiply_add(forward, &layer->down, forward->gate, n);
	return true;
}

bool
forward_run(struct forward *forward, struct attention *attention, const struct forward_step *step,
	    const float **logits_p, struct error *error)
{
	const struct model *model = forward->model;
	uint32_t n = model->n_embedding;
	double begin = now_s();

	assert(step->n_tokens <= forward->max_tokens && step->n_logits <= forward->max_logits);
	run_rows(forward, step, step->n_tokens, prepare_row, NULL);
	for (uint32_t layer = 0; layer < model->n_layers; layer++)
		if (!run_layer(forward, attention, step, layer, error))
			return false;
	/* The wanted rows move to the front; they are in ascending order, so none is overwritten before it moved. */
	for (uint32_t i = 0; i < step->n_logits; i++) {
		assert(i == 0 || step->wanted[i] > step->wanted[i - 1]);
		if (step->wanted[i] != i)
			memcpy(forward->x + (size_t)i * n, forward->x + (size_t)step->wanted[i] * n, n * sizeof(float));
	}
	if (step->n_logits > 0) {
		run_rows(forward, step, step->n_logits, norm_row, model->output_norm);
		multiply(forward, &(struct matmul){ &model->output, forward->logits, model->n_vocabulary }, 1,
			 forward->normed, step->n_logits);
	}
	*logits_p = forward->logits;
	forward->times.all += now_s() - begin;
	return true;
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

const struct forward_times *
forward_times(const struct forward *forward)
{
	return &forward->times;
}

struct team *
forward_team(const struct forward *forward)
{
	return forward->team;
}

const struct matmul_ops *
forward_ops(const struct forward *forward)
{
	return forward->ops;
}

const char *
forward_isa(const struct forward *forward)
{
	return forward->ops->name;
}

static float *
allocate(uint64_t n_rows, uint64_t n, bool *ok)
{
	float *rows = calloc(n_rows * n > 0 ? n_rows * n : 1, sizeof(float));

	*ok = *ok && rows != NULL;
	return rows;
}

static bool
allocate_buffers(struct forward *forward)
{
	const struct model *model = forward->model;
	uint32_t n = forward->max_tokens;
	bool ok = true;

	forward->frequencies = allocate(1, model->head_dim / 2, &ok);
	forward->rotations = allocate(n, model->head_dim, &ok);
	forward->x = allocate(n, model->n_embedding, &ok);
	forward->normed = allocate(n, model->n_embedding, &ok);
	forward->q = allocate(n, forward->n_q, &ok);
	forward->k = allocate(n, forward->n_kv, &ok);
	forward->v = allocate(n, forward->n_kv, &ok);
	forward->attended = allocate(n, forward->n_q, &ok);
	forward->gate = allocate(n, model->n_ffn, &ok);
	forward->up = allocate(n, model->n_ffn, &ok);
	forward->logits = allocate(forward->max_logits, model->n_vocabulary, &ok);
	return ok;
}

static uint32_t
most_columns(const struct model *model)
{
	uint32_t n = model->n_embedding > model->n_ffn ? model->n_embedding : model->n_ffn;

	return n > model->n_heads * model->head_dim ? n : model->n_heads * model->head_dim;
}

bool
forward_create(const struct model *model, uint32_t n_threads, uint32_t max_tokens, uint32_t max_logits,
	       struct forward **forward_p, struct error *error)
{
	struct forward *forward = calloc(1, sizeof(*forward));

	if (forward == NULL)
		return error_set(error, "no memory for a step");
	forward->model = model;
	forward->ops = matmul_ops_best();
	forward->max_tokens = max_tokens;
	forward->max_logits = max_logits;
	forward->n_q = model->n_heads * model->head_dim;
	forward->n_kv = model->n_kv_heads * model->head_dim;
	if (!allocate_buffers(forward)) {
		error_set(error, "no memory for steps of %u tokens", max_tokens);
		goto err_destroy;
	}
	/* In f32, as the reference computes them. */
	for (uint32_t i = 0; i < model->head_dim / 2; i++)
		forward->frequencies[i] = 1 / powf(model->rope_base, (float)(2 * i) / (float)model->head_dim);
	if (!team_create(n_threads, &forward->team, error) ||
	    !matmul_scratch_create(&forward->scratch, n_threads, most_columns(model), error))
		goto err_destroy;
	*forward_p = forward;
	return true;

err_destroy:
	forward_destroy(forward);
	return false;
}

void
forward_destroy(struct forward *forward)
{
	if (forward == NULL)
		return;
	matmul_scratch_destroy(&forward->scratch);
	team_destroy(forward->team);
	free(forward->logits);
	free(forward->up);
	free(forward->gate);
	free(forward->attended);
	free(forward->v);
	free(forward->k);
	free(forward->q);
	free(forward->normed);
	free(forward->x);
	free(forward->rotations);
	free(forward->frequencies);
	free(forward);
}
