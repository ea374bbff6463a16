/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/cpu/pieces.h"

const struct pieces_ops *
pieces_ops(enum kernel_isa isa)
{
#ifdef PAGED_X86_64
	if (isa >= KERNEL_AVX512)
		return &pieces_ops_avx512;
	if (isa == KERNEL_AVX2)
		return &pieces_ops_avx2;
#else
	(void)isa;
#endif
	return &pieces_ops_generic;
}

bool
pieces_may_stream(const struct kernel_pages *pages, unsigned int plane)
{
	const struct layout_plane *p = &pages->layout->plane[plane];
	uint64_t all = (uintptr_t)pages->base | p->offset | p->layer_stride | p->page_stride | p->head_stride |
		       p->token_stride;

	return all % PIECES_LINE == 0;
}
