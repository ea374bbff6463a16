/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of the calls on mods, and the destruction of their objects. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/client/attention_fixture.h"
#include "tests/support/sequences.h"

TestSuite(client_mods_calls, .init = attention_fixture_setup, .fini = attention_fixture_teardown);

#define N(array) (sizeof(array) / sizeof((array)[0]))

static const uint32_t decode_q_len[ATTENTION_ROWS] = { 1, 1, 1 };

static enum paged_status
decode_attend(struct paged_mod_set *mods)
{
	return attention_fixture_attend(&(struct paged_attention_params){
		.struct_size = sizeof(struct paged_attention_params), .mod_set = mods });
}

static struct paged_mod_set *
mod_set_create(const struct paged_mod *mask, const struct paged_mod *score)
{
	const struct paged_mod_set_params params = { sizeof(params), mask, score };
	struct paged_mod_set *mods = NULL;

	expect_ok(paged_mod_set_create(attention_fixture->batch, &params, &mods));
	return mods;
}

Test(client_mods_calls, parse)
{
	static char text[5000];
	struct paged_array names[256] = { { .name = "doc", .dtype = PAGED_I32, .n_dims = 1 },
					  { .name = "x", .dtype = PAGED_F32 } };
	struct paged_mod *mod = NULL;

	expect_error(paged_mod_parse(pool, PAGED_MOD_MASK, NULL, 0, NULL, &mod), PAGED_ERR_INVALID,
		     "mod: text is NULL");
	expect_error(paged_mod_parse(pool, PAGED_MOD_MASK, "true", 1, NULL, &mod), PAGED_ERR_INVALID,
		     "mod: names is NULL");
	expect_error(paged_mod_parse(pool, PAGED_MOD_MASK, "true", 0, NULL, NULL), PAGED_ERR_INVALID,
		     "a mod needs a place for its handle");
	expect_error(paged_mod_parse(pool, (enum paged_mod_kind)2, "true", 0, NULL, &mod), PAGED_ERR_INVALID,
		     "mod: kind 2 is neither mask nor score");
	expect_error(paged_mod_parse(pool, PAGED_MOD_MASK, "true", 256, names, &mod), PAGED_ERR_LIMIT,
		     "mod: 256 names, 255 at most");
	expect_error(paged_mod_parse(pool, PAGED_MOD_MASK, "true", 3, names, &mod), PAGED_ERR_INVALID,
		     "mod: array 2 has no name");
	names[1].dtype = (enum paged_dtype)4;
	expect_error(paged_mod_parse(pool, PAGED_MOD_MASK, "true", 2, names, &mod), PAGED_ERR_INVALID,
		     "mod: 'x' has dtype 4 and 0 dimensions");
	cr_assert_eq(paged_mod_parse(pool, PAGED_MOD_MASK, "dox[q_idx] == 1", 1, names, &mod), PAGED_ERR_INVALID);
	cr_assert_not_null(strstr(paged_client_error(client), "doc"), "%s", paged_client_error(client));
	memset(text, ' ', sizeof(text) - 1);
	cr_assert_eq(paged_mod_parse(pool, PAGED_MOD_MASK, text, 0, NULL, &mod), PAGED_ERR_LIMIT);
	cr_assert_null(mod);
}

Test(client_mods_calls, mod_inputs_lists_what_the_mod_reads)
{
	static const struct {
		enum paged_mod_kind kind;
		const char *text;
		uint32_t inputs;
	} cases[] = {
		{ PAGED_MOD_MASK, "true", 0 },
		{ PAGED_MOD_MASK, "causal", PAGED_ON_Q_IDX | PAGED_ON_KV_IDX },
		{ PAGED_MOD_MASK, "h % 2 == 0 && kv_idx < 4 || b == 1", PAGED_ON_B | PAGED_ON_H | PAGED_ON_KV_IDX },
		{ PAGED_MOD_SCORE, "score + h", PAGED_ON_SCORE | PAGED_ON_H },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct paged_mod *mod;

		expect_ok(paged_mod_parse(pool, cases[i].kind, cases[i].text, 0, NULL, &mod));
		cr_assert_eq(paged_mod_inputs(mod), cases[i].inputs, "%s: %u", cases[i].text, paged_mod_inputs(mod));
		paged_mod_destroy(mod);
	}
}

