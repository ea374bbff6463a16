/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The four parsers of wire.h.  The first byte selects one; the rest is the
 * message.  A message that parses must pack, and the packed bytes must parse to a
 * message that packs to the same bytes.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/wire.h"
#include "tests/fuzz/fuzz.h"

const char fuzz_name[] = "wire";
const unsigned int fuzz_mutations = 2000;

enum { CONTROL_REQUEST, CONTROL_REPLY, REQUEST, REPLY, N_PARSERS };

static struct wire_arena arena, pack_arena;

/* A message of any kind, parsed. */
union message {
	struct wire_control_request control_request;
	struct wire_control_reply control_reply;
	struct wire_request request;
	struct wire_reply reply;
};

static enum paged_status
message_parse(int parser, const uint8_t *data, size_t size, union message *message)
{
	struct paged_error error = { 0 };
	enum paged_status status;

	wire_arena_reset(&arena);
	switch (parser) {
	case CONTROL_REQUEST:
		status = wire_control_request_parse(data, size, &arena, &message->control_request, &error);
		break;
	case CONTROL_REPLY:
		status = wire_control_reply_parse(data, size, &arena, &message->control_reply, &error);
		break;
	case REQUEST:
		status = wire_request_parse(data, size, &arena, &message->request, &error);
		break;
	default:
		status = wire_reply_parse(data, size, &arena, &message->reply, &error);
		break;
	}
	/* A refused message sets the error's text and status. */
	if (status != PAGED_OK && (error.status != status || error.text[0] == '\0'))
		abort();
	return status;
}

static size_t
message_pack(int parser, const union message *message, uint8_t *buffer, size_t size)
{
	wire_arena_reset(&pack_arena);
	switch (parser) {
	case CONTROL_REQUEST:
		return wire_control_request_pack(&message->control_request, buffer, size);
	case CONTROL_REPLY:
		return wire_control_reply_pack(&message->control_reply, buffer, size);
	case REQUEST:
		return wire_request_pack(&message->request, &pack_arena, buffer, size);
	default:
		return wire_reply_pack(&message->reply, &pack_arena, buffer, size);
	}
}

static void
fuzz_arenas_create(void)
{
	struct paged_error error;

	if (arena.base != NULL)
		return;
	if (wire_arena_create(&arena, &error) != PAGED_OK || wire_arena_create(&pack_arena, &error) != PAGED_OK)
		abort();
}

/* A success reply to request 0 packs to 0 bytes, which also means that a message does not fit. */
static bool
message_is_empty_reply(int parser, const union message *message)
{
	const struct wire_reply *reply = &message->reply;

	return parser == REPLY && reply->id == 0 && reply->status == PAGED_OK && reply->kind == WIRE_REPLY_EMPTY;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t once[WIRE_MAX_MESSAGE], twice[WIRE_MAX_MESSAGE];
	union message message;
	size_t n_once, n_twice;
	int parser;

	fuzz_arenas_create();
	if (size == 0)
		return 0;
	parser = data[0] % N_PARSERS;
	memset(&message, 0, sizeof(message));
	if (message_parse(parser, data + 1, size - 1, &message) != PAGED_OK)
		return 0;
	if (message_is_empty_reply(parser, &message))
		return 0;
	n_once = message_pack(parser, &message, once, sizeof(once));
	if (n_once == 0)
		abort();
	if (message_parse(parser, once, n_once, &message) != PAGED_OK)
		abort();
	n_twice = message_pack(parser, &message, twice, sizeof(twice));
	if (n_once != n_twice || memcmp(once, twice, n_once) != 0)
		abort();
	return 0;
}

/* Seeds: one of each kind of message. */

static const uint64_t seqs[3] = { 1ull << 32, 2ull << 32 | 7, UINT64_MAX };
static const uint32_t tokens[3] = { 1, 300, UINT32_MAX }, pages[3] = { 5, 70000, 0 };
static const struct paged_seq_item items[3] = {
	{ .seq = 1, .n_tokens = 1 },
	{ .seq = 1ull << 32, .n_tokens = 300, .n_ahead = 64 },
	{ .seq = UINT64_MAX, .n_tokens = UINT32_MAX },
};
static const struct seq_spec specs[2] = { { 0, 0, "" }, { 255, 4096, "chat 7" } };
static const struct seq_start_spec start_specs[2] = {
	{ .n_pages = 3, .n_tokens = 300, .n_asked = 70, .serial = UINT64_MAX, .tag = "chat 7" },
	{ .n_tokens = 16, .seq = 2ull << 32 | 7, .tag = "" },
};
static const struct seq_fork forks[2] = { { 1ull << 32, 40 }, { UINT64_MAX, UINT32_MAX } };
static const struct seq_publish_spec publish_specs[2] = { { 1ull << 32, 2, 0, 1 }, { 2ull << 32 | 7, 4, 5, 1 } };
static const uint8_t extra[REGION_EXTRA_SIZE] = { 1, 2, 3 };
static const struct paged_node_entry node_reports[2] = {
	{ .serial = 1, .page = 5, .parent = UINT32_MAX, .n_references = 2, .used_s = 60, .hits = 7, .pinned = 1 },
	{ .serial = UINT64_MAX, .parent_serial = 1, .page = 70000, .parent = 5 },
};
static const int64_t bases[3] = { 0, INT64_MIN, -7 };
static const struct mask_request_name symbols[2] = { { "doc", PAGED_I32, 1, { 0 } },
						     { "limit", PAGED_F32, 0, { 0, 0, 128, 63 } } };
