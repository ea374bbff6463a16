/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/bench_mod.h"

#include <stdlib.h>
#include <string.h>

#include "bench/base.h"
#include "bench/random.h"

void
bench_mod_open(struct bench_mod *mod, enum mod_kind kind, const char *text, uint32_t n_tokens)
{
	static const int32_t window = BENCH_WINDOW;
	static const float cap = 50.0f, heads = 8.0f;
	uint32_t mean = n_tokens / BENCH_DOCUMENTS, at = 0;
	int32_t *documents = bench_alloc(n_tokens, sizeof(*documents));
	const struct mod_array arrays[] = {
		{ .name = "window", .dtype = MOD_I32, .data = &window },
		{ .name = "cap", .dtype = MOD_F32, .data = &cap },
		{ .name = "heads", .dtype = MOD_F32, .data = &heads },
		{ .name = "doc", .dtype = MOD_I32, .n_dims = 1, .extents = { n_tokens }, .data = documents },
	};
	const uint32_t n_arrays = sizeof(arrays) / sizeof(arrays[0]);
	struct paged_error error = { 0 };
	uint64_t state = 1;

	/* Lengths of half to one and a half of the average. */
	for (int32_t d = 0; d < BENCH_DOCUMENTS; d++) {
		uint32_t end = (uint32_t)(d + 1) * mean;

		if (d + 1 < BENCH_DOCUMENTS)
			end += bench_random(&state, mean / 2) - mean / 4;
		while (at < end)
			documents[at++] = d;
	}
	mod->documents = documents;
	bench_must(mod_parse(kind, text, strlen(text), arrays, n_arrays, &mod->mod, &error), &error);
	bench_must(mod_bind(mod->mod, arrays, n_arrays, &mod->binding, &error), &error);
	bench_must(mod_binding_add_range_trees(mod->binding, &error), &error);
}
