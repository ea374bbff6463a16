/* SPDX-License-Identifier: Apache-2.0 */
/* The option --watch: repeats a command that lists. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "pagedctl/ctl.h"
#include "pagedctl/print.h"
#include "pagedctl/turns.h"

/* Clears the screen, and moves the cursor to its upper left corner. */
#define CLEAR "\033[H\033[2J"

static bool
stdout_can_clear(void)
{
	const char *term = getenv("TERM");

	return isatty(STDOUT_FILENO) && term != NULL && strcmp(term, "dumb") != 0;
}

static void
time_print(bool first)
{
	time_t now = time(NULL);
	char text[32] = "";
	struct tm local;

	if (localtime_r(&now, &local) != NULL)
		strftime(text, sizeof(text), "%F %T", &local);
	if (stdout_can_clear())
		printf(CLEAR);
	else if (!first)
		printf("\n");
	printf("%s\n", text);
}

/* Waits for the next turn.  PAGED_OK with *more_p false: interrupted, or nobody reads standard output any more. */
static enum paged_status
watch_wait(struct ctl *ctl, const struct turns *turns, bool *more_p)
{
	/* The end of a pipe reports POLLERR when its reader is gone. */
	struct pollfd fds[] = { { .fd = STDOUT_FILENO }, { .fd = paged_client_fd(ctl->client), .events = POLLIN } };
	uint64_t due = turns_now_ms() + ctl->watch_ms;
	enum paged_status status;
	enum turns_end end;

	while ((end = turns_wait(turns, fds, 2, due)) != TURNS_DUE) {
		*more_p = end != TURNS_INTERRUPTED && fds[0].revents == 0;
		if (!*more_p)
			return PAGED_OK;
		status = paged_client_dispatch(ctl->client);
		if (status != PAGED_OK && status != PAGED_ERR_STOPPING)
			return status;
	}
	return PAGED_OK;
}

enum ctl_exit
ctl_watch(struct ctl *ctl, enum ctl_exit (*run)(struct ctl *ctl))
{
	enum ctl_exit code = CTL_OK;
	enum paged_status status;
	struct turns turns;
	bool more = true;

	turns_begin(&turns);
	print_json_lines(true);
	for (bool first = true; more; first = false) {
		if (!ctl->json)
			time_print(first);
		code = run(ctl);
		if (code != CTL_OK)
			break;
		if (fflush(stdout) != 0) {
			if (errno != EPIPE)
				return ctl_fail_stdout();
			__fpurge(stdout);
			break;
		}
		status = watch_wait(ctl, &turns, &more);
		if (status != PAGED_OK)
			return ctl_fail(ctl, status);
	}
	return code;
}
