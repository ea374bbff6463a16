/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that only read shared memory notice that the daemon was replaced: its memory stays mapped, and looks like that
 * of a daemon with nothing to do.
 */
#include "config.h"

#include <string.h>
#include <unistd.h>

#include "tests/support/sequences.h"
#include "tests/support/worker_fixture.h"

#define N_TOKENS 8u

static uint32_t tokens[N_TOKENS];
static const struct paged_prefix prefix = { .struct_size = sizeof(prefix), .tokens = tokens, .n_tokens = N_TOKENS };

/* A client that makes one kind of call, so that no other call notices for it. */
struct caller {
	struct worker_fixture worker;
	paged_seq_id seq; /* of another session, published */
	uint32_t page;    /* of its first node */
	uint64_t serial;
	struct paged_watch *watch;
	struct paged_block_mask *mask, *physical;
};

static enum paged_status
call_counts(struct caller *caller)
{
	struct paged_pool_counts counts = { .struct_size = sizeof(counts) };

	return paged_pool_get_counts(caller->worker.pool, &counts);
}

static enum paged_status
call_totals(struct caller *caller)
{
	struct paged_pool_totals totals = { .struct_size = sizeof(totals) };

	return paged_pool_get_totals(caller->worker.pool, &totals);
}

static enum paged_status
call_wait_free(struct caller *caller)
{
	return paged_pool_wait_free(caller->worker.pool, 1, 0);
}

static enum paged_status
call_seq_read(struct caller *caller)
{
	return paged_seq_read(caller->worker.pool, caller->seq, NULL, NULL, 0);
}

static enum paged_status
call_match(struct caller *caller)
{
	uint32_t n;

	return paged_prefix_match(caller->worker.pool, &prefix, &n);
}

static enum paged_status
call_prefix_pages(struct caller *caller)
{
	uint32_t pages[N_TOKENS];
	uint64_t serials[N_TOKENS];
	size_t n;

	return paged_prefix_pages(caller->worker.pool, &prefix, N_TOKENS, pages, serials, &n);
}

static enum paged_status
call_prefix_wait(struct caller *caller)
{
	return paged_prefix_wait(caller->worker.pool, &prefix, N_TOKENS, 0);
}

static enum paged_status
call_prefix_tokens(struct caller *caller)
{
	uint32_t page_tokens[N_TOKENS];

	return paged_prefix_tokens(caller->worker.pool, caller->page, caller->serial, page_tokens, N_TOKENS);
}

static enum paged_status
call_watch_open(struct caller *caller)
{
	struct paged_watch *watch;
	enum paged_status status = paged_watch_open(caller->worker.pool, &watch);

	if (status == PAGED_OK)
		paged_watch_close(watch);
	return status;
}

static enum paged_status
call_watch_next(struct caller *caller)
{
	struct paged_change change;
	size_t n;
	enum paged_status status = paged_watch_next(caller->watch, &change, 1, 0, &n);

	return status == PAGED_ERR_TIMEOUT ? PAGED_OK : status;
}

static enum paged_status
call_watch_walk(struct caller *caller)
{
	struct paged_node_info node;
	uint32_t from = 0;
	size_t n;

	return paged_watch_walk(caller->watch, &from, &node, 1, &n);
}

static enum paged_status
call_watch_read(struct caller *caller)
{
	struct paged_block_key key = { .struct_size = sizeof(key) };

	return paged_watch_read(caller->watch, caller->page, caller->serial, &key, NULL, 0);
}

static enum paged_status
call_plan(struct caller *caller)
{
	if (caller->worker.batch == NULL)
		return call_counts(caller);
	return worker_plan(&caller->worker, caller->seq, 0, N_TOKENS, PAGED_ROW_NO_APPEND);
}

static enum paged_status
call_to_physical(struct caller *caller)
{
	struct paged_batch_row row = { .seq = caller->seq, .q_len = 1, .kv_len = N_TOKENS };
	struct paged_block_mask *physical;
	enum paged_status status = paged_block_mask_to_physical(caller->mask, 1, &row, &physical);

	if (status == PAGED_OK)
		paged_block_mask_destroy(physical);
	return status;
}

static enum paged_status
call_mask_validate(struct caller *caller)
{
	return paged_block_mask_validate(caller->physical);
}

/* Nothing is left to publish, so nothing is sent. */
static enum paged_status
call_publish(struct caller *caller)
{
	return paged_seq_publish(caller->worker.pool, 1,
				 &(struct paged_publish){ .seq = caller->seq, .prefix = &prefix });
}

