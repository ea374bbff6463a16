/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans on a GPU: the tables' mirror, lengths that the device has, what is
 * refused and what fails.  Over the fake CUDA driver.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/api/objects.h"
#include "tests/system/batch_fixture.h"
#include "tests/system/cuda/cuda_daemon.h"
#include "tests/support/sequences.h"
#include "tests/fake-cuda/load.h"

static char log_path[] = "/tmp/paged-cuda-log-XXXXXX";

/* The settings are read by the first call of a process. */
static void
fake_cuda_begin(const char *fail)
{
	int fd = mkstemp(log_path);

	it_require(fd >= 0, "%m");
	close(fd);
	cuda_daemon_environment();
	setenv("PAGED_FAKE_CUDA_LOG", log_path, 1);
	if (fail != NULL)
		setenv("PAGED_FAKE_CUDA_FAIL", fail, 1);
	it_require(fake_cuda_load(), "%s", dlerror());
}

static void
fixture_close(struct batch_fixture *fixture)
{
	batch_fixture_close(fixture);
	unlink(log_path);
}

/* The number of calls so far with this prefix. */
static unsigned int
count_calls(const char *name)
{
	FILE *file = fopen(log_path, "re");
	unsigned int n = 0;
	char line[256], *word;

	it_require(file != NULL, "%m");
	while (fgets(line, sizeof(line), file) != NULL) {
		word = strchr(line, ' ');
		n += word != NULL && strncmp(word + 1, name, strlen(name)) == 0;
	}
	fclose(file);
	return n;
}

static const struct batch_fixture_params three_rows = {
	.backend = "cuda",
	.pool = PAGED_F32,
	.q = PAGED_F32,
	.q_heads = 2,
	.kv_heads = 1,
	.k_dim = 8,
	.v_dim = 8,
	.page_size = 4,
	.n_pages = 32,
	.max_length = 40,
	.n_rows = 3,
	.rows = { { .kv_len = 21, .q_len = 1 }, { .kv_len = 3, .q_len = 1 }, { .kv_len = 9, .q_len = 2 } },
};

static void
write_all(struct batch_fixture *fixture)
{
	for (uint32_t r = 0; r < fixture->params.n_rows; r++)
		batch_fixture_write(fixture, r, 0, fixture->params.rows[r].kv_len);
}

/* Plan the rows, and check that attention sees them. */
static void
plan_check(struct batch_fixture *fixture, const struct paged_batch_row *rows)
{
	batch_fixture_ok(fixture, paged_batch_plan(fixture->batch, fixture->params.n_rows, rows));
	batch_fixture_ok(fixture, batch_fixture_attend(fixture, NULL));
	batch_fixture_ok(fixture, paged_batch_validate(fixture->batch));
	batch_fixture_check(fixture);
}

IT_TEST(changed_page_tables_reach_the_device)
{
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS], other[3];
	uint32_t more = 28, less = 24, pages[8];
	struct batch_fixture fixture;

	fake_cuda_begin(NULL);
	batch_fixture_open(&fixture, &three_rows);
	write_all(&fixture);
	batch_fixture_rows(&fixture, rows);
	plan_check(&fixture, rows);
	plan_check(&fixture, rows);
	batch_fixture_ok(&fixture, seqs_reserve(fixture.client, 1, &fixture.seq[0], &more));
	plan_check(&fixture, rows);
	batch_fixture_ok(&fixture, seqs_truncate(fixture.client, 1, &fixture.seq[0], &less));
	plan_check(&fixture, rows);
	/* The same pages given as an explicit page table. */
	memcpy(other, rows, sizeof(other));
	batch_fixture_ok(&fixture, paged_seq_read(fixture.pool, fixture.seq[0], NULL, pages, 8));
	other[0].seq = 0;
	other[0].pages = pages;
	other[0].n_pages = 6;
	plan_check(&fixture, other);
	/* One entry in the middle. */
	pages[2] = pages[1];
	batch_fixture_ok(&fixture, paged_batch_plan(fixture.batch, 3, other));
	plan_check(&fixture, rows);
	/* Rows swap places, and swap back. */
	other[0] = rows[1];
	other[1] = rows[0];
	batch_fixture_ok(&fixture, paged_batch_plan(fixture.batch, 3, other));
	plan_check(&fixture, rows);
	fixture_close(&fixture);
}

