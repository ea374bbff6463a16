/* SPDX-License-Identifier: Apache-2.0 */
/**
 * ready_list.h - which mods are compiled with the library: name, mask, score
 *
 * Those that models of today ask for, and no more: for each architecture a row
 * costs about 5 s of a core, and a third of a megabyte of library.
 *
 *   sliding_window  Mistral, Gemma 3, gpt-oss
 *   capped_window   Gemma 2's local layers
 *   soft_cap        Gemma 2's global layers, Grok
 *   alibi           BLOOM, MPT
 *   document        several documents packed into one sequence
 *   prefix_lm       PaliGemma, each row with a prefix of its own
 *
 * Causal attention needs no mod.  What a text names are the parameters and
 * arrays that ready.c lists: their values and contents are no part of the
 * code.  A new row is a row here, and its file in READY_FILES of
 * kernels/local.mk and in tests/local.mk.
 */
#ifndef PAGED_KERNELS_CUDA_READY_LIST_H
#define PAGED_KERNELS_CUDA_READY_LIST_H

#define CUDA_READY_LIST(R)                                    \
	R(sliding_window, "sliding_window", NULL)             \
	R(prefix_lm, "prefix_lm(prefix[b])", NULL)            \
	R(document, "document", NULL)                         \
	R(alibi, NULL, "alibi")                               \
	R(soft_cap, NULL, "soft_cap")                         \
	R(capped_window, "sliding_window", "soft_cap")

#endif
