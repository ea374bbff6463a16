/* SPDX-License-Identifier: Apache-2.0 */
/* The commands that show: status, pools, sessions, sequences, table. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/ctl.h"
#include "client/ctl/json.h"
#include "client/ctl/print.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Name and value stay together. */
/* clang-format off */
static json_t *
json_of_pool(const struct paged_pool_entry *pool)
{
	return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:s, s:I, s:I, s:I, s:o}",
			 "name", pool->name, "backend", pool->backend, "memory", pool->memory,
			 "page_bytes", (json_int_t)pool->page_bytes, "size", (json_int_t)pool->size,
			 "pages", (json_int_t)pool->n_pages, "free", (json_int_t)pool->n_free,
			 "referenced", (json_int_t)pool->n_referenced, "quarantined", (json_int_t)pool->n_quarantined,
			 "page_size", (json_int_t)pool->page_size, "layers", (json_int_t)pool->n_layers,
			 "kv_heads", (json_int_t)pool->n_kv_heads, "k_dim", (json_int_t)pool->k_dim,
			 "v_dim", (json_int_t)pool->v_dim, "v_in_k", (int)pool->v_in_k,
			 "dtype", print_dtype(pool->dtype), "slots", (json_int_t)pool->n_slots,
			 "sequences", (json_int_t)pool->n_sequences, "max_length", (json_int_t)pool->max_length,
			 "device", pool->device[0] != '\0' ? json_string(pool->device) : json_null());
}
/* clang-format on */

static json_t *
json_of_pools(const struct paged_pool_entry *pools, size_t n)
{
	json_t *array = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(array, json_of_pool(&pools[i]));
	return array;
}

static void
status_print(const struct paged_daemon_info *info, const struct paged_pool_entry *pools, size_t n)
{
	static const struct print_column columns[] = { { "POOL", PRINT_LEFT },       { "BACKEND", PRINT_LEFT },
						       { "PAGE", PRINT_LEFT },       { "PAGES", PRINT_RIGHT },
						       { "FREE", PRINT_RIGHT },      { "IN USE", PRINT_RIGHT },
						       { "QUARANTINE", PRINT_RIGHT } };
	struct print_table table;
	char text[PRINT_SMALL];

	printf("pagedd %s, up %s, %" PRIu32 " %s, boot %.8s%s\n", info->version, print_duration(text, info->uptime_ms),
	       info->n_sessions, print_plural(info->n_sessions, "session", "sessions"), info->boot_id,
	       info->stopping ? ", stopping" : "");
	print_table_init(&table, columns, COUNT(columns));
	for (size_t i = 0; i < n; i++) {
		print_cell(&table, "%s", pools[i].name);
		print_cell(&table, "%s", pools[i].backend);
		print_cell(&table, "%s", print_bytes(text, pools[i].page_bytes));
		print_cell(&table, "%" PRIu32, pools[i].n_pages);
		print_cell(&table, "%" PRIu32, pools[i].n_free);
		print_cell(&table, "%" PRIu32, pools[i].n_referenced);
		print_cell(&table, "%" PRIu32, pools[i].n_quarantined);
	}
	print_table_finish(&table);
}

enum ctl_exit
ctl_status(struct ctl *ctl)
{
	struct paged_daemon_info info;
	struct paged_pool_entry *pools = NULL;
	enum paged_status status = paged_admin_status(ctl->client, &info);
	size_t n = 0;

	if (status == PAGED_OK)
		status = paged_admin_pools(ctl->client, &pools, &n);
	if (status != PAGED_OK)
		return ctl_fail(ctl, status);
	if (ctl->json)
		json_print(json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:b, s:o}", "version", info.version, "boot_id",
				     info.boot_id, "uptime_ms", (json_int_t)info.uptime_ms, "requests",
				     (json_int_t)info.n_requests, "sessions", (json_int_t)info.n_sessions, "pid",
				     (json_int_t)info.pid, "stopping", (int)info.stopping, "pools",
				     json_of_pools(pools, n)));
	else
		status_print(&info, pools, n);
	paged_free(pools);
	return CTL_OK;
}