IT_TEST(plan_allocates_nothing)
{
	static const char *const allocators[] = { "cuMemAlloc",    "cuMemHostAlloc", "cuMemCreate",
						  "cuEventCreate", "cuStreamCreate", "cuModuleLoadData" };
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];
	unsigned int before[6];
	struct paged_tensor q;
	struct batch_fixture fixture;

	fake_cuda_begin(NULL);
	batch_fixture_open(&fixture, &three_rows);
	write_all(&fixture);
	batch_fixture_rows(&fixture, rows);
	q = batch_fixture_queries(&fixture);
	for (unsigned int i = 0; i < 6; i++)
		before[i] = count_calls(allocators[i]);
	/* More plans than staging buffers, without a wait. */
	for (unsigned int step = 0; step < 12; step++) {
		batch_fixture_ok(&fixture, paged_batch_plan(fixture.batch, 3, rows));
		batch_fixture_ok(&fixture, paged_attention(fixture.batch, BATCH_FIXTURE_LAYER, &q, &fixture.out, NULL));
	}
	for (unsigned int i = 0; i < 6; i++)
		it_require(count_calls(allocators[i]) == before[i], "%s was called", allocators[i]);
	fixture_close(&fixture);
}

/* Each plan keeps its lengths and page tables until the stream has executed it. */
IT_TEST(queued_plans_keep_their_lengths)
{
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS], other[3];
	struct batch_fixture fixture;

	fake_cuda_begin(NULL);
	batch_fixture_open(&fixture, &three_rows);
	write_all(&fixture);
	batch_fixture_rows(&fixture, rows);
	batch_fixture_ok(&fixture, paged_batch_plan(fixture.batch, 3, rows));
	batch_fixture_ok(&fixture, batch_fixture_attend(&fixture, NULL));
	for (unsigned int i = 0; i < 3; i++) {
		other[i] = rows[2 - i];
		other[i].kv_len = 3;
		other[i].q_len = 0;
	}
	for (unsigned int i = 0; i < 9; i++) {
		other[i % 3].kv_len--;
		batch_fixture_ok(&fixture, paged_batch_plan(fixture.batch, 3 - i % 2, other));
	}
	batch_fixture_check(&fixture);
	fixture_close(&fixture);
}

/* Lengths in the device's memory */

struct lengths {
	int32_t q_indptr[4], kv_len[3], q_base[3];
};

static const struct lengths valid_lengths = { { 0, 1, 2, 4 }, { 21, 3, 9 }, { 20, 2, 7 } };

static struct paged_plan_device_params
device_params(const struct lengths *at, const struct paged_batch_row *rows)
{
	return (struct paged_plan_device_params){ .struct_size = sizeof(struct paged_plan_device_params),
						  .n_rows = 3,
						  .rows = rows,
						  .q_indptr = at->q_indptr,
						  .kv_len = at->kv_len };
}

IT_TEST(plan_device_reads_device_lengths)
{
	struct paged_plan_device_params params;
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];
	struct lengths *at, lengths = valid_lengths;
	struct batch_fixture fixture;

	fake_cuda_begin(NULL);
	batch_fixture_open(&fixture, &three_rows);
	write_all(&fixture);
	batch_fixture_rows(&fixture, rows);
	/* The plan's rows are upper bounds of the device's lengths. */
	rows[0].kv_len = 24;
	rows[1].kv_len = 4;
	rows[2].q_len = 5;
	at = batch_fixture_put(&fixture, NULL, sizeof(*at));
	params = device_params(at, rows);
	batch_fixture_set(&fixture, at, &lengths, sizeof(lengths));
	batch_fixture_ok(&fixture, paged_batch_plan_device(fixture.batch, &params));
	batch_fixture_ok(&fixture, batch_fixture_attend(&fixture, NULL));
	/* The next lengths are written on the stream, after the plan. */
	lengths.kv_len[0] = 5;
	batch_fixture_set(&fixture, at, &lengths, sizeof(lengths));
	batch_fixture_ok(&fixture, paged_batch_validate(fixture.batch));
	batch_fixture_check(&fixture);
	fixture.params.rows[0].kv_len = 5;
	params.q_base = at->q_base;
	lengths.q_base[0] = 4;
	batch_fixture_set(&fixture, at, &lengths, sizeof(lengths));
	batch_fixture_ok(&fixture, paged_batch_plan_device(fixture.batch, &params));
	batch_fixture_ok(&fixture, batch_fixture_attend(&fixture, NULL));
	batch_fixture_ok(&fixture, paged_batch_validate(fixture.batch));
	batch_fixture_check(&fixture);
	fixture_close(&fixture);
}

