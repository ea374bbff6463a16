/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/fuzz_daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/array.h"
#include "daemon/pidfd.h"
#include "daemon/random.h"
#include "tests/fuzz/fuzz.h"

static const char config_text[] =
	"max-sessions = 8 max-members = 12 mask-time = 1s mask-size = 1MiB mask-arrays = 8192\n"
	"pool p { layers = 1 kv-heads = 1 head-dim = 8 pages = 24 page-size = 4 sequences = 12 max-length = 40\n"
	"quarantine = 0s free-pages = 2 pin-limit = 50% }\n"
	"pool q { layers = 1 kv-heads = 1 head-dim = 8 pages = 8 page-size = 2 sequences = 4 max-length = 12\n"
	"quarantine = 0s publish = no }\n";

/* Entries and pages of a step, few: most requests take several. */
enum { STEP = 3, MAX_FDS = 3 };

static struct daemon *daemon_;
static struct config config;
static struct wire_arena arena;
static char dir[] = "/tmp/fuzz-daemon.XXXXXX";
static struct loop_work one_turn;
static uint64_t n_random;

/* What --wrap replaces. */

enum paged_status __wrap_endpoint_bind(struct endpoint *endpoint, pid_t pid, char name[WIRE_MAX_ENDPOINT],
				       struct paged_error *error);
void __wrap_endpoint_unbind(struct endpoint *endpoint, char name[WIRE_MAX_ENDPOINT]);
enum paged_status __wrap_daemon_random(void *bytes, size_t size, struct paged_error *error);
int __wrap_pidfd_kill(int pidfd, int signal);

enum paged_status
__wrap_endpoint_bind(struct endpoint *endpoint, pid_t pid, char name[WIRE_MAX_ENDPOINT], struct paged_error *error)
{
	(void)endpoint, (void)error;
	snprintf(name, WIRE_MAX_ENDPOINT, "ipc:///fuzz-%d", (int)pid);
	return PAGED_OK;
}

void
__wrap_endpoint_unbind(struct endpoint *endpoint, char name[WIRE_MAX_ENDPOINT])
{
	(void)endpoint;
	name[0] = '\0';
}

/* Never the same bytes twice in one input. */
enum paged_status
__wrap_daemon_random(void *bytes, size_t size, struct paged_error *error)
{
	(void)error;
	n_random++;
	for (size_t i = 0; i < size; i++)
		((uint8_t *)bytes)[i] = (uint8_t)(n_random >> (i % 8 * 8)) ^ (uint8_t)i;
	return PAGED_OK;
}

int
__wrap_pidfd_kill(int pidfd, int signal)
{
	(void)pidfd, (void)signal;
	return 0;
}

/* The daemon */

static bool
turn_end(struct loop_work *work)
{
	(void)work;
	loop_stop(&daemon_->loop);
	return false;
}

static void
daemon_remove(void)
{
	daemon_close(daemon_);
	config_free(&config);
	free(daemon_);
	wire_arena_destroy(&arena);
	rmdir(dir);
}

static void
daemon_start(void)
{
	int fd = memfd_create("pagedd.conf", MFD_CLOEXEC);
	struct paged_error error;
	sigset_t none;
	char path[64];

	fuzz_require(fd >= 0 && write(fd, config_text, strlen(config_text)) == (ssize_t)strlen(config_text));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	daemon_ = malloc(sizeof(*daemon_));
	log_set_level(LOG_LEVEL_ERROR);
	if (daemon_ == NULL || mkdtemp(dir) == NULL || config_load(&config, path, &error) != PAGED_OK ||
	    daemon_open(daemon_, &config, dir, &error) != PAGED_OK || wire_arena_create(&arena, &error) != PAGED_OK) {
		fprintf(stderr, "%s\n", error.text);
		abort();
	}
	close(fd);
	/* libFuzzer is ended by signals. */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	core_set_step(daemon_->core, STEP);
	one_turn.step = turn_end;
	loop_work_add(&daemon_->loop, &one_turn);
	atexit(daemon_remove);
}

struct daemon *
fuzz_daemon_begin(void)
{
	if (daemon_ == NULL)
		daemon_start();
	n_random = 0;
	return daemon_;
}

void
fuzz_daemon_pump(void)
{
	/* A turn may cause events of the next. */
	for (int idle = 0; idle < 2; idle = daemon_->loop.woken ? 0 : idle + 1)
		loop_run(&daemon_->loop);
}

/* Connections */

