/* SPDX-License-Identifier: Apache-2.0 */
/* Structs to named tuples and dicts. */
#include "python/ext/ext.h"

#include <stddef.h>

/* ------------------------------------------------------- named tuples */

static PyObject *sequence_class, *counts_class, *started_class, *adopted_class, *check_class, *named_mod_class;
static PyObject *change_class, *node_class, *block_key_class, *watch_info_class;

static const struct report_class {
	PyObject **class;
	const char *name, *fields, *doc;
} report_classes[] = {
	{ &sequence_class, "SequenceInfo",
	  "owner capacity writable_from n_pages version published n_trimmed frozen "
	  "hold publish_end",
	  "A sequence, as Pool.read() returns it.\n\n"
	  "owner          session id\n"
	  "capacity       tokens\n"
	  "writable_from  first token that can be written; those before are shared or published\n"
	  "n_pages        pages of its page table\n"
	  "version        changes when page table entries are replaced or removed, or a truncate\n"
	  "               ends inside a page; not when the table grows\n"
	  "published      tokens that other sequences can share\n"
	  "n_trimmed      of n_pages, those at the beginning that were given back\n"
	  "frozen         True: given away, it can be read only\n"
	  "hold           True: of Pool.hold(), it can be erased only\n"
	  "publish_end    why not all of the last publish is published: paged.PUBLISH_DONE, all is, or\n"
	  "               PUBLISH_REMOVED, PUBLISH_TRIMMED, PUBLISH_OTHER, PUBLISH_BUCKET (paged_sharing(3))" },
	{ &counts_class, "PoolCounts", "n_pages n_free n_referenced n_quarantined n_cached",
	  "Pages of a pool by state; the last four add up to n_pages.\n\n"
	  "n_referenced   in sequences\n"
	  "n_quarantined  of ended sessions, whose processes may still write to them\n"
	  "n_cached       published, and in no sequence: a reserve may evict them" },
	{ &started_class, "Started", "seq n_shared",
	  "A sequence that Pool.start() created, and the number of tokens that it shares." },
	{ &adopted_class, "Adopted", "seq length",
	  "A sequence that Pool.adopt() took over, and its written tokens as the giver passed them." },
	{ &check_class, "CheckResult", "holds text n_pages n_free n_referenced n_cached n_quarantined n_sequences",
	  "Result of a check of a pool's page accounting.\n\n"
	  "holds  the totals add up and the reference count of every page is right\n"
	  "text   the first error found; \"\": none\n\n"
	  "The other fields are the counts, as in PoolCounts, and the number of live sequences." },
	{ &named_mod_class, "NamedMod", "name arguments text",
	  "A ready-made mod.\n\n"
	  "arguments  such as \"window\"; when omitted in a text, parameters of these names\n"
	  "           are used\n"
	  "text       what the name stands for" },
	{ &change_class, "Change", "number kind page serial hash",
	  "A change of the index of published pages, as Watch.next() returns it.\n\n"
	  "number  of the change, from 1 on, without gaps\n"
	  "kind    CHANGE_STORED, CHANGE_REMOVED, or CHANGE_CLEARED: all nodes were removed, page\n"
	  "        and serial are 0.  Ignore others\n"
	  "serial  of the node: identifies this publication of the page for ever\n"
	  "hash    of the node's prefix, seeded by the pool: equal prefixes have equal hashes,\n"
	  "        others may" },
	{ &node_class, "Node", "page serial parent parent_serial hash hits",
	  "A published page, as Watch.walk() returns it.\n\n"
	  "serial, hash   as in Change\n"
	  "parent         the page before it in its prefix; None: it is the first one\n"
	  "parent_serial  of that page's node; 0: it is the first one\n"
	  "hits           sequences that were started on it" },
	{ &block_key_class, "BlockKey", "parent parent_serial tokens extra keyed",
	  "What a published page holds, as Watch.read() returns it.\n\n"
	  "parent, parent_serial  as in Node\n"
	  "tokens                 list of token ids; None: not known, of a Prefix by keys\n"
	  "extra                  32 bytes: a hash of salt and extras, zeros: none; keyed: the key\n"
	  "keyed                  True: the key is extra alone, of a Prefix by keys; tokens are\n"
	  "                       with it" },
	{ &watch_info_class, "WatchInfo", "position n_behind n_lost",
	  "Where a watch stands, as Watch.info() returns it.\n\n"
	  "position  number of the change that it has read last\n"
	  "n_behind  changes made since then\n"
	  "n_lost    changes that it has lost in all" },
};

