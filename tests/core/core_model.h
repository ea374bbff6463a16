/* SPDX-License-Identifier: Apache-2.0 */
/**
 * core_model.h - a naive model of the core: what each request must do, to the order of every list
 *
 * The model derives what the core stores: a page's count from the page tables, a
 * node's children and the coverage of pins by searching all of them.  Its lists are vectors.
 * It consists of
 *
 *   core_model.c           pages, nodes, lists: taking, dropping, evicting
 *   core_model_compare.c   compares the core with the model, and checks the invariants
 *   core_model_requests.c  random create, reserve, truncate, trim, erase
 *   core_model_publish.c   random publish; the prefixes that were published, and searches for them
 *   core_model_sharing.c   random start and fork
 *   core_model_pins.c      random pin, evict, tick
 *   core_model_tickets.c   random give, adopt, cancel
 *   core_model_holds.c     random holds and drains
 *   core_model_steps.c     requests that are divided into steps
 *   core_model_tenants.c   what tenants are charged; random limits
 *   core_model_shares.c    cached pages of the tenant that has a share of the cache
 *   unit_core_model.c      random sessions, their cleanup, audits; the test
 */
#ifndef PAGED_CORE_MODEL_H
#define PAGED_CORE_MODEL_H

#include <inttypes.h>

#include "tests/core/core_fixture.h"

#define MODEL_POOLS 3
#define MODEL_PAGES 24
#define MODEL_SEQS 8 /* in a pool, at most */
#define MODEL_SESSIONS 5
#define MODEL_MEMBERS 3
#define MODEL_ITEMS 4
#define MODEL_TENANTS 2
#define MODEL_SHARER 1 /* the tenant that may have a share of the cache */
#define MODEL_PINS 24
#define MODEL_TICKETS 20
#define MODEL_CHANGES 256
#define MODEL_PATHS 128

/**
 * The block keys that pages are published with, few so that prefixes meet: token ids that differ in the last one,
 * or in the extra alone, and keys of the caller.
 */
enum model_symbol { SYMBOL_A, SYMBOL_B, SYMBOL_A_EXTRA, SYMBOL_KEY_A, SYMBOL_KEY_B, MODEL_SYMBOLS };

struct model_geometry {
	uint32_t n_pages, page_size, n_slots, max_length, free_pages, pin_limit;
	uint32_t n_tables; /* page tables that the limit of their memory allows: 64 bytes each */
};
extern const struct model_geometry model_geometries[MODEL_POOLS];

/** A node, or none: serial 0. */
struct model_place {
	uint32_t page;
	uint64_t serial;
};

struct model_node {
	uint64_t serial; /* 0: none */
	struct model_place parent;
	enum model_symbol symbol;
	uint64_t hash;
	uint32_t hits;
	uint32_t used;            /* of the last start, or when it was stored */
	uint32_t session, tenant; /* of its publisher */
	uint32_t users;           /* 0: only that session, 1: also others of the tenant, 2: also other tenants */
};

struct model_list {
	uint32_t n;
	uint32_t pages[MODEL_PAGES];
};

/* Nodes that are evicted although they are pinned count against the limit until model_pins_shorten(). */
struct model_pin {
	uint64_t deadline;
	uint32_t tenant;
	uint32_t n;
	struct model_place chain[MODEL_PAGES]; /* from the pinned node to the root */
};

enum model_seq_state {
	MODEL_SEQ_NONE,
	MODEL_SEQ_LIVE,
	MODEL_SEQ_ENDED, /* its session has ended; core_reap() has not closed it */
};

struct model_seq {
	enum model_seq_state state;
	bool frozen; /* in a ticket */
	paged_seq_id id;
	uint32_t session; /* owner: the session's id, or REGION_OWNER_TICKET */
	uint32_t tenant;
	uint64_t born; /* when the session got it: a session's sequences are reaped the youngest first */
	uint32_t n_pages;
	uint32_t n_trimmed; /* pages at the beginning that were given back: REGION_NO_PAGE in pages */
	uint32_t pages[MODEL_PAGES];
	enum model_symbol content[MODEL_PAGES]; /* what a worker would write; publishes usually tell the truth */
	enum model_symbol said[MODEL_PAGES];    /* what the published pages were published with */
	uint32_t n_writable_from, n_published;  /* pages */
	enum paged_publish_end end;             /* of the last publish */
	struct model_place tip;
	uint32_t twins_begin, twins_end; /* pages outside have nodes of their own */
	uint64_t version;
	bool is_hold;
	bool version_moves; /* in the current operation */
};

