/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/options.h"

#include "config.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_EMBEDDED_PAGES 1024u
#define DEFAULT_ROUNDS 3u

enum {
	OPTION_MODEL = 256,
	OPTION_RUNTIME_DIR,
	OPTION_POOL,
	OPTION_EMBEDDED,
	OPTION_DTYPE,
	OPTION_PROMPT,
	OPTION_PROMPTS,
	OPTION_CHAT,
	OPTION_WORKERS,
	OPTION_MAX_TOKENS,
	OPTION_MAX_RUNNING,
	OPTION_THREADS,
	OPTION_BACKEND,
	OPTION_VERIFY,
	OPTION_COMPARE,
	OPTION_REPORT,
	OPTION_KILL,
	OPTION_PRINT_GEOMETRY,
	OPTION_HELP,
	OPTION_VERSION
};

static const struct option long_options[] = {
	{ "model", required_argument, NULL, OPTION_MODEL },
	{ "runtime-dir", required_argument, NULL, OPTION_RUNTIME_DIR },
	{ "pool", required_argument, NULL, OPTION_POOL },
	{ "embedded", optional_argument, NULL, OPTION_EMBEDDED },
	{ "dtype", required_argument, NULL, OPTION_DTYPE },
	{ "backend", required_argument, NULL, OPTION_BACKEND },
	{ "prompt", required_argument, NULL, OPTION_PROMPT },
	{ "prompts", required_argument, NULL, OPTION_PROMPTS },
	{ "chat", no_argument, NULL, OPTION_CHAT },
	{ "workers", required_argument, NULL, OPTION_WORKERS },
	{ "max-tokens", required_argument, NULL, OPTION_MAX_TOKENS },
	{ "max-running", required_argument, NULL, OPTION_MAX_RUNNING },
	{ "threads", required_argument, NULL, OPTION_THREADS },
	{ "verify", no_argument, NULL, OPTION_VERIFY },
	{ "compare", optional_argument, NULL, OPTION_COMPARE },
	{ "report", required_argument, NULL, OPTION_REPORT },
	{ "kill", required_argument, NULL, OPTION_KILL },
	{ "print-geometry", no_argument, NULL, OPTION_PRINT_GEOMETRY },
	{ "help", no_argument, NULL, OPTION_HELP },
	{ "version", no_argument, NULL, OPTION_VERSION },
	{ 0 },
};

static const char help[] =
	"usage: paged-llama [options]\n"
	"Answers prompts with a Llama-architecture model whose K and V live in a pool of pagedd.\n"
	"\n"
	"  --model FILE         GGUF file (default: $PAGED_MODEL)\n"
	"  --runtime-dir DIR    where pagedd listens (default: $PAGED_RUNTIME_DIR, else /run/paged)\n"
	"  --pool NAME          pool to use (default: llama)\n"
	"  --embedded[=PAGES]   no daemon: a pool of this process's own (default: 1024 pages)\n"
	"  --dtype NAME         what that pool keeps: f32, f16, bf16, e4m3, e5m2 or i8 (default: f16)\n"
	"  --backend NAME       where that pool lies: host or cuda, a GPU's memory (default: host)\n"
	"  --prompt TEXT        a prompt; may be repeated\n"
	"  --prompts FILE       one prompt a line\n"
	"  --chat               talk in the terminal\n"
	"  --workers N          N processes share the prompts out\n"
	"  --max-tokens N       longest answer (default: 256)\n"
	"  --max-running N      answers that a process writes at once (default: 8)\n"
	"  --threads N          threads of a process (default: 1)\n"
	"  --verify             answer again on a private cache with plain attention, and compare\n"
	"  --compare[=N]        then time the prompts N times (default: 3) in turn with a private cache\n"
	"  --report FILE        append a line of JSON for each process\n"
	"  --kill N             show a death: SIGKILL worker N in mid-answer, watch its pages\n"
	"  --print-geometry     print the pool section of pagedd.conf for the model\n"
	"  --help, --version\n"
	"\n"
	"Exit status: 0 done, 1 failed, 2 wrong options, 3 answers differ (--verify).\n";

static bool
parse_number(const char *name, const char *text, uint32_t min, uint32_t max, uint32_t *value_p, struct error *error)
{
	char *end;
	unsigned long value;

	errno = 0;
	value = strtoul(text, &end, 10);
	if (errno != 0 || *text < '0' || *text > '9' || *end != '\0' || value < min || value > max)
		return error_set(error, "--%s %s: a number from %u to %u is expected", name, text, min, max);
	*value_p = (uint32_t)value;
	return true;
}

static enum paged_dtype
parse_dtype(const char *text)
{
	static const struct {
		const char *name;
		enum paged_dtype dtype;
	} names[] = { { "f32", PAGED_F32 },   { "f16", PAGED_F16 },   { "bf16", PAGED_BF16 },
		      { "e4m3", PAGED_E4M3 }, { "e5m2", PAGED_E5M2 }, { "i8", PAGED_I8 } };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(text, names[i].name) == 0)
			return names[i].dtype;
	return PAGED_DTYPE_NONE;
}

static bool
add_prompt(struct options *options, const char *text, struct error *error)
{
	char **prompts = realloc(options->prompts, (options->n_prompts + 1) * sizeof(*prompts));

	if (prompts != NULL) {
		options->prompts = prompts;
		prompts[options->n_prompts] = strdup(text);
	}
	if (prompts == NULL || prompts[options->n_prompts] == NULL)
		return error_set(error, "no memory for %zu prompts", options->n_prompts + 1);
	options->n_prompts++;
	return true;
}

