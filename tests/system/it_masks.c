/* SPDX-License-Identifier: Apache-2.0 */
/* Block masks built by the daemon are equal to those that the library builds itself. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <unistd.h>

#include "tests/support/sequences.h"
#include "tests/support/worker_fixture.h"

#define N_SEQS 10u
#define N_TOKENS WORKER_MAX_LENGTH

/* A slow machine's builds end in time. */
#define LONG_MASK_TIME "mask-time = 60min\n"
/* Small limits, so that tests meet them. */
static const char limits[] = LONG_MASK_TIME "mask-size = 1MiB\nmask-arrays = 64KiB\n";

static int32_t documents[N_TOKENS], offsets[N_SEQS];
static const int32_t window = 7;
static const float share_param = 0.5f;

/* Names in the mods' texts; the last two are arrays that the owner has, the others are parameters. */
static const struct paged_array names[] = {
	{ .name = "window", .dtype = PAGED_I32, .data = &window },
	{ .name = "share", .dtype = PAGED_F32, .data = &share_param },
	{ .name = "doc", .dtype = PAGED_I32, .n_dims = 1, .extents = { N_TOKENS }, .data = documents },
	{ .name = "offset", .dtype = PAGED_I32, .n_dims = 1, .extents = { N_SEQS }, .data = offsets },
};
enum { N_PARAMETERS = 2, N_NAMES = 4 };

static const struct {
	const char *text;
	uint32_t n_heads;
} mods[] = {
	{ "kv_idx <= q_idx", 0 },
	{ "kv_idx <= q_idx && q_idx - kv_idx < window", 1 },
	{ "doc[max(q_idx, 0) % 128] == doc[kv_idx]", 0 },
	{ "q_idx + offset[b] >= kv_idx", 0 },
	{ "kv_idx <= q_idx && kv_idx % (h + 1) == 0", 3 },
	{ "float(kv_idx) < share * float(q_idx) || h == 1 && causal", 2 },
	{ "true", 0 },
	{ "false", 0 },
};
enum { N_MODS = sizeof(mods) / sizeof(mods[0]) };

/* Every element is evaluated and almost none is visible: seconds of work over this many query rows. */
static const char slow_mask_mod[] = "(q_idx * kv_idx * 7919 + q_idx) % 1000003 == 1000002 && (q_idx ^ kv_idx) % 9 == 4";
#define SLOW_MASK_Q_LEN (1u << 26)

static void
masks_daemon_start(struct it_daemon *daemon, const char *settings)
{
	char configuration[1024];

	snprintf(configuration, sizeof(configuration), "%s%s", settings, worker_pool_config);
	it_daemon_start(daemon, configuration, NULL, NULL);
	for (uint32_t i = 0; i < N_TOKENS; i++)
		documents[i] = (int32_t)(i * i / 300);
	for (uint32_t i = 0; i < N_SEQS; i++)
		offsets[i] = (int32_t)i * 3 - 9;
}

static struct paged_mod *
mask_mod_parse(struct worker_fixture *worker, const char *text)
{
	struct paged_mod *mod;

	worker_ok(worker, paged_mod_parse(worker->pool, PAGED_MOD_MASK, text, N_NAMES, names, &mod));
	return mod;
}

static void
upload_documents(struct worker_fixture *worker)
{
	for (uint32_t i = N_PARAMETERS; i < N_NAMES; i++)
		worker_ok(worker, paged_array_upload(worker->client, &names[i]));
}

static struct paged_block_mask_params
params_of(const struct paged_batch_row *rows, size_t n_rows)
{
	return (struct paged_block_mask_params){
		.struct_size = sizeof(struct paged_block_mask_params), .rows = rows, .n_rows = n_rows, .physical = 1
	};
}

static void
expect_lists(const struct paged_block_lists *got, const struct paged_block_lists *expected, size_t n_rows)
{
	uint64_t n_lists = expected->first_list[n_rows];

	it_require(memcmp(got->first_list, expected->first_list, (n_rows + 1) * sizeof(uint64_t)) == 0);
	for (int kind = 0; kind < 2; kind++) {
		const uint64_t *start = expected->start[kind];

		it_require(memcmp(got->start[kind], start, (n_lists + 1) * sizeof(uint64_t)) == 0, "kind %d", kind);
		it_require(start[n_lists] == 0 || memcmp(got->indices[kind], expected->indices[kind],
							 start[n_lists] * sizeof(uint32_t)) == 0,
			   "kind %d", kind);
	}
}

