/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/options.h"

#include "config.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/llama/die.h"
#include "examples/llama/xalloc.h"

enum kind {
	KIND_TEXT,
	KIND_NUMBER,
	KIND_OPTIONAL,
	KIND_DTYPE,
	KIND_PROMPT,
	KIND_PROMPTS,
	KIND_FILE,
	KIND_FLAG,
	KIND_NOT,
	KIND_PRINT
};

static const struct known {
	const char *name;
	enum kind kind;
	size_t at;                   /* offset of its value in struct options */
	uint32_t min, max, fallback; /* for numbers */
} known[] = {
	{ "model", KIND_TEXT, offsetof(struct options, model), 0, 0, 0 },
	{ "runtime-dir", KIND_TEXT, offsetof(struct options, runtime_dir), 0, 0, 0 },
	{ "pool", KIND_TEXT, offsetof(struct options, pool), 0, 0, 0 },
	{ "embedded", KIND_OPTIONAL, offsetof(struct options, embedded_pages), 1, 1u << 24, 1024 },
	{ "dtype", KIND_DTYPE, 0, 0, 0, 0 },
	{ "backend", KIND_TEXT, offsetof(struct options, backend), 0, 0, 0 },
	{ "prompt", KIND_PROMPT, 0, 0, 0, 0 },
	{ "prompts", KIND_PROMPTS, 0, 0, 0, 0 },
	{ "system", KIND_FILE, offsetof(struct options, system), 0, 0, 0 },
	{ "no-prefix-cache", KIND_NOT, offsetof(struct options, prefix_cache), 0, 0, 0 },
	{ "salt", KIND_TEXT, offsetof(struct options, salt), 0, 0, 0 },
	{ "share", KIND_FLAG, offsetof(struct options, share), 0, 0, 0 },
	{ "split", KIND_OPTIONAL, offsetof(struct options, split_interval_ms), 1, 60000, 500 },
	{ "chat", KIND_FLAG, offsetof(struct options, chat), 0, 0, 0 },
	{ "token-lines", KIND_FLAG, offsetof(struct options, token_lines), 0, 0, 0 },
	{ "workers", KIND_NUMBER, offsetof(struct options, n_workers), 1, 256, 0 },
	{ "max-tokens", KIND_NUMBER, offsetof(struct options, max_tokens), 1, 1u << 24, 0 },
	{ "max-running", KIND_NUMBER, offsetof(struct options, max_running), 1, 64, 0 },
	{ "threads", KIND_NUMBER, offsetof(struct options, n_threads), 1, 256, 0 },
	{ "verify", KIND_FLAG, offsetof(struct options, verify), 0, 0, 0 },
	{ "compare", KIND_OPTIONAL, offsetof(struct options, compare_rounds), 1, OPTIONS_MAX_ROUNDS, 3 },
	{ "report", KIND_TEXT, offsetof(struct options, report), 0, 0, 0 },
	{ "kill", KIND_NUMBER, offsetof(struct options, kill_worker), 0, 255, 0 },
	{ "print-geometry", KIND_FLAG, offsetof(struct options, print_geometry), 0, 0, 0 },
	{ "help", KIND_PRINT, 0, 0, 0, 0 },
	{ "version", KIND_PRINT, 0, 0, 0, 0 },
};
#define N_KNOWN (sizeof(known) / sizeof(known[0]))

static const char help[] =
	"usage: paged-llama [options]\n"
	"Answers prompts with a Llama-architecture model whose K and V live in a pool of pagedd.\n"
	"\n"
	"  --model FILE         GGUF file (default: $PAGED_MODEL)\n"
	"  --runtime-dir DIR    where pagedd listens (default: $PAGED_RUNTIME_DIR, else /run/paged)\n"
	"  --pool NAME          pool to use (default: llama)\n"
	"  --embedded[=PAGES]   no daemon: a pool inside this process (default: 1024 pages)\n"
	"  --dtype NAME         elements of that pool: f32, f16, bf16, e4m3, e5m2 or i8 (default: f16)\n"
	"  --backend NAME       memory of that pool: host or cuda (default: host)\n"
	"  --prompt TEXT        a prompt; may be repeated\n"
	"  --prompts FILE       one prompt per line\n"
	"  --system FILE        system prompt (default: that of the model's chat template)\n"
	"  --no-prefix-cache    compute whole prompts, and publish nothing\n"
	"  --salt TEXT          share prefixes only with processes that give the same text\n"
	"  --chat               talk in the terminal\n"
	"  --token-lines        read lines \"MAX_TOKENS ID...\", a prompt each; write answers as lines of JSON\n"
	"  --workers N          N processes, each with a share of the prompts\n"
	"  --max-tokens N       longest answer (default: 256)\n"
	"  --max-running N      answers that a process generates concurrently (default: 8)\n"
	"  --threads N          threads of a process (default: 1)\n"
	"  --verify             answer again on a private cache with plain attention, and compare\n"
	"  --compare[=N]        then time N rounds (default: 3) that alternate with a private cache\n"
	"  --report FILE        append a line of JSON for each process\n"
	"  --kill N             SIGKILL worker N in mid-answer; time until its pages are free\n"
	"  --share              each worker answers alone, then from the prefix cache; compare both\n"
	"  --split[=MS]         a prompt every MS milliseconds (default: 500), answered by N workers that prefill and\n"
	"                       decode, then by one that prefills and gives its sequences to N - 1 that decode\n"
	"  --print-geometry     print the pool section of pagedd.conf for the model\n"
	"  --help, --version\n"
	"\n"
	"Exit status: 0 done, 1 failed, 2 wrong options, 3 answers differ (--verify, --share, --split).\n";

