/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/token_addresses.h"

#include <assert.h>
#include <string.h>

#include "kernels/cpu/q_rows.h"

void
locate_tokens(const struct attention_job *job, const struct q_tile *q, unsigned int plane, uint32_t begin,
	      uint32_t n_tokens, uint64_t wanted, struct tile_tokens *tokens)
{
	const struct kernel_pages *pages = &job->args->pages;
	const struct layout_plane *p = &pages->layout->plane[plane];
	const uint8_t *base = pages->base + layout_offset(pages->layout, plane, pages->layer, 0, q->kv_head, 0);
	const uint64_t page_stride = p->page_stride, token_stride = p->token_stride;
	uint32_t page_size = pages->layout->params.page_size, slot = begin % page_size;
	const uint32_t *page = &q->row->pages[begin / page_size];
	bool gaps = false;
	uint32_t i = 0;

	for (; i < n_tokens; slot = 0, page++) {
		uint32_t left = page_size - slot, end = n_tokens - i < left ? n_tokens : i + left;
		const uint8_t *at;

		if (wanted != ~UINT64_C(0) && (wanted & token_bits(i, end)) == 0) {
			gaps = true;
			while (i < end)
				tokens->token[i++] = NULL;
			continue;
		}
		assert(*page < pages->layout->params.n_pages);
		at = base + *page * page_stride + slot * token_stride;
		for (; i < end; i++, at += token_stride)
			tokens->token[i] = at;
	}
	/* Tokens of a skipped page get the address of a wanted token: no q_row sees them. */
	for (uint32_t t = 0; gaps && t < n_tokens; t++)
		if (tokens->token[t] == NULL)
			tokens->token[t] = tokens->token[__builtin_ctzll(wanted)];
	for (; i % TILE_TOKEN_BLOCK != 0; i++)
		tokens->token[i] = tokens->token[n_tokens - 1];
	tokens->n_tokens = n_tokens;
	tokens->dtype = p->dtype;
	tokens->padded = p->dim;
	tokens->stride = page_size % TILE_STRIDE_TOKENS == 0 && !gaps ? token_stride : 0;
}

void
locate_next_head(const struct attention_job *job, unsigned int plane, struct tile_tokens *tokens)
{
	const uint64_t stride = job->args->pages.layout->plane[plane].head_stride;

	for (uint32_t i = 0; i < tokens->n_tokens; i += TILE_TOKEN_BLOCK)
		for (uint32_t j = 0; j < TILE_TOKEN_BLOCK; j++)
			tokens->token[i + j] = (const uint8_t *)tokens->token[i + j] + stride;
}

void
locate_tile(const struct attention_job *job, const struct q_tile *q, const struct tile_view *view,
	    struct team_scratch *scratch)
{
	if (scratch->next_begin == view->begin)
		scratch->k_tokens = scratch->next_keys;
	else
		locate_tokens(job, q, LAYOUT_K, view->begin, view->n_tokens, view->wanted, &scratch->k_tokens);
	locate_tokens(job, q, LAYOUT_V, view->begin, view->n_tokens, view->wanted, &scratch->v_tokens);
}

const struct tile_tokens *
locate_next_keys(const struct attention_job *job, const struct next_tile *next, struct team_scratch *scratch)
{
	uint64_t begin = next->tile.begin;

	scratch->next_begin = UINT64_MAX;
	if (begin >= next->item->kv_end || next->tile.mask != TILE_FULL)
		return NULL;
	locate_tokens(job, &next->item->q, LAYOUT_K, (uint32_t)begin,
		      (uint32_t)min_u64(next->item->kv_end - begin, TILE_TOKENS), ~UINT64_C(0), &scratch->next_keys);
	scratch->next_begin = begin;
	return &scratch->next_keys;
}

/* The scales of a page's tokens are contiguous. */
void
locate_load_scales(const struct attention_job *job, const struct q_tile *q, unsigned int plane,
		   const struct tile_view *view, float *scale)
{
	const struct kernel_pages *pages = &job->args->pages;
	const uint32_t page_size = pages->layout->params.page_size;

	assert(pages->layout->plane[plane].token_stride == sizeof(float));
	for (uint32_t i = 0, n; i < view->n_tokens; i += n) {
		const uint32_t token = view->begin + i, slot = token % page_size;
		const uint8_t *at;
		uint32_t page;

		n = (uint32_t)min_u64(page_size - slot, view->n_tokens - i);
		if ((view->wanted & token_bits(i, i + n)) == 0)
			continue;
		page = q->row->pages[token / page_size];
		assert(page < pages->layout->params.n_pages);
		at = pages->base + layout_offset(pages->layout, plane, pages->layer, page, q->kv_head, slot);
		if (scale != NULL)
			memcpy(&scale[i], at, n * sizeof(*scale));
		for (uint32_t b = 0; scale == NULL && b < n * sizeof(*scale); b += 64)
			__builtin_prefetch(at + b);
	}
}

void
locate_prefetch_scales(const struct attention_job *job, const struct q_tile *q, const struct tile_view *view)
{
	if (job->args->pages.layout->params.dtype != PAGED_I8)
		return;
	locate_load_scales(job, q, LAYOUT_K_SCALE, view, NULL);
	locate_load_scales(job, q, LAYOUT_V_SCALE, view, NULL);
}
