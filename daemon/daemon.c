/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/daemon.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/clock.h"
#include "core/array.h"
#include "daemon/kernel_check.h"
#include "daemon/log/log.h"
#include "daemon/memory_wait.h"
#include "daemon/random.h"
#include "daemon/service_manager.h"
#include "daemon/tenants.h"

/* Descriptors of a member: control socket, pidfd, RPC listener, RPC connections.  FDS_OF_DAEMON: all others. */
enum { FDS_PER_MEMBER = 3 + ENDPOINT_CONNECTIONS, FDS_OF_DAEMON = 256 };

/*
 * Entries, pages and nodes that a request, or a step of one, works on.  Each takes some 10 ns, and 100 ns if no cache
 * has it: a turn of the loop stays below 2 ms with a wide margin.
 */
enum { DAEMON_STEP = 2048 };

/* Interval of daemon_pools_poll(), if a pool can fail. */
enum { POLL_INTERVAL_MS = 1000 };

static void
cleanup_complete(struct session_cleanup *session_cleanup)
{
	struct daemon *daemon = container_of(session_cleanup, struct daemon, session_cleanup);

	daemon_control_send_farewells(&daemon->control);
	/* The page tables of ended sessions have left memory, and their pages may be cached. */
	cache_cleanup_schedule(&daemon->cache_cleanup);
}

static bool
stop_check_step(struct loop_work *work)
{
	struct daemon *daemon = container_of(work, struct daemon, stop_check);

	if (daemon->stopping && daemon->members.n_connected == 0)
		loop_stop(&daemon->loop);
	return false;
}

static void
stop_late(struct loop_timer *timer)
{
	struct daemon *daemon = container_of(timer, struct daemon, stop_deadline);

	log_warning("pagedd", "stop-timeout is over, and %u members have not left", daemon->members.n_connected);
	loop_stop(&daemon->loop);
}