/* Shape, rows with their versions, and every list in order. */
static void
expect_same(struct worker_fixture *worker, const struct paged_block_mask *got, const struct paged_block_mask *expected)
{
	struct paged_block_mask_info a = { .struct_size = sizeof(a) }, b = { .struct_size = sizeof(b) };
	struct paged_block_lists got_lists = { .struct_size = sizeof(got_lists) },
				 expected_lists = { .struct_size = sizeof(expected_lists) };

	worker_ok(worker, paged_block_mask_get_info(got, &a));
	worker_ok(worker, paged_block_mask_get_info(expected, &b));
	it_require(a.n_rows == b.n_rows && a.n_heads == b.n_heads && a.q_block == b.q_block &&
			   a.kv_block == b.kv_block && a.physical == b.physical && a.n_blocks == b.n_blocks &&
			   a.n_lists == b.n_lists,
		   "%u rows, %u heads, blocks of %u", a.n_rows, a.n_heads, a.kv_block);
	for (uint32_t r = 0; r < b.n_rows; r++) {
		struct paged_block_mask_row x = { .struct_size = sizeof(x) }, y = { .struct_size = sizeof(y) };

		worker_ok(worker, paged_block_mask_get_row(got, r, &x));
		worker_ok(worker, paged_block_mask_get_row(expected, r, &y));
		it_require(memcmp(&x, &y, sizeof(x)) == 0, "row %u", r);
	}
	worker_ok(worker, paged_block_mask_lists(got, &got_lists));
	worker_ok(worker, paged_block_mask_lists(expected, &expected_lists));
	expect_lists(&got_lists, &expected_lists, b.n_rows);
}

/* Compare the remote mask with the local one; a physical one also in logical form if no block exceeds a page. */
static void
expect_remote_equals_local(struct worker_fixture *worker, const struct paged_block_mask_params *params,
			   const char *text)
{
	struct paged_block_mask *remote, *local, *remote_logical, *local_logical;
	struct paged_mod *mod = mask_mod_parse(worker, text);

	worker_ok(worker, paged_block_mask_create_remote(worker->pool, params, mod, N_PARAMETERS, names, &remote));
	worker_ok(worker, paged_block_mask_create(worker->pool, params, mod, N_NAMES, names, &local));
	expect_same(worker, remote, local);
	worker_ok(worker, paged_block_mask_validate(remote));
	if (params->physical && params->kv_block <= WORKER_PAGE_SIZE) {
		worker_ok(worker, paged_block_mask_to_logical(remote, &remote_logical));
		worker_ok(worker, paged_block_mask_to_logical(local, &local_logical));
		expect_same(worker, remote_logical, local_logical);
		paged_block_mask_destroy(remote_logical);
		paged_block_mask_destroy(local_logical);
	}
	paged_block_mask_destroy(remote);
	paged_block_mask_destroy(local);
	paged_mod_destroy(mod);
}

static void
rows_random(struct paged_batch_row *rows, uint32_t n, const paged_seq_id *seqs, const uint32_t *lengths,
	    unsigned int *seed)
{
	for (uint32_t r = 0; r < n; r++) {
		uint32_t s = (uint32_t)rand_r(seed) % N_SEQS;

		rows[r] = (struct paged_batch_row){
			.seq = seqs[s],
			.q_len = (uint32_t)rand_r(seed) % 40,
			.kv_len = (uint32_t)rand_r(seed) % (lengths[s] + 1),
			.flags = rand_r(seed) % 2 ? PAGED_ROW_Q_BASE : 0,
			.q_base = rand_r(seed) % 150 - 20,
		};
	}
}

