/* SPDX-License-Identifier: Apache-2.0 */
/* The checking mode: attention and publish of tokens that the client never appended, and what it must not refuse. */
#include <stdlib.h>

#include "tests/support/client_fixture.h"
#include "tests/support/sequences.h"

#define WIDTH (FIXTURE_KV_HEADS * FIXTURE_DIM)

static struct paged_batch *batch;
static float data[FIXTURE_MAX_LENGTH * WIDTH], out[FIXTURE_MAX_LENGTH * WIDTH];
static uint32_t tokens[FIXTURE_MAX_LENGTH];
static struct paged_prefix prefix = PAGED_PREFIX_INIT;

static void
checking_open(bool by_environment)
{
	struct paged_client_params params = PAGED_CLIENT_PARAMS_INIT;

	if (by_environment)
		setenv("PAGED_CHECK", "1", 1);
	params.check = !by_environment;
	cr_assert_eq(paged_client_open_embedded(&fixture_pool_params, 1, &params, &client), PAGED_OK);
	expect_ok(paged_pool_open(client, "small", &pool));
	batch = fixture_create_batch(4, 0);
	prefix.tokens = tokens;
	prefix.n_tokens = 8;
}

static void
checking_setup(void)
{
	checking_open(false);
}

TestSuite(checking, .init = checking_setup, .fini = client_fixture_teardown);

static void
plan(paged_seq_id seq, uint32_t from, uint32_t to)
{
	struct paged_batch_row row = PAGED_BATCH_ROW_INIT;

	row.seq = seq;
	row.q_len = to - from;
	row.kv_len = to;
	expect_ok(paged_batch_plan(batch, 1, &row));
}

static struct paged_tensor
tensor(float *of)
{
	struct paged_tensor made = PAGED_TENSOR_INIT;

	made.data = of;
	made.dtype = PAGED_F32;
	made.n_heads = FIXTURE_KV_HEADS;
	made.dim = FIXTURE_DIM;
	return made;
}

static enum paged_status
append(uint32_t layer)
{
	struct paged_tensor k = tensor(data);

	return paged_append(batch, layer, &k, &k, NULL);
}

static enum paged_status
attend(uint32_t layer)
{
	struct paged_tensor q = tensor(data), to = tensor(out);

	return paged_attention(batch, layer, &q, &to, NULL);
}

static enum paged_status
publish(paged_seq_id seq)
{
	struct paged_publish item = PAGED_PUBLISH_INIT;

	item.seq = seq;
	item.prefix = &prefix;
	return paged_seq_publish(pool, 1, &item);
}

#define NEVER "sequence " SEQ_FORMAT ": token %u was never appended in layer %u by this client (PAGED_CHECK)"

Test(checking, names_the_layer_and_the_first_token)
{
	paged_seq_id seq = fixture_create_seq(40);

	plan(seq, 0, 5);
	expect_error(attend(0), PAGED_ERR_INVALID, "row 0: " NEVER, SEQ_ARGS(seq), 0, 0);
	expect_ok(append(0));
	expect_ok(attend(0));
	expect_error(attend(1), PAGED_ERR_INVALID, "row 0: " NEVER, SEQ_ARGS(seq), 0, 1);
	/* The step that follows skips token 5. */
	plan(seq, 6, 8);
	expect_ok(append(0));
	expect_error(attend(0), PAGED_ERR_INVALID, "row 0: " NEVER, SEQ_ARGS(seq), 5, 0);
	expect_error(publish(seq), PAGED_ERR_INVALID, "publishes[0]: " NEVER, SEQ_ARGS(seq), 5, 0);
	plan(seq, 5, 6);
	expect_ok(append(0));
	expect_error(publish(seq), PAGED_ERR_INVALID, "publishes[0]: " NEVER, SEQ_ARGS(seq), 0, 1);
	plan(seq, 0, 8);
	expect_ok(append(1));
	expect_ok(attend(1));
	expect_ok(publish(seq));
	/* What lies past the published pages was not appended. */
	plan(seq, 11, 12);
	expect_error(attend(1), PAGED_ERR_INVALID, "row 0: " NEVER, SEQ_ARGS(seq), 8, 1);
}

Test(checking, truncated_tokens_are_written_again)
{
	paged_seq_id seq = fixture_create_seq(40), next;

	plan(seq, 0, 8);
	expect_ok(append(0));
	expect_ok(seqs_truncate(client, 1, &seq, (uint32_t[]){ 4 }));
	expect_ok(seqs_reserve(client, 1, &seq, (uint32_t[]){ 8 }));
	plan(seq, 7, 8);
	expect_error(attend(0), PAGED_ERR_INVALID, "row 0: " NEVER, SEQ_ARGS(seq), 4, 0);
	/* A slot that is used again begins with nothing. */
	expect_ok(paged_seq_erase(client, 1, &seq));
	next = fixture_create_seq(8);
	cr_assert_eq(PAGED_SEQ_SLOT(next), PAGED_SEQ_SLOT(seq));
	plan(next, 3, 4);
	expect_error(attend(0), PAGED_ERR_INVALID, "row 0: " NEVER, SEQ_ARGS(next), 0, 0);
}

/* Tokens that others wrote are as good: those of a started sequence, and all of a fork. */
Test(checking, shared_tokens_are_not_refused)
{
	paged_seq_id seq = fixture_create_seq(40), started, child;
	struct paged_start start = PAGED_START_INIT;
	uint32_t n_shared;

	plan(seq, 0, 10);
	expect_ok(append(0));
	expect_ok(append(1));
	expect_ok(publish(seq));
	start.prefix = &prefix;
	start.reserve = 16;
	expect_ok(paged_seq_start(pool, 1, &start, &started, &n_shared));
	cr_assert_eq(n_shared, 8);
	plan(started, 8, 9);
	expect_error(attend(0), PAGED_ERR_INVALID, "row 0: " NEVER, SEQ_ARGS(started), 8, 0);
	expect_ok(append(0));
	expect_ok(attend(0));
	expect_ok(paged_batch_fork(batch, 1, &seq, (uint32_t[]){ 10 }, &child));
	expect_ok(seqs_reserve(client, 1, &child, (uint32_t[]){ 11 }));
	plan(child, 10, 11);
	expect_ok(attend(0));
}

/* Its next owner may append, and give it back. */
Test(checking, what_was_given_away_is_not_refused)
{
	paged_seq_id seq = fixture_create_seq(40), adopted;
	struct paged_ticket ticket;
	uint32_t length;
	size_t n;

	expect_ok(paged_seq_give(pool, 1, &seq, (uint32_t[]){ 8 }, NULL, &ticket));
	expect_ok(paged_seq_adopt(pool, &ticket, 1, &adopted, &length, &n));
	plan(adopted, 7, 8);
	expect_ok(attend(0));
}

/* The scheduler of an engine publishes what its workers append. */
Test(checking, a_client_that_never_appends_is_not_refused)
{
	paged_seq_id seq = fixture_create_seq(40);

	expect_ok(publish(seq));
}

Test(checking, the_environment_turns_it_on, .init = NULL)
{
	paged_seq_id seq;

	checking_open(true);
	seq = fixture_create_seq(4);
	plan(seq, 0, 1);
	expect_error(attend(0), PAGED_ERR_INVALID, "row 0: " NEVER, SEQ_ARGS(seq), 0, 0);
}

Test(checking, is_off_otherwise, .init = client_fixture_setup)
{
	paged_seq_id seq = fixture_create_seq(4);

	batch = fixture_create_batch(4, 0);
	plan(seq, 0, 1);
	expect_ok(attend(0));
}
