/* SPDX-License-Identifier: Apache-2.0 */
/* The owner is the daemon: attaching over the control socket, requests over ZeroMQ. */
#include "config.h"

#include "client/owner/owner_remote.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/owner/map.h"
#include "client/owner/map_fetch.h"
#include "client/params.h"
#include "common/clock.h"
#include "common/text.h"

#define RUNTIME_DIR_DEFAULT PAGED_RUNSTATEDIR "/paged"

#define IPC_SCHEME "ipc://"

/* Send BYE and wait until the daemon has released the session. */
static void
remote_leave(struct remote *remote)
{
	struct wire_control_request bye = { .kind = WIRE_BYE };
	struct wire_control_reply reply;
	int fds[WIRE_N_POOL_FDS];
	struct paged_error error;

	if (remote->member == 0 || owner_state(&remote->owner) == OWNER_GONE)
		return;
	if (client_control_call(&remote->control, &bye, clock_ms() + remote->timeout_ms, &reply, fds, &error) !=
		    PAGED_OK &&
	    error.status != PAGED_ERR_GONE)
		owner_log(&remote->owner, PAGED_LOG_WARNING, "leaving: %s", error.text);
}

static void
remote_close(struct owner *owner, bool in_child)
{
	struct remote *remote = remote_of(owner);

	if (!in_child) {
		client_rpc_close(&remote->rpc, false);
		remote_leave(remote);
		client_control_close(&remote->control);
		if (owner->fd >= 0)
			close(owner->fd);
	} else {
		/* The descriptors stay open until the child exits or calls exec: they are close-on-exec. */
		client_rpc_close(&remote->rpc, true);
		wire_arena_destroy(&remote->control.arena);
	}
	free(remote);
}

static void
remote_dispatch(struct owner *owner)
{
	struct remote *remote = remote_of(owner);

	client_control_dispatch(&remote->control);
	client_rpc_dispatch(&remote->rpc);
}

static bool
remote_hung_up(struct owner *owner)
{
	return client_control_hung_up(&remote_of(owner)->control);
}

static enum paged_status
remote_pool_open(struct owner *owner, const char *name, struct owner_pool *pool, struct paged_error *error)
{
	struct remote *remote = remote_of(owner);

	return map_fetch(&remote->control, &remote->rpc, remote->boot_id, name, owner->tables_only, pool, error);
}

static void
remote_pool_close(struct owner *owner, struct owner_pool *pool, bool in_child)
{
	(void)owner;
	map_close(pool, in_child);
}

static enum paged_status
remote_ping(struct owner *owner, struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_PING };
	struct wire_reply reply;

	return client_rpc_call(&remote_of(owner)->rpc, &request, WIRE_REPLY_EMPTY, &reply, error);
}

/* Sends a request whose reply names n sequences. */
static enum paged_status
remote_request_ids(struct owner *owner, struct wire_request *request, uint32_t n, paged_seq_id *ids,
		   struct paged_error *error)
{
	struct wire_reply reply;
	enum paged_status status = client_rpc_call(&remote_of(owner)->rpc, request, WIRE_REPLY_IDS, &reply, error);

	if (status != PAGED_OK)
		return status;
	if (reply.ids.n != n)
		return paged_fail(error, PAGED_ERR_PROTOCOL, "%u sequences were asked for, %u came", n, reply.ids.n);
	memcpy(ids, reply.ids.seq, n * sizeof(*ids));
	return PAGED_OK;
}

static enum paged_status
remote_create(struct owner *owner, uint32_t n, const struct seq_spec *specs, paged_seq_id *ids,
	      struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_CREATE, .create = { .n = n, .specs = specs } };

	return remote_request_ids(owner, &request, n, ids, error);
}

static enum paged_status
remote_start(struct owner *owner, const struct seq_start_list *start, paged_seq_id *ids, struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_START, .start = *start };

	return remote_request_ids(owner, &request, start->n, ids, error);
}

static enum paged_status
remote_fork(struct owner *owner, uint32_t n, const struct seq_fork *forks, paged_seq_id *children,
	    struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_FORK, .fork = { .n = n, .forks = forks } };

	return remote_request_ids(owner, &request, n, children, error);
}

