/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Audit of a pool's page accounting, in steps, while the pool changes.
 *
 * The audit sees a snapshot: the state when it began.  Its steps walk over
 * page tables, free list and counts.  A request that changes a value
 * which the walk has not reached yet first lets the audit record the old
 * value (copy-on-write).  Each value is thus recorded once, as it was at the
 * beginning, and neither side waits for the other:
 *
 *   an entry   by the walk, or before its page table drops it (entries added
 *              later lie behind the recorded end of the page table; the walk
 *              skips those before its first page)
 *   free page  by the walk, or before it is taken
 *   a count    by the walk, or before it changes
 */
#include <stdarg.h>
#include <stdlib.h>

#include "core/audit.h"

/* Flags in audit_page.found: the page is in the free list; a node stands for it. */
#define LISTED (1u << 30)
#define PUBLISHED (1u << 29)
/* XORed into a recorded count, so that a recorded 0 differs from 0, "not recorded yet". */
#define TAKEN (1u << 31)

struct audit_page {
	uint32_t found; /* number of entries that name it, or-ed with the flags above */
	uint32_t count; /* its count in the region ^ TAKEN; 0: not recorded yet */
};

struct core_audit {
	struct core_pool *pool;
	struct paged_check_result result;
	struct paged_error error; /* the first inconsistency; PAGED_OK: none so far */
	uint32_t high_page, high_slot;
	uint32_t *ends; /* by slot: 1 + the end of the entries still to be recorded; 0: not frozen, ask the region */
	struct audit_page *pages;
	uint32_t next_slot, next_entry;   /* the walk's position in the page tables */
	uint32_t next_listed, end_listed; /* part of the free list still to be recorded */
	uint32_t next_page;               /* the walk's position in the counts */
	uint32_t n_referenced, n_cached, n_quarantined;
};

/* Records the first inconsistency; later ones are ignored. */
static void __attribute__((format(printf, 2, 3))) audit_fail(struct core_audit *audit, const char *format, ...)
{
	struct paged_error what;
	va_list arguments;

	if (audit->error.status != PAGED_OK)
		return;
	va_start(arguments, format);
	paged_vfail(&what, PAGED_ERR_CORRUPT, format, arguments);
	va_end(arguments);
	paged_fail(&audit->error, PAGED_ERR_CORRUPT, "pool %s: %s", audit->pool->name, what.text);
}

/* Page tables */

/* Records the end of a page table, so that its later changes do not affect the walk. */
static void
audit_freeze_table(struct core_audit *audit, uint32_t slot)
{
	const struct region_view *view = &audit->pool->view;
	uint32_t n = page_table_n_pages(audit->pool, slot);

	if (audit->ends[slot] != 0)
		return;
	if (page_table_owner(audit->pool, slot) == 0)
		n = 0;
	else
		audit->result.n_sequences++;
	if (n > view->table_entries) {
		audit_fail(audit, "slot %u: %u entries in a page table of %u", slot, n, view->table_entries);
		n = view->table_entries;
	}
	audit->ends[slot] = n + 1;
}

static void
audit_record_entries(struct core_audit *audit, uint32_t slot, uint32_t from, uint32_t to)
{
	const _Atomic uint32_t *table = region_page_table(&audit->pool->view, slot);
	uint32_t first = page_table_first(audit->pool, slot);

	/* Pages before the first that were in the page table when the audit began are recorded: audit_trim(). */
	for (uint32_t i = from > first ? from : first; i < to; i++) {
		uint32_t page = atomic_load_explicit(&table[i], memory_order_relaxed);

		if (page < audit->high_page)
			audit->pages[page].found++;
		else
			audit_fail(audit, "slot %u: entry %u names page %u, but only pages below %u were handed out",
				   slot, i, page, audit->high_page);
	}
}

void
audit_page_table(struct core_audit *audit, uint32_t slot, uint32_t n_pages)
{
	uint32_t from = slot == audit->next_slot && audit->next_entry > n_pages ? audit->next_entry : n_pages;

	if (slot < audit->next_slot || slot >= audit->high_slot)
		return;
	audit_freeze_table(audit, slot);
	if (n_pages >= audit->ends[slot] - 1)
		return;
	audit_record_entries(audit, slot, from, audit->ends[slot] - 1);
	audit->ends[slot] = n_pages + 1;
}