static void
random_masks(struct worker_fixture *worker, uint32_t n_rounds, unsigned int seed)
{
	static const uint32_t kv_blocks[] = { 0, 1, 2, 4, 8, 16 }, q_blocks[] = { 0, 1, 3, 16 };
	struct paged_batch_row rows[N_SEQS];
	uint32_t lengths[N_SEQS];
	paged_seq_id seqs[N_SEQS];

	for (uint32_t s = 0; s < N_SEQS; s++) {
		lengths[s] = (uint32_t)rand_r(&seed) % 20;
		seqs[s] = worker_create_seq(worker, lengths[s]);
	}
	upload_documents(worker);
	for (uint32_t round = 0; round < n_rounds; round++) {
		uint32_t n = 1 + (uint32_t)rand_r(&seed) % N_SEQS, m = round % N_MODS;
		struct paged_block_mask_params params = params_of(rows, n);

		rows_random(rows, n, seqs, lengths, &seed);
		params.n_heads = mods[m].n_heads;
		params.kv_block = kv_blocks[(uint32_t)rand_r(&seed) % 6];
		params.q_block = q_blocks[(uint32_t)rand_r(&seed) % 4];
		params.physical = (uint32_t)rand_r(&seed) % 2;
		expect_remote_equals_local(worker, &params, mods[m].text);
	}
	worker_ok(worker, paged_seq_erase(worker->client, N_SEQS, seqs));
}

