/* SPDX-License-Identifier: Apache-2.0 */
/* The example of a shared prompt: the second process finds what the first one published. */
#include <string.h>

#include "tests/support/geometry.h"
#include "tests/support/harness.h"
#include "tests/support/worker_fixture.h"

static void
run_example(const char *expected)
{
	static const char *const example[] = { "examples/share_prefix", NULL };
	int code;
	const char *output = it_command(&code, example);

	it_require(code == 0 && strcmp(output, expected) == 0, "%s", output);
}

IT_TEST(second_worker_computes_only_the_end)
{
	struct it_daemon daemon;

	it_daemon_start(&daemon,
			"pool llama {\n" LLAMA_POOL_SHAPE "\n"
			"    page-size = 16   size = 64MiB   max-length = 8192\n"
			"}\n",
			NULL, NULL);
	run_example("0 tokens were cached, 0 are shared, 600 were computed\n");
	run_example("592 tokens were cached, 592 are shared, 8 were computed\n");
	run_example("592 tokens were cached, 592 are shared, 8 were computed\n");
	it_daemon_stop(&daemon);
}

/* A pool says whether it publishes, and for which model it is. */
IT_TEST(pools_say_model_and_publish)
{
	struct paged_prefix prefix = { .struct_size = sizeof(prefix), .tokens = (uint32_t[8]){ 0 }, .n_tokens = 8 };
	struct paged_start start = { .prefix = &prefix, .reserve = 8 };
	struct worker_fixture worker;
	struct it_daemon daemon;
	paged_seq_id seq;
	uint32_t n = 7;

	it_daemon_start(&daemon, "pool test { " WORKER_POOL_SETTINGS " publish = no model = \"m@1\" }\n", NULL, NULL);
	worker_open(&worker, NULL, 0);
	it_require(worker.info.publishes == 0 && strcmp(worker.info.model, "m@1") == 0);
	worker_ok(&worker, paged_seq_start(worker.pool, 1, &start, &seq, &n));
	it_require(n == 0);
	worker_expect(&worker,
		      paged_seq_publish(worker.pool, 1, &(struct paged_publish){ .seq = seq, .prefix = &prefix }),
		      PAGED_ERR_UNSUPPORTED);
	worker_expect(&worker, paged_prefix_wait(worker.pool, &prefix, 8, 0), PAGED_ERR_UNSUPPORTED);
	worker_ok(&worker, paged_prefix_match(worker.pool, &prefix, &n));
	worker_close(&worker);
	it_daemon_stop(&daemon);

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	worker_open(&worker, NULL, 0);
	it_require(worker.info.publishes == 1 && worker.info.model[0] == '\0');
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

IT_MAIN