/* A column of its own where a pool has one. */
static bool
any_device(const struct paged_pool_entry *pools, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (pools[i].device[0] != '\0')
			return true;
	return false;
}

static void
pools_print(const struct paged_pool_entry *pools, size_t n)
{
	static const struct print_column columns[] = {
		{ "POOL", PRINT_LEFT },        { "SIZE", PRINT_LEFT },       { "MEMORY", PRINT_LEFT },
		{ "DTYPE", PRINT_LEFT },       { "LAYERS", PRINT_RIGHT },    { "KV HEADS", PRINT_RIGHT },
		{ "K DIM", PRINT_RIGHT },      { "V DIM", PRINT_RIGHT },     { "TOKENS/PAGE", PRINT_RIGHT },
		{ "MAX LENGTH", PRINT_RIGHT }, { "SEQUENCES", PRINT_RIGHT }, { "SLOTS", PRINT_RIGHT },
		{ "DEVICE", PRINT_LEFT },
	};
	bool with_device = any_device(pools, n);
	struct print_table table;
	char text[PRINT_SMALL];

	print_table_init(&table, columns, COUNT(columns) - !with_device);
	for (size_t i = 0; i < n; i++) {
		print_cell(&table, "%s", pools[i].name);
		print_cell(&table, "%s", print_bytes(text, pools[i].size));
		print_cell(&table, "%s", pools[i].memory);
		print_cell(&table, "%s", print_dtype(pools[i].dtype));
		print_cell(&table, "%" PRIu32, pools[i].n_layers);
		print_cell(&table, "%" PRIu32, pools[i].n_kv_heads);
		print_cell(&table, "%" PRIu32, pools[i].k_dim);
		print_cell(&table, "%" PRIu32 "%s", pools[i].v_dim, pools[i].v_in_k ? " of K" : "");
		print_cell(&table, "%" PRIu32, pools[i].page_size);
		print_cell(&table, "%" PRIu32, pools[i].max_length);
		print_cell(&table, "%" PRIu32, pools[i].n_sequences);
		print_cell(&table, "%" PRIu32, pools[i].n_slots);
		if (with_device)
			print_cell(&table, "%s", pools[i].device[0] != '\0' ? pools[i].device : "-");
	}
	print_table_finish(&table);
}

enum ctl_exit
ctl_pools(struct ctl *ctl)
{
	struct paged_pool_entry *pools;
	size_t n;
	enum paged_status status = paged_admin_pools(ctl->client, &pools, &n);

	if (status != PAGED_OK)
		return ctl_fail(ctl, status);
	if (ctl->json)
		json_print(json_of_pools(pools, n));
	else
		pools_print(pools, n);
	paged_free(pools);
	return CTL_OK;
}

static json_t *
json_of_sessions(const struct paged_session_entry *list, size_t n)
{
	json_t *array = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(
			array,
			json_pack("{s:I, s:I, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "session",
				  (json_int_t)list[i].session, "member", (json_int_t)list[i].member, "first",
				  (int)list[i].first, "ended", (int)list[i].ended, "pid", (json_int_t)list[i].pid,
				  "uid", (json_int_t)list[i].uid, "requests", (json_int_t)list[i].n_requests,
				  "sequences", (json_int_t)list[i].n_sequences, "pages", (json_int_t)list[i].n_pages,
				  "quarantined", (json_int_t)list[i].n_quarantined, "name", list[i].name));
	return array;
}

/* "llama (81233)" */
static void
print_worker(struct print_table *table, const char *name, uint32_t pid)
{
	if (pid != 0)
		print_cell(table, "%s (%" PRIu32 ")", name, pid);
	else
		print_cell(table, "%s (gone)", name);
}

