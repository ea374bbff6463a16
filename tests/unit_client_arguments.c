/* SPDX-License-Identifier: Apache-2.0 */
/* What every call refuses, whatever it does: structs that were not zeroed, or that say no size. */
#include <string.h>

#include "tests/client_fixture.h"

static float elements[4 * HEADS * DIM];
static const struct paged_tensor tensor = { .data = elements, .dtype = PAGED_F32, .n_heads = HEADS, .dim = DIM };
static const struct paged_array window = { .name = "window", .data = &(int32_t){ 3 }, .dtype = PAGED_I32 };

TestSuite(arguments, .init = client_setup, .fini = client_teardown);

static struct paged_mod *
mod_of(const char *text)
{
	struct paged_mod *mod = NULL;

	done(paged_mod_parse(pool, PAGED_MOD_MASK, text, 1, &window, &mod));
	return mod;
}

Test(arguments, reserved_words_of_tensors_and_rows)
{
	struct paged_batch_row row = { .seq = sequence_of(4), .q_len = 4, .kv_len = 4 };
	struct paged_batch *batch = batch_of(1, 0);

	for (size_t i = 0; i < sizeof(row.reserved) / sizeof(row.reserved[0]); i++) {
		row.reserved[i] = 1;
		refused(paged_batch_plan(batch, 1, &row), PAGED_ERR_INVALID, "row 0: reserved words must be 0");
		row.reserved[i] = 0;
	}
	done(paged_batch_plan(batch, 1, &row));
	for (size_t i = 0; i < sizeof(tensor.reserved) / sizeof(tensor.reserved[0]); i++) {
		struct paged_tensor bad = tensor;

		bad.reserved[i] = 0x80000000u;
		refused(paged_append(batch, 0, &bad, &tensor, NULL), PAGED_ERR_INVALID, "k: reserved words must be 0");
	}
	done(paged_append(batch, 0, &tensor, &tensor, NULL));
}

Test(arguments, reserved_words_of_mods)
{
	struct paged_mod_point point = { .q_idx = 3, .kv_idx = 2, .reserved = { 0, 1 } };
	struct paged_mod *mod = mod_of("sliding_window");
	struct paged_array bad = window;
	double value;

	bad.reserved[2] = 1;
	refused(paged_mod_evaluate(mod, 1, &window, &point, &value), PAGED_ERR_INVALID,
		"point: reserved words must be 0");
	point.reserved[1] = 0;
	refused(paged_mod_evaluate(mod, 1, &bad, &point, &value), PAGED_ERR_INVALID,
		"mod: array 'window': reserved words must be 0");
	refused(paged_mod_parse(pool, PAGED_MOD_MASK, "sliding_window", 1, &bad, &mod), PAGED_ERR_INVALID,
		"mod: array 'window': reserved words must be 0");
	bad.n_dims = 1;
	refused(paged_array_upload(client, &bad), PAGED_ERR_INVALID, "array window: reserved words must be 0");
	done(paged_mod_evaluate(mod, 1, &window, &point, &value));
	cr_assert_eq(value, 1);
}

Test(arguments, block_masks)
{
	struct paged_batch_row row = { .q_len = 4, .kv_len = 4, .reserved = { 1 } };
	struct paged_block_mask_params params = { .struct_size = sizeof(params), .rows = &row, .n_rows = 1 };
	struct paged_block_mask *mask = NULL;
	struct paged_block_lists lists = { 0 };
	struct paged_block_arrays arrays = { 0 };

	refused(paged_block_mask_from_lists(pool, &params, &lists, &mask), PAGED_ERR_INVALID,
		"block mask: row 0: reserved words must be 0");
	row.reserved[0] = 0;
	refused(paged_block_mask_from_lists(pool, &params, &lists, &mask), PAGED_ERR_INVALID,
		"paged_block_lists: struct_size is 0; set it to sizeof(the struct)");
	refused(paged_block_mask_from_arrays(pool, &params, &arrays, &mask), PAGED_ERR_INVALID,
		"paged_block_arrays: struct_size is 0; set it to sizeof(the struct)");
	done(paged_block_mask_create(pool, &params, mod_of("causal"), 0, NULL, &mask));
	refused(paged_block_mask_lists(mask, &lists), PAGED_ERR_INVALID,
		"paged_block_lists: struct_size is 0; set it to sizeof(the struct)");
	refused(paged_block_mask_arrays(mask, &arrays), PAGED_ERR_INVALID,
		"paged_block_arrays: struct_size is 0; set it to sizeof(the struct)");
}
