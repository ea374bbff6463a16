/* SPDX-License-Identifier: Apache-2.0 */
/**
 * core_internal.h - types and functions shared by the files of the core
 *
 *   core.c           create and destroy; pools by name
 *   pool.c           one pool: its arrays and its page accounting
 *   pages.c          the states of a page: free, referenced, cached, quarantined
 *   node.c           the index of published pages: store, remove
 *   bucket.c         its buckets, and which node leaves a full one
 *   lru.c            cached pages by age; eviction
 *   page_table.c     a slot and its page table; the only writer of both
 *   cache_share.c    shares of the cache: cached pages by the tenant that published them
 *   table_memory.c   the memory of page tables: its count, its limit, giving it back
 *   idmap.c          map of session and member ids
 *   session.c        begin and end of sessions and members
 *   session_query.c  look-ups of sessions
 *   array.c          arrays of sessions
 *   session_cleanup.c           cleanup of ended sessions, in steps
 *   request.c        checks and totals that requests have in common
 *   operation.c      requests whose work goes on in steps
 *   growth.c         page tables that become longer, in steps
 *   sequence.c       requests on sequences: create, reserve, truncate, erase
 *   share.c          requests: start, fork
 *   trim.c           request: trim
 *   divide.c         publish: from the lists of a message to items
 *   publish.c        request: publish
 *   published.c      how far each sequence is published
 *   pin.c            pins of prefixes
 *   ticket.c         requests: give, cancel; tickets
 *   adopt.c          request: adopt
 *   hold.c           request: holds of published pages
 *   tenant.c         which pages tenants are charged
 *   tenant_list.c    the list of tenants, and their shares of all but pages
 *   audit.c          audit of the page accounting, in steps
 *   check.c          the audit and a check of all lists, in one call
 *
 * The region is authoritative for slots, page tables and counts: only the
 * owner writes it, so the core reads its own data back from it.  All other
 * state is in the structs below.
 */
#ifndef PAGED_CORE_INTERNAL_H
#define PAGED_CORE_INTERNAL_H

#include "common/region.h"
#include "core/core.h"

/* No slot or no page; terminates lists of slots and of pages. */
#define NONE UINT32_MAX

/** Lists of slots whose page tables have memory that they do not need. */
enum { TABLE_MEMORY_UNLISTED, TABLE_MEMORY_SMALL, TABLE_MEMORY_LARGE, TABLE_MEMORY_LISTS };

/** The memory of the pool's page tables, in units. */
struct table_memory {
	uint32_t page_size; /* bytes of a system page */
	uint32_t unit_size; /* bytes: page_size, or the stride of slots if that is smaller */
	uint64_t limit;
	uint64_t n_needed;    /* by the capacities of all sequences */
	uint64_t n_populated; /* at least as many */
	bool (*release)(void *memory, size_t size);
	struct table_memory_list {
		uint32_t first, last;
	} lists[TABLE_MEMORY_LISTS];
};

/** What the request whose number is `stamp` asks of a pool. */
struct request_totals {
	uint64_t stamp;
	uint64_t n_requested;     /* pages */
	uint64_t n_taken;         /* pages that the request takes: n_requested and those taken ahead */
	uint32_t n_newly_charged; /* shared pages that the session's tenant is not charged yet */
	uint32_t n_kept;          /* cached pages that the request shares, so it cannot evict them */
	uint64_t n_ahead;         /* further pages, taken only as far as n_spare allows */
	uint32_t n_spare;         /* pages to spare once n_requested are taken */
	uint32_t n_created;       /* slots */
	uint64_t n_table_units;   /* of table_memory, at most */
	uint64_t n_table_ahead;   /* further ones, for pages ahead of need */
};

/** State of a slot that is not in the region. */
struct pool_slot {
	uint32_t previous; /* in the session's list */
	uint32_t next;     /* in the session's list, or in the list of free slots */
	uint64_t stamp;    /* of the last request that named it; finds ids named twice */
	uint16_t tenant;   /* that its pages are charged to; 0: none */
	struct table_units {
		uint32_t n_needed, n_populated;
		uint32_t n_promised;     /* entries that an unfinished request gives it; 0: there is none */
		uint32_t previous, next; /* in the list of slots with spare memory */
		uint32_t list : 2;
		uint32_t stuck : 1; /* the spare memory could not be released */
	} table;
	/* How far the sequence is published (published.c). */
	uint32_t tip;                    /* page of the last node of its chain; NONE: nothing is published */
	uint32_t tip_previous, tip_next; /* in the list of slots with this tip */
	/*
	 * Pages outside of [twins_begin, twins_end) have nodes of their own.  Some of those inside are twins: another
	 * sequence has published the same prefix first, and its node stands for the page.
	 */
	uint32_t twins_begin, twins_end;
};

/** A node, also after it was removed: serials never repeat. */
struct node_ref {
	uint64_t serial; /* 0: none */
	uint32_t page;
};

/** Who else has started on a node, or has a twin of it, in all its life. */
enum node_users { NODE_NO_OTHERS, NODE_OTHER_SESSIONS, NODE_OTHER_TENANTS };

/** State of a page that is not in the region, and what a start on its node reads and writes: four to a cache line. */
struct pool_page {
	uint32_t previous;    /* in the list of cached or of pinned pages, the colder one */
	uint32_t next;        /* the hotter one; or the next page of a quarantine */
	uint32_t session;     /* that published the node */
	uint16_t tenant;      /* of the sequence that the node was published from; 0: none */
	uint16_t n_pins : 12; /* pins that cover the node */
	uint16_t listed : 1;  /* in the list of cached or of pinned pages */
	uint16_t marked : 1;  /* by the request or walk under way */
	uint16_t users : 2;   /* enum node_users */
};
static_assert(sizeof(struct pool_page) == 16 && CORE_MAX_PINS < 1 << 12, "layout");

/** Where a page's node is in the lists of others; meaningless without a node. */
struct pool_node {
	uint32_t bucket_previous; /* the node before this one in its bucket */
	uint32_t depth;           /* pages before it in its prefix */
	uint32_t first_child;     /* the youngest */
	uint32_t next_sibling;
	uint32_t previous_sibling; /* of the first one: the last one */
	uint32_t first_slot;       /* of those whose tip it is */
};

/** Cached pages, from the coldest, which is evicted first, to the hottest. */
struct page_list {
	uint32_t coldest;
	uint32_t hottest;
};