#define GEOMETRY                                              \
	{                                                     \
		30, 3, 64, 64, false, PAGED_F16, 16, 5825, 64 \
	}
#define SEQUENCE                                                                                 \
	{                                                                                        \
		.seq = 1ull << 32, .session = 3, .capacity = 832, .n_pages = 52, .name = "llama" \
	}
static const struct paged_pool_entry pool_reports[2] = {
	{ .name = "llama", .backend = "host", .memory = "4 KiB pages", .n_layers = 30, .n_pages = 5825, .n_free = 5 },
	{ .number = 1, .name = "toy", .backend = "host", .page_size = 16, .n_slots = 9 },
};
static const struct paged_session_entry session_reports[2] = {
	{ .session = 3, .member = 4, .pid = 81233, .first = 1, .name = "llama" },
	{ .session = 4, .ended = 1, .draining = 1, .tenant = "research" },
};
static const struct paged_seq_entry sequence_reports[2] = {
	SEQUENCE,
	{ .seq = 2ull << 32 | 9, .session = 4 },
};

static const struct paged_seq_item gives[3] = { { .seq = 1ull << 32 | 3, .n_tokens = 32768 },
						{ .seq = 7 },
						{ .seq = 9 } };
static const struct paged_ticket_entry ticket_reports[2] = {
	{ .number = 7, .session = 3, .n_sequences = 2, .n_pages = 4096, .n_tokens = 65536, .expires_ms = 10000 },
	{ .number = 9, .session = 4, .ended = 1, .pool = 1, .flags = 3, .to_session = 5, .to_uid = 1000 },
};

static const struct paged_quota_entry quota_reports[2] = {
	{ .tenant = "research", .n_charged = 7, .limited = 1, .limit = 300 },
	{ .tenant = "sales", .pool = 1 },
};

static const struct paged_pin_entry pin_reports[2] = {
	{ .number = 7, .serial = 1ull << 40, .page = 3, .n_pages = 2, .n_tokens = 32, .expires_s = 60, .uid = 1000 },
	{ .number = 9, .serial = 12, .session = 4, .pid = 4711, .tenant = "sales" },
};

