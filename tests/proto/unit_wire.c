/* SPDX-License-Identifier: Apache-2.0 */
/* Messages packed and parsed: largest sizes, round trips, refused contents. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "proto/wire.h"

static struct wire_arena arena;
static uint8_t buffer[WIRE_MAX_MESSAGE];
static struct paged_error error;

static void
wire_setup(void)
{
	cr_assert_eq(wire_arena_create(&arena, &error), PAGED_OK);
}

static void
wire_teardown(void)
{
	wire_arena_destroy(&arena);
}

TestSuite(wire, .init = wire_setup, .fini = wire_teardown);

Test(wire, largest_reserve_fits)
{
	static struct paged_seq_item items[PAGED_MAX_REQUEST_SEQS];
	struct wire_request request = { .id = UINT64_MAX, .kind = WIRE_RESERVE }, back;
	size_t size;

	for (uint32_t i = 0; i < PAGED_MAX_REQUEST_SEQS; i++)
		items[i] = (struct paged_seq_item){ .seq = UINT64_MAX - i, .n_tokens = UINT32_MAX - i, .n_ahead = 64 };
	request.change.n = PAGED_MAX_REQUEST_SEQS;
	request.change.items = items;
	size = wire_request_pack(&request, &arena, buffer, sizeof(buffer));
	cr_assert_gt(size, 0);
	cr_assert_eq(wire_request_parse(buffer, size, &arena, &back, &error), PAGED_OK, "%s", error.text);
	cr_assert_eq(back.id, UINT64_MAX);
	cr_assert_eq(back.kind, WIRE_RESERVE);
	cr_assert_eq(back.change.n, PAGED_MAX_REQUEST_SEQS);
	cr_assert_arr_eq(back.change.items, items, sizeof(items));
	/* Items that differ are packed one by one. */
	items[1].n_ahead = 0;
	request.change.n = 3;
	size = wire_request_pack(&request, &arena, buffer, sizeof(buffer));
	cr_assert_eq(wire_request_parse(buffer, size, &arena, &back, &error), PAGED_OK, "%s", error.text);
	cr_assert_arr_eq(back.change.items, items, 3 * sizeof(*items));
}

/* 4096 sequences whose tags have the largest total size of a request. */
Test(wire, largest_create_fits)
{
	static struct seq_spec specs[PAGED_MAX_REQUEST_SEQS];
	struct wire_request request = { .id = UINT64_MAX, .kind = WIRE_CREATE }, back;
	size_t size;

	for (uint32_t i = 0; i < PAGED_MAX_REQUEST_SEQS; i++)
		specs[i] = (struct seq_spec){ .pool = 255, .n_tokens = UINT32_MAX - i, .tag = "ab" };
	cr_assert_eq(PAGED_MAX_REQUEST_TAGS, 2 * PAGED_MAX_REQUEST_SEQS);
	request.create.n = PAGED_MAX_REQUEST_SEQS;
	request.create.specs = specs;
	size = wire_request_pack(&request, &arena, buffer, sizeof(buffer));
	cr_assert_gt(size, 0);
	wire_arena_reset(&arena);
	cr_assert_eq(wire_request_parse(buffer, size, &arena, &back, &error), PAGED_OK, "%s", error.text);
	cr_assert_eq(back.create.n, PAGED_MAX_REQUEST_SEQS);
	for (uint32_t i = 0; i < PAGED_MAX_REQUEST_SEQS; i++) {
		cr_assert_eq(back.create.specs[i].pool, 255);
		cr_assert_eq(back.create.specs[i].n_tokens, UINT32_MAX - i);
		cr_assert_str_eq(back.create.specs[i].tag, "ab");
	}
}

static enum paged_status
request_round_trip(const struct wire_request *request, struct wire_request *back)
{
	size_t size = wire_request_pack(request, &arena, buffer, sizeof(buffer));

	return wire_request_parse(buffer, size, &arena, back, &error);
}

/* An older daemon passes names on that reorder lists. */
Test(wire, texts_for_display_are_cleaned)
{
	struct paged_session_entry session = { .session = 1,
					       .name = "a\xe2\x80\xae"
						       "b" };
	struct wire_reply back,
		reply = { .id = 1, .kind = WIRE_REPLY_SESSIONS, .text = "", .sessions.report = &session };
	size_t size;

	reply.sessions.n = 1;
	size = wire_reply_pack(&reply, &arena, buffer, sizeof(buffer));
	cr_assert_gt(size, 0);
	wire_arena_reset(&arena);
	cr_assert_eq(wire_reply_parse(buffer, size, &arena, &back, &error), PAGED_OK, "%s", error.text);
	cr_assert_str_eq(back.sessions.report[0].name, "a???b");
}

Test(wire, array_lengths_are_checked)
{
	/* Request { id: 7, reserve { seq: [0, 0, 0] } } */
	static const uint8_t no_tokens[32] = { 0x08, 7, 0x22, 26, 0x0a, 24 };
	static struct seq_spec specs[PAGED_MAX_REQUEST_SEQS + 1];
	paged_seq_id ids[3] = { 1, 2, 3 };
	struct wire_request back, request = { .id = 7, .kind = WIRE_ERASE, .erase = { .n = 3, .ids = ids } };

	cr_assert_eq(wire_request_parse(no_tokens, 30, &arena, &back, &error), PAGED_ERR_PROTOCOL);
	cr_assert_str_eq(error.text, "SeqItems.n_tokens has 0 entries for 3");
	cr_assert_eq(back.id, 7, "an error reply has the id of its request");

	cr_assert_eq(request_round_trip(&request, &back), PAGED_OK);
	cr_assert_arr_eq(back.erase.ids, ids, sizeof(ids));
	request.erase.n = 0;
	cr_assert_eq(request_round_trip(&request, &back), PAGED_ERR_LIMIT);

	request.kind = WIRE_CREATE;
	for (uint32_t i = 0; i <= PAGED_MAX_REQUEST_SEQS; i++)
		specs[i].tag = "";
	request.create.n = PAGED_MAX_REQUEST_SEQS + 1;
	request.create.specs = specs;
	cr_assert_eq(request_round_trip(&request, &back), PAGED_ERR_LIMIT);
	cr_assert_str_eq(error.text, "SeqCreate.sequence has 4097 entries; it may have 1 to 4096");
	specs[0].tag = "more than thirty-one bytes: 32 b";
	request.create.n = 1;
	cr_assert_eq(request_round_trip(&request, &back), PAGED_ERR_LIMIT);
	cr_assert_str_eq(error.text, "SeqSpec.tag has 32 bytes; it may have 31");
}

