/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scenarios of other projects in which one process takes over another's KV cache, each on host memory and over the fake
 * CUDA driver.  A comment names the project and the test:
 *
 *   GMS      lib/gpu_memory_service/tests of Dynamo: leases of blocks in shared memory, with a primary and a shadow
 *            that takes over
 *   LMCache  tests/v1/multiprocess: clients of a server, some of them gone
 */
#include "config.h"

#include <signal.h>
#include <string.h>

#include "tests/support/sequences.h"
#include "tests/support/worker_fixture.h"
#include "tests/system/batch_fixture.h"
#include "tests/system/cuda/cuda_daemon.h"
#include "tests/fake-cuda/load.h"

#define N_ROWS 2u
/* Pages of all rows of an engine. */
#define N_PAGES (5u + 3u)

static const struct batch_fixture_params pool_params = {
	.daemon_pool = "test",
	.pool = PAGED_F32,
	.q = PAGED_F32,
	.q_heads = WORKER_HEADS,
	.kv_heads = WORKER_KV_HEADS,
	.k_dim = WORKER_DIM,
	.v_dim = WORKER_DIM,
	.page_size = WORKER_PAGE_SIZE,
	.n_rows = N_ROWS,
	.rows = { { .kv_len = 19, .q_len = 1 }, { .kv_len = 10, .q_len = 3 } },
};

/* What the test tells an engine to do; the engine answers each. */
enum word { CREATE = 1, WRITE, PUBLISH, GIVE, ADOPT, ATTEND, ERASE, END };

struct order {
	enum word word;
	uint32_t first_row; /* GIVE: of the rows that are given, up to the last */
	struct paged_ticket ticket;
};

struct answer {
	enum paged_status status;
	paged_seq_id seq[N_ROWS];
	struct paged_ticket ticket;
	char text[160];
};

struct engine {
	const char *backend;
	struct it_worker process;
};

/* Token ids of a row, as different as its content. */
static struct paged_prefix
row_prefix(uint32_t row)
{
	static uint32_t tokens[N_ROWS][WORKER_MAX_LENGTH];

	for (uint32_t i = 0; i < WORKER_MAX_LENGTH; i++)
		tokens[row][i] = row * WORKER_MAX_LENGTH + i;
	return (struct paged_prefix){ .struct_size = sizeof(struct paged_prefix),
				      .tokens = tokens[row],
				      .n_tokens = pool_params.rows[row].kv_len };
}

static enum paged_status
engine_publish(struct batch_fixture *batch)
{
	struct paged_publish publishes[N_ROWS];
	struct paged_prefix prefixes[N_ROWS];

	for (uint32_t r = 0; r < N_ROWS; r++) {
		prefixes[r] = row_prefix(r);
		publishes[r] = (struct paged_publish){ .seq = batch->seq[r], .prefix = &prefixes[r] };
	}
	batch_fixture_ok(batch, paged_batch_publish(batch->batch, N_ROWS, publishes));
	batch_fixture_ok(batch, paged_batch_finish(batch->batch));
	return paged_client_ping(batch->client);
}

static void
engine_attend(struct batch_fixture *batch)
{
	struct paged_batch_row rows[BATCH_FIXTURE_MAX_ROWS];

	batch_fixture_rows(batch, rows);
	for (uint32_t r = 0; r < N_ROWS; r++)
		rows[r].flags |= PAGED_ROW_NO_APPEND;
	batch_fixture_ok(batch, paged_batch_plan(batch->batch, N_ROWS, rows));
	batch_fixture_ok(batch, batch_fixture_attend(batch, NULL));
	batch_fixture_check(batch);
}