static const struct wire_control_request control_requests[] = {
	{ WIRE_HELLO, .hello = { .version_major = 2, .role = WIRE_ROLE_SESSION, .outlive = true, .name = "worker" } },
	{ WIRE_HELLO,
	  .hello = { .version_major = 2, .role = WIRE_ROLE_JOIN, .join_token = { 1, 2, 3 }, .name = "rank" } },
	{ WIRE_HELLO, .hello = { .version_major = 3, .version_minor = 7, .role = WIRE_ROLE_OBSERVER } },
	{ WIRE_OPEN_POOL, .open_pool = { "llama", 1 } },
	{ WIRE_BYE, .open_pool = { "" } },
};
static const struct wire_control_reply control_replies[] = {
	{ WIRE_WELCOME, .welcome = { 2, 0, { 9 }, 3, 4, { 8 }, { 7 }, "ipc:///run/paged/m00", "0.1.0", 64 } },
	{ WIRE_POOL_GRANT,
	  .pool_grant = { 1, "llama", "host", GEOMETRY, 1u << 30, 1u << 20, { 0 }, { 5 }, 0, 1, 1, true, "m@1" } },
	{ WIRE_POOL_GRANT,
	  .pool_grant = { 2, "gpu", "cuda", GEOMETRY, 1u << 30, 1u << 20, { WIRE_EXPORT_VMM, { 1 }, { 2 }, 3 } } },
	{ WIRE_POOL_GRANT,
	  .pool_grant = { 2, "gpu", "cuda", GEOMETRY, 1u << 30, 1u << 20, { WIRE_EXPORT_LEGACY, { 1 }, { 2 }, 3 } } },
	{ WIRE_REFUSAL, .refusal = { PAGED_ERR_PERM, "uid 65534" } },
	{ WIRE_FAREWELL, .refusal = { 0 } },
	{ WIRE_NOTICE, .notice = { WIRE_NOTICE_STOPPING, 10000, "pagedd is stopping" } },
	{ WIRE_NOTICE, .notice = { WIRE_NOTICE_ENDED, 0, "session 3 ended" } },
	{ WIRE_NOTICE, .notice = { WIRE_NOTICE_DRAINED, 0, "session 3 is drained" } },
};
static const struct wire_request requests[] = {
	{ 1, WIRE_PING, .create = { 0 } },
	{ 2, WIRE_CREATE, .create = { 2, specs } },
	{ 3, WIRE_RESERVE, .change = { 3, items } },
	{ 5, WIRE_TRUNCATE, .change = { 2, items } },
	{ 6, WIRE_ERASE, .erase = { 3, seqs } },
	{ 7, WIRE_GET_STATUS, .create = { 0 } },
	{ 8, WIRE_GET_POOLS, .create = { 0 } },
	{ 9, WIRE_GET_SESSIONS, .get_sessions = { 3, 4 } },
	{ 10, WIRE_GET_SEQUENCES, .get_sequences = { 0, 100 } },
	{ 11, WIRE_GET_TABLE, .get_table = { 8192, 1ull << 32 } },
	{ 12, WIRE_CHECK, .check = { 1 } },
	{ 13, WIRE_KICK, .kick = { 3, true } },
	{ 14, WIRE_PUT_ARRAY, .put_array = { "doc", PAGED_I32, 2, { 5, 7 }, 40, 12, (const uint8_t *)pages } },
	{ 15, WIRE_DROP_ARRAY, .drop_array = { "doc" } },
	{ 16, WIRE_BUILD_MASK,
	  .build_mask = { 3, tokens, tokens, bases, tokens, tokens, 8, 128, 16, "doc[q_idx] < limit", 2, symbols, 77,
			  5 } },
	{ 17, WIRE_BUILD_MASK,
	  .build_mask = { 1, tokens, tokens, NULL, NULL, NULL, 0, 1, 16, "causal", 0, NULL, 0, 0 } },
	{ 18, WIRE_GET_HANDLE, .get_handle = { 2 } },
	{ 19, WIRE_START, .start = { 1, 2, start_specs, 3, pages } },
	{ 20, WIRE_START, .start = { 0, 1, start_specs + 1, 0, NULL } },
	{ 21, WIRE_FORK, .fork = { 2, forks } },
	{ 22, WIRE_PUBLISH, .publish = { 2, publish_specs, 3, tokens, 1, pages, REGION_EXTRA_SIZE, extra } },
	{ 23, WIRE_PUBLISH, .publish = { 1, publish_specs, 0, NULL, 0, NULL, REGION_EXTRA_SIZE, extra } },
	{ 24, WIRE_PIN, .pin = { 1, 70000, 3600, UINT64_MAX } },
	{ 25, WIRE_EVICT, .evict = { 1, 4096 } },
	{ 26, WIRE_GET_PREFIXES, .get_prefixes = { 1, 16384 } },
	{ 27, WIRE_TRIM, .change = { 2, items } },
	{ 28, WIRE_GIVE, .give = { 3, gives, { 10000, 3, 4, 1000 } } },
	{ 29, WIRE_ADOPT, .adopt = { { 1, 2, 3 }, 1, 4096 } },
	{ 30, WIRE_CANCEL, .cancel = { { 4, 5 } } },
	{ 31, WIRE_GET_TICKETS, .get_tickets = { 1ull << 40 } },
	{ 32, WIRE_HOLD, .hold = { 1, 3, pages, seqs } },
	{ 33, WIRE_GET_QUOTAS, .get_quotas = { 256 } },
	{ 36, WIRE_GET_PINS, .get_pins = { 1, 1ull << 40 } },
	{ 37, WIRE_UNPIN, .unpin = { 1, 7 } },
	{ 34, WIRE_DRAIN, .drain = { 3 } },
	{ .id = 35, .kind = WIRE_GET_METRICS },
	{ 36, WIRE_SET_LOG_LEVEL, .set_log_level = { 7 } },
};
#define HISTOGRAM                        \
	{                                \
		5000000000, 3, 0,        \
		{                        \
			1, 1ull << 40, 2 \
		}                        \
	}