static int
report_add_class(PyObject *module, PyObject *factory, const struct report_class *report)
{
	PyObject *arguments = Py_BuildValue("(ss)", report->name, report->fields);
	PyObject *keywords = Py_BuildValue("{ss}", "module", "paged");
	PyObject *doc = PyUnicode_FromString(report->doc);
	int result = -1;

	if (arguments != NULL && keywords != NULL && doc != NULL)
		*report->class = PyObject_Call(factory, arguments, keywords);
	if (*report->class != NULL && PyObject_SetAttrString(*report->class, "__doc__", doc) == 0)
		result = PyModule_AddObjectRef(module, report->name, *report->class);
	Py_XDECREF(arguments);
	Py_XDECREF(keywords);
	Py_XDECREF(doc);
	return result;
}

int
reports_add(PyObject *module)
{
	PyObject *collections = PyImport_ImportModule("collections");
	PyObject *factory = collections != NULL ? PyObject_GetAttrString(collections, "namedtuple") : NULL;
	int result = factory != NULL ? 0 : -1;

	for (size_t i = 0; result == 0 && i < sizeof(report_classes) / sizeof(report_classes[0]); i++)
		result = report_add_class(module, factory, &report_classes[i]);
	Py_XDECREF(factory);
	Py_XDECREF(collections);
	return result;
}

/* A named tuple of the values, as its _make() does but without Python code.  Takes over the reference to values. */
static PyObject *
report_tuple(PyObject *class, PyObject *values)
{
	newfunc new_tuple = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
	PyObject *arguments = values != NULL ? PyTuple_Pack(1, values) : NULL;
	PyObject *result = arguments != NULL ? new_tuple((PyTypeObject *)class, arguments, NULL) : NULL;

	Py_XDECREF(values);
	Py_XDECREF(arguments);
	return result;
}

PyObject *
report_counts(const struct paged_pool_counts *counts)
{
	return report_tuple(counts_class, Py_BuildValue("IIIII", counts->n_pages, counts->n_free, counts->n_referenced,
							counts->n_quarantined, counts->n_cached));
}

PyObject *
report_sequence(const struct paged_seq_info *info)
{
	return report_tuple(sequence_class,
			    Py_BuildValue("IIIIKIINNI", info->owner, info->capacity, info->writable_from, info->n_pages,
					  (unsigned long long)info->version, info->published, info->n_trimmed,
					  PyBool_FromLong((long)info->frozen), PyBool_FromLong((long)info->hold),
					  info->publish_end));
}

PyObject *
report_check(const struct paged_check_result *result)
{
	return report_tuple(check_class, Py_BuildValue("OsIIIIII", result->holds ? Py_True : Py_False, result->text,
						       result->n_pages, result->n_free, result->n_referenced,
						       result->n_cached, result->n_quarantined, result->n_sequences));
}

PyObject *
report_started(paged_seq_id seq, uint32_t n_shared)
{
	return report_tuple(started_class, Py_BuildValue("KI", (unsigned long long)seq, n_shared));
}

PyObject *
report_adopted(paged_seq_id seq, uint32_t length)
{
	return report_tuple(adopted_class, Py_BuildValue("KI", (unsigned long long)seq, length));
}

PyObject *
report_named_mod(const struct paged_named_mod *mod)
{
	return report_tuple(named_mod_class, Py_BuildValue("sss", mod->name, mod->arguments, mod->text));
}

PyObject *
report_change(const struct paged_change *change)
{
	return report_tuple(change_class,
			    Py_BuildValue("KIIKK", (unsigned long long)change->number, change->kind, change->page,
					  (unsigned long long)change->serial, (unsigned long long)change->hash));
}

/* A new reference; NULL with an exception. */
static PyObject *
parent_page(uint32_t parent)
{
	return parent == UINT32_MAX ? Py_NewRef(Py_None) : PyLong_FromUnsignedLong(parent);
}

PyObject *
report_node_info(const struct paged_node_info *node)
{
	return report_tuple(node_class,
			    Py_BuildValue("IKNKKI", node->page, (unsigned long long)node->serial,
					  parent_page(node->parent), (unsigned long long)node->parent_serial,
					  (unsigned long long)node->hash, node->hits));
}