static void
signal_ready(struct loop_source *source, uint32_t events)
{
	struct daemon *daemon = container_of(source, struct daemon, signals);
	struct signalfd_siginfo info;

	(void)events;
	if (read(source->fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
		return;
	if (info.ssi_signo == SIGHUP) {
		log_info("pagedd", "SIGHUP: ignored; settings are read once, at start");
		return;
	}
	if (daemon->stopping) {
		log_warning("pagedd", "second signal: %u members are left behind", daemon->members.n_connected);
		loop_stop(&daemon->loop);
		return;
	}
	daemon->stopping = true;
	log_info("pagedd", "SIG%s: stopping; %u members have %" PRIu32 " ms to leave",
		 sigabbrev_np((int)info.ssi_signo), daemon->members.n_connected, daemon->config->stop_timeout_ms);
	service_manager_notify("STOPPING=1");
	loop_timer_start(&daemon->loop, &daemon->stop_deadline, daemon->config->stop_timeout_ms);
	daemon->rpc.stopping = true;
	daemon_control_stop(&daemon->control, daemon->config->stop_timeout_ms);
}

static void
watchdog_fire(struct loop_timer *timer)
{
	struct daemon *daemon = container_of(timer, struct daemon, watchdog);

	service_manager_notify("WATCHDOG=1");
	loop_timer_start(&daemon->loop, timer, daemon->watchdog_ms);
}

static void
poll_fire(struct loop_timer *timer)
{
	struct daemon *daemon = container_of(timer, struct daemon, poll);
	struct paged_error error;
	enum paged_status status;

	if (daemon->stopping)
		return;
	status = daemon_pools_poll(&daemon->pools, &error);
	if (status == PAGED_ERR_GONE) {
		log_error("pool", "%s; every session ends here", error.text);
		daemon->gpu_lost = true;
		loop_stop(&daemon->loop);
		return;
	}
	if (status != PAGED_OK && !daemon->poll_warned)
		log_warning("pool", "%s", error.text);
	daemon->poll_warned = status != PAGED_OK;
	loop_timer_start(&daemon->loop, timer, POLL_INTERVAL_MS);
}

/* Delivers signals through the loop only.  Call before there are threads: they inherit the signal mask. */
static enum paged_status
daemon_open_signals(struct daemon *daemon, struct paged_error *error)
{
	enum paged_status status;
	sigset_t signals;
	int fd;

	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* a memfd beyond RLIMIT_FSIZE: the call fails with EFBIG instead */
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGHUP);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return paged_fail(error, PAGED_ERR_SYSTEM, "signalfd: %m");
	daemon->signals.ready = signal_ready;
	status = loop_add(&daemon->loop, &daemon->signals, fd, error);
	if (status != PAGED_OK)
		close(fd);
	return status;
}

/* libzmq aborts the process if a listener runs out of descriptors, so there must always be enough. */
static enum paged_status
daemon_raise_descriptor_limit(const struct config *config, struct paged_error *error)
{
	uint64_t needed = ((uint64_t)config->max_members + LIMIT_EXTRA_ADMIN_MEMBERS) * FDS_PER_MEMBER + FDS_OF_DAEMON;
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return paged_fail(error, PAGED_ERR_SYSTEM, "RLIMIT_NOFILE: %m");
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
		return paged_fail(error, PAGED_ERR_SYSTEM, "RLIMIT_NOFILE: %m");
	if (limit.rlim_max >= needed)
		return PAGED_OK;
	return config_fail(config, NULL, CONFIG_MAX_MEMBERS, error,
			   "needs %" PRIu64 " descriptors, and the limit is %ju (LimitNOFILE)", needed,
			   (uintmax_t)limit.rlim_max);
}

static void
daemon_init_parts(struct daemon *daemon)
{
	metrics_open(&daemon->metrics);
	daemon->loop.turns = &daemon->metrics.turns;
	daemon->signals.fd = -1;
	daemon->stop_deadline.fire = stop_late;
	daemon->watchdog.fire = watchdog_fire;
	daemon->poll.fire = poll_fire;
	daemon->stop_check.step = stop_check_step;
	loop_work_add(&daemon->loop, &daemon->stop_check);
}

enum paged_status
daemon_check(const struct config *config, const char *runtime_dir, struct paged_error *error)
{
	enum paged_status status = daemon_raise_descriptor_limit(config, error);

	if (status == PAGED_OK)
		status = kernel_check(error);
	if (status == PAGED_OK)
		status = runtime_check(runtime_dir, config, error);
	if (status == PAGED_OK)
		status = daemon_pools_check(config, error);
	return status;
}

/* Opens the endpoint and the background thread, and what they serve. */
static enum paged_status
daemon_open_services(struct daemon *daemon, uint64_t started_ms, struct paged_error *error)
{
	static const struct endpoint_ops endpoint_ops = { .admit = member_admit, .serve = daemon_rpc_serve };
	const struct config *config = daemon->config;
	enum paged_status status;

	daemon->endpoint.ops = &endpoint_ops;
	daemon->endpoint.admit_context = &daemon->members;
	daemon->endpoint.serve_context = &daemon->rpc;
	daemon->endpoint.loop = &daemon->loop;
	daemon->endpoint.runtime = &daemon->runtime;
	status = endpoint_open(&daemon->endpoint, error);
	if (status == PAGED_OK)
		status = background_thread_open(&daemon->background, &daemon->loop, config->mask_time_ms, error);
	if (status != PAGED_OK)
		return status;
	daemon->members = (struct members){
		.config = config,
		.loop = &daemon->loop,
		.core = daemon->core,
		.pools = &daemon->pools,
		.endpoint = &daemon->endpoint,
		.background = &daemon->background,
		.session_cleanup = &daemon->session_cleanup,
		.metrics = &daemon->metrics,
	};
	members_open(&daemon->members);
	daemon->rpc.config = config;
	daemon->rpc.loop = &daemon->loop;
	daemon->rpc.core = daemon->core;
	daemon->rpc.pools = &daemon->pools;
	daemon->rpc.members = &daemon->members;
	daemon->rpc.endpoint = &daemon->endpoint;
	daemon->rpc.background = &daemon->background;
	daemon->rpc.cache_cleanup = &daemon->cache_cleanup;
	daemon->rpc.metrics = &daemon->metrics;
	daemon->rpc.started_ms = started_ms;
	return daemon_rpc_open(&daemon->rpc, error);
}

static enum paged_status
daemon_open_control(struct daemon *daemon, struct paged_error *error)
{
	struct control *control = &daemon->control;

	control->config = daemon->config;
	control->loop = &daemon->loop;
	control->core = daemon->core;
	control->pools = &daemon->pools;
	control->runtime = &daemon->runtime;
	control->members = &daemon->members;
	control->session_cleanup = &daemon->session_cleanup;
	control->metrics = &daemon->metrics;
	memcpy(control->boot_id, daemon->boot_id, sizeof(control->boot_id));
	return daemon_control_open(control, error);
}

enum paged_status
daemon_open(struct daemon *daemon, const struct config *config, const char *runtime_dir, struct paged_error *error)
{
	uint64_t started_ms = clock_ms();
	enum paged_status status;

	*daemon = (struct daemon){ .config = config, .runtime = { .dir_fd = -1, .lock_fd = -1 } };
	status = daemon_raise_descriptor_limit(config, error);
	if (status == PAGED_OK)
		status = kernel_check(error);
	if (status == PAGED_OK)
		status = daemon_random(daemon->boot_id, sizeof(daemon->boot_id), error);
	if (status == PAGED_OK)
		status = loop_open(&daemon->loop, error);
	if (status != PAGED_OK)
		return status;
	daemon_init_parts(daemon);
	status = daemon_open_signals(daemon, error);
	if (status == PAGED_OK)
		status = runtime_open(&daemon->runtime, runtime_dir, config, error);
	if (status == PAGED_OK)
		status = memory_wait(config, &daemon->runtime, error);
	if (status == PAGED_OK)
		status = core_create(daemon->boot_id, &daemon->core, error);
	if (status != PAGED_OK)
		return status;
	core_array_set_quota(daemon->core, config->array_bytes);
	core_set_step(daemon->core, DAEMON_STEP);
	session_cleanup_open(&daemon->session_cleanup, &daemon->loop, daemon->core, cleanup_complete);
	cache_cleanup_open(&daemon->cache_cleanup, &daemon->loop, daemon->core, &daemon->session_cleanup);
	status = daemon_pools_open(&daemon->pools, config, &daemon->runtime, daemon->core, error);
	if (status == PAGED_OK)
		status = daemon_tenants_add(config, daemon->core, error);
	if (status == PAGED_OK) {
		runtime_claim(&daemon->runtime);
		status = daemon_open_services(daemon, started_ms, error);
	}
	return status == PAGED_OK ? daemon_open_control(daemon, error) : status;
}

void
daemon_run(struct daemon *daemon)
{
	daemon->watchdog_ms = service_manager_watchdog_us() / 2000;
	if (daemon->watchdog_ms > 0)
		loop_timer_start(&daemon->loop, &daemon->watchdog, daemon->watchdog_ms);
	if (daemon_pools_can_fail(&daemon->pools))
		loop_timer_start(&daemon->loop, &daemon->poll, POLL_INTERVAL_MS);
	service_manager_notify("READY=1");
	log_info("pagedd", "ready at %s", daemon->runtime.dir);
	loop_run(&daemon->loop);
	if (!daemon->gpu_lost)
		log_info("pagedd", "stopped after %" PRIu64 " requests", daemon->rpc.n_requests);
}

void
daemon_close(struct daemon *daemon)
{
	daemon_control_close(&daemon->control);
	if (daemon->members.config != NULL)
		members_close(&daemon->members);
	background_thread_close(&daemon->background);
	daemon_rpc_close(&daemon->rpc);
	endpoint_close(&daemon->endpoint);
	core_destroy(daemon->core);
	daemon_pools_close(&daemon->pools);
	if (daemon->signals.fd > 0)
		close(daemon->signals.fd);
	runtime_close(&daemon->runtime);
	loop_close(&daemon->loop);
}
