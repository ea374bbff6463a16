/* SPDX-License-Identifier: Apache-2.0 */
/**
 * wire.h - messages as plain structs
 *
 * Only the code in this directory uses the types that protoc-c generates.
 * Packing writes into a buffer of the caller.  Parsing allocates from a capped
 * arena and validates every length, count, enum and string, so the callers
 * check only the semantics: for example, whether the ids of pools, sessions
 * and sequences exist.
 *
 * A count or length outside its limits is PAGED_ERR_LIMIT, any other malformed
 * message PAGED_ERR_PROTOCOL; error names message and field as in paged.proto.
 *
 * Parsed structs point into the arena (never into the datagram) and are valid
 * until wire_arena_reset().  Strings are zero-terminated.  Names are UTF-8
 * without control characters; the text of a mod may contain any byte but 0.
 *
 * Threads: an arena and a buffer belong to one thread at a time.
 */
#ifndef PAGED_WIRE_H
#define PAGED_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/layout_params.h"
#include "common/mask_request.h"
#include "common/paged_reports.h"
#include "common/sequence.h"
#include "common/status.h"

#define WIRE_VERSION_MAJOR 2u
#define WIRE_VERSION_MINOR 0u
/** Largest message on either channel. */
#define WIRE_MAX_MESSAGE 65536u
/**
 * Requests that a member may have open (sent, no reply yet); sent in Welcome.  client_rpc_send() refuses more.  The
 * daemon does not count them: its queue to a member has room for the replies of this many (daemon/endpoint.c), and a
 * member whose queue is full is disconnected.
 */
#define WIRE_MAX_OPEN_REQUESTS 64u
#define WIRE_TOKEN_SIZE 16
#define WIRE_BOOT_ID_SIZE 16
#define WIRE_MEMORY_ID_SIZE 16
/** Longest error text, including the terminating zero. */
#define WIRE_MAX_TEXT 256
#define WIRE_MAX_ENDPOINT 108
/** Most entries of a list in a reply, so that it fits WIRE_MAX_MESSAGE. */
#define WIRE_LIST_MAX 256u
/** Most kinds of requests in a reply. */
#define WIRE_KINDS_MAX 64u
/** Most page table entries in a reply. */
#define WIRE_TABLE_MAX 8192u
/**
 * Most sequences and pages of a start, and most sequences, pages, token ids and extras of a publish.  A request must
 * also fit a message, so the bytes of its lists must be at most WIRE_MAX_LISTS:
 *   start    4 for each page, WIRE_START_SIZE and the bytes of its tag for each sequence
 *   publish  WIRE_PUBLISH_SIZE for each sequence, 4 for each token id and extra_page, REGION_EXTRA_SIZE for each extra
 */
#define WIRE_MAX_STARTS 1024u
#define WIRE_MAX_START_PAGES 14000u
#define WIRE_MAX_PUBLISHES 256u
#define WIRE_MAX_PUBLISH_PAGES 4096u
#define WIRE_MAX_PUBLISH_TOKENS 16000u
#define WIRE_MAX_EXTRAS 1900u
#define WIRE_MAX_LISTS 65400u
#define WIRE_START_SIZE 37u
#define WIRE_PUBLISH_SIZE 24u
/** Longest name of a model, including the terminating zero. */
#define WIRE_MAX_MODEL 128
/** Most bytes of an array in a request. */
#define WIRE_MAX_CHUNK 61440u
/** Most dimensions of an array, and bytes of a mod's text. */
#define WIRE_MAX_INDEXES 4u
#define WIRE_MAX_MOD 4096u
/** Descriptors of a pool grant, in this order. */
enum { WIRE_FD_REGION, WIRE_FD_MEMORY, WIRE_N_POOL_FDS }; /* WIRE_EXPORT_LEGACY: only the region */

/* Arena: bump allocator with one block of fixed size. */

struct wire_arena {
	uint8_t *base;
	size_t size;
	size_t used;
};

#define WIRE_ARENA_SIZE (1u << 20)

enum paged_status wire_arena_create(struct wire_arena *arena, struct paged_error *error);
void wire_arena_destroy(struct wire_arena *arena);
static inline void
wire_arena_reset(struct wire_arena *arena)
{
	arena->used = 0;
}

/** Sizes in bytes of UUID, CUDA IPC handle and canary of a GPU's memory. */
#define WIRE_UUID_SIZE 16
#define WIRE_HANDLE_SIZE 64
#define WIRE_CANARY_SIZE 32

/** How a member opens a pool's memory; see paged.proto. */
enum wire_export { WIRE_EXPORT_FD, WIRE_EXPORT_VMM, WIRE_EXPORT_LEGACY };

