/* SPDX-License-Identifier: Apache-2.0 */
/* The control channel: one message a datagram, all of fixed size once parsed. */
#include <string.h>

#include "common/text.h"
#include "proto/wire_internal.h"

size_t
wire_control_request_pack(const struct wire_control_request *request, uint8_t *buffer, size_t buffer_size)
{
	Paged__V1__ControlRequest message = PAGED__V1__CONTROL_REQUEST__INIT;
	Paged__V1__Hello hello = PAGED__V1__HELLO__INIT;
	Paged__V1__OpenPool open_pool = PAGED__V1__OPEN_POOL__INIT;
	Paged__V1__Bye bye = PAGED__V1__BYE__INIT;

	switch (request->kind) {
	case WIRE_HELLO:
		hello.version_major = request->hello.version_major;
		hello.version_minor = request->hello.version_minor;
		hello.name = (char *)request->hello.name;
		hello.role = (Paged__V1__Role)request->hello.role;
		hello.outlive = request->hello.outlive;
		if (request->hello.role == WIRE_ROLE_JOIN) {
			hello.join_token.data = (uint8_t *)request->hello.join_token;
			hello.join_token.len = WIRE_TOKEN_SIZE;
		}
		message.body_case = PAGED__V1__CONTROL_REQUEST__BODY_HELLO;
		message.hello = &hello;
		break;
	case WIRE_OPEN_POOL:
		open_pool.name = (char *)request->open_pool.name;
		message.body_case = PAGED__V1__CONTROL_REQUEST__BODY_OPEN_POOL;
		message.open_pool = &open_pool;
		break;
	case WIRE_BYE:
		message.body_case = PAGED__V1__CONTROL_REQUEST__BODY_BYE;
		message.bye = &bye;
		break;
	}
	return wire_pack(&message.base, buffer, buffer_size);
}

static enum paged_status
hello_parse(const Paged__V1__Hello *hello, struct wire_control_request *request, struct paged_error *error)
{
	enum paged_status status;

	request->kind = WIRE_HELLO;
	request->hello.version_major = hello->version_major;
	request->hello.version_minor = hello->version_minor;
	request->hello.outlive = hello->outlive;
	switch (hello->role) {
	case PAGED__V1__ROLE__ROLE_SESSION:
	case PAGED__V1__ROLE__ROLE_JOIN:
	case PAGED__V1__ROLE__ROLE_OBSERVER:
		request->hello.role = (enum wire_role)hello->role;
		break;
	default:
		return paged_fail(error, PAGED_ERR_PROTOCOL, "hello: role %d is unknown", (int)hello->role);
	}
	text_clean_utf8(hello->name); /* a program's name may be any bytes */
	status = wire_text_copy(request->hello.name, sizeof(request->hello.name), hello->name, "hello: name", error);
	if (status != PAGED_OK)
		return status;
	return wire_bytes_copy(request->hello.join_token, request->hello.role == WIRE_ROLE_JOIN ? WIRE_TOKEN_SIZE : 0,
			       &hello->join_token, "hello: join token", error);
}

enum paged_status
wire_control_request_parse(const uint8_t *message, size_t size, struct wire_arena *arena,
			   struct wire_control_request *request, struct paged_error *error)
{
	const Paged__V1__ControlRequest *unpacked = (const Paged__V1__ControlRequest *)wire_unpack(
		&paged__v1__control_request__descriptor, message, size, arena, error);

	memset(request, 0, sizeof(*request));
	if (unpacked == NULL)
		return PAGED_ERR_PROTOCOL;
	switch (unpacked->body_case) {
	case PAGED__V1__CONTROL_REQUEST__BODY_HELLO:
		return hello_parse(unpacked->hello, request, error);
	case PAGED__V1__CONTROL_REQUEST__BODY_OPEN_POOL:
		request->kind = WIRE_OPEN_POOL;
		return wire_text_copy(request->open_pool.name, sizeof(request->open_pool.name),
				      unpacked->open_pool->name, "open_pool: name", error);
	case PAGED__V1__CONTROL_REQUEST__BODY_BYE:
		request->kind = WIRE_BYE;
		return PAGED_OK;
	default:
		return paged_fail(error, PAGED_ERR_PROTOCOL, "a control request of a kind that version %u.%u lacks",
				  WIRE_VERSION_MAJOR, WIRE_VERSION_MINOR);
	}
}

