/* SPDX-License-Identifier: Apache-2.0 */
/* Options of pagedctl, and its table of commands. */
#include "config.h"

#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pagedctl/ctl.h"

enum {
	OF_POOL = 1, /* takes --pool */
	LISTS = 2,   /* takes --watch */
	ALONE = 4,   /* needs no daemon */
};

/* How long a request of top waits for the daemon. */
enum { TOP_TIMEOUT_MS = 1000 };

struct command {
	const char *name;
	const char *operands; /* names of its operands, those in brackets optional; "": none */
	enum ctl_exit (*run)(struct ctl *ctl);
	const char *help;
	unsigned int flags;
};

static const struct command commands[] = {
	{ "status", "", ctl_status, "the daemon and the fill of its pools", LISTS },
	{ "pools", "", ctl_pools, "the pools' geometry", LISTS },
	{ "sessions", "", ctl_sessions, "the sessions and their member processes", LISTS },
	{ "sequences", "", ctl_sequences, "the live sequences (--pool: of one pool)", OF_POOL | LISTS },
	{ "table", "SEQUENCE", ctl_table, "the pages of a sequence (--pool: its pool)", OF_POOL | LISTS },
	{ "check", "", ctl_check, "recompute every page's count, in the daemon and here (--pool: of one pool)",
	  OF_POOL },
	{ "top", "", ctl_top, "pools, sessions, requests and latencies, as they change; h there: help", 0 },
	{ "kick", "SESSION", ctl_kick, "end a session (--kill: and kill its processes)", 0 },
	{ "drain", "SESSION", ctl_drain, "give a session no new sequences, and tell its processes to leave", 0 },
	{ "prefixes", "POOL", ctl_prefixes, "the published pages (--tokens: and their token ids)", LISTS },
	{ "evict", "POOL [PAGES]", ctl_evict, "free cached pages, the coldest first", 0 },
	{ "pin", "POOL PAGE SERIAL SECONDS", ctl_pin, "evict a prefix last, for a time; 0: unpin", 0 },
	{ "pins", "", ctl_pins, "pinned prefixes, and who pinned them (--pool: of one pool)", OF_POOL | LISTS },
	{ "unpin", "POOL PIN", ctl_unpin, "end a pin of any member", 0 },
	{ "tickets", "", ctl_tickets, "sequences that were given and that nobody has adopted yet", LISTS },
	{ "quota", "", ctl_quota, "what tenants have of each pool, and their limits", LISTS },
	{ "log-level", "[LEVEL]", ctl_log_level, "what pagedd logs: error, warning, info, debug", 0 },
	{ "mask", "EXPRESSION", ctl_mask, "the block mask of a mask mod (--q, --kv: tokens); no daemon is asked",
	  ALONE },
};

enum { OPTION_JSON = 256, OPTION_KILL, OPTION_TOKENS, OPTION_WATCH, OPTION_WAIT, OPTION_ONCE, OPTION_MASK };

static const struct option options[] = {
	{ "runtime-dir", required_argument, NULL, 'r' },
	{ "pool", required_argument, NULL, 'p' },
	{ "json", no_argument, NULL, OPTION_JSON },
	{ "kill", no_argument, NULL, OPTION_KILL },
	{ "tokens", no_argument, NULL, OPTION_TOKENS },
	{ "watch", required_argument, NULL, OPTION_WATCH },
	{ "wait", required_argument, NULL, OPTION_WAIT },
	{ "once", no_argument, NULL, OPTION_ONCE },
	{ "delay", required_argument, NULL, 'd' },
	{ "q", required_argument, NULL, OPTION_MASK },
	{ "kv", required_argument, NULL, OPTION_MASK },
	{ "block", required_argument, NULL, OPTION_MASK },
	{ "q-block", required_argument, NULL, OPTION_MASK },
	{ "kv-block", required_argument, NULL, OPTION_MASK },
	{ "heads", required_argument, NULL, OPTION_MASK },
	{ "q-base", required_argument, NULL, OPTION_MASK },
	{ "set", required_argument, NULL, OPTION_MASK },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'V' },
	{ NULL, 0, NULL, 0 },
};

static void
ctl_print_help(void)
{
	printf("usage: pagedctl [--runtime-dir DIR] [--json] COMMAND\n\n"
	       "Asks the pagedd of this machine; see pagedctl(8).\n\n");
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		printf("  %-9s %-24s %s\n", commands[i].name, commands[i].operands, commands[i].help);
	printf("\n"
	       "  -r, --runtime-dir DIR  the daemon's directory (default $PAGED_RUNTIME_DIR or " PAGED_RUNSTATEDIR
	       "/paged)\n"
	       "      --wait SECONDS     for a daemon that has not started yet\n"
	       "  -p, --pool POOL        with sequences, table, check, pins: one pool\n"
	       "      --json             for programs\n"
	       "      --watch SECONDS    with status, pools, sessions, sequences, table, prefixes, pins,\n"
	       "                         tickets, quota: repeat\n"
	       "      --once             with top: print it once, as text\n"
	       "  -d, --delay SECONDS    with top: the interval (1)\n"
	       "      --kill             with kick\n"
	       "      --tokens           with prefixes\n"
	       "      --q N, --kv N      with mask: tokens; --kv as --q\n"
	       "      --block QxKV       with mask: tokens of a block (128x128); also --q-block, --kv-block\n"
	       "      --heads N          with mask: query heads (1)\n"
	       "      --q-base N         with mask: q_idx of the first query row (0)\n"
	       "      --set NAME=VALUE   with mask: a parameter\n"
	       "  -h, --help\n"
	       "  -V, --version\n\n"
	       "exit code: 0 done, 1 refused or failed, 2 wrong usage, 3 no daemon, 4 check failed\n");
}