IT_TEST(remote_mask_equals_local_mask)
{
	struct it_daemon daemon;
	struct worker_fixture worker;

	masks_daemon_start(&daemon, LONG_MASK_TIME);
	worker_open(&worker, NULL, 0);
	random_masks(&worker, 400, 1);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

IT_TEST(embedded_mask_equals_local_mask)
{
	const struct paged_pool_params params = { .struct_size = sizeof(params),
						  .name = "test",
						  .n_layers = 1,
						  .n_kv_heads = 1,
						  .k_dim = 8,
						  .dtype = PAGED_F32,
						  .page_size = WORKER_PAGE_SIZE,
						  .n_pages = WORKER_PAGES };
	struct worker_fixture worker = { 0 };

	worker_ok(&worker, paged_client_open_embedded(&params, 1, NULL, &worker.client));
	worker_ok(&worker, paged_pool_open(worker.client, "test", &worker.pool));
	random_masks(&worker, 400, 2);
	worker_ok(&worker, paged_array_drop(worker.client, "doc"));
	worker_expect(&worker, paged_array_drop(worker.client, "doc"), PAGED_ERR_NOENT);
	worker_close(&worker);
}

/* Explicit values of b: larger than the row count, equal, and for some rows only. */
IT_TEST(explicit_b_numbers_rows)
{
	struct paged_batch_row rows[4];
	struct paged_block_mask_params params = params_of(rows, 4);
	struct it_daemon daemon;
	struct worker_fixture worker;

	masks_daemon_start(&daemon, LONG_MASK_TIME);
	worker_open(&worker, NULL, 0);
	for (uint32_t r = 0; r < 4; r++)
		rows[r] = (struct paged_batch_row){ .seq = worker_create_seq(&worker, 40),
						    .q_len = 40,
						    .kv_len = 40,
						    .b = (uint32_t[]){ 1000000, 3, 3, 0 }[r],
						    .flags = r < 3 ? PAGED_ROW_B : 0 };
	expect_remote_equals_local(&worker, &params, "kv_idx <= q_idx && q_idx - kv_idx < b");
	expect_remote_equals_local(&worker, &params, "(kv_idx + b) % 5 < 2 || b > 999999");
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

/* A mask of several hundred kilobytes does not fit one reply. */
IT_TEST(large_masks_span_several_replies)
{
	struct paged_batch_row row = { .q_len = 20000, .kv_len = 128, .flags = PAGED_ROW_Q_BASE };
	struct paged_block_mask_params params = params_of(&row, 1);
	struct it_daemon daemon;
	struct worker_fixture worker;

	masks_daemon_start(&daemon, LONG_MASK_TIME);
	worker_open(&worker, NULL, 0);
	row.seq = worker_create_seq(&worker, 128);
	params.q_block = 1;
	expect_remote_equals_local(&worker, &params, "kv_idx <= q_idx && q_idx - kv_idx < window");
	params.n_heads = 3;
	expect_remote_equals_local(&worker, &params, "kv_idx <= q_idx && kv_idx % (h + 2) == 0");
	/* One list of more runs than a reply holds. */
	params = (struct paged_block_mask_params){
		.struct_size = sizeof(params), .rows = &row, .n_rows = 1, .q_block = 1, .kv_block = 1
	};
	row = (struct paged_batch_row){ .q_len = 2, .kv_len = 50000 };
	expect_remote_equals_local(&worker, &params, "kv_idx % 2 == q_idx % 2");
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

IT_TEST(attention_under_a_remote_mask)
{
	struct paged_attention_params attention = { .struct_size = sizeof(attention), .mask = PAGED_MASK_NONE };
	static float q[8 * WORKER_OUT], with[8 * WORKER_OUT], without[8 * WORKER_OUT];
	const struct paged_tensor in = { .data = q, .dtype = PAGED_F32, .n_heads = WORKER_HEADS, .dim = WORKER_DIM };
	struct paged_tensor out = { .data = with, .dtype = PAGED_F32, .n_heads = WORKER_HEADS, .dim = WORKER_DIM };
	struct paged_mod_set_params mods_params = { .struct_size = sizeof(mods_params) };
	struct paged_batch_row row = { .q_len = 8, .kv_len = 50, .flags = PAGED_ROW_NO_APPEND };
	struct paged_block_mask_params params = params_of(&row, 1);
	struct paged_block_mask *remote;
	struct it_daemon daemon;
	struct paged_mod *mod;
	struct worker_fixture worker;

	masks_daemon_start(&daemon, LONG_MASK_TIME);
	worker_open(&worker, NULL, 0);
	row.seq = worker_create_seq(&worker, 50);
	worker_write(&worker, row.seq, 0, 50, 7);
	for (size_t i = 0; i < sizeof(q) / sizeof(q[0]); i++)
		q[i] = (float)(i * 37 % 101) / 50.0f - 1.0f;
	mod = mask_mod_parse(&worker, "kv_idx <= q_idx && q_idx - kv_idx < window");
	worker_ok(&worker, paged_block_mask_create_remote(worker.pool, &params, mod, N_PARAMETERS, names, &remote));
	mods_params.mask = mod;
	worker_ok(&worker, paged_mod_set_create(worker.batch, &mods_params, &attention.mod_set));
	worker_ok(&worker, paged_mod_set_bind(attention.mod_set, N_NAMES, names, remote));
	worker_ok(&worker, paged_batch_plan(worker.batch, 1, &row));
	worker_ok(&worker, paged_attention(worker.batch, 0, &in, &out, &attention));
	worker_ok(&worker, paged_mod_set_bind(attention.mod_set, N_NAMES, names, NULL));
	out.data = without;
	worker_ok(&worker, paged_attention(worker.batch, 0, &in, &out, &attention));
	it_require(memcmp(with, without, sizeof(with)) == 0);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

static void
expect_error(struct worker_fixture *worker, const char *part)
{
	const char *said = paged_client_error(worker->client);

	it_require(strstr(said, part) != NULL, "no '%s' in: %s", part, said);
}

#define expect_refused(worker, params, mod, status, part)                                                            \
	do {                                                                                                         \
		struct paged_block_mask *refused_;                                                                   \
		worker_expect(                                                                                       \
			worker,                                                                                      \
			paged_block_mask_create_remote((worker)->pool, params, mod, N_PARAMETERS, names, &refused_), \
			status);                                                                                     \
		expect_error(worker, part);                                                                          \
	} while (0)

IT_TEST(mask_size_limits_are_reported)
{
	struct paged_batch_row row = { .q_len = 100000, .kv_len = 128 }, many[PAGED_MAX_MASK_ROWS + 1];
	struct paged_block_mask_params params = params_of(&row, 1);
	static int32_t large[16385];
	struct paged_array array = { .name = "large", .dtype = PAGED_I32, .n_dims = 1, .data = large };
	struct paged_block_mask *mask;
	struct it_daemon daemon;
	struct worker_fixture worker;

	masks_daemon_start(&daemon, limits);
	worker_open(&worker, NULL, 0);
	row.seq = worker_create_seq(&worker, 128);
	params.q_block = 1;
	expect_refused(&worker, &params, mask_mod_parse(&worker, "causal"), PAGED_ERR_LIMIT,
		       "a mask that is not remote");
	row.flags = PAGED_ROW_Q_BASE;
	worker_ok(&worker,
		  paged_block_mask_create(worker.pool, &params, mask_mod_parse(&worker, "causal"), 0, NULL, &mask));
	/* The caller's own limit is independent of the daemon's. */
	row.q_len = 1000;
	params.max_bytes = 1000;
	row.flags = 0;
	worker_expect(
		&worker,
		paged_block_mask_create_remote(worker.pool, &params, mask_mod_parse(&worker, "causal"), 0, NULL, &mask),
		PAGED_ERR_LIMIT);
	it_require(strstr(paged_client_error(worker.client), "paged_block_mask_create") == NULL);
	params.max_bytes = 0;
	row.q_len = UINT32_MAX;
	row.kv_len = UINT32_MAX;
	expect_refused(&worker, &params, mask_mod_parse(&worker, "causal"), PAGED_ERR_LIMIT, "68719476736 elements");
	for (uint32_t i = 0; i <= PAGED_MAX_MASK_ROWS; i++)
		many[i] = (struct paged_batch_row){ .seq = row.seq, .q_len = 1, .kv_len = 128 };
	params = params_of(many, PAGED_MAX_MASK_ROWS + 1);
	expect_refused(&worker, &params, mask_mod_parse(&worker, "causal"), PAGED_ERR_LIMIT, "2049 rows");
	params.n_rows--;
	expect_remote_equals_local(&worker, &params, "causal");

	array.extents[0] = 16384;
	worker_ok(&worker, paged_array_upload(worker.client, &array));
	worker_ok(&worker, paged_array_upload(worker.client, &array));
	array.extents[0] = 16385;
	worker_expect(&worker, paged_array_upload(worker.client, &array), PAGED_ERR_LIMIT);
	expect_error(&worker, "session 1 has 0 bytes of others, and 65536 is the most; a mask that is not remote");
	worker_expect(&worker, paged_array_upload(worker.client, &names[2]), PAGED_ERR_LIMIT);
	worker_ok(&worker, paged_array_drop(worker.client, "large"));
	worker_ok(&worker, paged_array_upload(worker.client, &names[2]));
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

/* The caller's arrays may have strides of any sign; the owner stores the elements in order. */
IT_TEST(arrays_may_have_any_strides)
{
	static uint8_t table[3][5][256];
	const struct paged_array view = { .name = "table",
					  .dtype = PAGED_U8,
					  .n_dims = 3,
					  .data = &table[2][0][255],
					  .extents = { 128, 3, 5 },
					  .strides = { -2, -5 * 256, 256 } };
	struct paged_batch_row row = { .q_len = 64, .kv_len = 128 };
	struct paged_block_mask_params params = params_of(&row, 1);
	struct paged_block_mask *remote, *local;
	struct it_daemon daemon;
	unsigned int seed = 5;
	struct paged_mod *mod;
	struct worker_fixture worker;

	for (size_t i = 0; i < sizeof(table); i++)
		(&table[0][0][0])[i] = (uint8_t)rand_r(&seed);
	masks_daemon_start(&daemon, LONG_MASK_TIME);
	worker_open(&worker, NULL, 0);
	row.seq = worker_create_seq(&worker, 128);
	params.q_block = params.kv_block = 1;
	worker_ok(&worker, paged_mod_parse(worker.pool, PAGED_MOD_MASK, "table[kv_idx][q_idx % 3][q_idx % 5] < 100", 1,
					   &view, &mod));
	worker_ok(&worker, paged_array_upload(worker.client, &view));
	worker_ok(&worker, paged_block_mask_create_remote(worker.pool, &params, mod, 0, NULL, &remote));
	worker_ok(&worker, paged_block_mask_create(worker.pool, &params, mod, 1, &view, &local));
	expect_same(&worker, remote, local);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

/* The daemon's arrays and parameters have 32 bits; the library narrows what has 64. */
IT_TEST(i64_values_are_narrowed_or_refused)
{
	static int64_t wide[N_TOKENS];
	int64_t wide_window = window;
	struct paged_array doc = {
		.name = "doc", .dtype = PAGED_I64, .n_dims = 1, .extents = { N_TOKENS }, .data = wide
	};
	const struct paged_array parameter = { .name = "window", .dtype = PAGED_I64, .data = &wide_window };
	struct paged_batch_row row = { .q_len = 64, .kv_len = 100 };
	struct paged_block_mask_params params = params_of(&row, 1);
	struct paged_block_mask *remote, *local;
	struct it_daemon daemon;
	struct paged_mod *mod;
	struct worker_fixture worker;

	masks_daemon_start(&daemon, LONG_MASK_TIME);
	worker_open(&worker, NULL, 0);
	row.seq = worker_create_seq(&worker, 100);
	params.q_block = params.kv_block = 1;
	for (uint32_t i = 0; i < N_TOKENS; i++)
		wide[i] = documents[i];
	mod = mask_mod_parse(&worker, "doc[q_idx] == doc[kv_idx] || q_idx - kv_idx < window");
	worker_ok(&worker, paged_array_upload(worker.client, &doc));
	worker_ok(&worker, paged_block_mask_create_remote(worker.pool, &params, mod, 1, &parameter, &remote));
	worker_ok(&worker, paged_block_mask_create(worker.pool, &params, mod, N_NAMES, names, &local));
	expect_same(&worker, remote, local);
	paged_block_mask_destroy(remote);

	/* The uploaded array stays if its replacement is refused. */
	wide[N_TOKENS - 1] = INT64_MAX;
	worker_expect(&worker, paged_array_upload(worker.client, &doc), PAGED_ERR_RANGE);
	expect_error(&worker, "] is 9223372036854775807, which 32 bits do not hold");
	worker_ok(&worker, paged_block_mask_create_remote(worker.pool, &params, mod, 1, &parameter, &remote));
	expect_same(&worker, remote, local);
	wide_window = INT64_MIN;
	worker_expect(&worker, paged_block_mask_create_remote(worker.pool, &params, mod, 1, &parameter, &remote),
		      PAGED_ERR_RANGE);
	expect_error(&worker, "parameter window is -9223372036854775808");
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

IT_TEST(invalid_mask_requests_are_refused)
{
	static const int32_t few[3] = { 1, 1, 1 };
	const struct paged_array floats = {
		.name = "doc", .dtype = PAGED_F32, .n_dims = 1, .extents = { 3 }, .data = few
	};
	const struct paged_array ints = {
		.name = "doc", .dtype = PAGED_I32, .n_dims = 1, .extents = { 3 }, .data = few
	};
	struct paged_batch_row row = { .q_len = 4, .kv_len = 20 };
	struct paged_block_mask_params params = params_of(&row, 1);
	struct paged_block_mask *mask;
	struct it_daemon daemon;
	struct worker_fixture worker, observer;
	struct paged_mod *doc;

	masks_daemon_start(&daemon, LONG_MASK_TIME);
	worker_open(&worker, NULL, 0);
	row.seq = worker_create_seq(&worker, 20);
	doc = mask_mod_parse(&worker, "doc[kv_idx] * kv_idx % 5 == 1");
	expect_refused(&worker, &params, doc, PAGED_ERR_NOENT, "has no array doc; upload it first");
	worker_ok(&worker, paged_array_upload(worker.client, &floats));
	expect_refused(&worker, &params, doc, PAGED_ERR_INVALID, "array doc: dtype 1");
	worker_ok(&worker, paged_array_upload(worker.client, &ints));
	expect_refused(&worker, &params, doc, PAGED_ERR_RANGE, "doc");
	worker_expect(&worker, paged_block_mask_create_remote(worker.pool, &params, doc, N_NAMES, names, &mask),
		      PAGED_ERR_INVALID);
	expect_error(&worker, "must be uploaded");
	worker_expect(&worker,
		      paged_block_mask_create_remote(worker.pool, &params, mask_mod_parse(&worker, "kv_idx < window"),
						     0, NULL, &mask),
		      PAGED_ERR_NOENT);
	expect_refused(&worker, &params, mask_mod_parse(&worker, "h == 0"), PAGED_ERR_INVALID, "depends on h");
	row.kv_len = 21;
	expect_refused(&worker, &params, mask_mod_parse(&worker, "causal"), PAGED_ERR_CAPACITY, "row 0");
	row.kv_len = 20;
	params.kv_block = 3;
	expect_refused(&worker, &params, mask_mod_parse(&worker, "causal"), PAGED_ERR_INVALID, "divides");
	params.kv_block = 0;
	row.seq ^= 1ull << 40;
	expect_refused(&worker, &params, mask_mod_parse(&worker, "causal"), PAGED_ERR_STALE, "no live sequence");
	row.seq = 0;
	expect_refused(&worker, &params, mask_mod_parse(&worker, "causal"), PAGED_ERR_INVALID,
		       "row 0 names neither a sequence nor pages");

	worker_observe(&observer);
	expect_refused(&observer, &params, mask_mod_parse(&observer, "causal"), PAGED_ERR_PERM, "observer");
	worker_expect(&observer, paged_array_upload(observer.client, &names[2]), PAGED_ERR_PERM);
	worker_close(&observer);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

/* validate compares the versions of the mask's own rows only. */
IT_TEST(validate_detects_changed_rows)
{
	struct paged_batch_row rows[2] = { { .q_len = 1, .kv_len = 12 }, { .q_len = 1, .kv_len = 12 } };
	struct paged_block_mask_params params = params_of(rows, 2);
	struct paged_block_mask *mask;
	struct worker_fixture worker, other;
	struct it_daemon daemon;
	paged_seq_id foreign;

	masks_daemon_start(&daemon, LONG_MASK_TIME);
	worker_open(&worker, NULL, 0);
	worker_open(&other, NULL, 0);
	rows[0].seq = worker_create_seq(&worker, 20);
	rows[1].seq = worker_create_seq(&other, 20); /* a read of another session's sequence */
	foreign = worker_create_seq(&other, 20);
	worker_ok(&worker, paged_block_mask_create_remote(worker.pool, &params, mask_mod_parse(&worker, "causal"), 0,
							  NULL, &mask));
	worker_ok(&other, seqs_truncate(other.client, 1, &foreign, &(uint32_t){ 4 }));
	worker_ok(&other, paged_seq_erase(other.client, 1, &foreign));
	worker_ok(&worker, seqs_reserve(worker.client, 1, &rows[0].seq, &(uint32_t){ 40 }));
	worker_ok(&worker, paged_block_mask_validate(mask));
	worker_ok(&other, seqs_truncate(other.client, 1, &rows[1].seq, &(uint32_t){ 16 }));
	worker_expect(&worker, paged_block_mask_validate(mask), PAGED_ERR_STALE);
	expect_error(&worker, "row 1");
	worker_close(&other);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

/* Rows without sequences: given by explicit pages, or by lengths alone. */
IT_TEST(masks_over_explicit_page_tables)
{
	static const uint32_t pages[] = { 3, 9, 1 };
	struct paged_batch_row row = { .pages = pages, .n_pages = 3, .q_len = 5, .kv_len = 2 * WORKER_PAGE_SIZE + 1 };
	struct paged_block_mask_params params = params_of(&row, 1);
	struct it_daemon daemon;
	struct worker_fixture worker;

	masks_daemon_start(&daemon, LONG_MASK_TIME);
	worker_open(&worker, NULL, 0);
	expect_remote_equals_local(&worker, &params, "causal");
	row = (struct paged_batch_row){ .q_len = 1000, .kv_len = 1000 };
	params.physical = 0;
	expect_remote_equals_local(&worker, &params, "causal");
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

static void
replace_array_repeatedly(int from, int to, void *argument)
{
	struct paged_client_params join = { .struct_size = sizeof(join), .join_token = argument };
	int32_t value = 0;
	const struct paged_array flag = {
		.name = "flag", .dtype = PAGED_I32, .n_dims = 1, .extents = { 1 }, .data = &value
	};
	struct worker_fixture worker;

	(void)from, (void)to;
	worker_open(&worker, &join, 0);
	for (;;) {
		value = !value;
		worker_ok(&worker, paged_array_upload(worker.client, &flag));
		usleep(3000);
	}
}

/* If an array is replaced between a mask's parts, the mask is not delivered. */
IT_TEST(array_replaced_between_parts_is_detected)
{
	static const int32_t value = 0;
	const struct paged_array flag = {
		.name = "flag", .dtype = PAGED_I32, .n_dims = 1, .extents = { 1 }, .data = &value
	};
	struct paged_batch_row row = { .q_len = 500, .kv_len = 128 };
	struct paged_block_mask_params params = params_of(&row, 1);
	struct paged_block_lists lists = { .struct_size = sizeof(lists) };
	struct paged_block_mask *mask;
	struct it_daemon daemon;
	struct it_worker child;
	struct paged_mod *mod;
	struct worker_fixture worker;

	masks_daemon_start(&daemon, LONG_MASK_TIME);
	worker_open(&worker, NULL, 0);
	params.physical = 0;
	params.q_block = params.kv_block = 1;
	worker_ok(&worker, paged_mod_parse(worker.pool, PAGED_MOD_MASK, "(kv_idx + flag[0]) % 2 == 0", 1, &flag, &mod));
	worker_ok(&worker, paged_array_upload(worker.client, &flag));
	it_fork(&child, replace_array_repeatedly, (void *)paged_client_join_token(worker.client));
	for (int i = 0; i < 100; i++) {
		enum paged_status status;

		/* On a slow machine, each attempt may meet a replacement before its last part. */
		if (i == 99)
			it_kill(&child);
		status = paged_block_mask_create_remote(worker.pool, &params, mod, 0, NULL, &mask);
		it_require(status == PAGED_OK || (status == PAGED_ERR_AGAIN && i < 99), "%s",
			   paged_client_error(worker.client));
		if (status != PAGED_OK)
			continue;
		worker_ok(&worker, paged_block_mask_lists(mask, &lists));
		for (uint64_t j = 0; j < 500 * 64; j++)
			it_require(lists.indices[PAGED_BLOCKS_FULL][j] % 2 == lists.indices[PAGED_BLOCKS_FULL][0],
				   "index %ju", (uintmax_t)j);
		paged_block_mask_destroy(mask);
	}
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

/* A rank builds with what the scheduler uploaded. */
IT_TEST(members_of_a_session_share_arrays)
{
	struct paged_batch_row row = { .q_len = 8, .kv_len = 30 };
	struct paged_block_mask_params params = params_of(&row, 1);
	struct paged_client_params join = { .struct_size = sizeof(join) };
	struct worker_fixture first, rank, stranger;
	struct it_daemon daemon;

	masks_daemon_start(&daemon, LONG_MASK_TIME);
	worker_open(&first, NULL, 0);
	upload_documents(&first);
	row.seq = worker_create_seq(&first, 30);
	join.join_token = paged_client_join_token(first.client);
	worker_open(&rank, &join, 0);
	expect_remote_equals_local(&rank, &params, mods[2].text);
	worker_open(&stranger, NULL, 0);
	expect_refused(&stranger, &params, mask_mod_parse(&stranger, mods[2].text), PAGED_ERR_NOENT,
		       "has no array doc");
	worker_close(&stranger);
	worker_ok(&rank, paged_array_drop(rank.client, "doc"));
	expect_refused(&first, &params, mask_mod_parse(&first, mods[2].text), PAGED_ERR_NOENT, "has no array doc");
	worker_close(&rank);
	worker_close(&first);
	it_daemon_stop(&daemon);
}

IT_TEST(build_that_exceeds_mask_time_is_cancelled)
{
	struct paged_batch_row row = { .q_len = SLOW_MASK_Q_LEN, .kv_len = 128 };
	struct paged_block_mask_params params = params_of(&row, 1);
	struct it_daemon daemon;
	struct worker_fixture worker;

	masks_daemon_start(&daemon, "mask-time = 300ms\n");
	worker_open(&worker, NULL, 0);
	row.seq = worker_create_seq(&worker, 128);
	params.q_block = 1u << 12;
	expect_refused(&worker, &params, mask_mod_parse(&worker, slow_mask_mod), PAGED_ERR_LIMIT,
		       "longer than mask-time, 300 ms; a mask that is not remote");
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

IT_MAIN