/** The place of a cached page in the list of the tenant that published it. */
struct share_page {
	uint32_t previous, next;
	uint32_t tenant; /* 0: it is in no such list */
};

/** A pin: the chain that ends with a node is evicted only after all pages that are not pinned. */
struct pool_pin {
	uint64_t number; /* counted since the pool exists */
	uint64_t deadline_ms;
	struct core_pinner by;
	uint32_t tenant; /* of its session */
	uint32_t n_nodes;
	struct node_ref *nodes; /* [n_nodes] from the first to the last */
};

struct core_tenant {
	char name[PAGED_MAX_NAME + 1];
	bool of_user; /* removed once it has no members, sessions, pins, nodes and moves */
	struct core_tenant_limits limits;
	uint32_t n_members;
	uint32_t n_sessions; /* also ended ones, until they are freed */
	uint32_t n_tickets;  /* that its sessions have given */
	uint32_t n_pins;     /* in all pools */
	uint64_t n_nodes;    /* in all pools; while they name it, its number is no other's */
	uint32_t n_moves;    /* unfinished adopts that charge pages to it */
	struct tenant_pool {
		struct core_tenant_pool_limits limits;
		uint32_t n_charged;
		uint32_t n_quarantined; /* of them */
		uint32_t n_promised;    /* that unfinished requests will charge */
		uint32_t n_sequences;   /* slots, those of holds and tickets included */
		uint64_t n_table_units; /* of table_memory, that the page tables of these need */
		uint32_t n_pins;
		uint32_t n_pin_pages; /* entries of its holds and nodes of its pins */
		uint32_t cache_share; /* cached pages, or CORE_NO_LIMIT: it has no list of them */
		uint32_t n_cached;
		struct page_list cached;
		bool over;                         /* it has more than its share, and is in the pool's list of these */
		uint32_t over_previous, over_next; /* tenants; 0: none */
		/*
		 * [n_pages] entries of its sequences that name the page; of a page in quarantine 1.  NULL: no session
		 * has used the pool.
		 */
		uint32_t *n_refs;
	} pools[PAGED_MAX_POOLS];
};

/** All tenants; their numbers count from 1. */
struct tenants {
	struct core_tenant **items; /* NULL: a tenant that was removed; its number is free */
	uint32_t n;
};

struct core_pool {
	char name[PAGED_MAX_NAME + 1];
	uint32_t index; /* in the core */
	struct region_view view;
	struct region_header *header;

	/*
	 * The free list, in PyTorch's order: first the pages never used,
	 * n_pages-1 down to high_page, which are not stored; then the stack.
	 * Pages are taken from the end.
	 */
	uint32_t *stack;
	uint32_t n_stack;
	uint32_t high_page; /* pages at or above were never used */
	struct pool_page *pages;
	struct pool_node *nodes;    /* NULL in a pool that publishes nothing */
	uint32_t lost;              /* first of the nodes whose parent was removed */
	uint32_t n_at_once;         /* nodes below others that the change under way may still remove */
	uint32_t n_lowered_at_once; /* slots that it may still give another tip, rather than none */
	uint32_t n_referenced;
	uint32_t n_cached;
	uint32_t n_quarantined;
	uint32_t n_promised;   /* free or cached pages that unfinished requests will take */
	uint32_t n_free_woken; /* pages that were free or cached at the last region_free_wake() */
	uint64_t ring_woken;   /* ring_head at the last region_ring_wake() */
	uint32_t n_changes;    /* nested core_pool_change_begin() */

	/* Cached pages; a cached page is in `pinned` while a pin covers it, else in `lru`. */
	struct page_list lru, pinned;
	struct share_page *shares; /* [n_pages]; NULL: no tenant has a share of the cache */
	uint32_t first_over;       /* tenant with more than its share; 0: none */
	uint32_t *walk[2];         /* scratch of lru_release() */
	uint32_t free_pages;       /* core_tick() evicts while fewer are free */
	struct pool_pin *pins;
	uint32_t n_pins;
	uint64_t last_pin;     /* number of the newest */
	uint64_t first_pin_ms; /* deadline of the one that expires first; CORE_NO_DEADLINE: there is none */
	uint32_t pin_limit;    /* most nodes in all pins, each pin counted */
	uint32_t n_pin_nodes;  /* nodes in all pins, each pin counted */
	uint32_t n_held;       /* entries of all holds; with n_pin_nodes at most pin_limit */

	struct tenants *tenants;

	/* Free slots: a LIFO list of freed slots, then high_slot and above. */
	struct pool_slot *slots;
	char (*tags)[PAGED_MAX_TAG + 1]; /* valid for live sequences only */
	uint32_t high_slot;              /* slots at or above were never used */
	uint32_t first_free_slot;
	uint32_t n_sequences;
	uint32_t n_retired; /* slots whose generations are used up */

	struct request_totals request; /* the current one, or the last one of this pool */
	struct table_memory table_memory;
	struct core_audit *audit; /* under way, or NULL; called before each change */

	uint32_t step;     /* core->step: longest walk over nodes at a time */
	uint64_t n_worked; /* entries, pages and nodes that were visited to be changed */
};

/** A session's lists in one pool. */
struct session_pool {
	uint32_t first_slot; /* head of the list of its sequences' slots */
	uint32_t first_page; /* oldest page of its quarantine */
	uint32_t last_page;  /* newest page of its quarantine */
};

struct core_session {
	uint32_t id;
	uint32_t first_member;
	uint32_t n_members;
	bool outlives; /* the session ends with its last member, not with its first */
	bool ended;
	bool draining;   /* it gets no new sequences */
	bool queued;     /* in the queue of core_reap() */
	uint16_t tenant; /* that new sequences are charged to; 0: none */
	struct core_session *queue_next;
	uint32_t n_sequences;
	uint64_t n_pages;
	uint64_t n_quarantined;
	struct session_pool *pools; /* indexed by pool, up to the highest pool that it used */
	uint32_t n_pools;
	uint32_t n_tickets;               /* given by it; it stays until they are used or have expired */
	struct core_operation *operation; /* its unfinished request; NULL: none */
	struct array_slot *arrays;
	uint64_t array_bytes; /* of complete arrays and uploads */
};