static void
sessions_print(const struct paged_session_entry *list, size_t n)
{
	static const struct print_column columns[] = {
		{ "SESSION", PRINT_RIGHT },   { "WORKER", PRINT_LEFT }, { "ROLE", PRINT_LEFT },
		{ "STATE", PRINT_LEFT },      { "UID", PRINT_RIGHT },   { "REQUESTS", PRINT_RIGHT },
		{ "SEQUENCES", PRINT_RIGHT }, { "PAGES", PRINT_RIGHT }, { "QUARANTINE", PRINT_RIGHT },
	};
	struct print_table table;

	print_table_init(&table, columns, COUNT(columns));
	for (size_t i = 0; i < n; i++) {
		print_cell(&table, "%" PRIu32, list[i].session);
		print_worker(&table, list[i].name, list[i].pid);
		print_cell(&table, "%s", list[i].first ? "first" : list[i].member != 0 ? "member" : "");
		print_cell(&table, "%s", list[i].ended ? "ended" : "active");
		print_cell(&table, "%" PRIu32, list[i].uid);
		print_cell(&table, "%" PRIu64, list[i].n_requests);
		print_cell(&table, "%" PRIu32, list[i].n_sequences);
		print_cell(&table, "%" PRIu32, list[i].n_pages);
		print_cell(&table, "%" PRIu32, list[i].n_quarantined);
	}
	print_table_finish(&table);
}

enum ctl_exit
ctl_sessions(struct ctl *ctl)
{
	struct paged_session_entry *list;
	size_t n;
	enum paged_status status = paged_admin_sessions(ctl->client, &list, &n);

	if (status != PAGED_OK)
		return ctl_fail(ctl, status);
	if (ctl->json)
		json_print(json_of_sessions(list, n));
	else
		sessions_print(list, n);
	paged_free(list);
	return CTL_OK;
}

static json_t *
json_of_sequence(const char *pool, const struct paged_seq_entry *entry)
{
	char text[PRINT_SMALL];

	return json_pack("{s:s, s:s, s:I, s:I, s:o, s:I, s:I, s:s}", "pool", pool, "sequence",
			 print_seq(text, entry->seq), "session", (json_int_t)entry->session, "pid",
			 (json_int_t)entry->pid, "length",
			 entry->length == 0 ? json_null() : json_integer((json_int_t)entry->length), "capacity",
			 (json_int_t)entry->capacity, "pages", (json_int_t)entry->n_pages, "name", entry->name);
}

/* Into the document, or into the table. */
static enum paged_status
sequences_add(struct ctl *ctl, const char *pool, bool name_pool, json_t *document, struct print_table *table)
{
	struct paged_seq_entry *list;
	char text[PRINT_SMALL];
	size_t n;
	enum paged_status status = paged_admin_sequences(ctl->client, pool, &list, &n);

	if (status != PAGED_OK)
		return status;
	for (size_t i = 0; i < n; i++) {
		if (ctl->json) {
			json_array_append_new(document, json_of_sequence(pool, &list[i]));
			continue;
		}
		if (name_pool)
			print_cell(table, "%s", pool);
		print_cell(table, "%s", print_seq(text, list[i].seq));
		print_cell(table, "%" PRIu32, list[i].session);
		print_worker(table, list[i].name, list[i].pid);
		print_cell(table, "%s", print_length(text, list[i].length));
		print_cell(table, "%" PRIu32, list[i].capacity);
		print_cell(table, "%" PRIu32, list[i].n_pages);
	}
	paged_free(list);
	return PAGED_OK;
}

enum ctl_exit
ctl_sequences(struct ctl *ctl)
{
	static const struct print_column columns[] = { { "POOL", PRINT_LEFT },     { "SEQUENCE", PRINT_LEFT },
						       { "SESSION", PRINT_RIGHT }, { "WORKER", PRINT_LEFT },
						       { "LENGTH", PRINT_RIGHT },  { "CAPACITY", PRINT_RIGHT },
						       { "PAGES", PRINT_RIGHT } };
	struct paged_pool_entry *pools = NULL;
	json_t *document = json_array();
	struct print_table table;
	enum paged_status status = PAGED_OK;
	size_t n = 0;
	bool name_pool;

	if (ctl->pool == NULL)
		status = paged_admin_pools(ctl->client, &pools, &n);
	/* One pool needs no column for its name. */
	name_pool = n > 1;
	print_table_init(&table, name_pool ? columns : columns + 1, COUNT(columns) - !name_pool);
	if (status == PAGED_OK && ctl->pool != NULL)
		status = sequences_add(ctl, ctl->pool, false, document, &table);
	for (size_t i = 0; status == PAGED_OK && i < n; i++) {
		status = sequences_add(ctl, pools[i].name, name_pool, document, &table);
		/* One pool that is not this user's does not hide the others. */
		if (status == PAGED_ERR_PERM) {
			fprintf(stderr, "pagedctl: left out: %s\n", paged_client_error(ctl->client));
			status = PAGED_OK;
		}
	}
	if (status == PAGED_OK && ctl->json)
		json_print(json_incref(document));
	if (status == PAGED_OK && !ctl->json)
		print_table_finish(&table);
	json_decref(document);
	paged_free(pools);
	return status == PAGED_OK ? CTL_OK : ctl_fail(ctl, status);
}

