/* SPDX-License-Identifier: Apache-2.0 */
/* The same pages in several processes: reads of another session's sequence, and an engine of three. */
#include "config.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/sequences.h"
#include "tests/support/worker_fixture.h"

#define LENGTH 30u /* tokens; the last page is not full */
#define SEED 20261121u

/* What A and B say to each other: one word a step. */
enum word { ATTEND = 1, VALIDATE, END };

static void
reader(int from, int to, void *argument)
{
	float out[TOY_LAYERS * TOY_OUT];
	enum paged_status status;
	enum word word;
	paged_seq_id seq;
	struct toy toy;

	(void)argument;
	toy_open(&toy, NULL, 0);
	it_hear(from, &seq, sizeof(seq));
	for (;;) {
		it_hear(from, &word, sizeof(word));
		switch (word) {
		case ATTEND:
			toy_read(&toy, seq, LENGTH, out);
			toy_ok(&toy, paged_batch_validate(toy.batch));
			it_say(to, out, sizeof(out));
			break;
		case VALIDATE:
			status = paged_batch_validate(toy.batch);
			it_say(to, &status, sizeof(status));
			break;
		case END:
			toy_expect(&toy, toy_plan(&toy, seq, LENGTH - 1, LENGTH, PAGED_ROW_NO_APPEND), PAGED_ERR_STALE);
			toy_close(&toy);
			return;
		}
	}
}

static void
say_word(struct it_worker *worker, enum word word)
{
	it_say(worker->to, &word, sizeof(word));
}

static void
hear_result(struct it_worker *worker, float *out)
{
	say_word(worker, ATTEND);
	it_hear(worker->from, out, sizeof(float) * TOY_LAYERS * TOY_OUT);
}

static enum paged_status
hear_verdict(struct it_worker *worker)
{
	enum paged_status status;

	say_word(worker, VALIDATE);
	it_hear(worker->from, &status, sizeof(status));
	return status;
}

/* The address of the first element of V of a token in layer 0, head 0. */
static uint8_t *
element(const struct toy *toy, paged_seq_id seq, uint32_t token)
{
	struct paged_seq_info info = { .struct_size = sizeof(info) };
	uint32_t pages[TOY_MAX_LENGTH / TOY_PAGE_SIZE];
	const struct paged_plane_info *v = &toy->info.v;

	toy_ok(toy, paged_seq_read(toy->pool, seq, &info, pages, TOY_MAX_LENGTH / TOY_PAGE_SIZE));
	it_require(token < info.capacity);
	return (uint8_t *)toy->info.base + v->offset + pages[token / TOY_PAGE_SIZE] * v->page_stride +
	       token % TOY_PAGE_SIZE * v->token_stride;
}

IT_TEST(another_session_reads_the_same_bits)
{
	float mine[TOY_LAYERS * TOY_OUT], theirs[TOY_LAYERS * TOY_OUT];
	struct it_daemon daemon;
	struct it_worker worker;
	paged_seq_id gap, seq;
	uint8_t *byte;
	struct toy toy;

	it_daemon_start(&daemon, toy_configuration, NULL, NULL);
	it_fork(&worker, reader, NULL);
	toy_open(&toy, NULL, 0);
	/* Pages that do not lie in order: a neighbour grows in between. */
	gap = toy_sequence(&toy, 4);
	seq = toy_sequence(&toy, 12);
	toy_ok(&toy, seqs_reserve(toy.client, 1, &gap, (uint32_t[]){ 16 }));
	toy_ok(&toy, seqs_reserve(toy.client, 1, &seq, (uint32_t[]){ LENGTH }));
	toy_write(&toy, seq, 0, LENGTH, SEED);
	toy_read(&toy, seq, LENGTH, mine);
	it_say(worker.to, &seq, sizeof(seq));

	hear_result(&worker, theirs);
	it_require(memcmp(mine, theirs, sizeof(mine)) == 0, "B's bits are not A's");

	byte = element(&toy, seq, 17);
	byte[3] ^= 0x40; /* of a little-endian float: the exponent */
	hear_result(&worker, theirs);
	it_require(memcmp(mine, theirs, sizeof(mine)) != 0, "B does not see A's page");
	byte[3] ^= 0x40;
	hear_result(&worker, theirs);
	it_require(memcmp(mine, theirs, sizeof(mine)) == 0);

	/* Growth disturbs no reader; the end does. */
	toy_ok(&toy, seqs_reserve(toy.client, 1, &seq, (uint32_t[]){ 64 }));
	it_require(hear_verdict(&worker) == PAGED_OK);
	toy_ok(&toy, paged_seq_erase(toy.client, 1, &seq));
	it_require(hear_verdict(&worker) == PAGED_ERR_STALE);
	say_word(&worker, END);
	it_join(&worker);
	toy_check(&toy);
	toy_close(&toy);
	it_daemon_stop(&daemon);
}