static bool
read_prompts(struct options *options, const char *path, struct error *error)
{
	FILE *file = fopen(path, "r");
	char *line = NULL;
	size_t size = 0, before = options->n_prompts;
	ssize_t n;
	bool ok = true;

	if (file == NULL)
		return error_set(error, "--prompts %s: %s", path, strerror(errno));
	while (ok && (n = getline(&line, &size, file)) >= 0) {
		if (n > 0 && line[n - 1] == '\n')
			line[--n] = '\0';
		if (memchr(line, '\0', (size_t)n) != NULL)
			ok = error_set(error, "--prompts %s: prompt %zu has a zero byte", path,
				       options->n_prompts - before + 1);
		else if (n > 0)
			ok = add_prompt(options, line, error);
	}
	if (ok && ferror(file))
		ok = error_set(error, "--prompts %s: %s", path, strerror(errno));
	if (ok && options->n_prompts == before)
		ok = error_set(error, "--prompts %s: no prompt in it", path);
	free(line);
	fclose(file);
	return ok;
}

static bool
take(struct options *options, int option, const char *value, struct error *error)
{
	switch (option) {
	case OPTION_MODEL:
		options->model = value;
		return true;
	case OPTION_RUNTIME_DIR:
		options->runtime_dir = value;
		return true;
	case OPTION_POOL:
		options->pool = value;
		return true;
	case OPTION_EMBEDDED:
		options->embedded_pages = DEFAULT_EMBEDDED_PAGES;
		return value == NULL || parse_number("embedded", value, 1, 1u << 24, &options->embedded_pages, error);
	case OPTION_DTYPE:
		options->dtype = parse_dtype(value);
		return options->dtype != PAGED_DTYPE_NONE ||
		       error_set(error, "--dtype %s: f32, f16, bf16, e4m3, e5m2 or i8 is expected", value);
	case OPTION_BACKEND:
		options->backend = value;
		return strcmp(value, "host") == 0 || strcmp(value, "cuda") == 0 ||
		       error_set(error, "--backend %s: host or cuda is expected", value);
	case OPTION_PROMPT:
		return add_prompt(options, value, error);
	case OPTION_PROMPTS:
		return read_prompts(options, value, error);
	case OPTION_CHAT:
		options->chat = true;
		return true;
	case OPTION_WORKERS:
		return parse_number("workers", value, 1, 256, &options->n_workers, error);
	case OPTION_MAX_TOKENS:
		return parse_number("max-tokens", value, 1, 1u << 24, &options->max_tokens, error);
	case OPTION_MAX_RUNNING:
		return parse_number("max-running", value, 1, 64, &options->max_running, error);
	case OPTION_THREADS:
		return parse_number("threads", value, 1, 256, &options->n_threads, error);
	case OPTION_VERIFY:
		options->verify = true;
		return true;
	case OPTION_COMPARE:
		options->compare = DEFAULT_ROUNDS;
		return value == NULL || parse_number("compare", value, 1, OPTIONS_MAX_ROUNDS, &options->compare, error);
	case OPTION_REPORT:
		options->report = value;
		return true;
	case OPTION_KILL:
		options->kill = true;
		return parse_number("kill", value, 0, 255, &options->victim, error);
	case OPTION_PRINT_GEOMETRY:
		options->print_geometry = true;
		return true;
	}
	return error_set(error, "see paged-llama --help");
}

/* What does not go together. */
static bool
check(const struct options *options, struct error *error)
{
	if (options->model == NULL)
		return error_set(error,
				 "no model: give --model FILE or set PAGED_MODEL (tools/fetch-model prints one)");
	if (options->print_geometry)
		return true;
	if (options->chat && (options->n_prompts > 0 || options->n_workers > 0 || options->verify || options->report))
		return error_set(error, "--chat stands alone: no prompts, --workers, --verify or --report");
	if (!options->chat && options->n_prompts == 0)
		return error_set(error, "nothing to answer: give --prompt, --prompts or --chat");
	if (options->compare > 0 && (options->chat || options->n_workers > 0))
		return error_set(error, "--compare times one process alone: no --chat or --workers");
	if (options->n_workers > options->n_prompts)
		return error_set(error, "%zu prompts for %u workers: each needs one", options->n_prompts,
				 options->n_workers);
	if (options->kill && options->victim >= options->n_workers)
		return error_set(error, "--kill %u: there are %u workers, from 0", options->victim, options->n_workers);
	if (options->dtype != PAGED_DTYPE_NONE && options->embedded_pages == 0)
		return error_set(error, "--dtype is of --embedded; a daemon's pool says its own");
	if (options->backend != NULL && options->embedded_pages == 0)
		return error_set(error, "--backend is of --embedded; a daemon's pool says its own");
	if (options->n_workers > 1 && options->embedded_pages > 0)
		return error_set(error, "--embedded is for one process; several workers share a daemon's pool");
	return true;
}

enum options_outcome
options_parse(int argc, char **argv, struct options *options, struct error *error)
{
	int option;

	*options = (struct options){
		.model = getenv("PAGED_MODEL"), .pool = "llama", .n_threads = 1, .max_tokens = 256, .max_running = 8
	};
	while ((option = getopt_long(argc, argv, "", long_options, NULL)) >= 0) {
		if (option == OPTION_HELP || option == OPTION_VERSION) {
			fputs(option == OPTION_HELP ? help : "paged-llama " PACKAGE_VERSION "\n", stdout);
			return OPTIONS_SHOWN;
		}
		if (!take(options, option, optarg, error))
			return OPTIONS_WRONG;
	}
	if (optind < argc) {
		error_set(error, "%s: not an option; see paged-llama --help", argv[optind]);
		return OPTIONS_WRONG;
	}
	return check(options, error) ? OPTIONS_RUN : OPTIONS_WRONG;
}

void
options_free(struct options *options)
{
	for (size_t i = 0; i < options->n_prompts; i++)
		free(options->prompts[i]);
	free(options->prompts);
}
