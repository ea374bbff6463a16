/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to the daemon, from the decoder to the core: members of two sessions and an observer send well-formed
 * requests of all kinds, in any order, about sequences, pages and tickets that mostly exist; and messages of any bytes.
 * Each reply must be a valid message, each check of a pool must hold, and at the end no page may be lost.
 */
#include "config.h"

#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "common/clock.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_daemon.h"

const char fuzz_name[] = "requests";
const unsigned int fuzz_mutations = 100;

enum {
	N_MEMBERS = 3, /* the first member of a session, that of another session, an observer */
	N_SEQS = 16,
	N_TICKETS = 4,
	MAX_ITEMS = 4,
	PAGE_SIZE = 4, /* of pool p */
	/* Kinds of steps after those of requests. */
	STEP_RAW = WIRE_N_REQUESTS,
	STEP_TURN,
	STEP_LEAVE,
	N_STEPS
};

static struct {
	struct daemon *daemon;
	const uint8_t *data;
	size_t size;
	int fds[N_MEMBERS];
	uint32_t members[N_MEMBERS];
	paged_seq_id seqs[N_SEQS];
	uint8_t tickets[N_TICKETS][PAGED_TICKET_SIZE];
	uint32_t n_seqs, n_tickets; /* ever; the last ones are kept */
	uint64_t n_requests;
	struct wire_arena arena, pack_arena;
	zmq_msg_t route;
} state;

/* Replies */

static void
reply_take_seq(paged_seq_id id)
{
	state.seqs[state.n_seqs++ % N_SEQS] = id;
}

static void
reply_take(const uint8_t *bytes, size_t size)
{
	struct paged_error error;
	struct wire_reply reply;

	wire_arena_reset(&state.arena);
	fuzz_require(wire_reply_parse(bytes, size, &state.arena, &reply, &error) == PAGED_OK);
	fuzz_require((reply.status == PAGED_OK) == (reply.text[0] == '\0'));
	if (reply.kind == WIRE_REPLY_IDS)
		for (uint32_t i = 0; i < reply.ids.n; i++)
			reply_take_seq(reply.ids.seq[i]);
	if (reply.kind == WIRE_REPLY_ADOPTED)
		for (uint32_t i = 0; i < reply.adopted.n; i++)
			reply_take_seq(reply.adopted.items[i].seq);
	if (reply.kind == WIRE_REPLY_TICKET)
		memcpy(state.tickets[state.n_tickets++ % N_TICKETS], reply.ticket.bytes, PAGED_TICKET_SIZE);
	if (reply.kind == WIRE_REPLY_CHECK_RESULT)
		fuzz_require(reply.check_result.holds);
}

bool __wrap_endpoint_reply(struct endpoint *endpoint, size_t size);
bool __wrap_endpoint_reply_deferred(struct endpoint *endpoint, struct endpoint_route *route, size_t size);

bool
__wrap_endpoint_reply(struct endpoint *endpoint, size_t size)
{
	reply_take(endpoint->reply, size);
	return true;
}

bool
__wrap_endpoint_reply_deferred(struct endpoint *endpoint, struct endpoint_route *route, size_t size)
{
	(void)route;
	reply_take(endpoint->reply, size);
	return true;
}

/* The input, as values of fields; 0 past its end. */

static uint8_t
take_byte(void)
{
	if (state.size == 0)
		return 0;
	state.size--;
	return *state.data++;
}

/* Below `end` with few exceptions. */
static uint32_t
take_number(uint32_t end)
{
	uint8_t byte = take_byte();

	return byte < 250 ? byte % end : byte < 253 ? end + byte - 250 : UINT32_MAX - byte;
}

static uint32_t
take_pool(void)
{
	uint8_t byte = take_byte();

	return byte < 200 ? 0 : byte < 250 ? 1 : byte;
}

static paged_seq_id
take_seq(void)
{
	uint8_t byte = take_byte();
	paged_seq_id id = state.seqs[byte % N_SEQS];

	return byte < 240 ? id : id + ((uint64_t)byte << (byte % 2 == 0 ? 32 : 0));
}

static const struct region_view *
pool_view(uint32_t pool)
{
	return core_pool_view(state.daemon->core, pool < 2 ? pool : 0);
}

/* The serial of a page's node, mostly. */
static uint64_t
take_serial(uint32_t pool, uint32_t page)
{
	const struct region_view *view = pool_view(pool);
	uint8_t error = take_byte() / 250;
	struct prefix_node node = { 0 };

	if (page < view->n_pages)
		prefix_node_read(view, page, 0, &node, NULL);
	return node.serial + error;
}

/* Messages */