PyObject *
report_block_key(const struct paged_block_key *key, const uint32_t *tokens, size_t n)
{
	PyObject *list = key->has_tokens != 0 ? list_u32(tokens, n) : Py_NewRef(Py_None);

	return report_tuple(block_key_class,
			    Py_BuildValue("NKNy#N", parent_page(key->parent), (unsigned long long)key->parent_serial,
					  list, (const char *)key->extra, (Py_ssize_t)PAGED_DIGEST_SIZE,
					  PyBool_FromLong((long)key->keyed)));
}

PyObject *
report_watch_info(const struct paged_watch_info *info)
{
	return report_tuple(watch_info_class,
			    Py_BuildValue("KKK", (unsigned long long)info->position, (unsigned long long)info->n_behind,
					  (unsigned long long)info->n_lost));
}

/* -------------------------------------------------------------- dicts */

enum report_kind { REPORT_U32, REPORT_U64, REPORT_FLAG, REPORT_TEXT, REPORT_DTYPE, REPORT_PARENT };

struct report_field {
	const char *name;
	uint16_t offset;
	uint8_t kind; /* enum report_kind */
};

static PyObject *
report_value(const void *at, enum report_kind kind)
{
	const uint32_t *number = at;

	switch (kind) {
	case REPORT_U32:
		return PyLong_FromUnsignedLong(*number);
	case REPORT_U64:
		return PyLong_FromUnsignedLongLong(*(const uint64_t *)at);
	case REPORT_FLAG:
		return PyBool_FromLong(*number != 0);
	case REPORT_TEXT:
		return PyUnicode_DecodeUTF8(at, (Py_ssize_t)strlen(at), "replace");
	case REPORT_DTYPE:
		return PyUnicode_FromString(paged_dtype_name((enum paged_dtype) * number));
	case REPORT_PARENT:
		return parent_page(*number);
	}
	Py_UNREACHABLE();
}

static PyObject *
report_dict(const void *report, const struct report_field *fields, size_t n)
{
	PyObject *dict = PyDict_New();

	for (size_t i = 0; dict != NULL && i < n; i++) {
		PyObject *value = report_value((const char *)report + fields[i].offset, fields[i].kind);

		if (value == NULL || PyDict_SetItemString(dict, fields[i].name, value) < 0)
			Py_CLEAR(dict);
		Py_XDECREF(value);
	}
	return dict;
}

#define FIELD(type, field, kind)                                    \
	{                                                           \
#field, offsetof(struct type, field), REPORT_##kind \
	}
#define REPORT(report, fields) report_dict(report, fields, sizeof(fields) / sizeof(fields[0]))

PyObject *
report_daemon(const struct paged_daemon_info *info)
{
	static const struct report_field fields[] = {
		FIELD(paged_daemon_info, version, TEXT),   FIELD(paged_daemon_info, boot_id, TEXT),
		FIELD(paged_daemon_info, uptime_ms, U64),  FIELD(paged_daemon_info, n_requests, U64),
		FIELD(paged_daemon_info, n_sessions, U32), FIELD(paged_daemon_info, n_pools, U32),
		FIELD(paged_daemon_info, pid, U32),        FIELD(paged_daemon_info, stopping, FLAG),
	};

	return REPORT(info, fields);
}

PyObject *
report_totals(const struct paged_pool_totals *totals)
{
	static const struct report_field fields[] = {
		FIELD(paged_pool_totals, n_created, U64),         FIELD(paged_pool_totals, n_ended, U64),
		FIELD(paged_pool_totals, n_forked, U64),          FIELD(paged_pool_totals, n_given, U64),
		FIELD(paged_pool_totals, n_adopted, U64),         FIELD(paged_pool_totals, n_cancelled, U64),
		FIELD(paged_pool_totals, n_expired, U64),         FIELD(paged_pool_totals, n_starts, U64),
		FIELD(paged_pool_totals, n_tokens_asked, U64),    FIELD(paged_pool_totals, n_tokens_found, U64),
		FIELD(paged_pool_totals, n_taken, U64),           FIELD(paged_pool_totals, n_trimmed, U64),
		FIELD(paged_pool_totals, n_published, U64),       FIELD(paged_pool_totals, n_evicted, U64),
		FIELD(paged_pool_totals, n_orphaned, U64),        FIELD(paged_pool_totals, n_sequences, U32),
		FIELD(paged_pool_totals, peak_sequences, U32),    FIELD(paged_pool_totals, peak_referenced, U32),
		FIELD(paged_pool_totals, table_used, U64),        FIELD(paged_pool_totals, table_populated, U64),
		FIELD(paged_pool_totals, table_limit, U64),       FIELD(paged_pool_totals, n_displaced, U64),
		FIELD(paged_pool_totals, n_stopped_removed, U64), FIELD(paged_pool_totals, n_stopped_trimmed, U64),
		FIELD(paged_pool_totals, n_stopped_other, U64),   FIELD(paged_pool_totals, n_stopped_bucket, U64),
	};

	return REPORT(totals, fields);
}

