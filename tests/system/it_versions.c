/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Minor versions: a member of an older or newer one works with this daemon, and this library with a newer daemon.
 *
 * The newer daemon is a relay between the library and the real one.  It says a newer minor version, adds fields that
 * this one lacks, and hands out the table region as a newer version may lay it out.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#include "client/pagedclient.h"
#include "common/region.h"
#include "tests/support/geometry.h"
#include "tests/support/wire_peer.h"

enum { NEWER_MINOR = 9, NEWER_HEADER = 4096 };

/* Field 1000, a number: what a newer version may have put into any message. */
static const uint8_t unknown_field[] = { 0xc0, 0x3e, 7 };

static struct it_daemon daemon_;

static size_t
append_unknown_field(uint8_t *message, size_t size)
{
	memcpy(message + size, unknown_field, sizeof(unknown_field));
	return size + sizeof(unknown_field);
}

/* The daemon */

IT_TEST(other_minor_versions_are_served)
{
	struct wire_control_request hello = {
		.kind = WIRE_HELLO,
		.hello = { .version_major = WIRE_VERSION_MAJOR, .version_minor = NEWER_MINOR, .name = "newer" },
	};
	struct wire_request request = { .id = 1, .kind = WIRE_PING };
	/* Request { id: 2, 999 {} }: a kind that no version has yet. */
	static const uint8_t unknown_request[] = { 0x08, 2, 0xba, 0x3e, 0 };
	struct wire_arena arena;
	struct paged_error error;
	struct wire_reply reply;
	uint8_t buffer[256];
	struct wire_peer peer = { 0 };

	it_daemon_start(&daemon_, SMALL_POOL_CONFIG, NULL, NULL);
	it_require(wire_arena_create(&arena, &error) == PAGED_OK);
	peer.control = wire_peer_connect_control();
	wire_peer_send_bytes(peer.control, buffer,
			     append_unknown_field(buffer, wire_control_request_pack(&hello, buffer, sizeof(buffer))));
	it_require(wire_peer_receive_control(peer.control, &peer.welcome, NULL));
	it_require(peer.welcome.kind == WIRE_WELCOME, "refused: %s", peer.welcome.refusal.text);
	it_require(peer.welcome.welcome.version_minor == WIRE_VERSION_MINOR, "the daemon says its own version");
	wire_peer_connect_dealer(&peer, peer.welcome.welcome.member, peer.welcome.welcome.token);

	it_require(zmq_send(peer.dealer, buffer,
			    append_unknown_field(buffer, wire_request_pack(&request, &arena, buffer, sizeof(buffer))),
			    0) > 0);
	wire_peer_receive(&peer, &reply);
	it_require(reply.id == 1 && reply.status == PAGED_OK, "%s", reply.text);

	it_require(zmq_send(peer.dealer, unknown_request, sizeof(unknown_request), 0) > 0);
	wire_peer_receive(&peer, &reply);
	it_require(reply.id == 2 && reply.status == PAGED_ERR_UNSUPPORTED, "%d %s", reply.status, reply.text);
	it_require(strstr(reply.text, "a Request of a kind that version 2.0 lacks") != NULL, "%s", reply.text);
	wire_arena_destroy(&arena);
	wire_peer_bye(&peer);
	it_daemon_stop(&daemon_);
}

/* The library */

/* A section of a newer region: records with `more` further bytes. */
struct newer_section {
	uint64_t offset, stride; /* in the newer region */
	const uint8_t *from;
	uint64_t from_stride;
	uint32_t n;
};

/* Lays out a section behind *at, which moves past it. */
static struct newer_section
newer_section(uint64_t *at, uint32_t n, const void *from, uint64_t from_stride, uint64_t more)
{
	struct newer_section section = { *at, from_stride + more, from, from_stride, n };

	*at += (n * section.stride + 7) & ~7ull;
	return section;
}

static void
newer_section_copy(uint8_t *to, const struct newer_section *section)
{
	for (uint32_t i = 0; i < section->n; i++)
		memcpy(to + section->offset + i * section->stride, section->from + i * section->from_stride,
		       section->from_stride);
}

