/* SPDX-License-Identifier: Apache-2.0 */
/* Shares of the cache: one tenant publishes and gives back the pool 20 times over; the other's prefix stays. */
#include "config.h"

#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/worker_fixture.h"
#include "tests/system/prompt_fixture.h"

/* Users need no name. */
#define SELLER 61001u
#define READER 61002u
#define N_PAGES 64
#define PREFIX 65u /* tokens of the reader's prompt: 16 whole pages */
#define ROUND 32u  /* tokens of each of the seller's: 8 pages */

#define POOL                                                               \
	"allow-user = { 61001, 61002 }\n"                                  \
	"pool test {\n" WORKER_POOL_SHAPE                                  \
	"\n" POOL_SIZES(WORKER_PAGE_SIZE, N_PAGES, WORKER_SLOTS, 128) "\n" \
								      "free-pages = 0 }\n"
#define TENANTS(share)                                                      \
	"tenant seller { allow-user = 61001 limit test = 60% " share " }\n" \
	"tenant reader { allow-user = 61002 limit test = 30% }\n"

static void
become(uint32_t uid)
{
	gid_t group = uid;

	it_require(setgroups(1, &group) == 0 && setgid(uid) == 0 && setuid(uid) == 0, "%m");
}

static void
publish_and_erase(struct worker_fixture *worker, const struct prompt *prompt)
{
	paged_seq_id seq = prompt_compute(worker, prompt);

	worker_ok(worker, paged_seq_erase(worker->client, 1, &seq));
}

/* Publishes its prompt, waits, and reports how many of its tokens are still found. */
static void
reader(int from, int to, void *argument)
{
	const struct prompt prompt = prompt_make(1, PREFIX);
	struct worker_fixture worker;
	uint32_t n_shared = 0;
	char word = 0;

	(void)argument;
	become(READER);
	worker_open(&worker, NULL, 0);
	publish_and_erase(&worker, &prompt);
	it_send(to, &word, 1);
	it_receive(from, &word, 1);
	prompt_start(&worker, &prompt, &n_shared);
	it_send(to, &n_shared, sizeof(n_shared));
	worker_close(&worker);
}

static void
seller(int from, int to, void *argument)
{
	struct worker_fixture worker;

	(void)from, (void)to, (void)argument;
	become(SELLER);
	worker_open(&worker, NULL, 0);
	for (uint32_t i = 0; i < 20 * N_PAGES * WORKER_PAGE_SIZE / ROUND; i++) {
		const struct prompt prompt = prompt_make(100 + i, ROUND);

		publish_and_erase(&worker, &prompt);
	}
	worker_close(&worker);
}

/* Returns how many tokens of the reader's prefix are found when the seller is done. */
static uint32_t
run(const char *tenants, struct paged_quota_entry quotas[2])
{
	char config[1024], word = 0;
	struct worker_fixture observer;
	struct paged_quota_entry *list;
	struct it_worker readers, sellers;
	struct it_daemon daemon;
	uint32_t n_shared;
	size_t n;

	if (geteuid() != 0)
		it_skip("needs root to become other users");
	snprintf(config, sizeof(config), "%s%s", POOL, tenants);
	it_daemon_start(&daemon, config, NULL, NULL);
	it_require(chmod(daemon.dir, 0755) == 0, "%m");
	it_fork(&readers, reader, NULL);
	it_receive(readers.from, &word, 1);
	it_fork(&sellers, seller, NULL);
	it_join(&sellers);
	worker_observe(&observer);
	worker_ok(&observer, paged_admin_quotas(observer.client, sizeof(*list), &list, &n));
	it_require(n == 2, "%zu", n);
	memcpy(quotas, list, 2 * sizeof(*list));
	paged_free(list);
	worker_check_pool(&observer);
	worker_close(&observer);
	it_send(readers.to, &word, 1);
	it_receive(readers.from, &n_shared, sizeof(n_shared));
	it_join(&readers);
	it_daemon_stop(&daemon);
	return n_shared;
}

IT_TEST(prefix_of_another_tenant_stays)
{
	struct paged_quota_entry quotas[2];
	uint32_t n_shared = run(TENANTS("cache-share test = 25%"), quotas);

	it_require(n_shared == PREFIX - 1, "%u of %u tokens are found", n_shared, PREFIX - 1);
	it_require(quotas[0].shared && quotas[0].cache_share == N_PAGES / 4 && quotas[0].n_cached >= N_PAGES / 4 &&
			   quotas[1].n_cached == (PREFIX - 1) / WORKER_PAGE_SIZE,
		   "%u of %u, %u", quotas[0].n_cached, quotas[0].cache_share, quotas[1].n_cached);
}

/* The default share is the limit. */
IT_TEST(limit_is_a_share_too)
{
	struct paged_quota_entry quotas[2];
	uint32_t n_shared = run(TENANTS(""), quotas);

	it_require(n_shared == PREFIX - 1, "%u of %u tokens are found", n_shared, PREFIX - 1);
	it_require(quotas[0].shared && quotas[0].cache_share == quotas[0].limit &&
		   quotas[0].limit == N_PAGES * 60 / 100);
}

/* With all of the cache as its share, the tenant displaces what others published. */
IT_TEST(without_a_share_nothing_stays)
{
	struct paged_quota_entry quotas[2];

	it_require(run(TENANTS("cache-share test = 100%"), quotas) == 0);
}

IT_MAIN
