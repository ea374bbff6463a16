/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/sequences.h"
#include "tests/support/worker_fixture.h"

#include <string.h>

#include "client/api/objects.h"
#include "client/owner/owner_remote.h"

const char worker_pool_config[] = "pool test {\n" WORKER_POOL_SETTINGS "\n}\n";

struct paged_client_params
worker_params(const char *name)
{
	return (struct paged_client_params){ .struct_size = sizeof(struct paged_client_params), .name = name };
}

void
worker_attach(struct worker_fixture *worker, const struct paged_client_params *params)
{
	memset(worker, 0, sizeof(*worker));
	worker_ok(worker, paged_client_open(NULL, params, &worker->client));
}

static void
pool_open(struct worker_fixture *worker)
{
	worker_ok(worker, paged_pool_open(worker->client, "test", &worker->pool));
	worker->info.struct_size = sizeof(worker->info);
	worker_ok(worker, paged_pool_get_info(worker->pool, &worker->info));
}

void
worker_open(struct worker_fixture *worker, const struct paged_client_params *params, uint32_t reserve_ahead)
{
	worker_attach(worker, params);
	pool_open(worker);
	if (strcmp(worker->info.backend, "cuda") == 0)
		worker_device_open(&worker->device, worker->info.device,
				   sizeof(float) * WORKER_MAX_LENGTH * WORKER_OUT);
	worker_ok(worker,
		  paged_batch_create(worker->pool,
				     &(struct paged_batch_params){ .struct_size = sizeof(struct paged_batch_params),
								   .max_rows = 8,
								   .reserve_ahead = reserve_ahead },
				     &worker->batch));
}

void
worker_observe(struct worker_fixture *worker)
{
	struct paged_client_params params = worker_params("observer");

	params.observer = 1;
	params.tables_only = 1;
	worker_attach(worker, &params);
	pool_open(worker);
}

void
worker_set_timeout(struct worker_fixture *worker, uint32_t timeout_ms)
{
	struct remote *remote = remote_of(worker->client->owner);

	remote->timeout_ms = timeout_ms;
	remote->rpc.timeout_ms = timeout_ms;
}

void
worker_close(struct worker_fixture *worker)
{
	worker_device_close(&worker->device);
	paged_client_close(worker->client);
	memset(worker, 0, sizeof(*worker));
}

paged_seq_id
worker_create_seq(struct worker_fixture *worker, uint32_t n_tokens)
{
	paged_seq_id seq = 0;

	worker_ok(worker, seqs_create(worker->client, worker->pool, 1, &seq));
	if (n_tokens > 0)
		worker_ok(worker, seqs_reserve(worker->client, 1, &seq, &n_tokens));
	return seq;
}

/* splitmix64, into [-1, 1). */
static float
number(uint64_t seed, uint64_t index)
{
	uint64_t z = seed + (index + 1) * 0x9E3779B97F4A7C15ull;

	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
	z = (z ^ z >> 27) * 0x94D049BB133111EBull;
	z ^= z >> 31;
	return (float)((int64_t)(z >> 40) - (1 << 23)) / (float)(1 << 23);
}

enum paged_status
worker_plan(struct worker_fixture *worker, paged_seq_id seq, uint32_t from, uint32_t to, uint32_t flags)
{
	return paged_batch_plan(
		worker->batch, 1,
		&(struct paged_batch_row){ .seq = seq, .q_len = to - from, .kv_len = to, .flags = flags });
}

struct paged_tensor
worker_tensor(struct worker_fixture *worker, enum worker_buffer buffer, const float *data, uint32_t n_tokens,
	      uint32_t n_heads)
{
	size_t size = sizeof(float) * n_tokens * n_heads * WORKER_DIM;

	return (struct paged_tensor){ .data = worker_device_put(&worker->device, buffer, data, size),
				      .dtype = PAGED_F32,
				      .n_heads = n_heads,
				      .dim = WORKER_DIM };
}

struct paged_tensor
worker_result(struct worker_fixture *worker, float *out, uint32_t n_tokens)
{
	return (struct paged_tensor){ .data = worker_device_result(&worker->device, WORKER_OUTPUT, out,
								   sizeof(float) * n_tokens * WORKER_OUT),
				      .dtype = PAGED_F32,
				      .n_heads = WORKER_HEADS,
				      .dim = WORKER_DIM };
}

void
worker_fetch(struct worker_fixture *worker, float *out, uint32_t n_tokens)
{
	worker_device_get(&worker->device, WORKER_OUTPUT, out, sizeof(float) * n_tokens * WORKER_OUT);
}