/* The device's lengths may give a row several KV chunks, which a kernel of its own combines if V is in K. */
IT_TEST(plan_device_combines_kv_chunks)
{
	static const struct lengths lengths = { { 0, 1, 2, 4 }, { 300, 3, 129 }, { 299, 2, 127 } };
	struct batch_fixture_params v_in_k = three_rows;
	struct paged_plan_device_params params;
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];
	struct batch_fixture fixture;
	struct lengths *at;

	fake_cuda_begin(NULL);
	v_in_k.v_in_k = true;
	v_in_k.pool = v_in_k.q = PAGED_BF16;
	v_in_k.kv_heads = 1;
	v_in_k.k_dim = 48;
	v_in_k.v_dim = 32;
	v_in_k.page_size = 16;
	v_in_k.max_length = 320;
	v_in_k.rows[0].kv_len = 300;
	v_in_k.rows[2].kv_len = 129;
	batch_fixture_open(&fixture, &v_in_k);
	write_all(&fixture);
	batch_fixture_rows(&fixture, rows);
	at = batch_fixture_put(&fixture, NULL, sizeof(*at));
	params = device_params(at, rows);
	batch_fixture_set(&fixture, at, &lengths, sizeof(lengths));
	batch_fixture_ok(&fixture, paged_batch_plan_device(fixture.batch, &params));
	batch_fixture_ok(&fixture, batch_fixture_attend(&fixture, NULL));
	batch_fixture_ok(&fixture, paged_batch_validate(fixture.batch));
	batch_fixture_check(&fixture);
	fixture_close(&fixture);
}

/* kv_first is the host's, whatever the lengths on the device; it is copied only when it changes. */
IT_TEST(plan_device_takes_kv_first)
{
	struct paged_plan_device_params params;
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];
	struct lengths *at, lengths = valid_lengths;
	struct batch_fixture fixture;

	fake_cuda_begin(NULL);
	batch_fixture_open(&fixture, &three_rows);
	write_all(&fixture);
	batch_fixture_rows(&fixture, rows);
	rows[0].kv_len = 24;
	at = batch_fixture_put(&fixture, NULL, sizeof(*at));
	params = device_params(at, rows);
	batch_fixture_set(&fixture, at, &lengths, sizeof(lengths));
	for (uint32_t first = 0; first <= 21; first += 7) {
		fixture.params.rows[0].kv_first = rows[0].kv_first = first;
		fixture.params.rows[2].kv_first = rows[2].kv_first = first % 9;
		batch_fixture_ok(&fixture, paged_batch_plan_device(fixture.batch, &params));
		batch_fixture_ok(&fixture, batch_fixture_attend(&fixture, NULL));
		batch_fixture_ok(&fixture, paged_batch_validate(fixture.batch));
		batch_fixture_check(&fixture);
	}
	/* A trimmed sequence begins at its first page. */
	rows[0].kv_first = rows[2].kv_first = fixture.params.rows[2].kv_first = 0;
	fixture.params.rows[0].kv_first = three_rows.page_size;
	batch_fixture_ok(&fixture, seqs_trim(fixture.client, 1, &fixture.seq[0], &three_rows.page_size));
	batch_fixture_ok(&fixture, paged_batch_plan_device(fixture.batch, &params));
	batch_fixture_ok(&fixture, batch_fixture_attend(&fixture, NULL));
	batch_fixture_ok(&fixture, paged_batch_validate(fixture.batch));
	batch_fixture_check(&fixture);
	rows[0].kv_first = 22;
	batch_fixture_ok(&fixture, paged_batch_plan_device(fixture.batch, &params));
	batch_fixture_ok(&fixture, batch_fixture_attend(&fixture, NULL));
	batch_fixture_expect(&fixture, paged_batch_validate(fixture.batch), PAGED_ERR_RANGE);
	it_require(strstr(paged_client_error(fixture.client), "is below its kv_first") != NULL, "%s",
		   paged_client_error(fixture.client));
	rows[0].kv_first = 25;
	batch_fixture_expect(&fixture, paged_batch_plan_device(fixture.batch, &params), PAGED_ERR_INVALID);
	fixture_close(&fixture);
}

