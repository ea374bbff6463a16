/* SPDX-License-Identifier: Apache-2.0 */
/* paged-llama: parses options, then runs one of its modes. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "examples/llama/die.h"
#include "examples/llama/options.h"
#include "examples/llama/pipeline.h"
#include "examples/llama/repl.h"
#include "examples/llama/share_demo.h"
#include "examples/llama/split_demo.h"
#include "examples/llama/token_lines.h"
#include "examples/llama/workers.h"

static void
print_geometry(const struct options *options)
{
	struct pipeline pipeline = { 0 };

	pipeline_load(&pipeline, options, false);
	printf("pool %s {\n    layers = %u\n    kv-heads = %u\n    head-dim = %u\n    dtype = f16\n"
	       "    page-size = 16\n    max-length = %u\n",
	       options->pool, pipeline.model->n_layers, pipeline.model->n_kv_heads, pipeline.model->head_dim,
	       pipeline.model->n_context);
	if (options->backend != NULL)
		printf("    backend = %s\n", options->backend);
	puts("}");
	pipeline_destroy(&pipeline);
}

static int
answer_prompts(const struct options *options)
{
	static const char *const verdicts[] = { "", ", equal to a private cache", ", NOT equal to a private cache" };
	struct report report = { 0 };
	int status = worker_run(options, 0, NULL, &report);

	fprintf(stderr,
		"%llu tokens in %.2f s (%.1f tokens/s), first after %.2f s, %llu found in the cache, %u pages%s\n",
		(unsigned long long)report.n_tokens, report.seconds, (double)report.n_tokens / report.seconds,
		report.first_token_s, (unsigned long long)report.n_found_tokens, report.peak_pages,
		verdicts[report.verdict]);
	return status;
}

/* Opens /dev/null for descriptors 0 to 2 that are closed: else messages would go into the control socket. */
static void
open_standard_fds(void)
{
	int fd = STDIN_FILENO;

	while (fd >= 0 && fd <= STDERR_FILENO)
		fd = open("/dev/null", O_RDONLY); /* the lowest that is free */
	if (fd >= 0)
		close(fd);
}

int
main(int argc, char **argv)
{
	struct options options;
	int status = EXIT_ANSWERED;

	open_standard_fds();
	options_parse(argc, argv, &options);
	if (options.print_geometry)
		print_geometry(&options);
	else if (options.chat)
		repl_run(&options);
	else if (options.token_lines)
		token_lines_run(&options);
	else if (options.share)
		status = share_demo_run(&options);
	else if (options.split_interval_ms > 0)
		status = split_demo_run(&options);
	else if (options.n_workers > 0)
		status = workers_run(&options);
	else
		status = answer_prompts(&options);
	options_free(&options);
	return status;
}
