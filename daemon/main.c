/* SPDX-License-Identifier: Apache-2.0 */
/* Options of pagedd, and its start, end and restart. */
#include <config.h>

#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/config/settings.h"
#include "daemon/daemon.h"
#include "daemon/log/log.h"
#include "daemon/policy.h"
#include "daemon/probe.h"
#include "daemon/relaunch.h"

static const char usage[] =
	"usage: pagedd [--config FILE] [--runtime-dir DIR] [--log-level LEVEL]\n"
	"       pagedd --check-config [--config FILE] [--runtime-dir DIR]\n"
	"\n"
	"Owns the KV cache pools of this machine's model processes; see pagedd(8).\n"
	"\n"
	"  -c, --config FILE      settings (default " PAGED_SYSCONFDIR "/paged/pagedd.conf)\n"
	"  -r, --runtime-dir DIR  directory of the sockets (default $PAGED_RUNTIME_DIR, runtime-dir of FILE,\n"
	"                         $RUNTIME_DIRECTORY or " PAGED_RUNSTATEDIR "/paged)\n"
	"  -l, --log-level LEVEL  error, warning, info or debug\n"
	"      --check-config     check the settings and say which pools there would be\n"
	"      --help-settings    list the settings of pagedd.conf\n"
	"  -h, --help\n"
	"  -V, --version\n";

struct options {
	const char *config;
	const char *runtime_dir;
	const char *log_level;
	bool check_config;
};

enum { OPTION_CHECK_CONFIG = 256, OPTION_HELP_SETTINGS };

static void
daemon_parse_options(struct options *options, int argc, char **argv)
{
	static const struct option known[] = {
		{ "config", required_argument, NULL, 'c' },
		{ "runtime-dir", required_argument, NULL, 'r' },
		{ "log-level", required_argument, NULL, 'l' },
		{ "check-config", no_argument, NULL, OPTION_CHECK_CONFIG },
		{ "help-settings", no_argument, NULL, OPTION_HELP_SETTINGS },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ NULL, 0, NULL, 0 },
	};
	int option;

	while ((option = getopt_long(argc, argv, "c:r:l:hV", known, NULL)) != -1) {
		switch (option) {
		case 'c':
			options->config = optarg;
			break;
		case 'r':
			options->runtime_dir = optarg;
			break;
		case 'l':
			options->log_level = optarg;
			break;
		case OPTION_CHECK_CONFIG:
			options->check_config = true;
			break;
		case OPTION_HELP_SETTINGS:
			config_help(stdout);
			exit(EXIT_SUCCESS);
		case 'h':
			fputs(usage, stdout);
			exit(EXIT_SUCCESS);
		case 'V':
			printf("pagedd %s\n%s", PACKAGE_VERSION, PAGED_SUMMARY);
			exit(EXIT_SUCCESS);
		default:
			exit(2);
		}
	}
	if (optind < argc) {
		fprintf(stderr, "pagedd: %s: no such argument; see pagedd --help\n", argv[optind]);
		exit(2);
	}
}

/* Prints what a pool takes besides its pages; returns all bytes of host memory that it takes. */
static uint64_t
print_pool_memory(const struct config *config, const struct config_pool *pool)
{
	char tables[32], most[32], other[32], tenant[32];
	struct pool_memory memory;

	daemon_pool_memory(config, pool, &memory);
	printf("pool %s: page tables of at most %s (table-memory), %s if all %u sequences had max-length; index and "
	       "lists of at most %s, and %s more for each user of no tenant but the first\n",
	       pool->name, config_format_bytes(memory.tables, tables, sizeof(tables)),
	       config_format_bytes(memory.tables_most, most, sizeof(most)), pool->sequences,
	       config_format_bytes(memory.other, other, sizeof(other)),
	       config_format_bytes(memory.tenant, tenant, sizeof(tenant)));
	return memory.host_pages + memory.tables + memory.other;
}

/* Memory of a service besides its pools: messages, members, block masks. */
#define SERVICE_BYTES (256ull << 20)