static void
welcome_put(Paged__V1__Welcome *to, const struct wire_control_reply *reply)
{
	to->version_major = reply->welcome.version_major;
	to->version_minor = reply->welcome.version_minor;
	to->boot_id.data = (uint8_t *)reply->welcome.boot_id;
	to->boot_id.len = WIRE_BOOT_ID_SIZE;
	to->session = reply->welcome.session;
	to->member = reply->welcome.member;
	to->token.data = (uint8_t *)reply->welcome.token;
	to->token.len = WIRE_TOKEN_SIZE;
	if (reply->welcome.has_join_token) {
		to->join_token.data = (uint8_t *)reply->welcome.join_token;
		to->join_token.len = WIRE_TOKEN_SIZE;
	}
	to->endpoint = (char *)reply->welcome.endpoint;
	to->daemon_version = (char *)reply->welcome.daemon_version;
}

static void
pool_grant_put(Paged__V1__PoolGrant *to, Paged__V1__Geometry *geometry, const struct wire_control_reply *reply)
{
	wire_geometry_put(geometry, &reply->pool_grant.geometry);
	to->pool = reply->pool_grant.pool;
	to->name = (char *)reply->pool_grant.name;
	to->backend = (char *)reply->pool_grant.backend;
	to->geometry = geometry;
	to->memory_size = reply->pool_grant.memory_size;
	to->region_size = reply->pool_grant.region_size;
	to->export_kind = (Paged__V1__Export)reply->pool_grant.memory.export;
	to->generation = reply->pool_grant.memory.generation;
	if (reply->pool_grant.memory.export == WIRE_EXPORT_FD)
		return;
	to->device.data = (uint8_t *)reply->pool_grant.memory.device;
	to->device.len = WIRE_UUID_SIZE;
	to->canary.data = (uint8_t *)reply->pool_grant.memory.canary;
	to->canary.len = WIRE_CANARY_SIZE;
}

size_t
wire_control_reply_pack(const struct wire_control_reply *reply, uint8_t *buffer, size_t buffer_size)
{
	Paged__V1__ControlReply message = PAGED__V1__CONTROL_REPLY__INIT;
	Paged__V1__Welcome welcome = PAGED__V1__WELCOME__INIT;
	Paged__V1__PoolGrant pool_grant = PAGED__V1__POOL_GRANT__INIT;
	Paged__V1__Geometry geometry;
	Paged__V1__Refusal refusal = PAGED__V1__REFUSAL__INIT;
	Paged__V1__Farewell farewell = PAGED__V1__FAREWELL__INIT;
	Paged__V1__Notice notice = PAGED__V1__NOTICE__INIT;

	switch (reply->kind) {
	case WIRE_WELCOME:
		welcome_put(&welcome, reply);
		message.body_case = PAGED__V1__CONTROL_REPLY__BODY_WELCOME;
		message.welcome = &welcome;
		break;
	case WIRE_POOL_GRANT:
		pool_grant_put(&pool_grant, &geometry, reply);
		message.body_case = PAGED__V1__CONTROL_REPLY__BODY_POOL;
		message.pool = &pool_grant;
		break;
	case WIRE_REFUSAL:
		refusal.status = reply->refusal.status;
		refusal.text = (char *)reply->refusal.text;
		message.body_case = PAGED__V1__CONTROL_REPLY__BODY_REFUSAL;
		message.refusal = &refusal;
		break;
	case WIRE_FAREWELL:
		message.body_case = PAGED__V1__CONTROL_REPLY__BODY_FAREWELL;
		message.farewell = &farewell;
		break;
	case WIRE_NOTICE:
		notice.kind = (Paged__V1__Notice__Kind)reply->notice.kind;
		notice.deadline_ms = reply->notice.deadline_ms;
		notice.text = (char *)reply->notice.text;
		message.body_case = PAGED__V1__CONTROL_REPLY__BODY_NOTICE;
		message.notice = &notice;
		break;
	}
	return wire_pack(&message.base, buffer, buffer_size);
}

static enum paged_status
welcome_parse(const Paged__V1__Welcome *from, struct wire_control_reply *reply, struct paged_error *error)
{
	enum paged_status status;

	reply->kind = WIRE_WELCOME;
	reply->welcome.version_major = from->version_major;
	reply->welcome.version_minor = from->version_minor;
	reply->welcome.session = from->session;
	reply->welcome.member = from->member;
	status = wire_bytes_copy(reply->welcome.boot_id, WIRE_BOOT_ID_SIZE, &from->boot_id, "welcome: boot id", error);
	if (status == PAGED_OK)
		status = wire_bytes_copy(reply->welcome.token, WIRE_TOKEN_SIZE, &from->token, "welcome: token", error);
	if (status == PAGED_OK && from->join_token.len != 0) {
		reply->welcome.has_join_token = true;
		status = wire_bytes_copy(reply->welcome.join_token, WIRE_TOKEN_SIZE, &from->join_token,
					 "welcome: join token", error);
	}
	if (status == PAGED_OK)
		status = wire_text_copy(reply->welcome.endpoint, sizeof(reply->welcome.endpoint), from->endpoint,
					"welcome: endpoint", error);
	if (status == PAGED_OK)
		status = wire_text_copy(reply->welcome.daemon_version, sizeof(reply->welcome.daemon_version),
					from->daemon_version, "welcome: daemon version", error);
	return status;
}