/* K and V of a layer: of a reader's own tokens, then of a writer's from `GATHER_FROM` on. */
#define OWN_LENGTH 9u
#define GATHER_FROM 5u
#define GATHER_TOKENS (OWN_LENGTH + LENGTH - GATHER_FROM)

struct gathered {
	float k[GATHER_TOKENS][TOY_KV_HEADS][TOY_DIM], v[GATHER_TOKENS][TOY_KV_HEADS][TOY_DIM];
};

static void
toy_gather(struct toy *toy, uint32_t layer, const uint32_t *begin, struct gathered *to)
{
	struct paged_gather_params params = { .struct_size = sizeof(params), .begin = begin };
	struct paged_tensor k = { .data = to->k, .dtype = PAGED_F32, .n_heads = TOY_KV_HEADS, .dim = TOY_DIM };
	struct paged_tensor v = { .data = to->v, .dtype = PAGED_F32, .n_heads = TOY_KV_HEADS, .dim = TOY_DIM };

	toy_ok(toy, paged_gather(toy->batch, layer, &k, &v, &params));
}

static void
gatherer(int from, int to, void *argument)
{
	const uint32_t begin[] = { 0, GATHER_FROM };
	struct paged_batch_row rows[2] = { { .kv_len = OWN_LENGTH }, { .kv_len = LENGTH } };
	struct gathered gathered;
	paged_seq_id seq;
	struct toy toy;

	(void)argument;
	toy_open(&toy, NULL, 0);
	it_hear(from, &seq, sizeof(seq));
	rows[0].seq = toy_sequence(&toy, OWN_LENGTH);
	rows[1].seq = seq;
	toy_write(&toy, rows[0].seq, 0, OWN_LENGTH, SEED + 1);
	toy_ok(&toy, paged_batch_plan(toy.batch, 2, rows));
	for (uint32_t layer = 0; layer < TOY_LAYERS; layer++) {
		toy_gather(&toy, layer, begin, &gathered);
		it_say(to, &gathered, sizeof(gathered));
	}
	toy_ok(&toy, paged_batch_validate(toy.batch));
	it_say(to, "x", 1);
	it_hear(from, &seq, 1);
	toy_gather(&toy, 0, begin, &gathered);
	toy_expect(&toy, paged_batch_validate(toy.batch), PAGED_ERR_STALE);
	toy_close(&toy);
}

/* Beside its own; when the writer erases them, what was gathered is told to be nothing. */
IT_TEST(another_session_takes_tokens_out)
{
	const uint32_t begin[] = { 0, GATHER_FROM };
	struct paged_batch_row rows[2] = { { .kv_len = OWN_LENGTH }, { .kv_len = LENGTH } };
	struct gathered mine[TOY_LAYERS], theirs[TOY_LAYERS];
	struct it_daemon daemon;
	struct it_worker worker;
	struct toy toy;
	char done;

	it_daemon_start(&daemon, toy_configuration, NULL, NULL);
	it_fork(&worker, gatherer, NULL);
	toy_open(&toy, NULL, 0);
	rows[0].seq = toy_sequence(&toy, OWN_LENGTH);
	rows[1].seq = toy_sequence(&toy, LENGTH);
	toy_write(&toy, rows[0].seq, 0, OWN_LENGTH, SEED + 1);
	toy_write(&toy, rows[1].seq, 0, LENGTH, SEED);
	toy_ok(&toy, paged_batch_plan(toy.batch, 2, rows));
	for (uint32_t layer = 0; layer < TOY_LAYERS; layer++)
		toy_gather(&toy, layer, begin, &mine[layer]);
	it_say(worker.to, &rows[1].seq, sizeof(rows[1].seq));
	it_hear(worker.from, theirs, sizeof(theirs));
	it_require(memcmp(mine, theirs, sizeof(mine)) == 0, "B's bits are not A's");
	it_hear(worker.from, &done, 1);
	toy_ok(&toy, paged_seq_erase(toy.client, 1, &rows[1].seq));
	it_say(worker.to, "x", 1);
	it_join(&worker);
	toy_check(&toy);
	toy_close(&toy);
	it_daemon_stop(&daemon);
}