static int
check_config(const struct config *config, const char *runtime_dir)
{
	uint64_t n_bytes = SERVICE_BYTES;
	struct paged_error error;
	char size[32], page[32];

	if (daemon_check(config, runtime_dir, &error) != PAGED_OK) {
		fprintf(stderr, "%s\n", error.text);
		return EXIT_FAILURE;
	}
	for (size_t i = 0; i < config->n_pools; i++) {
		const struct config_pool *pool = &config->pools[i];

		printf("pool %s: %u pages of %s, %s on %s\n", pool->name, pool->pages,
		       config_format_bytes(pool->layout.page_bytes, page, sizeof(page)),
		       config_format_bytes(pool->layout.size, size, sizeof(size)), pool->backend);
		n_bytes += print_pool_memory(config, pool);
	}
	/* Rounded up to MiB, as systemd.resource-control(5) writes it. */
	printf("host memory of all pools and the daemon: MemoryMax=%lluM\n",
	       (unsigned long long)((n_bytes + (1 << 20) - 1) >> 20));
	return EXIT_SUCCESS;
}

static const char *
runtime_dir(const struct options *options, const struct config *config)
{
	const char *own = getenv("PAGED_RUNTIME_DIR"), *systemd = getenv("RUNTIME_DIRECTORY");

	if (options->runtime_dir != NULL)
		return options->runtime_dir;
	/* Before the file, so that a daemon and its clients with one environment meet. */
	if (own != NULL && own[0] != '\0')
		return own;
	if (config->runtime_dir != NULL)
		return config->runtime_dir;
	return systemd != NULL ? systemd : PAGED_RUNSTATEDIR "/paged";
}

static int
daemon_serve(const struct options *options, const struct config *config, char **argv)
{
	struct daemon *daemon = malloc(sizeof(*daemon));
	struct paged_error error;
	enum paged_status status;
	int code = EXIT_SUCCESS;

	if (daemon == NULL) {
		fprintf(stderr, "pagedd: no memory\n");
		return EXIT_FAILURE;
	}
	status = daemon_open(daemon, config, runtime_dir(options, config), &error);
	if (status == PAGED_OK)
		status = log_start(&error);
	if (status == PAGED_OK) {
		daemon_run(daemon);
		if (daemon->gpu_lost)
			code = relaunch_lost(argv);
	} else if (status != PAGED_ERR_STOPPING) {
		fprintf(stderr, "%s\n", error.text);
		code = relaunch_retry(argv);
	}
	daemon_close(daemon);
	log_stop();
	free(daemon);
	return code;
}

/* Opens /dev/null for descriptors 0 to 2 that are closed: else the lock file would be standard error. */
static bool
daemon_open_standard_fds(void)
{
	int fd = STDIN_FILENO;

	while (fd >= 0 && fd <= STDERR_FILENO)
		fd = open("/dev/null", O_RDWR); /* the lowest that is free */
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

int
main(int argc, char **argv)
{
	struct options options = { .config = PAGED_SYSCONFDIR "/paged/pagedd.conf" };
	struct paged_error error;
	struct config config;
	int code = EXIT_FAILURE;

	if (argc == 2 && strcmp(argv[1], PROBE_ARGUMENT) == 0)
		return probe_main();
	if (!daemon_open_standard_fds())
		return EXIT_FAILURE;
	relaunch_begin();
	daemon_parse_options(&options, argc, argv);
	if (config_load(&config, options.config, &error) != PAGED_OK) {
		fprintf(stderr, "%s\n", error.text);
	} else if (options.log_level != NULL &&
		   settings_set(&settings_table[CONFIG_LOG_LEVEL], &config, options.log_level, &error) != PAGED_OK) {
		fprintf(stderr, "pagedd: --log-level %s: %s\n", options.log_level, error.text);
		code = 2;
	} else {
		log_set_level(config.log_level);
		policy_warn(&config);
		code = options.check_config ? check_config(&config, runtime_dir(&options, &config))
					    : daemon_serve(&options, &config, argv);
	}
	config_free(&config);
	return code;
}