static enum paged_status
memory_parse(const Paged__V1__PoolGrant *from, struct wire_memory *memory, struct paged_error *error)
{
	bool of_gpu = from->export_kind != PAGED__V1__EXPORT__EXPORT_FD;
	enum paged_status status;

	switch (from->export_kind) {
	case PAGED__V1__EXPORT__EXPORT_FD:
	case PAGED__V1__EXPORT__EXPORT_VMM:
	case PAGED__V1__EXPORT__EXPORT_LEGACY:
		memory->export = (enum wire_export)from->export_kind;
		break;
	default:
		return paged_fail(error, PAGED_ERR_PROTOCOL, "pool: export %d is unknown", (int)from->export_kind);
	}
	memory->generation = from->generation;
	status = wire_bytes_copy(memory->device, of_gpu ? WIRE_UUID_SIZE : 0, &from->device, "pool: device", error);
	if (status == PAGED_OK)
		status = wire_bytes_copy(memory->canary, of_gpu ? WIRE_CANARY_SIZE : 0, &from->canary, "pool: canary",
					 error);
	return status;
}

static enum paged_status
pool_grant_parse(const Paged__V1__PoolGrant *from, struct wire_control_reply *reply, struct paged_error *error)
{
	enum paged_status status;

	reply->kind = WIRE_POOL_GRANT;
	reply->pool_grant.pool = from->pool;
	reply->pool_grant.memory_size = from->memory_size;
	reply->pool_grant.region_size = from->region_size;
	status =
		wire_text_copy(reply->pool_grant.name, sizeof(reply->pool_grant.name), from->name, "pool: name", error);
	if (status == PAGED_OK)
		status = wire_text_copy(reply->pool_grant.backend, sizeof(reply->pool_grant.backend), from->backend,
					"pool: backend", error);
	if (status == PAGED_OK)
		status = wire_geometry_get(&reply->pool_grant.geometry, from->geometry, error);
	if (status == PAGED_OK)
		status = memory_parse(from, &reply->pool_grant.memory, error);
	return status;
}

static enum paged_status
notice_parse(const Paged__V1__Notice *from, struct wire_control_reply *reply, struct paged_error *error)
{
	reply->kind = WIRE_NOTICE;
	reply->notice.deadline_ms = from->deadline_ms;
	switch (from->kind) {
	case PAGED__V1__NOTICE__KIND__STOPPING:
	case PAGED__V1__NOTICE__KIND__ENDED:
		reply->notice.kind = (enum wire_notice_kind)from->kind;
		break;
	default:
		return paged_fail(error, PAGED_ERR_PROTOCOL, "notice: kind %d is unknown", (int)from->kind);
	}
	return wire_text_copy(reply->notice.text, sizeof(reply->notice.text), from->text, "notice: text", error);
}

enum paged_status
wire_control_reply_parse(const uint8_t *message, size_t size, struct wire_arena *arena,
			 struct wire_control_reply *reply, struct paged_error *error)
{
	const Paged__V1__ControlReply *unpacked = (const Paged__V1__ControlReply *)wire_unpack(
		&paged__v1__control_reply__descriptor, message, size, arena, error);

	memset(reply, 0, sizeof(*reply));
	if (unpacked == NULL)
		return PAGED_ERR_PROTOCOL;
	switch (unpacked->body_case) {
	case PAGED__V1__CONTROL_REPLY__BODY_WELCOME:
		return welcome_parse(unpacked->welcome, reply, error);
	case PAGED__V1__CONTROL_REPLY__BODY_POOL:
		return pool_grant_parse(unpacked->pool, reply, error);
	case PAGED__V1__CONTROL_REPLY__BODY_REFUSAL:
		if (unpacked->refusal->status == PAGED_OK)
			return paged_fail(error, PAGED_ERR_PROTOCOL, "refusal without a reason");
		reply->kind = WIRE_REFUSAL;
		reply->refusal.status = (enum paged_status)unpacked->refusal->status;
		return wire_text_copy(reply->refusal.text, sizeof(reply->refusal.text), unpacked->refusal->text,
				      "refusal: text", error);
	case PAGED__V1__CONTROL_REPLY__BODY_FAREWELL:
		reply->kind = WIRE_FAREWELL;
		return PAGED_OK;
	case PAGED__V1__CONTROL_REPLY__BODY_NOTICE:
		return notice_parse(unpacked->notice, reply, error);
	default:
		return paged_fail(error, PAGED_ERR_PROTOCOL, "a control reply of a kind that version %u.%u lacks",
				  WIRE_VERSION_MAJOR, WIRE_VERSION_MINOR);
	}
}