Test(client_mods_calls, predefined_mods_parse)
{
	int32_t any[4] = { 0 };
	const struct paged_named_mod *named;
	struct paged_mod *a, *b;
	uint32_t n = 0;

	expect_ok(paged_mod_parse(pool, PAGED_MOD_MASK, "q_idx>=kv_idx", 0, NULL, &a));
	expect_ok(paged_mod_parse(pool, PAGED_MOD_MASK, "causal", 0, NULL, &b));
	cr_assert_str_eq(paged_mod_text(a), paged_mod_text(b));
	paged_mod_destroy(a);
	paged_mod_destroy(b);
	paged_mod_destroy(NULL);
	for (; (named = paged_mod_named(n)) != NULL; n++) {
		struct paged_array names[4] = { MOD_ARRAY("doc", PAGED_I32, any), MOD_ARRAY("start", PAGED_I32, any) };
		enum paged_mod_kind kind = strstr(named->text, "score") != NULL ? PAGED_MOD_SCORE : PAGED_MOD_MASK;
		char arguments[64];
		size_t n_names = 2;

		/* A call without arguments uses parameters of these names. */
		snprintf(arguments, sizeof(arguments), "%s", named->arguments);
		for (char *at, *name = strtok_r(arguments, ", ", &at); name != NULL; name = strtok_r(NULL, ", ", &at))
			if (strcmp(name, "score") != 0)
				names[n_names++] = (struct paged_array){ .name = name, .dtype = PAGED_I32 };
		expect_ok(paged_mod_parse(pool, kind, named->name, n_names, names, &a));
	}
	cr_assert_geq(n, 10);
	cr_assert_null(paged_mod_named(UINT32_MAX));
}

/* Removes blanks and roff markup. */
static void
strip_blanks(char *text)
{
	char *to = text;

	for (; *text != '\0'; text++)
		if (strchr(" \n\\", *text) == NULL)
			*to++ = *text;
	*to = '\0';
}

/* paged_mods(7) contains the text of each predefined mod. */
Test(client_mods_calls, the_manual_lists_the_predefined_mods)
{
	static char manual[1 << 16];
	const struct paged_named_mod *named;
	char path[512], expected[512];
	FILE *file;

	snprintf(path, sizeof(path), "%s/man/paged_mods.7", getenv("PAGED_SRCDIR"));
	file = fopen(path, "re");
	cr_assert_not_null(file, "%s", path);
	manual[fread(manual, 1, sizeof(manual) - 1, file)] = '\0';
	fclose(file);
	strip_blanks(manual);
	for (uint32_t i = 0; (named = paged_mod_named(i)) != NULL; i++) {
		bool bare = named->arguments[0] == '\0';

		snprintf(expected, sizeof(expected), "%s%s%s%s%s", named->name, bare ? "" : "(", named->arguments,
			 bare ? "" : ")", named->text);
		strip_blanks(expected);
		cr_expect_not_null(strstr(manual, expected), "%s", expected);
	}
}

Test(client_mods_calls, create)
{
	struct paged_mod *mask = attention_mod_parse(PAGED_MOD_MASK, "causal", 0, NULL), *elsewhere;
	struct paged_mod *score = attention_mod_parse(PAGED_MOD_SCORE, "score * 2", 0, NULL);
	struct paged_mod_set_params params = { .struct_size = sizeof(params), .mask = score };
	struct paged_pool *other;
	struct paged_mod_set *mods = NULL;

	expect_error(paged_mod_set_create(attention_fixture->batch, &params, &mods), PAGED_ERR_INVALID,
		     "mask is a score mod");
	params.mask = NULL;
	params.score = mask;
	expect_error(paged_mod_set_create(attention_fixture->batch, &params, &mods), PAGED_ERR_INVALID,
		     "score is a mask mod");
	expect_error(paged_mod_set_create(attention_fixture->batch, &params, NULL), PAGED_ERR_INVALID,
		     "mods need a place for their handle");
	expect_ok(paged_pool_open(client, "fixture", &other));
	expect_ok(paged_mod_parse(other, PAGED_MOD_MASK, "causal", 0, NULL, &elsewhere));
	params.mask = elsewhere;
	expect_error(paged_mod_set_create(attention_fixture->batch, &params, &mods), PAGED_ERR_INVALID,
		     "mask is a mod of another pool than the batch's");
	params.struct_size = 0;
	expect_error(paged_mod_set_create(attention_fixture->batch, &params, &mods), PAGED_ERR_INVALID,
		     "paged_mod_set_params: struct_size is 0; set it to sizeof(the struct)");
	cr_assert_null(mods);
	expect_ok(paged_mod_set_create(attention_fixture->batch, NULL, &mods));
	attention_fixture_plan(decode_q_len);
	expect_ok(decode_attend(mods));
	attention_fixture_expect(&(struct attention_mods){ 0 }, NULL);
	paged_mod_set_destroy(mods);
	paged_mod_set_destroy(NULL);
}

