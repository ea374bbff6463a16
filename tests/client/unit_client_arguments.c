/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments that every call refuses: a NULL handle, structs that were not zeroed or have no struct_size. */
#include "config.h"

#include <string.h>

#include "tests/support/client_fixture.h"

static float elements[4 * FIXTURE_KV_HEADS * FIXTURE_DIM];
static const struct paged_tensor tensor = {
	.data = elements, .dtype = PAGED_F32, .n_heads = FIXTURE_KV_HEADS, .dim = FIXTURE_DIM
};
static const struct paged_array window = { .name = "window", .data = &(int32_t){ 3 }, .dtype = PAGED_I32 };

TestSuite(arguments, .init = client_fixture_setup, .fini = client_fixture_teardown);

static struct paged_mod *
mask_mod_parse(const char *text)
{
	struct paged_mod *mod = NULL;

	expect_ok(paged_mod_parse(pool, PAGED_MOD_MASK, text, 1, &window, &mod));
	return mod;
}

Test(arguments, reserved_fields_of_tensors_and_rows_must_be_0)
{
	struct paged_batch_row row = { .seq = fixture_create_seq(4), .q_len = 4, .kv_len = 4 };
	struct paged_batch *batch = fixture_create_batch(1, 0);

	for (size_t i = 0; i < sizeof(row.reserved) / sizeof(row.reserved[0]); i++) {
		row.reserved[i] = 1;
		expect_error(paged_batch_plan(batch, 1, &row), PAGED_ERR_INVALID, "row 0: reserved words must be 0");
		row.reserved[i] = 0;
	}
	expect_ok(paged_batch_plan(batch, 1, &row));
	for (size_t i = 0; i < sizeof(tensor.reserved) / sizeof(tensor.reserved[0]); i++) {
		struct paged_tensor bad = tensor;

		bad.reserved[i] = 0x80000000u;
		expect_error(paged_append(batch, 0, &bad, &tensor, NULL), PAGED_ERR_INVALID,
			     "k: reserved words must be 0");
	}
	expect_ok(paged_append(batch, 0, &tensor, &tensor, NULL));
}

Test(arguments, reserved_fields_of_mods_must_be_0)
{
	struct paged_mod_point point = { .q_idx = 3, .kv_idx = 2, .reserved = { 0, 1 } };
	struct paged_mod *mod = mask_mod_parse("sliding_window");
	struct paged_array bad = window;
	double value;

	bad.reserved[2] = 1;
	expect_error(paged_mod_evaluate(mod, 1, &window, &point, &value), PAGED_ERR_INVALID,
		     "point: reserved words must be 0");
	point.reserved[1] = 0;
	expect_error(paged_mod_evaluate(mod, 1, &bad, &point, &value), PAGED_ERR_INVALID,
		     "mod: array 'window': reserved words must be 0");
	expect_error(paged_mod_parse(pool, PAGED_MOD_MASK, "sliding_window", 1, &bad, &mod), PAGED_ERR_INVALID,
		     "mod: array 'window': reserved words must be 0");
	bad.n_dims = 1;
	expect_error(paged_array_upload(client, &bad), PAGED_ERR_INVALID, "array window: reserved words must be 0");
	expect_ok(paged_mod_evaluate(mod, 1, &window, &point, &value));
	cr_assert_eq(value, 1);
}

Test(arguments, structs_of_block_masks_are_checked)
{
	struct paged_batch_row row = { .q_len = 4, .kv_len = 4, .reserved = { 1 } };
	struct paged_block_mask_params params = { .struct_size = sizeof(params), .rows = &row, .n_rows = 1 };
	struct paged_block_mask *mask = NULL;
	struct paged_block_lists lists = { 0 };
	struct paged_block_arrays arrays = { 0 };

	expect_error(paged_block_mask_from_lists(pool, &params, &lists, &mask), PAGED_ERR_INVALID,
		     "block mask: row 0: reserved words must be 0");
	row.reserved[0] = 0;
	expect_error(paged_block_mask_from_lists(pool, &params, &lists, &mask), PAGED_ERR_INVALID,
		     "paged_block_lists: struct_size is 0; set it to sizeof(the struct)");
	expect_error(paged_block_mask_from_arrays(pool, &params, &arrays, &mask), PAGED_ERR_INVALID,
		     "paged_block_arrays: struct_size is 0; set it to sizeof(the struct)");
	expect_ok(paged_block_mask_create(pool, &params, mask_mod_parse("causal"), 0, NULL, &mask));
	expect_error(paged_block_mask_lists(mask, &lists), PAGED_ERR_INVALID,
		     "paged_block_lists: struct_size is 0; set it to sizeof(the struct)");
	expect_error(paged_block_mask_arrays(mask, &arrays), PAGED_ERR_INVALID,
		     "paged_block_arrays: struct_size is 0; set it to sizeof(the struct)");
}

