/* SPDX-License-Identifier: Apache-2.0 */
/**
 * core_internal.h - the structs of the core, and its pools
 *
 * The functions of its files are in headers by their nouns: pages.h, page_table.h, node.h, tenant.h, session.h,
 * request.h, ticket.h and audit.h.  `tools/heads core` says what each file has.
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

#endif