static void
expect_validate(struct batch_fixture *fixture, struct lengths *at, const struct lengths *lengths,
		enum paged_status wanted, const char *part)
{
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];
	struct paged_plan_device_params params;

	batch_fixture_rows(fixture, rows);
	params = device_params(at, rows);
	batch_fixture_set(fixture, at, lengths, sizeof(*lengths));
	batch_fixture_ok(fixture, paged_batch_plan_device(fixture->batch, &params));
	batch_fixture_ok(fixture, batch_fixture_attend(fixture, NULL));
	batch_fixture_expect(fixture, paged_batch_validate(fixture->batch), wanted);
	it_require(strstr(paged_client_error(fixture->client), part) != NULL, "%s",
		   paged_client_error(fixture->client));
}

IT_TEST(validate_reports_invalid_device_lengths)
{
	struct lengths *at, lengths = valid_lengths;
	struct batch_fixture fixture;

	fake_cuda_begin(NULL);
	batch_fixture_open(&fixture, &three_rows);
	write_all(&fixture);
	at = batch_fixture_put(&fixture, NULL, sizeof(*at));
	lengths.kv_len[1] = 5;
	expect_validate(&fixture, at, &lengths, PAGED_ERR_CAPACITY, "row 1: tokens past the 4 that it has room for");
	lengths.kv_len[1] = -1;
	expect_validate(&fixture, at, &lengths, PAGED_ERR_RANGE, "row 1: kv_len is negative or exceeds max_length 40");
	lengths.kv_len[1] = 3;
	lengths.q_indptr[3] = 1;
	expect_validate(&fixture, at, &lengths, PAGED_ERR_RANGE,
			"row 2: q_indptr falls, or passes the plan's 4 query rows");
	lengths.q_indptr[3] = 5;
	expect_validate(&fixture, at, &lengths, PAGED_ERR_RANGE,
			"row 2: q_indptr falls, or passes the plan's 4 query rows");
	/* Valid lengths succeed afterwards. */
	expect_validate(&fixture, at, &valid_lengths, PAGED_OK, "");
	batch_fixture_check(&fixture);
	fixture_close(&fixture);
}

IT_TEST(plan_device_accepts_empty_rows)
{
	struct paged_plan_device_params params;
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];
	struct lengths *at, lengths = valid_lengths;
	struct batch_fixture fixture;

	fake_cuda_begin(NULL);
	batch_fixture_open(&fixture, &three_rows);
	write_all(&fixture);
	batch_fixture_rows(&fixture, rows);
	rows[1] = (struct paged_batch_row){ .flags = PAGED_ROW_NO_APPEND };
	lengths.q_indptr[2] = 1;
	lengths.q_indptr[3] = 3;
	lengths.kv_len[1] = 0;
	at = batch_fixture_put(&fixture, &lengths, sizeof(lengths));
	params = device_params(at, rows);
	batch_fixture_ok(&fixture, paged_batch_plan_device(fixture.batch, &params));
	batch_fixture_ok(&fixture, batch_fixture_attend(&fixture, NULL));
	batch_fixture_ok(&fixture, paged_batch_validate(fixture.batch));
	fixture_close(&fixture);
}

/* Rows with read-only positions */

static struct region_slot *
slot_of(const struct batch_fixture *fixture, uint32_t r)
{
	return region_slot(&fixture->pool->mapping.view, PAGED_SEQ_SLOT(fixture->seq[r]));
}