struct wire_memory {
	enum wire_export export;
	/* For a GPU's memory, else 0. */
	uint8_t device[WIRE_UUID_SIZE];
	uint8_t canary[WIRE_CANARY_SIZE];
	uint64_t generation;
};

/** The handle that opens memory with WIRE_EXPORT_LEGACY: a bearer secret, never logged. */
struct wire_handle {
	uint8_t bytes[WIRE_HANDLE_SIZE];
	uint8_t device[WIRE_UUID_SIZE];
	uint64_t offset, generation;
};

/* Control channel */

/*
 * The numbers are those of paged.proto.  A new role also needs: WIRE_N_ROLES, which bounds the field in
 * wire_messages.c; member_assume_role() in daemon/member.c; what it may request, in daemon/rpc.c (NEEDS_SESSION);
 * remote_hello() in client/owner/owner_remote.c; the embedded owner; paged-protocol(7).
 */
enum wire_role { WIRE_ROLE_SESSION, WIRE_ROLE_JOIN, WIRE_ROLE_OBSERVER };
#define WIRE_N_ROLES 3u

enum wire_control_request_kind { WIRE_HELLO, WIRE_OPEN_POOL, WIRE_BYE };

struct wire_control_request {
	enum wire_control_request_kind kind;
	union {
		struct {
			uint32_t version_major, version_minor;
			enum wire_role role;
			bool outlive;
			uint8_t join_token[WIRE_TOKEN_SIZE]; /* with WIRE_ROLE_JOIN, else 0 */
			char name[PAGED_MAX_NAME + 1];
		} hello;
		struct {
			char name[PAGED_MAX_NAME + 1];
			uint32_t shard;
		} open_pool;
	};
};

enum wire_control_reply_kind { WIRE_WELCOME, WIRE_POOL_GRANT, WIRE_REFUSAL, WIRE_FAREWELL, WIRE_NOTICE };
enum wire_notice_kind { WIRE_NOTICE_STOPPING, WIRE_NOTICE_ENDED, WIRE_NOTICE_DRAINED };

struct wire_control_reply {
	enum wire_control_reply_kind kind;
	union {
		struct {
			uint32_t version_major, version_minor;
			uint8_t boot_id[WIRE_BOOT_ID_SIZE];
			uint32_t session, member;
			uint8_t token[WIRE_TOKEN_SIZE];
			uint8_t join_token[WIRE_TOKEN_SIZE]; /* for a session's first member, else 0 */
			char endpoint[WIRE_MAX_ENDPOINT];
			char daemon_version[32];
			uint32_t max_open_requests;
		} welcome;
		struct {
			uint32_t pool;
			char name[PAGED_MAX_NAME + 1];
			char backend[16];
			struct layout_params geometry;
			uint64_t memory_size, region_size;
			struct wire_memory memory;
			uint8_t memory_id[WIRE_MEMORY_ID_SIZE];
			uint32_t shard, n_shards, n_layer_groups;
			bool publishes;
			char model[WIRE_MAX_MODEL];
		} pool_grant;
		struct {
			enum paged_status status;
			char text[WIRE_MAX_TEXT];
		} refusal;
		struct {
			enum wire_notice_kind kind;
			uint32_t deadline_ms;
			char text[WIRE_MAX_TEXT];
		} notice;
	};
};

/** wire_control_reply_fds - number of descriptors that the reply carries */
static inline unsigned int
wire_control_reply_fds(const struct wire_control_reply *reply)
{
	if (reply->kind != WIRE_POOL_GRANT)
		return 0;
	return reply->pool_grant.memory.export == WIRE_EXPORT_LEGACY ? WIRE_FD_MEMORY : WIRE_N_POOL_FDS;
}

/**
 * wire_control_request_pack, wire_control_reply_pack - write the message to buffer
 *
 * @return size of the message; 0 if it does not fit, which the limits of this header exclude
 */
size_t wire_control_request_pack(const struct wire_control_request *request, uint8_t *buffer, size_t buffer_size);
size_t wire_control_reply_pack(const struct wire_control_reply *reply, uint8_t *buffer, size_t buffer_size);

/** @retval PAGED_ERR_UNSUPPORTED  this version does not know the kind of message */
enum paged_status wire_control_request_parse(const uint8_t *message, size_t size, struct wire_arena *arena,
					     struct wire_control_request *request, struct paged_error *error);
enum paged_status wire_control_reply_parse(const uint8_t *message, size_t size, struct wire_arena *arena,
					   struct wire_control_reply *reply, struct paged_error *error);

/* RPC channel */

