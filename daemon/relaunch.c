/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "daemon/relaunch.h"

#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "daemon/log/log.h"
#include "daemon/loop.h"
#include "daemon/service_manager.h"

#define VARIABLE "PAGEDD_LOST_MS"
#define RETRY_MS 1000u

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1u << 2)
#endif

static uint64_t lost_ms; /* time of the last loss, on the monotonic clock; 0: none */

void
relaunch_begin(void)
{
	const char *text = getenv(VARIABLE);

	lost_ms = text != NULL ? strtoull(text, NULL, 10) : 0;
	unsetenv(VARIABLE);
}

static bool
is_in_window(void)
{
	return lost_ms != 0 && clock_ms() - lost_ms < RELAUNCH_WINDOW_MS;
}

/* Closes all descriptors but 0 to 2 on exec, also those of the CUDA driver, which would keep their memory allocated. */
static int
execute(char *const *argv)
{
	char path[PATH_MAX], text[24];
	ssize_t n;

	/* The path of the executable, for ps(1); /proc/self/exe if that file was replaced since. */
	n = readlink("/proc/self/exe", path, sizeof(path) - 1);
	path[n > 0 ? n : 0] = '\0';
	if (n <= 0 || access(path, X_OK) != 0)
		snprintf(path, sizeof(path), "/proc/self/exe");
	snprintf(text, sizeof(text), "%" PRIu64, lost_ms);
	if (setenv(VARIABLE, text, 1) < 0 || syscall(SYS_close_range, 3u, UINT_MAX, CLOSE_RANGE_CLOEXEC) < 0)
		log_warning("pagedd", "restarting: %m");
	log_stop();
	execv(path, argv);
	log_error("pagedd", "cannot execute %s again: %m", path);
	return EXIT_FAILURE;
}

int
relaunch_lost(char *const *argv)
{
	if (is_in_window()) {
		log_error("pagedd", "CUDA was lost twice within %u s: giving up", RELAUNCH_WINDOW_MS / 1000);
		return RELAUNCH_EXIT;
	}
	lost_ms = clock_ms();
	log_warning("pagedd", "restarting as process %d", (int)getpid());
	return execute(argv);
}

int
relaunch_retry(char *const *argv)
{
	const struct timespec wait = { .tv_sec = RETRY_MS / 1000 };
	sigset_t signals;

	if (!is_in_window())
		return EXIT_FAILURE;
	service_manager_notify("WATCHDOG=1");
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	if (sigtimedwait(&signals, NULL, &wait) > 0)
		return EXIT_SUCCESS;
	return execute(argv);
}
