/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/member.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/text.h"
#include "daemon/connection.h"
#include "daemon/pidfd.h"
#include "daemon/random.h"
#include "daemon/tenants.h"

/* Log lines in a window: bursts of about a thousand are logged, endless ones are not. */
#define LOG_LINES_BURST 1000

void
members_open(struct members *members)
{
	members->limit.burst = LOG_LINES_BURST;
	LIST_INIT(&members->detached);
	for (int i = 0; i < MEMBERS_BUCKETS; i++) {
		LIST_INIT(&members->members[i]);
		LIST_INIT(&members->sessions[i]);
	}
}

struct member *
member_find(const struct members *members, uint32_t id)
{
	struct member *member;

	LIST_FOREACH(member, &members->members[id % MEMBERS_BUCKETS], hash_link)
		if (member->id == id)
			return member;
	return NULL;
}

struct session *
daemon_session_find(const struct members *members, uint32_t id)
{
	struct session *session;

	LIST_FOREACH(session, &members->sessions[id % MEMBERS_BUCKETS], hash_link)
		if (session->id == id)
			return session;
	return NULL;
}

/* Compares in constant time, so that the time does not reveal the position of the first difference. */
static bool
token_equal(const uint8_t a[WIRE_TOKEN_SIZE], const uint8_t b[WIRE_TOKEN_SIZE])
{
	uint8_t difference = 0;

	for (int i = 0; i < WIRE_TOKEN_SIZE; i++)
		difference |= a[i] ^ b[i];
	return difference == 0;
}

bool
member_admit(void *context, const struct zap_peer *peer, const char **why_p)
{
	struct member *member = member_find(context, peer->id);
	uint8_t token[WIRE_TOKEN_SIZE];

	*why_p = "no such attached member, or a wrong token";
	if (member == NULL || member->state != MEMBER_ATTACHED || !text_unhex(token, sizeof(token), peer->password) ||
	    !token_equal(token, member->token))
		return false;
	*why_p = "another process than the member's";
	if (peer->uid != member->uid || peer->gid != member->gid || peer->pid != (uint32_t)member->pid)
		return false;
	*why_p = "too many connections of one member";
	if (member->n_admitted == ENDPOINT_CONNECTIONS)
		return false;
	member->n_admitted++;
	return true;
}

enum paged_status
member_check_pool(const struct member *member, uint32_t pool, struct paged_error *error)
{
	const struct pools *pools = member->members->pools;

	if (pool >= pools->n)
		return paged_fail(error, PAGED_ERR_NOENT, "no pool number %u; there are %zu", pool, pools->n);
	if ((member->pool_mask >> pool & 1) == 0)
		return paged_fail(error, PAGED_ERR_PERM, "pool %s: its allow-lists do not include uid %u",
				  pools->pool[pool].config->name, (unsigned)member->uid);
	return PAGED_OK;
}

void
member_log(const struct member *member, const char *format, ...)
{
	bool observer = member->session == NULL;
	char text[256];
	va_list arguments;

	if (!observer && !log_limit_pass(&member->members->limit, LOG_LEVEL_INFO, "member", clock_ms()))
		return;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	log_write(observer ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO, "member", member_ids(member), "%s", text);
}