enum wire_request_kind {
	WIRE_PING,
	WIRE_CREATE,
	WIRE_RESERVE,
	WIRE_TRUNCATE,
	WIRE_ERASE,
	WIRE_GET_STATUS,
	WIRE_GET_POOLS,
	WIRE_GET_SESSIONS,
	WIRE_GET_SEQUENCES,
	WIRE_GET_TABLE,
	WIRE_CHECK,
	WIRE_KICK,
	WIRE_PUT_ARRAY,
	WIRE_DROP_ARRAY,
	WIRE_BUILD_MASK,
	WIRE_GET_HANDLE,
	WIRE_START,
	WIRE_FORK,
	WIRE_PUBLISH,
	WIRE_TRIM,
	WIRE_PIN,
	WIRE_HOLD,
	WIRE_EVICT,
	WIRE_GET_PREFIXES,
	WIRE_GIVE,
	WIRE_ADOPT,
	WIRE_CANCEL,
	WIRE_GET_TICKETS,
	WIRE_GET_QUOTAS,
	WIRE_DRAIN,
	WIRE_GET_METRICS,
	WIRE_SET_LOG_LEVEL,
	WIRE_GET_PINS,
	WIRE_UNPIN,
	WIRE_N_REQUESTS
};

/** A part of an array; the core checks name, dtype and shape. */
struct wire_array_chunk {
	char name[MASK_MAX_NAME + 1];
	uint32_t dtype;
	uint32_t n_dims;                    /* 1 to WIRE_MAX_INDEXES */
	uint32_t extents[WIRE_MAX_INDEXES]; /* 0 past n_dims */
	uint64_t offset;
	uint32_t size; /* at most WIRE_MAX_CHUNK */
	const uint8_t *data;
};

struct wire_request {
	uint64_t id;
	enum wire_request_kind kind;
	union {
		/* create, change and erase have 1 to PAGED_MAX_REQUEST_SEQS sequences. */
		struct {
			uint32_t n;
			const struct seq_spec *specs;
		} create;
		struct {
			uint32_t n;
			const struct paged_seq_item *items;
		} change; /* reserve, truncate, trim */
		struct {
			uint32_t n;
			const paged_seq_id *ids;
		} erase;
		struct {
			uint32_t after_session, after_member;
		} get_sessions;
		struct {
			uint32_t pool, from_slot;
		} get_sequences;
		struct {
			uint32_t from_entry;
			paged_seq_id seq;
		} get_table;
		struct {
			uint32_t pool;
		} check;
		struct {
			uint32_t session;
			bool kill;
		} kick;
		struct wire_array_chunk put_array;
		struct {
			char name[MASK_MAX_NAME + 1];
		} drop_array;
		struct mask_request build_mask;
		struct {
			uint32_t pool;
		} get_handle;
		/* 1 to WIRE_MAX_STARTS sequences.  The parser does not compare n_pages with those of the specs. */
		struct seq_start_list start;
		struct {
			uint32_t n; /* 1 to PAGED_MAX_REQUEST_SEQS */
			const struct seq_fork *forks;
		} fork;
		/* The parser does not compare the numbers of pages, token ids and extras. */
		struct {
			uint32_t n; /* 1 to WIRE_MAX_PUBLISHES */
			const struct seq_publish_spec *specs;
			uint32_t n_tokens;
			const uint32_t *tokens; /* NULL: the extras are the block keys */
			uint32_t n_extra_pages;
			const uint32_t *extra_page; /* NULL with tokens NULL: each page has an extra */
			uint32_t extra_size;        /* bytes: REGION_EXTRA_SIZE for each extra */
			const uint8_t *extra;
		} publish;
		struct {
			uint32_t pool, page, seconds;
			uint64_t serial;
		} pin;
		struct {
			uint32_t pool, n; /* n: 1 to PAGED_MAX_HOLD_PAGES */
			const uint32_t *pages;
			const uint64_t *serials;
		} hold;
		struct {
			uint32_t pool, n_pages;
		} evict;
		struct {
			uint32_t pool, from_page;
		} get_prefixes;
		struct {
			uint32_t n;                         /* 1 to PAGED_MAX_REQUEST_SEQS */
			const struct paged_seq_item *items; /* n_tokens: length */
			struct seq_give how;
		} give;
		struct {
			uint8_t ticket[PAGED_TICKET_SIZE];
			uint32_t pool, n_max;
		} adopt;
		struct {
			uint8_t ticket[PAGED_TICKET_SIZE];
		} cancel;
		struct {
			uint64_t after;
		} get_tickets;
		struct {
			uint32_t from;
		} get_quotas;
		struct {
			uint32_t session;
		} drain;
		struct {
			uint32_t level; /* the parser admits any number */
		} set_log_level;
		struct {
			uint32_t pool;
			uint64_t after;
		} get_pins;
		struct {
			uint32_t pool;
			uint64_t number;
		} unpin;
	};
};