Test(wire, control_round_trips)
{
	struct wire_control_request request = { .kind = WIRE_HELLO }, request_back;
	struct wire_control_reply reply = { .kind = WIRE_WELCOME }, reply_back;
	size_t size;

	request.hello.version_major = WIRE_VERSION_MAJOR;
	request.hello.role = WIRE_ROLE_JOIN;
	memset(request.hello.join_token, 0xab, WIRE_TOKEN_SIZE);
	strcpy(request.hello.name, "worker");
	size = wire_control_request_pack(&request, buffer, sizeof(buffer));
	cr_assert_eq(wire_control_request_parse(buffer, size, &arena, &request_back, &error), PAGED_OK);
	cr_assert_eq(request_back.hello.role, WIRE_ROLE_JOIN);
	cr_assert_arr_eq(request_back.hello.join_token, request.hello.join_token, WIRE_TOKEN_SIZE);
	cr_assert_str_eq(request_back.hello.name, "worker");

	reply.welcome.session = 3;
	reply.welcome.member = 9;
	memset(reply.welcome.token, 1, WIRE_TOKEN_SIZE);
	memset(reply.welcome.boot_id, 2, WIRE_BOOT_ID_SIZE);
	memset(reply.welcome.join_token, 3, WIRE_TOKEN_SIZE);
	strcpy(reply.welcome.endpoint, "ipc:///x");
	reply.welcome.max_open_requests = 64;
	size = wire_control_reply_pack(&reply, buffer, sizeof(buffer));
	cr_assert_eq(wire_control_reply_parse(buffer, size, &arena, &reply_back, &error), PAGED_OK, "%s", error.text);
	cr_assert_eq(reply_back.welcome.session, 3);
	cr_assert_arr_eq(reply_back.welcome.join_token, reply.welcome.join_token, WIRE_TOKEN_SIZE);
	cr_assert_arr_eq(reply_back.welcome.token, reply.welcome.token, WIRE_TOKEN_SIZE);
	cr_assert_str_eq(reply_back.welcome.endpoint, "ipc:///x");
	cr_assert_eq(reply_back.welcome.max_open_requests, 64);
}

Test(wire, names_with_control_characters_are_refused)
{
	struct wire_control_request request = { .kind = WIRE_OPEN_POOL }, back;
	size_t size;

	strcpy(request.open_pool.name, "a\033[2Jb");
	size = wire_control_request_pack(&request, buffer, sizeof(buffer));
	cr_assert_eq(wire_control_request_parse(buffer, size, &arena, &back, &error), PAGED_ERR_PROTOCOL);
	cr_assert_str_eq(error.text, "OpenPool.name has a control character at byte 1");
}

/* The largest mask request: all rows with q_base, the longest text, all names. */
Test(wire, largest_mask_fits)
{
	static uint32_t q_len[PAGED_MAX_MASK_ROWS], kv_len[PAGED_MAX_MASK_ROWS], kv_first[PAGED_MAX_MASK_ROWS];
	static int64_t q_base[PAGED_MAX_MASK_ROWS];
	static uint32_t b[PAGED_MAX_MASK_ROWS];
	static struct mask_request_name names[MASK_MAX_NAMES];
	static char text[WIRE_MAX_MOD + 1];
	struct wire_request back, request = { .id = UINT64_MAX, .kind = WIRE_BUILD_MASK };

	for (uint32_t i = 0; i < PAGED_MAX_MASK_ROWS; i++) {
		q_len[i] = UINT32_MAX - i;
		kv_len[i] = i;
		kv_first[i] = UINT32_MAX - 3 * i;
		q_base[i] = INT64_MIN + i;
		b[i] = UINT32_MAX - 2 * i;
	}
	for (uint32_t i = 0; i < MASK_MAX_NAMES; i++) {
		names[i] = (struct mask_request_name){ .dtype = UINT32_MAX, .n_dims = i % 5, .value = { 1, 2, 3, 4 } };
		memset(names[i].name, 'a' + (int)i, MASK_MAX_NAME);
	}
	memset(text, 't', WIRE_MAX_MOD);
	request.build_mask = (struct mask_request){ .n_rows = PAGED_MAX_MASK_ROWS,
						    .q_len = q_len,
						    .kv_len = kv_len,
						    .kv_first = kv_first,
						    .q_base = q_base,
						    .b = b,
						    .n_heads = UINT32_MAX,
						    .q_block = UINT32_MAX,
						    .kv_block = UINT32_MAX,
						    .text = text,
						    .n_names = MASK_MAX_NAMES,
						    .names = names,
						    .first_list = UINT64_MAX,
						    .first_block = UINT32_MAX };
	cr_assert_eq(request_round_trip(&request, &back), PAGED_OK, "%s", error.text);
	cr_assert_eq(back.build_mask.n_rows, PAGED_MAX_MASK_ROWS);
	cr_assert(back.build_mask.first_list == UINT64_MAX && back.build_mask.first_block == UINT32_MAX);
	cr_assert_arr_eq(back.build_mask.q_len, q_len, sizeof(q_len));
	cr_assert_arr_eq(back.build_mask.kv_len, kv_len, sizeof(kv_len));
	cr_assert_arr_eq(back.build_mask.kv_first, kv_first, sizeof(kv_first));
	cr_assert_arr_eq(back.build_mask.q_base, q_base, sizeof(q_base));
	cr_assert_arr_eq(back.build_mask.b, b, sizeof(b));
	cr_assert_str_eq(back.build_mask.text, text);
	cr_assert_arr_eq(back.build_mask.names, names, sizeof(names));
}

Test(wire, counts_of_a_mask_request_are_checked)
{
	static uint32_t lengths[PAGED_MAX_MASK_ROWS + 1];
	static struct mask_request_name names[MASK_MAX_NAMES + 1];
	static char text[WIRE_MAX_MOD + 2];
	struct wire_request back, request = { .id = 7, .kind = WIRE_BUILD_MASK };
	struct mask_request *mask_request = &request.build_mask;

	*mask_request = (struct mask_request){ .n_rows = 0, .q_len = lengths, .kv_len = lengths, .text = "causal" };
	cr_assert_eq(request_round_trip(&request, &back), PAGED_ERR_LIMIT);
	mask_request->n_rows = PAGED_MAX_MASK_ROWS + 1;
	cr_assert_eq(request_round_trip(&request, &back), PAGED_ERR_LIMIT);
	cr_assert_str_eq(error.text, "BuildMask.q_len has 2049 entries; it may have 1 to 2048");
	cr_assert_eq(back.id, 7);
	mask_request->n_rows = 1;
	mask_request->names = names;
	mask_request->n_names = MASK_MAX_NAMES + 1;
	cr_assert_eq(request_round_trip(&request, &back), PAGED_ERR_LIMIT);
	cr_assert_str_eq(error.text, "BuildMask.name has 17 entries; it may have 0 to 16");
	mask_request->n_names = 1;
	names[0].n_dims = 5;
	cr_assert_eq(request_round_trip(&request, &back), PAGED_ERR_PROTOCOL);
	mask_request->n_names = 0;
	memset(text, 't', WIRE_MAX_MOD + 1);
	mask_request->text = text;
	cr_assert_eq(request_round_trip(&request, &back), PAGED_ERR_LIMIT);
	cr_assert_str_eq(error.text, "BuildMask.text has 4097 bytes; it may have 4096");
}