/* A token's numbers depend on its position alone, not on how many are written at a time. */
enum paged_status
worker_append(struct worker_fixture *worker, uint32_t layer, uint32_t from, uint32_t to, uint64_t seed)
{
	static float k[WORKER_MAX_LENGTH * WORKER_KV_HEADS * WORKER_DIM],
		v[WORKER_MAX_LENGTH * WORKER_KV_HEADS * WORKER_DIM];
	const uint32_t n = WORKER_KV_HEADS * WORKER_DIM;
	struct paged_tensor k_tensor, v_tensor;

	for (uint32_t token = from; token < to; token++) {
		for (uint32_t i = 0; i < n; i++) {
			uint64_t index = ((uint64_t)layer * WORKER_MAX_LENGTH + token) * n + i;

			k[(token - from) * n + i] = number(seed, index);
			v[(token - from) * n + i] = number(~seed, index);
		}
	}
	k_tensor = worker_tensor(worker, WORKER_K, k, to - from, WORKER_KV_HEADS);
	v_tensor = worker_tensor(worker, WORKER_V, v, to - from, WORKER_KV_HEADS);
	return paged_append(worker->batch, layer, &k_tensor, &v_tensor, NULL);
}

void
worker_write(struct worker_fixture *worker, paged_seq_id seq, uint32_t from, uint32_t to, uint64_t seed)
{
	worker_ok(worker, worker_plan(worker, seq, from, to, 0));
	for (uint32_t layer = 0; layer < WORKER_LAYERS; layer++)
		worker_ok(worker, worker_append(worker, layer, from, to, seed));
	worker_ok(worker, paged_batch_finish(worker->batch));
}

void
worker_attend(struct worker_fixture *worker, uint32_t layer, uint32_t q_len, float *out)
{
	static float q[WORKER_MAX_LENGTH * WORKER_OUT];
	struct paged_tensor q_tensor, out_tensor;

	for (uint32_t i = 0; i < q_len * WORKER_OUT; i++)
		q[i] = number(layer + 1, i);
	q_tensor = worker_tensor(worker, WORKER_Q, q, q_len, WORKER_HEADS);
	out_tensor = worker_result(worker, out, q_len);
	worker_ok(worker, paged_attention(worker->batch, layer, &q_tensor, &out_tensor, NULL));
	worker_fetch(worker, out, q_len);
}

void
worker_read(struct worker_fixture *worker, paged_seq_id seq, uint32_t kv_len, float *out)
{
	worker_ok(worker, worker_plan(worker, seq, kv_len - 1, kv_len, PAGED_ROW_NO_APPEND));
	for (uint32_t layer = 0; layer < WORKER_LAYERS; layer++)
		worker_attend(worker, layer, 1, out + layer * WORKER_OUT);
}

static bool
pool_find(struct worker_fixture *worker, const char *name, struct paged_pool_entry *entry)
{
	struct paged_pool_entry *list;
	bool found = false;
	size_t n;

	worker_ok(worker, paged_admin_pools(worker->client, sizeof(*list), &list, &n));
	for (size_t i = 0; i < n && !found; i++) {
		found = strcmp(list[i].name, name) == 0;
		if (found)
			*entry = list[i];
	}
	paged_free(list);
	return found;
}

struct paged_pool_entry
worker_pool_entry(struct worker_fixture *worker, const char *name)
{
	struct paged_pool_entry entry = { 0 };

	it_require(pool_find(worker, name, &entry), "no pool %s", name);
	return entry;
}

struct free_wait {
	struct worker_fixture *observer;
	const char *pool;
};

static bool
all_is_free(void *argument)
{
	struct free_wait *wait = argument;
	struct paged_pool_entry pool = worker_pool_entry(wait->observer, wait->pool);
	struct paged_daemon_info info = { .struct_size = sizeof(info) };

	if (pool.n_free != pool.n_pages || pool.n_sequences != 0)
		return false;
	worker_ok(wait->observer, paged_admin_status(wait->observer->client, &info));
	return info.n_sessions == 0;
}

void
worker_wait_free(struct worker_fixture *observer, const char *pool)
{
	struct free_wait wait = { observer, pool };
	struct paged_pool_entry entry;

	if (it_wait(all_is_free, &wait))
		return;
	entry = worker_pool_entry(observer, pool);
	it_require(!"all pages became free", "%u of %u free, %u referenced, %u quarantined, %u sequences", entry.n_free,
		   entry.n_pages, entry.n_referenced, entry.n_quarantined, entry.n_sequences);
}

void
worker_check_pool(struct worker_fixture *worker)
{
	struct paged_check_result result = { .struct_size = sizeof(result) };

	worker_ok(worker, paged_admin_check(worker->client, "test", &result));
	it_require(result.holds == 1, "daemon: %s", result.text);
	worker_ok(worker, paged_pool_check(worker->pool, &result));
	it_require(result.holds == 1, "region: %s", result.text);
}