/** A request of a session whose work goes on in steps; items[next_item] is under way. */
struct core_operation {
	struct core_operation *next;  /* in the queue of core_step() */
	struct core_session *session; /* NULL: it has ended, and ops->outlives */
	struct core_ticket *ticket;   /* of an adopt */
	struct paged_error error;     /* that the request has in the end */
	const struct operation_ops *ops;
	uint32_t n, next_item;
	struct operation_item {
		paged_seq_id seq;
		uint32_t n_pages; /* of the page table when the item is done */
		uint32_t n_whole; /* of them, the whole ones; of a fork those of the parent; else 0 */
		uint32_t parent;  /* slot of a fork's parent */
	} items[];
};

/** What an operation does. */
struct operation_ops {
	/**
	 * Work on about *budget entries of the item, and lower *budget by as many, at least by 1; true: the item is
	 * done.  After each call the core is as consistent as after a request.
	 */
	bool (*step)(struct core *core, struct core_operation *operation, const struct operation_item *item,
		     uint32_t *budget);
	/** The session has ended: give back what was promised to the items that are not done.  NULL: nothing was. */
	void (*stop)(struct core *core, const struct core_operation *operation);
	bool outlives; /* it goes on when its session has ended, to undo what it has done */
};

/** Sequences that a session has given away.  They are in no session's list. */
struct core_ticket {
	uint64_t number;
	uint8_t bytes[PAGED_TICKET_SIZE];
	struct core_session *giver; /* exists as long as the ticket */
	struct seq_give give;
	/* An adopt that charges the sequences' pages to another tenant (adopt.c). */
	struct ticket_move {
		uint32_t to;          /* the other tenant */
		uint32_t item, entry; /* page table entries of the sequences before this one are charged to it */
		uint64_t n_new;       /* of their pages, those that it was not charged before */
		bool active;          /* unfinished: nothing else can be done with the ticket, nor does it expire */
		bool back;            /* it was refused: the entries are charged to the giver's tenant again */
		uint64_t deadline_ms; /* while active: of the ticket */
	} move;
	uint32_t pool;
	uint32_t n;
	struct paged_seq_item items[]; /* [n] n_tokens: length */
};

/** The tickets in the order of their numbers. */
struct ticket_list {
	struct ticket_entry {
		uint64_t head; /* first bytes of the ticket: a search reads no other memory */
		uint64_t deadline_ms;
		struct core_ticket *ticket;
	} * entries;
	uint32_t n, room;
	uint64_t last_number;       /* last one given out */
	uint64_t first_deadline_ms; /* of all tickets; UINT64_MAX: there is none */
};

/** A map from ids, in ascending order, to sessions. */
struct idmap {
	struct idmap_entry {
		uint32_t id;
		struct core_session *session;
	} * entries;
	uint32_t n, room;
};

struct core {
	uint8_t boot_id[REGION_BOOT_ID_SIZE];
	uint64_t now_ms;
	struct core_pool **pools;
	uint32_t n_pools;
	struct idmap sessions;
	struct idmap members;
	uint32_t last_session;                                   /* last id given out */
	uint32_t last_member;                                    /* last id given out */
	struct core_session *queue_first, *queue_last;           /* ended sessions that core_reap() has work for */
	uint64_t stamp;                                          /* number of the current request */
	uint32_t step;                                           /* entries that a request works on at a time */
	struct core_operation *operation_first, *operation_last; /* the one that has waited longest first */
	uint32_t last_tenant;                                    /* of the operation stepped last */
	struct ticket_list tickets;
	uint64_t max_array_bytes; /* quota of a session */
	uint64_t all_array_bytes; /* of all sessions */
	uint64_t last_array;      /* number of the array completed last */
	struct tenants tenants;
};

/* Fields of the region: only the owner writes them, and a seqlock or a serial orders the stores. */

static inline uint32_t
load_u32(const _Atomic uint32_t *field)
{
	return atomic_load_explicit(field, memory_order_relaxed);
}

static inline uint64_t
load_u64(const _Atomic uint64_t *field)
{
	return atomic_load_explicit(field, memory_order_relaxed);
}

static inline void
store_u32(_Atomic uint32_t *field, uint32_t value)
{
	atomic_store_explicit(field, value, memory_order_relaxed);
}

static inline void
store_u64(_Atomic uint64_t *field, uint64_t value)
{
	atomic_store_explicit(field, value, memory_order_relaxed);
}

/** counter_add - add to a counter that only the owner writes */
static inline void
counter_add(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, load_u64(counter) + n, memory_order_relaxed);
}

/** peak_raise - raise the largest value so far, which only the owner writes, to `value` */
static inline void
peak_raise(_Atomic uint32_t *peak, uint32_t value)
{
	if (value > load_u32(peak))
		store_u32(peak, value);
}

/** page_table_owner - the id of the session that the slot's sequence belongs to; 0: the slot is free */
static inline uint32_t
page_table_owner(const struct core_pool *pool, uint32_t slot)
{
	return atomic_load_explicit(&region_slot(&pool->view, slot)->owner, memory_order_relaxed);
}

/** page_table_n_pages - number of entries in the slot's page table */
static inline uint32_t
page_table_n_pages(const struct core_pool *pool, uint32_t slot)
{
	return atomic_load_explicit(&region_slot(&pool->view, slot)->capacity, memory_order_relaxed) /
	       pool->view.page_size;
}

/** page_table_first - number of pages at the beginning that were given back: these entries are REGION_NO_PAGE */
static inline uint32_t
page_table_first(const struct core_pool *pool, uint32_t slot)
{
	return atomic_load_explicit(&region_slot(&pool->view, slot)->first, memory_order_relaxed);
}

/** page_table_n_named - number of entries that name a page */
static inline uint32_t
page_table_n_named(const struct core_pool *pool, uint32_t slot)
{
	return page_table_n_pages(pool, slot) - page_table_first(pool, slot);
}

/* pool.c */

/** core_pool_create - check the parameters, and format the region as pool `index` of the daemon */
enum paged_status core_pool_create(const struct core_pool_params *params, uint32_t index, void *region,
				   const uint8_t boot_id[REGION_BOOT_ID_SIZE], struct core_pool **pool_p,
				   struct paged_error *error);
void core_pool_destroy(struct core_pool *pool);

/** core_map_array - map n zeroed elements, whose memory is populated on first touch; NULL: no address space */
void *core_map_array(uint32_t n, size_t size);

/** core_unmap_array - accepts NULL */
void core_unmap_array(void *array, uint32_t n, size_t size);

/**
 * core_pool_change_begin - make `change` odd until core_pool_change_end(): region_check() then repeats its walk
 *
 * Calls may be nested.
 */
