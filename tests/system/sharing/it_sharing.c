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

/* Messages between the test and the reader, one per step. */
enum word { ATTEND = 1, VALIDATE, END };

static void
reader(int from, int to, void *argument)
{
	float out[WORKER_LAYERS * WORKER_OUT];
	enum paged_status status;
	enum word word;
	paged_seq_id seq;
	struct worker_fixture worker;

	(void)argument;
	worker_open(&worker, NULL, 0);
	it_receive(from, &seq, sizeof(seq));
	for (;;) {
		it_receive(from, &word, sizeof(word));
		switch (word) {
		case ATTEND:
			worker_read(&worker, seq, LENGTH, out);
			worker_ok(&worker, paged_batch_validate(worker.batch));
			it_send(to, out, sizeof(out));
			break;
		case VALIDATE:
			status = paged_batch_validate(worker.batch);
			it_send(to, &status, sizeof(status));
			break;
		case END:
			worker_expect(&worker, worker_plan(&worker, seq, LENGTH - 1, LENGTH, PAGED_ROW_NO_APPEND),
				      PAGED_ERR_STALE);
			worker_close(&worker);
			return;
		}
	}
}

static void
send_word(struct it_worker *child, enum word word)
{
	it_send(child->to, &word, sizeof(word));
}

static void
receive_result(struct it_worker *child, float *out)
{
	send_word(child, ATTEND);
	it_receive(child->from, out, sizeof(float) * WORKER_LAYERS * WORKER_OUT);
}

static enum paged_status
receive_status(struct it_worker *child)
{
	enum paged_status status;

	send_word(child, VALIDATE);
	it_receive(child->from, &status, sizeof(status));
	return status;
}

/* The address of the first element of V of a token in layer 0, head 0. */
static uint8_t *
element(const struct worker_fixture *worker, paged_seq_id seq, uint32_t token)
{
	struct paged_seq_info info = { .struct_size = sizeof(info) };
	uint32_t pages[WORKER_MAX_LENGTH / WORKER_PAGE_SIZE];
	const struct paged_plane_info *v = &worker->info.v;

	worker_ok(worker, paged_seq_read(worker->pool, seq, &info, pages, WORKER_MAX_LENGTH / WORKER_PAGE_SIZE));
	it_require(token < info.capacity);
	return (uint8_t *)worker->info.base + v->offset + pages[token / WORKER_PAGE_SIZE] * v->page_stride +
	       token % WORKER_PAGE_SIZE * v->token_stride;
}