/* Stores a value in a dict and drops the reference; -1: it is NULL, or cannot be stored. */
static int
dict_take(PyObject *dict, const char *name, PyObject *value)
{
	int result = value != NULL ? PyDict_SetItemString(dict, name, value) : -1;

	Py_XDECREF(value);
	return result;
}

/* (sum of the durations in ns, list of (upper bound in ns or None, durations)), without the empty buckets. */
static PyObject *
report_histogram(const struct paged_histogram *histogram)
{
	PyObject *buckets = PyList_New(0);

	for (uint32_t i = 0; buckets != NULL && i < histogram->n_buckets; i++) {
		PyObject *bucket = NULL;

		if (histogram->counts[i] == 0)
			continue;
		if (i + 1 < PAGED_HISTOGRAM_BUCKETS)
			bucket = Py_BuildValue("(KK)", PAGED_BUCKET_NS(i), (unsigned long long)histogram->counts[i]);
		else
			bucket = Py_BuildValue("(OK)", Py_None, (unsigned long long)histogram->counts[i]);
		if (bucket == NULL || PyList_Append(buckets, bucket) < 0)
			Py_CLEAR(buckets);
		Py_XDECREF(bucket);
	}
	return buckets != NULL ? Py_BuildValue("(KN)", (unsigned long long)histogram->sum_ns, buckets) : NULL;
}

/* {"replies": {status: number}, "latency": histogram, "most_visited": number} */
static PyObject *
report_request(const struct paged_request_entry *request)
{
	PyObject *replies = PyDict_New(), *dict = PyDict_New();
	int result = replies != NULL && dict != NULL ? 0 : -1;

	for (uint32_t i = 0; result == 0 && i < request->n_statuses; i++)
		if (request->n_replies[i] != 0)
			result = dict_take(replies, paged_status_name((enum paged_status)i),
					   PyLong_FromUnsignedLongLong(request->n_replies[i]));
	if (result == 0)
		result = PyDict_SetItemString(dict, "replies", replies);
	if (result == 0)
		result = dict_take(dict, "latency", report_histogram(&request->latency));
	if (result == 0)
		result = dict_take(dict, "most_visited", PyLong_FromUnsignedLongLong(request->most_visited));
	Py_XDECREF(replies);
	if (result < 0)
		Py_CLEAR(dict);
	return dict;
}

PyObject *
report_metrics(const struct paged_metrics *metrics, const struct paged_request_entry *requests, size_t n)
{
	static const struct report_field fields[] = {
		FIELD(paged_metrics, uptime_ms, U64),       FIELD(paged_metrics, n_requests, U64),
		FIELD(paged_metrics, n_dropped, U64),       FIELD(paged_metrics, n_attached, U64),
		FIELD(paged_metrics, n_died, U64),          FIELD(paged_metrics, n_opened, U64),
		FIELD(paged_metrics, n_members, U32),       FIELD(paged_metrics, n_sessions, U32),
		FIELD(paged_metrics, longest_turn_ns, U64),
	};
	PyObject *dict = REPORT(metrics, fields), *kinds = PyDict_New();
	int result = dict != NULL && kinds != NULL ? dict_take(dict, "turns", report_histogram(&metrics->turns)) : -1;

	for (size_t i = 0; result == 0 && i < n; i++)
		result = dict_take(kinds, requests[i].name, report_request(&requests[i]));
	if (result == 0)
		result = PyDict_SetItemString(dict, "requests", kinds);
	Py_XDECREF(kinds);
	if (result < 0)
		Py_CLEAR(dict);
	return dict;
}