Test(wire, array_chunks_are_checked)
{
	static uint8_t data[WIRE_MAX_CHUNK + 1] = { 1, 2, 3 };
	struct wire_request back, request = { .id = 1, .kind = WIRE_PUT_ARRAY };
	struct wire_array_chunk *part = &request.put_array;

	*part = (struct wire_array_chunk){ "doc",      PAGED_I32,      4,   { 1, 2, 3, UINT32_MAX },
					   UINT64_MAX, WIRE_MAX_CHUNK, data };
	memset(part->name, 'n', MASK_MAX_NAME);
	cr_assert_eq(request_round_trip(&request, &back), PAGED_OK, "%s", error.text);
	cr_assert_arr_eq(back.put_array.extents, part->extents, sizeof(part->extents));
	cr_assert_eq(back.put_array.offset, UINT64_MAX);
	cr_assert_arr_eq(back.put_array.data, data, WIRE_MAX_CHUNK);
	part->size++;
	cr_assert_eq(request_round_trip(&request, &back), PAGED_ERR_LIMIT);
	cr_assert_str_eq(error.text, "PutArray.data has 61441 bytes; it may have 61440");
	part->size = 0;
	part->n_dims = 0;
	cr_assert_eq(request_round_trip(&request, &back), PAGED_ERR_LIMIT);
	cr_assert_str_eq(error.text, "PutArray.extents has 0 entries; it may have 1 to 4");
}

Test(wire, largest_mask_part_fits)
{
	static uint32_t values[MASK_PART_MAX + 1];
	struct wire_reply back, reply = { .id = UINT64_MAX, .kind = WIRE_REPLY_MASK };
	size_t size;

	memset(values, 0xff, sizeof(values));
	reply.mask = (struct mask_part){ MASK_PART_MAX, values, true, UINT64_MAX };
	size = wire_reply_pack(&reply, &arena, buffer, sizeof(buffer));
	cr_assert_gt(size, 0);
	cr_assert_eq(wire_reply_parse(buffer, size, &arena, &back, &error), PAGED_OK, "%s", error.text);
	cr_assert(back.mask.n == MASK_PART_MAX && back.mask.list_continues && back.mask.arrays == UINT64_MAX);
	cr_assert_arr_eq(back.mask.values, values, MASK_PART_MAX * sizeof(values[0]));
	reply.mask.n++;
	size = wire_reply_pack(&reply, &arena, buffer, sizeof(buffer));
	cr_assert_eq(wire_reply_parse(buffer, size, &arena, &back, &error), PAGED_ERR_LIMIT);
	cr_assert_str_eq(error.text, "Mask.value has 16001 entries; it may have 0 to 16000");
}

Test(wire, lists_round_trip)
{
	static struct paged_session_entry sessions[WIRE_LIST_MAX];
	static uint32_t pages[WIRE_TABLE_MAX];
	struct wire_reply back, reply = { .id = 1, .kind = WIRE_REPLY_SESSIONS };
	size_t size;

	for (uint32_t i = 0; i < WIRE_LIST_MAX; i++) {
		sessions[i].session = UINT32_MAX - i;
		sessions[i].n_requests = UINT64_MAX;
		sessions[i].draining = i % 2;
		memset(sessions[i].name, 'n', PAGED_MAX_NAME);
		memset(sessions[i].tenant, 't', PAGED_MAX_NAME);
	}
	reply.sessions.n = WIRE_LIST_MAX;
	reply.sessions.report = sessions;
	reply.sessions.more = true;
	size = wire_reply_pack(&reply, &arena, buffer, sizeof(buffer));
	cr_assert_gt(size, 0, "a full list fits a message");
	cr_assert_eq(wire_reply_parse(buffer, size, &arena, &back, &error), PAGED_OK, "%s", error.text);
	cr_assert_eq(back.sessions.n, WIRE_LIST_MAX);
	cr_assert(back.sessions.more);
	cr_assert_arr_eq(back.sessions.report, sessions, sizeof(sessions));

	wire_arena_reset(&arena);
	reply = (struct wire_reply){ .id = 2, .kind = WIRE_REPLY_TABLE };
	memset(pages, 0xff, sizeof(pages));
	reply.table.n = WIRE_TABLE_MAX;
	reply.table.page = pages;
	size = wire_reply_pack(&reply, &arena, buffer, sizeof(buffer));
	cr_assert_gt(size, 0);
	cr_assert_eq(wire_reply_parse(buffer, size, &arena, &back, &error), PAGED_OK, "%s", error.text);
	cr_assert_arr_eq(back.table.page, pages, sizeof(pages));
}

/* Every field of every report survives pack and parse. */
Test(wire, reports_round_trip)
{
	struct paged_pool_entry pool;
	struct paged_seq_entry sequence;
	struct paged_check_result check_result;
	struct paged_daemon_info info;
	struct wire_reply back, reply = { .id = 1, .kind = WIRE_REPLY_POOLS };
	/* Reply { id: 1, table { page: [0] } } */
	static const uint8_t no_sequence[] = { 0x08, 1, 0x4a, 6, 0x12, 4, 0, 0, 0, 0 };
	size_t size;

	memset(&pool, 'x', sizeof(pool));
	pool.name[PAGED_MAX_NAME] = pool.backend[15] = pool.memory[63] = pool.device[47] = pool.model[127] = '\0';
	pool.v_in_k = pool.publishes = 1;
	reply.pools.n = 1;
	reply.pools.report = &pool;
	size = wire_reply_pack(&reply, &arena, buffer, sizeof(buffer));
	cr_assert_eq(wire_reply_parse(buffer, size, &arena, &back, &error), PAGED_OK, "%s", error.text);
	cr_assert_eq(back.pools.n, 1);
	cr_expect_arr_eq(back.pools.report, &pool, sizeof(pool));

	memset(&sequence, 'y', sizeof(sequence));
	sequence.name[PAGED_MAX_NAME] = sequence.tag[PAGED_MAX_TAG] = '\0';
	reply = (struct wire_reply){ .id = 1, .kind = WIRE_REPLY_TABLE, .table = { .sequence = sequence } };
	size = wire_reply_pack(&reply, &arena, buffer, sizeof(buffer));
	cr_assert_eq(wire_reply_parse(buffer, size, &arena, &back, &error), PAGED_OK, "%s", error.text);
	cr_expect_arr_eq(&back.table.sequence, &sequence, offsetof(struct paged_seq_entry, tag) + sizeof(sequence.tag));

	memset(&check_result, 'z', sizeof(check_result));
	check_result.struct_size = check_result.reserved = 0;
	check_result.holds = 1;
	check_result.text[sizeof(check_result.text) - 1] = '\0';
	reply = (struct wire_reply){ .id = 1, .kind = WIRE_REPLY_CHECK_RESULT, .check_result = check_result };
	size = wire_reply_pack(&reply, &arena, buffer, sizeof(buffer));
	cr_assert_eq(wire_reply_parse(buffer, size, &arena, &back, &error), PAGED_OK, "%s", error.text);
	cr_expect_arr_eq(&back.check_result, &check_result,
			 offsetof(struct paged_check_result, text) + sizeof(check_result.text));

	memset(&info, 'v', sizeof(info));
	info.struct_size = 0;
	info.stopping = 1;
	info.version[sizeof(info.version) - 1] = '\0';
	reply = (struct wire_reply){ .id = 1, .kind = WIRE_REPLY_STATUS, .status_report = info };
	size = wire_reply_pack(&reply, &arena, buffer, sizeof(buffer));
	cr_assert_eq(wire_reply_parse(buffer, size, &arena, &back, &error), PAGED_OK, "%s", error.text);
	cr_expect_arr_eq(&back.status_report.uptime_ms, &info.uptime_ms,
			 sizeof(info) - offsetof(struct paged_daemon_info, uptime_ms));

	cr_expect_eq(wire_reply_parse(no_sequence, sizeof(no_sequence), &arena, &back, &error), PAGED_ERR_PROTOCOL);
	cr_expect_str_eq(error.text, "Table has no sequence");
}