#define CALL(call)                                                  \
	do {                                                        \
		cr_expect_eq(call, PAGED_ERR_INVALID, "%s", #call); \
	} while (0)

/* Every public call that takes a handle, with NULL. */
Test(null, every_call_refuses_a_null_handle)
{
	struct paged_client *no_client = NULL;
	struct paged_pool *no_pool = NULL;
	struct paged_batch *no_batch = NULL;
	struct paged_mod_set *no_mods = NULL;
	struct paged_mod *no_mod = NULL;
	struct paged_block_mask *no_mask = NULL;
	struct paged_block_mask_params mask_params = { .struct_size = sizeof(mask_params) };
	struct paged_block_mask_part part = { .struct_size = sizeof(part) };
	struct paged_block_mask_info mask_info = { .struct_size = sizeof(mask_info) };
	struct paged_block_mask_row mask_row = { .struct_size = sizeof(mask_row) };
	struct paged_block_lists lists = { .struct_size = sizeof(lists) };
	struct paged_block_arrays arrays = { .struct_size = sizeof(arrays) };
	struct paged_pool_info info = { .struct_size = sizeof(info) };
	struct paged_pool_counts counts = { .struct_size = sizeof(counts) };
	struct paged_pool_totals totals = { .struct_size = sizeof(totals) };
	struct paged_seq_params seq_params = { .n_tokens = 1 };
	struct paged_seq_item item = { .n_tokens = 1 };
	struct paged_seq_info seq_info;
	struct paged_check_result check = { .struct_size = sizeof(check) };
	struct paged_daemon_info daemon_info = { .struct_size = sizeof(daemon_info) };
	struct paged_metrics metrics = { .struct_size = sizeof(metrics) };
	struct paged_request_entry *requests;
	struct paged_pool_entry *pools;
	struct paged_session_entry *sessions;
	struct paged_seq_entry *sequences, entry;
	struct paged_batch_row row = { .kv_len = 1 };
	struct paged_mod_point point = { .score = 0 };
	struct paged_mark mark = { .words = { 0 } };
	int32_t table[4];
	uint8_t dense[4];
	paged_seq_id id = 0;
	uint32_t *pages;
	char *text;
	double value;
	size_t n;

	CALL(paged_client_open(NULL, NULL, NULL));
	CALL(paged_client_open_embedded(&fixture_pool_params, 1, NULL, NULL));
	CALL(paged_client_dispatch(no_client));
	CALL(paged_client_ping(no_client));
	CALL(paged_pool_open(no_client, "small", &no_pool));
	CALL(paged_pool_get_info(no_pool, &info));
	CALL(paged_pool_get_counts(no_pool, &counts));
	CALL(paged_pool_get_totals(no_pool, &totals));
	CALL(paged_pool_wait_free(no_pool, 1, 0));
	CALL(paged_pool_check(no_pool, &check));
	CALL(paged_seq_create(no_client, 1, &seq_params, &id));
	CALL(paged_seq_reserve(no_client, 1, &item));
	CALL(paged_seq_truncate(no_client, 1, &item));
	CALL(paged_seq_trim(no_client, 1, &item));
	CALL(paged_seq_erase(no_client, 1, &id));
	CALL(paged_seq_read(no_pool, id, &seq_info, NULL, 0));
	CALL(paged_admin_status(no_client, &daemon_info));
	CALL(paged_admin_metrics(no_client, &metrics, sizeof(*requests), &requests, &n));
	CALL(paged_admin_pools(no_client, sizeof(*pools), &pools, &n));
	CALL(paged_admin_sessions(no_client, sizeof(*sessions), &sessions, &n));
	CALL(paged_admin_sequences(no_client, "small", sizeof(*sequences), &sequences, &n));
	CALL(paged_admin_table(no_client, id, sizeof(entry), &entry, &pages, &n));
	CALL(paged_admin_check(no_client, "small", &check));
	CALL(paged_admin_kick(no_client, 1, 0));
	CALL(paged_admin_log_level(no_client, 0, NULL));
	CALL(paged_batch_create(no_pool, NULL, &no_batch));
	CALL(paged_batch_plan(no_batch, 1, &row));
	CALL(paged_batch_plan_device(no_batch, NULL));
	CALL(paged_batch_stream(no_batch, NULL));
	CALL(paged_batch_validate(no_batch));
	CALL(paged_batch_tables_csr(no_batch, NULL, NULL, 0, NULL, NULL));
	CALL(paged_batch_tables_padded(no_batch, table, 1, NULL));
	CALL(paged_batch_kv_first(no_batch, NULL));
	CALL(paged_batch_mark(no_batch, &mark));
	CALL(paged_batch_wait(no_batch, &mark));
	CALL(paged_batch_finish(no_batch));
	CALL(paged_append(no_batch, 0, &tensor, &tensor, NULL));
	CALL(paged_gather(no_batch, 0, &tensor, &tensor, NULL));
	CALL(paged_attention(no_batch, 0, &tensor, &tensor, NULL));
	CALL(paged_merge(no_batch, NULL));
	CALL(paged_mod_parse(no_pool, PAGED_MOD_MASK, "causal", 0, NULL, &no_mod));
	CALL(paged_mod_evaluate(no_mod, 0, NULL, &point, &value));
	CALL(paged_mod_set_create(no_batch, NULL, &no_mods));
	CALL(paged_mod_set_prepare(no_mods, PAGED_F32, 0));
	CALL(paged_mod_set_bind(no_mods, 0, NULL, NULL));
	CALL(paged_array_upload(no_client, &window));
	CALL(paged_array_drop(no_client, "window"));
	CALL(paged_block_mask_create(no_pool, &mask_params, no_mod, 0, NULL, &no_mask));
	CALL(paged_block_mask_create_remote(no_pool, &mask_params, no_mod, 0, NULL, &no_mask));
	CALL(paged_block_mask_from_lists(no_pool, &mask_params, &lists, &no_mask));
	CALL(paged_block_mask_from_arrays(no_pool, &mask_params, &arrays, &no_mask));
	CALL(paged_block_mask_from_dense(no_pool, &mask_params, dense, &no_mask));
	CALL(paged_block_mask_to_physical(no_mask, 1, &row, &no_mask));
	CALL(paged_block_mask_to_logical(no_mask, &no_mask));
	CALL(paged_block_mask_validate(no_mask));
	CALL(paged_block_mask_select(no_mask, &part, &no_mask));
	CALL(paged_block_mask_crop(no_mask, 1, 1, &no_mask));
	CALL(paged_block_mask_transpose(no_mask, &no_mask));
	CALL(paged_block_mask_get_info(no_mask, &mask_info));
	CALL(paged_block_mask_get_row(no_mask, 0, &mask_row));
	CALL(paged_block_mask_lists(no_mask, &lists));
	CALL(paged_block_mask_arrays(no_mask, &arrays));
	CALL(paged_block_mask_dense(no_mask, dense));
	CALL(paged_block_mask_picture(no_mask, 0, 0, 0, &text));
}

/* Calls that do not return a status, and destructors. */
Test(null, getters_and_destructors_accept_null)
{
	cr_assert_eq(paged_client_session(NULL), 0);
	cr_assert_str_empty(paged_client_join_token(NULL));
	cr_assert_eq(paged_client_fd(NULL), -1);
	cr_assert_eq(paged_batch_pages_missing(NULL, 0), 0);
	cr_assert_str_empty(paged_mod_text(NULL));
	cr_assert_eq(paged_mod_inputs(NULL), 0);
	paged_client_close(NULL);
	paged_pool_close(NULL);
	paged_batch_destroy(NULL);
	paged_mod_destroy(NULL);
	paged_mod_set_destroy(NULL);
	paged_block_mask_destroy(NULL);
	paged_free(NULL);
}

Test(version, header_and_library_have_the_same_version)
{
	char text[32];

	cr_assert_eq(paged_version(), PAGED_VERSION);
	snprintf(text, sizeof(text), "%d.%d.%d", PAGED_VERSION_MAJOR, PAGED_VERSION_MINOR, PAGED_VERSION_PATCH);
	cr_assert_str_eq(text, PACKAGE_VERSION);
}