/* Append NaN of every row of a plan. */
static void
append_nan(struct batch_fixture *fixture, const uint32_t *positions)
{
	struct paged_tensor k = batch_fixture_tensor(fixture, PAGED_F32, 4, 1, 8),
			    v = batch_fixture_tensor(fixture, PAGED_F32, 4, 1, 8);

	batch_fixture_ok(fixture,
			 paged_append(fixture->batch, BATCH_FIXTURE_LAYER, &k, &v,
				      &(struct paged_append_params){ .struct_size = sizeof(struct paged_append_params),
								     .positions = positions }));
}

static void
expect_append_error(struct batch_fixture *fixture, const char *part)
{
	batch_fixture_expect(fixture, paged_batch_validate(fixture->batch), PAGED_ERR_PERM);
	it_require(strcmp(paged_client_error(fixture->client), part) == 0, "%s", paged_client_error(fixture->client));
}

IT_TEST(append_skips_read_only_positions)
{
	static const uint32_t tokens[] = { 20, 2, 6, 8 };
	struct paged_plan_device_params params;
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];
	struct paged_tensor k, v;
	struct batch_fixture fixture;
	uint32_t *positions;
	uint32_t session;

	fake_cuda_begin(NULL);
	batch_fixture_open(&fixture, &three_rows);
	write_all(&fixture);
	batch_fixture_rows(&fixture, rows);
	positions = batch_fixture_put(&fixture, tokens, sizeof(tokens));
	params = device_params(batch_fixture_put(&fixture, &valid_lengths, sizeof(valid_lengths)), rows);
	/* The rows were planned before the change, and validate detects it. */
	for (uint32_t r = 0; r < 3; r++)
		slot_of(&fixture, r)->writable_from = three_rows.rows[r].kv_len;
	batch_fixture_ok(&fixture, paged_batch_plan_device(fixture.batch, &params));
	append_nan(&fixture, NULL);
	expect_append_error(&fixture, "row 2: a position to append may not be written, the row is writable from 9");
	/* The host checks lengths, the device checks positions. */
	batch_fixture_ok(&fixture, paged_batch_plan(fixture.batch, 3, rows));
	k = batch_fixture_tensor(&fixture, PAGED_F32, 4, 1, 8);
	v = batch_fixture_tensor(&fixture, PAGED_F32, 4, 1, 8);
	batch_fixture_expect(&fixture, paged_append(fixture.batch, BATCH_FIXTURE_LAYER, &k, &v, NULL), PAGED_ERR_PERM);
	append_nan(&fixture, positions);
	expect_append_error(&fixture, "row 2: a position to append may not be written, the row is writable from 9");
	/* Another session's row, to which this plan appends nothing according to its bounds. */
	session = slot_of(&fixture, 1)->owner;
	slot_of(&fixture, 1)->owner = session + 1;
	slot_of(&fixture, 2)->writable_from = 0;
	rows[1].q_len = 0;
	rows[2].flags = PAGED_ROW_NO_APPEND;
	rows[2].q_len++;
	batch_fixture_ok(&fixture, paged_batch_plan_device(fixture.batch, &params));
	append_nan(&fixture, NULL);
	batch_fixture_expect(&fixture, paged_batch_validate(fixture.batch), PAGED_ERR_PERM);
	it_require(strncmp(paged_client_error(fixture.client), "row 1: sequence ", 16) == 0, "%s",
		   paged_client_error(fixture.client));
	slot_of(&fixture, 1)->owner = session;
	/* None of these appends wrote anything. */
	batch_fixture_rows(&fixture, rows);
	batch_fixture_ok(&fixture, paged_batch_plan_device(fixture.batch, &params));
	batch_fixture_ok(&fixture, batch_fixture_attend(&fixture, NULL));
	batch_fixture_ok(&fixture, paged_batch_validate(fixture.batch));
	batch_fixture_check(&fixture);
	/* Writable positions are written. */
	for (uint32_t r = 0; r < 3; r++)
		slot_of(&fixture, r)->writable_from = three_rows.rows[r].kv_len - three_rows.rows[r].q_len;
	batch_fixture_ok(&fixture, paged_batch_plan_device(fixture.batch, &params));
	append_nan(&fixture, NULL);
	batch_fixture_ok(&fixture, paged_batch_validate(fixture.batch));
	for (uint32_t r = 0; r < 3; r++) {
		slot_of(&fixture, r)->writable_from = 0;
		batch_fixture_write(&fixture, r, three_rows.rows[r].kv_len - three_rows.rows[r].q_len,
				    three_rows.rows[r].kv_len);
	}
	batch_fixture_ok(&fixture, paged_batch_plan_device(fixture.batch, &params));
	batch_fixture_ok(&fixture, batch_fixture_attend(&fixture, NULL));
	batch_fixture_ok(&fixture, paged_batch_validate(fixture.batch));
	batch_fixture_check(&fixture);
	fixture_close(&fixture);
}