IT_TEST(reader_sees_the_writers_bits)
{
	float mine[WORKER_LAYERS * WORKER_OUT], theirs[WORKER_LAYERS * WORKER_OUT];
	struct it_daemon daemon;
	struct it_worker child;
	paged_seq_id gap, seq;
	uint8_t *byte;
	struct worker_fixture worker;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	it_fork(&child, reader, NULL);
	worker_open(&worker, NULL, 0);
	/* Another sequence grows in between, so that the pages are not consecutive. */
	gap = worker_create_seq(&worker, 4);
	seq = worker_create_seq(&worker, 12);
	worker_ok(&worker, seqs_reserve(worker.client, 1, &gap, (uint32_t[]){ 16 }));
	worker_ok(&worker, seqs_reserve(worker.client, 1, &seq, (uint32_t[]){ LENGTH }));
	worker_write(&worker, seq, 0, LENGTH, SEED);
	worker_read(&worker, seq, LENGTH, mine);
	it_send(child.to, &seq, sizeof(seq));

	receive_result(&child, theirs);
	it_require(memcmp(mine, theirs, sizeof(mine)) == 0, "B's bits are not A's");

	byte = element(&worker, seq, 17);
	byte[3] ^= 0x40; /* of a little-endian float: the exponent */
	receive_result(&child, theirs);
	it_require(memcmp(mine, theirs, sizeof(mine)) != 0, "B does not see A's page");
	byte[3] ^= 0x40;
	receive_result(&child, theirs);
	it_require(memcmp(mine, theirs, sizeof(mine)) == 0);

	/* Readers are not affected when the sequence grows, but when it is erased. */
	worker_ok(&worker, seqs_reserve(worker.client, 1, &seq, (uint32_t[]){ 64 }));
	it_require(receive_status(&child) == PAGED_OK);
	worker_ok(&worker, paged_seq_erase(worker.client, 1, &seq));
	it_require(receive_status(&child) == PAGED_ERR_STALE);
	send_word(&child, END);
	it_join(&child);
	worker_check_pool(&worker);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

#define OWN_LENGTH 9u
#define GATHER_FROM 5u
#define GATHER_TOKENS (OWN_LENGTH + LENGTH - GATHER_FROM)

/* Gathered K and V of one layer: the reader's own tokens, then the writer's tokens from GATHER_FROM on. */
struct gathered {
	float k[GATHER_TOKENS][WORKER_KV_HEADS][WORKER_DIM], v[GATHER_TOKENS][WORKER_KV_HEADS][WORKER_DIM];
};

static void
worker_gather(struct worker_fixture *worker, uint32_t layer, const uint32_t *begin, struct gathered *to)
{
	struct paged_gather_params params = { .struct_size = sizeof(params), .begin = begin };
	struct paged_tensor k = { .data = to->k, .dtype = PAGED_F32, .n_heads = WORKER_KV_HEADS, .dim = WORKER_DIM };
	struct paged_tensor v = { .data = to->v, .dtype = PAGED_F32, .n_heads = WORKER_KV_HEADS, .dim = WORKER_DIM };

	worker_ok(worker, paged_gather(worker->batch, layer, &k, &v, &params));
}

static void
gather_reader(int from, int to, void *argument)
{
	const uint32_t begin[] = { 0, GATHER_FROM };
	struct paged_batch_row rows[2] = { { .kv_len = OWN_LENGTH }, { .kv_len = LENGTH } };
	struct gathered gathered;
	paged_seq_id seq;
	struct worker_fixture worker;

	(void)argument;
	worker_open(&worker, NULL, 0);
	it_receive(from, &seq, sizeof(seq));
	rows[0].seq = worker_create_seq(&worker, OWN_LENGTH);
	rows[1].seq = seq;
	worker_write(&worker, rows[0].seq, 0, OWN_LENGTH, SEED + 1);
	worker_ok(&worker, paged_batch_plan(worker.batch, 2, rows));
	for (uint32_t layer = 0; layer < WORKER_LAYERS; layer++) {
		worker_gather(&worker, layer, begin, &gathered);
		it_send(to, &gathered, sizeof(gathered));
	}
	worker_ok(&worker, paged_batch_validate(worker.batch));
	it_send(to, "x", 1);
	it_receive(from, &seq, 1);
	worker_gather(&worker, 0, begin, &gathered);
	worker_expect(&worker, paged_batch_validate(worker.batch), PAGED_ERR_STALE);
	worker_close(&worker);
}

/* Gather own and another session's tokens; after the writer erases them, validate reports the result as stale. */
IT_TEST(gather_from_another_session)
{
	const uint32_t begin[] = { 0, GATHER_FROM };
	struct paged_batch_row rows[2] = { { .kv_len = OWN_LENGTH }, { .kv_len = LENGTH } };
	struct gathered mine[WORKER_LAYERS], theirs[WORKER_LAYERS];
	struct it_daemon daemon;
	struct it_worker child;
	struct worker_fixture worker;
	char done;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	it_fork(&child, gather_reader, NULL);
	worker_open(&worker, NULL, 0);
	rows[0].seq = worker_create_seq(&worker, OWN_LENGTH);
	rows[1].seq = worker_create_seq(&worker, LENGTH);
	worker_write(&worker, rows[0].seq, 0, OWN_LENGTH, SEED + 1);
	worker_write(&worker, rows[1].seq, 0, LENGTH, SEED);
	worker_ok(&worker, paged_batch_plan(worker.batch, 2, rows));
	for (uint32_t layer = 0; layer < WORKER_LAYERS; layer++)
		worker_gather(&worker, layer, begin, &mine[layer]);
	it_send(child.to, &rows[1].seq, sizeof(rows[1].seq));
	it_receive(child.from, theirs, sizeof(theirs));
	it_require(memcmp(mine, theirs, sizeof(mine)) == 0, "B's bits are not A's");
	it_receive(child.from, &done, 1);
	worker_ok(&worker, paged_seq_erase(worker.client, 1, &rows[1].seq));
	it_send(child.to, "x", 1);
	it_join(&child);
	worker_check_pool(&worker);
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

IT_TEST(truncated_sequence_is_stale_for_a_reader)
{
	struct it_daemon daemon;
	struct worker_fixture writer, other;
	paged_seq_id seq;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	worker_open(&writer, NULL, 0);
	worker_open(&other, NULL, 0);
	seq = worker_create_seq(&writer, 32);
	worker_write(&writer, seq, 0, 32, SEED);
	worker_ok(&other, worker_plan(&other, seq, 31, 32, PAGED_ROW_NO_APPEND));
	worker_ok(&writer, seqs_truncate(writer.client, 1, &seq, (uint32_t[]){ 16 }));
	worker_expect(&other, paged_batch_validate(other.batch), PAGED_ERR_STALE);
	worker_expect(&other, worker_plan(&other, seq, 31, 32, PAGED_ROW_NO_APPEND), PAGED_ERR_CAPACITY);
	worker_close(&other);
	worker_close(&writer);
	it_daemon_stop(&daemon);
}

/* An engine: a scheduler and two ranks that joined its session, a layer each. */

#define RANKS WORKER_LAYERS

/* The state in which a surviving rank must find the session. */
struct expectation {
	bool ended;
};

static void
rank(int from, int to, void *argument)
{
	uint32_t layer = *(uint32_t *)argument;
	struct paged_client_params params = { .struct_size = sizeof(params), .name = "rank" };
	float out[WORKER_OUT];
	struct expectation expectation;
	char token[33];
	paged_seq_id seq;
	struct worker_fixture worker;

	it_receive(from, token, sizeof(token));
	params.join_token = token;
	worker_open(&worker, &params, 0);
	it_receive(from, &seq, sizeof(seq));
	/* Prefill, then steps of one token, as the scheduler does. */
	worker_ok(&worker, worker_plan(&worker, seq, 0, 16, 0));
	worker_ok(&worker, worker_append(&worker, layer, 0, 16, SEED));
	for (uint32_t token_index = 16; token_index < LENGTH; token_index++) {
		worker_ok(&worker, worker_plan(&worker, seq, token_index, token_index + 1, 0));
		worker_ok(&worker, worker_append(&worker, layer, token_index, token_index + 1, SEED));
	}
	worker_attend(&worker, layer, 1, out);
	it_send(to, out, sizeof(out));

	/* Wait until a member has been killed. */
	it_receive(from, &expectation, sizeof(expectation));
	if (expectation.ended) {
		uint32_t tokens = 64;

		/* Any first call after the session's end returns GONE, not STALE. */
		if (layer == 0)
			worker_expect(&worker, paged_batch_validate(worker.batch), PAGED_ERR_GONE);
		else
			worker_expect(&worker, paged_seq_read(worker.pool, seq, NULL, NULL, 0), PAGED_ERR_GONE);
		worker_expect(&worker, paged_client_ping(worker.client), PAGED_ERR_GONE);
		worker_expect(&worker, paged_client_dispatch(worker.client), PAGED_ERR_GONE);
		worker_expect(&worker, seqs_reserve(worker.client, 1, &seq, &tokens), PAGED_ERR_GONE);
		worker_expect(&worker, worker_plan(&worker, seq, LENGTH - 1, LENGTH, 0), PAGED_ERR_GONE);
	} else {
		worker_ok(&worker, paged_client_dispatch(worker.client));
		worker_ok(&worker, worker_plan(&worker, seq, LENGTH, LENGTH + 1, 0));
		worker_ok(&worker, worker_append(&worker, layer, LENGTH, LENGTH + 1, SEED));
	}
	it_send(to, &expectation, sizeof(expectation));
	it_receive(from, &expectation, sizeof(expectation)); /* wait for permission to exit */
	worker_close(&worker);
}

/* The scheduler: sends the token and the sequence, then waits to be killed or to exit. */
static void
scheduler(int from, int to, void *argument)
{
	struct paged_client_params params = { .struct_size = sizeof(params), .outlive = *(uint32_t *)argument };
	struct expectation expectation;
	paged_seq_id seq;
	struct worker_fixture worker;

	worker_open(&worker, &params, 0);
	it_send(to, paged_client_join_token(worker.client), 33);
	seq = worker_create_seq(&worker, 2 * LENGTH);
	it_send(to, &seq, sizeof(seq));
	it_receive(from, &expectation, sizeof(expectation));
	worker_ok(&worker, paged_client_dispatch(worker.client));
	worker_ok(&worker, seqs_reserve(worker.client, 1, &seq, (uint32_t[]){ 3 * LENGTH }));
	it_send(to, &expectation, sizeof(expectation));
	it_receive(from, &expectation, sizeof(expectation));
	worker_close(&worker);
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
	it_receive(engine->scheduler.from, token, sizeof(token));
	it_receive(engine->scheduler.from, &engine->seq, sizeof(engine->seq));
	for (uint32_t i = 0; i < RANKS; i++) {
		it_fork(&engine->rank[i], rank, &i);
		it_send(engine->rank[i].to, token, sizeof(token));
		it_send(engine->rank[i].to, &engine->seq, sizeof(engine->seq));
	}
}

/* Compare each rank's layer with the result of a single process. */
static void
engine_expect_results(struct engine *engine)
{
	float alone[WORKER_LAYERS * WORKER_OUT], out[WORKER_OUT];
	struct worker_fixture worker;
	paged_seq_id seq;

	worker_open(&worker, NULL, 0);
	seq = worker_create_seq(&worker, LENGTH);
	worker_write(&worker, seq, 0, LENGTH, SEED);
	worker_read(&worker, seq, LENGTH, alone);
	worker_close(&worker);
	for (uint32_t i = 0; i < RANKS; i++) {
		it_receive(engine->rank[i].from, out, sizeof(out));
		it_require(memcmp(out, alone + i * WORKER_OUT, sizeof(out)) == 0, "rank %u's layer differs", i);
	}
}

static void
expect_survivor_status(struct it_worker *child, bool ended)
{
	struct expectation expectation = { ended };

	it_send(child->to, &expectation, sizeof(expectation));
	it_receive(child->from, &expectation, sizeof(expectation));
}

static void
survivor_finish(struct it_worker *child)
{
	struct expectation expectation = { false };

	it_send(child->to, &expectation, sizeof(expectation));
	it_join(child);
}

static bool
has_quarantined_pages(void *argument)
{
	struct paged_pool_entry pool = worker_pool_entry(argument, "test");

	return pool.n_quarantined == 2 * LENGTH / WORKER_PAGE_SIZE && pool.n_referenced == 0;
}

IT_TEST(session_ends_when_its_first_member_is_killed)
{
	struct it_daemon daemon;
	struct engine engine;
	struct worker_fixture observer;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	engine_start(&engine, 0);
	engine_expect_results(&engine);
	worker_observe(&observer);
	it_kill(&engine.scheduler);
	/* The ranks might still write the pages. */
	it_require(it_wait(has_quarantined_pages, &observer), "%u quarantined, %u referenced",
		   worker_pool_entry(&observer, "test").n_quarantined,
		   worker_pool_entry(&observer, "test").n_referenced);
	for (uint32_t i = 0; i < RANKS; i++)
		expect_survivor_status(&engine.rank[i], true);
	worker_check_pool(&observer);
	survivor_finish(&engine.rank[0]);
	it_require(has_quarantined_pages(&observer), "one rank is left");
	it_kill(&engine.rank[1]);
	worker_wait_free(&observer, "test");
	worker_check_pool(&observer);
	worker_close(&observer);
	it_daemon_stop(&daemon);
}

/* The scheduler set `outlive`: the ranks continue after its death, and the session ends with the last one. */
IT_TEST(outlive_keeps_the_session)
{
	struct paged_seq_info info = { .struct_size = sizeof(info) };
	struct it_daemon daemon;
	struct engine engine;
	struct worker_fixture observer;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	engine_start(&engine, 1);
	engine_expect_results(&engine);
	worker_observe(&observer);
	it_kill(&engine.scheduler);
	for (uint32_t i = 0; i < RANKS; i++)
		expect_survivor_status(&engine.rank[i], false);
	worker_ok(&observer, paged_seq_read(observer.pool, engine.seq, &info, NULL, 0));
	it_require(info.capacity >= 2 * LENGTH && worker_pool_entry(&observer, "test").n_quarantined == 0, "%u",
		   info.capacity);
	survivor_finish(&engine.rank[0]);
	worker_ok(&observer, paged_seq_read(observer.pool, engine.seq, &info, NULL, 0));
	it_kill(&engine.rank[1]);
	worker_wait_free(&observer, "test");
	worker_expect(&observer, paged_seq_read(observer.pool, engine.seq, &info, NULL, 0), PAGED_ERR_STALE);
	worker_check_pool(&observer);
	worker_close(&observer);
	it_daemon_stop(&daemon);
}

static void
kill_joined_member(uint32_t killed)
{
	struct paged_seq_info info = { .struct_size = sizeof(info) };
	struct it_daemon daemon;
	struct engine engine;
	struct worker_fixture observer;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	engine_start(&engine, 0);
	engine_expect_results(&engine);
	worker_observe(&observer);
	it_kill(&engine.rank[killed]);
	expect_survivor_status(&engine.scheduler, false);
	expect_survivor_status(&engine.rank[1 - killed], false);
	worker_ok(&observer, paged_seq_read(observer.pool, engine.seq, &info, NULL, 0));
	it_require(info.capacity == 92, "%u", info.capacity);
	it_require(worker_pool_entry(&observer, "test").n_quarantined == 0);
	worker_check_pool(&observer);
	survivor_finish(&engine.rank[1 - killed]);
	survivor_finish(&engine.scheduler);
	worker_wait_free(&observer, "test");
	worker_close(&observer);
	it_daemon_stop(&daemon);
}

IT_TEST(session_continues_when_second_member_is_killed)
{
	kill_joined_member(0);
}

IT_TEST(session_continues_when_third_member_is_killed)
{
	kill_joined_member(1);
}

/* Hold a sequence of five pages until killed. */
static void
hold_five_pages(int from, int to, void *argument)
{
	paged_seq_id seq;
	struct worker_fixture worker;
	bool go;

	(void)argument;
	worker_open(&worker, NULL, 0);
	seq = worker_create_seq(&worker, 20);
	it_send(to, &seq, sizeof(seq));
	it_receive(from, &go, sizeof(go));
	worker_expect(&worker, paged_client_dispatch(worker.client), PAGED_ERR_GONE);
	worker_expect(&worker, paged_seq_erase(worker.client, 1, &seq), PAGED_ERR_GONE);
	it_send(to, &go, sizeof(go));
	it_receive(from, &go, sizeof(go));
	worker_close(&worker);
}

static uint32_t
session_of(struct worker_fixture *observer, paged_seq_id seq)
{
	struct paged_seq_info info = { .struct_size = sizeof(info) };

	worker_ok(observer, paged_seq_read(observer->pool, seq, &info, NULL, 0));
	return info.owner;
}

static bool
all_pages_quarantined(void *argument)
{
	return worker_pool_entry(argument, "test").n_quarantined == 5;
}

IT_TEST(kick_quarantines_pages_while_the_process_lives)
{
	struct it_daemon daemon;
	struct it_worker child;
	struct worker_fixture observer;
	paged_seq_id seq;
	bool go = true;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	worker_observe(&observer);
	it_fork(&child, hold_five_pages, NULL);
	it_receive(child.from, &seq, sizeof(seq));
	worker_ok(&observer, paged_admin_kick(observer.client, session_of(&observer, seq), 0));
	it_send(child.to, &go, sizeof(go));
	it_receive(child.from, &go, sizeof(go));
	/* The session gets the notice first; its page tables are freed in steps. */
	it_require(it_wait(all_pages_quarantined, &observer), "%u pages",
		   worker_pool_entry(&observer, "test").n_quarantined);
	it_require(worker_pool_entry(&observer, "test").n_sequences == 0);
	worker_expect(&observer, paged_seq_read(observer.pool, seq, NULL, NULL, 0), PAGED_ERR_STALE);
	worker_check_pool(&observer);
	it_send(child.to, &go, sizeof(go));
	it_join(&child);
	worker_wait_free(&observer, "test");
	worker_close(&observer);
	it_daemon_stop(&daemon);
}

IT_TEST(kick_with_kill_frees_pages)
{
	struct it_daemon daemon;
	struct it_worker child;
	struct worker_fixture observer;
	uint32_t session;
	paged_seq_id seq;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	worker_observe(&observer);
	it_fork(&child, hold_five_pages, NULL);
	it_receive(child.from, &seq, sizeof(seq));
	session = session_of(&observer, seq);
	worker_ok(&observer, paged_admin_kick(observer.client, session, 1));
	it_require(it_wait_signal(&child) == SIGKILL);
	worker_wait_free(&observer, "test");
	worker_check_pool(&observer);
	worker_expect(&observer, paged_admin_kick(observer.client, session, 0), PAGED_ERR_NOENT);
	worker_close(&observer);
	it_daemon_stop(&daemon);
}

IT_MAIN
