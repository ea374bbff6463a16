/* SPDX-License-Identifier: Apache-2.0 */
/**
 * member.h - attached processes and the sessions they form
 *
 * A member's life is enum member_state:
 *
 *   attached  -> revoked   its control socket closed without Bye, or it does
 *                          not read its replies
 *   attached,
 *   revoked   -> detached  its process ended, and a pool that it opened has a
 *                          quarantine time
 *             -> freed     it sent Bye, or its process ended without a
 *                          quarantine time
 *   detached  -> freed     the quarantine time is over
 *
 * A session ends when its first member is no longer attached; if it outlives
 * that member (Hello.outlive), when no member is; or when it is kicked.
 *
 * The core identifies sessions and members by number and does the page
 * accounting; this file maps the numbers to processes.
 */
#ifndef PAGED_DAEMON_MEMBER_H
#define PAGED_DAEMON_MEMBER_H

#include <stdbool.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "core/core.h"
#include "daemon/background_thread.h"
#include "daemon/endpoint.h"
#include "daemon/log/log.h"
#include "daemon/loop.h"
#include "daemon/metrics.h"
#include "daemon/policy.h"
#include "daemon/pools.h"
#include "daemon/session_cleanup.h"
#include "proto/wire.h"

struct connection;
struct session;

/** Set in the ids of observers, so that the core's member ids stay dense. */
#define MEMBER_OBSERVER 0x80000000u

enum member_state {
	MEMBER_ATTACHED, /* requests are answered */
	MEMBER_REVOKED,  /* requests are ignored, and its endpoint is unbound; its process may still access pages */
	MEMBER_DETACHED, /* in no session; only the core still counts it, until the quarantine time is over */
};

struct member {
	struct members *members;
	uint32_t id;
	enum member_state state;
	struct session *session; /* NULL: an observer */
	bool first;              /* it created the session; see session->outlives */
	bool admin;
	uid_t uid;
	gid_t gid;
	pid_t pid;
	uint32_t tenant;      /* of its process, and of a session that it creates; 0: none */
	uint64_t pool_mask;   /* bit i: it may open pool i */
	uint64_t opened_mask; /* bit i: pool i was granted to it, so it may have mapped the pool */
	uint64_t n_requests;
	char name[PAGED_MAX_NAME + 1];
	uint8_t token[WIRE_TOKEN_SIZE];
	char endpoint[WIRE_MAX_ENDPOINT]; /* "" once revoked */

	struct connection *connection; /* NULL once the control socket is down */
	struct loop_source pidfd;
	unsigned int n_admitted;            /* RPC connections admitted so far */
	struct loop_timer quarantine_timer; /* ends MEMBER_DETACHED */
	LIST_ENTRY(member) hash_link;       /* in members->members[]; once detached, in members->detached */
	TAILQ_ENTRY(member) session_link;
};

struct session {
	uint32_t id;
	bool outlives; /* it ends when no member is attached, not with its first member */
	bool draining; /* it gets no new sequences */
	bool ended;
	uint8_t join_token[WIRE_TOKEN_SIZE];
	TAILQ_HEAD(, member) members; /* ordered by id */
	LIST_ENTRY(session) hash_link;
};

/** member_ids - for lines of the log about the member */
static inline struct log_ids
member_ids(const struct member *member)
{
	return (struct log_ids){
		.session = member->session != NULL ? member->session->id : 0,
		.member = member->id,
		.pid = (uint32_t)member->pid,
	};
}

enum {
	MEMBERS_BUCKETS = 256,
	LIMIT_MEMBERS_PER_PROCESS = 64,
	LIMIT_EXTRA_ADMIN_MEMBERS = 8, /* beyond max-members, so that administrators can always attach, list and kick */
};

/** The caller sets the pointers, which are borrowed, before members_open(). */
struct members {
	const struct config *config;
	struct loop *loop;
	struct core *core;
	const struct pools *pools;
	struct endpoint *endpoint;
	struct background_thread *background;
	struct session_cleanup *session_cleanup;
	struct metrics *metrics;

	uint32_t n;             /* members, observers included, that are attached or revoked */
	struct log_limit limit; /* of log lines about members and sessions */
	uint32_t n_connected;   /* members of sessions whose control socket is up */
	uint32_t last_observer;
	LIST_HEAD(, member) detached;
	LIST_HEAD(, member) members[MEMBERS_BUCKETS];
	LIST_HEAD(, session) sessions[MEMBERS_BUCKETS];
};

void members_open(struct members *members);

/** members_close - free all members and sessions without any notice */
void members_close(struct members *members);

/** member_find, daemon_session_find - NULL: none */
struct member *member_find(const struct members *members, uint32_t id);
struct session *daemon_session_find(const struct members *members, uint32_t id);

/**
 * member_admit - admit an RPC connection: its user name and password must be the id and token of an attached member
 *
 * @param[in] context  the members; see endpoint_ops
 */
bool member_admit(void *context, const struct zap_peer *peer, const char **why_p);

/**
 * member_check_pool - PAGED_ERR_NOENT if there is no such pool, PAGED_ERR_PERM if its allow-lists exclude the member
 */
enum paged_status member_check_pool(const struct member *member, uint32_t pool, struct paged_error *error);

/** member_log - log a line about a member; for observers, which attach often, at debug level only */
void member_log(const struct member *member, const char *format, ...) __attribute__((format(printf, 2, 3)));

/**
 * member_attach - create a member for a process, with the role that its hello asks for
 *
 * @param[in] connection  its control socket
 * @param[in] peer        its credentials
 * @param[in] pidfd       of its process; owned by the member on PAGED_OK
 * @retval PAGED_ERR_LIMIT  max-sessions, max-members, max-members-per-user, LIMIT_MEMBERS_PER_PROCESS, or the tenant's
 *                          share of sessions or members is reached
 * @retval PAGED_ERR_GONE   the join token names no active session
 */
enum paged_status member_attach(struct members *members, struct connection *connection,
				const struct wire_control_request *hello, const struct policy_peer *peer, int pidfd,
				struct member **member_p, struct paged_error *error);

/** member_disconnected - revoke a member whose control socket was closed without a Bye */
void member_disconnected(struct member *member);

/**
 * member_revoke - stop serving an attached member and end its session if due; a member that is connected receives the
 * reason
 */
void member_revoke(struct member *member, const char *why);

/** member_leave - remove a member that has promised not to access pages again (Bye) from session and core; free it */
void member_leave(struct member *member);

/**
 * member_exited - remove a member whose process has ended, as member_leave() does, after the quarantine time of the
 * pools that it opened
 */
void member_exited(struct member *member);

/**
 * daemon_session_end - end a session and notify its members (kick)
 *
 * Tickets of an active session stay.  Those of a session that has ended already expire now.
 *
 * @param[in] kill_members  also send SIGKILL to each member
 * @retval PAGED_ERR_NOENT   no such session
 * @retval PAGED_ERR_SYSTEM  the session was ended, but not all of its processes could be killed
 */
enum paged_status daemon_session_end(struct members *members, uint32_t session, bool kill_members, const char *why,
				     struct paged_error *error);

/**
 * daemon_session_drain - give a session no new sequences from now on, and notify its members
 *
 * Does nothing if it is drained already, or has ended.
 *
 * @param[in] who  asked for it, for the log
 * @retval PAGED_ERR_NOENT  no such session
 */
enum paged_status daemon_session_drain(struct members *members, uint32_t session, const char *who,
				       struct paged_error *error);

/** member_notify_draining - tell a member that is connected that its session is drained */
void member_notify_draining(const struct member *member);

#endif