/** A change of the index that the ring must show. */
struct model_change {
	enum region_ring_kind kind;
	uint32_t page;
	uint64_t serial, hash;
};

/** quarantine[page] of a page that an operation of unknown order frees: it must be in the free list afterwards. */
#define MODEL_RELEASED UINT32_MAX

/** What the header of the region counts. */
struct model_totals {
	uint64_t n_starts, n_tokens_asked, n_tokens_found, n_published, n_evicted, n_orphaned, n_displaced;
	uint64_t n_stopped_removed, n_stopped_trimmed, n_stopped_other, n_stopped_bucket;
	uint64_t n_created, n_ended, n_forked, n_given, n_adopted, n_cancelled, n_expired, n_taken, n_trimmed;
	uint32_t peak_sequences, peak_referenced;
};

struct model_pool {
	uint32_t n_pages;
	struct model_list free;            /* pages are taken from the end */
	struct model_list lru, pinned;     /* cached pages, the coldest first */
	uint32_t share;                    /* of the cache, of MODEL_SHARER; CORE_NO_LIMIT: none */
	struct model_list shared;          /* cached pages that count for it, the coldest first */
	uint32_t quarantine[MODEL_PAGES];  /* per page: the ended session that it belonged to, or 0 */
	struct model_seq seqs[MODEL_SEQS]; /* by slot */
	struct model_node nodes[MODEL_PAGES];
	uint32_t n_pins;
	struct model_pin pins[MODEL_PINS]; /* the oldest first */
	uint64_t next_serial;
	struct model_totals totals;
	uint32_t n_changes;
	struct model_change changes[MODEL_CHANGES]; /* of the current operation */
	uint64_t ring_head;                         /* before it */
};

enum pending_kind { PENDING_NONE, PENDING_TRUNCATE, PENDING_TRIM, PENDING_ERASE, PENDING_GROWTH };

/** The unfinished request of a session. */
struct model_pending {
	enum pending_kind kind;
	uint32_t n;
	struct pending_item {
		paged_seq_id seq;
		/* That it has in the end; PENDING_TRIM: n_whole are given back; PENDING_GROWTH: of the parent. */
		uint32_t n_pages, n_whole;
		paged_seq_id parent;
	} items[MODEL_ITEMS];
};

struct model_session {
	uint32_t id; /* 0: none */
	bool active, outlives, draining;
	uint32_t tenant;
	uint64_t queued; /* since core_reap() has work for it; sessions are reaped in this order */
	struct model_pending pending;
	uint32_t members[MODEL_MEMBERS]; /* 0: none; if not outlives, the session ends with the first */
};

/** Sequences on their way from one session to another. */
struct model_ticket {
	uint64_t number;
	uint32_t bytes_number; /* its bytes are made from this */
	uint32_t giver;
	uint32_t pool;
	struct seq_give give;
	uint64_t deadline;
	uint32_t n;
	struct paged_seq_item items[MODEL_ITEMS];
};

/** A prefix that was published. */
struct model_path {
	uint32_t n;
	enum model_symbol symbols[MODEL_PAGES];
};

struct model {
	struct core_fixture fixture;
	struct model_pool pools[MODEL_POOLS];
	struct model_session sessions[MODEL_SESSIONS];
	struct core_tenant_pool_limits limits[1 + MODEL_TENANTS][MODEL_POOLS]; /* of tenant 0: unused */
	uint32_t ticket_limits[1 + MODEL_TENANTS];
	uint32_t last_session;
	uint64_t n_born, n_queued;
	uint32_t n_tickets;
	struct model_ticket tickets[MODEL_TICKETS]; /* the oldest first */
	uint64_t n_given, n_adopted, n_adopted_of_ended;
	uint64_t now_ms;
	uint32_t step; /* of core_set_step() */
	uint64_t seed, random;
	uint64_t operation;
	const char *operation_name;
	uint64_t n_done, n_refused;
	struct paged_error error;
	struct model_path paths[MODEL_POOLS][MODEL_PATHS];
	uint32_t n_paths[MODEL_POOLS]; /* ever recorded */
	struct core_audit *audit;      /* of the state when it began */
	uint32_t audited;
	struct paged_check_result accounting;
	uint64_t n_audits;
	/* Rare cases: pages that another sequence's page stands for; sequences published less, as a node is gone. */
	uint64_t n_holds;
	uint64_t n_divided; /* steps that left a request unfinished */
	uint64_t n_twins, n_lowered, n_found, n_searched;
	uint64_t n_share_evictions;                 /* of pages that were not the coldest */
	uint64_t n_trims_cached, n_trims_published; /* trims that cached a page; publishes of trimmed sequences */
};
extern struct model model;