IT_TEST(truncated_entries_are_stale_for_a_reader)
{
	struct it_daemon daemon;
	struct toy writer, other;
	paged_seq_id seq;

	it_daemon_start(&daemon, toy_configuration, NULL, NULL);
	toy_open(&writer, NULL, 0);
	toy_open(&other, NULL, 0);
	seq = toy_sequence(&writer, 32);
	toy_write(&writer, seq, 0, 32, SEED);
	toy_ok(&other, toy_plan(&other, seq, 31, 32, PAGED_ROW_NO_APPEND));
	toy_ok(&writer, seqs_truncate(writer.client, 1, &seq, (uint32_t[]){ 16 }));
	toy_expect(&other, paged_batch_validate(other.batch), PAGED_ERR_STALE);
	toy_expect(&other, toy_plan(&other, seq, 31, 32, PAGED_ROW_NO_APPEND), PAGED_ERR_CAPACITY);
	toy_close(&other);
	toy_close(&writer);
	it_daemon_stop(&daemon);
}

/* An engine: a scheduler and two ranks that joined its session, a layer each. */

#define RANKS TOY_LAYERS

/* How one that survives shall find the session. */
struct outcome {
	bool ended;
};

static void
rank(int from, int to, void *argument)
{
	uint32_t layer = *(uint32_t *)argument;
	struct paged_client_params params = { .struct_size = sizeof(params), .name = "rank" };
	float out[TOY_OUT];
	struct outcome outcome;
	char token[33];
	paged_seq_id seq;
	struct toy toy;

	it_hear(from, token, sizeof(token));
	params.join_token = token;
	toy_open(&toy, &params, 0);
	it_hear(from, &seq, sizeof(seq));
	/* Prefill, then steps of one token, as the scheduler does. */
	toy_ok(&toy, toy_plan(&toy, seq, 0, 16, 0));
	toy_ok(&toy, toy_append(&toy, layer, 0, 16, SEED));
	for (uint32_t token_index = 16; token_index < LENGTH; token_index++) {
		toy_ok(&toy, toy_plan(&toy, seq, token_index, token_index + 1, 0));
		toy_ok(&toy, toy_append(&toy, layer, token_index, token_index + 1, SEED));
	}
	toy_attend(&toy, layer, 1, out);
	it_say(to, out, sizeof(out));

	/* Until somebody was killed. */
	it_hear(from, &outcome, sizeof(outcome));
	if (outcome.ended) {
		uint32_t tokens = 64;

		/* The first call after the end, whichever it is, says so: the sequence is not just stale. */
		if (layer == 0)
			toy_expect(&toy, paged_batch_validate(toy.batch), PAGED_ERR_GONE);
		else
			toy_expect(&toy, paged_seq_read(toy.pool, seq, NULL, NULL, 0), PAGED_ERR_GONE);
		toy_expect(&toy, paged_client_ping(toy.client), PAGED_ERR_GONE);
		toy_expect(&toy, paged_client_dispatch(toy.client), PAGED_ERR_GONE);
		toy_expect(&toy, seqs_reserve(toy.client, 1, &seq, &tokens), PAGED_ERR_GONE);
		toy_expect(&toy, toy_plan(&toy, seq, LENGTH - 1, LENGTH, 0), PAGED_ERR_GONE);
	} else {
		toy_ok(&toy, paged_client_dispatch(toy.client));
		toy_ok(&toy, toy_plan(&toy, seq, LENGTH, LENGTH + 1, 0));
		toy_ok(&toy, toy_append(&toy, layer, LENGTH, LENGTH + 1, SEED));
	}
	it_say(to, &outcome, sizeof(outcome));
	it_hear(from, &outcome, sizeof(outcome)); /* may go */
	toy_close(&toy);
}

/* Starts as scheduler: gives out the token and the sequence, then waits to be killed or told to go. */
static void
scheduler(int from, int to, void *argument)
{
	struct paged_client_params params = { .struct_size = sizeof(params), .outlive = *(uint32_t *)argument };
	struct outcome outcome;
	paged_seq_id seq;
	struct toy toy;

	toy_open(&toy, &params, 0);
	it_say(to, paged_client_join_token(toy.client), 33);
	seq = toy_sequence(&toy, 2 * LENGTH);
	it_say(to, &seq, sizeof(seq));
	it_hear(from, &outcome, sizeof(outcome));
	toy_ok(&toy, paged_client_dispatch(toy.client));
	toy_ok(&toy, seqs_reserve(toy.client, 1, &seq, (uint32_t[]){ 3 * LENGTH }));
	it_say(to, &outcome, sizeof(outcome));
	it_hear(from, &outcome, sizeof(outcome));
	toy_close(&toy);
}