void
audit_trim(struct core_audit *audit, uint32_t slot, uint32_t n_pages)
{
	uint32_t from = slot == audit->next_slot ? audit->next_entry : 0;

	if (slot < audit->next_slot || slot >= audit->high_slot)
		return;
	audit_freeze_table(audit, slot);
	audit_record_entries(audit, slot, from, n_pages < audit->ends[slot] - 1 ? n_pages : audit->ends[slot] - 1);
}

/* Free list and counts */

static void
audit_record_free_page(struct core_audit *audit, uint32_t i)
{
	uint32_t page = audit->pool->stack[i];

	if (page >= audit->high_page)
		audit_fail(audit, "the free list has page %u, but only pages below %u were handed out", page,
			   audit->high_page);
	else if (audit->pages[page].found & LISTED)
		audit_fail(audit, "the free list has page %u twice", page);
	else
		audit->pages[page].found |= LISTED;
}

void
audit_free_list(struct core_audit *audit, uint32_t n)
{
	for (; audit->end_listed > n && audit->end_listed > audit->next_listed; audit->end_listed--)
		audit_record_free_page(audit, audit->end_listed - 1);
}

void
audit_count(struct core_audit *audit, uint32_t page)
{
	const struct region_page *record = region_page(&audit->pool->view, page);

	if (page >= audit->high_page || audit->pages[page].count != 0)
		return;
	audit->pages[page].count = atomic_load_explicit(&record->count, memory_order_relaxed) ^ TAKEN;
	if (atomic_load_explicit(&record->flags, memory_order_relaxed) & REGION_PAGE_PUBLISHED)
		audit->pages[page].found |= PUBLISHED;
}

/* Compares the count of a page with its entries; page tables and free list have been walked. */
static void
audit_check_page(struct core_audit *audit, uint32_t page)
{
	uint32_t n_entries = audit->pages[page].found & ~(LISTED | PUBLISHED);
	uint32_t count = audit->pages[page].count ^ TAKEN;
	bool listed = audit->pages[page].found & LISTED, published = audit->pages[page].found & PUBLISHED;

	if (published && (listed || count == REGION_PAGE_QUARANTINED))
		audit_fail(audit, "page %u is published and %s", page, listed ? "in the free list" : "in quarantine");
	if (count == REGION_PAGE_QUARANTINED) {
		audit->n_quarantined++;
		count = 0;
	} else if (count != 0) {
		audit->n_referenced++;
	} else if (published) {
		audit->n_cached++;
	} else if (!listed && n_entries == 0) {
		audit_fail(audit, "page %u is neither counted nor published nor in the free list", page);
	}
	if (count != n_entries)
		audit_fail(audit, "page %u: count %u, but %u page table entries name it", page, count, n_entries);
	else if (listed && audit->pages[page].count != TAKEN)
		audit_fail(audit, "page %u is in the free list, but its count is %u", page,
			   audit->pages[page].count ^ TAKEN);
}

/* The walk */

static uint32_t
audit_step_tables(struct core_audit *audit, uint32_t budget)
{
	while (budget > 0 && audit->next_slot < audit->high_slot) {
		uint32_t slot = audit->next_slot, left, n;

		audit_freeze_table(audit, slot);
		left = audit->ends[slot] - 1 > audit->next_entry ? audit->ends[slot] - 1 - audit->next_entry : 0;
		n = left < budget ? left : budget;
		audit_record_entries(audit, slot, audit->next_entry, audit->next_entry + n);
		audit->next_entry += n;
		if (n == left) {
			audit->next_slot++;
			audit->next_entry = 0;
		}
		budget -= n < budget ? n + 1 : budget;
	}
	return budget;
}

