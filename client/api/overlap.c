/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/api/overlap.h"

#include "client/api/batch/batch.h"

/** The memory of an operand.  `end` equal to `begin`: it has none. */
struct overlap_memory {
	const char *name; /* in error texts */
	uint64_t begin, end;
	int64_t stride[3]; /* bytes, from one block to the next */
	int64_t n[3];      /* blocks */
	int64_t block;     /* contiguous bytes */
};

static struct overlap_memory
overlap_bytes(const char *name, const void *data, uint64_t n_bytes)
{
	uint64_t begin = (uintptr_t)data;

	return (struct overlap_memory){ .name = name,
					.begin = begin,
					.end = data != NULL ? begin + n_bytes : begin,
					.n = { 1, 1, 1 },
					.block = (int64_t)n_bytes };
}

static struct overlap_memory
overlap_tensor(const char *name, const struct kernel_tensor *tensor, const struct tensor_tokens *tokens)
{
	struct overlap_memory memory = overlap_bytes(name, tokens->n != 0 ? tensor->data : NULL,
						     tensor->dim * paged_dtype_size(tensor->dtype));

	if (memory.begin == memory.end)
		return memory;
	memory.n[0] = tensor->n_heads;
	memory.stride[0] = tensor->head_stride;
	memory.n[1] = (int64_t)tokens->n;
	memory.stride[1] = tensor->token_stride;
	if (tensor->batch_skip != 0) {
		memory.n[1] = tensor->batch_tokens;
		memory.n[2] = (int64_t)(tokens->n / tensor->batch_tokens);
		memory.stride[2] = tensor->batch_skip + memory.n[1] * tensor->token_stride;
	}
	for (int i = 0; i < 3; i++)
		memory.end += (uint64_t)((memory.n[i] - 1) * memory.stride[i]);
	return memory;
}

/*
 * Bytes from the first to the last that the memory has in a period, if its blocks repeat with this period; 0: they do
 * not.
 */
static int64_t
overlap_within(const struct overlap_memory *memory, int64_t period)
{
	int64_t within = memory->block;

	for (int i = 0; i < 3; i++) {
		if (memory->n[i] <= 1 || memory->stride[i] % period == 0)
			continue;
		if (memory->stride[i] > period)
			return 0;
		within += (memory->n[i] - 1) * memory->stride[i];
	}
	return within <= period ? within : 0;
}

/* Whether the blocks of the two lie in different parts of each period. */
static bool
overlap_interleaves(const struct overlap_memory *a, const struct overlap_memory *b, int64_t period)
{
	int64_t a_within = overlap_within(a, period), b_within = overlap_within(b, period), distance;

	if (a_within == 0 || b_within == 0)
		return false;
	distance = (int64_t)((b->begin - a->begin) % (uint64_t)period);
	if (b->begin < a->begin)
		distance = period - 1 - (int64_t)((a->begin - b->begin - 1) % (uint64_t)period);
	return distance >= a_within && distance + b_within <= period;
}

static bool
overlap_is(const struct overlap_memory *a, const struct overlap_memory *b)
{
	if (a->begin == a->end || b->begin == b->end || a->end <= b->begin || b->end <= a->begin)
		return false;
	for (int i = 0; i < 3; i++)
		if (a->n[i] > 1 && overlap_interleaves(a, b, a->stride[i]))
			return false;
	return true;
}

static enum paged_status
overlap_check_one(const struct overlap_memory *out, const struct overlap_memory *other, size_t n,
		  struct paged_error *error)
{
	for (size_t i = 0; i < n; i++)
		if (overlap_is(out, &other[i]))
			return paged_fail(
				error, PAGED_ERR_INVALID,
				"%s shares memory with %s, which is written: pass a tensor with its own memory",
				other[i].name, out->name);
	return PAGED_OK;
}

/* An output shares no memory with an input or another output. */
static enum paged_status
overlap_check(const struct overlap_memory *outs, size_t n_outs, const struct overlap_memory *ins, size_t n_ins,
	      struct paged_error *error)
{
	enum paged_status status = PAGED_OK;

	for (size_t i = 0; status == PAGED_OK && i < n_outs; i++) {
		status = overlap_check_one(&outs[i], ins, n_ins, error);
		if (status == PAGED_OK)
			status = overlap_check_one(&outs[i], outs + i + 1, n_outs - i - 1, error);
	}
	return status;
}

#define OVERLAP_N(array) (sizeof(array) / sizeof((array)[0]))

static struct overlap_memory
overlap_pages(const struct paged_batch *batch)
{
	return overlap_bytes("the pool's pages", batch->pool->mapping.base, batch->pool->mapping.layout.size);
}

