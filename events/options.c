/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "events/options.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "events/log.h"

static const char usage[] =
	"usage: paged-events [--runtime-dir DIR] [--pool POOL]...\n"
	"\n"
	"Serves what changes in the prefix cache of this machine's pagedd; see paged-events(8).\n"
	"\n"
	"  -r, --runtime-dir DIR  the daemon's directory (default $PAGED_RUNTIME_DIR or " PAGED_RUNSTATEDIR "/paged)\n"
	"  -p, --pool POOL        a pool to watch; may be given several times (default: all)\n"
	"  -l, --log-level LEVEL  error, warning, info or debug\n"
	"  -h, --help\n"
	"  -V, --version\n";

static const struct option known[] = {
	{ "runtime-dir", required_argument, NULL, 'r' }, { "pool", required_argument, NULL, 'p' },
	{ "log-level", required_argument, NULL, 'l' },   { "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'V' },           { NULL, 0, NULL, 0 },
};

static void __attribute__((noreturn, format(printf, 1, 2))) events_usage(const char *format, ...)
{
	va_list arguments;

	fprintf(stderr, "paged-events: ");
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, " (see paged-events --help)\n");
	exit(2);
}

static void
events_option_pool(struct events_options *options, const char *name)
{
	for (uint32_t i = 0; i < options->n_pools; i++)
		if (strcmp(options->pools[i], name) == 0)
			events_usage("--pool %s is given twice", name);
	if (options->n_pools == PAGED_MAX_POOLS)
		events_usage("--pool: a daemon has at most %u pools", PAGED_MAX_POOLS);
	options->pools[options->n_pools++] = name;
}

void
events_options_parse(struct events_options *options, int argc, char **argv)
{
	int option;

	while ((option = getopt_long(argc, argv, "r:p:l:hV", known, NULL)) != -1) {
		switch (option) {
		case 'r':
			options->runtime_dir = optarg;
			break;
		case 'p':
			events_option_pool(options, optarg);
			break;
		case 'l':
			if (!events_log_set_level(optarg))
				events_usage("--log-level %s is none of error, warning, info, debug", optarg);
			break;
		case 'h':
			fputs(usage, stdout);
			exit(EXIT_SUCCESS);
		case 'V':
			printf("paged-events %s\n", PACKAGE_VERSION);
			exit(EXIT_SUCCESS);
		default:
			exit(2);
		}
	}
	if (optind < argc)
		events_usage("%s: no such argument", argv[optind]);
}
