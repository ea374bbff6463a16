/* SPDX-License-Identifier: Apache-2.0 */
/**
 * member.h - attached processes and the sessions they form
 *
 * A member's life:
 *
 *   attached  control socket up, requests answered (alive)
 *   cut       requests no longer answered, endpoint gone; its process still
 *             lives, so pages it may write stay in quarantine
 *   lost      its pidfd became readable, and a pool that it opened has a
 *             quarantine: known by nobody but the core, where it counts as
 *             a member until that is over
 *   gone      said goodbye, or its pidfd became readable: freed
 *
 * A session ends when its first member is cut or gone, or, if its creator asked
 * that it outlive that, its last; or when it is kicked.
 * The core knows sessions and members by number and does the books; this
 * file ties the numbers to processes.
 */
#ifndef PAGED_DAEMON_MEMBER_H
#define PAGED_DAEMON_MEMBER_H

#include <stdbool.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "daemon/log.h"
#include "daemon/loop.h"
#include "daemon/policy.h"
#include "proto/wire.h"

struct daemon;
struct connection;
struct session;

/** Observers have numbers of their own, so that the core's stay dense. */
#define MEMBER_OBSERVER 0x80000000u

struct member {
	struct daemon *daemon;
	uint32_t id;
	struct session *session; /* NULL: an observer */
	bool first;              /* it created the session, which ends with it unless it outlives it */
	bool alive;              /* requests are answered */
	bool admin;
	uid_t uid;
	gid_t gid;
	pid_t pid;
	uint64_t pool_mask;   /* bit i: pool i admits it */
	uint64_t opened_mask; /* bit i: it may have mapped pool i */
	uint64_t n_requests;
	char name[PAGED_MAX_NAME + 1];
	uint8_t token[WIRE_TOKEN_SIZE];
	char endpoint[WIRE_MAX_ENDPOINT]; /* "" when cut */

	struct connection *connection; /* NULL once the control socket is down */
	struct loop_source pidfd;
	unsigned int n_admitted; /* RPC connections so far */
	struct loop_timer lost_timer;
	LIST_ENTRY(member) hash_link; /* once lost: in the list of those */
	TAILQ_ENTRY(member) session_link;
};

struct session {
	uint32_t id;
	bool outlives; /* its first member: it ends when no member is alive */
	bool ended;
	uint8_t join_token[WIRE_TOKEN_SIZE];
	TAILQ_HEAD(, member) members; /* by id */
	LIST_ENTRY(session) hash_link;
};

enum {
	MEMBERS_BUCKETS = 256,
	SEATS_PER_PROCESS = 64,
	SEATS_OF_ADMINS = 8, /* beyond max-members, so that administrators can always look and kick */
};

struct members {
	struct daemon *daemon;
	uint32_t n;             /* whose processes live and said no goodbye */
	struct log_limit limit; /* of lines about lives and deaths */
	uint32_t n_connected;   /* of sessions, with their control socket up */
	uint32_t last_observer;
	LIST_HEAD(, member) lost;
	LIST_HEAD(, member) members[MEMBERS_BUCKETS];
	LIST_HEAD(, session) sessions[MEMBERS_BUCKETS];
};

void members_open(struct members *members, struct daemon *daemon);

/** members_close - frees all; tells nobody */
void members_close(struct members *members);

/** member_find, session_find - NULL: none */
struct member *member_find(const struct members *members, uint32_t id);
struct session *session_find(const struct members *members, uint32_t id);

/** member_token_matches - in constant time; hex: as the RPC password carries it */
bool member_token_matches(const struct member *member, const char *hex);

/** member_log - a line about its life; of observers, which come and go all day, when debugging only */
void member_log(const struct member *member, const char *format, ...) __attribute__((format(printf, 2, 3)));

/**
 * member_attach - a process joins in as its hello asks
 *
 * @param[in] connection  its control socket
 * @param[in] peer        who it is
 * @param[in] pidfd       of its process; taken over on PAGED_OK
 * @retval PAGED_ERR_LIMIT  max-sessions, max-members, max-members-per-user, or too many of one process
 * @retval PAGED_ERR_GONE   the join token names no active session
 */
enum paged_status member_attach(struct members *members, struct connection *connection,
				const struct wire_control_request *hello, const struct policy_peer *peer, int pidfd,
				struct member **member_p, struct paged_error *error);

/** member_disconnected - its control socket is down without a goodbye */
void member_disconnected(struct member *member);

/** member_cut - answer it no more, tell it why if it is connected, and end its session if that depends on it */
void member_cut(struct member *member, const char *why);

/** member_gone - it said goodbye; the core takes back what waited for it; frees it */
void member_gone(struct member *member);

/** member_died - likewise, once the quarantine of the pools that it opened is over */
void member_died(struct member *member);

/**
 * session_end - kick; members are told
 *
 * @param[in] kill_members  SIGKILL to each as well
 */
enum paged_status session_end(struct members *members, uint32_t session, bool kill_members, const char *why,
			      struct paged_error *error);

#endif
