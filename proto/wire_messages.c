/* SPDX-License-Identifier: Apache-2.0 */
/* The table of messages: each with its fields and their limits. */
#include "proto/wire_table.h"

/* clang-format off: one field per line */

#define MESSAGE(m) Paged__V1__##m
#define SIZE_OF(type, member) sizeof(((type *)NULL)->member)
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* m: message, f: its field, s: struct, o: its member, n: the struct's member with the number of elements. */
#define FIELD(m, f) .name = #f, .message_at = offsetof(MESSAGE(m), f), .message_size = SIZE_OF(MESSAGE(m), f)
#define LIST(m, f, s, n)                                                                              \
	.name = #f, .message_at = offsetof(MESSAGE(m), f), .message_size = SIZE_OF(MESSAGE(m), f[0]), \
	.message_n_at = offsetof(MESSAGE(m), n_##f), .struct_n_at = offsetof(s, n)
#define MEMBER(s, o) .struct_at = offsetof(s, o), .struct_size = SIZE_OF(s, o)

#define LIMITED(m, f, s, o, limit)                                   \
	{                                                            \
		WIRE_NUMBER, FIELD(m, f), MEMBER(s, o), .max = limit \
	}
#define NUMBER(m, f, s, o) LIMITED(m, f, s, o, UINT32_MAX)
#define TEXT_HOW(m, f, s, o, how)                                                            \
	{                                                                                    \
		WIRE_TEXT, FIELD(m, f), MEMBER(s, o), .max = SIZE_OF(s, o) - 1, .flags = how \
	}
#define TEXT(m, f, s, o) TEXT_HOW(m, f, s, o, 0)
#define CLEANED(m, f, s, o) TEXT_HOW(m, f, s, o, WIRE_CLEANED)
#define STRING(m, f, s, o, limit, how)                                             \
	{                                                                          \
		WIRE_STRING, FIELD(m, f), MEMBER(s, o), .max = limit, .flags = how \
	}
#define BYTES(m, f, s, o, how)                                      \
	{                                                           \
		WIRE_BYTES, FIELD(m, f), MEMBER(s, o), .flags = how \
	}
#define DATA(m, f, s, o, n, limit)                                                                \
	{                                                                                         \
		WIRE_DATA, FIELD(m, f), MEMBER(s, o), .struct_n_at = offsetof(s, n), .max = limit \
	}
#define ARRAY(m, f, s, o, n, least)                                                                               \
	{                                                                                                         \
		WIRE_ARRAY, LIST(m, f, s, n), MEMBER(s, o), .min = least, .max = SIZE_OF(s, o) / SIZE_OF(s, o[0]) \
	}
#define COLUMN(m, f, s, o, n, least, most, how)                                                      \
	{                                                                                            \
		WIRE_COLUMN, LIST(m, f, s, n), MEMBER(s, o), .min = least, .max = most, .flags = how \
	}
#define COLUMN_OF(m, f, s, o, n, element, member, least, most, how)                                   \
	{                                                                                             \
		WIRE_COLUMN, LIST(m, f, s, n), MEMBER(s, o), .min = least, .max = most, .flags = how, \
							     .stride = sizeof(element),               \
							     .member_at = offsetof(element, member)   \
	}
#define STRUCT(m, f, s, o, of)                                        \
	{                                                             \
		WIRE_STRUCT, FIELD(m, f), MEMBER(s, o), .type = &(of) \
	}
/* A message inside the message, whose fields are members of the outer struct. */
#define FLAT(m, f, of)                                  \
	{                                               \
		WIRE_STRUCT, FIELD(m, f), .type = &(of) \
	}
#define STRUCTS(m, f, s, o, n, of, least, most)                                                        \
	{                                                                                              \
		WIRE_STRUCTS, LIST(m, f, s, n), MEMBER(s, o), .type = &(of), .min = least, .max = most \
	}

#define TYPE(name, descriptor, s, ...)                                                            \
	static const struct wire_field name##_fields[] = { __VA_ARGS__ };                         \
	static const struct wire_type name = { &paged__v1__##descriptor##__descriptor, sizeof(s), \
					       COUNT_OF(name##_fields), name##_fields }
#define EMPTY(name, s) \
	static const struct wire_type name = { &paged__v1__##name##__descriptor, .struct_size = sizeof(s) }
#define ENVELOPE(m, first, s, of, bodies_)                                                                         \
	{                                                                                                          \
		.type = &(of), .case_at = offsetof(MESSAGE(m), body_case), .body_at = offsetof(MESSAGE(m), first), \
		.kind_at = offsetof(s, kind), .n_bodies = COUNT_OF(bodies_), .bodies = bodies_                     \
	}

/* Control channel, to the daemon */

#define S struct wire_control_request

TYPE(hello, hello, S, NUMBER(Hello, version_major, S, hello.version_major),
     NUMBER(Hello, version_minor, S, hello.version_minor), CLEANED(Hello, name, S, hello.name),
     LIMITED(Hello, role, S, hello.role, WIRE_N_ROLES - 1),
     BYTES(Hello, join_token, S, hello.join_token, WIRE_OPTIONAL), NUMBER(Hello, outlive, S, hello.outlive));
TYPE(open_pool, open_pool, S, TEXT(OpenPool, name, S, open_pool.name), NUMBER(OpenPool, shard, S, open_pool.shard));
EMPTY(bye, S);

static const struct wire_body control_request_bodies[] = {
	[WIRE_HELLO] = { PAGED__V1__CONTROL_REQUEST__BODY_HELLO, &hello },
	[WIRE_OPEN_POOL] = { PAGED__V1__CONTROL_REQUEST__BODY_OPEN_POOL, &open_pool },
	[WIRE_BYE] = { PAGED__V1__CONTROL_REQUEST__BODY_BYE, &bye },
};
EMPTY(control_request, S);
const struct wire_envelope wire_control_requests =
	ENVELOPE(ControlRequest, hello, S, control_request, control_request_bodies);

#undef S

/* Control channel, from the daemon */

#define GEOMETRY(s)                                                                           \
	NUMBER(Geometry, n_layers, s, n_layers), NUMBER(Geometry, n_kv_heads, s, n_kv_heads), \
		NUMBER(Geometry, k_dim, s, k_dim), NUMBER(Geometry, v_dim, s, v_dim),         \
		NUMBER(Geometry, v_in_k, s, v_in_k), NUMBER(Geometry, dtype, s, dtype),       \
		NUMBER(Geometry, page_size, s, page_size), NUMBER(Geometry, n_pages, s, n_pages)

TYPE(geometry, geometry, struct layout_params, GEOMETRY(struct layout_params),
     NUMBER(Geometry, alignment, struct layout_params, alignment));

#define S struct wire_control_reply

TYPE(welcome, welcome, S, NUMBER(Welcome, version_major, S, welcome.version_major),
     NUMBER(Welcome, version_minor, S, welcome.version_minor), BYTES(Welcome, boot_id, S, welcome.boot_id, 0),
     NUMBER(Welcome, session, S, welcome.session), NUMBER(Welcome, member, S, welcome.member),
     BYTES(Welcome, token, S, welcome.token, 0), BYTES(Welcome, join_token, S, welcome.join_token, WIRE_OPTIONAL),
     TEXT(Welcome, endpoint, S, welcome.endpoint), TEXT(Welcome, daemon_version, S, welcome.daemon_version),
     NUMBER(Welcome, max_open_requests, S, welcome.max_open_requests));
TYPE(pool_grant, pool_grant, S, NUMBER(PoolGrant, pool, S, pool_grant.pool), TEXT(PoolGrant, name, S, pool_grant.name),
     TEXT(PoolGrant, backend, S, pool_grant.backend), STRUCT(PoolGrant, geometry, S, pool_grant.geometry, geometry),
     NUMBER(PoolGrant, memory_size, S, pool_grant.memory_size),
     NUMBER(PoolGrant, region_size, S, pool_grant.region_size),
     LIMITED(PoolGrant, export_kind, S, pool_grant.memory.export, WIRE_EXPORT_LEGACY),
     BYTES(PoolGrant, device, S, pool_grant.memory.device, WIRE_OPTIONAL),
     NUMBER(PoolGrant, generation, S, pool_grant.memory.generation),
     BYTES(PoolGrant, canary, S, pool_grant.memory.canary, WIRE_OPTIONAL),
     BYTES(PoolGrant, memory_id, S, pool_grant.memory_id, 0), NUMBER(PoolGrant, shard, S, pool_grant.shard),
     NUMBER(PoolGrant, n_shards, S, pool_grant.n_shards), CLEANED(PoolGrant, model, S, pool_grant.model),
     NUMBER(PoolGrant, n_layer_groups, S, pool_grant.n_layer_groups),
     NUMBER(PoolGrant, publishes, S, pool_grant.publishes));
TYPE(refusal, refusal, S, NUMBER(Refusal, status, S, refusal.status), CLEANED(Refusal, text, S, refusal.text));
EMPTY(farewell, S);
TYPE(notice, notice, S, LIMITED(Notice, kind, S, notice.kind, WIRE_NOTICE_DRAINED),
     NUMBER(Notice, deadline_ms, S, notice.deadline_ms), CLEANED(Notice, text, S, notice.text));

static const struct wire_body control_reply_bodies[] = {
	[WIRE_WELCOME] = { PAGED__V1__CONTROL_REPLY__BODY_WELCOME, &welcome },
	[WIRE_POOL_GRANT] = { PAGED__V1__CONTROL_REPLY__BODY_POOL, &pool_grant },
	[WIRE_REFUSAL] = { PAGED__V1__CONTROL_REPLY__BODY_REFUSAL, &refusal },
	[WIRE_FAREWELL] = { PAGED__V1__CONTROL_REPLY__BODY_FAREWELL, &farewell },
	[WIRE_NOTICE] = { PAGED__V1__CONTROL_REPLY__BODY_NOTICE, &notice },
};
EMPTY(control_reply, S);
const struct wire_envelope wire_control_replies =
	ENVELOPE(ControlReply, welcome, S, control_reply, control_reply_bodies);

#undef S

/* RPC channel, to the daemon */

#define S struct wire_request

TYPE(seq_spec, seq_spec, struct seq_spec, NUMBER(SeqSpec, pool, struct seq_spec, pool),
     NUMBER(SeqSpec, n_tokens, struct seq_spec, n_tokens),
     STRING(SeqSpec, tag, struct seq_spec, tag, PAGED_MAX_TAG, 0));
TYPE(seq_create, seq_create, S,
     STRUCTS(SeqCreate, sequence, S, create.specs, create.n, seq_spec, 1, PAGED_MAX_REQUEST_SEQS));
#define ITEMS(f, how) \
	COLUMN_OF(SeqItems, f, S, change.items, change.n, struct paged_seq_item, f, 1, PAGED_MAX_REQUEST_SEQS, how)
TYPE(seq_items, seq_items, S, ITEMS(seq, WIRE_FIRST), ITEMS(n_tokens, 0), ITEMS(n_ahead, WIRE_ALIKE));
TYPE(erase, seq_ids, S, COLUMN(SeqIds, seq, S, erase.ids, erase.n, 1, PAGED_MAX_REQUEST_SEQS, WIRE_FIRST));
TYPE(get_sessions, get_sessions, S, NUMBER(GetSessions, after_member, S, get_sessions.after_member),
     NUMBER(GetSessions, after_session, S, get_sessions.after_session));
TYPE(get_sequences, get_sequences, S, NUMBER(GetSequences, pool, S, get_sequences.pool),
     NUMBER(GetSequences, from_slot, S, get_sequences.from_slot));
TYPE(get_table, get_table, S, NUMBER(GetTable, seq, S, get_table.seq),
     NUMBER(GetTable, from_entry, S, get_table.from_entry));
TYPE(check, check, S, NUMBER(Check, pool, S, check.pool));
TYPE(kick, kick, S, NUMBER(Kick, session, S, kick.session), NUMBER(Kick, kill, S, kick.kill));
TYPE(put_array, put_array, S, TEXT(PutArray, name, S, put_array.name), NUMBER(PutArray, dtype, S, put_array.dtype),
     ARRAY(PutArray, extents, S, put_array.extents, put_array.n_dims, 1), NUMBER(PutArray, offset, S, put_array.offset),
     DATA(PutArray, data, S, put_array.data, put_array.size, WIRE_MAX_CHUNK));
TYPE(drop_array, drop_array, S, TEXT(DropArray, name, S, drop_array.name));
TYPE(mask_name, mask_name, struct mask_request_name, TEXT(MaskName, name, struct mask_request_name, name),
     NUMBER(MaskName, dtype, struct mask_request_name, dtype),
     LIMITED(MaskName, n_dims, struct mask_request_name, n_dims, WIRE_MAX_INDEXES),
     NUMBER(MaskName, value, struct mask_request_name, value));
#define ROWS(f, how) COLUMN(BuildMask, f, S, build_mask.f, build_mask.n_rows, 1, PAGED_MAX_MASK_ROWS, how)
TYPE(build_mask, build_mask, S, ROWS(q_len, WIRE_FIRST), ROWS(kv_len, 0), ROWS(q_base, WIRE_OPTIONAL),
     NUMBER(BuildMask, n_heads, S, build_mask.n_heads), NUMBER(BuildMask, q_block, S, build_mask.q_block),
     NUMBER(BuildMask, kv_block, S, build_mask.kv_block),
     STRING(BuildMask, text, S, build_mask.text, WIRE_MAX_MOD, WIRE_RAW),
     STRUCTS(BuildMask, name, S, build_mask.names, build_mask.n_names, mask_name, 0, MASK_MAX_NAMES),
     NUMBER(BuildMask, first_list, S, build_mask.first_list), NUMBER(BuildMask, first_block, S, build_mask.first_block),
     ROWS(b, WIRE_OPTIONAL), ROWS(kv_first, WIRE_OPTIONAL));
TYPE(get_handle, get_handle, S, NUMBER(GetHandle, pool, S, get_handle.pool));
TYPE(seq_start_spec, seq_start_spec, struct seq_start_spec,
     NUMBER(SeqStartSpec, n_pages, struct seq_start_spec, n_pages),
     NUMBER(SeqStartSpec, serial, struct seq_start_spec, serial),
     NUMBER(SeqStartSpec, n_tokens, struct seq_start_spec, n_tokens),
     NUMBER(SeqStartSpec, n_asked, struct seq_start_spec, n_asked),
     NUMBER(SeqStartSpec, seq, struct seq_start_spec, seq),
     STRING(SeqStartSpec, tag, struct seq_start_spec, tag, PAGED_MAX_TAG, 0));
TYPE(seq_start, seq_start, S, NUMBER(SeqStart, pool, S, start.pool),
     STRUCTS(SeqStart, sequence, S, start.specs, start.n, seq_start_spec, 1, WIRE_MAX_STARTS),
     COLUMN(SeqStart, page, S, start.pages, start.n_pages, 0, WIRE_MAX_START_PAGES, WIRE_FIRST));
#define FORKS(f, how) COLUMN_OF(SeqFork, f, S, fork.forks, fork.n, struct seq_fork, f, 1, PAGED_MAX_REQUEST_SEQS, how)
TYPE(seq_fork, seq_fork, S, FORKS(parent, WIRE_FIRST), FORKS(n_tokens, 0));
#define PUBLISHES(f, how) \
	COLUMN_OF(Publish, f, S, publish.specs, publish.n, struct seq_publish_spec, f, 1, WIRE_MAX_PUBLISHES, how)
TYPE(publish, publish, S, PUBLISHES(seq, WIRE_FIRST), PUBLISHES(version, 0), PUBLISHES(from, 0), PUBLISHES(n_pages, 0),
     COLUMN(Publish, token, S, publish.tokens, publish.n_tokens, 0, WIRE_MAX_PUBLISH_TOKENS, WIRE_FIRST),
     COLUMN(Publish, extra_page, S, publish.extra_page, publish.n_extra_pages, 0, WIRE_MAX_EXTRAS, WIRE_FIRST),
     DATA(Publish, extra, S, publish.extra, publish.extra_size, WIRE_MAX_EXTRAS *REGION_EXTRA_SIZE));
TYPE(pin, pin, S, NUMBER(Pin, pool, S, pin.pool), NUMBER(Pin, page, S, pin.page), NUMBER(Pin, serial, S, pin.serial),
     NUMBER(Pin, seconds, S, pin.seconds));
#define HOLDS(f, o, how) COLUMN(Hold, f, S, hold.o, hold.n, 1, PAGED_MAX_HOLD_PAGES, how)
TYPE(hold, hold, S, NUMBER(Hold, pool, S, hold.pool), HOLDS(page, pages, WIRE_FIRST), HOLDS(serial, serials, 0));
TYPE(evict, evict, S, NUMBER(Evict, pool, S, evict.pool), NUMBER(Evict, n_pages, S, evict.n_pages));
TYPE(get_prefixes, get_prefixes, S, NUMBER(GetPrefixes, pool, S, get_prefixes.pool),
     NUMBER(GetPrefixes, from_page, S, get_prefixes.from_page));
#define GIVES(f, o, how) \
	COLUMN_OF(SeqGive, f, S, give.items, give.n, struct paged_seq_item, o, 1, PAGED_MAX_REQUEST_SEQS, how)
TYPE(seq_give, seq_give, S, GIVES(seq, seq, WIRE_FIRST), GIVES(length, n_tokens, 0),
     NUMBER(SeqGive, timeout_ms, S, give.how.timeout_ms), NUMBER(SeqGive, flags, S, give.how.flags),
     NUMBER(SeqGive, session, S, give.how.session), NUMBER(SeqGive, uid, S, give.how.uid));
TYPE(seq_adopt, seq_adopt, S, BYTES(SeqAdopt, ticket, S, adopt.ticket, 0), NUMBER(SeqAdopt, pool, S, adopt.pool),
     NUMBER(SeqAdopt, n_max, S, adopt.n_max));
TYPE(ticket_cancel, ticket_cancel, S, BYTES(TicketCancel, ticket, S, cancel.ticket, 0));
TYPE(get_tickets, get_tickets, S, NUMBER(GetTickets, after, S, get_tickets.after));
TYPE(get_quotas, get_quotas, S, NUMBER(GetQuotas, from, S, get_quotas.from));
TYPE(drain, drain, S, NUMBER(Drain, session, S, drain.session));
TYPE(set_log_level, set_log_level, S, NUMBER(SetLogLevel, level, S, set_log_level.level));
TYPE(get_pins, get_pins, S, NUMBER(GetPins, pool, S, get_pins.pool), NUMBER(GetPins, after, S, get_pins.after));
TYPE(unpin, unpin, S, NUMBER(Unpin, pool, S, unpin.pool), NUMBER(Unpin, number, S, unpin.number));
EMPTY(ping, S);
EMPTY(get_status, S);
EMPTY(get_pools, S);
EMPTY(get_metrics, S);

static const struct wire_body request_bodies[WIRE_N_REQUESTS] = {
	[WIRE_PING] = { PAGED__V1__REQUEST__BODY_PING, &ping },
	[WIRE_CREATE] = { PAGED__V1__REQUEST__BODY_CREATE, &seq_create },
	[WIRE_RESERVE] = { PAGED__V1__REQUEST__BODY_RESERVE, &seq_items },
	[WIRE_TRUNCATE] = { PAGED__V1__REQUEST__BODY_TRUNCATE, &seq_items },
	[WIRE_ERASE] = { PAGED__V1__REQUEST__BODY_ERASE, &erase },
	[WIRE_GET_STATUS] = { PAGED__V1__REQUEST__BODY_GET_STATUS, &get_status },
	[WIRE_GET_POOLS] = { PAGED__V1__REQUEST__BODY_GET_POOLS, &get_pools },
	[WIRE_GET_SESSIONS] = { PAGED__V1__REQUEST__BODY_GET_SESSIONS, &get_sessions },
	[WIRE_GET_SEQUENCES] = { PAGED__V1__REQUEST__BODY_GET_SEQUENCES, &get_sequences },
	[WIRE_GET_TABLE] = { PAGED__V1__REQUEST__BODY_GET_TABLE, &get_table },
	[WIRE_CHECK] = { PAGED__V1__REQUEST__BODY_CHECK, &check },
	[WIRE_KICK] = { PAGED__V1__REQUEST__BODY_KICK, &kick },
	[WIRE_PUT_ARRAY] = { PAGED__V1__REQUEST__BODY_PUT_ARRAY, &put_array },
	[WIRE_DROP_ARRAY] = { PAGED__V1__REQUEST__BODY_DROP_ARRAY, &drop_array },
	[WIRE_BUILD_MASK] = { PAGED__V1__REQUEST__BODY_BUILD_MASK, &build_mask },
	[WIRE_GET_HANDLE] = { PAGED__V1__REQUEST__BODY_GET_HANDLE, &get_handle },
	[WIRE_START] = { PAGED__V1__REQUEST__BODY_START, &seq_start },
	[WIRE_FORK] = { PAGED__V1__REQUEST__BODY_FORK, &seq_fork },
	[WIRE_PUBLISH] = { PAGED__V1__REQUEST__BODY_PUBLISH, &publish },
	[WIRE_TRIM] = { PAGED__V1__REQUEST__BODY_TRIM, &seq_items },
	[WIRE_PIN] = { PAGED__V1__REQUEST__BODY_PIN, &pin },
	[WIRE_HOLD] = { PAGED__V1__REQUEST__BODY_HOLD, &hold },
	[WIRE_EVICT] = { PAGED__V1__REQUEST__BODY_EVICT, &evict },
	[WIRE_GET_PREFIXES] = { PAGED__V1__REQUEST__BODY_GET_PREFIXES, &get_prefixes },
	[WIRE_GIVE] = { PAGED__V1__REQUEST__BODY_GIVE, &seq_give },
	[WIRE_ADOPT] = { PAGED__V1__REQUEST__BODY_ADOPT, &seq_adopt },
	[WIRE_CANCEL] = { PAGED__V1__REQUEST__BODY_CANCEL, &ticket_cancel },
	[WIRE_GET_TICKETS] = { PAGED__V1__REQUEST__BODY_GET_TICKETS, &get_tickets },
	[WIRE_GET_QUOTAS] = { PAGED__V1__REQUEST__BODY_GET_QUOTAS, &get_quotas },
	[WIRE_DRAIN] = { PAGED__V1__REQUEST__BODY_DRAIN, &drain },
	[WIRE_GET_METRICS] = { PAGED__V1__REQUEST__BODY_GET_METRICS, &get_metrics },
	[WIRE_SET_LOG_LEVEL] = { PAGED__V1__REQUEST__BODY_SET_LOG_LEVEL, &set_log_level },
	[WIRE_GET_PINS] = { PAGED__V1__REQUEST__BODY_GET_PINS, &get_pins },
	[WIRE_UNPIN] = { PAGED__V1__REQUEST__BODY_UNPIN, &unpin },
};
TYPE(request, request, S, NUMBER(Request, id, S, id));
const struct wire_envelope wire_requests = ENVELOPE(Request, ping, S, request, request_bodies);

#undef S

/* RPC channel, from the daemon */

#define S struct paged_pool_entry
TYPE(report_geometry, geometry, S, GEOMETRY(S));
TYPE(pool_report, pool_report, S, NUMBER(PoolReport, pool, S, number), TEXT(PoolReport, name, S, name),
     TEXT(PoolReport, backend, S, backend), CLEANED(PoolReport, memory, S, memory),
     FLAT(PoolReport, geometry, report_geometry), NUMBER(PoolReport, page_bytes, S, page_bytes),
     NUMBER(PoolReport, size, S, size), NUMBER(PoolReport, n_free, S, n_free),
     NUMBER(PoolReport, n_referenced, S, n_referenced), NUMBER(PoolReport, n_quarantined, S, n_quarantined),
     NUMBER(PoolReport, n_slots, S, n_slots), NUMBER(PoolReport, n_sequences, S, n_sequences),
     NUMBER(PoolReport, max_length, S, max_length), CLEANED(PoolReport, device, S, device),
     NUMBER(PoolReport, n_cached, S, n_cached), NUMBER(PoolReport, n_pinned, S, n_pinned),
     NUMBER(PoolReport, publishes, S, publishes), CLEANED(PoolReport, model, S, model),
     NUMBER(PoolReport, n_starts, S, n_starts), NUMBER(PoolReport, n_tokens_asked, S, n_tokens_asked),
     NUMBER(PoolReport, n_tokens_found, S, n_tokens_found), NUMBER(PoolReport, n_published, S, n_published),
     NUMBER(PoolReport, n_evicted, S, n_evicted), NUMBER(PoolReport, n_orphaned, S, n_orphaned),
     NUMBER(PoolReport, n_taken, S, n_taken), NUMBER(PoolReport, n_trimmed, S, n_trimmed),
     NUMBER(PoolReport, n_created, S, n_created), NUMBER(PoolReport, n_ended, S, n_ended),
     NUMBER(PoolReport, n_forked, S, n_forked), NUMBER(PoolReport, n_given, S, n_given),
     NUMBER(PoolReport, n_adopted, S, n_adopted), NUMBER(PoolReport, n_cancelled, S, n_cancelled),
     NUMBER(PoolReport, n_expired, S, n_expired), NUMBER(PoolReport, peak_sequences, S, peak_sequences),
     NUMBER(PoolReport, peak_referenced, S, peak_referenced), NUMBER(PoolReport, table_used, S, table_used),
     NUMBER(PoolReport, table_populated, S, table_populated), NUMBER(PoolReport, table_limit, S, table_limit),
     NUMBER(PoolReport, n_displaced, S, n_displaced), NUMBER(PoolReport, n_stopped_removed, S, n_stopped_removed),
     NUMBER(PoolReport, n_stopped_trimmed, S, n_stopped_trimmed),
     NUMBER(PoolReport, n_stopped_other, S, n_stopped_other),
     NUMBER(PoolReport, n_stopped_bucket, S, n_stopped_bucket));
#undef S

#define S struct paged_session_entry
TYPE(session_report, session_report, S, NUMBER(SessionReport, session, S, session),
     NUMBER(SessionReport, member, S, member), NUMBER(SessionReport, first, S, first),
     NUMBER(SessionReport, ended, S, ended), NUMBER(SessionReport, pid, S, pid), NUMBER(SessionReport, uid, S, uid),
     NUMBER(SessionReport, n_requests, S, n_requests), NUMBER(SessionReport, n_sequences, S, n_sequences),
     NUMBER(SessionReport, n_pages, S, n_pages), NUMBER(SessionReport, n_quarantined, S, n_quarantined),
     CLEANED(SessionReport, name, S, name), NUMBER(SessionReport, draining, S, draining),
     CLEANED(SessionReport, tenant, S, tenant));
#undef S

#define S struct paged_seq_entry
TYPE(sequence_report, sequence_report, S, NUMBER(SequenceReport, seq, S, seq),
     NUMBER(SequenceReport, session, S, session), NUMBER(SequenceReport, pid, S, pid),
     NUMBER(SequenceReport, capacity, S, capacity), NUMBER(SequenceReport, n_pages, S, n_pages),
     NUMBER(SequenceReport, n_trimmed, S, n_trimmed), CLEANED(SequenceReport, name, S, name),
     CLEANED(SequenceReport, tag, S, tag), NUMBER(SequenceReport, state, S, state));
#undef S

#define S struct paged_ticket_entry
TYPE(ticket_report, ticket_report, S, NUMBER(TicketReport, number, S, number),
     NUMBER(TicketReport, session, S, session), NUMBER(TicketReport, ended, S, ended),
     NUMBER(TicketReport, pool, S, pool), NUMBER(TicketReport, n_sequences, S, n_sequences),
     NUMBER(TicketReport, n_pages, S, n_pages), NUMBER(TicketReport, n_tokens, S, n_tokens),
     NUMBER(TicketReport, expires_ms, S, expires_ms), NUMBER(TicketReport, flags, S, flags),
     NUMBER(TicketReport, to_session, S, to_session), NUMBER(TicketReport, to_uid, S, to_uid));
#undef S

#define S struct paged_quota_entry
TYPE(quota_report, quota_report, S, CLEANED(QuotaReport, tenant, S, tenant), NUMBER(QuotaReport, pool, S, pool),
     NUMBER(QuotaReport, n_charged, S, n_charged), NUMBER(QuotaReport, limited, S, limited),
     NUMBER(QuotaReport, limit, S, limit), NUMBER(QuotaReport, n_quarantined, S, n_quarantined),
     NUMBER(QuotaReport, n_sequences, S, n_sequences), NUMBER(QuotaReport, max_sequences, S, max_sequences),
     NUMBER(QuotaReport, n_pins, S, n_pins), NUMBER(QuotaReport, max_pins, S, max_pins),
     NUMBER(QuotaReport, n_pin_pages, S, n_pin_pages), NUMBER(QuotaReport, max_pin_pages, S, max_pin_pages),
     NUMBER(QuotaReport, n_sessions, S, n_sessions), NUMBER(QuotaReport, max_sessions, S, max_sessions),
     NUMBER(QuotaReport, n_members, S, n_members), NUMBER(QuotaReport, max_members, S, max_members),
     NUMBER(QuotaReport, n_tickets, S, n_tickets), NUMBER(QuotaReport, max_tickets, S, max_tickets),
     NUMBER(QuotaReport, n_cached, S, n_cached), NUMBER(QuotaReport, shared, S, shared),
     NUMBER(QuotaReport, cache_share, S, cache_share), NUMBER(QuotaReport, table_used, S, table_used),
     NUMBER(QuotaReport, table_limit, S, table_limit));
#undef S

#define S struct paged_pin_entry
TYPE(pin_report, pin_report, S, NUMBER(PinReport, number, S, number), NUMBER(PinReport, serial, S, serial),
     NUMBER(PinReport, page, S, page), NUMBER(PinReport, n_pages, S, n_pages), NUMBER(PinReport, n_tokens, S, n_tokens),
     NUMBER(PinReport, expires_s, S, expires_s), NUMBER(PinReport, session, S, session), NUMBER(PinReport, uid, S, uid),
     NUMBER(PinReport, pid, S, pid), CLEANED(PinReport, tenant, S, tenant));
#undef S

#define S struct paged_node_entry
TYPE(node_report, node_report, S, NUMBER(NodeReport, page, S, page), NUMBER(NodeReport, serial, S, serial),
     NUMBER(NodeReport, parent, S, parent), NUMBER(NodeReport, parent_serial, S, parent_serial),
     NUMBER(NodeReport, n_references, S, n_references), NUMBER(NodeReport, used_s, S, used_s),
     NUMBER(NodeReport, hits, S, hits), NUMBER(NodeReport, pinned, S, pinned));
#undef S

#define S struct paged_histogram
TYPE(histogram, histogram, S, NUMBER(Histogram, sum_ns, S, sum_ns), ARRAY(Histogram, count, S, counts, n_buckets, 0));
#undef S

#define S struct paged_request_entry
TYPE(request_report, request_report, S, TEXT(RequestReport, name, S, name),
     ARRAY(RequestReport, reply, S, n_replies, n_statuses, 0), STRUCT(RequestReport, latency, S, latency, histogram),
     NUMBER(RequestReport, most_visited, S, most_visited));
#undef S

#define S struct wire_reply

TYPE(ids, seq_ids, S, COLUMN(SeqIds, seq, S, ids.seq, ids.n, 0, PAGED_MAX_REQUEST_SEQS, WIRE_FIRST));
TYPE(status_report, status_report, S, TEXT(StatusReport, version, S, status_report.version),
     NUMBER(StatusReport, uptime_ms, S, status_report.uptime_ms),
     NUMBER(StatusReport, n_requests, S, status_report.n_requests),
     NUMBER(StatusReport, n_sessions, S, status_report.n_sessions),
     NUMBER(StatusReport, n_pools, S, status_report.n_pools), NUMBER(StatusReport, pid, S, status_report.pid),
     NUMBER(StatusReport, stopping, S, status_report.stopping));
TYPE(pools, pools, S, STRUCTS(Pools, pool, S, pools.report, pools.n, pool_report, 0, WIRE_LIST_MAX));
TYPE(sessions, sessions, S,
     STRUCTS(Sessions, session, S, sessions.report, sessions.n, session_report, 0, WIRE_LIST_MAX),
     NUMBER(Sessions, more, S, sessions.more));
TYPE(sequences, sequences, S,
     STRUCTS(Sequences, sequence, S, sequences.report, sequences.n, sequence_report, 0, WIRE_LIST_MAX),
     NUMBER(Sequences, next_slot, S, sequences.next_slot), NUMBER(Sequences, more, S, sequences.more));
TYPE(table, table, S, STRUCT(Table, sequence, S, table.sequence, sequence_report),
     COLUMN(Table, page, S, table.page, table.n, 0, WIRE_TABLE_MAX, WIRE_FIRST), NUMBER(Table, more, S, table.more));
TYPE(check_result, check_result, S, NUMBER(CheckResult, n_pages, S, check_result.n_pages),
     NUMBER(CheckResult, n_free, S, check_result.n_free),
     NUMBER(CheckResult, n_referenced, S, check_result.n_referenced),
     NUMBER(CheckResult, n_cached, S, check_result.n_cached),
     NUMBER(CheckResult, n_quarantined, S, check_result.n_quarantined),
     NUMBER(CheckResult, n_sequences, S, check_result.n_sequences), NUMBER(CheckResult, holds, S, check_result.holds),
     CLEANED(CheckResult, text, S, check_result.text));
TYPE(mask, mask, S, COLUMN(Mask, value, S, mask.values, mask.n, 0, MASK_PART_MAX, WIRE_FIRST),
     NUMBER(Mask, cut, S, mask.list_continues), NUMBER(Mask, arrays, S, mask.arrays));
TYPE(handle, handle, S, BYTES(Handle, handle, S, handle.bytes, 0), NUMBER(Handle, offset, S, handle.offset),
     NUMBER(Handle, generation, S, handle.generation), BYTES(Handle, device, S, handle.device, 0));

TYPE(published, published, S,
     COLUMN(Published, n_pages, S, published.n_pages, published.n, 0, WIRE_MAX_PUBLISHES, WIRE_FIRST),
     COLUMN(Published, end, S, published.ends, published.n, 0, WIRE_MAX_PUBLISHES, WIRE_ALIKE));
TYPE(pinned, pinned, S, NUMBER(Pinned, n_pages, S, pinned.n_pages));
TYPE(evicted, evicted, S, NUMBER(Evicted, n_pages, S, evicted.n_pages), NUMBER(Evicted, more, S, evicted.more));
TYPE(prefixes, prefixes, S, STRUCTS(Prefixes, node, S, prefixes.report, prefixes.n, node_report, 0, WIRE_LIST_MAX),
     NUMBER(Prefixes, next_page, S, prefixes.next_page), NUMBER(Prefixes, more, S, prefixes.more));
TYPE(ticket, ticket, S, BYTES(Ticket, ticket, S, ticket.bytes, 0));
#define ADOPTED(f, o, how) \
	COLUMN_OF(Adopted, f, S, adopted.items, adopted.n, struct paged_seq_item, o, 0, PAGED_MAX_REQUEST_SEQS, how)
TYPE(adopted, adopted, S, ADOPTED(seq, seq, WIRE_FIRST), ADOPTED(length, n_tokens, 0));
TYPE(tickets, tickets, S, STRUCTS(Tickets, ticket, S, tickets.report, tickets.n, ticket_report, 0, WIRE_LIST_MAX),
     NUMBER(Tickets, more, S, tickets.more));
TYPE(quotas, quotas, S, STRUCTS(Quotas, quota, S, quotas.report, quotas.n, quota_report, 0, WIRE_LIST_MAX),
     NUMBER(Quotas, more, S, quotas.more), NUMBER(Quotas, next, S, quotas.next));
TYPE(pins, pins, S, STRUCTS(Pins, pin, S, pins.report, pins.n, pin_report, 0, WIRE_LIST_MAX),
     NUMBER(Pins, more, S, pins.more));
TYPE(metrics, metrics, S, NUMBER(Metrics, uptime_ms, S, metrics.daemon.uptime_ms),
     NUMBER(Metrics, n_requests, S, metrics.daemon.n_requests), NUMBER(Metrics, n_dropped, S, metrics.daemon.n_dropped),
     NUMBER(Metrics, n_attached, S, metrics.daemon.n_attached), NUMBER(Metrics, n_died, S, metrics.daemon.n_died),
     NUMBER(Metrics, n_opened, S, metrics.daemon.n_opened), NUMBER(Metrics, n_members, S, metrics.daemon.n_members),
     NUMBER(Metrics, n_sessions, S, metrics.daemon.n_sessions),
     STRUCT(Metrics, turns, S, metrics.daemon.turns, histogram),
     STRUCTS(Metrics, request, S, metrics.requests, metrics.n, request_report, 0, WIRE_KINDS_MAX),
     NUMBER(Metrics, longest_turn_ns, S, metrics.daemon.longest_turn_ns));
TYPE(log_level, log_level, S, NUMBER(LogLevel, was, S, log_level.was));
TYPE(shortage, shortage, S, NUMBER(Shortage, pool, S, shortage.pool),
     NUMBER(Shortage, pages_missing, S, shortage.pages_missing),
     NUMBER(Shortage, slots_missing, S, shortage.slots_missing), NUMBER(Shortage, n_requested, S, shortage.n_requested),
     NUMBER(Shortage, n_free, S, shortage.n_free), NUMBER(Shortage, n_cached, S, shortage.n_cached),
     NUMBER(Shortage, n_referenced, S, shortage.n_others), NUMBER(Shortage, n_quarantined, S, shortage.n_quarantined),
     NUMBER(Shortage, n_promised, S, shortage.n_promised));

/* WIRE_REPLY_EMPTY has no body. */
static const struct wire_body reply_bodies[] = {
	[WIRE_REPLY_IDS] = { PAGED__V1__REPLY__BODY_IDS, &ids },
	[WIRE_REPLY_STATUS] = { PAGED__V1__REPLY__BODY_STATUS_REPORT, &status_report },
	[WIRE_REPLY_POOLS] = { PAGED__V1__REPLY__BODY_POOLS, &pools },
	[WIRE_REPLY_SESSIONS] = { PAGED__V1__REPLY__BODY_SESSIONS, &sessions },
	[WIRE_REPLY_SEQUENCES] = { PAGED__V1__REPLY__BODY_SEQUENCES, &sequences },
	[WIRE_REPLY_TABLE] = { PAGED__V1__REPLY__BODY_TABLE, &table },
	[WIRE_REPLY_CHECK_RESULT] = { PAGED__V1__REPLY__BODY_CHECK_RESULT, &check_result },
	[WIRE_REPLY_MASK] = { PAGED__V1__REPLY__BODY_MASK, &mask },
	[WIRE_REPLY_HANDLE] = { PAGED__V1__REPLY__BODY_HANDLE, &handle },
	[WIRE_REPLY_PUBLISHED] = { PAGED__V1__REPLY__BODY_PUBLISHED, &published },
	[WIRE_REPLY_PINNED] = { PAGED__V1__REPLY__BODY_PINNED, &pinned },
	[WIRE_REPLY_EVICTED] = { PAGED__V1__REPLY__BODY_EVICTED, &evicted },
	[WIRE_REPLY_PREFIXES] = { PAGED__V1__REPLY__BODY_PREFIXES, &prefixes },
	[WIRE_REPLY_TICKET] = { PAGED__V1__REPLY__BODY_TICKET, &ticket },
	[WIRE_REPLY_ADOPTED] = { PAGED__V1__REPLY__BODY_ADOPTED, &adopted },
	[WIRE_REPLY_TICKETS] = { PAGED__V1__REPLY__BODY_TICKETS, &tickets },
	[WIRE_REPLY_QUOTAS] = { PAGED__V1__REPLY__BODY_QUOTAS, &quotas },
	[WIRE_REPLY_METRICS] = { PAGED__V1__REPLY__BODY_METRICS, &metrics },
	[WIRE_REPLY_LOG_LEVEL] = { PAGED__V1__REPLY__BODY_LOG_LEVEL, &log_level },
	[WIRE_REPLY_PINS] = { PAGED__V1__REPLY__BODY_PINS, &pins },
	[WIRE_REPLY_SHORTAGE] = { PAGED__V1__REPLY__BODY_SHORTAGE, &shortage },
};
TYPE(reply, reply, S, NUMBER(Reply, id, S, id), NUMBER(Reply, status, S, status),
     STRING(Reply, text, S, text, WIRE_MAX_TEXT, WIRE_RAW));
const struct wire_envelope wire_replies = ENVELOPE(Reply, ids, S, reply, reply_bodies);

#undef S
/* clang-format on */