static void
engine_obey(struct batch_fixture *batch, const struct order *order, struct answer *answer)
{
	const struct paged_give_params params = { .struct_size = sizeof(params), .timeout_ms = 60000 };
	uint32_t lengths[N_ROWS] = { pool_params.rows[0].kv_len, pool_params.rows[1].kv_len };
	uint32_t first = order->first_row;
	size_t n = 0;

	*answer = (struct answer){ .status = PAGED_OK };
	switch (order->word) {
	case CREATE:
		answer->status = seqs_create(batch->client, batch->pool, N_ROWS, batch->seq);
		if (answer->status == PAGED_OK)
			answer->status = seqs_reserve(batch->client, N_ROWS, batch->seq, lengths);
		break;
	case WRITE:
		for (uint32_t r = 0; r < N_ROWS; r++)
			batch_fixture_write(batch, r, 0, lengths[r]);
		batch_fixture_ok(batch, paged_batch_finish(batch->batch));
		break;
	case PUBLISH:
		answer->status = engine_publish(batch);
		break;
	case GIVE:
		answer->status = paged_seq_give(batch->pool, N_ROWS - first, batch->seq + first, lengths + first,
						&params, &answer->ticket);
		break;
	case ADOPT:
		answer->status = paged_seq_adopt(batch->pool, &order->ticket, N_ROWS, batch->seq, lengths, &n);
		it_require(answer->status != PAGED_OK || lengths[0] == pool_params.rows[N_ROWS - n].kv_len);
		break;
	case ATTEND:
		engine_attend(batch);
		break;
	case ERASE:
		answer->status = paged_seq_erase(batch->client, N_ROWS, batch->seq);
		break;
	case END:
		break;
	}
	memcpy(answer->seq, batch->seq, sizeof(answer->seq));
	if (answer->status != PAGED_OK)
		snprintf(answer->text, sizeof(answer->text), "%s", paged_client_error(batch->client));
}

/* An engine that has no sequences yet; the contents of its rows are the same in every engine. */
static void
engine_run(int from, int to, void *argument)
{
	struct batch_fixture_params params = pool_params;
	struct batch_fixture batch;
	struct answer answer = { 0 };
	struct order order;

	params.backend = argument;
	it_require(fake_cuda_load(), "%s", dlerror());
	batch_fixture_open(&batch, &params);
	batch_fixture_ok(&batch, paged_seq_erase(batch.client, N_ROWS, batch.seq));
	it_send(to, &answer, sizeof(answer));
	do {
		it_receive(from, &order, sizeof(order));
		engine_obey(&batch, &order, &answer);
		it_send(to, &answer, sizeof(answer));
	} while (order.word != END);
	batch_fixture_close(&batch);
}

/* A daemon, the two engines, and an observer. */
static struct {
	struct it_daemon daemon;
	struct it_worker primary, shadow;
	struct worker_fixture observer;
	struct order order;
	struct answer answer;
} fixture;

static void
engine_start(struct it_worker *engine, const char *backend)
{
	it_fork(engine, engine_run, (void *)(uintptr_t)backend);
	it_receive(engine->from, &fixture.answer, sizeof(fixture.answer));
}

/* A pool whose pages are of another size. */
#define WIDE_POOL                                                              \
	"pool wide {\n" POOL_SHAPE(WORKER_LAYERS, WORKER_KV_HEADS, WORKER_DIM, \
				   f32) "\n" POOL_SIZES(8, WORKER_PAGES, WORKER_SLOTS, WORKER_MAX_LENGTH) "\n}\n"

static void
daemon_setup(const char *backend)
{
	struct paged_client_params params = worker_params("observer");

	cuda_daemon_environment();
	if (strcmp(backend, "cuda") == 0)
		cuda_daemon_start(&fixture.daemon, EXPORT_SETTING_AUTO, "free-pages = 0", WIDE_POOL);
	else
		it_daemon_start(&fixture.daemon,
				"pool test {\n" WORKER_POOL_SETTINGS "\n free-pages = 0\n}\n" WIDE_POOL, NULL, NULL);
	/* Without the pool: this process does not use CUDA, so that its children can. */
	params.observer = 1;
	worker_attach(&fixture.observer, &params);
}

static void
engines_start(const char *backend)
{
	fixture.order = (struct order){ 0 };
	engine_start(&fixture.primary, backend);
	engine_start(&fixture.shadow, backend);
}

static void
setup(const char *backend)
{
	daemon_setup(backend);
	engines_start(backend);
}

