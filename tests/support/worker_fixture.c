/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/sequences.h"
#include "tests/support/worker_fixture.h"

#include <string.h>

const char toy_configuration[] = "pool toy {\n"
				 "    layers = 2\n"
				 "    kv-heads = 2\n"
				 "    head-dim = 32\n"
				 "    dtype = f32\n"
				 "    page-size = 4\n"
				 "    pages = 64\n"
				 "    sequences = 32\n"
				 "    max-length = 128\n"
				 "}\n";

struct paged_client_params
toy_params(const char *name)
{
	return (struct paged_client_params){ .struct_size = sizeof(struct paged_client_params), .name = name };
}

void
toy_attach(struct toy *toy, const struct paged_client_params *params)
{
	memset(toy, 0, sizeof(*toy));
	toy_ok(toy, paged_client_open(NULL, params, &toy->client));
}

static void
pool_open(struct toy *toy)
{
	toy_ok(toy, paged_pool_open(toy->client, "toy", &toy->pool));
	toy->info.struct_size = sizeof(toy->info);
	toy_ok(toy, paged_pool_get_info(toy->pool, &toy->info));
}

void
toy_open(struct toy *toy, const struct paged_client_params *params, uint32_t reserve_ahead)
{
	toy_attach(toy, params);
	pool_open(toy);
	toy_ok(toy, paged_batch_create(toy->pool,
				       &(struct paged_batch_params){ .struct_size = sizeof(struct paged_batch_params),
								     .max_rows = 8,
								     .reserve_ahead = reserve_ahead },
				       &toy->batch));
}

void
toy_observe(struct toy *toy)
{
	struct paged_client_params params = toy_params("observer");

	params.observer = 1;
	toy_attach(toy, &params);
	pool_open(toy);
}

void
toy_close(struct toy *toy)
{
	paged_client_close(toy->client);
	memset(toy, 0, sizeof(*toy));
}

paged_seq_id
toy_sequence(struct toy *toy, uint32_t n_tokens)
{
	paged_seq_id seq = 0;

	toy_ok(toy, seqs_create(toy->client, toy->pool, 1, &seq));
	if (n_tokens > 0)
		toy_ok(toy, seqs_reserve(toy->client, 1, &seq, &n_tokens));
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
toy_plan(struct toy *toy, paged_seq_id seq, uint32_t from, uint32_t to, uint32_t flags)
{
	return paged_batch_plan(
		toy->batch, 1,
		&(struct paged_batch_row){ .seq = seq, .q_len = to - from, .kv_len = to, .flags = flags });
}

/* A token's numbers depend on its position alone, not on how many are written at a time. */
enum paged_status
toy_append(struct toy *toy, uint32_t layer, uint32_t from, uint32_t to, uint64_t seed)
{
	static float k[TOY_MAX_LENGTH][TOY_KV_HEADS][TOY_DIM], v[TOY_MAX_LENGTH][TOY_KV_HEADS][TOY_DIM];
	const uint32_t n = TOY_KV_HEADS * TOY_DIM;
	const struct paged_tensor k_tensor = { .data = k, .dtype = PAGED_F32, .n_heads = TOY_KV_HEADS, .dim = TOY_DIM };
	const struct paged_tensor v_tensor = { .data = v, .dtype = PAGED_F32, .n_heads = TOY_KV_HEADS, .dim = TOY_DIM };

	for (uint32_t token = from; token < to; token++) {
		for (uint32_t i = 0; i < n; i++) {
			uint64_t index = ((uint64_t)layer * TOY_MAX_LENGTH + token) * n + i;

			k[token - from][i / TOY_DIM][i % TOY_DIM] = number(seed, index);
			v[token - from][i / TOY_DIM][i % TOY_DIM] = number(~seed, index);
		}
	}
	return paged_append(toy->batch, layer, &k_tensor, &v_tensor, NULL);
}

void
toy_write(struct toy *toy, paged_seq_id seq, uint32_t from, uint32_t to, uint64_t seed)
{
	toy_ok(toy, toy_plan(toy, seq, from, to, 0));
	for (uint32_t layer = 0; layer < TOY_LAYERS; layer++)
		toy_ok(toy, toy_append(toy, layer, from, to, seed));
}

void
toy_attend(struct toy *toy, uint32_t layer, uint32_t q_len, float *out)
{
	static float q[TOY_MAX_LENGTH][TOY_HEADS][TOY_DIM];
	const struct paged_tensor q_tensor = { .data = q, .dtype = PAGED_F32, .n_heads = TOY_HEADS, .dim = TOY_DIM };
	const struct paged_tensor out_tensor = {
		.data = out, .dtype = PAGED_F32, .n_heads = TOY_HEADS, .dim = TOY_DIM
	};

	for (uint32_t i = 0; i < q_len * TOY_OUT; i++)
		q[i / TOY_OUT][i % TOY_OUT / TOY_DIM][i % TOY_DIM] = number(layer + 1, i);
	toy_ok(toy, paged_attention(toy->batch, layer, &q_tensor, &out_tensor, NULL));
}

void
toy_read(struct toy *toy, paged_seq_id seq, uint32_t kv_len, float *out)
{
	toy_ok(toy, toy_plan(toy, seq, kv_len - 1, kv_len, PAGED_ROW_NO_APPEND));
	for (uint32_t layer = 0; layer < TOY_LAYERS; layer++)
		toy_attend(toy, layer, 1, out + layer * TOY_OUT);
}

static bool
pool_find(struct toy *toy, const char *name, struct paged_pool_entry *entry)
{
	struct paged_pool_entry *list;
	bool found = false;
	size_t n;

	toy_ok(toy, paged_admin_pools(toy->client, sizeof(*list), &list, &n));
	for (size_t i = 0; i < n && !found; i++) {
		found = strcmp(list[i].name, name) == 0;
		if (found)
			*entry = list[i];
	}
	paged_free(list);
	return found;
}

struct paged_pool_entry
toy_pool(struct toy *toy, const char *name)
{
	struct paged_pool_entry entry = { 0 };

	it_require(pool_find(toy, name, &entry), "no pool %s", name);
	return entry;
}

struct free_wait {
	struct toy *observer;
	const char *pool;
};

static bool
all_is_free(void *argument)
{
	struct free_wait *wait = argument;
	struct paged_pool_entry pool = toy_pool(wait->observer, wait->pool);
	struct paged_daemon_info info = { .struct_size = sizeof(info) };

	if (pool.n_free != pool.n_pages || pool.n_sequences != 0)
		return false;
	toy_ok(wait->observer, paged_admin_status(wait->observer->client, &info));
	return info.n_sessions == 0;
}

void
toy_wait_free(struct toy *observer, const char *pool, unsigned int limit_ms)
{
	struct free_wait wait = { observer, pool };
	struct paged_pool_entry entry;

	if (it_wait(all_is_free, &wait, limit_ms))
		return;
	entry = toy_pool(observer, pool);
	it_require(!"all pages became free", "%u of %u free, %u referenced, %u quarantined, %u sequences", entry.n_free,
		   entry.n_pages, entry.n_referenced, entry.n_quarantined, entry.n_sequences);
}

void
toy_check(struct toy *toy)
{
	struct paged_check_result result = { .struct_size = sizeof(result) };

	toy_ok(toy, paged_admin_check(toy->client, "toy", &result));
	it_require(result.holds == 1, "daemon: %s", result.text);
	toy_ok(toy, paged_pool_check(toy->pool, &result));
	it_require(result.holds == 1, "region: %s", result.text);
}