PyObject *
report_pool(const struct paged_pool_entry *entry)
{
	static const struct report_field fields[] = {
		FIELD(paged_pool_entry, name, TEXT),
		FIELD(paged_pool_entry, backend, TEXT),
		FIELD(paged_pool_entry, page_bytes, U64),
		FIELD(paged_pool_entry, size, U64),
		FIELD(paged_pool_entry, n_pages, U32),
		FIELD(paged_pool_entry, n_free, U32),
		FIELD(paged_pool_entry, n_referenced, U32),
		FIELD(paged_pool_entry, n_cached, U32),
		FIELD(paged_pool_entry, n_quarantined, U32),
		FIELD(paged_pool_entry, n_pinned, U32),
		FIELD(paged_pool_entry, page_size, U32),
		FIELD(paged_pool_entry, n_layers, U32),
		FIELD(paged_pool_entry, n_kv_heads, U32),
		FIELD(paged_pool_entry, k_dim, U32),
		FIELD(paged_pool_entry, v_dim, U32),
		FIELD(paged_pool_entry, v_in_k, FLAG),
		FIELD(paged_pool_entry, dtype, DTYPE),
		FIELD(paged_pool_entry, n_slots, U32),
		FIELD(paged_pool_entry, n_sequences, U32),
		FIELD(paged_pool_entry, max_length, U32),
		FIELD(paged_pool_entry, memory, TEXT),
		FIELD(paged_pool_entry, device, TEXT),
		FIELD(paged_pool_entry, number, U32),
		FIELD(paged_pool_entry, publishes, FLAG),
		FIELD(paged_pool_entry, model, TEXT),
		FIELD(paged_pool_entry, n_starts, U64),
		FIELD(paged_pool_entry, n_tokens_asked, U64),
		FIELD(paged_pool_entry, n_tokens_found, U64),
		FIELD(paged_pool_entry, n_published, U64),
		FIELD(paged_pool_entry, n_evicted, U64),
		FIELD(paged_pool_entry, n_orphaned, U64),
		FIELD(paged_pool_entry, n_taken, U64),
		FIELD(paged_pool_entry, n_trimmed, U64),
		FIELD(paged_pool_entry, n_created, U64),
		FIELD(paged_pool_entry, n_ended, U64),
		FIELD(paged_pool_entry, n_forked, U64),
		FIELD(paged_pool_entry, n_given, U64),
		FIELD(paged_pool_entry, n_adopted, U64),
		FIELD(paged_pool_entry, n_cancelled, U64),
		FIELD(paged_pool_entry, n_expired, U64),
		FIELD(paged_pool_entry, peak_sequences, U32),
		FIELD(paged_pool_entry, peak_referenced, U32),
		FIELD(paged_pool_entry, table_used, U64),
		FIELD(paged_pool_entry, table_populated, U64),
		FIELD(paged_pool_entry, table_limit, U64),
		FIELD(paged_pool_entry, n_displaced, U64),
		FIELD(paged_pool_entry, n_stopped_removed, U64),
		FIELD(paged_pool_entry, n_stopped_trimmed, U64),
		FIELD(paged_pool_entry, n_stopped_other, U64),
		FIELD(paged_pool_entry, n_stopped_bucket, U64),
	};

	return REPORT(entry, fields);
}

PyObject *
report_session(const struct paged_session_entry *entry)
{
	static const struct report_field fields[] = {
		FIELD(paged_session_entry, session, U32),    FIELD(paged_session_entry, member, U32),
		FIELD(paged_session_entry, first, FLAG),     FIELD(paged_session_entry, ended, FLAG),
		FIELD(paged_session_entry, pid, U32),        FIELD(paged_session_entry, uid, U32),
		FIELD(paged_session_entry, n_requests, U64), FIELD(paged_session_entry, n_sequences, U32),
		FIELD(paged_session_entry, n_pages, U32),    FIELD(paged_session_entry, n_quarantined, U32),
		FIELD(paged_session_entry, name, TEXT),      FIELD(paged_session_entry, draining, FLAG),
		FIELD(paged_session_entry, tenant, TEXT),
	};

	return REPORT(entry, fields);
}