enum wire_reply_kind {
	WIRE_REPLY_EMPTY, /* success without a body, or a failure without numbers */
	WIRE_REPLY_IDS,
	WIRE_REPLY_STATUS,
	WIRE_REPLY_POOLS,
	WIRE_REPLY_SESSIONS,
	WIRE_REPLY_SEQUENCES,
	WIRE_REPLY_TABLE,
	WIRE_REPLY_CHECK_RESULT,
	WIRE_REPLY_MASK,
	WIRE_REPLY_HANDLE,
	WIRE_REPLY_PUBLISHED,
	WIRE_REPLY_PINNED,
	WIRE_REPLY_EVICTED,
	WIRE_REPLY_PREFIXES,
	WIRE_REPLY_TICKET,
	WIRE_REPLY_ADOPTED,
	WIRE_REPLY_TICKETS,
	WIRE_REPLY_QUOTAS,
	WIRE_REPLY_METRICS,
	WIRE_REPLY_LOG_LEVEL,
	WIRE_REPLY_PINS,
	WIRE_REPLY_SHORTAGE /* a failure: the error's shortage */
};

struct wire_reply {
	uint64_t id;
	enum paged_status status;
	const char *text; /* the error text if status is not PAGED_OK; never NULL after parsing */
	enum wire_reply_kind kind;
	union {
		struct {
			uint32_t n;
			const uint64_t *seq;
		} ids;
		struct paged_daemon_info status_report; /* without boot_id, which is in Welcome */
		struct {
			uint32_t n;
			const struct paged_pool_entry *report;
		} pools;
		struct {
			uint32_t n; /* at most WIRE_LIST_MAX */
			const struct paged_session_entry *report;
			bool more;
		} sessions;
		struct {
			uint32_t n; /* at most WIRE_LIST_MAX */
			const struct paged_seq_entry *report;
			uint32_t next_slot;
			bool more;
		} sequences;
		struct {
			struct paged_seq_entry sequence;
			uint32_t n; /* at most WIRE_TABLE_MAX */
			const uint32_t *page;
			bool more;
		} table;
		struct paged_check_result check_result;
		struct mask_part mask;
		struct wire_handle handle;
		struct {
			uint32_t n;
			const uint32_t *n_pages; /* per sequence: pages published in all */
			const uint32_t *ends;    /* per sequence: enum paged_publish_end */
		} published;
		struct {
			uint32_t n_pages;
		} pinned;
		struct {
			uint32_t n_pages;
			bool more;
		} evicted;
		struct {
			uint32_t n; /* at most WIRE_LIST_MAX */
			const struct paged_node_entry *report;
			uint32_t next_page;
			bool more;
		} prefixes;
		struct {
			uint8_t bytes[PAGED_TICKET_SIZE]; /* a bearer secret, never logged */
		} ticket;
		struct {
			uint32_t n;                         /* at most PAGED_MAX_REQUEST_SEQS */
			const struct paged_seq_item *items; /* n_tokens: length */
		} adopted;
		struct {
			uint32_t n; /* at most WIRE_LIST_MAX */
			const struct paged_ticket_entry *report;
			bool more;
		} tickets;
		struct {
			uint32_t n; /* at most WIRE_LIST_MAX */
			const struct paged_quota_entry *report;
			bool more;
			uint32_t next;
		} quotas;
		struct {
			uint32_t n; /* at most WIRE_LIST_MAX */
			const struct paged_pin_entry *report;
			bool more;
		} pins;
		struct {
			struct paged_metrics daemon;
			uint32_t n; /* at most WIRE_KINDS_MAX */
			const struct paged_request_entry *requests;
		} metrics;
		struct {
			uint32_t was;
		} log_level;
		struct paged_shortage shortage;
	};
};

/**
 * wire_request_pack, wire_reply_pack - write the message to buffer
 *
 * The arena holds protobuf-c's structs.  No message is empty: a request has
 * an id, a reply an id or a status.
 *
 * @return size of the message; 0 if it does not fit the buffer or the arena
 */
size_t wire_request_pack(const struct wire_request *request, struct wire_arena *arena, uint8_t *buffer,
			 size_t buffer_size);
size_t wire_reply_pack(const struct wire_reply *reply, struct wire_arena *arena, uint8_t *buffer, size_t buffer_size);

/**
 * wire_request_parse - parse a request
 *
 * request->id is written also on failure, so that the refusal can name the
 * request; 0 if the id is unreadable.  No valid request has id 0.
 *
 * @retval PAGED_ERR_UNSUPPORTED  this version does not know the kind of request
 */
enum paged_status wire_request_parse(const uint8_t *message, size_t size, struct wire_arena *arena,
				     struct wire_request *request, struct paged_error *error);
enum paged_status wire_reply_parse(const uint8_t *message, size_t size, struct wire_arena *arena,
				   struct wire_reply *reply, struct paged_error *error);

#endif