/* Refusals */

IT_TEST(batch_limits_are_checked)
{
	struct paged_plan_device_params params;
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];
	struct batch_fixture_params small = three_rows;
	struct paged_tensor q, out;
	struct batch_fixture fixture;

	fake_cuda_begin(NULL);
	small.max_q_tokens = 5;
	batch_fixture_open(&fixture, &small);
	batch_fixture_rows(&fixture, rows);
	rows[2].q_len = 4;
	batch_fixture_expect(&fixture, paged_batch_plan(fixture.batch, 3, rows), PAGED_ERR_LIMIT);
	it_require(strcmp(paged_client_error(fixture.client),
			  "6 query rows, the batch was made for max_q_tokens of 5") == 0);
	rows[2].q_len = 2;
	batch_fixture_ok(&fixture, paged_batch_plan(fixture.batch, 3, rows));
	q = batch_fixture_tensor(&fixture, PAGED_F32, 4, 3, 8);
	out = batch_fixture_tensor(&fixture, PAGED_F32, 4, 3, 8);
	batch_fixture_expect(&fixture, paged_attention(fixture.batch, 0, &q, &out, NULL), PAGED_ERR_LIMIT);
	it_require(strcmp(paged_client_error(fixture.client),
			  "q has 3 heads, the batch was made for max_q_heads of 2") == 0);
	params = (struct paged_plan_device_params){ .struct_size = sizeof(params), .n_rows = 3, .rows = rows };
	batch_fixture_expect(&fixture, paged_batch_plan_device(fixture.batch, &params), PAGED_ERR_INVALID);
	batch_fixture_expect(&fixture, paged_attention(fixture.batch, 0, &q, &out, NULL), PAGED_ERR_INVALID);
	fixture_close(&fixture);
}

/* A plan is scheduled once for each combination of query dtype and heads. */
IT_TEST(one_plan_serves_several_query_dtypes)
{
	static const enum paged_dtype dtypes[] = { PAGED_F16, PAGED_F32, PAGED_F16, PAGED_F32 };
	struct batch_fixture_params params = three_rows;
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];
	struct paged_tensor q, out;
	unsigned int before;
	struct batch_fixture fixture;

	cuda_skip_with_gpu();
	fake_cuda_begin(NULL);
	params.pool = PAGED_F16;
	params.q = PAGED_F16;
	batch_fixture_open(&fixture, &params);
	write_all(&fixture);
	batch_fixture_rows(&fixture, rows);
	batch_fixture_ok(&fixture, paged_batch_plan(fixture.batch, 3, rows));
	before = count_calls("cuLaunchKernel");
	for (unsigned int i = 0; i < 4; i++) {
		q = batch_fixture_tensor(&fixture, dtypes[i], 4, i < 2 ? 2 : 1, 8);
		out = batch_fixture_tensor(&fixture, PAGED_F32, 4, i < 2 ? 2 : 1, 8);
		batch_fixture_ok(&fixture, paged_attention(fixture.batch, 0, &q, &out, NULL));
	}
	/* Four launches of attention; the first combination had been scheduled before. */
	it_require(count_calls("cuLaunchKernel") == before + 4 + 3, "%u launches",
		   count_calls("cuLaunchKernel") - before);
	batch_fixture_ok(&fixture, batch_fixture_attend(&fixture, NULL));
	batch_fixture_ok(&fixture, paged_batch_validate(fixture.batch));
	batch_fixture_check(&fixture);
	fixture_close(&fixture);
}