PyObject *
report_seq_entry(const struct paged_seq_entry *entry)
{
	static const struct report_field fields[] = {
		FIELD(paged_seq_entry, seq, U64),     FIELD(paged_seq_entry, session, U32),
		FIELD(paged_seq_entry, pid, U32),     FIELD(paged_seq_entry, capacity, U32),
		FIELD(paged_seq_entry, n_pages, U32), FIELD(paged_seq_entry, n_trimmed, U32),
		FIELD(paged_seq_entry, name, TEXT),   FIELD(paged_seq_entry, tag, TEXT),
		FIELD(paged_seq_entry, state, U32),
	};

	return REPORT(entry, fields);
}

PyObject *
report_node(const struct paged_node_entry *entry)
{
	static const struct report_field fields[] = {
		FIELD(paged_node_entry, serial, U64),       FIELD(paged_node_entry, parent_serial, U64),
		FIELD(paged_node_entry, page, U32),         FIELD(paged_node_entry, parent, PARENT),
		FIELD(paged_node_entry, n_references, U32), FIELD(paged_node_entry, used_s, U32),
		FIELD(paged_node_entry, hits, U32),         FIELD(paged_node_entry, pinned, FLAG),
	};

	return REPORT(entry, fields);
}

PyObject *
report_quota(const struct paged_quota_entry *entry)
{
	static const struct report_field fields[] = {
		FIELD(paged_quota_entry, tenant, TEXT),      FIELD(paged_quota_entry, pool, U32),
		FIELD(paged_quota_entry, n_charged, U32),    FIELD(paged_quota_entry, limited, FLAG),
		FIELD(paged_quota_entry, limit, U32),        FIELD(paged_quota_entry, n_quarantined, U32),
		FIELD(paged_quota_entry, n_sequences, U32),  FIELD(paged_quota_entry, max_sequences, U32),
		FIELD(paged_quota_entry, n_pins, U32),       FIELD(paged_quota_entry, max_pins, U32),
		FIELD(paged_quota_entry, n_pin_pages, U32),  FIELD(paged_quota_entry, max_pin_pages, U32),
		FIELD(paged_quota_entry, n_cached, U32),     FIELD(paged_quota_entry, shared, FLAG),
		FIELD(paged_quota_entry, cache_share, U32),  FIELD(paged_quota_entry, table_used, U64),
		FIELD(paged_quota_entry, table_limit, U64),  FIELD(paged_quota_entry, n_sessions, U32),
		FIELD(paged_quota_entry, max_sessions, U32), FIELD(paged_quota_entry, n_members, U32),
		FIELD(paged_quota_entry, max_members, U32),  FIELD(paged_quota_entry, n_tickets, U32),
		FIELD(paged_quota_entry, max_tickets, U32),
	};

	return REPORT(entry, fields);
}

PyObject *
report_pin(const struct paged_pin_entry *entry)
{
	static const struct report_field fields[] = {
		FIELD(paged_pin_entry, number, U64),   FIELD(paged_pin_entry, serial, U64),
		FIELD(paged_pin_entry, page, U32),     FIELD(paged_pin_entry, n_pages, U32),
		FIELD(paged_pin_entry, n_tokens, U64), FIELD(paged_pin_entry, expires_s, U32),
		FIELD(paged_pin_entry, session, U32),  FIELD(paged_pin_entry, uid, U32),
		FIELD(paged_pin_entry, pid, U32),      FIELD(paged_pin_entry, tenant, TEXT),
	};

	return REPORT(entry, fields);
}

PyObject *
report_ticket(const struct paged_ticket_entry *entry)
{
	static const struct report_field fields[] = {
		FIELD(paged_ticket_entry, number, U64),      FIELD(paged_ticket_entry, session, U32),
		FIELD(paged_ticket_entry, ended, FLAG),      FIELD(paged_ticket_entry, pool, U32),
		FIELD(paged_ticket_entry, n_sequences, U32), FIELD(paged_ticket_entry, n_pages, U64),
		FIELD(paged_ticket_entry, n_tokens, U64),    FIELD(paged_ticket_entry, expires_ms, U32),
		FIELD(paged_ticket_entry, flags, U32),       FIELD(paged_ticket_entry, to_session, U32),
		FIELD(paged_ticket_entry, to_uid, U32),
	};

	return REPORT(entry, fields);
}