static const struct command *
ctl_find_command(const char *name)
{
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return NULL;
}

/* Does the command take this many operands? */
static bool
command_takes(const struct command *command, int n_given)
{
	int n_required = 0, n_optional = 0;

	for (const char *name = command->operands; *name != '\0'; name += strcspn(name, " "), name += *name == ' ')
		*name == '[' ? n_optional++ : n_required++;
	return n_given >= n_required && n_given <= n_required + n_optional;
}

static enum ctl_exit
ctl_run_command(struct ctl *ctl, const struct command *command)
{
	enum paged_status status = PAGED_OK;
	enum ctl_exit code;

	/* Pins are for sessions to make, although a pin outlives the session.  Keys of top must not wait for long. */
	ctl->params = (struct paged_client_params){ .struct_size = sizeof(ctl->params),
						    .name = "pagedctl",
						    .observer = command->run != ctl_pin,
						    .timeout_ms = command->run == ctl_top ? TOP_TIMEOUT_MS : 0,
						    .wait_ms = ctl->params.wait_ms };
	if (!(command->flags & ALONE))
		status = ctl_open(ctl);
	if (status != PAGED_OK)
		code = ctl_fail(ctl, status);
	else if (ctl->watch_ms != 0)
		code = ctl_watch(ctl, command->run);
	else
		code = command->run(ctl);

	paged_client_close(ctl->client);
	/* A write error, such as a full disk or a closed pipe, is a failure, too. */
	if (fflush(stdout) != 0 && code == CTL_OK)
		code = ctl_fail_stdout();
	return code;
}

/*
 * Opens /dev/null for descriptors 0 to 2 that are closed: else output would go into the control socket.  For reading
 * only, so that a closed standard output is an error.
 */
static bool
ctl_open_standard_fds(void)
{
	int fd = STDIN_FILENO;

	while (fd >= 0 && fd <= STDERR_FILENO)
		fd = open("/dev/null", O_RDONLY); /* the lowest that is free */
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

int
main(int argc, char **argv)
{
	const struct command *command;
	struct ctl ctl = { .pool = NULL };
	int option, index;

	if (!ctl_open_standard_fds())
		return CTL_FAILED;
	while ((option = getopt_long(argc, argv, "r:p:d:hV", options, &index)) != -1) {
		switch (option) {
		case 'r':
			ctl.runtime_dir = optarg;
			break;
		case 'p':
			ctl.pool = optarg;
			break;
		case OPTION_JSON:
			ctl.json = true;
			break;
		case OPTION_KILL:
			ctl.kill = true;
			break;
		case OPTION_TOKENS:
			ctl.tokens = true;
			break;
		case OPTION_WATCH:
			if (!ctl_parse_seconds("--watch", optarg, &ctl.watch_ms))
				return CTL_USAGE;
			break;
		case OPTION_WAIT:
			if (!ctl_parse_seconds("--wait", optarg, &ctl.params.wait_ms))
				return CTL_USAGE;
			break;
		case OPTION_ONCE:
			ctl.once = true;
			break;
		case 'd':
			if (!ctl_parse_seconds("--delay", optarg, &ctl.delay_ms))
				return CTL_USAGE;
			break;
		case OPTION_MASK:
			if (!ctl_mask_option(&ctl.mask, options[index].name, optarg))
				return CTL_USAGE;
			break;
		case 'h':
			ctl_print_help();
			return CTL_OK;
		case 'V':
			printf("pagedctl %s\n", PACKAGE_VERSION);
			return CTL_OK;
		default:
			return CTL_USAGE;
		}
	}
	if (optind == argc)
		return ctl_usage("a command is missing");
	command = ctl_find_command(argv[optind]);
	if (command == NULL)
		return ctl_usage("there is no command %s", argv[optind]);
	if (!command_takes(command, argc - optind - 1))
		return ctl_usage("%s takes %s", command->name,
				 command->operands[0] != '\0' ? command->operands : "no operand");
	if (ctl.pool != NULL && !(command->flags & OF_POOL))
		return ctl_usage("--pool goes with sequences, table, check and pins");
	if (ctl.kill && command->run != ctl_kick)
		return ctl_usage("--kill goes with kick");
	if (ctl.tokens && command->run != ctl_prefixes)
		return ctl_usage("--tokens goes with prefixes");
	if (ctl.watch_ms != 0 && !(command->flags & LISTS))
		return ctl_usage("--watch goes with status, pools, sessions, sequences, table, prefixes, "
				 "pins, tickets and quota");
	if ((ctl.once || ctl.delay_ms != 0) && command->run != ctl_top)
		return ctl_usage("--once and --delay go with top");
	if (ctl.mask.any && command->run != ctl_mask)
		return ctl_usage("--q, --kv, --block, --heads, --q-base and --set go with mask");
	ctl.operands = (const char *const *)&argv[optind + 1];
	return ctl_run_command(&ctl, command);
}