/* A failed bind leaves the earlier bindings of both mods. */
Test(client_mods_calls, bind)
{
	int32_t window = 30, doc[600] = { 0 };
	float cap = 1, other_cap = 9;
	const struct paged_array good[] = { MOD_PARAMETER("window", PAGED_I32, window),
					    MOD_PARAMETER("cap", PAGED_F32, cap), MOD_ARRAY("doc", PAGED_I32, doc) };
	const struct attention_mods what = { "q_idx - kv_idx < window && document", "soft_cap", N(good), good };
	struct paged_mod_set *mods = attention_mod_set_open(&what);
	struct paged_array invalid[4];
	int32_t other_window = 300;

	memcpy(invalid, good, sizeof(good));
	invalid[0].data = &other_window;
	expect_error(paged_mod_set_bind(mods, 2, invalid, NULL), PAGED_ERR_NOENT, "mod: array 'doc' is not given");
	expect_error(paged_mod_set_bind(mods, 1, NULL, NULL), PAGED_ERR_INVALID, "arrays is NULL");
	invalid[1].dtype = PAGED_I32;
	expect_error(paged_mod_set_bind(mods, 3, invalid, NULL), PAGED_ERR_INVALID,
		     "mod: 'cap' is i32 of 0 dimensions, and was parsed as f32 of 0");
	invalid[1] = (struct paged_array)MOD_PARAMETER("cap", PAGED_F32, other_cap);
	invalid[2].n_dims = 2;
	expect_error(paged_mod_set_bind(mods, 3, invalid, NULL), PAGED_ERR_INVALID,
		     "mod: 'doc' is i32 of 2 dimensions, and was parsed as i32 of 1");
	invalid[2] = good[2];
	invalid[2].data = NULL;
	expect_error(paged_mod_set_bind(mods, 3, invalid, NULL), PAGED_ERR_INVALID, "mod: 'doc' has no data");
	invalid[2] = good[2];
	invalid[2].strides[0] = INT64_MAX / 2;
	expect_error(paged_mod_set_bind(mods, 3, invalid, NULL), PAGED_ERR_LIMIT,
		     "mod: array 'doc' has strides past 2^63 bytes");
	invalid[2].strides[0] = INT64_MAX / 8;
	expect_error(paged_mod_set_bind(mods, 3, invalid, NULL), PAGED_ERR_LIMIT,
		     "mod: array 'doc' reaches over more than 2^62 bytes");
	invalid[2] = good[2];
	invalid[3] = good[1];
	expect_error(paged_mod_set_bind(mods, 4, invalid, NULL), PAGED_ERR_INVALID, "mod: 'cap' is given twice");
	invalid[3].name = NULL;
	expect_error(paged_mod_set_bind(mods, 4, invalid, NULL), PAGED_ERR_INVALID, "mod: array 3 has no name");
	attention_fixture_plan(decode_q_len);
	expect_ok(decode_attend(mods));
	attention_fixture_expect(&what, NULL);
	/* Names that no mod uses are ignored. */
	invalid[3] = (struct paged_array){ .name = "9?", .n_dims = 77 };
	expect_ok(paged_mod_set_bind(mods, 4, invalid, NULL));
}

