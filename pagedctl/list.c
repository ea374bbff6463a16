/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commands that list: status, pools, sessions, sequences, table.  With --json the columns are the keys (print.c).
 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pagedctl/ctl.h"
#include "pagedctl/print.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum ctl_exit
ctl_status(struct ctl *ctl)
{
	static const char *const columns[] = { "POOL",       "BACKEND", "PAGE BYTES",  "PAGES",    "FREE",
					       "REFERENCED", "CACHED",  "QUARANTINED", "HIT RATE", "TABLES USED" };
	enum paged_status status;
	struct paged_daemon_info info = { .struct_size = sizeof(info) };
	struct paged_pool_entry *pools;
	json_t *document = NULL;
	struct print_list list;
	char text[PRINT_SMALL];
	size_t n;

	status = paged_admin_status(ctl->client, &info);
	if (status == PAGED_OK)
		status = paged_admin_pools(ctl->client, sizeof(*pools), &pools, &n);
	if (status != PAGED_OK)
		return ctl_fail(ctl, status);
	if (ctl->json)
		document = json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:b}", "version", info.version, "boot_id",
				     info.boot_id, "uptime_ms", (json_int_t)info.uptime_ms, "requests",
				     (json_int_t)info.n_requests, "sessions", (json_int_t)info.n_sessions, "pid",
				     (json_int_t)info.pid, "stopping", (int)info.stopping);
	else
		printf("pagedd %s, up %s, %" PRIu32 " %s, boot %.8s%s\n", info.version,
		       print_duration(text, info.uptime_ms), info.n_sessions,
		       print_plural(info.n_sessions, "session", "sessions"), info.boot_id,
		       info.stopping ? ", stopping" : "");
	print_begin(&list, "pools", columns, COUNT(columns), ctl->json);
	for (size_t i = 0; i < n; i++) {
		print_text(&list, pools[i].name);
		print_text(&list, pools[i].backend);
		print_size(&list, pools[i].page_bytes);
		print_number(&list, pools[i].n_pages);
		print_number(&list, pools[i].n_free);
		print_number(&list, pools[i].n_referenced);
		print_number(&list, pools[i].n_cached);
		print_number(&list, pools[i].n_quarantined);
		print_ratio(&list, pools[i].n_tokens_found, pools[i].n_tokens_asked);
		print_ratio(&list, pools[i].table_used, pools[i].table_limit);
	}
	print_end(&list, document);
	paged_free(pools);
	return CTL_OK;
}

/* What the table of pools omits, as it is wide already. */
static void
pools_print_totals(struct print_list *list, const struct paged_pool_entry *pool)
{
	print_text(list, pool->publishes ? "yes" : NULL);
	print_number(list, pool->n_pinned);
	print_number(list, pool->n_starts);
	print_number(list, pool->n_tokens_asked);
	print_number(list, pool->n_tokens_found);
	print_number(list, pool->n_published);
	print_number(list, pool->n_evicted);
	print_size(list, pool->table_populated);
}

enum ctl_exit
ctl_pools(struct ctl *ctl)
{
	enum { N_TOTALS = 8 };
	static const char *const columns[] = {
		"POOL",         "SIZE",         "MEMORY",       "DTYPE",      "LAYERS",    "KV HEADS",        "K DIM",
		"V DIM",        "V IN K",       "PAGE SIZE",    "MAX LENGTH", "SEQUENCES", "SLOTS",           "TABLES",
		"TABLE MEMORY", "DEVICE",       "MODEL",        "CACHED",     "HIT RATE",  "PUBLISHES",       "PINNED",
		"STARTS",       "TOKENS ASKED", "TOKENS FOUND", "PUBLISHED",  "EVICTED",   "TABLES POPULATED"
	};
	struct paged_pool_entry *pools;
	struct print_list list;
	size_t n;
	enum paged_status status = paged_admin_pools(ctl->client, sizeof(*pools), &pools, &n);

	if (status != PAGED_OK)
		return ctl_fail(ctl, status);
	print_begin(&list, "pools", columns, ctl->json ? COUNT(columns) : COUNT(columns) - N_TOTALS, ctl->json);
	for (size_t i = 0; i < n; i++) {
		print_text(&list, pools[i].name);
		print_size(&list, pools[i].size);
		print_text(&list, pools[i].memory);
		print_text(&list, paged_dtype_name(pools[i].dtype));
		print_number(&list, pools[i].n_layers);
		print_number(&list, pools[i].n_kv_heads);
		print_number(&list, pools[i].k_dim);
		print_number(&list, pools[i].v_dim);
		print_text(&list, pools[i].v_in_k ? "yes" : NULL);
		print_number(&list, pools[i].page_size);
		print_number(&list, pools[i].max_length);
		print_number(&list, pools[i].n_sequences);
		print_number(&list, pools[i].n_slots);
		print_size(&list, pools[i].table_used);
		print_size(&list, pools[i].table_limit);
		print_text(&list, pools[i].device);
		print_text(&list, pools[i].model);
		print_number(&list, pools[i].n_cached);
		print_ratio(&list, pools[i].n_tokens_found, pools[i].n_tokens_asked);
		if (ctl->json)
			pools_print_totals(&list, &pools[i]);
	}
	print_end(&list, NULL);
	paged_free(pools);
	return CTL_OK;
}