/* 64 KiB of empty submessages need megabytes, which the arena refuses. */
Test(wire, a_message_that_decodes_to_megabytes_is_refused)
{
	struct wire_reply back;
	size_t at = 0;

	memset(buffer, 0, sizeof(buffer));
	/* Reply.pools (field 6), a length of two varint bytes, then empty PoolReports (field 1). */
	buffer[at++] = 6 << 3 | 2;
	buffer[at++] = 0xf0;
	buffer[at++] = 0xff;
	buffer[at++] = 0x03;
	for (; at + 2 <= sizeof(buffer); at += 2)
		buffer[at] = 1 << 3 | 2;
	cr_assert_eq(wire_reply_parse(buffer, 4 + 0xfff0, &arena, &back, &error), PAGED_ERR_PROTOCOL);
}

Test(wire, random_bytes_are_refused_or_parsed_within_bounds)
{
	unsigned int seed = 20261121;

	for (int round = 0; round < 20000; round++) {
		size_t size = (size_t)rand_r(&seed) % 200;
		struct wire_request request;
		struct wire_control_request control;

		for (size_t i = 0; i < size; i++)
			buffer[i] = (uint8_t)rand_r(&seed);
		wire_arena_reset(&arena);
		if (wire_request_parse(buffer, size, &arena, &request, &error) == PAGED_OK)
			cr_assert_lt(request.kind, WIRE_N_REQUESTS);
		wire_arena_reset(&arena);
		wire_control_request_parse(buffer, size, &arena, &control, &error);
	}
}

/* Starts whose lists have the largest total size, for few sequences and for many. */
Test(wire, largest_starts_fit)
{
	static const char tag[] = "thirty-one bytes: the longest..";
	static struct seq_start_spec specs[WIRE_MAX_STARTS];
	static uint32_t pages[WIRE_MAX_START_PAGES];
	struct wire_request back, request = { .id = UINT64_MAX, .kind = WIRE_START };
	const uint32_t n_specs[] = { 1, 100, WIRE_MAX_LISTS / (WIRE_START_SIZE + PAGED_MAX_TAG) };

	cr_assert_eq(sizeof(tag) - 1, PAGED_MAX_TAG);
	memset(pages, 0xff, sizeof(pages));
	for (uint32_t i = 0; i < WIRE_MAX_STARTS; i++)
		specs[i] = (struct seq_start_spec){ .n_pages = WIRE_MAX_START_PAGES,
						    .n_tokens = UINT32_MAX - i,
						    .n_asked = UINT32_MAX,
						    .serial = UINT64_MAX - i,
						    .seq = UINT64_MAX,
						    .tag = tag };
	for (size_t i = 0; i < sizeof(n_specs) / sizeof(n_specs[0]); i++) {
		uint32_t left = WIRE_MAX_LISTS - n_specs[i] * (WIRE_START_SIZE + PAGED_MAX_TAG);

		request.start.pool = 255;
		request.start.n = n_specs[i];
		request.start.specs = specs;
		request.start.n_pages = left / 4 < WIRE_MAX_START_PAGES ? left / 4 : WIRE_MAX_START_PAGES;
		request.start.pages = pages;
		wire_arena_reset(&arena);
		cr_assert_eq(request_round_trip(&request, &back), PAGED_OK, "%u sequences: %s", n_specs[i], error.text);
		cr_assert(back.start.pool == 255 && back.start.n == n_specs[i]);
		cr_assert_eq(back.start.n_pages, request.start.n_pages);
		cr_assert_arr_eq(back.start.pages, pages, request.start.n_pages * sizeof(*pages));
		for (uint32_t j = 0; j < n_specs[i]; j++) {
			cr_assert_arr_eq(&back.start.specs[j], &specs[j], offsetof(struct seq_start_spec, tag));
			cr_assert_str_eq(back.start.specs[j].tag, tag);
		}
	}
}

Test(wire, counts_of_a_start_are_checked)
{
	static struct seq_start_spec specs[WIRE_MAX_STARTS + 1];
	static uint32_t pages[WIRE_MAX_START_PAGES + 1];
	struct wire_request back, request = { .id = 7, .kind = WIRE_START };

	for (uint32_t i = 0; i <= WIRE_MAX_STARTS; i++)
		specs[i].tag = "";
	request.start.specs = specs;
	cr_assert_eq(request_round_trip(&request, &back), PAGED_ERR_LIMIT);
	cr_assert_str_eq(error.text, "SeqStart.sequence has 0 entries; it may have 1 to 1024");
	request.start.n = WIRE_MAX_STARTS;
	cr_assert_eq(request_round_trip(&request, &back), PAGED_OK, "%s", error.text);
	cr_assert_eq(back.start.n_pages, 0);
	wire_arena_reset(&arena);
	request.start.n++;
	cr_assert_eq(request_round_trip(&request, &back), PAGED_ERR_LIMIT);
	request.start.n = 1;
	request.start.n_pages = WIRE_MAX_START_PAGES + 1;
	request.start.pages = pages;
	cr_assert_eq(request_round_trip(&request, &back), PAGED_ERR_LIMIT);
	cr_assert_str_eq(error.text, "SeqStart.page has 14001 entries; it may have 0 to 14000");
}