Test(client_mods_calls, attention)
{
	int32_t window = 3;
	const struct paged_array arrays[] = { MOD_PARAMETER("window", PAGED_I32, window) };
	struct paged_mod *mask = attention_mod_parse(PAGED_MOD_MASK, "sliding_window", 1, arrays);
	struct paged_mod *score = attention_mod_parse(PAGED_MOD_SCORE, "score * 2", 0, NULL);
	struct paged_mod_set *unbound = mod_set_create(mask, score), *ready = mod_set_create(NULL, score), *elsewhere;
	struct paged_batch *other = fixture_create_batch(1, 0);
	const struct paged_mod_set_params params = { sizeof(params), NULL, score };
	struct paged_attention_params sinkless = { .struct_size = sizeof(sinkless), .lse_without_sink = 2 };

	attention_fixture_plan(decode_q_len);
	expect_error(decode_attend(unbound), PAGED_ERR_INVALID,
		     "the mods were never bound: mod: parameter 'window' is not given");
	cr_assert_eq(paged_mod_set_bind(unbound, 0, NULL, NULL), PAGED_ERR_NOENT);
	expect_error(decode_attend(unbound), PAGED_ERR_INVALID,
		     "the mods were never bound: mod: parameter 'window' is not given");
	expect_ok(paged_mod_set_bind(unbound, 1, arrays, NULL));
	expect_ok(decode_attend(unbound));
	expect_ok(decode_attend(ready));
	expect_ok(paged_mod_set_create(other, &params, &elsewhere));
	expect_error(decode_attend(elsewhere), PAGED_ERR_INVALID, "the mods are another batch's");
	expect_error(attention_fixture_attend(&sinkless), PAGED_ERR_INVALID, "lse_without_sink is 2, neither 0 nor 1");

	/* Positions that do not fit 32 bits. */
	attention_fixture->rows[1].flags = PAGED_ROW_Q_BASE;
	attention_fixture->rows[1].q_base = (int64_t)INT32_MAX + 1;
	attention_fixture_plan(decode_q_len);
	expect_ok(decode_attend(NULL));
	expect_error(decode_attend(ready), PAGED_ERR_LIMIT,
		     "row 1: mods count to 2^31 - 1, not to q_idx 2147483648 + 1 and kv_len 33");
	attention_fixture->rows[1].q_base = INT32_MIN - (int64_t)1;
	attention_fixture_plan(decode_q_len);
	cr_assert_eq(decode_attend(ready), PAGED_ERR_LIMIT);
	attention_fixture->rows[1].q_base = INT32_MAX;
	attention_fixture_plan(decode_q_len);
	expect_ok(decode_attend(ready));
	attention_fixture_expect(&(struct attention_mods){ .score = "score * 2" }, NULL);
}

/* ------------------------------------------------------------ block masks */

/* A block mask with all blocks, for n_rows equal rows. */
static struct paged_block_mask *
block_mask_all(size_t n_rows, uint32_t n_heads, uint32_t q_len, uint32_t kv_len)
{
	struct paged_batch_row rows[4] = { { .q_len = q_len, .kv_len = kv_len } };
	const struct paged_block_mask_params params = {
		.struct_size = sizeof(params), .rows = rows, .n_rows = n_rows, .n_heads = n_heads
	};
	struct paged_mod *all = attention_mod_parse(PAGED_MOD_MASK, "true", 0, NULL);
	struct paged_block_mask *blocks = NULL;

	rows[1] = rows[2] = rows[3] = rows[0];
	expect_ok(paged_block_mask_create(pool, &params, all, 0, NULL, &blocks));
	paged_mod_destroy(all);
	return blocks;
}

/* A mask that has no blocks before kv_first serves plans that begin there or later. */
Test(client_mods_calls, block_mask_from_kv_first_on)
{
	struct paged_batch_row row = attention_fixture->rows[0];
	const struct paged_block_mask_params params = { .struct_size = sizeof(params), .rows = &row, .n_rows = 1 };
	struct paged_mod *all = attention_mod_parse(PAGED_MOD_MASK, "true", 0, NULL);
	struct paged_mod_set *mods = mod_set_create(NULL, NULL);
	struct paged_block_mask *blocks = NULL;

	row.q_len = 1;
	row.kv_first = ATTENTION_KV_LEN_0 + 1;
	expect_error(paged_block_mask_create(pool, &params, all, 0, NULL, &blocks), PAGED_ERR_INVALID,
		     "block mask: row 0: kv_first 301 exceeds its kv_len 300");
	row.kv_first = 9;
	expect_ok(paged_block_mask_create(pool, &params, all, 0, NULL, &blocks));
	expect_ok(paged_mod_set_bind(mods, 0, NULL, blocks));
	for (row.kv_first = 8; row.kv_first <= 10; row.kv_first++) {
		expect_ok(paged_batch_plan(attention_fixture->batch, 1, &row));
		if (row.kv_first == 8)
			expect_error(decode_attend(mods), PAGED_ERR_INVALID,
				     "row 0: kv_first is 8, its block mask was made for keys from 9 on");
		else
			expect_ok(decode_attend(mods));
	}
	paged_mod_destroy(all);
	paged_mod_set_destroy(mods);
	paged_block_mask_destroy(blocks);
}