static enum paged_status
member_create_session(struct members *members, struct member *member, bool outlives, struct paged_error *error)
{
	uint32_t n_sessions = core_n_sessions(members->core);
	enum paged_status status;
	struct session *session;

	if (n_sessions >= members->config->max_sessions)
		return paged_fail(error, PAGED_ERR_LIMIT, "%u sessions, and max-sessions is %u", n_sessions,
				  members->config->max_sessions);
	status = core_tenant_check_sessions(members->core, member->tenant, error);
	if (status != PAGED_OK)
		return status;
	session = calloc(1, sizeof(*session));
	if (session == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for a session");
	TAILQ_INIT(&session->members);
	status = daemon_random(session->join_token, sizeof(session->join_token), error);
	if (status == PAGED_OK)
		status = core_session_open(members->core, &session->id, &member->id, error);
	if (status != PAGED_OK) {
		free(session);
		return status;
	}
	core_session_tenant(members->core, session->id, member->tenant);
	session->outlives = outlives;
	if (outlives)
		core_session_outlive(members->core, session->id);
	LIST_INSERT_HEAD(&members->sessions[session->id % MEMBERS_BUCKETS], session, hash_link);
	member->session = session;
	member->first = true;
	return PAGED_OK;
}

static enum paged_status
member_join_session(struct members *members, struct member *member, const uint8_t token[WIRE_TOKEN_SIZE],
		    struct paged_error *error)
{
	struct session *each, *session = NULL;
	enum paged_status status;

	for (int i = 0; i < MEMBERS_BUCKETS; i++)
		LIST_FOREACH(each, &members->sessions[i], hash_link)
			if (token_equal(each->join_token, token))
				session = each;
	if (session == NULL || session->ended)
		return paged_fail(error, PAGED_ERR_GONE, "the join token names no active session of this daemon");
	status = core_session_join(members->core, session->id, &member->id, error);
	if (status == PAGED_OK)
		member->session = session;
	return status;
}

static enum paged_status
member_assume_role(struct members *members, struct member *member, const struct wire_control_request *hello,
		   struct paged_error *error)
{
	switch (hello->hello.role) {
	case WIRE_ROLE_SESSION:
		return member_create_session(members, member, hello->hello.outlive, error);
	case WIRE_ROLE_JOIN:
		return member_join_session(members, member, hello->hello.join_token, error);
	case WIRE_ROLE_OBSERVER:
		member->id = MEMBER_OBSERVER | ++members->last_observer;
		return PAGED_OK;
	}
	return paged_fail(error, PAGED_ERR_PROTOCOL, "no role %d", (int)hello->hello.role);
}

static void
member_pidfd_ready(struct loop_source *source, uint32_t events)
{
	struct member *member = container_of(source, struct member, pidfd);

	(void)events;
	member_log(member, "%u: process %d ended", member->id, (int)member->pid);
	member->members->metrics->n_died++;
	member_exited(member);
}

static struct member *
member_create(struct members *members, struct connection *connection, const struct wire_control_request *hello,
	      const struct policy_peer *peer)
{
	const struct config *config = members->config;
	struct member *member = calloc(1, sizeof(*member));

	if (member == NULL)
		return NULL;
	member->members = members;
	member->state = MEMBER_ATTACHED;
	member->connection = connection;
	member->uid = peer->uid;
	member->gid = peer->gid;
	member->pid = peer->pid;
	member->admin = policy_admin(config, peer);
	for (size_t i = 0; i < config->n_pools; i++)
		if (policy_pool(&config->pools[i], peer))
			member->pool_mask |= 1ull << i;
	memcpy(member->name, hello->hello.name, sizeof(member->name));
	member->pidfd = (struct loop_source){ .fd = -1, .ready = member_pidfd_ready };
	return member;
}

/*
 * Enforces the limits.  A member counts until it sends Bye or its process
 * ends.  A process that repeatedly disconnects without Bye therefore uses up
 * its own limit, LIMIT_MEMBERS_PER_PROCESS, and no other process's.
 */
static enum paged_status
member_check_limits(const struct members *members, const struct member *newcomer, struct paged_error *error)
{
	const struct config *config = members->config;
	uint32_t n_process = 0, n_user = 0;
	const struct member *member;

	for (int i = 0; i < MEMBERS_BUCKETS; i++) {
		LIST_FOREACH(member, &members->members[i], hash_link) {
			n_process += member->pid == newcomer->pid;
			n_user += member->uid == newcomer->uid;
		}
	}
	if (n_process >= LIMIT_MEMBERS_PER_PROCESS)
		return paged_fail(
			error, PAGED_ERR_LIMIT,
			"process %d has %u members, the maximum for one process; those that disconnected without Bye "
			"count until it ends",
			(int)newcomer->pid, n_process);
	if (members->n >= config->max_members + (newcomer->admin ? LIMIT_EXTRA_ADMIN_MEMBERS : 0))
		return paged_fail(error, PAGED_ERR_LIMIT, "%u members, and max-members is %u", members->n,
				  config->max_members);
	if (!newcomer->admin && config->max_user_members != 0 && n_user >= config->max_user_members)
		return paged_fail(error, PAGED_ERR_LIMIT, "uid %u has %u members, and max-members-per-user is %u",
				  (unsigned)newcomer->uid, n_user, config->max_user_members);
	return PAGED_OK;
}

enum paged_status
member_attach(struct members *members, struct connection *connection, const struct wire_control_request *hello,
	      const struct policy_peer *peer, int pidfd, struct member **member_p, struct paged_error *error)
{
	enum paged_status status;
	struct member *member;

	member = member_create(members, connection, hello, peer);
	if (member == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for a member");
	status = member_check_limits(members, member, error);
	if (status == PAGED_OK)
		status = daemon_tenant_join(members->config, members->core, peer, &member->tenant, error);
	if (status != PAGED_OK)
		goto err_free;
	status = daemon_random(member->token, sizeof(member->token), error);
	if (status == PAGED_OK)
		status = endpoint_bind(members->endpoint, member->pid, member->endpoint, error);
	if (status != PAGED_OK)
		goto err_leave;
	status = loop_add(members->loop, &member->pidfd, pidfd, error);
	if (status != PAGED_OK)
		goto err_unbind;
	status = member_assume_role(members, member, hello, error);
	if (status != PAGED_OK)
		goto err_remove;

	if (member->session != NULL) {
		TAILQ_INSERT_TAIL(&member->session->members, member, session_link);
		members->n_connected++;
	}
	LIST_INSERT_HEAD(&members->members[member->id % MEMBERS_BUCKETS], member, hash_link);
	members->n++;
	members->metrics->n_attached++;
	members->metrics->n_opened += member->first;
	*member_p = member;
	return PAGED_OK;

err_remove:
	loop_remove(members->loop, &member->pidfd);
err_unbind:
	endpoint_unbind(members->endpoint, member->endpoint);
err_leave:
	core_tenant_leave(members->core, member->tenant);
err_free:
	free(member);
	return status;
}

static void
session_send_notice(struct session *session, const char *why)
{
	struct wire_control_reply notice = { .kind = WIRE_NOTICE, .notice.kind = WIRE_NOTICE_ENDED };
	struct member *member;

	snprintf(notice.notice.text, sizeof(notice.notice.text), "session %u ended: %s", session->id, why);
	TAILQ_FOREACH(member, &session->members, session_link)
		if (member->connection != NULL)
			connection_notify(member->connection, &notice);
}

/* Ends the session in the core; its pages stay in quarantine until the remaining members have left. */
static void
session_mark_ended(struct members *members, struct session *session, const char *why)
{
	const struct log_ids ids = { .session = session->id };
	struct paged_error error;

	if (session->ended)
		return;
	session->ended = true;
	background_thread_cancel_session(members->background, session->id);
	if (log_limit_pass(&members->limit, LOG_LEVEL_INFO, "session", clock_ms()))
		log_write(LOG_LEVEL_INFO, "session", ids, "%u ended: %s", session->id, why);
	if (core_session_end(members->core, session->id, &error) != PAGED_OK &&
	    log_limit_pass(&members->limit, LOG_LEVEL_ERROR, "session", clock_ms()))
		log_write(LOG_LEVEL_ERROR, "session", ids, "%u: %s", session->id, error.text);
	session_send_notice(session, why);
	session_cleanup_schedule(members->session_cleanup);
}

/* Whether an earlier member of the session is the same process. */
static bool
member_repeats_process(const struct session *session, const struct member *member)
{
	const struct member *each;

	TAILQ_FOREACH(each, &session->members, session_link) {
		if (each == member)
			return false;
		if (each->pid == member->pid)
			return true;
	}
	return false;
}

/* Sends SIGKILL to the processes of an ended session; PAGED_ERR_SYSTEM: not to all of them. */
static enum paged_status
session_kill_members(struct session *session, struct paged_error *error)
{
	uint32_t n_killed = 0, n_failed = 0;
	const struct member *member;
	char why[128] = "";

	TAILQ_FOREACH(member, &session->members, session_link) {
		if (member_repeats_process(session, member))
			continue;
		member_log(member, "%u: SIGKILL to process %d", member->id, (int)member->pid);
		if (pidfd_kill(member->pidfd.fd, SIGKILL) == 0 || errno == ESRCH) {
			n_killed++;
			continue;
		}
		if (n_failed++ == 0)
			snprintf(why, sizeof(why), "process %d of uid %u: %s", (int)member->pid, (unsigned)member->uid,
				 strerror(errno));
		if (log_limit_pass(&member->members->limit, LOG_LEVEL_WARNING, "member", clock_ms()))
			log_write(LOG_LEVEL_WARNING, "member", member_ids(member), "%u: process %d: SIGKILL: %m",
				  member->id, (int)member->pid);
	}
	if (n_failed == 0)
		return PAGED_OK;
	return paged_fail(
		error, PAGED_ERR_SYSTEM,
		"session %u was ended, but of its processes %u %s killed and %u not: %s; pagedd runs as uid %u",
		session->id, n_killed, n_killed == 1 ? "was" : "were", n_failed, why, (unsigned)geteuid());
}

enum paged_status
daemon_session_end(struct members *members, uint32_t id, bool kill_members, const char *why, struct paged_error *error)
{
	struct session *session = daemon_session_find(members, id);
	uint32_t n_tickets = core_tickets_revoke(members->core, id);

	if (n_tickets != 0 && log_limit_pass(&members->limit, LOG_LEVEL_INFO, "session", clock_ms()))
		log_info("session", "%u: %u of its tickets %s revoked: %s", id, n_tickets,
			 n_tickets == 1 ? "was" : "were", why);
	if (session == NULL && n_tickets != 0)
		return PAGED_OK;
	if (session == NULL)
		return paged_fail(error, PAGED_ERR_NOENT, "no session %u", id);
	session_mark_ended(members, session, why);
	return kill_members ? session_kill_members(session, error) : PAGED_OK;
}

void
member_notify_draining(const struct member *member)
{
	struct wire_control_reply notice = { .kind = WIRE_NOTICE, .notice.kind = WIRE_NOTICE_DRAINED };

	snprintf(notice.notice.text, sizeof(notice.notice.text),
		 "session %u is drained and gets no new sequences: finish or give away those it has, then close",
		 member->session->id);
	if (member->connection != NULL)
		connection_notify(member->connection, &notice);
}

enum paged_status
daemon_session_drain(struct members *members, uint32_t id, const char *who, struct paged_error *error)
{
	struct session *session = daemon_session_find(members, id);
	const struct member *member;
	enum paged_status status;

	if (session == NULL)
		return paged_fail(error, PAGED_ERR_NOENT, "no session %u", id);
	if (session->ended || session->draining)
		return PAGED_OK;
	status = core_session_drain(members->core, id, error);
	if (status != PAGED_OK)
		return status;
	session->draining = true;
	if (log_limit_pass(&members->limit, LOG_LEVEL_INFO, "session", clock_ms()))
		log_info("session", "%u drained by %s", id, who);
	TAILQ_FOREACH(member, &session->members, session_link)
		member_notify_draining(member);
	return PAGED_OK;
}

/* Ends the session if it ends with this member, which is no longer attached. */
static void
session_end_if_due(struct session *session, const struct member *left, const char *why)
{
	const struct member *member;

	if (!session->outlives && !left->first)
		return;
	if (session->outlives)
		TAILQ_FOREACH(member, &session->members, session_link)
			if (member->state == MEMBER_ATTACHED)
				return;
	session_mark_ended(left->members, session, why);
}

void
member_revoke(struct member *member, const char *why)
{
	if (member->state != MEMBER_ATTACHED)
		return;
	member->state = MEMBER_REVOKED;
	member_log(member, "%u (process %d, uid %u) revoked: %s", member->id, (int)member->pid, (unsigned)member->uid,
		   why);
	endpoint_unbind(member->members->endpoint, member->endpoint);
	background_thread_cancel_member(member->members->background, member->id);
	if (member->session != NULL)
		session_end_if_due(member->session, member, why);
	if (member->connection != NULL && (member->session == NULL || !member->session->ended)) {
		struct wire_control_reply notice = { .kind = WIRE_NOTICE, .notice.kind = WIRE_NOTICE_ENDED };

		snprintf(notice.notice.text, sizeof(notice.notice.text), "member %u ended: %s", member->id, why);
		connection_notify(member->connection, &notice);
	}
}

/* The daemon, which may wait for the last member to leave, checks n_connected in the next iteration of the loop. */
static void
members_disconnect(struct members *members)
{
	members->n_connected--;
	loop_wake(members->loop);
}

void
member_disconnected(struct member *member)
{
	member->connection = NULL;
	if (member->session != NULL)
		members_disconnect(member->members);
	member_revoke(member, "its control socket closed");
}

/* Removes a member from all lists of the daemon, and ends its session if due.  The core still counts the member. */
static void
member_detach(struct member *member)
{
	struct members *members = member->members;
	struct session *session = member->session;

	member->state = MEMBER_DETACHED;
	endpoint_unbind(members->endpoint, member->endpoint);
	background_thread_cancel_member(members->background, member->id);
	if (member->connection != NULL) {
		connection_detach(member->connection);
		if (session != NULL)
			members_disconnect(members);
	}
	if (session != NULL) {
		TAILQ_REMOVE(&session->members, member, session_link);
		session_end_if_due(session, member,
				   session->outlives ? "its last member left" : "its first member left");
		if (TAILQ_EMPTY(&session->members)) {
			LIST_REMOVE(session, hash_link);
			free(session);
		}
		member->session = NULL;
	}
	LIST_REMOVE(member, hash_link);
	members->n--;
	core_tenant_leave(members->core, member->tenant);
	if (member->pidfd.fd >= 0) {
		int fd = member->pidfd.fd;

		loop_remove(members->loop, &member->pidfd);
		close(fd);
	}
}

/* The core ignores the id of an observer. */
static void
member_release(struct member *member)
{
	core_member_leave(member->members->core, member->id);
	session_cleanup_schedule(member->members->session_cleanup);
	free(member);
}

void
member_leave(struct member *member)
{
	member_detach(member);
	member_release(member);
}

static uint32_t
quarantine_ms(const struct member *member)
{
	const struct pools *pools = member->members->pools;
	uint32_t longest = 0;

	for (size_t i = 0; i < pools->n; i++)
		if (member->opened_mask >> i & 1)
			longest = MAX(longest, pools->pool[i].config->quarantine_ms);
	return longest;
}

static void
quarantine_over(struct loop_timer *timer)
{
	struct member *member = container_of(timer, struct member, quarantine_timer);

	LIST_REMOVE(member, hash_link);
	member_release(member);
}

void
member_exited(struct member *member)
{
	uint32_t wait_ms = member->session != NULL ? quarantine_ms(member) : 0;
	struct members *members = member->members;

	if (wait_ms == 0) {
		member_leave(member);
		return;
	}
	member_detach(member);
	LIST_INSERT_HEAD(&members->detached, member, hash_link);
	member->quarantine_timer.fire = quarantine_over;
	loop_timer_start(members->loop, &member->quarantine_timer, wait_ms);
}

void
members_close(struct members *members)
{
	while (!LIST_EMPTY(&members->detached)) {
		struct member *member = LIST_FIRST(&members->detached);

		loop_timer_stop(&member->quarantine_timer);
		LIST_REMOVE(member, hash_link);
		free(member);
	}
	for (int i = 0; i < MEMBERS_BUCKETS; i++) {
		while (!LIST_EMPTY(&members->members[i])) {
			struct member *member = LIST_FIRST(&members->members[i]);

			LIST_REMOVE(member, hash_link);
			close(member->pidfd.fd);
			free(member);
		}
		while (!LIST_EMPTY(&members->sessions[i])) {
			struct session *session = LIST_FIRST(&members->sessions[i]);

			LIST_REMOVE(session, hash_link);
			free(session);
		}
	}
}