void core_pool_change_begin(struct core_pool *pool);
void core_pool_change_end(struct core_pool *pool);

uint32_t core_pool_n_free(const struct core_pool *pool);

/** core_pool_n_available - free pages, and cached ones, which a request evicts, without those that are promised */
uint32_t core_pool_n_available(const struct core_pool *pool);
uint32_t core_pool_n_free_slots(const struct core_pool *pool);

/* pages.c; call between core_pool_change_begin() and core_pool_change_end() */

/**
 * pages_allocate - take the last n pages of the free list, in list order, with count 1; at least n must be free
 *
 * Here and below, `tenant` is that of the sequence which has the references.
 */
void pages_allocate(struct core_pool *pool, uint32_t tenant, _Atomic uint32_t *entries, uint32_t n);

/** pages_ref - add references to a referenced or cached page */
void pages_ref(struct core_pool *pool, uint32_t tenant, uint32_t page, uint32_t n_refs);

/** pages_ref_entries - pages_ref() of the pages of n entries */
void pages_ref_entries(struct core_pool *pool, uint32_t tenant, const _Atomic uint32_t *entries, uint32_t n,
		       uint32_t n_refs);

/**
 * pages_unref - drop one reference of each page
 *
 * A page without references is cached if a node stands for it.  Else it is freed; if `quarantine` says so, it is
 * quarantined, and stays charged to the tenant.  Cached pages are in no list yet: call lru_release().
 *
 * @return true: a page is now cached
 */
bool pages_unref(struct core_pool *pool, struct core_session *session, uint32_t tenant, const _Atomic uint32_t *entries,
		 uint32_t n, bool quarantine);

/** pages_publish - a node stands for the page from now on */
void pages_publish(struct core_pool *pool, uint32_t page);

/** pages_unpublish - no node stands for the page any more; a cached page becomes free */
void pages_unpublish(struct core_pool *pool, uint32_t page);

/** pages_free_quarantined - free up to n pages of the session's quarantine, oldest first; returns how many */
uint32_t pages_free_quarantined(struct core_pool *pool, struct core_session *session, uint32_t n);

/* page_table.c */

/** page_table_published - tokens of the sequence that a search finds; while nodes are lost, maybe not all of them */
static inline uint32_t
page_table_published(const struct core_pool *pool, uint32_t slot)
{
	return atomic_load_explicit(&region_slot(&pool->view, slot)->published, memory_order_relaxed);
}

/** page_table_protect - no token before `tokens` may be written from now on */
void page_table_protect(struct core_pool *pool, uint32_t slot, uint32_t tokens);

/** page_table_share - append pages, to which the caller has added references; none of the tokens may be written */
void page_table_share(struct core_pool *pool, struct core_session *session, uint32_t slot, uint32_t n,
		      const uint32_t *pages);

/** page_table_is_hold - true: the sequence is a hold */
static inline bool
page_table_is_hold(const struct core_pool *pool, uint32_t slot)
{
	return (load_u32(&region_slot(&pool->view, slot)->flags) & REGION_SLOT_HOLD) != 0;
}

/** page_table_hold - make an empty page table a hold of pages, to which the caller has added references */
void page_table_hold(struct core_pool *pool, struct core_session *session, uint32_t slot, uint32_t n,
		     const uint32_t *pages);

/** page_table_is_live - true: the id names a live sequence */
bool page_table_is_live(const struct core_pool *pool, paged_seq_id id);

/** page_table_open - start an empty sequence in a free slot; one must be free */
paged_seq_id page_table_open(struct core_pool *pool, struct core_session *session, const char *tag);

/** page_table_grow - extend the page table to n_pages; n_pages exceeds its size, and the difference must be free */
void page_table_grow(struct core_pool *pool, struct core_session *session, uint32_t slot, uint32_t n_pages);

/**
 * page_table_share_from - extend a page table, which has only entries of another one, to the first n of these, to whose
 * pages the caller has added references
 */
void page_table_share_from(struct core_pool *pool, struct core_session *session, uint32_t slot, uint32_t parent,
			   uint32_t n);

/** page_table_truncate - keep the pages of the first `tokens` tokens, and free the others */
void page_table_truncate(struct core_pool *pool, struct core_session *session, uint32_t slot, uint32_t tokens);

/** page_table_trim - give the pages before entry `first` back, which is not before the present first page */
void page_table_trim(struct core_pool *pool, struct core_session *session, uint32_t slot, uint32_t first);

/**
 * page_table_truncate_step - shorten the page table from its end to n_pages, of which n_whole are whole, by about
 * *budget entries, by which *budget is lowered; true: done
 */
bool page_table_truncate_step(struct core_pool *pool, struct core_session *session, uint32_t slot, uint32_t n_pages,
			      uint32_t n_whole, uint32_t *budget);

/** page_table_drop_work - most entries and nodes that page_table_truncate() and page_table_close() visit to keep
 * n_pages */
uint32_t page_table_drop_work(const struct core_pool *pool, uint32_t slot, uint32_t n_pages);

/** page_table_shrink - shorten the page table to n_pages; the dropped pages are quarantined on request, else freed */
void page_table_shrink(struct core_pool *pool, struct core_session *session, uint32_t slot, uint32_t n_pages,
		       bool quarantine);

/** page_table_close - end the sequence and drop its pages as page_table_shrink() does */
void page_table_close(struct core_pool *pool, struct core_session *session, uint32_t slot, bool quarantine);

/** page_table_close_step - page_table_close() by about *budget entries from the end; true: the sequence has ended */
bool page_table_close_step(struct core_pool *pool, struct core_session *session, uint32_t slot, bool quarantine,
			   uint32_t *budget);

/** page_table_is_frozen - true: the sequence was given away */
static inline bool
page_table_is_frozen(const struct core_pool *pool, uint32_t slot)
{
	return (load_u32(&region_slot(&pool->view, slot)->flags) & REGION_SLOT_FROZEN) != 0;
}

/** page_table_freeze - take the sequence out of the session's list; writers refuse it from now on */
void page_table_freeze(struct core_pool *pool, struct core_session *session, uint32_t slot);

/** page_table_disown - the session that gave the frozen sequence has ended */
void page_table_disown(struct core_pool *pool, uint32_t slot);

/** page_table_return - put a frozen sequence back into its giver's list; what was planned of it stays valid */
void page_table_return(struct core_pool *pool, struct core_session *session, uint32_t slot);