static enum paged_status
remote_publish(struct owner *owner, const struct seq_publish_list *publish, uint64_t number, struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_PUBLISH,
					.publish = { .n = publish->n,
						     .specs = publish->specs,
						     .n_tokens = publish->n_tokens,
						     .tokens = publish->tokens,
						     .n_extra_pages = publish->keyed ? 0 : publish->n_extras,
						     .extra_page = publish->extra_page,
						     .extra_size = publish->n_extras * REGION_EXTRA_SIZE,
						     .extra = (const uint8_t *)publish->extra } };
	struct rpc *rpc = &remote_of(owner)->rpc;
	enum paged_status status = client_rpc_post(rpc, RPC_PUBLISH, number, &request, error);
	struct paged_error refusal;

	owner_log_refused_publish(owner, client_rpc_post_refusal(rpc, RPC_PUBLISH, &refusal), &refusal);
	return status;
}

static uint64_t
remote_oldest_publish(const struct owner *owner)
{
	return client_rpc_oldest_post(&((const struct remote *)owner)->rpc, RPC_PUBLISH);
}

static enum paged_status
remote_pin(struct owner *owner, uint32_t pool, uint32_t page, uint64_t serial, uint32_t seconds, uint32_t *n_pages_p,
	   struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_PIN,
					.pin = { .pool = pool, .page = page, .serial = serial, .seconds = seconds } };
	struct wire_reply reply;
	enum paged_status status = client_rpc_call(&remote_of(owner)->rpc, &request, WIRE_REPLY_PINNED, &reply, error);

	if (status == PAGED_OK)
		*n_pages_p = reply.pinned.n_pages;
	return status;
}

static enum paged_status
remote_hold(struct owner *owner, uint32_t pool, uint32_t n, const uint32_t *pages, const uint64_t *serials,
	    paged_seq_id *hold_p, struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_HOLD,
					.hold = { .pool = pool, .n = n, .pages = pages, .serials = serials } };

	return remote_request_ids(owner, &request, 1, hold_p, error);
}

static enum paged_status
remote_reserve(struct owner *owner, uint32_t n, const struct paged_seq_item *items, struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_RESERVE, .change = { .n = n, .items = items } };
	struct wire_reply reply;

	return client_rpc_call(&remote_of(owner)->rpc, &request, WIRE_REPLY_EMPTY, &reply, error);
}

static enum paged_status
remote_truncate(struct owner *owner, uint32_t n, const struct paged_seq_item *items, struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_TRUNCATE, .change = { .n = n, .items = items } };
	struct wire_reply reply;

	return client_rpc_call(&remote_of(owner)->rpc, &request, WIRE_REPLY_EMPTY, &reply, error);
}

static enum paged_status
remote_trim(struct owner *owner, uint32_t n, const struct paged_seq_item *items, struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_TRIM, .change = { .n = n, .items = items } };
	struct wire_reply reply;

	return client_rpc_call(&remote_of(owner)->rpc, &request, WIRE_REPLY_EMPTY, &reply, error);
}

static enum paged_status
remote_erase(struct owner *owner, uint32_t n, const paged_seq_id *ids, struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_ERASE, .erase = { .n = n, .ids = ids } };
	struct wire_reply reply;

	return client_rpc_call(&remote_of(owner)->rpc, &request, WIRE_REPLY_EMPTY, &reply, error);
}

static enum paged_status
remote_reserve_ahead(struct owner *owner, uint32_t n, const struct paged_seq_item *items, struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_RESERVE, .change = { .n = n, .items = items } };
	struct rpc *rpc = &remote_of(owner)->rpc;
	enum paged_status status;

	client_rpc_dispatch(rpc);
	status = client_rpc_post_refusal(rpc, RPC_RESERVE_AHEAD, error);
	return status != PAGED_OK ? status : client_rpc_post(rpc, RPC_RESERVE_AHEAD, 0, &request, error);
}

static enum paged_status
remote_array_put(struct owner *owner, const struct wire_array_chunk *part, struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_PUT_ARRAY, .put_array = *part };
	struct wire_reply reply;

	return client_rpc_call(&remote_of(owner)->rpc, &request, WIRE_REPLY_EMPTY, &reply, error);
}

