/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/system/prompt_fixture.h"

#include <string.h>

#include "tests/support/random.h"

#define VOCABULARY 50000u

/* K and V of one layer, or of both. */
struct prompt_tokens {
	float k[WORKER_MAX_LENGTH][WORKER_KV_HEADS][WORKER_DIM], v[WORKER_MAX_LENGTH][WORKER_KV_HEADS][WORKER_DIM];
};

struct prompt
prompt_make(uint64_t seed, uint32_t n)
{
	return prompt_diverge(&(struct prompt){ 0 }, 0, seed, n);
}

struct prompt
prompt_diverge(const struct prompt *prompt, uint32_t at, uint64_t seed, uint32_t n)
{
	struct prompt other = { .n = n };

	it_require(at <= n && n <= WORKER_MAX_LENGTH);
	memcpy(other.tokens, prompt->tokens, at * sizeof(other.tokens[0]));
	for (uint32_t i = at; i < n; i++)
		other.tokens[i] = (uint32_t)(random_bits(seed, i) % VOCABULARY);
	return other;
}

struct paged_prefix
prompt_prefix(const struct prompt *prompt, uint32_t n_tokens)
{
	it_require(n_tokens <= prompt->n);
	return (struct paged_prefix){ .struct_size = sizeof(struct paged_prefix),
				      .tokens = prompt->tokens,
				      .n_tokens = n_tokens };
}

uint32_t
prompt_match(struct worker_fixture *worker, const struct prompt *prompt)
{
	struct paged_prefix prefix = prompt_prefix(prompt, prompt->n);
	uint32_t n_tokens = UINT32_MAX;

	worker_ok(worker, paged_prefix_match(worker->pool, &prefix, &n_tokens));
	return n_tokens;
}

paged_seq_id
prompt_start(struct worker_fixture *worker, const struct prompt *prompt, uint32_t *n_shared)
{
	struct paged_prefix prefix = prompt_prefix(prompt, prompt->n);
	struct paged_start start = { .prefix = &prefix, .reserve = prompt->n };
	paged_seq_id seq = 0;

	worker_ok(worker, paged_seq_start(worker->pool, 1, &start, &seq, n_shared));
	return seq;
}

/* Numbers of tokens [from, to) in a layer; each depends on all tokens up to its own. */
static void
tokens_fill(struct prompt_tokens *at, const struct prompt *prompt, uint32_t layer, uint32_t from, uint32_t to)
{
	const uint32_t n = WORKER_KV_HEADS * WORKER_DIM;
	uint64_t prefix = layer;

	for (uint32_t token = 0; token < to; token++) {
		prefix = random_bits(prefix, prompt->tokens[token]);
		if (token < from)
			continue;
		random_fill(&at->k[token - from][0][0], n, prefix);
		random_fill(&at->v[token - from][0][0], n, ~prefix);
	}
}

void
prompt_write(struct worker_fixture *worker, paged_seq_id seq, const struct prompt *prompt, uint32_t from, uint32_t to)
{
	static struct prompt_tokens written;
	struct paged_tensor k, v;

	if (from == to)
		return;
	worker_ok(worker, worker_plan(worker, seq, from, to, 0));
	for (uint32_t layer = 0; layer < WORKER_LAYERS; layer++) {
		tokens_fill(&written, prompt, layer, from, to);
		k = worker_tensor(worker, WORKER_K, written.k[0][0], to - from, WORKER_KV_HEADS);
		v = worker_tensor(worker, WORKER_V, written.v[0][0], to - from, WORKER_KV_HEADS);
		worker_ok(worker, paged_append(worker->batch, layer, &k, &v, NULL));
	}
	worker_ok(worker, paged_batch_finish(worker->batch));
}

static struct paged_tensor
gathered_tensor(struct worker_fixture *worker, enum worker_buffer buffer, float (*data)[WORKER_KV_HEADS][WORKER_DIM])
{
	return (struct paged_tensor){ .data = worker_device_result(&worker->device, buffer, data,
								   sizeof(*data) * WORKER_MAX_LENGTH),
				      .dtype = PAGED_F32,
				      .n_heads = WORKER_KV_HEADS,
				      .dim = WORKER_DIM };
}

