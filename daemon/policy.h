/* SPDX-License-Identifier: Apache-2.0 */
/**
 * policy.h - access control
 *
 * Decisions use only the credentials that the kernel reports for the peer of
 * the control socket, never data that the peer sends.
 *
 *   attach  the daemon's uid, root, allow-user, allow-group
 *   pool    the daemon's uid, root, and the pool's own allow-user and
 *           allow-group; if the pool has none, every peer that may attach
 *   admin   the daemon's uid, root, admin-group
 *   tenant  the first whose allow-user or allow-group names the peer; else a tenant of its own, except for the
 *           daemon's uid and root
 */
#ifndef PAGED_DAEMON_POLICY_H
#define PAGED_DAEMON_POLICY_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/status.h"
#include "daemon/config/config.h"

struct policy_peer {
	uid_t uid;
	gid_t gid;
	pid_t pid;     /* 0: the process is in a PID namespace that the daemon cannot see */
	gid_t *groups; /* supplementary */
	size_t n_groups;
};

/** policy_peer_read - read the peer's credentials from the kernel (SO_PEERCRED, SO_PEERGROUPS) */
enum paged_status policy_peer_read(int fd, struct policy_peer *peer, struct paged_error *error);
void policy_peer_free(struct policy_peer *peer);

/** policy_attach - may the peer attach?  If not, PAGED_ERR_PERM with the reason */
enum paged_status policy_attach(const struct config *config, const struct policy_peer *peer, struct paged_error *error);

/** policy_owner - true: the daemon's uid, or root */
bool policy_owner(const struct policy_peer *peer);
bool policy_admin(const struct config *config, const struct policy_peer *peer);
bool policy_pool(const struct config_pool *pool, const struct policy_peer *peer);

/** policy_tenant - the configured tenant of the peer: 1 for the first in the file, ...; 0: none includes it */
uint32_t policy_tenant(const struct config *config, const struct policy_peer *peer);

/**
 * policy_warn - log which lists admit all users that the user namespace does not map
 *
 * The kernel reports users and groups without a number in the daemon's user namespace as the overflow id, 65534.
 */
void policy_warn(const struct config *config);

#endif