static enum paged_status
remote_array_drop(struct owner *owner, const char *name, struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_DROP_ARRAY };
	struct wire_reply reply;

	snprintf(request.drop_array.name, sizeof(request.drop_array.name), "%s", name);
	return client_rpc_call(&remote_of(owner)->rpc, &request, WIRE_REPLY_EMPTY, &reply, error);
}

static enum paged_status
remote_mask(struct owner *owner, const struct mask_request *request, struct rle_reader *reader,
	    struct paged_error *error)
{
	struct wire_request wire = { .kind = WIRE_BUILD_MASK, .build_mask = *request };
	struct wire_reply reply;
	enum paged_status status = client_rpc_call(&remote_of(owner)->rpc, &wire, WIRE_REPLY_MASK, &reply, error);

	return status == PAGED_OK ? rle_read_part(reader, &reply.mask) : status;
}

static const struct owner_ops owner_ops_remote = {
	.close = remote_close,
	.dispatch = remote_dispatch,
	.hung_up = remote_hung_up,
	.pool_open = remote_pool_open,
	.pool_close = remote_pool_close,
	.ping = remote_ping,
	.create = remote_create,
	.reserve = remote_reserve,
	.truncate = remote_truncate,
	.trim = remote_trim,
	.erase = remote_erase,
	.reserve_ahead = remote_reserve_ahead,
	.start = remote_start,
	.fork = remote_fork,
	.publish = remote_publish,
	.oldest_publish = remote_oldest_publish,
	.pin = remote_pin,
	.hold = remote_hold,
	.give = remote_give,
	.adopt = remote_adopt,
	.cancel = remote_cancel,
	.array_put = remote_array_put,
	.array_drop = remote_array_drop,
	.mask = remote_mask,
	.pool_find = remote_pool_find,
	.status = remote_status,
	.metrics = remote_metrics,
	.pools = remote_pools,
	.sessions = remote_sessions,
	.sequences = remote_sequences,
	.prefixes = remote_prefixes,
	.tickets = remote_tickets,
	.quotas = remote_quotas,
	.pins = remote_pins,
	.unpin = remote_unpin,
	.table = remote_table,
	.check = remote_check,
	.kick = remote_kick,
	.drain = remote_drain,
	.evict = remote_evict,
	.log_level = remote_log_level,
};

static enum paged_status
remote_hello(struct remote *remote, const struct paged_client_params *params, uint64_t deadline_ms,
	     struct wire_control_reply *reply, struct paged_error *error)
{
	struct wire_control_request request = {
		.kind = WIRE_HELLO,
		.hello = { .version_major = WIRE_VERSION_MAJOR, .version_minor = WIRE_VERSION_MINOR },
	};
	int fds[WIRE_N_POOL_FDS];
	enum paged_status status;

	request.hello.outlive = params->outlive != 0;
	if (params->observer != 0)
		request.hello.role = WIRE_ROLE_OBSERVER;
	if (params->join_token != NULL) {
		request.hello.role = WIRE_ROLE_JOIN;
		/* The token is a secret, so it is not in the error text. */
		if (!text_unhex(request.hello.join_token, WIRE_TOKEN_SIZE, params->join_token))
			return paged_fail(error, PAGED_ERR_INVALID, "join_token is not the token of a session");
	}
	snprintf(request.hello.name, sizeof(request.hello.name), "%s", params->name);
	status = client_control_call(&remote->control, &request, deadline_ms, reply, fds, error);
	if (status != PAGED_OK)
		return status;
	if (reply->kind != WIRE_WELCOME)
		return paged_fail(error, PAGED_ERR_PROTOCOL, "the daemon answers a hello by a message of kind %d",
				  (int)reply->kind);
	if (reply->welcome.version_major != WIRE_VERSION_MAJOR)
		return paged_fail(error, PAGED_ERR_VERSION, "the daemon speaks version %u.%u, this library %u.x",
				  reply->welcome.version_major, reply->welcome.version_minor, WIRE_VERSION_MAJOR);
	remote->member = reply->welcome.member;
	memcpy(remote->boot_id, reply->welcome.boot_id, sizeof(remote->boot_id));
	remote->owner.session = reply->welcome.session;
	remote->owner.tables_only = params->tables_only != 0;
	if (!client_is_zero(reply->welcome.join_token, WIRE_TOKEN_SIZE))
		text_hex(remote->owner.join_token, reply->welcome.join_token, WIRE_TOKEN_SIZE);
	return PAGED_OK;
}

