/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/policy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/log/log.h"

static bool
ids_contain(const struct config_ids *ids, uint32_t id)
{
	for (size_t i = 0; i < ids->n; i++)
		if (ids->id[i] == id)
			return true;
	return false;
}

static bool
groups_contain(const struct config_ids *groups, const struct policy_peer *peer)
{
	if (ids_contain(groups, peer->gid))
		return true;
	for (size_t i = 0; i < peer->n_groups; i++)
		if (ids_contain(groups, peer->groups[i]))
			return true;
	return false;
}

bool
policy_owner(const struct policy_peer *peer)
{
	return peer->uid == geteuid() || peer->uid == 0;
}

enum paged_status
policy_peer_read(int fd, struct policy_peer *peer, struct paged_error *error)
{
	struct ucred credentials;
	socklen_t size = sizeof(credentials), groups_size = 0;

	*peer = (struct policy_peer){ 0 };
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) < 0)
		return paged_fail(error, PAGED_ERR_SYSTEM, "SO_PEERCRED: %m");
	peer->uid = credentials.uid;
	peer->gid = credentials.gid;
	peer->pid = credentials.pid;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, NULL, &groups_size) == 0 || errno == ENOPROTOOPT)
		return PAGED_OK; /* no groups; or a kernel before 4.13, where supplementary groups are ignored */
	if (errno != ERANGE)
		return paged_fail(error, PAGED_ERR_SYSTEM, "SO_PEERGROUPS: %m");
	peer->groups = malloc(groups_size);
	if (peer->groups == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for %u groups",
				  groups_size / (unsigned)sizeof(gid_t));
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, peer->groups, &groups_size) < 0)
		return paged_fail(error, PAGED_ERR_SYSTEM, "SO_PEERGROUPS: %m");
	peer->n_groups = groups_size / sizeof(gid_t);
	return PAGED_OK;
}

void
policy_peer_free(struct policy_peer *peer)
{
	free(peer->groups);
	peer->groups = NULL;
	peer->n_groups = 0;
}

enum paged_status
policy_attach(const struct config *config, const struct policy_peer *peer, struct paged_error *error)
{
	if (peer->pid == 0)
		return paged_fail(error, PAGED_ERR_PERM,
				  "this process is in another PID namespace: the daemon could not see it die; run it "
				  "in the daemon's namespace (docker: --pid=host)");
	if (policy_owner(peer) || ids_contain(&config->allow_users, peer->uid) ||
	    groups_contain(&config->allow_groups, peer))
		return PAGED_OK;
	return paged_fail(error, PAGED_ERR_PERM, "uid %u, gid %u: not listed in allow-user or allow-group",
			  (unsigned)peer->uid, (unsigned)peer->gid);
}

bool
policy_admin(const struct config *config, const struct policy_peer *peer)
{
	return policy_owner(peer) || groups_contain(&config->admin_group, peer);
}

bool
policy_pool(const struct config_pool *pool, const struct policy_peer *peer)
{
	if (pool->allow_users.n == 0 && pool->allow_groups.n == 0)
		return true;
	return policy_owner(peer) || ids_contain(&pool->allow_users, peer->uid) ||
	       groups_contain(&pool->allow_groups, peer);
}

uint32_t
policy_tenant(const struct config *config, const struct policy_peer *peer)
{
	for (size_t i = 0; i < config->n_tenants; i++)
		if (ids_contain(&config->tenants[i].allow_users, peer->uid) ||
		    groups_contain(&config->tenants[i].allow_groups, peer))
			return (uint32_t)i + 1;
	return 0;
}

/* Whether some ids have no number in this user namespace; `map` is /proc/self/uid_map or gid_map. */
static bool
namespace_lacks_ids(const char *map)
{
	uint64_t first, parent, n, n_mapped = 0;
	FILE *file = fopen(map, "re");

	if (file == NULL)
		return false;
	while (fscanf(file, "%" SCNu64 " %" SCNu64 " %" SCNu64, &first, &parent, &n) == 3)
		n_mapped += n;
	fclose(file);
	return n_mapped < UINT32_MAX;
}

/* The number of ids that have none; 65534 unless the administrator changed it. */
static uint32_t
overflow_id(const char *path)
{
	FILE *file = fopen(path, "re");
	uint32_t id = 65534;

	if (file == NULL)
		return id;
	if (fscanf(file, "%" SCNu32, &id) != 1)
		id = 65534;
	fclose(file);
	return id;
}

/* Ids that the kernel reports in place of others. */
struct overflow {
	bool lacks_users, lacks_groups;
	uint32_t user, group;
};

static void
list_warn(const struct config_ids *ids, bool lacks, uint32_t id, const char *section, const char *setting)
{
	if (lacks && ids_contain(ids, id))
		log_warning("policy",
			    "%s%s = %" PRIu32
			    ": in this user namespace the kernel reports all users and groups that it "
			    "lacks as %" PRIu32 ": the list admits them all",
			    section, setting, id, id);
}

/* The two lists of a section, such as "pool" "llama"; "" "": those of the whole file. */
static void
section_warn(const struct overflow *overflow, const struct config_ids *users, const struct config_ids *groups,
	     const char *kind, const char *name)
{
	char section[PAGED_MAX_NAME + 16] = "";

	if (name[0] != '\0')
		snprintf(section, sizeof(section), "%s %s: ", kind, name);
	list_warn(users, overflow->lacks_users, overflow->user, section, "allow-user");
	list_warn(groups, overflow->lacks_groups, overflow->group, section, "allow-group");
}

void
policy_warn(const struct config *config)
{
	const struct overflow overflow = {
		.lacks_users = namespace_lacks_ids("/proc/self/uid_map"),
		.lacks_groups = namespace_lacks_ids("/proc/self/gid_map"),
		.user = overflow_id("/proc/sys/kernel/overflowuid"),
		.group = overflow_id("/proc/sys/kernel/overflowgid"),
	};

	section_warn(&overflow, &config->allow_users, &config->allow_groups, "", "");
	list_warn(&config->admin_group, overflow.lacks_groups, overflow.group, "", "admin-group");
	for (size_t i = 0; i < config->n_pools; i++)
		section_warn(&overflow, &config->pools[i].allow_users, &config->pools[i].allow_groups, "pool",
			     config->pools[i].name);
	for (size_t i = 0; i < config->n_tenants; i++)
		section_warn(&overflow, &config->tenants[i].allow_users, &config->tenants[i].allow_groups, "tenant",
			     config->tenants[i].name);
}