static enum paged_status
ask(struct it_worker *engine, enum word word)
{
	fixture.order.word = word;
	it_send(engine->to, &fixture.order, sizeof(fixture.order));
	it_receive(engine->from, &fixture.answer, sizeof(fixture.answer));
	if (word == GIVE)
		fixture.order.ticket = fixture.answer.ticket;
	return fixture.answer.status;
}

#define ask_ok(engine, word)                                                                                        \
	do {                                                                                                        \
		enum paged_status ask_status_ = ask(engine, word);                                                  \
		it_require(ask_status_ == PAGED_OK, "%s: %s", paged_status_name(ask_status_), fixture.answer.text); \
	} while (0)

static void
end(struct it_worker *engine)
{
	ask_ok(engine, END);
	it_join(engine);
}

static struct paged_pool_entry
pool_entry(void)
{
	return worker_pool_entry(&fixture.observer, "test");
}

static void
check_pool(void)
{
	struct paged_check_result result = { .struct_size = sizeof(result) };

	worker_ok(&fixture.observer, paged_admin_check(fixture.observer.client, "test", &result));
	it_require(result.holds, "%s", result.text);
}

static bool
pages_are_free(void *argument)
{
	return pool_entry().n_free == *(const uint32_t *)argument;
}

static bool
pages_are_unused(void *argument)
{
	struct paged_pool_entry entry = pool_entry();

	(void)argument;
	return entry.n_free + entry.n_cached == WORKER_PAGES;
}

static void
expect_free(uint32_t n)
{
	it_require(it_wait(pages_are_free, &n), "%u of %u pages are free", pool_entry().n_free, n);
	check_pool();
}

static void
teardown(void)
{
	worker_close(&fixture.observer);
	it_daemon_stop(&fixture.daemon);
}

#define ON_BOTH_BACK_ENDS(name)                     \
	static void name##_on(const char *backend); \
	IT_TEST(name)                               \
	{                                           \
		name##_on("host");                  \
		name##_on("cuda");                  \
	}                                           \
	static void name##_on(const char *backend)

/* GMS: test_shared_memory_lease_adopt_transfers_without_free_window.  At no moment is a page free that is handed over.
 */
ON_BOTH_BACK_ENDS(gms_adopt_transfers_without_free_window)
{
	paged_seq_id old[N_ROWS];

	setup(backend);
	ask_ok(&fixture.primary, CREATE);
	ask_ok(&fixture.primary, WRITE);
	memcpy(old, fixture.answer.seq, sizeof(old));
	it_require(pool_entry().n_free == WORKER_PAGES - N_PAGES);
	ask_ok(&fixture.primary, GIVE);
	it_require(pool_entry().n_free == WORKER_PAGES - N_PAGES);
	ask_ok(&fixture.shadow, ADOPT);
	it_require(memcmp(fixture.answer.seq, old, sizeof(old)) == 0);
	it_require(pool_entry().n_free == WORKER_PAGES - N_PAGES);
	/* The old owner's release changes nothing. */
	it_require(ask(&fixture.primary, ERASE) == PAGED_ERR_PERM, "%s", fixture.answer.text);
	it_require(pool_entry().n_free == WORKER_PAGES - N_PAGES);
	ask_ok(&fixture.shadow, ATTEND);
	ask_ok(&fixture.shadow, ERASE);
	it_require(pool_entry().n_free == WORKER_PAGES);
	end(&fixture.primary);
	end(&fixture.shadow);
	teardown();
}

/*
 * GMS: test_post_fence_reclaim_recovers_process_death_at_every_transition_step.  There the steps are stores to a record
 * in shared memory, which the dying process has left half done; here they are requests.  After each, either process
 * dies, and what remains has an owner or is free.
 */