/* Create the one descriptor (epoll) that a program's event loop watches. */
static enum paged_status
remote_watch(struct remote *remote, struct paged_error *error)
{
	struct epoll_event event = { .events = EPOLLIN };

	remote->owner.fd = epoll_create1(EPOLL_CLOEXEC);
	if (remote->owner.fd < 0 || epoll_ctl(remote->owner.fd, EPOLL_CTL_ADD, remote->control.fd, &event) != 0 ||
	    epoll_ctl(remote->owner.fd, EPOLL_CTL_ADD, remote->rpc.fd, &event) != 0)
		return paged_fail(error, PAGED_ERR_SYSTEM, "epoll: %s", strerror(errno));
	return PAGED_OK;
}

/*
 * The endpoint of the Welcome names the runtime directory by the daemon's path.  The directory may be mounted
 * elsewhere here (a container), so the client connects to the socket of that name in the directory that it knows,
 * if there is one and its path is not too long for a socket.
 */
static const char *
remote_endpoint(const char *dir, const char *endpoint, char *buffer, size_t size)
{
	const char *name = strrchr(endpoint, '/');
	int n;

	if (name == NULL)
		return endpoint;
	n = snprintf(buffer, size, IPC_SCHEME "%s%s", dir, name);
	return n > 0 && (size_t)n < size && access(buffer + strlen(IPC_SCHEME), F_OK) == 0 ? buffer : endpoint;
}

static enum paged_status
remote_attach(struct remote *remote, const char *dir, const struct paged_client_params *params,
	      struct paged_error *error)
{
	uint64_t deadline_ms = clock_ms() + params->timeout_ms;
	char token[2 * WIRE_TOKEN_SIZE + 1];
	char endpoint[sizeof(IPC_SCHEME) - 1 + sizeof(((struct sockaddr_un *)NULL)->sun_path)];
	struct wire_control_reply welcome;
	enum paged_status status;
	struct rpc_params rpc;

	status = client_control_open(&remote->control, &remote->owner, dir, deadline_ms, error);
	if (status == PAGED_OK)
		status = remote_hello(remote, params, deadline_ms, &welcome, error);
	if (status != PAGED_OK)
		return status;
	text_hex(token, welcome.welcome.token, WIRE_TOKEN_SIZE);
	rpc = (struct rpc_params){
		.endpoint = remote_endpoint(dir, welcome.welcome.endpoint, endpoint, sizeof(endpoint)),
		.token_hex = token,
		.member = remote->member,
		.max_open = welcome.welcome.max_open_requests,
		.timeout_ms = params->timeout_ms,
		.deadline_ms = deadline_ms,
	};
	status = client_rpc_open(&remote->rpc, &remote->control, &rpc, error);
	explicit_bzero(token, sizeof(token));
	return status == PAGED_OK ? remote_watch(remote, error) : status;
}

enum paged_status
owner_remote_open(const char *dir, const struct paged_client_params *params, struct owner **owner_p,
		  struct paged_error *error)
{
	struct remote *remote = calloc(1, sizeof(*remote));
	enum paged_status status;

	if (remote == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for a connection");
	remote->owner = (struct owner){
		.ops = &owner_ops_remote, .fd = -1, .log = params->log, .log_argument = params->log_argument
	};
	remote->control.fd = -1;
	remote->timeout_ms = params->timeout_ms;
	if (dir == NULL)
		dir = secure_getenv("PAGED_RUNTIME_DIR");
	if (dir == NULL || dir[0] == '\0')
		dir = RUNTIME_DIR_DEFAULT;
	status = remote_attach(remote, dir, params, error);
	if (status != PAGED_OK) {
		remote_close(&remote->owner, false);
		return status;
	}
	*owner_p = &remote->owner;
	return PAGED_OK;
}
