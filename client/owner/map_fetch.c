/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/owner/map_fetch.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/owner/map.h"
#include "common/clock.h"

static enum paged_status
map_fetch_open_granted(struct control *control, struct rpc *rpc, struct map_grant *grant, struct owner_pool *pool,
		       struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_GET_HANDLE, .get_handle = { grant->reply->pool_grant.pool } };
	struct wire_reply reply = { .kind = WIRE_REPLY_EMPTY };
	struct ucred peer = { .uid = (uid_t)-1 };
	socklen_t size = sizeof(peer);
	enum paged_status status = PAGED_OK;

	getsockopt(control->fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
	grant->owner_uid = peer.uid;
	grant->handle = &reply.handle;
	if (grant->reply->pool_grant.memory.export == WIRE_EXPORT_LEGACY && !grant->tables_only)
		status = client_rpc_call(rpc, &request, WIRE_REPLY_HANDLE, &reply, error);
	if (status == PAGED_OK)
		status = map_open(grant, pool, error);
	explicit_bzero(&reply, sizeof(reply));
	return status;
}

enum paged_status
map_fetch(struct control *control, struct rpc *rpc, const uint8_t boot_id[WIRE_BOOT_ID_SIZE], const char *name,
	  bool tables_only, struct owner_pool *pool, struct paged_error *error)
{
	struct wire_control_request request = { .kind = WIRE_OPEN_POOL };
	struct wire_control_reply reply;
	int fds[WIRE_N_POOL_FDS];
	struct map_grant grant = { .reply = &reply, .fds = fds, .boot_id = boot_id, .tables_only = tables_only };
	enum paged_status status;

	snprintf(request.open_pool.name, sizeof(request.open_pool.name), "%s", name);
	status = client_control_call(control, &request, clock_ms() + rpc->timeout_ms, &reply, fds, error);
	if (status != PAGED_OK)
		return status;
	if (reply.kind == WIRE_POOL_GRANT)
		status = map_fetch_open_granted(control, rpc, &grant, pool, error);
	else
		status = paged_fail(error, PAGED_ERR_PROTOCOL, "pool %s: the daemon's answer is of kind %d", name,
				    (int)reply.kind);
	for (unsigned int i = 0; i < WIRE_N_POOL_FDS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return status;
}