static uint32_t
options_parse_number(const struct known *option, const char *text)
{
	char *end;
	unsigned long value;

	if (text == NULL)
		return option->fallback;
	errno = 0;
	value = strtoul(text, &end, 10);
	if (errno != 0 || *text < '0' || *text > '9' || *end != '\0' || value < option->min || value > option->max)
		die("--%s %s: a number from %u to %u is expected", option->name, text, option->min, option->max);
	return (uint32_t)value;
}

static enum paged_dtype
options_parse_dtype(const char *text)
{
	static const struct {
		const char *name;
		enum paged_dtype dtype;
	} names[] = { { "f32", PAGED_F32 },   { "f16", PAGED_F16 },   { "bf16", PAGED_BF16 },
		      { "e4m3", PAGED_E4M3 }, { "e5m2", PAGED_E5M2 }, { "i8", PAGED_I8 } };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(text, names[i].name) == 0)
			return names[i].dtype;
	die("--dtype %s: f32, f16, bf16, e4m3, e5m2 or i8 is expected", text);
}

static void
options_add_prompt(struct options *options, const char *text)
{
	char *prompt = strdup(text);

	if (prompt == NULL)
		die("no memory for %zu prompts", options->n_prompts + 1);
	options->prompts = xreallocarray(options->prompts, options->n_prompts + 1, sizeof(*options->prompts));
	options->prompts[options->n_prompts++] = prompt;
}

static void
options_read_prompts(struct options *options, const char *path)
{
	FILE *file = fopen(path, "r");
	char *line = NULL;
	size_t size = 0, before = options->n_prompts;
	ssize_t n;

	if (file == NULL)
		die("--prompts %s: %s", path, strerror(errno));
	while ((n = getline(&line, &size, file)) >= 0) {
		if (n > 0 && line[n - 1] == '\n')
			line[--n] = '\0';
		if (memchr(line, '\0', (size_t)n) != NULL)
			die("--prompts %s: prompt %zu has a zero byte", path, options->n_prompts - before + 1);
		if (n > 0)
			options_add_prompt(options, line);
	}
	if (ferror(file))
		die("--prompts %s: %s", path, strerror(errno));
	if (options->n_prompts == before)
		die("--prompts %s: no prompt in it", path);
	free(line);
	fclose(file);
}

/* The text of a file, without newlines at its end. */
static char *
options_read_file(const char *name, const char *path)
{
	FILE *file = fopen(path, "r");
	char *text = NULL;
	size_t size = 0;
	ssize_t n;

	if (file == NULL)
		die("--%s %s: %s", name, path, strerror(errno));
	n = getdelim(&text, &size, '\0', file);
	if (ferror(file))
		die("--%s %s: %s", name, path, strerror(errno));
	if (n > 0 && text[n - 1] == '\0')
		die("--%s %s: it has a zero byte", name, path);
	while (n > 0 && text[n - 1] == '\n')
		text[--n] = '\0';
	if (n <= 0)
		die("--%s %s: it is empty", name, path);
	fclose(file);
	return text;
}

static void
options_set(struct options *options, const struct known *option, const char *value)
{
	void *to = (char *)options + option->at;

	switch (option->kind) {
	case KIND_FLAG:
		*(bool *)to = true;
		break;
	case KIND_NOT:
		*(bool *)to = false;
		break;
	case KIND_TEXT:
		*(const char **)to = value;
		break;
	case KIND_NUMBER:
	case KIND_OPTIONAL:
		*(uint32_t *)to = options_parse_number(option, value);
		break;
	case KIND_DTYPE:
		options->dtype = options_parse_dtype(value);
		break;
	case KIND_PROMPT:
		options_add_prompt(options, value);
		break;
	case KIND_PROMPTS:
		options_read_prompts(options, value);
		break;
	case KIND_FILE:
		free(*(char **)to);
		*(char **)to = options_read_file(option->name, value);
		break;
	case KIND_PRINT:
		fputs(strcmp(option->name, "help") == 0 ? help : "paged-llama " PACKAGE_VERSION "\n", stdout);
		exit(EXIT_ANSWERED);
	}
}

