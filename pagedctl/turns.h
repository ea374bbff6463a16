/* SPDX-License-Identifier: Apache-2.0 */
/**
 * turns.h - the pauses between the turns of commands that repeat: --watch and top
 *
 * SIGINT, SIGTERM and SIGHUP end such a command.  They are delivered during the
 * pauses only, so that each turn is completed.
 */
#ifndef PAGED_CTL_TURNS_H
#define PAGED_CTL_TURNS_H

#include <poll.h>
#include <signal.h>
#include <stdint.h>

struct turns {
	sigset_t while_waiting;
};

enum turns_end {
	TURNS_DUE,         /* it is time for the next turn */
	TURNS_READY,       /* fds has events, or another signal came */
	TURNS_INTERRUPTED, /* by a signal that ends the command */
};

/** turns_begin - set up the signals of the process; also ignores SIGPIPE */
void turns_begin(struct turns *turns);

/** turns_wait - wait until a time of turns_now_ms() has come, or as enum turns_end says; sets revents in fds */
enum turns_end turns_wait(const struct turns *turns, struct pollfd *fds, nfds_t n, uint64_t until_ms);

/** turns_now_ms - the monotonic clock */
uint64_t turns_now_ms(void);

#endif
