/* SPDX-License-Identifier: Apache-2.0 */
/**
 * daemon.h - one life of pagedd: what its parts share, start and end
 *
 *   loop      the only poller
 *   runtime   directory and lock
 *   core      pools, tables, sessions: the state machine
 *   pools     memory behind the core's page numbers
 *   endpoint  ZeroMQ: requests in, replies out
 *   helper    a thread for block masks
 *   rpc       what the requests mean
 *   members   attached processes and the sessions they form
 *   control   who may attach; descriptors out
 *
 * Every part is opened by daemon_open() in this order and closed in the
 * reverse.  Callbacks find the whole through the pointer each part keeps.
 */
#ifndef PAGED_DAEMON_DAEMON_H
#define PAGED_DAEMON_DAEMON_H

#include "daemon/config.h"
#include "daemon/control.h"
#include "core/core.h"
#include "daemon/endpoint.h"
#include "daemon/helper.h"
#include "daemon/loop.h"
#include "daemon/member.h"
#include "daemon/pools.h"
#include "daemon/rpc.h"
#include "daemon/runtime.h"

/** Pages that one step of cleaning up may touch: a fraction of a millisecond. */
enum { DAEMON_REAP_PAGES = 8192 };

struct daemon {
	const struct config *config; /* borrowed */
	uint8_t boot_id[REGION_BOOT_ID_SIZE];
	uint64_t started_ms;
	bool stopping;
	bool lost;        /* why daemon_run() returned: this process cannot use its GPU any more */
	bool look_warned; /* of what the last look found */

	struct loop loop;
	struct runtime runtime;
	struct core *core;
	struct pools pools;
	struct endpoint endpoint;
	struct helper helper;
	struct rpc rpc;
	struct members members;
	struct control control;

	struct loop_source signals;
	struct loop_timer watchdog;
	struct loop_timer stop_deadline;
	struct loop_work reaper;
	struct loop_timer look; /* whether the pools' memory still works */
	uint64_t watchdog_ms;
	bool reap_needed;
};

/**
 * daemon_open - everything up to answering the first hello
 *
 * The process must have no other thread: SIGTERM, SIGINT and SIGHUP are
 * blocked from here on.
 *
 * @param[in] config       borrowed until daemon_close()
 * @param[in] runtime_dir  likewise
 */
enum paged_status daemon_open(struct daemon *daemon, const struct config *config, const char *runtime_dir,
			      struct paged_error *error);

/** daemon_check - whether daemon_open() would refuse the settings on this machine; changes nothing that stays */
enum paged_status daemon_check(const struct config *config, const char *runtime_dir, struct paged_error *error);

/** daemon_run - serve until stopped by a signal, or until a GPU is lost to the process */
void daemon_run(struct daemon *daemon);

/** daemon_close - takes what daemon_open() left, also when it failed */
void daemon_close(struct daemon *daemon);

/** daemon_reap - an ended session left something: clean up in the turns to come */
void daemon_reap(struct daemon *daemon);

/** daemon_check_stopped - call when a member is gone; the last one ends a stopping daemon */
void daemon_check_stopped(struct daemon *daemon);

/** daemon_random - from the kernel */
enum paged_status daemon_random(void *bytes, size_t size, struct paged_error *error);

#endif