bool
core_audit_step(struct core_audit *audit, uint32_t budget)
{
	budget = audit_step_tables(audit, budget);
	for (; budget > 0 && audit->next_listed < audit->end_listed; budget--)
		audit_record_free_page(audit, audit->next_listed++);
	for (; budget > 0 && audit->next_page < audit->high_page; budget--) {
		audit_count(audit, audit->next_page);
		audit_check_page(audit, audit->next_page++);
	}
	return audit->next_slot < audit->high_slot || audit->next_page < audit->high_page;
}

/* Life */

static void
audit_free(struct core_audit *audit)
{
	free(audit->ends);
	free(audit->pages);
	free(audit);
}

static void
audit_read_header(struct core_audit *audit)
{
	const struct core_pool *pool = audit->pool;
	const struct region_header *header = pool->view.header;

	audit->result = (struct paged_check_result){
		.n_pages = pool->view.n_pages,
		.n_free = atomic_load_explicit(&header->n_free, memory_order_relaxed),
		.n_referenced = atomic_load_explicit(&header->n_referenced, memory_order_relaxed),
		.n_cached = atomic_load_explicit(&header->n_cached, memory_order_relaxed),
		.n_quarantined = atomic_load_explicit(&header->n_quarantined, memory_order_relaxed),
	};
	if (audit->result.n_free != core_pool_n_free(pool) || audit->result.n_referenced != pool->n_referenced ||
	    audit->result.n_cached != pool->n_cached || audit->result.n_quarantined != pool->n_quarantined)
		audit_fail(audit,
			   "the region has %u free, %u referenced, %u cached, %u quarantined pages, the core %u, %u, "
			   "%u, %u",
			   audit->result.n_free, audit->result.n_referenced, audit->result.n_cached,
			   audit->result.n_quarantined, core_pool_n_free(pool), pool->n_referenced, pool->n_cached,
			   pool->n_quarantined);
}

enum paged_status
core_audit_begin(struct core *core, uint32_t pool_index, struct core_audit **audit_p, struct paged_error *error)
{
	struct core_pool *pool = core->pools[pool_index];
	struct core_audit *audit;

	if (pool->audit != NULL)
		return paged_fail(error, PAGED_ERR_AGAIN, "pool %s is being checked", pool->name);
	audit = calloc(1, sizeof(*audit));
	if (audit == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "pool %s: no memory to check it", pool->name);
	audit->pool = pool;
	audit->high_page = pool->high_page;
	audit->high_slot = pool->high_slot;
	audit->end_listed = pool->n_stack;
	audit->ends = calloc((size_t)audit->high_slot + 1, sizeof(*audit->ends));
	audit->pages = calloc((size_t)audit->high_page + 1, sizeof(*audit->pages));
	if (audit->ends == NULL || audit->pages == NULL) {
		audit_free(audit);
		return paged_fail(error, PAGED_ERR_NOMEM, "pool %s: no memory to count %u pages", pool->name,
				  pool->high_page);
	}
	audit_read_header(audit);
	pool->audit = audit;
	*audit_p = audit;
	return PAGED_OK;
}

enum paged_status
core_audit_end(struct core_audit *audit, struct paged_check_result *result, struct paged_error *error)
{
	const struct paged_check_result *said = &audit->result;
	enum paged_status status;

	if (audit->n_referenced != said->n_referenced || audit->n_cached != said->n_cached ||
	    audit->n_quarantined != said->n_quarantined)
		audit_fail(
			audit,
			"counted %u referenced, %u cached and %u quarantined pages, the accounting says %u, %u and %u",
			audit->n_referenced, audit->n_cached, audit->n_quarantined, said->n_referenced, said->n_cached,
			said->n_quarantined);
	if ((uint64_t)said->n_free + audit->n_referenced + audit->n_cached + audit->n_quarantined != said->n_pages)
		audit_fail(audit, "%u free + %u referenced + %u cached + %u quarantined are not %u pages", said->n_free,
			   audit->n_referenced, audit->n_cached, audit->n_quarantined, said->n_pages);
	*result = audit->result;
	status = region_verdict(result, audit->error.status, &audit->error);
	if (status != PAGED_OK)
		*error = audit->error;
	core_audit_abandon(audit);
	return status;
}

void
core_audit_abandon(struct core_audit *audit)
{
	audit->pool->audit = NULL;
	audit_free(audit);
}
