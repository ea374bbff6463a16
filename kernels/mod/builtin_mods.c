/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ready-made mods.  An argument that a text omits is the parameter (or variable) of that name:
 * sliding_window is sliding_window(window), and soft_cap(30.0) applies to `score`.  The text of a
 * ready-made mod uses no other ready-made mod.
 */
#include "config.h"

#include "kernels/mod/mod.h"

static const struct mod_builtin builtin_mods[] = {
	/* Masks */
	{ "noop", "", "true" },
	{ "causal", "", "kv_idx <= q_idx" },
	{ "causal_offset", "offset", "kv_idx <= q_idx + offset" },
	{ "sliding_window", "window", "kv_idx <= q_idx && q_idx - kv_idx < window" },
	{ "two_sided_window", "window", "abs(q_idx - kv_idx) <= window" },
	{ "sink_window", "sink, window", "kv_idx <= q_idx && (kv_idx < sink || q_idx - kv_idx < window)" },
	{ "dilated", "step", "kv_idx <= q_idx && (q_idx - kv_idx) % step == 0" },
	{ "prefix_lm", "prefix", "kv_idx < prefix || kv_idx <= q_idx" },
	{ "document", "", "doc[q_idx] == doc[kv_idx]" },
	{ "ragged_document", "", "doc[start[b] + q_idx] == doc[start[b] + kv_idx]" },
	{ "padding", "length", "kv_idx < length" },
	{ "chunked", "chunk", "q_idx / chunk == kv_idx / chunk && kv_idx <= q_idx" },
	{ "block_diffusion", "block", "kv_idx / block <= q_idx / block" },
	{ "neighbourhood", "width, radius",
	  "abs(q_idx / width - kv_idx / width) <= radius && abs(q_idx % width - kv_idx % width) <= radius" },

	/* Scores */
	{ "identity", "", "score" },
	{ "alibi", "heads, score", "score + exp2(-8.0 * (h + 1) / heads) * (kv_idx - q_idx)" },
	{ "relative", "score", "score + (q_idx - kv_idx)" },
	{ "soft_cap", "cap, score", "cap * tanh(score / cap)" },
};

const struct mod_builtin *
mod_builtin(uint32_t index)
{
	return index < sizeof(builtin_mods) / sizeof(builtin_mods[0]) ? &builtin_mods[index] : NULL;
}