/* A number for which 0 means none, as the pid of an ended process. */
static void
print_nonzero(struct print_list *list, uint32_t number)
{
	if (number != 0)
		print_number(list, number);
	else
		print_text(list, NULL);
}

enum ctl_exit
ctl_sessions(struct ctl *ctl)
{
	static const char *const columns[] = { "SESSION",  "NAME",      "PID",   "ROLE",        "STATE", "UID",
					       "REQUESTS", "SEQUENCES", "PAGES", "QUARANTINED", "TENANT" };
	struct paged_session_entry *sessions;
	struct print_list list;
	size_t n;
	enum paged_status status = paged_admin_sessions(ctl->client, sizeof(*sessions), &sessions, &n);

	if (status != PAGED_OK)
		return ctl_fail(ctl, status);
	print_begin(&list, "sessions", columns, COUNT(columns), ctl->json);
	for (size_t i = 0; i < n; i++) {
		print_number(&list, sessions[i].session);
		print_text(&list, sessions[i].name);
		print_nonzero(&list, sessions[i].pid);
		print_text(&list, sessions[i].first ? "first" : sessions[i].member != 0 ? "member" : NULL);
		print_text(&list, sessions[i].ended ? "ended" : sessions[i].draining ? "draining" : "active");
		print_number(&list, sessions[i].uid);
		print_number(&list, sessions[i].n_requests);
		print_number(&list, sessions[i].n_sequences);
		print_number(&list, sessions[i].n_pages);
		print_number(&list, sessions[i].n_quarantined);
		print_text(&list, sessions[i].tenant);
	}
	print_end(&list, NULL);
	paged_free(sessions);
	return CTL_OK;
}

/* NULL: a sequence that its session may change. */
static const char *
sequence_state(const struct paged_seq_entry *sequence)
{
	return sequence->state & PAGED_STATE_GIVEN ? "given" : sequence->state & PAGED_STATE_HOLD ? "hold" : NULL;
}

static enum paged_status
sequences_print(struct ctl *ctl, const char *pool, struct print_list *list)
{
	struct paged_seq_entry *sequences;
	char text[PRINT_SMALL];
	size_t n;
	enum paged_status status = paged_admin_sequences(ctl->client, pool, sizeof(*sequences), &sequences, &n);

	if (status != PAGED_OK)
		return status;
	for (size_t i = 0; i < n; i++) {
		print_text(list, pool);
		print_text(list, print_seq(text, sequences[i].seq));
		/* A given sequence whose giver's session has ended belongs to a ticket. */
		if (sequences[i].session == UINT32_MAX)
			print_text(list, NULL);
		else
			print_number(list, sequences[i].session);
		print_text(list, sequences[i].name);
		print_nonzero(list, sequences[i].pid);
		print_number(list, sequences[i].capacity);
		print_number(list, sequences[i].n_pages);
		print_nonzero(list, sequences[i].n_trimmed);
		print_text(list, sequence_state(&sequences[i]));
		print_text(list, sequences[i].tag);
	}
	paged_free(sequences);
	return PAGED_OK;
}

enum ctl_exit
ctl_list_pools(struct ctl *ctl, struct print_list *list, ctl_print_pool_fn print)
{
	struct paged_pool_entry *pools = NULL;
	enum paged_status status = PAGED_OK;
	size_t n = 0;

	if (ctl->pool != NULL)
		status = print(ctl, ctl->pool, list);
	else
		status = paged_admin_pools(ctl->client, sizeof(*pools), &pools, &n);
	for (size_t i = 0; status == PAGED_OK && i < n; i++) {
		status = print(ctl, pools[i].name, list);
		/* Omit a pool that this user may not open, and list the others. */
		if (status == PAGED_ERR_PERM) {
			fprintf(stderr, "pagedctl: omitted: %s\n", paged_client_error(ctl->client));
			status = PAGED_OK;
		}
	}
	paged_free(pools);
	if (status != PAGED_OK)
		print_discard(list);
	else
		print_end(list, NULL);
	return status == PAGED_OK ? CTL_OK : ctl_fail(ctl, status);
}