Test(client_mods_calls, block_masks_of_another_shape_are_refused)
{
	struct paged_block_mask *right = block_mask_all(3, 4, 10, 600),
				*one = block_mask_all(1, 1, 1, ATTENTION_KV_LEN_2);
	struct paged_block_mask *rows = block_mask_all(2, 1, 10, 600), *heads = block_mask_all(3, 2, 10, 600);
	struct paged_block_mask *short_q = block_mask_all(3, 1, 3, 600), *short_kv = block_mask_all(1, 4, 10, 579);
	struct paged_block_mask *elsewhere;
	const uint32_t q_len[ATTENTION_ROWS] = { 1, 4, 10 }, waiting[ATTENTION_ROWS] = { 1, 1, 0 };
	struct paged_mod_set *mods = mod_set_create(NULL, NULL);
	struct paged_pool *other;

	attention_fixture_plan(q_len);
	expect_ok(paged_mod_set_bind(mods, 0, NULL, right));
	expect_ok(decode_attend(mods));
	attention_fixture_expect(&(struct attention_mods){ 0 }, NULL);
	expect_ok(paged_mod_set_bind(mods, 0, NULL, rows));
	expect_error(decode_attend(mods), PAGED_ERR_INVALID, "a block mask of 2 rows for a plan of 3");
	expect_ok(paged_mod_set_bind(mods, 0, NULL, heads));
	expect_error(decode_attend(mods), PAGED_ERR_INVALID, "a block mask of 2 heads for q of 4");
	expect_ok(paged_mod_set_bind(mods, 0, NULL, short_q));
	expect_error(decode_attend(mods), PAGED_ERR_INVALID, "row 1: 4 query rows, its block mask was made for 3");
	expect_ok(paged_mod_set_bind(mods, 0, NULL, short_kv));
	expect_error(decode_attend(mods), PAGED_ERR_INVALID, "row 2: kv_len is 580, its block mask was made for 579");
	/* Each plan is checked again; a row without queries always fits. */
	attention_fixture_plan(waiting);
	expect_ok(decode_attend(mods));
	attention_fixture_plan(decode_q_len);
	expect_error(decode_attend(mods), PAGED_ERR_INVALID, "row 2: kv_len is 580, its block mask was made for 579");
	expect_ok(paged_mod_set_bind(mods, 0, NULL, one));
	expect_ok(decode_attend(mods));
	attention_fixture_expect(&(struct attention_mods){ 0 }, NULL);
	attention_fixture_plan(q_len);
	cr_assert_eq(decode_attend(mods), PAGED_ERR_INVALID);

	expect_ok(paged_pool_open(client, "fixture", &other));
	expect_ok(paged_block_mask_from_dense(
		other,
		&(struct paged_block_mask_params){ .struct_size = sizeof(struct paged_block_mask_params),
						   .rows = &(struct paged_batch_row){ .q_len = 1, .kv_len = 1 },
						   .n_rows = 1 },
		(const uint8_t[]){ 1 }, &elsewhere));
	expect_error(paged_mod_set_bind(mods, 0, NULL, elsewhere), PAGED_ERR_INVALID,
		     "the block mask is one of another pool than the batch's");
}