static struct paged_seq_item items[MAX_ITEMS];
static paged_seq_id ids[MAX_ITEMS];
static uint32_t pages[8], words[64];
static uint64_t serials[MAX_ITEMS];
static uint8_t extra[8][REGION_EXTRA_SIZE], bytes[256];

static uint32_t
take_items(bool has_ahead)
{
	uint32_t n = take_byte() % MAX_ITEMS + 1;

	for (uint32_t i = 0; i < n; i++) {
		items[i] = (struct paged_seq_item){ .seq = take_seq(), .n_tokens = take_number(42) };
		if (has_ahead)
			items[i].n_ahead = take_byte() % 16;
	}
	return n;
}

static void
request_create(struct wire_request *request)
{
	static struct seq_spec specs[MAX_ITEMS];

	request->create.n = take_byte() % MAX_ITEMS + 1;
	for (uint32_t i = 0; i < request->create.n; i++)
		specs[i] = (struct seq_spec){ .pool = take_pool(), .n_tokens = take_number(42), .tag = "tag" };
	request->create.specs = specs;
}

/* The chain of nodes that ends with a page, first page first; returns its length. */
static uint32_t
chain_of(uint32_t pool, uint32_t last, uint32_t *to, uint32_t n_max)
{
	const struct region_view *view = pool_view(pool);
	uint32_t chain[8], n = 0;
	struct prefix_node node;

	for (uint32_t page = last; n < 8 && n < n_max && page < view->n_pages; page = node.parent) {
		if (!prefix_node_read(view, page, 0, &node, NULL))
			break;
		chain[n++] = page;
	}
	for (uint32_t i = 0; i < n; i++)
		to[i] = chain[n - 1 - i];
	return n;
}

static void
request_start(struct wire_request *request)
{
	static struct seq_start_spec specs[2];
	uint32_t n_pages = 0;

	request->start.pool = take_pool();
	request->start.n = take_byte() % 2 + 1;
	for (uint32_t i = 0; i < request->start.n; i++) {
		uint32_t last = take_number(24), n = chain_of(request->start.pool, last, pages + n_pages, 4);

		specs[i] = (struct seq_start_spec){ .n_pages = n, .n_tokens = take_number(42), .tag = "" };
		specs[i].n_asked = n * PAGE_SIZE + take_byte() % 8;
		specs[i].serial = n > 0 ? take_serial(request->start.pool, last) : 0;
		if (take_byte() % 4 == 0)
			specs[i].seq = take_seq();
		n_pages += n;
	}
	request->start.specs = specs;
	request->start.n_pages = n_pages;
	request->start.pages = pages;
}

static void
request_fork(struct wire_request *request)
{
	static struct seq_fork forks[MAX_ITEMS];

	request->fork.n = take_byte() % MAX_ITEMS + 1;
	for (uint32_t i = 0; i < request->fork.n; i++)
		forks[i] = (struct seq_fork){ .parent = take_seq(), .n_tokens = take_number(42) };
	request->fork.forks = forks;
}

/* Few token ids, so that prefixes are often equal. */
static void
request_publish(struct wire_request *request)
{
	static struct seq_publish_spec specs[2];
	uint32_t n_pages = 0;
	uint8_t how = take_byte();

	request->publish.n = how % 2 + 1;
	for (uint32_t i = 0; i < request->publish.n; i++) {
		struct region_snapshot snapshot = { 0 };

		specs[i] = (struct seq_publish_spec){ .seq = take_seq(), .from = take_byte() % 3 };
		region_snapshot_begin(pool_view(PAGED_SEQ_POOL(specs[i].seq)), specs[i].seq, &snapshot);
		specs[i].version = snapshot.version;
		specs[i].n_pages = take_byte() % 4 + 1;
		n_pages += specs[i].n_pages;
	}
	for (uint32_t i = 0; i < n_pages * PAGE_SIZE; i++)
		words[i] = take_byte() % 3;
	for (uint32_t i = 0; i < n_pages; i++) {
		memset(extra[i], take_byte() % 2, sizeof(extra[i]));
		pages[i] = i;
	}
	request->publish.specs = specs;
	request->publish.extra = extra[0];
	if (how & 2) { /* the extras are the block keys */
		request->publish.extra_size = n_pages * REGION_EXTRA_SIZE;
		return;
	}
	request->publish.n_tokens = n_pages * PAGE_SIZE;
	request->publish.tokens = words;
	if (how & 4) {
		request->publish.n_extra_pages = n_pages;
		request->publish.extra_page = pages;
		request->publish.extra_size = n_pages * REGION_EXTRA_SIZE;
	}
}

