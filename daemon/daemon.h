/* SPDX-License-Identifier: Apache-2.0 */
/**
 * daemon.h - one life of pagedd: its parts, their start and end
 *
 *   metrics     what the daemon counts about itself
 *   loop        the only poller
 *   runtime     directory and lock
 *   core        the state machine: pools, page tables, sessions
 *   session_cleanup      cleanup of ended sessions, in steps
 *   pools       memory behind the core's page numbers
 *   endpoint    ZeroMQ: receives requests, sends replies
 *   background  the background thread, which builds block masks
 *   members     attached processes and the sessions they form
 *   rpc         dispatch and handlers of requests
 *   control     the control socket: attaching, sending descriptors
 *
 * daemon_open() opens the parts in this order; daemon_close() closes them in
 * the reverse order, except that the background thread ends before rpc, and
 * the core before pools, whose regions it uses.  A part has pointers to the
 * parts above it in this list only.  Calls in the other direction are callbacks
 * that daemon.c sets: the endpoint's admission and requests (endpoint_ops),
 * and the end of a cleanup (session_cleanup.complete), which sends the Farewells.
 */
#ifndef PAGED_DAEMON_DAEMON_H
#define PAGED_DAEMON_DAEMON_H

#include "daemon/config/config.h"
#include "daemon/control.h"
#include "core/core.h"
#include "daemon/endpoint.h"
#include "daemon/background_thread.h"
#include "daemon/cache_cleanup.h"
#include "daemon/loop.h"
#include "daemon/member.h"
#include "daemon/metrics.h"
#include "daemon/pools.h"
#include "daemon/session_cleanup.h"
#include "daemon/rpc.h"
#include "daemon/runtime.h"

struct daemon {
	const struct config *config; /* borrowed */
	uint8_t boot_id[REGION_BOOT_ID_SIZE];
	bool stopping;
	bool gpu_lost;    /* daemon_run() returned because this process can no longer use its GPU */
	bool poll_warned; /* the last daemon_pools_poll() failed, and a warning was logged */

	struct metrics metrics;
	struct loop loop;
	struct runtime runtime;
	struct core *core;
	struct session_cleanup session_cleanup;
	struct cache_cleanup cache_cleanup;
	struct pools pools;
	struct endpoint endpoint;
	struct background_thread background;
	struct members members;
	struct rpc rpc;
	struct control control;

	struct loop_source signals;
	struct loop_timer watchdog;
	struct loop_timer stop_deadline;
	struct loop_work stop_check; /* ends the loop once all members have left a stopping daemon */
	struct loop_timer poll;      /* calls daemon_pools_poll() */
	uint64_t watchdog_ms;
};

/**
 * daemon_open - open all parts, ready to serve the first hello
 *
 * The process must have no other thread: daemon_open() blocks SIGTERM, SIGINT
 * and SIGHUP, and threads created later inherit that.
 *
 * @param[in] config       borrowed until daemon_close()
 * @param[in] runtime_dir  borrowed until the return
 */
enum paged_status daemon_open(struct daemon *daemon, const struct config *config, const char *runtime_dir,
			      struct paged_error *error);

/** daemon_check - fail as daemon_open() would if this machine cannot fulfil the settings; leaves nothing behind */
enum paged_status daemon_check(const struct config *config, const char *runtime_dir, struct paged_error *error);

/** daemon_run - serve until stopped by a signal, or until the process can no longer use a GPU (`gpu_lost`) */
void daemon_run(struct daemon *daemon);

/** daemon_close - close all parts; also after a failed daemon_open() */
void daemon_close(struct daemon *daemon);

#endif
