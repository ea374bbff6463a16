/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random use of shared pages by several processes, some of which are killed.  K and V say to which prefix they belong,
 * so any page that is shared wrongly is found when it is gathered.
 */
#include "config.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/random.h"
#include "tests/support/sequences.h"
#include "tests/system/prompt_fixture.h"

#define N_WORKERS 4u
#define N_KILLS 60u
#define N_OPERATIONS 1500u /* of a worker that is not killed */
#define MAX_HELD 6u
#define MAX_TOKENS 72u
#define N_TRUNKS 3u

struct held {
	paged_seq_id seq;
	struct prompt prompt; /* its n tokens are written */
};

struct soak {
	struct worker_fixture worker;
	uint64_t random;
	struct held held[MAX_HELD];
	uint32_t n_held, n_shared, n_full;
};

static uint32_t
below(struct soak *soak, uint32_t n)
{
	return (uint32_t)random_below(&soak->random, n);
}

/* Prompts of a small family, so that many of them begin in the same way: some tokens of a trunk, then of a branch. */
static struct prompt
any_prompt(struct soak *soak)
{
	struct prompt trunk = prompt_make(below(soak, N_TRUNKS), MAX_TOKENS);
	uint32_t n = 1 + below(soak, MAX_TOKENS), at = below(soak, n + 1);

	if (below(soak, 2) == 0)
		at = at / WORKER_PAGE_SIZE * WORKER_PAGE_SIZE;
	return prompt_diverge(&trunk, at, 1000 + below(soak, 3), n);
}

static void
held_erase(struct soak *soak, uint32_t i)
{
	worker_ok(&soak->worker, paged_seq_erase(soak->worker.client, 1, &soak->held[i].seq));
	soak->held[i] = soak->held[--soak->n_held];
}

static void
held_add(struct soak *soak, paged_seq_id seq, const struct prompt *prompt)
{
	soak->held[soak->n_held++] = (struct held){ seq, *prompt };
}

/* PAGED_OK or PAGED_ERR_FULL; on FULL the worker gives a sequence back. */
static bool
succeeded(struct soak *soak, enum paged_status status)
{
	it_require(status == PAGED_OK || status == PAGED_ERR_FULL, "%s", paged_client_error(soak->worker.client));
	soak->n_full += status == PAGED_ERR_FULL;
	if (status == PAGED_ERR_FULL && soak->n_held > 0)
		held_erase(soak, below(soak, soak->n_held));
	return status == PAGED_OK;
}

static void
do_start(struct soak *soak)
{
	struct prompt prompt = any_prompt(soak);
	struct paged_prefix prefix = prompt_prefix(&prompt, prompt.n);
	struct paged_start start = { .prefix = &prefix, .max_tokens = below(soak, 3) * 20, .reserve = prompt.n };
	struct worker_fixture *worker = &soak->worker;
	uint32_t n_shared;
	paged_seq_id seq;

	if (!succeeded(soak, paged_seq_start(worker->pool, 1, &start, &seq, &n_shared)))
		return;
	soak->n_shared += n_shared > 0;
	prompt_verify(worker, seq, &prompt, n_shared);
	prompt_write(worker, seq, &prompt, n_shared, prompt.n);
	held_add(soak, seq, &prompt);
}

static void
do_publish(struct soak *soak, struct held *held)
{
	struct paged_prefix prefix = prompt_prefix(&held->prompt, below(soak, held->prompt.n + 1));

	worker_ok(&soak->worker,
		  paged_seq_publish(soak->worker.pool, 1, &(struct paged_publish){ held->seq, &prefix }));
}

static void
do_fork(struct soak *soak, const struct held *held)
{
	struct prompt prompt = held->prompt;
	paged_seq_id child;

	prompt.n = below(soak, prompt.n + 1);
	if (succeeded(soak, paged_batch_fork(soak->worker.batch, 1, &held->seq, &prompt.n, &child)))
		held_add(soak, child, &prompt);
}

/* Other tokens from the first one on that can be written. */
static void
do_append(struct soak *soak, struct held *held)
{
	uint32_t from = held->prompt.n, n = from + 1 + below(soak, 20);
	struct worker_fixture *worker = &soak->worker;

	if (n > MAX_TOKENS || prompt_info(worker, held->seq, NULL).writable_from > from)
		return;
	held->prompt = prompt_diverge(&held->prompt, from, 2000 + below(soak, 2), n);
	held->prompt.n = from;
	if (!succeeded(soak, seqs_reserve(worker->client, 1, &held->seq, &n)))
		return;
	held->prompt.n = n;
	prompt_write(worker, held->seq, &held->prompt, from, n);
}

