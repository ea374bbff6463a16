/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Append new keys and values to the pages, up to APPEND_TOKENS tokens per block
 * at a time.  Lane i of each warp finds the page of token i, so that these chains
 * of loads overlap, and the other lanes receive it by a shuffle.
 *
 * If elements are only copied or rounded, a thread takes eight elements of a
 * head, of each token, and loads all of them before it stores any.  With rotary
 * embedding, or if the pool's elements are bytes, several lanes share a head.
 * All of them read the head before any writes, so queries can be rotated in
 * place, and the head's absolute maximum is known.
 */
#include "kernels/cuda/device/quantise.h"
#include "kernels/cuda/device/rotary.h"
#include "kernels/cuda/device/plan_lookup.h"

/* Maximum of 8-element vectors of a head per lane. */
#define LANE_VEC8S 3u
static_assert(LANE_VEC8S * 32 * 8 >= 576, "the largest dim there is");

/* Most tokens that a block has in flight.  A block takes fewer if there are blocks enough for that. */
#define APPEND_TOKENS 4u

/* The work for the token of one packed query row. */
struct append_token {
	uint32_t packed; /* UINT32_MAX: there is none */
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

/* The token that a lane of this warp has found.  All lanes call. */
SIMT_FUNCTION append_token
append_token_of_lane(const append_token &mine, uint32_t lane)
{
	append_token token;

	token.packed = simt_shuffle(mine.packed, (int)lane);
	token.write = simt_shuffle((uint32_t)mine.write, (int)lane) != 0;
	token.page = simt_shuffle(mine.page, (int)lane);
	token.slot = simt_shuffle(mine.slot, (int)lane);
	token.angles = simt_shuffle((uint32_t)mine.angles, (int)lane) |
		       (uint64_t)simt_shuffle((uint32_t)(mine.angles >> 32), (int)lane) << 32;
	return token;
}

/* Eight elements of each token.  Those that are copied as 16 bytes are loaded before any is stored. */
SIMT_FUNCTION void
append_vec8s(const cuda_append_params &p, uint32_t plane, const cuda_tensor &from,
	     const append_token tokens[APPEND_TOKENS], uint32_t at)
{
	const cuda_plane &to = p.pages.plane[plane];
	uint32_t vec8s = (to.dim + 7) / 8, head = at / vec8s, vec8 = at % vec8s;
	bool same = to.dtype == from.dtype && dtype_size(to.dtype) == 2 && vec8 * 8 + 8 <= to.dim;
	uint64_t source[APPEND_TOKENS], target[APPEND_TOKENS];
	bool loaded[APPEND_TOKENS];
	simt_vec4 v[APPEND_TOKENS];

	SIMT_UNROLL
	for (uint32_t j = 0; j < APPEND_TOKENS; j++) {
		source[j] = tensor_address(from, tokens[j].packed, head);
		target[j] = plane_address(to, tokens[j].page, head, tokens[j].slot);
		loaded[j] = same && tokens[j].write && (source[j] | target[j]) % 16 == 0;
		if (loaded[j])
			v[j] = pointer_to<const simt_vec4>(source[j])[vec8];
	}
	SIMT_UNROLL
	for (uint32_t j = 0; j < APPEND_TOKENS; j++)
		if (loaded[j])
			pointer_to<simt_vec4>(target[j])[vec8] = v[j];
		else if (tokens[j].write)
			vec8_copy(target[j], to.dtype, source[j], from.dtype, vec8, to.dim);
}

/* Copy the tokens' K and V, or round them to the pool's dtype. */
SIMT_FUNCTION void
append_tokens_copy(const cuda_append_params &p, const append_token &mine)
{
	uint32_t n_k = (p.pages.plane[CUDA_K].dim + 7) / 8 * p.pages.n_kv_heads;
	uint32_t n_v = p.pages.v_in_k ? 0 : (p.pages.plane[CUDA_V].dim + 7) / 8 * p.pages.n_kv_heads;
	append_token tokens[APPEND_TOKENS];

	SIMT_UNROLL
	for (uint32_t j = 0; j < APPEND_TOKENS; j++)
		tokens[j] = append_token_of_lane(mine, j);
	for (uint32_t i = simt_thread(); i < n_k + n_v; i += simt_n_threads())
		if (i < n_k)
			append_vec8s(p, CUDA_K, p.k, tokens, i);
		else
			append_vec8s(p, CUDA_V, p.v, tokens, i - n_k);
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
 * Process the heads of n tokens that are rotated, or stored as bytes.  A head gets a power of two of lanes, from 4 to
 * 32: one for each eight elements, if 32 lanes suffice.
 */
SIMT_FUNCTION void
append_tokens_heads(const cuda_append_params &p, const append_token &mine, uint32_t n_tokens)
{
	const append_head none = { 0, 0, CUDA_F32, CUDA_F32, 0, 0, 1, 0 };
	uint32_t n_kv = p.pages.n_kv_heads * (p.pages.v_in_k ? 1 : 2);
	uint32_t n_heads = n_kv + (p.rotary.cos_sin != 0 && p.rotary.q.address != 0 ? p.rotary.n_q_heads : 0);
	uint32_t k_dim = p.pages.plane[CUDA_K].dim, v_dim = p.pages.plane[CUDA_V].dim;
	uint32_t width = 32, first;

	while (width > 4 && width / 2 * 8 >= (k_dim > v_dim ? k_dim : v_dim))
		width /= 2;
	for (first = simt_warp() * (32 / width); first < n_tokens * n_heads; first += simt_n_threads() / width) {
		uint32_t number = (first + simt_lane() / width) % n_heads;
		append_token token = append_token_of_lane(mine, (first + simt_lane() / width) / n_heads);
		append_head head = none;

		if (token.write && number < n_kv)
			head = append_head_of_pool(p, token, number);
		else if (token.packed != UINT32_MAX && number >= n_kv)
			head = append_head_of_query(p, token, number - n_kv);
		append_head_store(p.rotary, head, simt_lane() % width, width);
	}
}

SIMT_KERNEL(append_tokens, cuda_append_params, CUDA_APPEND_THREADS, 2)
{
	bool copied = p.rotary.cos_sin == 0 && dtype_size(p.pages.plane[CUDA_K].dtype) > 1;
	uint32_t total = plan_head(p.plan)->total_q, n_blocks = simt_n_blocks();
	uint32_t at_once = total <= n_blocks ? 1 : total >= n_blocks * APPEND_TOKENS ? APPEND_TOKENS : 2;

	for (uint32_t first = simt_block() * at_once; first < total; first += n_blocks * at_once) {
		append_token mine;

		if (simt_lane() >= at_once || first + simt_lane() >= total ||
		    !append_token_find(p, first + simt_lane(), &mine))
			mine = { UINT32_MAX, false, 0, 0, 0 };
		if (copied)
			append_tokens_copy(p, mine);
		else
			append_tokens_heads(p, mine, at_once);
	}
}