Test(wire, largest_fork_fits)
{
	static struct seq_fork forks[PAGED_MAX_REQUEST_SEQS + 1];
	struct wire_request back, request = { .id = UINT64_MAX, .kind = WIRE_FORK };

	for (uint32_t i = 0; i <= PAGED_MAX_REQUEST_SEQS; i++)
		forks[i] = (struct seq_fork){ UINT64_MAX - i, UINT32_MAX - i };
	request.fork.n = PAGED_MAX_REQUEST_SEQS;
	request.fork.forks = forks;
	cr_assert_eq(request_round_trip(&request, &back), PAGED_OK, "%s", error.text);
	cr_assert_eq(back.fork.n, PAGED_MAX_REQUEST_SEQS);
	for (uint32_t i = 0; i < PAGED_MAX_REQUEST_SEQS; i++)
		cr_assert(back.fork.forks[i].parent == forks[i].parent &&
			  back.fork.forks[i].n_tokens == forks[i].n_tokens);
	request.fork.n++;
	cr_assert_eq(request_round_trip(&request, &back), PAGED_ERR_LIMIT);
	cr_assert_str_eq(error.text, "SeqFork.parent has 4097 entries; it may have 1 to 4096");
}

/* Publishes whose lists have the largest total size: mostly token ids, mostly extras, block keys alone. */
Test(wire, largest_publishes_fit)
{
	static struct seq_publish_spec specs[WIRE_MAX_PUBLISHES];
	static uint32_t tokens[WIRE_MAX_PUBLISH_TOKENS], extra_page[WIRE_MAX_EXTRAS];
	static uint8_t extra[WIRE_MAX_EXTRAS * REGION_EXTRA_SIZE];
	const struct {
		uint32_t n, n_tokens, n_extra_pages, n_extras;
	} cases[] = {
		{ 50, WIRE_MAX_PUBLISH_TOKENS, 1, 1 },
		{ WIRE_MAX_PUBLISHES, 4096, 1186, 1186 },
		{ 100, 0, 0, WIRE_MAX_EXTRAS },
	};
	struct wire_request back, request = { .id = UINT64_MAX, .kind = WIRE_PUBLISH };

	memset(specs, 0xff, sizeof(specs));
	memset(tokens, 0xfe, sizeof(tokens));
	memset(extra_page, 0xfd, sizeof(extra_page));
	memset(extra, 0xfc, sizeof(extra));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		size_t size = cases[i].n * WIRE_PUBLISH_SIZE + cases[i].n_tokens * 4 + cases[i].n_extra_pages * 4 +
			      cases[i].n_extras * REGION_EXTRA_SIZE;

		cr_assert_leq(size, WIRE_MAX_LISTS);
		request.publish.n = cases[i].n;
		request.publish.specs = specs;
		request.publish.n_tokens = cases[i].n_tokens;
		request.publish.tokens = cases[i].n_tokens > 0 ? tokens : NULL;
		request.publish.n_extra_pages = cases[i].n_extra_pages;
		request.publish.extra_page = cases[i].n_extra_pages > 0 ? extra_page : NULL;
		request.publish.extra_size = cases[i].n_extras * REGION_EXTRA_SIZE;
		request.publish.extra = extra;
		wire_arena_reset(&arena);
		cr_assert_eq(request_round_trip(&request, &back), PAGED_OK, "case %zu: %s", i, error.text);
		cr_assert_arr_eq(back.publish.specs, specs, cases[i].n * sizeof(*specs));
		cr_assert_eq(back.publish.n_tokens, cases[i].n_tokens);
		cr_assert_eq(back.publish.n_extra_pages, cases[i].n_extra_pages);
		cr_assert_eq(back.publish.extra_size, request.publish.extra_size);
		cr_assert_arr_eq(back.publish.extra, extra, request.publish.extra_size);
		if (cases[i].n_tokens == 0)
			cr_assert(back.publish.tokens == NULL && back.publish.extra_page == NULL);
		else
			cr_assert_arr_eq(back.publish.tokens, tokens, cases[i].n_tokens * 4);
	}
}

Test(wire, counts_of_a_publish_are_checked)
{
	/* Request { id: 7, publish { seq: [0], version: [0], from: [0] } } */
	static const uint8_t no_pages[] = { 0x08, 7, 0xa2, 1, 26, 0x0a, 8, 0, 0, 0,    0, 0, 0, 0, 0, 0x12,
					    8,    0, 0,    0, 0,  0,    0, 0, 0, 0x1a, 4, 0, 0, 0, 0 };
	static struct seq_publish_spec specs[WIRE_MAX_PUBLISHES + 1];
	static uint32_t tokens[WIRE_MAX_PUBLISH_TOKENS + 1];
	struct wire_request back, request = { .id = 7, .kind = WIRE_PUBLISH };

	cr_assert_eq(wire_request_parse(no_pages, sizeof(no_pages), &arena, &back, &error), PAGED_ERR_PROTOCOL);
	cr_assert_str_eq(error.text, "Publish.n_pages has 0 entries for 1");
	request.publish.specs = specs;
	request.publish.n = WIRE_MAX_PUBLISHES + 1;
	cr_assert_eq(request_round_trip(&request, &back), PAGED_ERR_LIMIT);
	cr_assert_str_eq(error.text, "Publish.seq has 257 entries; it may have 1 to 256");
	request.publish.n = 1;
	request.publish.tokens = tokens;
	request.publish.n_tokens = WIRE_MAX_PUBLISH_TOKENS + 1;
	cr_assert_eq(request_round_trip(&request, &back), PAGED_ERR_LIMIT);
	cr_assert_str_eq(error.text, "Publish.token has 16001 entries; it may have 0 to 16000");
}

/* Numbers of requests that only a later version may have. */
Test(wire, later_kinds_are_unknown)
{
	static const uint8_t numbers[] = { 60, 127 };
	struct wire_request back;

	for (size_t i = 0; i < sizeof(numbers); i++) {
		const uint8_t message[] = { 0x08, 7, (uint8_t)((numbers[i] << 3 & 0x7f) | 0x82), numbers[i] >> 4, 0 };

		cr_assert_eq(wire_request_parse(message, sizeof(message), &arena, &back, &error),
			     PAGED_ERR_UNSUPPORTED);
		cr_assert_eq(back.id, 7);
		cr_assert_str_eq(error.text, "a Request of a kind that version 2.0 lacks");
	}
}