static const struct {
	const char *name;
	enum paged_status (*call)(struct caller *);
	bool own; /* of a sequence of its own session */
} calls[] = {
	{ "get_counts", call_counts, false },
	{ "get_totals", call_totals, false },
	{ "wait_free", call_wait_free, false },
	{ "seq_read", call_seq_read, false },
	{ "prefix_match", call_match, false },
	{ "prefix_pages", call_prefix_pages, false },
	{ "prefix_wait", call_prefix_wait, false },
	{ "prefix_tokens", call_prefix_tokens, false },
	{ "watch_open", call_watch_open, false },
	{ "watch_next", call_watch_next, false },
	{ "watch_walk", call_watch_walk, false },
	{ "watch_read", call_watch_read, false },
	{ "plan", call_plan, false },
	{ "mask_to_physical", call_to_physical, false },
	{ "mask_validate", call_mask_validate, false },
	{ "seq_publish", call_publish, true },
};

#define N_CALLS (sizeof(calls) / sizeof(calls[0]))

static paged_seq_id
publish_one(struct worker_fixture *worker)
{
	paged_seq_id seq = worker_create_seq(worker, N_TOKENS);

	worker_write(worker, seq, 0, N_TOKENS, 1);
	worker_ok(worker, paged_seq_publish(worker->pool, 1, &(struct paged_publish){ .seq = seq, .prefix = &prefix }));
	worker_ok(worker, paged_client_ping(worker->client));
	return seq;
}

static void
caller_open(struct caller *caller, paged_seq_id seq, bool tables_only)
{
	struct worker_fixture *worker = &caller->worker;
	struct paged_batch_row row = { .seq = seq, .q_len = 1, .kv_len = N_TOKENS };
	struct paged_block_mask_params params = {
		.struct_size = sizeof(params), .rows = &row, .n_rows = 1, .n_heads = 1, .kv_block = WORKER_PAGE_SIZE
	};
	struct paged_node_info node;
	struct paged_mod *mod;
	uint32_t from = 0;
	size_t n;

	if (tables_only)
		worker_observe(worker);
	else
		worker_open(worker, NULL, 0);
	caller->seq = seq;
	worker_ok(worker, paged_watch_open(worker->pool, &caller->watch));
	worker_ok(worker, paged_watch_walk(caller->watch, &from, &node, 1, &n));
	it_require(n == 1);
	caller->page = node.page;
	caller->serial = node.serial;
	worker_ok(worker, paged_mod_parse(worker->pool, PAGED_MOD_MASK, "kv_idx <= q_idx", 0, NULL, &mod));
	worker_ok(worker, paged_block_mask_create(worker->pool, &params, mod, 0, NULL, &caller->mask));
	worker_ok(worker, paged_block_mask_to_physical(caller->mask, 1, &row, &caller->physical));
}

static void
expect_gone(struct caller *caller, size_t i)
{
	uint64_t end = it_now_ms() + IT_LIMIT_MS;
	enum paged_status status;

	/* Once a second: the loop ends. */
	while ((status = calls[i].call(caller)) == PAGED_OK) {
		it_require(it_now_ms() < end, "%s has not noticed", calls[i].name);
		usleep(1000);
	}
	it_require(status == PAGED_ERR_GONE, "%s: %s", calls[i].name, paged_status_name(status));
}

static void
calls_notice(bool tables_only)
{
	static struct caller callers[N_CALLS];
	struct worker_fixture writer;
	struct it_daemon daemon;
	paged_seq_id seq;

	for (uint32_t i = 0; i < N_TOKENS; i++)
		tokens[i] = i;
	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	worker_open(&writer, NULL, 0);
	seq = publish_one(&writer);
	for (size_t i = 0; i < N_CALLS; i++) {
		if (calls[i].own && tables_only)
			continue;
		caller_open(&callers[i], seq, tables_only);
		if (calls[i].own)
			callers[i].seq = publish_one(&callers[i].worker);
		worker_ok(&callers[i].worker, calls[i].call(&callers[i]));
	}
	it_daemon_kill(&daemon);
	it_daemon_restart(&daemon, NULL, NULL);
	for (size_t i = 0; i < N_CALLS; i++) {
		if (calls[i].own && tables_only)
			continue;
		expect_gone(&callers[i], i);
		worker_close(&callers[i].worker);
	}
	worker_close(&writer);
	it_daemon_stop(&daemon);
}

IT_TEST(calls_without_requests_notice_a_new_daemon)
{
	calls_notice(false);
}

IT_TEST(clients_without_pages_notice_a_new_daemon)
{
	calls_notice(true);
}

IT_MAIN