static void
request_hold(struct wire_request *request)
{
	request->hold.pool = take_pool();
	request->hold.n = take_byte() % MAX_ITEMS + 1;
	for (uint32_t i = 0; i < request->hold.n; i++) {
		pages[i] = take_number(24);
		serials[i] = take_serial(request->hold.pool, pages[i]);
	}
	request->hold.pages = pages;
	request->hold.serials = serials;
}

static void
request_put_array(struct wire_request *request)
{
	request->put_array = (struct wire_array_chunk){ .name = "doc",
							.dtype = take_byte() < 200 ? PAGED_I32 : take_byte(),
							.n_dims = take_byte() % 2 + 1,
							.extents = { take_byte(), 0 },
							.size = take_byte() % 64 * 4,
							.data = bytes };
	if (request->put_array.n_dims == 2)
		request->put_array.extents[1] = take_byte();
	request->put_array.offset = take_byte() < 128 ? 0 : take_byte();
}

static void
request_build_mask(struct wire_request *request)
{
	static const char *const texts[] = { "causal", "kv_idx <= q_idx", "doc[q_idx] == doc[kv_idx]", "kv_idx < n",
					     "(" };
	static struct mask_request_name names[2] = { { "doc", PAGED_I32, 1, { 0 } }, { "n", PAGED_I32, 0, { 9 } } };
	static uint32_t q_len[1], kv_len[1];

	q_len[0] = take_byte();
	kv_len[0] = take_byte();
	request->build_mask = (struct mask_request){ .n_rows = 1,
						     .q_len = q_len,
						     .kv_len = kv_len,
						     .n_heads = take_byte() % 3,
						     .q_block = take_byte() % 32 + 1,
						     .kv_block = take_byte() % 32 + 1,
						     .text = texts[take_byte() % (sizeof(texts) / sizeof(texts[0]))],
						     .n_names = take_byte() % 3,
						     .names = names,
						     .first_list = take_byte() / 64,
						     .first_block = take_byte() / 64 };
}

static void
request_give(struct wire_request *request)
{
	request->give.n = take_items(false);
	request->give.items = items;
	request->give.how.timeout_ms = take_byte() * 100u;
	request->give.how.flags = take_byte() % 4;
	request->give.how.session = take_byte();
	request->give.how.uid = (uint32_t)getuid() + take_byte() / 200;
}

/* Fills the fields of a request that works on sequences or pages; false: it is none. */
static bool
request_fill_work(struct wire_request *request)
{
	switch (request->kind) {
	case WIRE_CREATE:
		request_create(request);
		break;
	case WIRE_RESERVE:
	case WIRE_TRUNCATE:
	case WIRE_TRIM:
		request->change.n = take_items(request->kind == WIRE_RESERVE);
		request->change.items = items;
		break;
	case WIRE_ERASE:
		request->erase.n = take_byte() % MAX_ITEMS + 1;
		for (uint32_t i = 0; i < request->erase.n; i++)
			ids[i] = take_seq();
		request->erase.ids = ids;
		break;
	case WIRE_START:
		request_start(request);
		break;
	case WIRE_FORK:
		request_fork(request);
		break;
	case WIRE_PUBLISH:
		request_publish(request);
		break;
	case WIRE_HOLD:
		request_hold(request);
		break;
	case WIRE_PIN:
		request->pin.pool = take_pool();
		request->pin.page = take_number(24);
		request->pin.serial = take_serial(request->pin.pool, request->pin.page);
		request->pin.seconds = take_byte();
		break;
	case WIRE_GIVE:
		request_give(request);
		break;
	default:
		return false;
	}
	return true;
}