Test(wire, largest_hold_fits)
{
	/* Request { id: 7, hold { page: [1, 2], serial: [3] } } */
	static const uint8_t short_of_serials[] = { 0x08, 7, 0xd2, 1, 20, 0x12, 8, 1, 0, 0, 0, 2, 0,
						    0,    0, 0x1a, 8, 3,  0,    0, 0, 0, 0, 0, 0 };
	static uint32_t pages[PAGED_MAX_HOLD_PAGES + 1];
	static uint64_t serials[PAGED_MAX_HOLD_PAGES + 1];
	struct wire_request back, request = { .id = UINT64_MAX, .kind = WIRE_HOLD, .hold = { .pool = UINT32_MAX } };

	for (uint32_t i = 0; i <= PAGED_MAX_HOLD_PAGES; i++) {
		pages[i] = UINT32_MAX - i;
		serials[i] = UINT64_MAX - i;
	}
	request.hold.pages = pages;
	request.hold.serials = serials;
	request.hold.n = PAGED_MAX_HOLD_PAGES;
	cr_assert_eq(request_round_trip(&request, &back), PAGED_OK, "%s", error.text);
	cr_assert(back.hold.pool == UINT32_MAX && back.hold.n == PAGED_MAX_HOLD_PAGES);
	cr_assert_arr_eq(back.hold.pages, pages, PAGED_MAX_HOLD_PAGES * sizeof(*pages));
	cr_assert_arr_eq(back.hold.serials, serials, PAGED_MAX_HOLD_PAGES * sizeof(*serials));
	request.hold.n++;
	cr_assert_eq(request_round_trip(&request, &back), PAGED_ERR_LIMIT);
	cr_assert_str_eq(error.text, "Hold.page has 5401 entries; it may have 1 to 5400");
	request.hold.n = 0;
	cr_assert_eq(request_round_trip(&request, &back), PAGED_ERR_LIMIT);
	cr_assert_eq(wire_request_parse(short_of_serials, sizeof(short_of_serials), &arena, &back, &error),
		     PAGED_ERR_PROTOCOL);
	cr_assert_str_eq(error.text, "Hold.serial has 1 entries for 2");
}

Test(wire, sharing_replies_round_trip)
{
	static struct paged_node_entry nodes[WIRE_LIST_MAX];
	static uint32_t n_pages[WIRE_MAX_PUBLISHES];
	struct wire_reply back, reply = { .id = 1, .kind = WIRE_REPLY_PREFIXES };
	size_t size;

	memset(nodes, 0xff, sizeof(nodes));
	for (uint32_t i = 0; i < WIRE_LIST_MAX; i++)
		nodes[i].pinned = i % 2;
	reply.prefixes.n = WIRE_LIST_MAX;
	reply.prefixes.report = nodes;
	reply.prefixes.next_page = UINT32_MAX;
	reply.prefixes.more = true;
	size = wire_reply_pack(&reply, &arena, buffer, sizeof(buffer));
	cr_assert_gt(size, 0, "a full list fits a message");
	cr_assert_eq(wire_reply_parse(buffer, size, &arena, &back, &error), PAGED_OK, "%s", error.text);
	cr_assert(back.prefixes.n == WIRE_LIST_MAX && back.prefixes.more && back.prefixes.next_page == UINT32_MAX);
	cr_assert_arr_eq(back.prefixes.report, nodes, sizeof(nodes));

	memset(n_pages, 0xff, sizeof(n_pages));
	reply = (struct wire_reply){ .id = 2, .kind = WIRE_REPLY_PUBLISHED };
	reply.published.n = WIRE_MAX_PUBLISHES;
	reply.published.n_pages = reply.published.ends = n_pages;
	size = wire_reply_pack(&reply, &arena, buffer, sizeof(buffer));
	cr_assert_eq(wire_reply_parse(buffer, size, &arena, &back, &error), PAGED_OK, "%s", error.text);
	cr_assert_eq(back.published.n, WIRE_MAX_PUBLISHES);
	cr_assert_arr_eq(back.published.n_pages, n_pages, sizeof(n_pages));
	cr_assert_arr_eq(back.published.ends, n_pages, sizeof(n_pages));

	reply = (struct wire_reply){ .id = 3, .kind = WIRE_REPLY_EVICTED, .evicted = { 4096, true } };
	size = wire_reply_pack(&reply, &arena, buffer, sizeof(buffer));
	cr_assert_eq(wire_reply_parse(buffer, size, &arena, &back, &error), PAGED_OK, "%s", error.text);
	cr_assert(back.evicted.n_pages == 4096 && back.evicted.more);
}

Test(wire, log_level_round_trips)
{
	struct wire_request back, request = { .id = 7, .kind = WIRE_SET_LOG_LEVEL, .set_log_level = { UINT32_MAX } };
	struct wire_reply back_reply, reply = { .id = 7, .kind = WIRE_REPLY_LOG_LEVEL, .log_level = { 4 } };
	size_t size = wire_request_pack(&request, &arena, buffer, sizeof(buffer));

	cr_assert_eq(wire_request_parse(buffer, size, &arena, &back, &error), PAGED_OK, "%s", error.text);
	cr_assert(back.kind == WIRE_SET_LOG_LEVEL && back.set_log_level.level == UINT32_MAX);
	size = wire_reply_pack(&reply, &arena, buffer, sizeof(buffer));
	cr_assert_eq(wire_reply_parse(buffer, size, &arena, &back_reply, &error), PAGED_OK, "%s", error.text);
	cr_assert(back_reply.kind == WIRE_REPLY_LOG_LEVEL && back_reply.log_level.was == 4);
}

Test(wire, a_refusal_has_its_shortage)
{
	struct wire_reply back, reply = { .id = 7,
					  .status = PAGED_ERR_FULL,
					  .text = "full",
					  .kind = WIRE_REPLY_SHORTAGE,
					  .shortage = { 0, 1, 2, 3, 4, 5, 6, 0, 7, 8, UINT32_MAX } };
	size_t size = wire_reply_pack(&reply, &arena, buffer, sizeof(buffer));

	cr_assert_eq(wire_reply_parse(buffer, size, &arena, &back, &error), PAGED_OK, "%s", error.text);
	cr_assert(back.kind == WIRE_REPLY_SHORTAGE && back.status == PAGED_ERR_FULL);
	cr_assert_str_eq(back.text, "full");
	cr_assert_arr_eq(&back.shortage, &reply.shortage, sizeof(reply.shortage));
}