static void
do_truncate(struct soak *soak, struct held *held)
{
	held->prompt.n = below(soak, held->prompt.n + 1);
	worker_ok(&soak->worker, seqs_truncate(soak->worker.client, 1, &held->seq, &held->prompt.n));
}

static void
do_evict(struct soak *soak)
{
	uint32_t n;

	worker_ok(&soak->worker, paged_admin_evict(soak->worker.client, "test", 1 + below(soak, 8), &n));
}

/* A pin may find its pages evicted, or the limit reached. */
static void
do_pin(struct soak *soak)
{
	struct prompt prompt = any_prompt(soak);
	struct paged_prefix prefix = prompt_prefix(&prompt, prompt.n);
	enum paged_status status = paged_prefix_pin(soak->worker.pool, &prefix, below(soak, 3), NULL);

	it_require(status == PAGED_OK || status == PAGED_ERR_LIMIT || status == PAGED_ERR_STALE, "%s",
		   paged_client_error(soak->worker.client));
}

static void
soak_operation(struct soak *soak)
{
	uint32_t kind = below(soak, 16);
	struct held *held = soak->n_held > 0 ? &soak->held[below(soak, soak->n_held)] : NULL;

	if (held == NULL || (kind < 4 && soak->n_held < MAX_HELD))
		do_start(soak);
	else if (kind < 6)
		do_publish(soak, held);
	else if (kind < 8 && soak->n_held < MAX_HELD)
		do_fork(soak, held);
	else if (kind < 10)
		do_append(soak, held);
	else if (kind == 10)
		do_truncate(soak, held);
	else if (kind == 11)
		do_evict(soak);
	else if (kind == 12)
		do_pin(soak);
	else if (kind == 13 || soak->n_held == MAX_HELD)
		held_erase(soak, (uint32_t)(held - soak->held));
	else
		prompt_verify(&soak->worker, held->seq, &held->prompt, held->prompt.n);
}

static void
soak_worker(int from, int to, void *argument)
{
	struct soak soak = { .random = *(uint64_t *)argument };
	char word;

	worker_open(&soak.worker, NULL, 0);
	for (uint32_t i = 0; i < N_OPERATIONS; i++)
		soak_operation(&soak);
	for (uint32_t i = 0; i < soak.n_held; i++)
		prompt_verify(&soak.worker, soak.held[i].seq, &soak.held[i].prompt, soak.held[i].prompt.n);
	it_note("%u starts shared pages, %u requests found the pool full", soak.n_shared, soak.n_full);
	it_send(to, "e", 1);
	it_receive(from, &word, 1);
	worker_close(&soak.worker);
}

/* Unlike worker_check_pool(), this needs no moment without a change. */
static void
check_while_changing(struct worker_fixture *observer)
{
	struct paged_check_result result = { .struct_size = sizeof(result) };

	worker_ok(observer, paged_admin_check(observer->client, "test", &result));
	it_require(result.holds == 1, "%s", result.text);
}

IT_TEST(random_use_with_kills)
{
	struct it_worker children[N_WORKERS];
	uint64_t random = test_seed(), seeds = 0;
	struct worker_fixture observer;
	struct paged_pool_entry pool;
	struct it_daemon daemon;
	char word;
	uint32_t n;

	it_daemon_start(&daemon,
			"pool test {\n" WORKER_POOL_SHAPE
			"\n" POOL_SIZES(WORKER_PAGE_SIZE, 160, 32, WORKER_MAX_LENGTH) "\n}\n",
			NULL, NULL);
	worker_observe(&observer);
	for (uint32_t i = 0; i < N_WORKERS; i++)
		it_fork(&children[i], soak_worker, &(uint64_t){ random_bits(random, seeds++) });
	for (uint32_t i = 0; i < N_KILLS; i++) {
		uint32_t k = (uint32_t)random_below(&random, N_WORKERS);

		usleep((useconds_t)random_below(&random, 40000));
		it_require(waitpid(children[k].pid, NULL, WNOHANG) == 0, "worker %u has failed", k);
		it_kill(&children[k]);
		it_fork(&children[k], soak_worker, &(uint64_t){ random_bits(random, seeds++) });
		check_while_changing(&observer);
	}
	for (uint32_t i = 0; i < N_WORKERS; i++) {
		it_receive(children[i].from, &word, 1);
		it_send(children[i].to, "c", 1);
		it_join(&children[i]);
	}
	prompt_wait_unused(&observer);
	worker_check_pool(&observer);
	pool = worker_pool_entry(&observer, "test");
	it_note("%llu starts, %llu tokens found of %llu, %llu pages published, %llu evicted",
		(unsigned long long)pool.n_starts, (unsigned long long)pool.n_tokens_found,
		(unsigned long long)pool.n_tokens_asked, (unsigned long long)pool.n_published,
		(unsigned long long)pool.n_evicted);
	it_require(pool.n_tokens_found > 0 && pool.n_evicted > 0);
	worker_ok(&observer, paged_admin_evict(observer.client, "test", 0, &n));
	worker_wait_free(&observer, "test");
	worker_close(&observer);
	it_daemon_stop(&daemon);
}

