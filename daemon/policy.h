/* SPDX-License-Identifier: Apache-2.0 */
/**
 * policy.h - who may do what
 *
 * Decided by what the kernel says of the process at the other end of the
 * control socket, never by what that process says.
 *
 *   attach  the daemon's uid, root, allow-user, allow-group
 *   pool    whom the pool's own lists name, the daemon's uid and root; all
 *           who may attach when it has none
 *   admin   the daemon's uid, root, admin-group
 */
#ifndef PAGED_DAEMON_POLICY_H
#define PAGED_DAEMON_POLICY_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/status.h"
#include "daemon/config.h"

struct policy_peer {
	uid_t uid;
	gid_t gid;
	pid_t pid;     /* 0: of a PID namespace that the daemon cannot see */
	gid_t *groups; /* supplementary */
	size_t n_groups;
};

/** policy_peer_read - ask the kernel (SO_PEERCRED, SO_PEERGROUPS) */
enum paged_status policy_peer_read(int fd, struct policy_peer *peer, struct paged_error *error);
void policy_peer_free(struct policy_peer *peer);

/** policy_attach - PAGED_ERR_PERM says why not */
enum paged_status policy_attach(const struct config *config, const struct policy_peer *peer, struct paged_error *error);
bool policy_admin(const struct config *config, const struct policy_peer *peer);
bool policy_pool(const struct config_pool *pool, const struct policy_peer *peer);

#endif