/** page_table_adopt - make the session the owner of a frozen sequence; what was planned of it is stale */
void page_table_adopt(struct core_pool *pool, struct core_session *session, uint32_t slot);

/* table_memory.c */

/** table_memory_init - the region's header and view are in place; limit in bytes */
void table_memory_init(struct core_pool *pool, uint64_t limit);

/** table_memory_bounds - fill the fields for page tables */
void table_memory_bounds(const struct region_header *layout, const struct core_pool_params *params,
			 struct core_memory *bounds);

/** table_memory_update - count the slot's page table again; call it after its capacity or owner has changed */
void table_memory_update(struct core_pool *pool, uint32_t slot);

/** table_memory_promise - count the slot's page table as if it had n_entries, if it has fewer */
void table_memory_promise(struct core_pool *pool, uint32_t slot, uint32_t n_entries);

/** table_memory_tick - give back about `budget` units that page tables do not need; returns how much was done */
uint32_t table_memory_tick(struct core_pool *pool, uint32_t budget);

/** table_memory_is_idle - true: table_memory_tick() has nothing to do */
static inline bool
table_memory_is_idle(const struct core_pool *pool)
{
	return pool->table_memory.lists[TABLE_MEMORY_LARGE].first == NONE;
}

/** table_memory_count_new - add a new page table to the request's totals */
void table_memory_count_new(struct core_pool *pool, uint32_t n_entries);

/** table_memory_count - add what a page table lacks for n_entries, and then for n_ahead further ones */
void table_memory_count(struct core_pool *pool, uint32_t slot, uint32_t n_entries, uint32_t n_ahead);

/**
 * table_memory_check - PAGED_ERR_FULL unless the limit allows the request's page tables, PAGED_ERR_QUOTA unless the
 * tenant's does; releases spare memory
 */
enum paged_status table_memory_check(struct core_pool *pool, uint32_t tenant, struct paged_error *error);

/** table_memory_has_ahead - true: the limits also allow the entries ahead of need */
bool table_memory_has_ahead(struct core_pool *pool, uint32_t tenant);

/** table_memory_check_move - PAGED_ERR_QUOTA unless the tenant may have the page tables of n sequences of others */
enum paged_status table_memory_check_move(const struct core_pool *pool, uint32_t tenant, uint32_t n,
					  const struct paged_seq_item *items, struct paged_error *error);

/** table_memory_move - count the slot's page table for another tenant; call it before slots[].tenant changes */
void table_memory_move(struct core_pool *pool, uint32_t slot, uint32_t tenant);

/** check_table_memory - verify all counts and lists of the memory of page tables */
enum paged_status check_table_memory(const struct core_pool *pool, struct paged_error *error);

/* published.c; call between core_pool_change_begin() and core_pool_change_end() */

/** published_open - nothing of a new sequence is published */
void published_open(struct core_pool *pool, uint32_t slot);

/** published_set - the sequence is published up to a node, which follows in its chain, or NONE */
void published_set(struct core_pool *pool, uint32_t slot, uint32_t page);

/** published_add_twin - the page table does not name this node's page; published_set() of it or a later one is next */
void published_add_twin(struct core_pool *pool, uint32_t slot, uint32_t page);

/**
 * published_limit - lower what is published to at most n_pages
 *
 * Where a twin may stand for the last of them, or it was given back, nothing counts as published.
 */
void published_limit(struct core_pool *pool, uint32_t slot, uint32_t n_pages);

/** published_copy - a fork is published as far as its parent; published_limit() follows */
void published_copy(struct core_pool *pool, uint32_t slot, uint32_t from);

/** published_trim - the sequence's first page has changed: if it is past what is published, nothing is any more */
void published_trim(struct core_pool *pool, uint32_t slot);

/** Most sequences that a change lowers to another node: each could be lowered again by the next eviction. */
#define LOWERED_AT_ONCE 1024u

/**
 * published_lower - the node will be removed: sequences whose tip it is are published up to the node `to`, or NONE
 *
 * Sequences trimmed past `to`, and those past LOWERED_AT_ONCE, no longer count as published at all.
 */
void published_lower(struct core_pool *pool, uint32_t page, uint32_t to);

/* node.c; call between core_pool_change_begin() and core_pool_change_end() */

/** node_is_live - true: the reference names the page's present node */
static inline bool
node_is_live(const struct core_pool *pool, const struct node_ref *ref)
{
	return ref->serial != 0 &&
	       atomic_load_explicit(&region_node(&pool->view, ref->page)->serial, memory_order_relaxed) == ref->serial;
}

/** page_is_published - true: the page has a node */
static inline bool
page_is_published(const struct core_pool *pool, uint32_t page)
{
	return (atomic_load_explicit(&region_page(&pool->view, page)->flags, memory_order_relaxed) &
		REGION_PAGE_PUBLISHED) != 0;
}

static inline uint32_t
page_count(const struct core_pool *pool, uint32_t page)
{
	return atomic_load_explicit(&region_page(&pool->view, page)->count, memory_order_relaxed);
}

/** node_ref - a reference to the page's node */
struct node_ref node_ref(const struct core_pool *pool, uint32_t page);

/** node_position - the page's node as a place to search from; NONE: the root */
struct prefix_position node_position(const struct core_pool *pool, uint32_t page);

/** node_parent - the node's parent, which is gone if the node is lost; serial 0: the node is the first of its chain */
struct node_ref node_parent(const struct core_pool *pool, uint32_t page);

/** node_store - publish a page of a slot as the child of `parent` with this block key, whose hash is `hash` */
void node_store(const struct core *core, struct core_pool *pool, uint32_t slot, uint32_t page,
		const struct prefix_position *parent, const struct prefix_block *block, uint64_t hash);

/** node_prefetch - prefetch what node_store() writes of a page */
void node_prefetch(const struct core_pool *pool, uint32_t page);

/** Most nodes below those that a request removes that it removes too. */
#define NODES_AT_ONCE 1024u

/**
 * node_remove - take the page's node out of the index, and the nodes below it, which no search finds any more
 *
 * Their cached pages become free.  Past NODES_AT_ONCE, nodes are lost: they stay without a parent
 * until nodes_remove_lost() removes them.
 */
void node_remove(struct core_pool *pool, uint32_t page);

/** nodes_remove_lost - remove up to `budget` lost nodes */
void nodes_remove_lost(struct core_pool *pool, uint32_t budget);