IT_TEST(validate_reports_replaced_pages)
{
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];
	struct batch_fixture fixture;
	uint32_t less = 4;

	fake_cuda_begin(NULL);
	batch_fixture_open(&fixture, &three_rows);
	write_all(&fixture);
	batch_fixture_rows(&fixture, rows);
	batch_fixture_ok(&fixture, paged_batch_plan(fixture.batch, 3, rows));
	batch_fixture_ok(&fixture, batch_fixture_attend(&fixture, NULL));
	batch_fixture_ok(&fixture, seqs_truncate(fixture.client, 1, &fixture.seq[2], &less));
	batch_fixture_expect(&fixture, paged_batch_validate(fixture.batch), PAGED_ERR_STALE);
	batch_fixture_expect(&fixture, paged_batch_plan(fixture.batch, 3, rows), PAGED_ERR_CAPACITY);
	fixture_close(&fixture);
}

/* Calls restore the current context, including none. */
IT_TEST(calls_restore_the_current_context)
{
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];
	struct paged_tensor q;
	cuda_context now;
	struct batch_fixture fixture;

	fake_cuda_begin(NULL);
	batch_fixture_open(&fixture, &three_rows);
	write_all(&fixture);
	batch_fixture_rows(&fixture, rows);
	q = batch_fixture_queries(&fixture);
	it_require(fixture.gpu.driver.context_pop(&now) == CUDA_SUCCESS);
	batch_fixture_ok(&fixture, paged_batch_plan(fixture.batch, 3, rows));
	batch_fixture_ok(&fixture, paged_attention(fixture.batch, BATCH_FIXTURE_LAYER, &q, &fixture.out, NULL));
	batch_fixture_ok(&fixture, paged_batch_validate(fixture.batch));
	it_require(fixture.gpu.driver.context_current(&now) == CUDA_SUCCESS && now == NULL);
	it_require(fixture.gpu.driver.context_push(fixture.gpu.context) == CUDA_SUCCESS);
	fixture_close(&fixture);
}

/* Failures */

static void
create_failing(int from, int to, void *argument)
{
	struct paged_batch_params params = { .struct_size = sizeof(params), .max_rows = 3 };
	struct batch_fixture_params none = three_rows;
	struct paged_batch *batch;
	struct batch_fixture fixture;

	(void)from, (void)to;
	fake_cuda_begin(argument);
	none.n_rows = 0;
	none.pool = PAGED_F16;
	batch_fixture_open(&fixture, &none);
	/* The fixture's batch was the first; creating this one fails, creating the next succeeds. */
	it_require(paged_batch_create(fixture.pool, &params, &batch) != PAGED_OK, "%s", (const char *)argument);
	it_require(strstr(paged_client_error(fixture.client), "CUDA_ERROR") != NULL, "%s",
		   paged_client_error(fixture.client));
	batch_fixture_ok(&fixture, paged_batch_create(fixture.pool, &params, &batch));
	paged_batch_destroy(batch);
	fixture_close(&fixture);
}

IT_TEST(creating_a_batch_fails_cleanly)
{
	static const char *const failures[] = { "cuMemAlloc_v2@3=2", "cuMemHostAlloc@2=2", "cuEventCreate@7=2",
						"cuStreamCreate@3=2", "cuMemsetD8Async@6=1" };
	struct it_worker worker;

	cuda_skip_with_gpu();
	for (unsigned int i = 0; i < 5; i++) {
		it_fork(&worker, create_failing, (void *)(uintptr_t)failures[i]);
		it_join(&worker);
	}
}

static void
load_failing(int from, int to, void *argument)
{
	struct paged_client *client;
	struct paged_batch *batch;
	struct paged_pool *opened;

	(void)from, (void)to;
	fake_cuda_begin(argument);
	it_require(paged_client_open_embedded(&cuda_small_pool, 1, NULL, &client) == PAGED_OK, "%s",
		   paged_client_error(client));
	it_require(paged_pool_open(client, "test", &opened) == PAGED_OK);
	it_require(paged_batch_create(opened, NULL, &batch) != PAGED_OK, "%s", (const char *)argument);
	it_note("%s", paged_client_error(client));
	it_require(paged_batch_create(opened, NULL, &batch) == PAGED_OK, "%s", paged_client_error(client));
	paged_client_close(client);
	unlink(log_path);
}