/* A copy of a region with a larger header and larger records, all filled with ones where this version reads nothing. */
static int
make_newer_region(int fd, uint64_t *size_p)
{
	enum { SLOTS, PAGES, TABLES, NODES, KEYS, BUCKETS, RING, N_SECTIONS };
	struct newer_section sections[N_SECTIONS];
	struct stat file;
	struct region_header *header;
	struct region_view view;
	struct paged_error error;
	int newer_fd = memfd_create("newer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	const uint8_t *from;
	uint8_t *to;

	it_require(fstat(fd, &file) == 0 && newer_fd >= 0);
	from = mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_SHARED, fd, 0);
	it_require(from != MAP_FAILED);
	it_require(region_view_init(&view, from, (size_t)file.st_size, NULL, &error) == PAGED_OK, "%s", error.text);
	*size_p = NEWER_HEADER;
	sections[SLOTS] = newer_section(size_p, view.n_slots, region_slot(&view, 0), view.slot_stride, 64);
	sections[PAGES] = newer_section(size_p, view.n_pages, region_page(&view, 0), view.page_stride, 4);
	sections[TABLES] = newer_section(size_p, view.n_slots, region_page_table(&view, 0), view.table_stride, 16);
	sections[NODES] = newer_section(size_p, view.n_pages, region_node(&view, 0), view.node_stride, 8);
	sections[KEYS] = newer_section(size_p, view.n_pages, region_block_key(&view, 0), view.key_stride, 8);
	/* Buckets and entries of the ring have fixed sizes. */
	sections[BUCKETS] = newer_section(size_p, view.n_buckets, region_bucket(&view, 0), sizeof(uint32_t), 0);
	sections[RING] = newer_section(size_p, view.ring_entries, region_ring_entry(&view, 1),
				       sizeof(struct region_ring_entry), 0);
	it_require(ftruncate(newer_fd, (off_t)*size_p) == 0);
	to = mmap(NULL, *size_p, PROT_READ | PROT_WRITE, MAP_SHARED, newer_fd, 0);
	it_require(to != MAP_FAILED);
	memset(to, 0xff, *size_p);
	header = (struct region_header *)to;
	memcpy(header, from, sizeof(*header));
	header->version_minor = NEWER_MINOR;
	header->total_size = *size_p;
	header->slots_offset = sections[SLOTS].offset;
	header->slot_stride = (uint32_t)sections[SLOTS].stride;
	header->pages_offset = sections[PAGES].offset;
	header->page_stride = (uint32_t)sections[PAGES].stride;
	header->tables_offset = sections[TABLES].offset;
	header->table_stride = sections[TABLES].stride;
	header->nodes_offset = sections[NODES].offset;
	header->node_stride = (uint32_t)sections[NODES].stride;
	header->keys_offset = sections[KEYS].offset;
	header->key_stride = (uint32_t)sections[KEYS].stride;
	header->buckets_offset = sections[BUCKETS].offset;
	header->ring_offset = sections[RING].offset;
	for (int i = 0; i < N_SECTIONS; i++)
		newer_section_copy(to, &sections[i]);
	munmap((void *)from, (size_t)file.st_size);
	munmap(to, *size_p);
	it_require(fcntl(newer_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0, "%m");
	return newer_fd;
}

static void
relay_reply(int to, struct wire_control_reply *reply, int fds[WIRE_N_POOL_FDS])
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int) * WIRE_N_POOL_FDS)];
	} ancillary = { 0 };
	uint8_t buffer[1024];
	struct iovec part = { .iov_base = buffer };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

	if (reply->kind == WIRE_WELCOME) {
		reply->welcome.version_minor = NEWER_MINOR;
		reply->welcome.max_open_requests = 1000;
	}
	if (reply->kind == WIRE_POOL_GRANT) {
		int newer = make_newer_region(fds[WIRE_FD_REGION], &reply->pool_grant.region_size);

		close(fds[WIRE_FD_REGION]);
		fds[WIRE_FD_REGION] = newer;
		message.msg_control = &ancillary;
		message.msg_controllen = sizeof(ancillary);
		ancillary.header.cmsg_level = SOL_SOCKET;
		ancillary.header.cmsg_type = SCM_RIGHTS;
		ancillary.header.cmsg_len = CMSG_LEN(sizeof(int) * WIRE_N_POOL_FDS);
		memcpy(CMSG_DATA(&ancillary.header), fds, sizeof(int) * WIRE_N_POOL_FDS);
	}
	part.iov_len = append_unknown_field(buffer, wire_control_reply_pack(reply, buffer, sizeof(buffer)));
	it_require(sendmsg(to, &message, MSG_NOSIGNAL) >= 0, "%m");
	for (int i = 0; i < WIRE_N_POOL_FDS && reply->kind == WIRE_POOL_GRANT; i++)
		close(fds[i]);
}

/* Relay one connection of the library until it closes, in the library's own process so that credentials match. */
static void *
relay_connection(void *argument)
{
	int listener = *(int *)argument, client = accept(listener, NULL, NULL), owner = wire_peer_connect_control();
	struct pollfd polled[2] = { { .fd = client, .events = POLLIN }, { .fd = owner, .events = POLLIN } };
	struct wire_control_reply reply;
	int fds[WIRE_N_POOL_FDS];
	uint8_t buffer[1024];
	ssize_t size;

	for (;;) {
		it_require(poll(polled, 2, IT_LIMIT_MS) > 0);
		if (polled[0].revents != 0) {
			size = recv(client, buffer, sizeof(buffer), 0);
			if (size <= 0)
				break;
			wire_peer_send_bytes(owner, buffer, (size_t)size);
		}
		if (polled[1].revents != 0) {
			if (!wire_peer_receive_control(owner, &reply, fds))
				break;
			relay_reply(client, &reply, fds);
		}
	}
	close(client);
	close(owner);
	return NULL;
}