enum ctl_exit
ctl_sequences(struct ctl *ctl)
{
	static const char *const columns[] = { "POOL",     "SEQUENCE", "SESSION", "NAME",  "PID",
					       "CAPACITY", "PAGES",    "TRIMMED", "STATE", "TAG" };
	struct print_list list;

	print_begin(&list, "sequences", columns, COUNT(columns), ctl->json);
	return ctl_list_pools(ctl, &list, sequences_print);
}

/* The pool of the sequence: the one named by --pool, or the only one. */
static enum ctl_exit
ctl_choose_pool(struct ctl *ctl, struct paged_pool_entry *pool)
{
	struct paged_pool_entry *pools;
	enum ctl_exit code = CTL_OK;
	enum paged_status status;
	size_t n, i = 0;

	status = paged_admin_pools(ctl->client, sizeof(*pools), &pools, &n);
	if (status != PAGED_OK)
		return ctl_fail(ctl, status);
	while (ctl->pool != NULL && i < n && strcmp(pools[i].name, ctl->pool) != 0)
		i++;
	if (ctl->pool == NULL && n != 1) {
		code = ctl_usage("there are %zu pools: choose one with --pool", n);
	} else if (i == n) {
		fprintf(stderr, "pagedctl: there is no pool %s\n", ctl->pool);
		code = CTL_FAILED;
	} else {
		*pool = pools[i];
	}
	paged_free(pools);
	return code;
}

static bool
ctl_parse_seq(const char *text, uint32_t *slot_p, uint32_t *generation_p)
{
	unsigned long long slot, generation;
	char *end;

	errno = 0;
	slot = strtoull(text, &end, 10);
	if (errno != 0 || end == text || text[0] == '-' || *end != '.' || slot >= PAGED_MAX_SLOTS)
		return false;
	text = end + 1;
	generation = strtoull(text, &end, 10);
	if (errno != 0 || end == text || text[0] == '-' || *end != '\0' || generation > UINT32_MAX)
		return false;
	*slot_p = (uint32_t)slot;
	*generation_p = (uint32_t)generation;
	return true;
}

static void
page_table_print(const struct paged_seq_entry *entry, const uint32_t *pages, size_t n)
{
	char text[PRINT_SMALL];

	printf("sequence %s of session %" PRIu32 ", %s (%" PRIu32 "): ", print_seq(text, entry->seq), entry->session,
	       entry->name, entry->pid);
	printf("capacity %" PRIu32 ", %zu %s", entry->capacity, n, print_plural(n, "page", "pages"));
	if (sequence_state(entry) != NULL)
		printf(", %s", entry->state & PAGED_STATE_HOLD ? "a hold" : "given");
	if (entry->n_trimmed != 0)
		printf(", the first %" PRIu32 " given back", entry->n_trimmed);
	printf("\n");
	for (size_t i = 0; i < n; i++) {
		if (i % 8 == 0)
			printf("%s%6zu:", i > 0 ? "\n" : "", i);
		if (i < entry->n_trimmed)
			printf(" %9s", "-");
		else
			printf(" %9" PRIu32, pages[i]);
	}
	if (n > 0)
		printf("\n");
}

static void
page_table_print_json(const char *pool, const struct paged_seq_entry *entry, const uint32_t *pages, size_t n)
{
	char text[PRINT_SMALL];
	json_t *table = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(table, i < entry->n_trimmed ? json_null() : json_integer(pages[i]));
	print_json(json_pack("{s:s, s:s, s:I, s:s, s:I, s:I, s:I, s:I, s:s?, s:s?, s:o}", "pool", pool, "sequence",
			     print_seq(text, entry->seq), "session", (json_int_t)entry->session, "name", entry->name,
			     "pid", (json_int_t)entry->pid, "capacity", (json_int_t)entry->capacity, "pages",
			     (json_int_t)entry->n_pages, "trimmed", (json_int_t)entry->n_trimmed, "state",
			     sequence_state(entry), "tag", entry->tag[0] != '\0' ? entry->tag : NULL, "table", table));
}

enum ctl_exit
ctl_table(struct ctl *ctl)
{
	struct paged_pool_entry pool;
	struct paged_seq_entry entry;
	uint32_t slot, generation, *pages;
	enum paged_status status;
	enum ctl_exit code;
	size_t n;

	if (!ctl_parse_seq(ctl->operands[0], &slot, &generation))
		return ctl_usage("%s is not a sequence; an example is 12.1", ctl->operands[0]);
	code = ctl_choose_pool(ctl, &pool);
	if (code != CTL_OK)
		return code;
	status = paged_admin_table(ctl->client, PAGED_SEQ(generation, pool.number, slot), sizeof(entry), &entry, &pages,
				   &n);
	if (status != PAGED_OK)
		return ctl_fail(ctl, status);
	if (ctl->json)
		page_table_print_json(pool.name, &entry, pages, n);
	else
		page_table_print(&entry, pages, n);
	paged_free(pages);
	return CTL_OK;
}
