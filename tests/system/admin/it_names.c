/* SPDX-License-Identifier: Apache-2.0 */
/* Names that would reorder or hide parts of the lists that show them. */
#include "config.h"

#include <string.h>

#include "tests/support/worker_fixture.h"

#define OVERRIDE "\xe2\x80\xae" /* U+202E right-to-left override */
#define JOINER "\xe2\x80\x8d"   /* U+200D zero width joiner */

static const char *const invisible[] = {
	OVERRIDE, JOINER, "\xd8\x9c", "\xe2\x80\x8f", "\xe2\x81\xa6", "\xe2\x80\xa8",
};
enum { N_INVISIBLE = sizeof(invisible) / sizeof(invisible[0]) };

static void
expect_visible(const char *text)
{
	for (int i = 0; i < N_INVISIBLE; i++)
		it_require(strstr(text, invisible[i]) == NULL, "%d: %s", i, text);
}

/* Runs pagedctl, which must print neither an invisible character nor leave out the word. */
static void
expect_listed(const char *command, const char *json, const char *word)
{
	const char *output;
	int code;

	output = json != NULL ? it_pagedctl(&code, json, command, NULL) : it_pagedctl(&code, command, NULL);
	it_require(code == 0 && strstr(output, word) != NULL, "%d: %s", code, output);
	expect_visible(output);
}

IT_TEST(names_of_members)
{
	struct worker_fixture worker;
	struct it_daemon daemon;
	char name[64] = "w";

	for (int i = 0; i < N_INVISIBLE; i++)
		strcat(name, invisible[i]);
	strcat(name, "x");
	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	worker_open(&worker,
		    &(struct paged_client_params){ .struct_size = sizeof(struct paged_client_params), .name = name },
		    0);
	worker_create_seq(&worker, 4);
	expect_listed("sessions", NULL, "w?????");
	expect_listed("sessions", "--json", "w?????");
	expect_listed("sequences", NULL, "w?????");
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

IT_TEST(tags_of_sequences)
{
	struct worker_fixture worker;
	struct it_daemon daemon;
	paged_seq_id seq;

	it_daemon_start(&daemon, worker_pool_config, NULL, NULL);
	worker_open(&worker, NULL, 0);
	for (int i = 0; i < N_INVISIBLE; i++) {
		struct paged_seq_params params = { .pool = worker.pool, .tag = invisible[i], .n_tokens = 4 };

		worker_expect(&worker, paged_seq_create(worker.client, 1, &params, &seq), PAGED_ERR_INVALID);
		it_require(strstr(paged_client_error(worker.client), "without control characters and invisible ones"),
			   "%s", paged_client_error(worker.client));
	}
	worker_close(&worker);
	it_daemon_stop(&daemon);
}

/* In the configuration: a model's name, and the name of a pool. */
IT_TEST(names_in_the_configuration)
{
	struct it_daemon daemon;
	const char *output;

	output = it_daemon_start_failing(&daemon, "pool p { layers = 1 kv-heads = 1 head-dim = 16 pages = 4\n"
						  "model = \"a" OVERRIDE "b\" }\n");
	it_require(strstr(output, ":2: pool p: model: no printable UTF-8 at byte 1\n") != NULL, "%s", output);
	output = it_daemon_start_failing(&daemon, "pool p" OVERRIDE " { layers = 1 }\n");
	expect_visible(output);
	output = it_daemon_start_failing(&daemon, "pool p { layers = " OVERRIDE "1 }\n");
	expect_visible(output);
}

IT_MAIN