#define N_PUBLISHED 40u
#define N_QUERIES 3000u
#define SHORT_TOKENS 32u

/* How many tokens of the prompt, in whole pages, one of the published prompts begins with. */
static uint32_t
longest_common(const struct prompt *all, uint32_t n_all, const struct prompt *prompt)
{
	uint32_t longest = 0;

	for (uint32_t i = 0; i < n_all; i++) {
		uint32_t n = 0;

		while (n < prompt->n && n < all[i].n && all[i].tokens[n] == prompt->tokens[n])
			n++;
		n = n / WORKER_PAGE_SIZE * WORKER_PAGE_SIZE;
		longest = n > longest ? n : longest;
	}
	return longest;
}

/* A variant of a published prompt: a token changed, two pages exchanged, a page repeated, shifted, cut. */
static struct prompt
variant(struct soak *soak, const struct prompt *of)
{
	uint32_t a = below(soak, of->n), p = below(soak, 8) * WORKER_PAGE_SIZE, q = below(soak, 8) * WORKER_PAGE_SIZE;
	const size_t page = WORKER_PAGE_SIZE * sizeof(of->tokens[0]);
	struct prompt prompt = *of;

	switch (below(soak, 6)) {
	case 0:
		prompt.tokens[a] += 1 + below(soak, 3);
		break;
	case 1:
		memcpy(prompt.tokens + p, of->tokens + q, page);
		memcpy(prompt.tokens + q, of->tokens + p, page);
		break;
	case 2:
		memcpy(prompt.tokens + p, of->tokens + q, page);
		break;
	case 3:
		memmove(prompt.tokens, prompt.tokens + WORKER_PAGE_SIZE, of->n * sizeof(of->tokens[0]) - page);
		break;
	case 4:
		memmove(prompt.tokens, prompt.tokens + 1, (of->n - 1) * sizeof(of->tokens[0]));
		break;
	default:
		prompt.n = a;
	}
	return prompt;
}

/*
 * Mooncake #4153: partial hits returned K and V of other prompts.  The pool is small, so buckets of the index have many
 * nodes of different prefixes; a search finds exactly what a comparison of tokens finds.
 */
IT_TEST(matches_are_exact)
{
	static struct prompt all[N_PUBLISHED];
	struct soak soak = { .random = test_seed() };
	struct worker_fixture *worker = &soak.worker;
	struct it_daemon daemon;
	uint32_t n_shared, n_partial = 0;

	it_daemon_start(&daemon,
			"pool test {\n" WORKER_POOL_SHAPE
			"\n" POOL_SIZES(WORKER_PAGE_SIZE, 512, 64, WORKER_MAX_LENGTH) "\n}\n",
			NULL, NULL);
	worker_open(worker, NULL, 0);
	for (uint32_t i = 0; i < N_PUBLISHED; i++) {
		/* Each is new, or a variant of one before. */
		all[i] = i % 4 == 0 ? prompt_make(i, SHORT_TOKENS) : variant(&soak, &all[below(&soak, i)]);
		if (all[i].n < SHORT_TOKENS)
			all[i] = prompt_diverge(&all[i], all[i].n, i, SHORT_TOKENS);
		prompt_compute(worker, &all[i]);
	}
	for (uint32_t i = 0; i < N_QUERIES; i++) {
		struct prompt prompt = variant(&soak, &all[below(&soak, N_PUBLISHED)]);
		uint32_t wanted = longest_common(all, N_PUBLISHED, &prompt);
		paged_seq_id seq = prompt_start(worker, &prompt, &n_shared);

		it_require(n_shared == wanted, "%u tokens are shared, %u are common", n_shared, wanted);
		n_partial += n_shared > 0 && n_shared + WORKER_PAGE_SIZE <= prompt.n;
		prompt_verify(worker, seq, &prompt, n_shared);
		worker_ok(worker, paged_seq_erase(worker->client, 1, &seq));
	}
	it_note("%u of %u starts shared a part", n_partial, N_QUERIES);
	it_require(n_partial > N_QUERIES / 10);
	worker_check_pool(worker);
	worker_close(worker);
	it_daemon_stop(&daemon);
}

IT_MAIN