int
fuzz_daemon_connect(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/control", dir);
	fuzz_require(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	fuzz_daemon_pump();
	return fd;
}

void
fuzz_daemon_send(int fd, const void *bytes, size_t size, unsigned int n_fds)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int) * MAX_FDS)];
	} ancillary = { 0 };
	struct iovec part = { .iov_base = (void *)bytes, .iov_len = size };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

	if (n_fds > 0) {
		int fds[MAX_FDS] = { fd, fd, fd };

		n_fds = n_fds < MAX_FDS ? n_fds : MAX_FDS;
		message.msg_control = &ancillary;
		message.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
		ancillary.header.cmsg_level = SOL_SOCKET;
		ancillary.header.cmsg_type = SCM_RIGHTS;
		ancillary.header.cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
		memcpy(CMSG_DATA(&ancillary.header), fds, sizeof(int) * n_fds);
	}
	if (sendmsg(fd, &message, MSG_NOSIGNAL) >= 0)
		fuzz_daemon_pump();
}

void
fuzz_daemon_hello(int fd, enum wire_role role, uint32_t major, bool outlive, const uint8_t *join_token)
{
	struct wire_control_request request = {
		.kind = WIRE_HELLO,
		.hello = { .version_major = major, .role = role, .outlive = outlive, .name = "fuzz" }
	};
	uint8_t message[256];

	if (role == WIRE_ROLE_JOIN)
		memcpy(request.hello.join_token, join_token, sizeof(request.hello.join_token));
	fuzz_daemon_send(fd, message, wire_control_request_pack(&request, message, sizeof(message)), 0);
}

int
fuzz_daemon_receive(int fd, struct wire_control_reply *reply)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int) * WIRE_N_POOL_FDS)];
	} ancillary;
	uint8_t bytes[4096];
	struct iovec part = { .iov_base = bytes, .iov_len = sizeof(bytes) };
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = &ancillary, .msg_controllen = sizeof(ancillary)
	};
	ssize_t n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *header = n > 0 ? CMSG_FIRSTHDR(&message) : NULL;
	struct paged_error error;
	size_t n_fds = 0;
	int fds[WIRE_N_POOL_FDS];

	if (n <= 0)
		return n == 0 || errno != EAGAIN ? -1 : 0;
	if (header != NULL) {
		n_fds = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(fds, CMSG_DATA(header), n_fds * sizeof(int));
		for (size_t i = 0; i < n_fds; i++)
			close(fds[i]);
	}
	wire_arena_reset(&arena);
	fuzz_require(wire_control_reply_parse(bytes, (size_t)n, &arena, reply, &error) == PAGED_OK);
	fuzz_require(n_fds == wire_control_reply_fds(reply));
	return 1;
}

/* The end of an input */

static void
members_exit(struct members *members)
{
	for (int i = 0; i < MEMBERS_BUCKETS; i++)
		while (!LIST_EMPTY(&members->members[i]))
			member_exited(LIST_FIRST(&members->members[i]));
	session_cleanup_schedule(&daemon_->session_cleanup);
	fuzz_daemon_pump();
}

/* Ends the pins and tickets that outlive their sessions, and evicts what is cached. */
static void
core_empty(struct core *core)
{
	struct paged_ticket_entry ticket;
	struct paged_error error;
	struct paged_pin_entry pin;

	while (core_ticket_next(core, 0, &ticket)) {
		fuzz_require(core_tickets_revoke(core, ticket.session) > 0);
		cache_cleanup_schedule(&daemon_->cache_cleanup);
		session_cleanup_schedule(&daemon_->session_cleanup);
		fuzz_daemon_pump();
	}
	for (uint32_t pool = 0; pool < config.n_pools; pool++)
		while (core_pin_next(core, pool, 0, &pin))
			fuzz_require(core_pin_end(core, pool, pin.number, &error) == PAGED_OK);
	core_prefix_evict(core, 0, 0);
	cache_cleanup_schedule(&daemon_->cache_cleanup);
	session_cleanup_schedule(&daemon_->session_cleanup);
	fuzz_daemon_pump();
}

void
fuzz_daemon_end(void)
{
	struct core *core = daemon_->core;
	struct paged_check_result result;
	struct paged_error error;

	fuzz_daemon_pump();
	members_exit(&daemon_->members);
	while (daemon_->background.n_jobs > 0) {
		poll(NULL, 0, 1);
		fuzz_daemon_pump();
	}
	core_empty(core);
	fuzz_require(daemon_->members.n == 0 && daemon_->members.n_connected == 0 && core_n_sessions(core) == 0);
	fuzz_require(LIST_EMPTY(&daemon_->control.connections) && daemon_->control.n_unidentified == 0);
	fuzz_require(TAILQ_EMPTY(&daemon_->rpc.unfinished) && daemon_->rpc.checks.n == 0);
	for (uint32_t pool = 0; pool < config.n_pools; pool++) {
		if (core_check(core, pool, &result, &error) != PAGED_OK) {
			fprintf(stderr, "pool %u: %s\n", pool, error.text);
			abort();
		}
		fuzz_require(result.n_free == result.n_pages && result.n_sequences == 0);
	}
	log_set_level(LOG_LEVEL_ERROR);
}