static struct overlap_memory
overlap_scales(const struct paged_batch *batch, const char *name, const float *scales)
{
	return overlap_bytes(name, scales, batch->pool->mapping.layout.params.n_kv_heads * sizeof(*scales));
}

enum paged_status
overlap_check_append(const struct paged_batch *batch, const struct append_args *args, struct paged_error *error)
{
	const struct tensor_tokens tokens = { .n = batch->total_q };
	const struct kernel_rotary none = { 0 }, *rotary = args->rotary != NULL ? args->rotary : &none;
	bool in_place = rotary->q_out.data == rotary->q.data;
	uint64_t positions = batch->total_q * sizeof(*args->positions);
	const struct overlap_memory outs[] = {
		overlap_pages(batch),
		overlap_tensor("rotary q_out", &rotary->q_out, &tokens),
	};
	const struct overlap_memory ins[] = {
		overlap_tensor("k", &args->k, &tokens),
		overlap_tensor("v", &args->v, &tokens),
		overlap_bytes("positions", args->positions, positions),
		overlap_scales(batch, "k_scale", args->k_scale),
		overlap_scales(batch, "v_scale", args->v_scale),
		overlap_bytes("rotary cos_sin", rotary->cos_sin,
			      (uint64_t)rotary->n_positions * rotary->dim * sizeof(*rotary->cos_sin)),
		overlap_bytes("rotary positions", rotary->positions, positions),
		in_place ? overlap_bytes("rotary q", NULL, 0) : overlap_tensor("rotary q", &rotary->q, &tokens),
	};

	return batch->on_device ? PAGED_OK : overlap_check(outs, OVERLAP_N(outs), ins, OVERLAP_N(ins), error);
}

enum paged_status
overlap_check_gather(const struct paged_batch *batch, const struct gather_args *args,
		     const struct tensor_tokens *tokens, struct paged_error *error)
{
	const struct overlap_memory outs[] = {
		overlap_tensor("k", &args->k, tokens),
		overlap_tensor("v", &args->v, tokens),
	};
	const struct overlap_memory ins[] = {
		overlap_pages(batch),
		overlap_bytes("begin", args->begin, batch->n_rows * sizeof(*args->begin)),
		overlap_bytes("end", args->end, batch->n_rows * sizeof(*args->end)),
		overlap_scales(batch, "k_scale", args->k_scale),
		overlap_scales(batch, "v_scale", args->v_scale),
	};

	return batch->on_device ? PAGED_OK : overlap_check(outs, OVERLAP_N(outs), ins, OVERLAP_N(ins), error);
}

enum paged_status
overlap_check_attention(const struct paged_batch *batch, const struct attention_args *args, struct paged_error *error)
{
	const struct tensor_tokens tokens = { .n = batch->total_q };
	uint64_t scores = batch->total_q * args->q.n_heads * sizeof(*args->lse);
	const struct overlap_memory outs[] = {
		overlap_tensor("out", &args->out, &tokens),
		overlap_bytes("lse", args->lse, scores),
		overlap_bytes("max_score", args->max_score, scores),
	};
	const struct overlap_memory ins[] = {
		overlap_tensor("q", &args->q, &tokens),
		overlap_bytes("sink", args->sink, args->q.n_heads * sizeof(*args->sink)),
		overlap_scales(batch, "k_scale", args->k_scale),
		overlap_scales(batch, "v_scale", args->v_scale),
		overlap_pages(batch),
	};

	return batch->on_device ? PAGED_OK : overlap_check(outs, OVERLAP_N(outs), ins, OVERLAP_N(ins), error);
}

enum paged_status
overlap_check_merge(const struct merge_args *args, const struct tensor_tokens *tokens, struct paged_error *error)
{
	static const char *const names[2][2] = { { "part[0] (a)", "part_lse[0] (a_lse)" },
						 { "part[1] (b)", "part_lse[1] (b_lse)" } };
	uint64_t scores = tokens->n * args->out.n_heads * sizeof(*args->lse);
	const struct overlap_memory outs[] = {
		overlap_tensor("out", &args->out, tokens),
		overlap_bytes("lse", args->lse, scores),
	};
	struct overlap_memory ins[4];

	for (unsigned int i = 0; i < 2; i++) {
		bool out_in_place = args->part[i].out.data == args->out.data;
		bool lse_in_place = args->part[i].lse == args->lse;

		/* A tensor that is written in place takes part in the comparisons as the output that it is. */
		ins[2 * i] = out_in_place ? overlap_bytes(names[i][0], NULL, 0)
					  : overlap_tensor(names[i][0], &args->part[i].out, tokens);
		ins[2 * i + 1] = overlap_bytes(names[i][1], lse_in_place ? NULL : args->part[i].lse, scores);
	}
	return overlap_check(outs, OVERLAP_N(outs), ins, OVERLAP_N(ins), error);
}