static const struct paged_request_entry request_reports[] = {
	{ "reserve", 6, 0, { 100, [5] = 7 }, HISTOGRAM, 4096 },
	{ "invalid", .latency = HISTOGRAM },
};
static const struct wire_reply replies[] = {
	{ 1, PAGED_OK, "", WIRE_REPLY_EMPTY, .ids = { 0 } },
	{ 2, PAGED_ERR_FULL, "pool toy: 7 pages requested, 0 free", WIRE_REPLY_EMPTY, .ids = { 0 } },
	{ 3, PAGED_OK, "", WIRE_REPLY_IDS, .ids = { 3, seqs } },
	{ 4, PAGED_OK, "", WIRE_REPLY_STATUS,
	  .status_report = { .version = "0.1.0",
			     .uptime_ms = 8040000,
			     .n_requests = 77,
			     .n_sessions = 4,
			     .pid = 4711,
			     .stopping = 1 } },
	{ 5, PAGED_OK, "", WIRE_REPLY_POOLS, .pools = { 2, pool_reports } },
	{ 6, PAGED_OK, "", WIRE_REPLY_SESSIONS, .sessions = { 2, session_reports, true } },
	{ 7, PAGED_OK, "", WIRE_REPLY_SEQUENCES, .sequences = { 2, sequence_reports, 10, true } },
	{ 8, PAGED_OK, "", WIRE_REPLY_TABLE, .table = { SEQUENCE, 3, pages, false } },
	{ 9, PAGED_OK, "", WIRE_REPLY_CHECK_RESULT,
	  .check_result = { 0, 64, 60, 3, 0, 1, 2, 0, 0, "page 3: count 2, 1 row names it" } },
	{ 10, PAGED_OK, "", WIRE_REPLY_MASK, .mask = { 3, pages, false, 0 } },
	{ 11, PAGED_OK, "", WIRE_REPLY_MASK, .mask = { 3, pages, true, 77 } },
	{ 12, PAGED_OK, "", WIRE_REPLY_HANDLE, .handle = { { 9, 8, 7 }, { 1 }, 1u << 21, 3 } },
	{ 13, PAGED_OK, "", WIRE_REPLY_PUBLISHED, .published = { 3, pages } },
	{ 14, PAGED_OK, "", WIRE_REPLY_PINNED, .pinned = { 52 } },
	{ 15, PAGED_OK, "", WIRE_REPLY_EVICTED, .evicted = { 4096, true } },
	{ 16, PAGED_OK, "", WIRE_REPLY_PREFIXES, .prefixes = { 2, node_reports, 70001, true } },
	{ 17, PAGED_OK, "", WIRE_REPLY_TICKET, .ticket = { { 1, 2 } } },
	{ 18, PAGED_OK, "", WIRE_REPLY_ADOPTED, .adopted = { 3, gives } },
	{ 19, PAGED_OK, "", WIRE_REPLY_TICKETS, .tickets = { 2, ticket_reports, true } },
	{ 20, PAGED_OK, "", WIRE_REPLY_QUOTAS, .quotas = { 2, quota_reports, true, 2 } },
	{ 21, PAGED_OK, "", WIRE_REPLY_METRICS, .metrics = { { .turns = HISTOGRAM }, 2, request_reports } },
	{ 22, PAGED_OK, "", WIRE_REPLY_LOG_LEVEL, .log_level = { 6 } },
	{ 23, PAGED_OK, "", WIRE_REPLY_PINS, .pins = { 2, pin_reports, true } },
	{ 24, PAGED_ERR_FULL, "full", WIRE_REPLY_SHORTAGE, .shortage = { 0, 1, 2, 3, 4, 5, 6, 0, 7, 8, 9 } },
};

#define N(array) (sizeof(array) / sizeof((array)[0]))

size_t
fuzz_seed(size_t index, uint8_t *buffer, size_t buffer_size)
{
	union message message;
	int parser;

	fuzz_arenas_create();
	memset(&message, 0, sizeof(message));
	if (index < N(control_requests)) {
		parser = CONTROL_REQUEST;
		message.control_request = control_requests[index];
	} else if ((index -= N(control_requests)) < N(control_replies)) {
		parser = CONTROL_REPLY;
		message.control_reply = control_replies[index];
	} else if ((index -= N(control_replies)) < N(requests)) {
		parser = REQUEST;
		message.request = requests[index];
	} else if ((index -= N(requests)) < N(replies)) {
		parser = REPLY;
		message.reply = replies[index];
	} else {
		return 0;
	}
	buffer[0] = (uint8_t)parser;
	return 1 + message_pack(parser, &message, buffer + 1, buffer_size - 1);
}