Test(client_mods_calls, stale_block_masks)
{
	struct paged_block_mask *logical = block_mask_all(1, 1, 10, ATTENTION_KV_LEN_2), *blocks, *others;
	struct paged_mod_set *mods = mod_set_create(NULL, NULL);
	struct paged_batch_row rows[ATTENTION_ROWS];
	uint32_t tokens, n_pages = (ATTENTION_KV_LEN_0 + ATTENTION_PAGE_SIZE - 1) / ATTENTION_PAGE_SIZE,
			 pages[ATTENTION_TOKENS / ATTENTION_PAGE_SIZE];
	const paged_seq_id *seq = &attention_fixture->rows[2].seq;

	memcpy(rows, attention_fixture->rows, sizeof(rows));
	expect_ok(paged_block_mask_to_physical(logical, ATTENTION_ROWS, rows, &blocks));
	rows[1] = rows[0];
	expect_ok(paged_block_mask_to_physical(logical, ATTENTION_ROWS, rows, &others));
	attention_fixture_plan(decode_q_len);
	expect_ok(paged_mod_set_bind(mods, 0, NULL, blocks));
	expect_ok(decode_attend(mods));
	attention_fixture_expect(&(struct attention_mods){ 0 }, NULL);
	expect_ok(paged_mod_set_bind(mods, 0, NULL, others));
	expect_error(decode_attend(mods), PAGED_ERR_STALE,
		     "row 1: the plan has sequence " SEQ_FORMAT ", the block mask " SEQ_FORMAT,
		     SEQ_ARGS(attention_fixture->rows[1].seq), SEQ_ARGS(rows[0].seq));

	/* The library cannot detect changes of explicit pages. */
	expect_ok(paged_seq_read(pool, rows[0].seq, NULL, pages, n_pages));
	rows[1] = (struct paged_batch_row){ .pages = pages, .n_pages = n_pages, .kv_len = ATTENTION_KV_LEN_0 };
	paged_block_mask_destroy(others);
	expect_ok(paged_block_mask_to_physical(logical, ATTENTION_ROWS, rows, &others));
	expect_ok(paged_mod_set_bind(mods, 0, NULL, others));
	expect_ok(decode_attend(mods));

	tokens = ATTENTION_PAGE_SIZE;
	expect_ok(seqs_truncate(client, 1, seq, &tokens));
	tokens = ATTENTION_KV_LEN_2;
	expect_ok(seqs_reserve(client, 1, seq, &tokens));
	attention_fixture_plan(decode_q_len);
	expect_ok(decode_attend(NULL));
	expect_error(decode_attend(mods), PAGED_ERR_STALE,
		     "row 2: pages of sequence " SEQ_FORMAT " were replaced or removed since the block mask",
		     SEQ_ARGS(*seq));
	attention_fixture_plan((const uint32_t[]){ 1, 1, 0 });
	expect_ok(decode_attend(mods));
}

/* One extent of 0 makes an array empty. */
Test(client_mods_calls, an_empty_array)
{
	struct paged_array array = {
		.name = "doc", .dtype = PAGED_I32, .n_dims = 4, .extents = { 0, UINT32_MAX, UINT32_MAX, UINT32_MAX }
	};

	expect_ok(paged_array_upload(client, &array));
	expect_ok(paged_array_drop(client, "doc"));
	array.n_dims = 1;
	expect_ok(paged_array_upload(client, &array));
}

/* ------------------------------------------------------- values of 64 bits */

#define WIDE (INT64_C(1) << 32)

/* A point at which paged_mod_evaluate() reads both names. */
static const struct paged_mod_point wide_point = { .q_idx = 4, .kv_idx = 2 };

Test(client_mods_calls, int64_arrays_and_parameters)
{
	static int64_t doc[ATTENTION_TOKENS][2];
	static int32_t twin[ATTENTION_TOKENS];
	int64_t window = 3;
	int32_t narrow_window = 3;
	const struct paged_array narrow[] = { MOD_PARAMETER("window", PAGED_I32, narrow_window),
					      MOD_ARRAY("doc", PAGED_I32, twin) };
	struct paged_array wide[] = { MOD_PARAMETER("window", PAGED_I64, window),
				      { .name = "doc",
					.data = doc[ATTENTION_TOKENS - 1],
					.dtype = PAGED_I64,
					.n_dims = 1,
					.extents = { ATTENTION_TOKENS },
					.strides = { -2 } } };
	const struct attention_mods what = { "q_idx - kv_idx < window || document", NULL, N(narrow), narrow };
	struct paged_mod_set *mods =
		mod_set_create(attention_mod_parse(PAGED_MOD_MASK, what.mask, N(wide), wide), NULL);
	double value;

	/* A mod parsed with one dtype is also bound with the other. */
	for (unsigned int step = 0; step < 3; step++) {
		for (uint32_t i = 0; i < ATTENTION_TOKENS; i++) {
			twin[i] = (int32_t)(i / (5 + step)) - 3;
			doc[ATTENTION_TOKENS - 1 - i][0] = twin[i];
			doc[i][1] = WIDE; /* between the elements */
		}
		window = narrow_window = (int32_t)step + 3;
		expect_ok(paged_mod_set_bind(mods, N(wide), step < 2 ? wide : narrow, NULL));
		attention_fixture_plan(decode_q_len);
		expect_ok(decode_attend(mods));
		attention_fixture_expect(&what, NULL);
		expect_ok(paged_mod_evaluate(attention_mod_parse(PAGED_MOD_MASK, what.mask, N(narrow), narrow), N(wide),
					     wide, &wide_point, &value));
		cr_assert_eq(value, 1);
	}
}