struct engine {
	struct it_worker scheduler, rank[RANKS];
	paged_seq_id seq;
};

static void
engine_start(struct engine *engine, uint32_t outlive)
{
	char token[33];

	it_fork(&engine->scheduler, scheduler, &outlive);
	it_hear(engine->scheduler.from, token, sizeof(token));
	it_hear(engine->scheduler.from, &engine->seq, sizeof(engine->seq));
	for (uint32_t i = 0; i < RANKS; i++) {
		it_fork(&engine->rank[i], rank, &i);
		it_say(engine->rank[i].to, token, sizeof(token));
		it_say(engine->rank[i].to, &engine->seq, sizeof(engine->seq));
	}
}

/* Each rank's layer as one process alone would have it. */
static void
engine_compare(struct engine *engine)
{
	float alone[TOY_LAYERS * TOY_OUT], out[TOY_OUT];
	struct toy toy;
	paged_seq_id seq;

	toy_open(&toy, NULL, 0);
	seq = toy_sequence(&toy, LENGTH);
	toy_write(&toy, seq, 0, LENGTH, SEED);
	toy_read(&toy, seq, LENGTH, alone);
	toy_close(&toy);
	for (uint32_t i = 0; i < RANKS; i++) {
		it_hear(engine->rank[i].from, out, sizeof(out));
		it_require(memcmp(out, alone + i * TOY_OUT, sizeof(out)) == 0, "rank %u's layer differs", i);
	}
}

static void
ask_survivor(struct it_worker *worker, bool ended)
{
	struct outcome outcome = { ended };

	it_say(worker->to, &outcome, sizeof(outcome));
	it_hear(worker->from, &outcome, sizeof(outcome));
}

static void
release(struct it_worker *worker)
{
	struct outcome outcome = { false };

	it_say(worker->to, &outcome, sizeof(outcome));
	it_join(worker);
}

static bool
is_quarantined(void *argument)
{
	struct paged_pool_entry pool = toy_pool(argument, "toy");

	return pool.n_quarantined == 2 * LENGTH / TOY_PAGE_SIZE && pool.n_referenced == 0;
}

IT_TEST(engine_first_member_killed)
{
	struct it_daemon daemon;
	struct engine engine;
	struct toy observer;

	it_daemon_start(&daemon, toy_configuration, NULL, NULL);
	engine_start(&engine, 0);
	engine_compare(&engine);
	toy_observe(&observer);
	it_kill(&engine.scheduler);
	/* The ranks might still write the pages. */
	it_require(it_wait(is_quarantined, &observer, 2000), "%u quarantined, %u referenced",
		   toy_pool(&observer, "toy").n_quarantined, toy_pool(&observer, "toy").n_referenced);
	for (uint32_t i = 0; i < RANKS; i++)
		ask_survivor(&engine.rank[i], true);
	toy_check(&observer);
	release(&engine.rank[0]);
	it_require(is_quarantined(&observer), "one rank is left");
	it_kill(&engine.rank[1]);
	toy_wait_free(&observer, "toy", 2000);
	toy_check(&observer);
	toy_close(&observer);
	it_daemon_stop(&daemon);
}

/* The same, but the scheduler asked that the session outlive it: the ranks go on, and the last one ends it. */
IT_TEST(session_outlives_its_first_member)
{
	struct paged_seq_info info = { .struct_size = sizeof(info) };
	struct it_daemon daemon;
	struct engine engine;
	struct toy observer;

	it_daemon_start(&daemon, toy_configuration, NULL, NULL);
	engine_start(&engine, 1);
	engine_compare(&engine);
	toy_observe(&observer);
	it_kill(&engine.scheduler);
	for (uint32_t i = 0; i < RANKS; i++)
		ask_survivor(&engine.rank[i], false);
	toy_ok(&observer, paged_seq_read(observer.pool, engine.seq, &info, NULL, 0));
	it_require(info.capacity >= 2 * LENGTH && toy_pool(&observer, "toy").n_quarantined == 0, "%u", info.capacity);
	release(&engine.rank[0]);
	toy_ok(&observer, paged_seq_read(observer.pool, engine.seq, &info, NULL, 0));
	it_kill(&engine.rank[1]);
	toy_wait_free(&observer, "toy", 2000);
	toy_expect(&observer, paged_seq_read(observer.pool, engine.seq, &info, NULL, 0), PAGED_ERR_STALE);
	toy_check(&observer);
	toy_close(&observer);
	it_daemon_stop(&daemon);
}