/* Publishes the first two pages of a sequence under the token ids 0 to 7; returns the entry of the second. */
static struct paged_node_entry
publish_pages(struct wire_peer *peer, paged_seq_id seq)
{
	static const uint32_t tokens[8] = { 0, 1, 2, 3, 4, 5, 6, 7 };
	struct paged_seq_info info = { .struct_size = sizeof(info) };
	struct wire_request publish = { .kind = WIRE_PUBLISH }, list = { .kind = WIRE_GET_PREFIXES };
	struct seq_publish_spec spec = { .seq = seq, .n_pages = 2 };
	struct paged_client *client;
	struct paged_pool *pool;
	struct wire_reply reply;

	it_require(paged_client_open(NULL, NULL, &client) == PAGED_OK &&
		   paged_pool_open(client, "p", &pool) == PAGED_OK);
	it_require(paged_seq_read(pool, seq, &info, NULL, 0) == PAGED_OK, "%s", paged_client_error(client));
	paged_client_close(client);
	spec.version = info.version;
	publish.publish.n = 1;
	publish.publish.specs = &spec;
	publish.publish.n_tokens = 8;
	publish.publish.tokens = tokens;
	it_require(wire_peer_call(peer, &publish, &reply) == PAGED_OK, "%s", reply.text);
	it_require(wire_peer_call(peer, &list, &reply) == PAGED_OK && reply.prefixes.n == 2);
	return reply.prefixes.report[reply.prefixes.report[0].parent_serial == 0];
}

IT_TEST(library_works_with_a_newer_daemon)
{
	struct wire_request ask = { .kind = WIRE_GET_TABLE };
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct paged_client_params params = { .struct_size = sizeof(params), .name = "library" };
	struct paged_batch_params batch_params = { .struct_size = sizeof(batch_params) };
	struct paged_check_result result = { .struct_size = sizeof(result) };
	struct paged_pool_counts counts = { .struct_size = sizeof(counts) };
	struct paged_seq_info info = { .struct_size = sizeof(info) };
	struct paged_batch_row row = { .q_len = 1, .kv_len = 10 };
	struct paged_client *client;
	struct paged_batch *batch;
	struct paged_pool *pool;
	struct wire_reply table;
	char dir[sizeof(daemon_.dir) + 8];
	struct paged_node_entry node;
	uint32_t pages[3], tokens[4];
	pthread_t thread;
	struct wire_peer peer;
	int listener;

	it_daemon_start(&daemon_, SMALL_POOL_CONFIG, NULL, NULL);
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	wire_peer_create_seq(&peer, 5);
	row.seq = ask.get_table.seq = wire_peer_create_seq(&peer, 10);
	node = publish_pages(&peer, row.seq);

	snprintf(dir, sizeof(dir), "%s/newer", daemon_.dir);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/control", dir);
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	it_require(mkdir(dir, 0700) == 0 && bind(listener, (struct sockaddr *)&address, sizeof(address)) == 0 &&
			   listen(listener, 1) == 0,
		   "%s: %m", address.sun_path);
	it_require(pthread_create(&thread, NULL, relay_connection, &listener) == 0);

	it_require(paged_client_open(dir, &params, &client) == PAGED_OK, "%s", paged_client_error(client));
	it_require(paged_pool_open(client, "p", &pool) == PAGED_OK, "%s", paged_client_error(client));
	it_require(paged_seq_read(pool, row.seq, &info, pages, 3) == PAGED_OK, "%s", paged_client_error(client));
	it_require(info.capacity == 12 && info.n_pages == 3);
	it_require(wire_peer_call(&peer, &ask, &table) == PAGED_OK && table.table.n == 3);
	it_require(memcmp(pages, table.table.page, sizeof(pages)) == 0);
	it_require(paged_prefix_tokens(pool, node.page, node.serial, tokens, 4) == PAGED_OK, "%s",
		   paged_client_error(client));
	it_require(tokens[0] == 4 && tokens[3] == 7);
	it_require(paged_pool_check(pool, &result) == PAGED_OK && result.holds == 1, "%s", result.text);
	it_require(paged_pool_get_counts(pool, &counts) == PAGED_OK && counts.n_free == 59);
	it_require(paged_batch_create(pool, &batch_params, &batch) == PAGED_OK, "%s", paged_client_error(client));
	it_require(paged_batch_plan(batch, 1, &row) == PAGED_OK, "%s", paged_client_error(client));
	it_require(paged_batch_validate(batch) == PAGED_OK, "%s", paged_client_error(client));
	it_require(paged_client_ping(client) == PAGED_OK, "%s", paged_client_error(client));
	paged_batch_destroy(batch);
	paged_pool_close(pool);
	paged_client_close(client);

	it_require(pthread_join(thread, NULL) == 0);
	close(listener);
	unlink(address.sun_path);
	rmdir(dir);
	wire_peer_bye(&peer);
	it_daemon_stop(&daemon_);
}

IT_MAIN
