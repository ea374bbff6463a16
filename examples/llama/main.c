/* SPDX-License-Identifier: Apache-2.0 */
/* paged-llama: options, then one of four things. */
#include <stdio.h>

#include "examples/llama/converse.h"
#include "examples/llama/options.h"
#include "examples/llama/setup.h"
#include "examples/llama/workers.h"

static int
fail(const struct error *error, int status)
{
	fprintf(stderr, "paged-llama: %s\n", error->text);
	return status;
}

static int
print_geometry(const struct options *options)
{
	struct setup setup = { 0 };
	struct error error;
	bool ok = setup_load(&setup, options, false, &error);

	if (ok) {
		printf("pool %s {\n    layers = %u\n    kv-heads = %u\n    head-dim = %u\n    dtype = f16\n"
		       "    page-size = 16\n    max-length = %u\n",
		       options->pool, setup.model->n_layers, setup.model->n_kv_heads, setup.model->head_dim,
		       setup.model->n_context);
		if (options->backend != NULL)
			printf("    backend = %s\n", options->backend);
		puts("}");
	}
	setup_destroy(&setup);
	return ok ? EXIT_ANSWERED : fail(&error, EXIT_FAILED);
}

static int
talk(const struct options *options)
{
	struct setup setup = { 0 };
	struct error error;
	bool ok;

	ok = setup_load(&setup, options, true, &error) && setup_attach(&setup, options, "paged-llama", &error) &&
	     converse(&setup, options, &error);
	setup_destroy(&setup);
	return ok ? EXIT_ANSWERED : fail(&error, EXIT_FAILED);
}

static int
answer(const struct options *options)
{
	static const char *const verdicts[] = { "", ", equal to a private cache", ", NOT equal to a private cache" };
	struct report report = { 0 };
	int status = worker_run(options, 0, NULL, &report);

	if (status != EXIT_FAILED)
		fprintf(stderr, "%llu tokens in %.2f s (%.1f tokens/s), %u pages%s\n",
			(unsigned long long)report.n_tokens, report.seconds, (double)report.n_tokens / report.seconds,
			report.peak_pages, verdicts[report.verdict]);
	return status;
}

int
main(int argc, char **argv)
{
	struct options options;
	struct error error;
	int status = EXIT_ANSWERED;

	switch (options_parse(argc, argv, &options, &error)) {
	case OPTIONS_SHOWN:
		break;
	case OPTIONS_WRONG:
		status = fail(&error, EXIT_WRONG_OPTIONS);
		break;
	case OPTIONS_RUN:
		status = options.print_geometry  ? print_geometry(&options)
			 : options.chat          ? talk(&options)
			 : options.n_workers > 0 ? workers_run(&options)
						 : answer(&options);
		break;
	}
	options_free(&options);
	return status;
}