/* Fills the fields of the other requests; some have none. */
static void
request_fill_other(struct wire_request *request)
{
	switch (request->kind) {
	case WIRE_ADOPT:
		memcpy(request->adopt.ticket, state.tickets[take_byte() % N_TICKETS], PAGED_TICKET_SIZE);
		request->adopt.pool = take_pool();
		request->adopt.n_max = take_number(MAX_ITEMS + 1);
		break;
	case WIRE_CANCEL:
		memcpy(request->cancel.ticket, state.tickets[take_byte() % N_TICKETS], PAGED_TICKET_SIZE);
		break;
	case WIRE_PUT_ARRAY:
		request_put_array(request);
		break;
	case WIRE_DROP_ARRAY:
		strcpy(request->drop_array.name, "doc");
		break;
	case WIRE_BUILD_MASK:
		request_build_mask(request);
		break;
	case WIRE_KICK:
		request->kick.session = take_byte();
		request->kick.kill = take_byte() % 2;
		break;
	case WIRE_DRAIN:
		request->drain.session = take_byte();
		break;
	case WIRE_SET_LOG_LEVEL:
		request->set_log_level.level = take_byte() / 200;
		break;
	case WIRE_GET_TABLE:
		request->get_table.seq = take_seq();
		request->get_table.from_entry = take_number(12);
		break;
	case WIRE_EVICT:
	case WIRE_GET_SESSIONS:
	case WIRE_GET_SEQUENCES:
	case WIRE_GET_PREFIXES:
		/* The structs of these begin with two numbers. */
		request->get_sequences.pool = take_pool();
		request->get_sequences.from_slot = take_number(24);
		break;
	case WIRE_UNPIN:
	case WIRE_GET_PINS:
		request->unpin.pool = take_pool();
		request->unpin.number = take_byte();
		break;
	case WIRE_GET_TICKETS:
		request->get_tickets.after = take_byte();
		break;
	case WIRE_CHECK:
	case WIRE_GET_HANDLE:
	case WIRE_GET_QUOTAS:
		request->check.pool = take_pool();
		break;
	default:
		break;
	}
}

static void
message_serve(uint32_t member, const uint8_t *message, size_t size)
{
	state.daemon->endpoint.route = &state.route;
	state.daemon->endpoint.received_ns = clock_ns();
	daemon_rpc_serve(&state.daemon->rpc, member, message, size);
}

static void
step_take(void)
{
	static uint8_t message[WIRE_MAX_MESSAGE];
	unsigned int kind = take_byte() % N_STEPS;
	struct wire_request request = { .id = ++state.n_requests, .kind = (enum wire_request_kind)kind };
	uint8_t i = take_byte() % N_MEMBERS;
	size_t n;

	if (kind == STEP_LEAVE && take_byte() % 4 == 0 && state.fds[i] >= 0) {
		close(state.fds[i]);
		state.fds[i] = -1;
		fuzz_daemon_pump();
	} else if (kind == STEP_TURN) {
		fuzz_daemon_pump();
	} else if (kind == STEP_RAW) {
		n = take_byte();
		n = n < state.size ? n : state.size;
		message_serve(state.members[i], state.data, n);
		state.data += n;
		state.size -= n;
	} else if (kind < WIRE_N_REQUESTS) {
		if (!request_fill_work(&request))
			request_fill_other(&request);
		wire_arena_reset(&state.pack_arena);
		n = wire_request_pack(&request, &state.pack_arena, message, sizeof(message));
		fuzz_require(n > 0);
		message_serve(state.members[i], message, n);
	}
}

static void
member_begin(int i)
{
	struct wire_control_reply reply;

	state.fds[i] = fuzz_daemon_connect();
	fuzz_daemon_hello(state.fds[i], i < 2 ? WIRE_ROLE_SESSION : WIRE_ROLE_OBSERVER, WIRE_VERSION_MAJOR, false,
			  NULL);
	fuzz_require(fuzz_daemon_receive(state.fds[i], &reply) == 1 && reply.kind == WIRE_WELCOME);
	state.members[i] = reply.welcome.member;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct paged_error error;

	if (state.daemon == NULL) {
		fuzz_require(wire_arena_create(&state.arena, &error) == PAGED_OK &&
			     wire_arena_create(&state.pack_arena, &error) == PAGED_OK);
		fuzz_require(zmq_msg_init_size(&state.route, 1) == 0);
	}
	state.daemon = fuzz_daemon_begin();
	state.data = data;
	state.size = size;
	state.n_seqs = state.n_tickets = 0;
	state.n_requests = 0;
	memset(state.seqs, 0, sizeof(state.seqs));
	memset(state.tickets, 0, sizeof(state.tickets));
	for (int i = 0; i < N_MEMBERS; i++)
		member_begin(i);
	while (state.size > 0)
		step_take();
	for (int i = 0; i < N_MEMBERS; i++)
		if (state.fds[i] >= 0)
			close(state.fds[i]);
	fuzz_daemon_end();
	return 0;
}

/* Each kind of request, after a create.  seeds/requests has longer stories. */
size_t
fuzz_seed(size_t index, uint8_t *buffer, size_t buffer_size)
{
	static const uint8_t create[] = { WIRE_CREATE, 0, 1, 0, 16, 0, 8, STEP_TURN, 0 };
	enum { SIZE = 30 };

	if (index >= WIRE_N_REQUESTS)
		return 0;
	fuzz_require(buffer_size >= SIZE);
	memset(buffer, 0, SIZE);
	memcpy(buffer, create, sizeof(create));
	buffer[sizeof(create)] = (uint8_t)index;
	return SIZE;
}