/** node_note_user - record that a session of a tenant depends on the node */
void node_note_user(struct core_pool *pool, uint32_t page, uint32_t tenant, uint32_t session);

/** node_used - record that a start of the session shares the node */
void node_used(const struct core *core, struct core_pool *pool, uint32_t page, const struct core_session *session);

/* bucket.c; call between core_pool_change_begin() and core_pool_change_end() */
void bucket_insert(struct core_pool *pool, uint32_t page, uint64_t hash);
void bucket_remove(struct core_pool *pool, uint32_t page);

/** bucket_prefetch - prefetch the first node of a hash's bucket */
void bucket_prefetch(const struct core_pool *pool, uint64_t hash);

/**
 * bucket_make_room - remove a node of a full bucket, into which a page of the slot is to be published
 *
 * The node is one of the tenant that has most nodes in the bucket, the new one counted; of these, one of the session
 * with most, where ended ones count as one; of these, one that the fewest others use (enum node_users); of these, the
 * one that was used least recently.  It may be one that the slot is published with, by a twin.
 * @return false: the slot's own pages fill the bucket
 */
bool bucket_make_room(const struct core *core, struct core_pool *pool, uint32_t slot, uint64_t hash);

/* lru.c; call between core_pool_change_begin() and core_pool_change_end() */

/** lru_unlist - take a page out of its list, if it is in one */
void lru_unlist(struct core_pool *pool, uint32_t page);

/** lru_touch - move a cached page to the hot end of the list that it belongs to */
void lru_touch(struct core_pool *pool, uint32_t page);

/**
 * lru_release - put the cached pages of a page table that dropped entries [n_keep, n) into the list
 *
 * If the chain is longer than the pool's step, as lru_release_next() does.  Else they and their cached ancestors move
 * to the hot end, the deepest first, so that a page is always colder than its parent: tails are evicted before heads.
 *
 * @param[in] tip  of the sequence before the drop, which stood for page n_published - 1, or NONE
 */
void lru_release(struct core_pool *pool, uint32_t slot, uint32_t n_keep, uint32_t n, uint32_t tip,
		 uint32_t n_published);

/**
 * lru_release_next - put the cached pages of n entries that a page table dropped, in their order, into the list
 *
 * Each becomes as old as its nearest cached ancestor, and is evicted before it.  A page without one goes to the hot
 * end.  So does a page whose nearest cached ancestor is further away than LRU_SEARCH nodes in all: then that ancestor
 * may be evicted first, and the page leaves the index with it.
 */
#define LRU_SEARCH 2048u
void lru_release_next(struct core_pool *pool, const _Atomic uint32_t *entries, uint32_t n);

/**
 * lru_release_hold - put the cached pages of n entries that a hold dropped into the list
 *
 * From the last entry to the first, each page moves to the hot end, followed by its cached ancestors from the deepest
 * to the root, except those that an earlier entry is or has as an ancestor: these follow that entry.  If the chains
 * have more nodes than the pool's step, as lru_release_next().
 */
void lru_release_hold(struct core_pool *pool, const _Atomic uint32_t *entries, uint32_t n);

/** lru_evict - free the n coldest cached pages; fewer if there are fewer; pinned pages last, or with pinned false not
 * at all */
uint32_t lru_evict(struct core_pool *pool, uint32_t n, bool pinned);

/** lru_make_room - evict until n_pages are free; that many are free or cached */
void lru_make_room(struct core_pool *pool, uint64_t n_pages);

/* cache_share.c */

/**
 * cache_share_insert - put a page that has been put into `lru` into the list of the tenant that published it
 *
 * At the hot end, or else colder than its ancestors in that list.  The pool has shares; so for the next two.
 */
void cache_share_insert(struct core_pool *pool, uint32_t page, bool hottest);
void cache_share_remove(struct core_pool *pool, uint32_t page);

/** cache_share_coldest - the page to evict before all others; NONE: no tenant has more than its share */
uint32_t cache_share_coldest(struct core_pool *pool);

/** check_cache_shares - verify the lists of cached pages by tenant */
enum paged_status check_cache_shares(const struct core_pool *pool, struct paged_error *error);

/* pin.c */

/**
 * pins_shorten - leave out of the pins' counts the nodes that were removed; ends pins of which none is left
 *
 * What is left of a chain ends with another node, which names the pin from then on.  Nothing calls this when a node is
 * removed: evictions have no time to search the pins.
 */
void pins_shorten(struct core_pool *pool);

/** pins_have_expired - true: the deadline of a pin has passed */
bool pins_have_expired(const struct core *core, const struct core_pool *pool);

/** pins_expire - end such pins, until they named `budget` nodes; returns how many nodes they named */
uint32_t pins_expire(struct core *core, struct core_pool *pool, uint32_t budget);
void pins_free(struct core_pool *pool);

/* ticket.c */

/**
 * ticket_find_valid - find a ticket
 *
 * All reasons for which there is none have one text: it tells nothing about other tickets.
 *
 * @param[out] i_p  in the list of tickets
 */
enum paged_status ticket_find_valid(const struct core *core, const uint8_t bytes[PAGED_TICKET_SIZE], uint32_t *i_p,
				    struct paged_error *error);

/** ticket_suspend - an adopt begins that needs several steps; ticket_resume() if it is refused, or ticket_used() */
void ticket_suspend(struct core *core, struct core_ticket *ticket);
void ticket_resume(struct core *core, struct core_ticket *ticket);

/** ticket_used - remove and free a ticket whose sequences are in a session's list again */
void ticket_used(struct core *core, struct core_ticket *ticket);

/** tickets_disown - a session that has given sequences away has ended; its tickets keep them */
void tickets_disown(struct core *core, const struct core_session *session);

/** tickets_have_expired - true: the deadline of a ticket has passed */
static inline bool
tickets_have_expired(const struct core *core)
{
	return core->tickets.n > 0 && core->tickets.first_deadline_ms <= core->now_ms;
}

/** tickets_expire - return the sequences of such tickets, until these were `budget`; returns how many they were */
uint32_t tickets_expire(struct core *core, uint32_t budget);
void tickets_free(struct core *core);

/** check_tickets - verify that each frozen sequence of the pool is in one ticket; adds them to *n_sequences */
enum paged_status check_tickets(const struct core *core, const struct core_pool *pool, uint32_t *n_sequences,
				struct paged_error *error);

/* adopt.c */

/**
 * adopt_n_moved - first entries of the slot's page table that an unfinished adopt has charged to the tenant *to_p
 */