IT_TEST(loading_kernels_fails_cleanly)
{
	static const char *const failures[] = {
		"cuModuleLoadData@1=200", "cuModuleLoadData@4=2",   "cuModuleGetFunction@5=500",
		"cuFuncSetAttribute@1=1", "cuFuncSetAttribute@2=1", "cuOccupancyMaxActiveBlocksPerMultiprocessor@6=1"
	};
	struct it_worker worker;

	cuda_skip_with_gpu();
	for (unsigned int i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
		it_fork(&worker, load_failing, (void *)(uintptr_t)failures[i]);
		it_join(&worker);
	}
}

/* A row grew and the launch failed: the next plan writes the new entry, although the row's version is unchanged. */
IT_TEST(failed_launch_is_repeated_by_the_next_plan)
{
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];
	uint32_t more = 28;
	struct batch_fixture fixture;

	cuda_skip_with_gpu();
	fake_cuda_begin(NULL);
	batch_fixture_open(&fixture, &three_rows);
	write_all(&fixture);
	batch_fixture_rows(&fixture, rows);
	batch_fixture_ok(&fixture, paged_batch_plan(fixture.batch, 3, rows));
	batch_fixture_ok(&fixture, seqs_reserve(fixture.client, 1, &fixture.seq[0], &more));
	setenv("PAGED_FAKE_CUDA_FAIL", "cuLaunchKernel=1", 1);
	batch_fixture_expect(&fixture, paged_batch_plan(fixture.batch, 3, rows), PAGED_ERR_BACKEND);
	unsetenv("PAGED_FAKE_CUDA_FAIL");
	batch_fixture_write(&fixture, 0, 21, 28);
	fixture.params.rows[0].kv_len = 28;
	batch_fixture_rows(&fixture, rows);
	batch_fixture_ok(&fixture, paged_batch_plan(fixture.batch, 3, rows));
	batch_fixture_ok(&fixture, batch_fixture_attend(&fixture, NULL));
	batch_fixture_ok(&fixture, paged_batch_validate(fixture.batch));
	batch_fixture_check(&fixture);
	fixture_close(&fixture);
}

/* After a failed plan the next one writes the row again. */
static void
plan_failing(int from, int to, void *argument)
{
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];
	struct batch_fixture_params params = three_rows;
	enum paged_status status;
	unsigned int n_failed = 0;
	struct batch_fixture fixture;

	(void)from, (void)to;
	fake_cuda_begin(argument);
	batch_fixture_open(&fixture, &params);
	for (uint32_t r = 0; r < params.n_rows; r++)
		do {
			struct paged_tensor k = batch_fixture_keys(&fixture, r, 0, params.rows[r].kv_len);
			struct paged_tensor v = batch_fixture_values(&fixture, r, 0, params.rows[r].kv_len);

			status = paged_batch_plan(fixture.batch, 1,
						  &(struct paged_batch_row){ .seq = fixture.seq[r],
									     .q_len = params.rows[r].kv_len,
									     .kv_len = params.rows[r].kv_len });
			if (status == PAGED_OK)
				status = paged_append(fixture.batch, BATCH_FIXTURE_LAYER, &k, &v, NULL);
			n_failed += status != PAGED_OK;
		} while (status != PAGED_OK && n_failed < 2);
	batch_fixture_rows(&fixture, rows);
	while (paged_batch_plan(fixture.batch, 3, rows) != PAGED_OK)
		it_require(++n_failed < 2);
	batch_fixture_ok(&fixture, batch_fixture_attend(&fixture, NULL));
	batch_fixture_ok(&fixture, paged_batch_validate(fixture.batch));
	batch_fixture_check(&fixture);
	it_require(n_failed == 1, "%s: %u failures", (const char *)argument, n_failed);
	fixture_close(&fixture);
}

IT_TEST(planning_fails_cleanly)
{
	static const char *const failures[] = { "cuEventRecord@2=1", "cuEventSynchronize@2=1",
						"cuStreamIsCapturing@3=1", "cuCtxPushCurrent_v2@9=1" };
	struct it_worker worker;

	cuda_skip_with_gpu();
	for (unsigned int i = 0; i < 4; i++) {
		it_fork(&worker, plan_failing, (void *)(uintptr_t)failures[i]);
		it_join(&worker);
	}
}

IT_MAIN
