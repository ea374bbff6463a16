/* SPDX-License-Identifier: Apache-2.0 */
/**
 * aot_list.h - the mods that are compiled ahead of time into the library: name, mask, score
 *
 * The list has only mods that current models use, because each entry costs
 * about 10 s of one core at build time, and nine tenths of a megabyte of
 * library size, for each architecture, and half as much again for sm_90a.
 *
 *   sliding_window  Mistral, Gemma 3, gpt-oss
 *   capped_window   Gemma 2's local layers
 *   soft_cap        Gemma 2's global layers, Grok
 *   alibi           BLOOM, MPT
 *   document        several documents packed into one sequence
 *   prefix_lm       PaliGemma, each row with a prefix of its own
 *
 * Causal attention needs no mod.  The texts may name the parameters and arrays
 * that aot.c lists; their values are not part of the code.  To add an entry,
 * add it here, and add its file to AOT_FILES of kernels/local.mk and to
 * tests/fake-cuda/local.mk.
 */
#ifndef PAGED_KERNELS_CUDA_HOST_AOT_LIST_H
#define PAGED_KERNELS_CUDA_HOST_AOT_LIST_H

#define CUDA_AOT_LIST(R)                           \
	R(sliding_window, "sliding_window", NULL)  \
	R(prefix_lm, "prefix_lm(prefix[b])", NULL) \
	R(document, "document", NULL)              \
	R(alibi, NULL, "alibi")                    \
	R(soft_cap, NULL, "soft_cap")              \
	R(capped_window, "sliding_window", "soft_cap")

#endif