uint32_t adopt_n_moved(const struct core *core, const struct core_pool *pool, uint32_t slot, uint32_t *to_p);

/* tenant.c */

static inline struct tenant_pool *
tenant_pool(const struct core_pool *pool, uint32_t tenant)
{
	return &pool->tenants->items[tenant - 1]->pools[pool->index];
}

/** tenant_make_pool - before a session's first use of a pool: make its tenant ready to be charged; PAGED_ERR_NOMEM */
enum paged_status tenant_make_pool(struct core_pool *pool, uint32_t tenant, struct paged_error *error);

/* The `tenant` of these five is not 0. */

/** tenant_charge_new - charge pages that were free until now */
void tenant_charge_new(struct core_pool *pool, uint32_t tenant, const _Atomic uint32_t *entries, uint32_t n);

/** tenant_charge - count further references of a page */
void tenant_charge(struct core_pool *pool, uint32_t tenant, uint32_t page, uint32_t n_refs);

/** tenant_discharge - count one reference of a page less */
void tenant_discharge(struct core_pool *pool, uint32_t tenant, uint32_t page);

/** tenant_quarantine - the last reference of a page is dropped, and the page is quarantined: it stays charged */
void tenant_quarantine(struct core_pool *pool, uint32_t tenant);

/** tenant_free_quarantined - a quarantined page is free */
void tenant_free_quarantined(struct core_pool *pool, uint32_t tenant, uint32_t page);

/** tenant_count_shared - add to the request's n_newly_charged if sharing the page charges it to the tenant */
void tenant_count_shared(struct core_pool *pool, uint32_t tenant, uint32_t page);

/** tenant_n_left - pages that the tenant may still be charged, without promised ones; UINT32_MAX: no limit */
uint32_t tenant_n_left(const struct core_pool *pool, uint32_t tenant);

/** tenant_check - PAGED_ERR_QUOTA if the request's pages or slots exceed the limits */
enum paged_status tenant_check(const struct core_pool *pool, uint32_t tenant, struct paged_error *error);

/** tenant_is_over - true: the tenant, which is not 0, is charged more pages than its limit */
bool tenant_is_over(const struct core_pool *pool, uint32_t tenant);

/** tenant_fail_pages - PAGED_ERR_QUOTA: the tenant may not be charged n_pages more */
enum paged_status tenant_fail_pages(const struct core_pool *pool, uint32_t tenant, uint64_t n_pages,
				    struct paged_error *error);

/** tenant_is_charged - true: sequences of the tenant name the page, or it left the page in quarantine */
bool tenant_is_charged(const struct core_pool *pool, uint32_t tenant, uint32_t page);

/** check_tenants - verify all charges of a pool from its page tables and quarantines */
enum paged_status check_tenants(const struct core *core, const struct core_pool *pool, struct paged_error *error);

/* tenant_list.c; tenant 0 is none, and has no limit */

void tenants_free(struct core *core);

/** tenant_session_freed - count a session of the tenant less; may remove the tenant */
void tenant_session_freed(struct core *core, uint32_t tenant);

/** tenant_count_slots - add n to the slots that sequences of the tenant have */
void tenant_count_slots(struct core_pool *pool, uint32_t tenant, int n);

/** tenant_count_moves - add n to the unfinished adopts that charge pages to the tenant, which may remove it */
void tenant_count_moves(struct core *core, uint32_t tenant, int n);

/** tenant_setting - the setting that raises the tenant's share */
const char *tenant_setting(const struct core_tenant *tenant);

/** tenant_check_slots - PAGED_ERR_QUOTA unless the tenant may have n more */
enum paged_status tenant_check_slots(const struct core_pool *pool, uint32_t tenant, uint32_t n,
				     struct paged_error *error);

/** tenant_check_pin - PAGED_ERR_QUOTA unless the tenant may have n_pins more pins, and n_pages of them or of a hold */
enum paged_status tenant_check_pin(const struct core_pool *pool, uint32_t tenant, uint32_t n_pins, uint32_t n_pages,
				   struct paged_error *error);

/** tenant_count_pin - count a pin of n pages; with `add` false the pin has ended, which may remove the tenant */
void tenant_count_pin(struct core_pool *pool, uint32_t tenant, uint32_t n_pages, bool add);

/** tenant_count_node - count a node that was published by the tenant; with `add` false: removed, as above */
void tenant_count_node(struct core_pool *pool, uint32_t tenant, bool add);

/** tenant_count_held - add n to the pages that holds of the tenant have */
void tenant_count_held(struct core_pool *pool, uint32_t tenant, int64_t n);

/** tenant_count_tickets - add n to the tenant's open tickets */
void tenant_count_tickets(struct core *core, uint32_t tenant, int n);

/** tenant_check_tickets - PAGED_ERR_QUOTA unless the tenant may have one more */
enum paged_status tenant_check_tickets(const struct core *core, uint32_t tenant, struct paged_error *error);

/* request.c: checks and totals that requests have in common */

/** request_session - find an active session that has no unfinished request; PAGED_ERR_GONE, PAGED_ERR_AGAIN */
enum paged_status request_session(const struct core *core, uint32_t session_id, struct core_session **session_p,
				  struct paged_error *error);

/** request_begin - find the session, start the totals of a new request, and check the number of its items */
enum paged_status request_begin(struct core *core, uint32_t session_id, uint32_t n, struct core_session **session_p,
				struct paged_error *error);
enum paged_status request_check_pool(const struct core *core, uint32_t pool, struct paged_error *error);

/** request_check_draining - PAGED_ERR_STOPPING if the session may get no new sequences */
enum paged_status request_check_draining(const struct core_session *session, struct paged_error *error);

/** request_check_owned - a live sequence of the session, or a hold; with `once`, named once in the request */
enum paged_status request_check_owned(struct core *core, const struct core_session *session, paged_seq_id id, bool once,
				      struct paged_error *error);

/** request_check_seq - request_check_owned(), and no hold */
enum paged_status request_check_seq(struct core *core, const struct core_session *session, paged_seq_id id, bool once,
				    struct paged_error *error);

/** request_check_items - all items name a sequence of the session, each once */
enum paged_status request_check_items(struct core *core, uint32_t session_id, uint32_t n,
				      const struct paged_seq_item *items, struct core_session **session_p,
				      struct paged_error *error);

