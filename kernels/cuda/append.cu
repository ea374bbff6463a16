/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Append new keys and values to the pages, one token per block at a time.
 *
 * If elements are only copied or rounded, a thread takes eight elements of a
 * head.  With rotary embedding, or if the pool's elements are bytes, several
 * lanes share a head.  All of them read the head before any writes, so queries
 * can be rotated in place, and the head's absolute maximum is known.
 */
#include "kernels/cuda/quantise.h"
#include "kernels/cuda/rotary.h"
#include "kernels/cuda/plan_lookup.h"

/* Maximum of 8-element vectors of a head per lane. */
#define LANE_VEC8S 3u
static_assert(LANE_VEC8S * 32 * 8 >= 576, "the largest dim there is");

/* The work for the token of one packed query row. */
struct append_token {
	uint32_t packed;
	bool write;
	uint32_t page, slot;
	uint64_t angles; /* address of cosines and sines; 0: no rotation */
};

/* A head of a token to append, or of a query to rotate. */
struct append_head {
	uint64_t from, to;
	uint32_t from_dtype, to_dtype;
	uint32_t dim;
	uint64_t angles;
	float factor;   /* that fp8 elements are multiplied by */
	uint64_t scale; /* address to store the scale of i8 at; 0: none */
};

SIMT_FUNCTION bool
append_token_locate(const cuda_append_params &p, uint32_t r, append_token *token)
{
	const cuda_row &row = plan_row_at(p.plan, r);
	int64_t position;

	if (p.positions != 0)
		position = pointer_to<const uint32_t>(p.positions)[token->packed];
	else
		position = (int64_t)row.kv_len - row.q_len + (token->packed - row.q_start);
	if (position < 0 || position >= (int64_t)p.plan.table_stride * p.pages.page_size) {
		plan_fault(p.plan, CUDA_FAULT_POSITION, r);
		return false;
	}
	if (position < row.writable_from) {
		plan_fault(p.plan, CUDA_FAULT_SHARED, r);
		return false;
	}
	token->slot = (uint32_t)position % p.pages.page_size;
	token->page = plan_page(p.plan, r, (uint32_t)position / p.pages.page_size, p.pages.n_pages);
	return token->page != UINT32_MAX;
}

SIMT_FUNCTION bool
append_token_angles(const cuda_append_params &p, uint32_t r, append_token *token)
{
	const cuda_row &row = plan_row_at(p.plan, r);
	int64_t position = row.q_base + (token->packed - row.q_start);

	if (p.rotary.cos_sin == 0)
		return true;
	if (p.rotary.positions != 0)
		position = pointer_to<const uint32_t>(p.rotary.positions)[token->packed];
	if (position < 0 || position >= (int64_t)p.rotary.n_positions) {
		plan_fault(p.plan, CUDA_FAULT_POSITION, r);
		return false;
	}
	token->angles = p.rotary.cos_sin + (uint64_t)position * p.rotary.dim * sizeof(float);
	return true;
}

/* Find the work for a token.  Returns false if there is none; if that is an error, a fault has been recorded. */
SIMT_FUNCTION bool
append_token_find(const cuda_append_params &p, uint32_t packed, append_token *token)
{
	uint32_t r = plan_find_query(p.plan, packed);
	const cuda_row &row = plan_row_at(p.plan, r);
	bool skip = row.writable_from == CUDA_WRITABLE_SKIP;

	*token = { packed, false, 0, 0, 0 };
	/* Rows with a fault are empty, so some packed rows belong to no row. */
	if (packed - row.q_start >= row.q_len || (skip && p.rotary.q.address == 0))
		return false;
	if (!append_token_angles(p, r, token))
		return false;
	token->write = !skip && append_token_locate(p, r, token);
	return token->write || skip;
}

SIMT_FUNCTION void
append_vec8(const cuda_append_params &p, uint32_t plane, const cuda_tensor &from, const append_token &token,
	    uint32_t at)
{
	const cuda_plane &to = p.pages.plane[plane];
	uint32_t vec8s = (to.dim + 7) / 8;

	vec8_copy(plane_address(to, token.page, at / vec8s, token.slot), to.dtype,
		  tensor_address(from, token.packed, at / vec8s), from.dtype, at % vec8s, to.dim);
}

/* Copy a token's K and V, or round them to the pool's dtype. */
SIMT_FUNCTION void
append_token_copy(const cuda_append_params &p, const append_token &token)
{
	uint32_t n_k = (p.pages.plane[CUDA_K].dim + 7) / 8 * p.pages.n_kv_heads;
	uint32_t n_v = p.pages.v_in_k ? 0 : (p.pages.plane[CUDA_V].dim + 7) / 8 * p.pages.n_kv_heads;

	for (uint32_t i = simt_thread(); i < n_k + n_v; i += simt_n_threads())
		if (i < n_k)
			append_vec8(p, CUDA_K, p.k, token, i);
		else
			append_vec8(p, CUDA_V, p.v, token, i - n_k);
}