static void
joined_member_killed(uint32_t victim)
{
	struct paged_seq_info info = { .struct_size = sizeof(info) };
	struct it_daemon daemon;
	struct engine engine;
	struct toy observer;

	it_daemon_start(&daemon, toy_configuration, NULL, NULL);
	engine_start(&engine, 0);
	engine_compare(&engine);
	toy_observe(&observer);
	it_kill(&engine.rank[victim]);
	ask_survivor(&engine.scheduler, false);
	ask_survivor(&engine.rank[1 - victim], false);
	toy_ok(&observer, paged_seq_read(observer.pool, engine.seq, &info, NULL, 0));
	it_require(info.capacity == 92, "%u", info.capacity);
	it_require(toy_pool(&observer, "toy").n_quarantined == 0);
	toy_check(&observer);
	release(&engine.rank[1 - victim]);
	release(&engine.scheduler);
	toy_wait_free(&observer, "toy", 2000);
	toy_close(&observer);
	it_daemon_stop(&daemon);
}

IT_TEST(engine_second_member_killed)
{
	joined_member_killed(0);
}

IT_TEST(engine_third_member_killed)
{
	joined_member_killed(1);
}

/* A process that does nothing but live with a sequence of five pages. */
static void
sitter(int from, int to, void *argument)
{
	paged_seq_id seq;
	struct toy toy;
	bool go;

	(void)argument;
	toy_open(&toy, NULL, 0);
	seq = toy_sequence(&toy, 20);
	it_say(to, &seq, sizeof(seq));
	it_hear(from, &go, sizeof(go));
	toy_expect(&toy, paged_client_dispatch(toy.client), PAGED_ERR_GONE);
	toy_expect(&toy, paged_seq_erase(toy.client, 1, &seq), PAGED_ERR_GONE);
	it_say(to, &go, sizeof(go));
	it_hear(from, &go, sizeof(go));
	toy_close(&toy);
}

static uint32_t
session_of(struct toy *observer, paged_seq_id seq)
{
	struct paged_seq_info info = { .struct_size = sizeof(info) };

	toy_ok(observer, paged_seq_read(observer->pool, seq, &info, NULL, 0));
	return info.owner;
}

static bool
all_in_quarantine(void *argument)
{
	return toy_pool(argument, "toy").n_quarantined == 5;
}

IT_TEST(kick_leaves_pages_in_quarantine_while_the_process_lives)
{
	struct it_daemon daemon;
	struct it_worker worker;
	struct toy observer;
	paged_seq_id seq;
	bool go = true;

	it_daemon_start(&daemon, toy_configuration, NULL, NULL);
	toy_observe(&observer);
	it_fork(&worker, sitter, NULL);
	it_hear(worker.from, &seq, sizeof(seq));
	toy_ok(&observer, paged_admin_kick(observer.client, session_of(&observer, seq), 0));
	it_say(worker.to, &go, sizeof(go));
	it_hear(worker.from, &go, sizeof(go));
	/* The session is told first, and its rows are taken apart in steps. */
	it_require(it_wait(all_in_quarantine, &observer, 2000), "%u pages", toy_pool(&observer, "toy").n_quarantined);
	it_require(toy_pool(&observer, "toy").n_sequences == 0);
	toy_expect(&observer, paged_seq_read(observer.pool, seq, NULL, NULL, 0), PAGED_ERR_STALE);
	toy_check(&observer);
	it_say(worker.to, &go, sizeof(go));
	it_join(&worker);
	toy_wait_free(&observer, "toy", 2000);
	toy_close(&observer);
	it_daemon_stop(&daemon);
}

IT_TEST(kick_with_kill)
{
	struct it_daemon daemon;
	struct it_worker worker;
	struct toy observer;
	uint32_t session;
	paged_seq_id seq;

	it_daemon_start(&daemon, toy_configuration, NULL, NULL);
	toy_observe(&observer);
	it_fork(&worker, sitter, NULL);
	it_hear(worker.from, &seq, sizeof(seq));
	session = session_of(&observer, seq);
	toy_ok(&observer, paged_admin_kick(observer.client, session, 1));
	it_require(it_wait_signal(&worker) == SIGKILL);
	toy_wait_free(&observer, "toy", 2000);
	toy_check(&observer);
	toy_expect(&observer, paged_admin_kick(observer.client, session, 0), PAGED_ERR_NOENT);
	toy_close(&observer);
	it_daemon_stop(&daemon);
}

IT_MAIN