/** request_check_trimmed - PAGED_ERR_INVALID if n_tokens ends before the first page of a trimmed sequence */
enum paged_status request_check_trimmed(const struct core *core, paged_seq_id id, uint32_t n_tokens, const char *what,
					struct paged_error *error);

/** request_count - add pages and slots to the request's totals for the pool */
void request_count(struct core *core, struct core_pool *pool, uint32_t n_pages, uint32_t n_slots);

/**
 * request_check_free - PAGED_ERR_FULL unless the pool has room for the totals, PAGED_ERR_QUOTA unless the session's
 * tenant may have them; sets n_spare
 */
enum paged_status request_check_free(struct core_pool *pool, const struct core_session *session,
				     struct paged_error *error);

/**
 * request_fail_short - error has a refusal; add how many pages and slots were missing, and returns its status
 *
 * @param[in] n_pages  that the request asked for
 */
enum paged_status request_fail_short(const struct core_pool *pool, uint64_t n_pages, uint64_t pages_missing,
				     uint64_t slots_missing, struct paged_error *error);

/** request_pages - pages that hold a number of tokens */
uint32_t request_pages(const struct core_pool *pool, uint32_t tokens);

/** request_pool - the pool that an id names; the caller has checked that it exists */
static inline struct core_pool *
request_pool(const struct core *core, paged_seq_id id)
{
	return core->pools[PAGED_SEQ_POOL(id)];
}

/** request_fail - paged_fail() with "sequence 12.1 of pool llama " before the formatted text */
#define request_fail(core, id, error, status, format, ...)                                    \
	paged_fail(error, status, "sequence " SEQ_FORMAT " of pool %s " format, SEQ_ARGS(id), \
		   request_pool(core, id)->name, __VA_ARGS__)

/* operation.c */

/** operation_create - allocate an operation with n items, which the caller fills */
enum paged_status operation_create(struct core_session *session, const struct operation_ops *ops, uint32_t n,
				   struct core_operation **operation_p, struct paged_error *error);

/** operation_queue - let core_step() do all steps of the operation */
void operation_queue(struct core *core, struct core_operation *operation);

/** operation_begin - do a step of the operation, and let core_step() do the others; cannot fail */
void operation_begin(struct core *core, struct core_operation *operation);

/** operation_spend - lower what is left of a step's budget by the work done, which is at least 1 */
static inline void
operation_spend(uint32_t *budget, uint64_t n_worked)
{
	uint64_t n = n_worked > 0 ? n_worked : 1;

	*budget -= n < *budget ? (uint32_t)n : *budget;
}

/** operation_stop - the session has ended: give up its unfinished request, if it has one */
void operation_stop(struct core *core, struct core_session *session);
void operations_free(struct core *core);

/* growth.c */

/** growth_is_long - true: sharing n_shared entries and taking the pages of the request's totals exceeds a step */
bool growth_is_long(const struct core *core, uint64_t n_shared);

/** growth_create - operation_create() of n items, for each of which growth_promise() is called before it begins */
enum paged_status growth_create(struct core_session *session, uint32_t n, struct core_operation **operation_p,
				struct paged_error *error);

/**
 * growth_promise - set item i: the page table of item.seq, to be extended to n_pages
 *
 * Up to n_whole, the pages are those of `parent`, which the caller has protected.
 */
void growth_promise(struct core *core, struct core_operation *operation, uint32_t i, struct operation_item item);

/** growth_create_if_long - growth_create() if the request's totals are more than a step; else *operation_p is NULL */
enum paged_status growth_create_if_long(const struct core *core, struct core_session *session, uint32_t n,
					struct core_operation **operation_p, struct paged_error *error);

/** growth_add - extend the page table to n_pages, unless it is longer: at once, or as item i of the operation */
void growth_add(struct core *core, struct core_session *session, struct core_operation *operation, uint32_t i,
		paged_seq_id seq, uint32_t n_pages);

/** growth_begin - operation_begin(), unless the operation is NULL */
void growth_begin(struct core *core, struct core_operation *operation);

/** check_promises - verify what unfinished requests will take of a pool */
enum paged_status check_promises(const struct core *core, const struct core_pool *pool, struct paged_error *error);

/* audit.c: call before a change, so that the audit saves the old value */

/** audit_page_table - record a page table; call it before the table drops its entries from n_pages on, or grows */
void audit_page_table(struct core_audit *audit, uint32_t slot, uint32_t n_pages);

/** audit_trim - record the entries before n_pages; call it before the page table gives their pages back */
void audit_trim(struct core_audit *audit, uint32_t slot, uint32_t n_pages);

/** audit_free_list - record the stack of free pages; call it before the stack drops its entries from n on */
void audit_free_list(struct core_audit *audit, uint32_t n);

/** audit_count - record a page's count and flags; call it before either changes */
void audit_count(struct core_audit *audit, uint32_t page);

/* idmap.c */

struct core_session *idmap_find(const struct idmap *map, uint32_t id);

/** idmap_after - the session with the smallest id above; NULL: none */
struct core_session *idmap_after(const struct idmap *map, uint32_t id);

/** idmap_make_room - allocate room for one more entry; false: no memory */
bool idmap_make_room(struct idmap *map);

/** idmap_append - add an id above all others; idmap_make_room() has made room */
void idmap_append(struct idmap *map, uint32_t id, struct core_session *session);
void idmap_remove(struct idmap *map, uint32_t id);

/* array.c */

/** core_arrays_free - drop all arrays of a session that ends */
void core_arrays_free(struct core_session *session);

/* check_index.c */

/** check_index - verify nodes, buckets and the lists of cached pages */
enum paged_status check_index(const struct core_pool *pool, struct paged_error *error);

/* session_query.c */

/** core_session_find_active - PAGED_ERR_GONE if the session has ended or never existed */
enum paged_status core_session_find_active(const struct core *core, uint32_t id, struct core_session **session_p,
					   struct paged_error *error);

/** core_session_has_work - true: core_reap() can clean up something of this ended session now */
bool core_session_has_work(const struct core_session *session);

/* session.c */

/** core_session_make_pool - allocate the session's lists for a pool, and its tenant's charges; PAGED_ERR_NOMEM */
enum paged_status core_session_make_pool(struct core *core, struct core_session *session, uint32_t pool,
					 struct paged_error *error);

/** core_session_queue_or_free - queue an ended session for core_reap(), or free it if nothing is left to clean up */
void core_session_queue_or_free(struct core *core, struct core_session *session);
void core_session_free(struct core_session *session);

#endif
