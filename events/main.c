/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paged-events: serves what changes in the prefix cache of this machine's pagedd.
 *
 * The program attaches as an observer, once for each life of the daemon, and
 * waits for the next life when the daemon ends.  Its parts run in threads of
 * their own:
 *
 *   open    once, before the program attaches; binds sockets
 *   attach  at the beginning of each life of the daemon; starts to watch its pools
 *   detach  when the daemon has ended, or the program ends
 *   close   once, at the end
 */
#include "config.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "events/kv_events.h"
#include "events/log.h"
#include "events/metrics_http.h"
#include "events/options.h"
#include "events/process.h"

/* Interval at which a daemon is looked for. */
#define ATTACH_INTERVAL_MS 500

/* SIGINT and SIGTERM as a descriptor.  The threads of all parts inherit the mask. */
static int
events_open_signals(void)
{
	sigset_t signals;
	int fd;

	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	signal(SIGPIPE, SIG_IGN);
	fd = signalfd(-1, &signals, SFD_CLOEXEC);
	if (fd < 0)
		events_log(EVENTS_LOG_ERROR, "events", "signalfd: %m");
	return fd;
}

/* Sleeps until the program must end (true), or the descriptor is readable or the time has passed (false). */
static bool
events_wait(int signals, int fd, int timeout_ms)
{
	struct pollfd polled[] = { { .fd = signals, .events = POLLIN }, { .fd = fd, .events = POLLIN } };

	return poll(polled, 2, timeout_ms) > 0 && polled[0].revents != 0;
}

/* The daemon may come: it starts, or has another life than a moment ago. */
static bool
attach_may_succeed_later(enum paged_status status)
{
	return status == PAGED_ERR_NO_DAEMON || status == PAGED_ERR_STOPPING || status == PAGED_ERR_TIMEOUT ||
	       status == PAGED_ERR_GONE;
}

/* Connections need descriptors; the soft limit is for programs that use select(). */
static void
events_raise_file_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

/* Attaches to the daemon, as soon as there is one.  Returns NULL if the program must end; *code_p says how. */
static struct paged_client *
events_attach(const struct events_options *options, int signals, int *code_p)
{
	struct paged_client_params params = {
		.struct_size = sizeof(params), .name = "paged-events", .observer = 1, .tables_only = 1
	};
	bool told = false;

	for (;;) {
		struct paged_client *client;
		enum paged_status status = paged_client_open(options->runtime_dir, &params, &client);

		if (status == PAGED_OK)
			return client;
		if (!told)
			events_log(attach_may_succeed_later(status) ? EVENTS_LOG_INFO : EVENTS_LOG_ERROR, "events",
				   "%s", client != NULL ? paged_client_error(client) : "no memory");
		told = true;
		paged_client_close(client);
		*code_p = attach_may_succeed_later(status) ? EXIT_SUCCESS : EXIT_FAILURE;
		if (*code_p == EXIT_FAILURE || events_wait(signals, -1, ATTACH_INTERVAL_MS))
			return NULL;
	}
}

/* Does the daemon live, and not stop? */
static bool
daemon_goes_on(struct paged_client *client)
{
	return paged_client_dispatch(client) == PAGED_OK;
}

/* Serves one life of the daemon.  Returns false if the program must end; *code_p says how. */
static bool
events_serve(struct paged_client *client, struct kv_events *kv, int signals, int *code_p)
{
	bool ends = false, failed = false, attached = kv_events_attach(kv, client);

	if (attached)
		events_log(EVENTS_LOG_INFO, "events", "attached");
	while (attached && !ends && daemon_goes_on(client))
		ends = events_wait(signals, paged_client_fd(client), -1);
	/* What failed because the daemon ended is no failure. */
	if (!attached && daemon_goes_on(client))
		failed = true;
	else if (!ends)
		events_log(EVENTS_LOG_INFO, "events", "%s", paged_client_error(client));
	if (!kv_events_detach(kv, !ends && !failed))
		failed = true;
	if (failed)
		*code_p = EXIT_FAILURE;
	return !ends && !failed;
}

int
main(int argc, char **argv)
{
	struct events_options options = { 0 };
	struct metrics_http *metrics;
	struct paged_client *client;
	int signals, code = EXIT_SUCCESS;
	struct kv_events *kv;
	bool goes_on = true;

	if (!process_prepare())
		return EXIT_FAILURE;
	events_options_parse(&options, argc, argv);
	events_raise_file_limit();
	signals = events_open_signals();
	kv = kv_events_open(&options);
	if (signals < 0 || kv == NULL)
		return EXIT_FAILURE;
	if (!metrics_http_open(&options, &metrics)) {
		kv_events_close(kv);
		close(signals);
		return EXIT_FAILURE;
	}
	while (goes_on && (client = events_attach(&options, signals, &code)) != NULL) {
		metrics_http_attach(metrics, client);
		goes_on = events_serve(client, kv, signals, &code);
		metrics_http_detach(metrics);
		paged_client_close(client);
	}
	metrics_http_close(metrics);
	kv_events_close(kv);
	close(signals);
	return code;
}