ON_BOTH_BACK_ENDS(gms_process_death_at_every_step)
{
	static const struct {
		bool shadow_asks;
		enum word word;
	} steps[] = { { false, CREATE }, { false, WRITE },  { false, GIVE }, { true, ADOPT },
		      { true, ATTEND },  { true, PUBLISH }, { true, ERASE } };
	enum { N_STEPS = sizeof(steps) / sizeof(steps[0]) };

	daemon_setup(backend);
	for (uint32_t death = 0; death < 2 * N_STEPS; death++) {
		bool primary_dies = death % 2 == 0, is_given = death / 2 >= 2, is_adopted = death / 2 >= 3;
		struct it_worker *dead, *left;

		engines_start(backend);
		for (uint32_t i = 0; i <= death / 2; i++)
			ask_ok(steps[i].shadow_asks ? &fixture.shadow : &fixture.primary, steps[i].word);
		dead = primary_dies ? &fixture.primary : &fixture.shadow;
		left = primary_dies ? &fixture.shadow : &fixture.primary;
		it_kill(dead);
		check_pool();
		/* The ticket serves whoever is left, once. */
		if (is_given && !is_adopted) {
			ask_ok(left, ADOPT);
			ask_ok(left, ATTEND);
		} else if (is_given) {
			it_require(ask(left, ADOPT) == PAGED_ERR_NOENT, "%s", fixture.answer.text);
		}
		end(left);
		it_require(it_wait(pages_are_unused, NULL));
		check_pool();
	}
	teardown();
}

/*
 * GMS: test_shared_memory_lease_reclaim_foreign_preserves_current_owner.  The primary dies: what it had is reclaimed,
 * and what the shadow has adopted, or has itself, is not.
 */
ON_BOTH_BACK_ENDS(gms_reclaim_preserves_the_current_owner)
{
	const uint32_t n_left = WORKER_PAGES - 3; /* of row 1 */

	setup(backend);
	ask_ok(&fixture.primary, CREATE);
	ask_ok(&fixture.primary, WRITE);
	fixture.order.first_row = 1;
	ask_ok(&fixture.primary, GIVE);
	ask_ok(&fixture.shadow, ADOPT);
	it_kill(&fixture.primary);
	expect_free(n_left);
	it_require(pool_entry().n_referenced == 3 && pool_entry().n_sequences == 1);
	end(&fixture.shadow);
	expect_free(WORKER_PAGES);
	teardown();
}

/*
 * GMS: test_shared_memory_lease_reclaim_preserves_directory_hbm.  The primary dies: blocks that its directory names
 * stay, here the published pages.
 */
ON_BOTH_BACK_ENDS(gms_reclaim_preserves_what_is_published)
{
	struct paged_node_entry *nodes;
	size_t n;

	setup(backend);
	ask_ok(&fixture.primary, CREATE);
	ask_ok(&fixture.primary, WRITE);
	ask_ok(&fixture.primary, PUBLISH);
	it_kill(&fixture.primary);
	expect_free(WORKER_PAGES - 6); /* two partial pages are free, too */
	it_require(pool_entry().n_cached == 6 && pool_entry().n_quarantined == 0);
	worker_ok(&fixture.observer, paged_admin_prefixes(fixture.observer.client, "test", sizeof(*nodes), &nodes, &n));
	it_require(n == 6);
	paged_free(nodes);
	end(&fixture.shadow);
	teardown();
}

/*
 * GMS: test_kv_lease_shm_client.py, geometry mismatch, and kv_index_takeover with other block sizes.  A shadow that
 * expects pages of another size gets nothing, and what it tried to adopt is still there for another.
 */
ON_BOTH_BACK_ENDS(gms_geometry_mismatch)
{
	/* Without pages: this process does not use CUDA. */
	struct paged_client_params params = worker_params("other");
	struct worker_fixture other;
	uint32_t lengths[N_ROWS];
	paged_seq_id seqs[N_ROWS];
	size_t n;

	setup(backend);
	ask_ok(&fixture.primary, CREATE);
	ask_ok(&fixture.primary, WRITE);
	ask_ok(&fixture.primary, GIVE);
	params.tables_only = 1;
	worker_attach(&other, &params);
	worker_ok(&other, paged_pool_open(other.client, "wide", &other.pool));
	worker_expect(&other, paged_seq_adopt(other.pool, &fixture.order.ticket, N_ROWS, seqs, lengths, &n),
		      PAGED_ERR_NOENT);
	worker_expect(&other, seqs_reserve(other.client, 1, fixture.answer.seq, (uint32_t[]){ 32 }), PAGED_ERR_PERM);
	worker_close(&other);
	it_require(pool_entry().n_free == WORKER_PAGES - N_PAGES);
	ask_ok(&fixture.shadow, ADOPT);
	ask_ok(&fixture.shadow, ATTEND);
	end(&fixture.primary);
	end(&fixture.shadow);
	expect_free(WORKER_PAGES);
	teardown();
}