/* Head `number` of a token's K and V, counting the heads of K, then those of V. */
SIMT_FUNCTION append_head
append_head_of_pool(const cuda_append_params &p, const append_token &token, uint32_t number)
{
	uint32_t plane = number < p.pages.n_kv_heads ? CUDA_K : CUDA_V, head = number % p.pages.n_kv_heads;
	const cuda_tensor &from = plane == CUDA_K ? p.k : p.v;
	const cuda_plane &to = p.pages.plane[plane], &scale = p.pages.scale[plane];
	uint64_t scales = plane == CUDA_K ? p.k_scale : p.v_scale;
	append_head made;

	made.from = tensor_address(from, token.packed, head);
	made.from_dtype = from.dtype;
	made.to = plane_address(to, token.page, head, token.slot);
	made.to_dtype = to.dtype;
	made.dim = to.dim;
	made.angles = plane == CUDA_K ? token.angles : 0;
	made.factor = scales == 0 ? 1 : 1.0f / pointer_to<const float>(scales)[head];
	made.scale = scale.address == 0 ? 0 : plane_address(scale, token.page, head, token.slot);
	return made;
}

SIMT_FUNCTION append_head
append_head_of_query(const cuda_append_params &p, const append_token &token, uint32_t head)
{
	append_head made;

	made.from = tensor_address(p.rotary.q, token.packed, head);
	made.from_dtype = p.rotary.q.dtype;
	made.to = tensor_address(p.rotary.q_out, token.packed, head);
	made.to_dtype = p.rotary.q_out.dtype;
	made.dim = p.rotary.q.dim;
	made.angles = token.angles;
	made.factor = 1;
	made.scale = 0;
	return made;
}

/* The absolute maximum among `width` lanes; NaN if any element is NaN. */
SIMT_FUNCTION float
lanes_absmax(const float v[LANE_VEC8S][8], uint32_t width)
{
	float absmax = 0;

	SIMT_UNROLL
	for (uint32_t j = 0; j < LANE_VEC8S; j++)
		SIMT_UNROLL
		for (uint32_t i = 0; i < 8; i++)
			absmax = simt_max(absmax, quantise_abs(v[j][i]));
	for (uint32_t step = width / 2; step > 0; step /= 2)
		absmax = simt_max(absmax, simt_shuffle_xor(absmax, (int)step));
	return absmax;
}

/* Process a head by `width` lanes, of which this is `at`.  All lanes of the warp call; dim is 0 if there is no head. */
SIMT_FUNCTION void
append_head_store(const cuda_rotary &rotary, const append_head &head, uint32_t at, uint32_t width)
{
	const rotary_head rotated = { head.from, head.from_dtype, head.angles };
	float v[LANE_VEC8S][8], factor = head.factor;
	quantise_scale scale;

	SIMT_UNROLL
	for (uint32_t j = 0; j < LANE_VEC8S; j++) {
		uint32_t begin = (at + j * width) * 8;

		vec8_load_first(v[j], head.from + begin * dtype_size(head.from_dtype), head.from_dtype,
				begin < head.dim ? head.dim - begin : 0);
		if (head.angles != 0 && begin < head.dim)
			rotary_apply(rotary, rotated, begin, head.dim, v[j]);
	}
	scale = quantise_scale_of(lanes_absmax(v, width)); /* its shuffles wait for the reads of all lanes */
	simt_warp_sync();
	if (head.scale != 0) {
		factor = scale.factor;
		if (at == 0)
			*pointer_to<float>(head.scale) = scale.scale;
	}
	SIMT_UNROLL
	for (uint32_t j = 0; j < LANE_VEC8S; j++) {
		uint32_t begin = (at + j * width) * 8;
		uint64_t to = head.to + begin * dtype_size(head.to_dtype);

		if (begin >= head.dim)
			continue;
		if (dtype_size(head.to_dtype) == 1)
			quantise_store(to, head.to_dtype, v[j], factor, head.dim - begin);
		else
			vec8_store_first(to, head.to_dtype, v[j], head.dim - begin);
	}
}

/*
 * Process the heads of a token that is rotated, or stored as bytes.  A head gets a power of two of lanes, from 4 to 32:
 * one for each eight elements, if 32 lanes suffice.
 */
SIMT_FUNCTION void
append_token_heads(const cuda_append_params &p, const append_token &token)
{
	const append_head none = { 0, 0, CUDA_F32, CUDA_F32, 0, 0, 1, 0 };
	uint32_t n_kv = token.write ? p.pages.n_kv_heads * (p.pages.v_in_k ? 1 : 2) : 0;
	uint32_t n = n_kv + (p.rotary.cos_sin != 0 && p.rotary.q.address != 0 ? p.rotary.n_q_heads : 0);
	uint32_t k_dim = p.pages.plane[CUDA_K].dim, v_dim = p.pages.plane[CUDA_V].dim;
	uint32_t width = 32, first;

	while (width > 4 && width / 2 * 8 >= (k_dim > v_dim ? k_dim : v_dim))
		width /= 2;
	for (first = simt_warp() * (32 / width); first < n; first += simt_n_threads() / width) {
		uint32_t number = first + simt_lane() / width;
		append_head head = none;

		if (number < n)
			head = number < n_kv ? append_head_of_pool(p, token, number)
					     : append_head_of_query(p, token, number - n_kv);
		append_head_store(p.rotary, head, simt_lane() % width, width);
	}
}

SIMT_KERNEL(append_tokens, cuda_append_params, CUDA_APPEND_THREADS, 1)
{
	bool copied = p.rotary.cos_sin == 0 && dtype_size(p.pages.plane[CUDA_K].dtype) > 1;
	uint32_t total = plan_head(p.plan)->total_q;
	append_token token;

	for (uint32_t packed = simt_block(); packed < total; packed += simt_n_blocks()) {
		if (!append_token_find(p, packed, &token))
			continue;
		if (copied)
			append_token_copy(p, token);
		else
			append_token_heads(p, token);
	}
}