/* The pool that a sequence id is of: named, or the only one. */
static enum ctl_exit
pool_choose(struct ctl *ctl, char name[PAGED_MAX_NAME + 1])
{
	struct paged_pool_entry *pools;
	enum paged_status status;
	size_t n;

	if (ctl->pool != NULL) {
		snprintf(name, PAGED_MAX_NAME + 1, "%s", ctl->pool);
		return CTL_OK;
	}
	status = paged_admin_pools(ctl->client, &pools, &n);
	if (status != PAGED_OK)
		return ctl_fail(ctl, status);
	if (n == 1)
		memcpy(name, pools[0].name, PAGED_MAX_NAME + 1);
	paged_free(pools);
	return n == 1 ? CTL_OK : ctl_usage("there are %zu pools: name one by --pool", n);
}

static bool
seq_parse(const char *text, paged_seq_id *id_p)
{
	unsigned long long slot, generation;
	char *end;

	errno = 0;
	slot = strtoull(text, &end, 10);
	if (errno != 0 || end == text || text[0] == '-' || *end != '.' || slot > UINT32_MAX)
		return false;
	text = end + 1;
	generation = strtoull(text, &end, 10);
	if (errno != 0 || end == text || text[0] == '-' || *end != '\0' || generation > UINT32_MAX)
		return false;
	*id_p = (uint64_t)generation << 32 | slot;
	return true;
}

static void
row_print(const struct paged_seq_entry *entry, const uint32_t *pages, size_t n)
{
	char text[PRINT_SMALL], length[PRINT_SMALL];

	printf("sequence %s of session %" PRIu32 ", %s (%" PRIu32 "): length %s, capacity %" PRIu32 ", %zu %s\n",
	       print_seq(text, entry->seq), entry->session, entry->name, entry->pid,
	       print_length(length, entry->length), entry->capacity, n, print_plural(n, "page", "pages"));
	for (size_t i = 0; i < n; i++) {
		if (i % 8 == 0)
			printf("%s%6zu:", i > 0 ? "\n" : "", i);
		printf(" %9" PRIu32, pages[i]);
	}
	if (n > 0)
		printf("\n");
}

enum ctl_exit
ctl_table(struct ctl *ctl)
{
	char pool[PAGED_MAX_NAME + 1];
	struct paged_seq_entry entry;
	enum paged_status status;
	enum ctl_exit code;
	paged_seq_id id;
	uint32_t *pages;
	size_t n;

	if (!seq_parse(ctl->operand, &id))
		return ctl_usage("%s is no sequence; one looks like 12.1", ctl->operand);
	code = pool_choose(ctl, pool);
	if (code != CTL_OK)
		return code;
	status = paged_admin_table(ctl->client, pool, id, &entry, &pages, &n);
	if (status != PAGED_OK)
		return ctl_fail(ctl, status);
	if (ctl->json) {
		json_t *document = json_of_sequence(pool, &entry), *array = json_array();

		for (size_t i = 0; i < n; i++)
			json_array_append_new(array, json_integer(pages[i]));
		json_object_set_new(document, "table", array);
		json_print(document);
	} else {
		row_print(&entry, pages, n);
	}
	paged_free(pages);
	return CTL_OK;
}