/*
 * LMCache: concurrent prefetch of the same key.  Two engines compute the same prefixes and publish them at the same
 * moment: the cache has one copy, and each engine keeps what it reads.
 */
ON_BOTH_BACK_ENDS(lmcache_concurrent_prefetch_of_the_same_key)
{
	struct it_worker *const engines[] = { &fixture.primary, &fixture.shadow };

	setup(backend);
	for (int i = 0; i < 2; i++) {
		ask_ok(engines[i], CREATE);
		ask_ok(engines[i], WRITE);
	}
	fixture.order.word = PUBLISH;
	for (int i = 0; i < 2; i++)
		it_send(engines[i]->to, &fixture.order, sizeof(fixture.order));
	for (int i = 0; i < 2; i++) {
		it_receive(engines[i]->from, &fixture.answer, sizeof(fixture.answer));
		it_require(fixture.answer.status == PAGED_OK, "%s", fixture.answer.text);
	}
	it_require(pool_entry().n_published == 6 && pool_entry().n_free == WORKER_PAGES - 2 * N_PAGES);
	for (int i = 0; i < 2; i++) {
		ask_ok(engines[i], ATTEND);
		ask_ok(engines[i], ERASE);
		check_pool();
	}
	it_require(pool_entry().n_cached == 6 && pool_entry().n_free == WORKER_PAGES - 6);
	end(&fixture.primary);
	end(&fixture.shadow);
	teardown();
}

/* LMCache: test_killed_worker_is_reaped_through_the_zmq_server.  One of two is killed; the other one is kept. */
ON_BOTH_BACK_ENDS(lmcache_killed_worker_is_reaped)
{
	setup(backend);
	ask_ok(&fixture.primary, CREATE);
	ask_ok(&fixture.primary, WRITE);
	ask_ok(&fixture.shadow, CREATE);
	ask_ok(&fixture.shadow, WRITE);
	it_require(pool_entry().n_free == WORKER_PAGES - 2 * N_PAGES);
	it_kill(&fixture.primary);
	expect_free(WORKER_PAGES - N_PAGES);
	ask_ok(&fixture.shadow, ATTEND);
	end(&fixture.shadow);
	expect_free(WORKER_PAGES);
	teardown();
}

/* The request was dropped, and the pages are free; or it was served, and a ticket that nobody has keeps them. */
static bool
request_is_settled(void *argument)
{
	struct paged_pool_entry entry = pool_entry();
	struct paged_ticket_entry *tickets;
	bool settled = entry.n_free == WORKER_PAGES;
	size_t n;

	(void)argument;
	worker_ok(&fixture.observer, paged_admin_tickets(fixture.observer.client, sizeof(*tickets), &tickets, &n));
	if (n == 1)
		settled = tickets[0].ended && tickets[0].n_pages == N_PAGES && entry.n_referenced == N_PAGES;
	paged_free(tickets);
	return settled;
}

/*
 * LMCache: test_requests_from_the_closed_connection_do_not_cancel.  Requests that a dead process has left in the
 * daemon's socket do not keep, or give away, what it had.
 */
ON_BOTH_BACK_ENDS(lmcache_requests_of_a_dead_worker)
{
	setup(backend);
	ask_ok(&fixture.primary, CREATE);
	ask_ok(&fixture.primary, WRITE);
	kill(fixture.daemon.pid, SIGSTOP);
	fixture.order.word = GIVE;
	it_send(fixture.primary.to, &fixture.order, sizeof(fixture.order));
	it_kill(&fixture.primary);
	kill(fixture.daemon.pid, SIGCONT);
	it_require(it_wait(request_is_settled, NULL));
	check_pool();
	end(&fixture.shadow);
	teardown();
}

IT_MAIN