Test(wire, hand_over_round_trips)
{
	static struct paged_seq_item items[PAGED_MAX_REQUEST_SEQS + 1];
	static struct paged_ticket_entry tickets[WIRE_LIST_MAX];
	struct wire_request back, request = { .id = 7, .kind = WIRE_GIVE };
	struct wire_reply reply_back, reply = { .id = 7, .kind = WIRE_REPLY_ADOPTED };
	size_t size;

	for (uint32_t i = 0; i <= PAGED_MAX_REQUEST_SEQS; i++)
		items[i] = (struct paged_seq_item){ .seq = UINT64_MAX - i, .n_tokens = UINT32_MAX - i };
	request.give.n = PAGED_MAX_REQUEST_SEQS;
	request.give.items = items;
	request.give.how = (struct seq_give){ .timeout_ms = UINT32_MAX, .flags = 3, .session = 4, .uid = 5 };
	cr_assert_eq(request_round_trip(&request, &back), PAGED_OK, "%s", error.text);
	cr_assert_eq(back.give.n, PAGED_MAX_REQUEST_SEQS);
	cr_assert_arr_eq(back.give.items, items, PAGED_MAX_REQUEST_SEQS * sizeof(*items));
	cr_assert_arr_eq(&back.give.how, &request.give.how, sizeof(back.give.how));
	request.give.n++;
	cr_assert_eq(request_round_trip(&request, &back), PAGED_ERR_LIMIT);

	request = (struct wire_request){ .id = 8, .kind = WIRE_ADOPT, .adopt = { { 1, 2, [15] = 9 }, 3, 4096 } };
	cr_assert_eq(request_round_trip(&request, &back), PAGED_OK, "%s", error.text);
	cr_assert_arr_eq(&back.adopt, &request.adopt, sizeof(back.adopt));
	request = (struct wire_request){ .id = 9, .kind = WIRE_CANCEL, .cancel = { { [15] = 9 } } };
	cr_assert_eq(request_round_trip(&request, &back), PAGED_OK, "%s", error.text);
	cr_assert_arr_eq(&back.cancel, &request.cancel, sizeof(back.cancel));
	request = (struct wire_request){ .id = 9, .kind = WIRE_GET_TICKETS, .get_tickets = { UINT64_MAX } };
	cr_assert_eq(request_round_trip(&request, &back), PAGED_OK, "%s", error.text);
	cr_assert_eq(back.get_tickets.after, UINT64_MAX);

	reply.adopted.n = PAGED_MAX_REQUEST_SEQS;
	reply.adopted.items = items;
	wire_arena_reset(&arena);
	size = wire_reply_pack(&reply, &arena, buffer, sizeof(buffer));
	cr_assert_gt(size, 0, "a full list fits a message");
	cr_assert_eq(wire_reply_parse(buffer, size, &arena, &reply_back, &error), PAGED_OK, "%s", error.text);
	cr_assert_arr_eq(reply_back.adopted.items, items, PAGED_MAX_REQUEST_SEQS * sizeof(*items));

	memset(tickets, 0xff, sizeof(tickets));
	for (uint32_t i = 0; i < WIRE_LIST_MAX; i++)
		tickets[i].ended = i % 2;
	reply = (struct wire_reply){ .id = 1, .kind = WIRE_REPLY_TICKETS, .tickets = { WIRE_LIST_MAX, tickets, true } };
	wire_arena_reset(&arena);
	size = wire_reply_pack(&reply, &arena, buffer, sizeof(buffer));
	cr_assert_gt(size, 0, "a full list fits a message");
	cr_assert_eq(wire_reply_parse(buffer, size, &arena, &reply_back, &error), PAGED_OK, "%s", error.text);
	cr_assert_arr_eq(reply_back.tickets.report, tickets, sizeof(tickets));
	cr_assert(reply_back.tickets.more);
}

static enum paged_status
control_reply_round_trip(const struct wire_control_reply *reply, struct wire_control_reply *back)
{
	size_t size = wire_control_reply_pack(reply, buffer, sizeof(buffer));

	return wire_control_reply_parse(buffer, size, &arena, back, &error);
}

Test(wire, drain_round_trips)
{
	struct wire_request back, request = { .id = 9, .kind = WIRE_DRAIN, .drain = { UINT32_MAX } };
	struct wire_control_reply reply_back,
		reply = { .kind = WIRE_NOTICE, .notice = { WIRE_NOTICE_DRAINED, 7, "session 3 is drained" } };

	cr_assert_eq(request_round_trip(&request, &back), PAGED_OK, "%s", error.text);
	cr_assert(back.kind == WIRE_DRAIN && back.drain.session == UINT32_MAX);
	cr_assert_eq(control_reply_round_trip(&reply, &reply_back), PAGED_OK, "%s", error.text);
	cr_assert(reply_back.notice.kind == WIRE_NOTICE_DRAINED && reply_back.notice.deadline_ms == 7);
	cr_assert_str_eq(reply_back.notice.text, reply.notice.text);
}

Test(wire, quotas_round_trip)
{
	static struct paged_quota_entry quotas[WIRE_LIST_MAX];
	struct wire_request back, request = { .id = 9, .kind = WIRE_GET_QUOTAS, .get_quotas = { UINT32_MAX } };
	struct wire_reply reply_back,
		reply = { .id = 1, .kind = WIRE_REPLY_QUOTAS, .quotas = { WIRE_LIST_MAX, quotas, true, 300 } };
	size_t size;

	cr_assert_eq(request_round_trip(&request, &back), PAGED_OK, "%s", error.text);
	cr_assert_eq(back.get_quotas.from, UINT32_MAX);

	memset(quotas, 'q', sizeof(quotas));
	for (uint32_t i = 0; i < WIRE_LIST_MAX; i++) {
		quotas[i].tenant[PAGED_MAX_NAME] = '\0';
		quotas[i].limited = i % 2;
		quotas[i].shared = i % 2;
	}
	wire_arena_reset(&arena);
	size = wire_reply_pack(&reply, &arena, buffer, sizeof(buffer));
	cr_assert_gt(size, 0, "a full list fits a message");
	cr_assert_eq(wire_reply_parse(buffer, size, &arena, &reply_back, &error), PAGED_OK, "%s", error.text);
	cr_assert_arr_eq(reply_back.quotas.report, quotas, sizeof(quotas));
	cr_assert(reply_back.quotas.more && reply_back.quotas.next == 300);
}

Test(wire, pins_round_trip)
{
	static struct paged_pin_entry pins[WIRE_LIST_MAX];
	struct wire_request back, request = { .id = 9, .kind = WIRE_GET_PINS, .get_pins = { 3, UINT64_MAX } };
	struct wire_reply reply_back,
		reply = { .id = 1, .kind = WIRE_REPLY_PINS, .pins = { WIRE_LIST_MAX, pins, true } };
	size_t size;

	cr_assert_eq(request_round_trip(&request, &back), PAGED_OK, "%s", error.text);
	cr_assert(back.get_pins.pool == 3 && back.get_pins.after == UINT64_MAX);
	request = (struct wire_request){ .id = 9, .kind = WIRE_UNPIN, .unpin = { 3, UINT64_MAX } };
	cr_assert_eq(request_round_trip(&request, &back), PAGED_OK, "%s", error.text);
	cr_assert(back.unpin.pool == 3 && back.unpin.number == UINT64_MAX);

	memset(pins, 'p', sizeof(pins));
	for (uint32_t i = 0; i < WIRE_LIST_MAX; i++)
		pins[i].tenant[PAGED_MAX_NAME] = '\0';
	wire_arena_reset(&arena);
	size = wire_reply_pack(&reply, &arena, buffer, sizeof(buffer));
	cr_assert_gt(size, 0, "a full list fits a message");
	cr_assert_eq(wire_reply_parse(buffer, size, &arena, &reply_back, &error), PAGED_OK, "%s", error.text);
	cr_assert_arr_eq(reply_back.pins.report, pins, sizeof(pins));
	cr_assert(reply_back.pins.more);
}