/* After a value that does not fit, the earlier binding stays. */
Test(client_mods_calls, int64_values_outside_32_bits_are_refused)
{
	int64_t window = 3, table[2][700] = { { 0 } }, largest = INT32_MAX;
	struct paged_array arrays[] = {
		MOD_PARAMETER("window", PAGED_I64, window),
		{ .name = "table", .data = table, .dtype = PAGED_I64, .n_dims = 2, .extents = { 2, 700 } },
	};
	const struct attention_mods what = { "q_idx - kv_idx < window + table[0][kv_idx]", NULL, N(arrays), arrays };
	const struct attention_mods same = { "q_idx - kv_idx < 3", NULL, 0, NULL };
	const struct paged_block_mask_params params = { .struct_size = sizeof(params),
							.rows = attention_fixture->rows,
							.n_rows = ATTENTION_ROWS };
	struct paged_mod *mask = attention_mod_parse(PAGED_MOD_MASK, what.mask, N(arrays), arrays);
	struct paged_mod_set *mods = attention_mod_set_open(&what);
	struct paged_block_mask *blocks;
	double value;
	const char *expected = "array table[1][600] is -2147483649, which 32 bits do not hold";

	table[1][600] = INT32_MIN - INT64_C(1);
	expect_error(paged_mod_set_bind(mods, N(arrays), arrays, NULL), PAGED_ERR_RANGE, "%s", expected);
	expect_error(paged_mod_evaluate(mask, N(arrays), arrays, &wide_point, &value), PAGED_ERR_RANGE, "%s", expected);
	expect_error(paged_block_mask_create(pool, &params, mask, N(arrays), arrays, &blocks), PAGED_ERR_RANGE, "%s",
		     expected);
	expect_error(paged_array_upload(client, &arrays[1]), PAGED_ERR_RANGE, "%s", expected);
	table[1][600] = INT32_MIN;
	window = WIDE;
	expect_error(paged_mod_set_bind(mods, N(arrays), arrays, NULL), PAGED_ERR_RANGE,
		     "parameter window is 4294967296, which 32 bits do not hold");
	arrays[0].data = NULL;
	expect_error(paged_mod_set_bind(mods, N(arrays), arrays, NULL), PAGED_ERR_INVALID,
		     "parameter window: data is NULL");
	attention_fixture_plan(decode_q_len);
	expect_ok(decode_attend(mods));
	attention_fixture_expect(&same, NULL);

	arrays[0].data = &largest;
	expect_ok(paged_array_upload(client, &arrays[1]));
	expect_ok(paged_mod_set_bind(mods, N(arrays), arrays, NULL));
	arrays[1].extents[0] = UINT32_MAX;
	arrays[1].extents[1] = UINT32_MAX;
	expect_error(paged_mod_set_bind(mods, N(arrays), arrays, NULL), PAGED_ERR_LIMIT,
		     "array table: more than 2^63 bytes");
}

/* ------------------------------------------------------- indexes, endings */

