/* SPDX-License-Identifier: Apache-2.0 */
/**
 * core_internal.h - what the files of the core share
 *
 *   core.c      life of the whole, and the pools by name
 *   pool.c      one pool: its arrays, its books
 *   pages.c     free list and quarantine: where a page goes and comes from
 *   row.c       a slot and its row; the only writer of both
 *   idmap.c     ids to sessions
 *   session.c   sessions and members
 *   array.c     arrays of sessions
 *   reap.c      what ended sessions left, in steps
 *   sequence.c  the verbs
 *   audit.c     the books, recounted in steps
 *   check.c     the books and all lists, at one go
 *
 * The region is the truth about slots, rows and counts: the owner alone
 * writes it, so it may read back what it wrote.  Everything else is here.
 */
#ifndef PAGED_CORE_INTERNAL_H
#define PAGED_CORE_INTERNAL_H

#include "common/region.h"
#include "core/core.h"

/* No slot, no page: ends lists of either. */
#define NONE UINT32_MAX

/** What the core knows of a slot besides the region. */
struct pool_slot {
	uint32_t previous; /* in the session's list */
	uint32_t next;     /* in the session's list, or in the list of free slots */
	uint64_t stamp;    /* the last request that named it */
};

struct pool {
	char name[PAGED_MAX_NAME + 1];
	uint32_t index; /* in the core */
	struct region_view view;
	struct region_header *header;

	/*
	 * Free pages, in PyTorch's order: n_pages-1 down to high_page, which
	 * nobody has written down, then the stack.  Taken from its end.
	 */
	uint32_t *stack;
	uint32_t n_stack;
	uint32_t high_page;
	uint32_t *links; /* of a quarantined page: the next one */
	uint32_t n_referenced;
	uint32_t n_quarantined;
	uint32_t n_free_told; /* of region_free_wake() */

	/* Free slots: those freed last, then high_slot and above. */
	struct pool_slot *slots;
	char (*tags)[PAGED_MAX_TAG + 1]; /* of live sequences; elsewhere left over */
	uint32_t high_slot;
	uint32_t first_free_slot;
	uint32_t n_sequences;
	uint32_t n_retired; /* slots whose generations are used up */

	/* Of the request that has this stamp. */
	uint64_t stamp;
	uint64_t n_requested; /* pages */
	uint64_t n_ahead;     /* pages past those, wanted as far as there are some to spare */
	uint32_t n_spare;     /* pages to spare once n_requested are taken */
	uint32_t n_created;   /* slots */

	struct core_audit *audit; /* under way; is told of what will change */
};

/** What a session has in one pool. */
struct holding {
	uint32_t first_slot; /* of its sequences */
	uint32_t first_page; /* in quarantine, the oldest */
	uint32_t last_page;  /* in quarantine, the newest */
};

struct session {
	uint32_t id;
	uint32_t first_member;
	uint32_t n_members;
	bool outlives; /* its first member: it ends with its last */
	bool ended;
	bool queued; /* for core_reap() */
	struct session *queue_next;
	uint32_t n_sequences;
	uint64_t n_pages;
	uint64_t n_quarantined;
	struct holding *holdings; /* by pool, as far as it ever had sequences */
	uint32_t n_holdings;
	struct array_slot *arrays;
};

/** Ids in ascending order, each with its session. */
struct idmap {
	struct idmap_entry {
		uint32_t id;
		struct session *session;
	} * entries;
	uint32_t n, room;
};

struct core {
	uint8_t boot_id[REGION_BOOT_ID_SIZE];
	struct pool **pools;
	uint32_t n_pools;
	struct idmap sessions;
	struct idmap members;
	uint32_t last_session; /* ids given out so far */
	uint32_t last_member;
	struct session *queue_first, *queue_last;
	uint64_t stamp; /* of the request at hand */
	uint64_t max_array_bytes;
	uint64_t last_array; /* number of the last that became complete */
};

/* pool.c */

/** pool_create - checks the parameters; takes the region into use, as pool `index` of its daemon */
enum paged_status pool_create(const struct core_pool_params *params, uint32_t index, void *region,
			      const uint8_t boot_id[REGION_BOOT_ID_SIZE], struct pool **pool_p,
			      struct paged_error *error);
void pool_destroy(struct pool *pool);

/** pool_change_begin - from here to pool_change_end() a walk over the region sees no state worth counting */
void pool_change_begin(struct pool *pool);
void pool_change_end(struct pool *pool);

uint32_t pool_n_free(const struct pool *pool);
uint32_t pool_n_free_slots(const struct pool *pool);

/* pages.c; inside pool_change_begin() and _end() */

/** pages_take - the last n of the free list in list order, counted once each; n are free */
void pages_take(struct pool *pool, _Atomic uint32_t *entries, uint32_t n);

/** pages_drop - one reference less each, in order; who has none left is free, or waits in the session's quarantine */
void pages_drop(struct pool *pool, struct session *session, const _Atomic uint32_t *entries, uint32_t n,
		bool quarantine);

/** pages_release - free n pages of the session's quarantine, or all if there are fewer; says how many */
uint32_t pages_release(struct pool *pool, struct session *session, uint32_t n);

/* row.c */

/** row_is_live - the id names a sequence now */
bool row_is_live(const struct pool *pool, paged_seq_id id);
uint32_t row_owner(const struct pool *pool, uint32_t slot);
uint32_t row_n_pages(const struct pool *pool, uint32_t slot);

/** row_open - an empty sequence in a free slot; there is one */
paged_seq_id row_open(struct pool *pool, struct session *session, const char *tag);

/** row_grow - to n_pages, which are more than it has and no more than are free */
void row_grow(struct pool *pool, struct session *session, uint32_t slot, uint32_t n_pages);

/** row_cut - to its first n_pages; the others go to quarantine if told, else they are free */
void row_cut(struct pool *pool, struct session *session, uint32_t slot, uint32_t n_pages, bool quarantine);

/** row_close - end the sequence, its pages as in row_cut() */
void row_close(struct pool *pool, struct session *session, uint32_t slot, bool quarantine);

/* audit.c: before a change */

/** audit_row - the row will keep its first n_pages, and may grow */
void audit_row(struct core_audit *audit, uint32_t slot, uint32_t n_pages);

/** audit_free_list - the list will keep its first n */
void audit_free_list(struct core_audit *audit, uint32_t n);

/** audit_count - the page's count will change */
void audit_count(struct core_audit *audit, uint32_t page);

/* idmap.c */

struct session *idmap_find(const struct idmap *map, uint32_t id);

/** idmap_after - the session with the smallest id above; NULL: none */
struct session *idmap_after(const struct idmap *map, uint32_t id);

/** idmap_make_room - for one more; false: no memory */
bool idmap_make_room(struct idmap *map);

/** idmap_append - an id above all others, for which there is room */
void idmap_append(struct idmap *map, uint32_t id, struct session *session);
void idmap_remove(struct idmap *map, uint32_t id);

/* array.c */

/** arrays_free - the session ends */
void arrays_free(struct session *session);

/* session.c */

/** session_find_active - PAGED_ERR_GONE when it has ended or never was */
enum paged_status session_find_active(const struct core *core, uint32_t id, struct session **session_p,
				      struct paged_error *error);

/** session_make_holding - so that it may have sequences in the pool */
enum paged_status session_make_holding(struct session *session, uint32_t pool, struct paged_error *error);

/** session_has_work - core_reap() can do something for it now */
bool session_has_work(const struct session *session);

/** session_settle - queue an ended session for core_reap(), or forget it when nothing is left of it */
void session_settle(struct core *core, struct session *session);
void session_free(struct session *session);

#endif