/** model_fail - end the test; the text names the seed and the operation */
#define model_fail(format, ...)                                                                                    \
	cr_assert_fail("PAGED_SEED=%" PRIu64 ", operation %" PRIu64 " (%s): " format, model.seed, model.operation, \
		       model.operation_name, __VA_ARGS__)

#define model_check(condition)                                                                                      \
	do {                                                                                                        \
		if (!(condition))                                                                                   \
			model_fail("%s:%d: %s (last error: %s)", __FILE__, __LINE__, #condition, model.error.text); \
	} while (0)

/* core_model.c */

/** random_below - a random number in [0, n) */
uint32_t random_below(uint32_t n);

/** status_bit - a set of statuses: a request with several errors may fail with the status of any of them */
uint32_t status_bit(enum paged_status status);
void model_check_status(enum paged_status status, uint32_t errors);

struct model_session *model_session_find(uint32_t id);
/** random_requester - the session that makes a request; rarely one that has ended */
struct model_session *random_requester(void);
/** draining_errors - of a request that creates sequences */
uint32_t draining_errors(const struct model_session *session);
uint32_t count_members(const struct model_session *session);
/** model_session_has_work - true: core_reap() can do something for an ended session */
bool model_session_has_work(const struct model_session *session);
/** model_session_queue - core_reap() has work for the session from now on, if it has ended */
void model_session_queue(struct model_session *session);

uint32_t pages_of_tokens(uint32_t pool, uint32_t tokens);
/** model_seq_find - the sequence of an id; NULL: the id is invalid, or its session has ended */
struct model_seq *model_seq_find(paged_seq_id id);
/** model_seq_open - the core has created a sequence in a slot that the model has free */
struct model_seq *model_seq_open(paged_seq_id id, uint32_t pool, uint32_t session);
/** model_seq_close - the sequence has ended, and has no pages */
void model_seq_close(struct model_pool *pool, struct model_seq *seq);
/** random_seqs - usually sequences of the session, each once; sometimes ids of any kind; returns their number */
uint32_t random_seqs(const struct model_session *session, uint32_t most, paged_seq_id *ids);
/** seq_errors - the errors of a request that names these sequences */
uint32_t seq_errors(const struct model_session *session, uint32_t n, const paged_seq_id *ids);

uint32_t model_count(const struct model_pool *pool, uint32_t page);
bool model_is_live(const struct model_pool *pool, struct model_place place);
/** model_is_in_chain - true: the node of page `node` is that of `page`, or an ancestor of it */
bool model_is_in_chain(const struct model_pool *pool, uint32_t page, uint32_t node);
bool model_is_pinned(const struct model_pool *pool, uint32_t page);
/** model_note_user - a sequence starts on the node, or has a twin of it */
void model_note_user(struct model_node *node, const struct model_seq *seq);
/** model_child - the node of a block key under a parent; REGION_NO_PAGE: none */
uint32_t model_child(const struct model_pool *pool, struct model_place parent, enum model_symbol symbol);
/** model_cached_hot - move a cached page to the hot end of its list */
void model_cached_hot(struct model_pool *pool, uint32_t page);
void model_cached_remove(struct model_pool *pool, uint32_t page);
/** model_hash - of a symbol under a parent */
uint64_t model_hash(const struct model_pool *pool, uint32_t p, struct model_place parent, enum model_symbol symbol);
void model_node_store(struct model_pool *pool, uint32_t p, const struct model_seq *seq, uint32_t page,
		      struct model_place parent, enum model_symbol symbol);
/** model_node_remove - remove a node and all below it; cached pages become free, and sequences are published less */
void model_node_remove(struct model_pool *pool, uint32_t page);
/** model_set_published - the sequence is published up to a node, its n_pages'th */
void model_set_published(struct model_seq *seq, uint32_t n_pages, struct model_place tip);

/** model_slots_left - sequences that the slots and the memory of page tables leave room for */
uint32_t model_slots_left(uint32_t pool);
/** model_available - free and cached pages that no unfinished request was promised */
uint32_t model_available(const struct model_pool *pool);
void model_evict(struct model_pool *pool);
/** model_make_free - evict until n pages are free */
void model_make_free(struct model_pool *pool, uint32_t n);
void model_take(struct model_pool *pool, struct model_seq *seq, uint32_t n_pages);
/** model_truncate - drop pages from n_keep on; session 0: unpublished pages go to the free list, else see quarantine */
void model_truncate(struct model_pool *pool, struct model_seq *seq, uint32_t n_keep, uint32_t n_whole,
		    uint32_t session);
/** model_fork_published - a child with all its full pages is published as far as they are */
void model_fork_published(struct model_pool *pool, const struct model_seq *parent, struct model_seq *child);
/** model_trim - give the first n pages back */
void model_trim(struct model_pool *pool, struct model_seq *seq, uint32_t n);

/* core_model_steps.c */

/** requester_errors - PAGED_ERR_GONE, PAGED_ERR_AGAIN */
uint32_t requester_errors(const struct model_session *session);
/** model_is_long - true: to share n_shared entries and to take pages is more than a step */
bool model_is_long(uint32_t n_shared, const uint32_t *needs);
/** model_promised - pages of the pool that unfinished requests will take, all or those of a tenant */
uint32_t model_promised(uint32_t p);
uint32_t model_promised_to(uint32_t p, uint32_t tenant);
/**
 * model_grow - the core has opened the sequences, and extends them to n_pages: at once, if that is no more than a step
 *
 * @param[in] needs  [MODEL_POOLS] pages that they lack
 */
void model_grow(struct model_session *session, uint32_t n, struct model_seq *const *seqs, const uint32_t *n_pages,
		const uint32_t *needs);
/** model_follow - do in the model what the core has done of session->pending */
void model_follow(struct model_session *session);

/* core_model_shares.c */
/** model_share_insert - a page was put into `lru`: at its hot end, or below its ancestors */
void model_share_insert(struct model_pool *pool, uint32_t page, bool hottest);
void model_share_remove(struct model_pool *pool, uint32_t page);
/** model_share_coldest - the page to evict first, because the tenant has more than its share; REGION_NO_PAGE: none */
uint32_t model_share_coldest(struct model_pool *pool);
void random_share(void);

/* core_model_tenants.c */
void model_tenants_start(void);
bool model_is_charged(uint32_t p, uint32_t tenant, uint32_t page);
/** model_quota_left - pages that the tenant may still be charged; UINT32_MAX: no limit */
uint32_t model_quota_left(uint32_t p, uint32_t tenant);
uint32_t quota_errors(uint32_t p, uint32_t tenant, uint32_t n_pages);
/** slot_errors - of a request for n slots */
uint32_t slot_errors(uint32_t p, uint32_t tenant, uint32_t n);
/** pin_errors - of a request for n_pins pins that name n_pages, or for a hold of them */
uint32_t pin_errors(uint32_t p, uint32_t tenant, uint32_t n_pins, uint32_t n_pages);
/** ticket_errors - of a request for a ticket */
uint32_t ticket_errors(uint32_t tenant);
void compare_tenants(void);

/* core_model_compare.c */
void model_compare(void);

/* core_model_tickets.c */
void model_compare_tickets(void);
uint32_t model_count_tickets(uint32_t session);
/** model_tickets_disown - the session has ended; its tickets keep their sequences */
void model_tickets_disown(uint32_t session);
bool model_tickets_have_expired(void);
void model_tickets_expire(void);

/* The random operations. */
void random_create(void);
void random_reserve(void);
void random_truncate(void);
void random_trim(void);
void random_erase(void);
void random_publish(void);
void random_search(void);
void random_start(void);
void random_fork(void);
void random_pin(void);

/** model_pins_shorten - leave out of the pins what is gone; before each pin, and before a hold that would be refused */
void model_pins_shorten(struct model_pool *pool);
void random_clock(void);
void random_tick(void);
void random_evict(void);
void random_give(void);
void random_adopt(void);
void random_cancel(void);
void random_limit(void);
void random_hold(void);
void random_drain(void);
void random_step(void);
void random_step_size(void);

/* core_model_holds.c */
/** model_n_held - pages of all holds of a pool, each counted as often as it is held */
uint32_t model_n_held(uint32_t p);

/* core_model_publish.c */

/** model_block_key - token ids and extra of a symbol; tokens NULL: it has no token ids */
void model_block_key(enum model_symbol symbol, uint32_t page_size, uint32_t *tokens, uint8_t extra[REGION_EXTRA_SIZE],
		     bool *has_tokens_p);
/** model_find_paths - search the core's index for recorded prefixes and compare with the longest live chain */
void model_find_paths(uint32_t pool, uint32_t n_paths);
/** model_check_published - a search finds what the sequence has published */
void model_check_published(uint32_t pool, const struct model_seq *seq);
enum model_symbol random_symbol(bool keys);

#endif