/* An out-of-bounds read is reported for the plan in which it happened, even if the mods are destroyed. */
Test(client_mods_calls, out_of_bounds_indexes_are_reported)
{
	float bias[ATTENTION_KV_LEN_2] = { 0 };
	struct paged_array arrays[] = { MOD_ARRAY("bias", PAGED_F32, bias) };
	struct paged_mod *score = attention_mod_parse(PAGED_MOD_SCORE, "score + bias[kv_idx]", 1, arrays);
	struct paged_mod_set *mods = mod_set_create(NULL, score);
	const char *expected = "mod: array 'bias', index 0 is 300, bounds are 0 to 299";

	/* Row 0 attends keys up to 299, row 2 up to 579. */
	attention_fixture->rows[2].kv_len = 301;
	attention_fixture_plan(decode_q_len);
	expect_ok(paged_mod_set_bind(mods, 1, arrays, NULL));
	expect_ok(decode_attend(mods));
	expect_ok(paged_batch_validate(attention_fixture->batch));
	for (unsigned int end = 0; end < 3; end++) {
		arrays[0].extents[0] = ATTENTION_KV_LEN_0;
		expect_ok(paged_mod_set_bind(mods, 1, arrays, NULL));
		expect_ok(decode_attend(mods));
		expect_error(paged_batch_validate(attention_fixture->batch), PAGED_ERR_RANGE, "%s", expected);
		arrays[0].extents[0] = ATTENTION_KV_LEN_2;
		if (end == 1)
			expect_ok(paged_mod_set_bind(mods, 1, arrays, NULL));
		if (end == 2)
			paged_mod_set_destroy(mods);
		expect_error(paged_batch_validate(attention_fixture->batch), PAGED_ERR_RANGE, "%s", expected);
		attention_fixture_plan(decode_q_len);
		expect_ok(paged_batch_validate(attention_fixture->batch));
	}
}

/* An index is reported even if reading 0 instead does not change the result. */
Test(client_mods_calls, out_of_bounds_indexes_are_reported_even_if_unused)
{
	int32_t zeros[ATTENTION_KV_LEN_2] = { 0 };
	const struct paged_array arrays[] = { MOD_ARRAY("zeros", PAGED_I32, zeros) };
	struct paged_mod *mask = attention_mod_parse(PAGED_MOD_MASK, "zeros[kv_idx - 1] == 0", 1, arrays);
	struct paged_mod_set *mods = mod_set_create(mask, NULL);

	attention_fixture_plan(decode_q_len);
	expect_ok(paged_mod_set_bind(mods, 1, arrays, NULL));
	expect_ok(decode_attend(mods));
	expect_error(paged_batch_validate(attention_fixture->batch), PAGED_ERR_RANGE,
		     "mod: array 'zeros', index 0 is -1, bounds are 0 to 579");
}

static void
child_check_calls(struct paged_mod *mask, struct paged_mod_set *mods)
{
	struct paged_mod_set *other_mods;
	struct paged_mod *other;
	bool right = paged_mod_parse(pool, PAGED_MOD_MASK, "true", 0, NULL, &other) == PAGED_ERR_FORK &&
		     paged_mod_set_create(attention_fixture->batch, NULL, &other_mods) == PAGED_ERR_FORK &&
		     paged_mod_set_bind(mods, 0, NULL, NULL) == PAGED_ERR_FORK &&
		     decode_attend(mods) == PAGED_ERR_FORK &&
		     paged_merge(attention_fixture->batch, NULL) == PAGED_ERR_FORK;

	paged_mod_set_destroy(mods);
	paged_mod_destroy(mask);
	paged_client_close(client);
	_exit(right ? 0 : 1);
}

Test(client_mods_calls, a_forked_child_may_only_free)
{
	struct paged_mod *mask = attention_mod_parse(PAGED_MOD_MASK, "causal", 0, NULL);
	struct paged_mod_set *mods = mod_set_create(mask, NULL), *left = mod_set_create(mask, NULL);
	pid_t child;
	int status;

	attention_fixture_plan(decode_q_len);
	child = fork();
	if (child == 0)
		child_check_calls(mask, mods);
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert_eq(status, 0);
	expect_ok(decode_attend(mods));
	expect_ok(decode_attend(left));
}

/* Destroys objects in several orders; the sanitizers detect leaks and double frees. */
Test(client_mods_calls, objects_may_be_destroyed_in_any_order)
{
	struct paged_mod *mask = attention_mod_parse(PAGED_MOD_MASK, "causal", 0, NULL);
	struct paged_mod *score = attention_mod_parse(PAGED_MOD_SCORE, "score", 0, NULL);
	struct paged_mod_set *first = mod_set_create(mask, NULL), *second = mod_set_create(mask, score),
			     *third = mod_set_create(NULL, score);

	paged_mod_set_destroy(second);
	paged_mod_set_destroy(first);
	paged_mod_destroy(mask);
	attention_fixture_plan(decode_q_len);
	expect_ok(decode_attend(third));
	paged_batch_destroy(attention_fixture->batch);
	paged_mod_destroy(score);
	attention_mod_parse(PAGED_MOD_MASK, "causal", 0, NULL);
	paged_pool_close(pool);
}