Test(wire, metrics_round_trip)
{
	static struct paged_request_entry requests[WIRE_KINDS_MAX + 1];
	struct wire_request back, request = { .id = 8, .kind = WIRE_GET_METRICS };
	struct wire_reply reply_back, reply = { .id = 8, .kind = WIRE_REPLY_METRICS };
	size_t size;

	cr_assert_eq(request_round_trip(&request, &back), PAGED_OK, "%s", error.text);
	cr_assert_eq(back.kind, WIRE_GET_METRICS);

	memset(requests, 0xff, sizeof(requests));
	for (uint32_t i = 0; i <= WIRE_KINDS_MAX; i++) {
		memset(requests[i].name, 'a', sizeof(requests[i].name) - 1);
		requests[i].name[sizeof(requests[i].name) - 1] = '\0';
		requests[i].n_statuses = i % 2 == 0 ? PAGED_METRICS_STATUSES : 0;
		requests[i].latency.n_buckets = PAGED_HISTOGRAM_BUCKETS;
		requests[i].reserved = requests[i].latency.reserved = 0;
		if (i % 2 != 0)
			memset(requests[i].n_replies, 0, sizeof(requests[i].n_replies));
	}
	reply.metrics.daemon = (struct paged_metrics){ .uptime_ms = UINT64_MAX,
						       .n_requests = 2,
						       .n_dropped = 3,
						       .n_attached = 4,
						       .n_died = 5,
						       .n_opened = 6,
						       .n_members = 7,
						       .n_sessions = 8,
						       .turns = requests[0].latency };
	reply.metrics.n = WIRE_KINDS_MAX;
	reply.metrics.requests = requests;
	wire_arena_reset(&arena);
	size = wire_reply_pack(&reply, &arena, buffer, sizeof(buffer));
	cr_assert_gt(size, 0, "a full list fits a message");
	cr_assert_eq(wire_reply_parse(buffer, size, &arena, &reply_back, &error), PAGED_OK, "%s", error.text);
	cr_assert_arr_eq(&reply_back.metrics.daemon, &reply.metrics.daemon, sizeof(reply.metrics.daemon));
	cr_assert_eq(reply_back.metrics.n, WIRE_KINDS_MAX);
	cr_assert_arr_eq(reply_back.metrics.requests, requests, WIRE_KINDS_MAX * sizeof(*requests));

	/* More buckets than the struct has room for. */
	reply.metrics.n = 1;
	requests[0].latency.n_buckets++;
	wire_arena_reset(&arena);
	size = wire_reply_pack(&reply, &arena, buffer, sizeof(buffer));
	cr_assert_eq(wire_reply_parse(buffer, size, &arena, &reply_back, &error), PAGED_ERR_LIMIT, "%s", error.text);
}

Test(wire, a_ticket_has_16_bytes)
{
	/* Request { id: 7, cancel { ticket: 3 bytes } } */
	static const uint8_t short_ticket[] = { 0x08, 7, 0xc2, 1, 5, 0x0a, 3, 1, 2, 3 };
	struct wire_request back;

	cr_assert_eq(wire_request_parse(short_ticket, sizeof(short_ticket), &arena, &back, &error), PAGED_ERR_PROTOCOL);
}

/* The fields that open GPU memory survive; invalid ones are refused. */
Test(wire, gpu_pool_grants_round_trip)
{
	struct wire_control_reply back, reply = { .kind = WIRE_POOL_GRANT };
	struct wire_memory *memory = &reply.pool_grant.memory;

	memory->export = WIRE_EXPORT_LEGACY;
	memory->generation = UINT64_MAX;
	memset(memory->device, 7, sizeof(memory->device));
	memset(memory->canary, 8, sizeof(memory->canary));
	cr_assert_eq(control_reply_round_trip(&reply, &back), PAGED_OK, "%s", error.text);
	cr_expect_eq(back.pool_grant.memory.export, WIRE_EXPORT_LEGACY);
	cr_expect_eq(back.pool_grant.memory.generation, UINT64_MAX);
	cr_expect_arr_eq(back.pool_grant.memory.device, memory->device, sizeof(memory->device));
	cr_expect_arr_eq(back.pool_grant.memory.canary, memory->canary, sizeof(memory->canary));
	cr_expect_eq(wire_control_reply_fds(&back), 1, "the table region alone");
	memory->export = WIRE_EXPORT_VMM;
	cr_assert_eq(control_reply_round_trip(&reply, &back), PAGED_OK);
	cr_expect_eq(wire_control_reply_fds(&back), WIRE_N_POOL_FDS);
	/* A pool of the host has neither device nor canary. */
	memory->export = WIRE_EXPORT_FD;
	memset(memory->device, 0, sizeof(memory->device));
	memset(memory->canary, 0, sizeof(memory->canary));
	cr_assert_eq(control_reply_round_trip(&reply, &back), PAGED_OK);
	cr_expect_eq(back.pool_grant.memory.device[0], 0);
	memory->export = (enum wire_export)3;
	cr_expect_eq(control_reply_round_trip(&reply, &back), PAGED_ERR_PROTOCOL);
	cr_expect_str_eq(error.text, "PoolGrant.export_kind is 3; the largest is 2");
}

/* A field of bytes that is too short. */
Test(wire, canaries_and_handles_have_a_fixed_size)
{
	struct wire_control_reply back, reply = { .kind = WIRE_POOL_GRANT };
	struct wire_reply handle = { .id = 1, .kind = WIRE_REPLY_HANDLE }, handle_back;
	uint8_t *at;
	size_t size;

	reply.pool_grant.memory.export = WIRE_EXPORT_VMM;
	memset(reply.pool_grant.memory.canary, 0xca, WIRE_CANARY_SIZE);
	size = wire_control_reply_pack(&reply, buffer, sizeof(buffer));
	/* The memory id ends the message.  The canary before it gets a length of 31, the message around it one less. */
	at = buffer + size - (1 + 1 + WIRE_MEMORY_ID_SIZE) - WIRE_CANARY_SIZE - 1;
	cr_assert_eq(*at, WIRE_CANARY_SIZE);
	*at -= 1;
	memmove(at + WIRE_CANARY_SIZE, at + WIRE_CANARY_SIZE + 1, 1 + 1 + WIRE_MEMORY_ID_SIZE);
	buffer[1] -= 1;
	cr_expect_eq(wire_control_reply_parse(buffer, size - 1, &arena, &back, &error), PAGED_ERR_PROTOCOL);
	cr_expect_str_eq(error.text, "PoolGrant.canary has 31 bytes; it must have 32");

	memset(&handle.handle, 0x5a, sizeof(handle.handle));
	size = wire_reply_pack(&handle, &arena, buffer, sizeof(buffer));
	cr_assert_eq(wire_reply_parse(buffer, size, &arena, &handle_back, &error), PAGED_OK, "%s", error.text);
	cr_expect_arr_eq(&handle_back.handle, &handle.handle, sizeof(handle.handle));
	/* The device's UUID ends this one. */
	at = buffer + size - WIRE_UUID_SIZE - 1;
	cr_assert_eq(*at, WIRE_UUID_SIZE);
	*at -= 1;
	cr_expect_neq(wire_reply_parse(buffer, size - 1, &arena, &handle_back, &error), PAGED_OK);
}