/* Gathers the planned row, and compares its tokens. */
static void
planned_verify(struct worker_fixture *worker, const struct prompt *prompt, uint32_t n_tokens)
{
	static struct prompt_tokens got, wanted;
	const struct paged_tensor k = gathered_tensor(worker, WORKER_K, got.k);
	const struct paged_tensor v = gathered_tensor(worker, WORKER_V, got.v);

	for (uint32_t layer = 0; layer < WORKER_LAYERS; layer++) {
		worker_ok(worker, paged_gather(worker->batch, layer, &k, &v, NULL));
		worker_device_get(&worker->device, WORKER_K, got.k, sizeof(got.k));
		worker_device_get(&worker->device, WORKER_V, got.v, sizeof(got.v));
		tokens_fill(&wanted, prompt, layer, 0, n_tokens);
		for (uint32_t token = 0; token < n_tokens; token++)
			it_require(memcmp(got.k[token], wanted.k[token], sizeof(got.k[0])) == 0 &&
					   memcmp(got.v[token], wanted.v[token], sizeof(got.v[0])) == 0,
				   "layer %u, token %u of %u is not that of the prefix", layer, token, n_tokens);
	}
	worker_ok(worker, paged_batch_validate(worker->batch));
}

void
prompt_verify(struct worker_fixture *worker, paged_seq_id seq, const struct prompt *prompt, uint32_t n_tokens)
{
	if (n_tokens == 0)
		return;
	worker_ok(worker, worker_plan(worker, seq, n_tokens - 1, n_tokens, PAGED_ROW_NO_APPEND));
	planned_verify(worker, prompt, n_tokens);
}

void
prompt_verify_pages(struct worker_fixture *worker, const uint32_t *pages, const struct prompt *prompt,
		    uint32_t n_tokens)
{
	const struct paged_batch_row row = { .pages = pages,
					     .n_pages = n_tokens / WORKER_PAGE_SIZE,
					     .q_len = 1,
					     .kv_len = n_tokens,
					     .flags = PAGED_ROW_NO_APPEND };

	worker_ok(worker, paged_batch_plan(worker->batch, 1, &row));
	planned_verify(worker, prompt, n_tokens);
}

struct paged_seq_info
prompt_info(struct worker_fixture *worker, paged_seq_id seq, uint32_t *pages)
{
	struct paged_seq_info info = { .struct_size = sizeof(info) };

	worker_ok(worker, paged_seq_read(worker->pool, seq, &info, pages, pages != NULL ? WORKER_MAX_LENGTH : 0));
	return info;
}

uint32_t
prompt_publish(struct worker_fixture *worker, paged_seq_id seq, const struct prompt *prompt, uint32_t n_tokens)
{
	struct paged_prefix prefix = prompt_prefix(prompt, n_tokens);

	worker_ok(worker, paged_seq_publish(worker->pool, 1, &(struct paged_publish){ seq, &prefix }));
	/* Requests are answered in order, so the publish was. */
	worker_ok(worker, paged_client_ping(worker->client));
	return prompt_info(worker, seq, NULL).published;
}

paged_seq_id
prompt_compute(struct worker_fixture *worker, const struct prompt *prompt)
{
	uint32_t n_shared, n_whole = prompt->n / WORKER_PAGE_SIZE * WORKER_PAGE_SIZE;
	paged_seq_id seq = prompt_start(worker, prompt, &n_shared);

	prompt_write(worker, seq, prompt, n_shared, prompt->n);
	it_require(prompt_publish(worker, seq, prompt, prompt->n) == n_whole, "%u of %u tokens are published",
		   prompt_info(worker, seq, NULL).published, n_whole);
	return seq;
}

void
prompt_expect_pages(struct worker_fixture *worker, uint32_t n_free, uint32_t n_referenced, uint32_t n_cached)
{
	struct paged_pool_entry entry = worker_pool_entry(worker, "test");

	it_require(entry.n_free == n_free && entry.n_referenced == n_referenced && entry.n_cached == n_cached &&
			   entry.n_quarantined == entry.n_pages - n_free - n_referenced - n_cached,
		   "%u pages are free (%u expected), %u referenced (%u), %u cached (%u), %u quarantined", entry.n_free,
		   n_free, entry.n_referenced, n_referenced, entry.n_cached, n_cached, entry.n_quarantined);
	worker_check_pool(worker);
}

static bool
all_is_unused(void *observer)
{
	struct paged_pool_entry pool = worker_pool_entry(observer, "test");

	return pool.n_free + pool.n_cached == pool.n_pages && pool.n_sequences == 0;
}

void
prompt_wait_unused(struct worker_fixture *observer)
{
	struct paged_pool_entry entry;

	if (it_wait(all_is_unused, observer))
		return;
	entry = worker_pool_entry(observer, "test");
	it_require(!"all pages became free or cached",
		   "%u of %u free, %u cached, %u referenced, %u quarantined, %u sequences", entry.n_free, entry.n_pages,
		   entry.n_cached, entry.n_referenced, entry.n_quarantined, entry.n_sequences);
}
