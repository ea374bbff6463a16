/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "pagedctl/turns.h"

#include <stdbool.h>
#include <time.h>

static const int end_signals[] = { SIGINT, SIGTERM, SIGHUP };

#define N_SIGNALS (sizeof(end_signals) / sizeof(end_signals[0]))

static volatile sig_atomic_t interrupted;

static void
turns_on_signal(int number)
{
	(void)number;
	interrupted = 1;
}

void
turns_begin(struct turns *turns)
{
	const struct sigaction end = { .sa_handler = turns_on_signal };
	sigset_t ends;

	signal(SIGPIPE, SIG_IGN); /* a write to a closed pipe is an error instead */
	sigemptyset(&ends);
	for (size_t i = 0; i < N_SIGNALS; i++) {
		sigaction(end_signals[i], &end, NULL);
		sigaddset(&ends, end_signals[i]);
	}
	sigprocmask(SIG_BLOCK, &ends, &turns->while_waiting);
}

uint64_t
turns_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

enum turns_end
turns_wait(const struct turns *turns, struct pollfd *fds, nfds_t n, uint64_t until_ms)
{
	uint64_t now = turns_now_ms(), left = until_ms > now ? until_ms - now : 0;
	const struct timespec limit = { .tv_sec = (time_t)(left / 1000), .tv_nsec = (long)(left % 1000) * 1000000 };
	int n_ready = ppoll(fds, n, &limit, &turns->while_waiting);

	if (interrupted)
		return TURNS_INTERRUPTED;
	if (n_ready < 0) /* revents was not written */
		for (nfds_t i = 0; i < n; i++)
			fds[i].revents = 0;
	return n_ready == 0 ? TURNS_DUE : TURNS_READY;
}