/* Refuse combinations of options that contradict each other. */
static void
options_check(struct options *options)
{
	if (options->backend != NULL && strcmp(options->backend, "host") != 0 && strcmp(options->backend, "cuda") != 0)
		die("--backend %s: host or cuda is expected", options->backend);
	if (options->model == NULL)
		die("no model: give --model FILE or set PAGED_MODEL (tools/fetch-model prints one)");
	if (options->print_geometry)
		return;
	if (options->chat && (options->n_prompts > 0 || options->n_workers > 0 || options->verify || options->report))
		die("--chat excludes prompts, --workers, --verify and --report");
	if (options->token_lines && (options->chat || options->n_prompts > 0 || options->n_workers > 0 ||
				     options->verify || options->report != NULL))
		die("--token-lines excludes --chat, prompts, --workers, --verify and --report");
	if (!options->chat && !options->token_lines && options->n_prompts == 0)
		die("nothing to answer: give --prompt, --prompts, --token-lines or --chat");
	if (options->compare_rounds > 0 && (options->chat || options->token_lines || options->n_workers > 0))
		die("--compare excludes --chat, --token-lines and --workers");
	/* Its rounds read the same prompts again and again. */
	if (options->compare_rounds > 0)
		options->prefix_cache = false;
	if (options->share && (options->n_workers < 2 || options->n_prompts != options->n_workers))
		die("--share needs at least 2 workers and one prompt for each; there are %u and %zu",
		    options->n_workers, options->n_prompts);
	if (options->share && (options->verify || options->report != NULL || !options->prefix_cache ||
			       options->kill_worker != OPTIONS_KILL_NONE))
		die("--share excludes --verify, --report, --no-prefix-cache and --kill");
	if (options->split_interval_ms > 0 && options->n_workers < 2)
		die("--split needs at least 2 workers; there are %u", options->n_workers);
	if (options->split_interval_ms > 0 && (options->share || options->verify || options->report != NULL))
		die("--split excludes --share, --verify and --report");
	if (options->split_interval_ms > 0 && options->kill_worker != OPTIONS_KILL_NONE && options->kill_worker != 0)
		die("--kill %u: --split kills only worker 0, which prefills", options->kill_worker);
	/* Both arrangements compute whole prompts. */
	if (options->split_interval_ms > 0)
		options->prefix_cache = false;
	if (options->n_workers > options->n_prompts)
		die("%zu prompts for %u workers: each worker needs one", options->n_prompts, options->n_workers);
	if (options->kill_worker != OPTIONS_KILL_NONE && options->kill_worker >= options->n_workers)
		die("--kill %u: there are %u workers, from 0", options->kill_worker, options->n_workers);
	if (options->embedded_pages == 0 && (options->dtype != PAGED_DTYPE_NONE || options->backend != NULL))
		die("--%s needs --embedded; a daemon's pool has its own",
		    options->dtype != PAGED_DTYPE_NONE ? "dtype" : "backend");
	if (options->n_workers > 1 && options->embedded_pages > 0)
		die("--embedded is for one process; several workers share a daemon's pool");
}

void
options_parse(int argc, char **argv, struct options *options)
{
	struct option long_options[N_KNOWN + 1] = { 0 };
	int option;

	for (size_t i = 0; i < N_KNOWN; i++) {
		bool alone = known[i].kind >= KIND_FLAG, optional = known[i].kind == KIND_OPTIONAL;

		long_options[i] = (struct option){ .name = known[i].name, .val = (int)i };
		long_options[i].has_arg = alone ? no_argument : optional ? optional_argument : required_argument;
	}
	*options = (struct options){ .model = getenv("PAGED_MODEL"),
				     .pool = "llama",
				     .n_threads = 1,
				     .max_tokens = 256,
				     .max_running = 8,
				     .prefix_cache = true,
				     .kill_worker = OPTIONS_KILL_NONE };
	die_status = EXIT_WRONG_OPTIONS;
	while ((option = getopt_long(argc, argv, "", long_options, NULL)) >= 0) {
		if (option == '?')
			die("see paged-llama --help");
		options_set(options, &known[option], optarg);
	}
	if (optind < argc)
		die("%s: not an option; see paged-llama --help", argv[optind]);
	options_check(options);
	if (options->dtype == PAGED_DTYPE_NONE)
		options->dtype = PAGED_F16;
	die_status = EXIT_FAILED;
}

void
options_free(struct options *options)
{
	for (size_t i = 0; i < options->n_prompts; i++)
		free(options->prompts[i]);
	free(options->prompts);
	free(options->system);
}
