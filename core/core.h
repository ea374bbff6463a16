/* SPDX-License-Identifier: Apache-2.0 */
/**
 * core.h - the owner's state machine: pools, page tables, reference counts, sessions
 *
 * The core is pure: no I/O, no clock, no randomness.  The daemon drives it
 * from its event loop; an embedded client runs it inside its own process.  Time is
 * what core_set_now() said last; random bytes are parameters.
 * The core writes the table regions (common/region.h), whose memory the
 * caller provides.  It knows pages only by number, not where their bytes lie.
 *
 * Every request is all-or-nothing: on any status but PAGED_OK nothing has
 * changed, and error names the cause, the object and the numbers.
 *
 * Costs: O(1) per page and O(1) per sequence named in the request,
 * independent of the pool's size.  core_set_step() divides long requests into
 * steps.  Memory use follows the high-water marks of slots and pages, except for
 * page tables: what they do not need any more is given back through
 * core_pool_params.release.
 *
 * Sessions.  A session has members (processes).  It ends when its first
 * member leaves (after core_session_outlive(): its last), or by
 * core_session_end().  Requests of an ended session fail with PAGED_ERR_GONE.
 * Its sequences are ended, and its pages stay in quarantine until the last
 * member has left.  An end may touch many pages, so core_reap() does this
 * cleanup in steps.
 *
 * Threads: one caller at a time.
 */
#ifndef PAGED_CORE_H
#define PAGED_CORE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/paged_reports.h"
#include "common/prefix.h"
#include "common/region.h"
#include "common/sequence.h"
#include "common/status.h"

struct core;

enum paged_status core_create(const uint8_t boot_id[REGION_BOOT_ID_SIZE], struct core **core_p,
			      struct paged_error *error);

/** core_destroy - free everything except the regions, which the caller owns; accepts NULL */
void core_destroy(struct core *core);

/** core_set_now - set the time, in milliseconds of a clock that never goes back; call it before each request */
void core_set_now(struct core *core, uint64_t now_ms);

/* Pools */

struct core_pool_params {
	const char *name; /* 1 to PAGED_MAX_NAME bytes, unique; copied */
	uint32_t n_pages;
	uint32_t page_size; /* tokens */
	uint32_t n_slots;
	uint32_t max_length;   /* tokens a sequence may reserve */
	bool publish;          /* sequences can be published */
	uint32_t free_pages;   /* core_tick() evicts cached pages while fewer are free */
	uint32_t pin_limit;    /* most pages that pins and holds may name, each counted */
	uint64_t table_memory; /* bytes of page tables at most; 0: core_memory.tables_default */
	/**
	 * Give memory of the region back, at least a system page, and let it read as zeros.  false: it stays as it is.
	 * NULL: memory stays populated.
	 */
	bool (*release)(void *memory, size_t size);
	uint64_t seed;                            /* random; of the hashes of block keys */
	uint64_t first_number;                    /* random; what serials and numbers of changes begin with */
	uint8_t memory_id[REGION_MEMORY_ID_SIZE]; /* random; of the memory that holds the pages */
};

/** core_region_size - bytes of the region that a pool needs; 0 if a number is 0, exceeds a limit or overflows */
size_t core_region_size(const struct core_pool_params *params);

/** Bytes of memory that a pool takes besides its pages. */
struct core_memory {
	uint64_t tables_most;    /* page tables, if all sequences have the longest length */
	uint64_t tables_longest; /* the page table of one such sequence: the least limit that is of use */
	uint64_t tables_default; /* the limit of page tables if none is set */
	uint64_t other;          /* at most, everything else in the region and in the core's arrays, without tenants */
	uint64_t tenant;         /* of each tenant whose sessions use the pool */
	uint64_t cache_shares;   /* of the first core_tenant_share_cache() */
};
void core_pool_memory(const struct core_pool_params *params, struct core_memory *memory);

/**
 * core_pool_add - add a pool with all pages free
 *
 * @param[in]  region  core_region_size() bytes of zeroed memory; borrowed until core_destroy()
 * @param[out] pool_p  0 for the first pool, 1 for the next, ...
 */
enum paged_status core_pool_add(struct core *core, const struct core_pool_params *params, void *region,
				uint32_t *pool_p, struct paged_error *error);

uint32_t core_n_pools(const struct core *core);

/** core_pool_find - look up a pool by name; on PAGED_ERR_NOENT, error lists the existing pools */
enum paged_status core_pool_find(const struct core *core, const char *name, uint32_t *pool_p,
				 struct paged_error *error);

/** core_pool_status - fill the fields that the core knows; the others are 0.  pool is below core_n_pools(). */
void core_pool_status(const struct core *core, uint32_t pool, struct paged_pool_entry *entry);

/** core_pool_view - the pool's region, for readers */
const struct region_view *core_pool_view(const struct core *core, uint32_t pool);

/**
 * core_pool_free_list - the free pages in the order of PyTorch's list (pages are taken from its end)
 *
 * Used by tests that compare the order with PyTorch's.
 * @param[out] pages  array with room for n_free entries
 */
void core_pool_free_list(const struct core *core, uint32_t pool, uint32_t *pages);

/**
 * core_pool_lru - the cached pages from the coldest to the hottest; with `pinned` the pinned ones, else the others
 *
 * Used by tests that compare the order with their model's.
 * @param[out] pages  array with room for the pool's cached pages
 * @return number of pages written
 */
uint32_t core_pool_lru(const struct core *core, uint32_t pool, bool pinned, uint32_t *pages);

/*
 * Long requests
 *
 * A request may change millions of page table entries, and meanwhile its caller can do nothing else.  With
 * core_set_step(), a request that changes more entries than a step only checks everything, promises itself what it
 * needs, and returns PAGED_OK; core_step() does its work.  Only an adopt may still be refused then, for a limit of its
 * tenant, with the error in core_progress.  Until then its session is busy: its other requests
 * fail with PAGED_ERR_AGAIN.  What it returns (ids) is written at once.  Readers see its sequences change step by step.
 * If the session ends, the rest of its request is given up, and core_reap() cleans up as ever.
 */

/** No request is divided, as at first. */
#define CORE_NO_STEP UINT32_MAX

/** core_set_step - entries, pages and nodes that requests and core_step() work on at a time, approximately; above 0 */
void core_set_step(struct core *core, uint32_t n_entries);

/** core_session_is_busy - true: the session has an unfinished request */
bool core_session_is_busy(const struct core *core, uint32_t session);

/** What core_step() has done. */
struct core_progress {
	uint32_t session;  /* whose request it continued; 0: there was none */
	bool finished;     /* the request is finished, with error.status, which may be PAGED_OK */
	uint64_t n_worked; /* entries, pages and nodes that it visited */
	struct paged_error error;
};

/**
 * core_step - do a step of an unfinished request: of the tenants in turn, and of a tenant's sessions
 *
 * @return true: there are unfinished requests, call again
 */
bool core_step(struct core *core, struct core_progress *progress);

/** core_n_worked - entries, pages and nodes that the core has visited to change them */
uint64_t core_n_worked(const struct core *core);

/* Sessions and members */

/** core_session_open - open a session with its first member; ids count from 1 and are never reused */
enum paged_status core_session_open(struct core *core, uint32_t *session_p, uint32_t *member_p,
				    struct paged_error *error);

/** core_session_outlive - make an active session end with its last member instead of its first */
void core_session_outlive(struct core *core, uint32_t session);

/** core_session_join - add a member to an active session; PAGED_ERR_GONE if it has ended or never existed */
enum paged_status core_session_join(struct core *core, uint32_t session, uint32_t *member_p, struct paged_error *error);

/**
 * core_member_leave - remove a member whose process has ended or has promised not to access pages again
 *
 * Ends the session if this was its first member (if the session outlives its
 * first member: its last).  Does nothing if there is no such member.
 */
void core_member_leave(struct core *core, uint32_t member);

/** core_session_end - end a session whose members live (kick); PAGED_ERR_NOENT: no such session, OK if already ended */
enum paged_status core_session_end(struct core *core, uint32_t session, struct paged_error *error);

/**
 * core_wake - wake the workers that wait for free pages (region_free_wait()) or for changes of the index
 * (region_ring_wait())
 *
 * Call it after requests, core_tick() and core_reap().  No other function of the core makes system calls,
 * except those of the allocator, mmap() and munmap() when a pool is created or destroyed, and
 * core_pool_params.release.
 */
void core_wake(struct core *core);

/**
 * core_reap - continue the cleanup of ended sessions
 *
 * @param[in] budget_pages  approximate number of pages to touch; 0: no limit
 * @return true: there is more to do now, call again; pages quarantined for members that still live do not count
 */
bool core_reap(struct core *core, uint32_t budget_pages);

/** core_reap_needed - true: core_reap() has something to do; a request or core_tick() may have left it */
bool core_reap_needed(const struct core *core);

/**
 * core_session_drain - give a session no new sequences from now on
 *
 * Create, start, fork, adopt and hold fail with PAGED_ERR_STOPPING; all other requests go on.
 *
 * @retval PAGED_ERR_NOENT  no such session; OK if it has ended
 */
enum paged_status core_session_drain(struct core *core, uint32_t session, struct paged_error *error);

uint32_t core_n_sessions(const struct core *core);

/** core_session_next - the session with the smallest id above `after`, without member data; false: none */
bool core_session_next(const struct core *core, uint32_t after, struct paged_session_entry *entry);

/** core_member_session - the member's session; 0 if the member has left or never existed */
uint32_t core_member_session(const struct core *core, uint32_t member);

/**
 * core_tick - work that no request waits for: evict ahead of need, end the pins and tickets that have expired, remove
 * the nodes that were below removed ones, and give back the memory of page tables that have become shorter
 *
 * An expired ticket may leave work for core_reap().
 *
 * @param[in] budget_pages  approximate number of pages to touch
 * @return true: there is more to do now, call again
 */
bool core_tick(struct core *core, uint32_t budget_pages);

/** core_tick_needed - true: core_tick() has something to do now */
bool core_tick_needed(const struct core *core);

/** The value of core_next_deadline() if no pin and no ticket exists.  0 is a time like any other. */
#define CORE_NO_DEADLINE UINT64_MAX

/** core_next_deadline - the time of the first pin or ticket to expire, in milliseconds of core_set_now() */
uint64_t core_next_deadline(const struct core *core);

/*
 * Tenants
 *
 * A tenant has limits in each pool and in all.  It is charged each distinct page that page tables of its sequences
 * name: a page that two tenants share is charged to both, and one that a tenant's sequences share is charged once.
 * Quarantined pages are charged to the tenant whose session left them, cached ones to none.  Requests that would exceed
 * a limit fail with PAGED_ERR_QUOTA; pages ahead are cut to what the limit leaves.
 *
 * A tenant of a user is made when the user's first process attaches, and exists while it has members, sessions, pins
 * or published pages, cached ones included.
 */

/** A limit that is none. */
#define CORE_NO_LIMIT UINT32_MAX

/** The most that a tenant may have in a pool. */
struct core_tenant_pool_limits {
	uint32_t n_pages;     /* charged */
	uint32_t n_sequences; /* holds and sequences in tickets included */
	uint32_t n_pins;
	uint32_t n_pin_pages; /* of pins and holds, each counted */
	uint64_t table_bytes; /* of page tables, as core_pool_params.table_memory */
};
#define CORE_POOL_UNLIMITED                   \
	((struct core_tenant_pool_limits){    \
		.n_pages = CORE_NO_LIMIT,     \
		.n_sequences = CORE_NO_LIMIT, \
		.n_pins = CORE_NO_LIMIT,      \
		.n_pin_pages = CORE_NO_LIMIT, \
		.table_bytes = UINT64_MAX,    \
	})

/** The most that a tenant may have in all. */
struct core_tenant_limits {
	uint32_t n_members;
	uint32_t n_sessions;  /* also ended ones that are not cleaned up */
	uint32_t n_tickets;   /* open */
	uint64_t array_bytes; /* of the arrays for block masks of its sessions (core/array.h) */
};
#define CORE_UNLIMITED                                             \
	((struct core_tenant_limits){ .n_members = CORE_NO_LIMIT,  \
				      .n_sessions = CORE_NO_LIMIT, \
				      .n_tickets = CORE_NO_LIMIT,  \
				      .array_bytes = UINT64_MAX })

/**
 * core_tenant_add - add a tenant without limits; the numbers of tenants count from 1
 *
 * @param[in] name  1 to PAGED_MAX_NAME bytes, unique; copied
 * @retval PAGED_ERR_INVALID, PAGED_ERR_NOMEM
 */
enum paged_status core_tenant_add(struct core *core, const char *name, uint32_t *tenant_p, struct paged_error *error);

/**
 * core_tenant_of_user - the tenant `uid N` of a user, for core_tenant_join()
 *
 * @param[out] created_p  true: it has no limits yet
 * @retval PAGED_ERR_NOMEM
 */
enum paged_status core_tenant_of_user(struct core *core, uint32_t uid, uint32_t *tenant_p, bool *created_p,
				      struct paged_error *error);

void core_tenant_limit(struct core *core, uint32_t tenant, const struct core_tenant_limits *limits);
void core_tenant_limit_pool(struct core *core, uint32_t tenant, uint32_t pool,
			    const struct core_tenant_pool_limits *limits);

/**
 * core_tenant_share_cache - limit the cached pages of a pool that the tenant has published; CORE_NO_LIMIT: no limit
 *
 * The limit refuses nothing: while the tenant has more, its coldest ones are evicted before all other pages.  Pinned
 * pages, and those on which pages of others depend, do not count.  The first share of a pool takes 12 bytes a page.
 *
 * @retval PAGED_ERR_NOMEM
 */
enum paged_status core_tenant_share_cache(struct core *core, uint32_t tenant, uint32_t pool, uint32_t n_pages,
					  struct paged_error *error);

/** core_tenant_limit_pages - change this limit alone */
void core_tenant_limit_pages(struct core *core, uint32_t tenant, uint32_t pool, uint32_t n_pages);

/**
 * core_tenant_join - count a process that attaches as a member of the tenant; 0: of none
 *
 * @param[in] check  false: it may exceed the limit
 * @retval PAGED_ERR_LIMIT  the tenant has as many members as it may have
 */
enum paged_status core_tenant_join(struct core *core, uint32_t tenant, bool check, struct paged_error *error);

/** core_tenant_leave - undo core_tenant_join(); a user's tenant with nothing else is removed */
void core_tenant_leave(struct core *core, uint32_t tenant);

/** core_tenant_check_sessions - PAGED_ERR_LIMIT unless the tenant may have one more session */
enum paged_status core_tenant_check_sessions(const struct core *core, uint32_t tenant, struct paged_error *error);

/** core_session_tenant - make a new session the tenant's; 0: no tenant's, as at first */
void core_session_tenant(struct core *core, uint32_t session, uint32_t tenant);

/**
 * core_tenant_next - list what all tenants have in all pools
 *
 * @param[in,out] position  0 for the first entry; moves past the one that is listed
 * @return false: there is no entry at the position
 */
bool core_tenant_next(const struct core *core, uint32_t *position, struct paged_quota_entry *entry);

/*
 * Requests on sequences, which may be of several pools.  `session` must be
 * active, else PAGED_ERR_GONE, and not busy, else PAGED_ERR_AGAIN.  A request in
 * steps needs memory, else PAGED_ERR_NOMEM.
 */

/**
 * core_seq_create - create n sequences of length 0, each with room for its spec's n_tokens
 *
 * @param[out] ids  n ids; written on OK only
 * @retval PAGED_ERR_FULL     a pool has too few slots, pages or memory of page tables for the whole request
 * @retval PAGED_ERR_QUOTA    the session's tenant may not have so many pages or sequences
 * @retval PAGED_ERR_LIMIT    n above PAGED_MAX_REQUEST_SEQS, or n_tokens above the pool's max_length
 * @retval PAGED_ERR_NOENT    no such pool
 * @retval PAGED_ERR_INVALID  n is 0
 * @retval PAGED_ERR_NOMEM    no memory for the session's lists
 */
enum paged_status core_seq_create(struct core *core, uint32_t session, uint32_t n, const struct seq_spec *specs,
				  paged_seq_id *ids, struct paged_error *error);

/**
 * core_seq_reserve - give each sequence a capacity of at least item.n_tokens tokens
 *
 * n_tokens is absolute: a sequence that already has this capacity does not
 * change.  Pages are taken for one item after the other, in the order of the
 * items.  Each item takes the last pages of the free list and keeps their
 * order, as PyTorch's PagedAttention does.  If fewer pages are free than the request
 * takes, cached pages are evicted first, the coldest first; each evicted page goes to
 * the end of the free list.  Pages for item.n_ahead are taken as far as the pool has
 * pages to spare (region_spare_pages()), shared among the items in proportion to what
 * each asks for.  A request in steps takes the pages of each step in this order.
 *
 * @retval PAGED_ERR_FULL     the pool has too few pages for the whole request, or too little memory of page tables;
 * error has requested, free, quarantined, or requested, used, limit
 * @retval PAGED_ERR_QUOTA    the session's tenant may not have so many pages; error has requested, charged, limit
 * @retval PAGED_ERR_LIMIT    n_tokens above the pool's max_length, or n above PAGED_MAX_REQUEST_SEQS
 * @retval PAGED_ERR_STALE    an id names no live sequence
 * @retval PAGED_ERR_PERM     a sequence belongs to another session
 * @retval PAGED_ERR_INVALID  an id is named twice or is no sequence id, or n is 0
 * @retval PAGED_ERR_NOENT    an id names a pool that does not exist
 */
enum paged_status core_seq_reserve(struct core *core, uint32_t session, uint32_t n, const struct paged_seq_item *items,
				   struct paged_error *error);

/**
 * core_seq_truncate - free the whole pages past item.n_tokens
 *
 * The errors of core_seq_reserve() apply, except PAGED_ERR_FULL, PAGED_ERR_QUOTA and the
 * limit of n_tokens.  In addition:
 * @retval PAGED_ERR_CAPACITY  n_tokens exceeds the sequence's capacity
 * @retval PAGED_ERR_INVALID   n_ahead is not 0; the page after n_tokens - 1 was given back by a trim
 */
enum paged_status core_seq_truncate(struct core *core, uint32_t session, uint32_t n, const struct paged_seq_item *items,
				    struct paged_error *error);

/**
 * core_seq_trim - give the whole pages before token item.n_tokens back; no position changes
 *
 * Published pages become cached, the others free.  The entries of all of them become REGION_NO_PAGE, and what they
 * held cannot be written, shared or published any more.  A sequence that has given more back does not change.
 *
 * @retval PAGED_ERR_CAPACITY  n_tokens exceeds the sequence's capacity
 * @retval PAGED_ERR_INVALID   n is 0, an id is named twice or is no sequence id, or n_ahead is not 0
 * @retval PAGED_ERR_LIMIT, PAGED_ERR_STALE, PAGED_ERR_PERM, PAGED_ERR_NOENT  as core_seq_reserve()
 */
enum paged_status core_seq_trim(struct core *core, uint32_t session, uint32_t n, const struct paged_seq_item *items,
				struct paged_error *error);

/**
 * core_seq_start - create sequences on published pages of a pool, and reserve the rest of their capacity
 *
 * The shared pages can be read and not written.  Pages are taken as core_seq_reserve() takes them; cached pages are
 * evicted as far as free ones are lacking, never those that the request names.
 *
 * @param[in]  list  the caller has checked that n_pages is the sum of the specs' n_pages
 * @param[out] ids   list->n ids, those of `seq` included; written on OK only
 * @retval PAGED_ERR_STALE    a page is not published, the pages are no chain, or another serial; `seq` has ended, has
 * pages that are not published, or does not end where the chain begins
 * @retval PAGED_ERR_RANGE    a page's number exceeds the pool
 * @retval PAGED_ERR_INVALID  list->n is 0; `seq` is named twice
 * @retval PAGED_ERR_LIMIT    list->n above PAGED_MAX_REQUEST_SEQS, or more tokens than max_length
 * @retval PAGED_ERR_FULL, PAGED_ERR_QUOTA, PAGED_ERR_NOENT, PAGED_ERR_PERM, PAGED_ERR_NOMEM  as core_seq_create() and
 * core_seq_reserve(); shared pages that the tenant is not charged yet count against its limit
 */
enum paged_status core_seq_start(struct core *core, uint32_t session, const struct seq_start_list *list,
				 paged_seq_id *ids, struct paged_error *error);

/**
 * core_seq_fork - create children[i] with the first n_tokens tokens of parents[i]
 *
 * Full pages are shared: from now on, parent and child cannot write them.  If n_tokens is no multiple of the page size,
 * the child's last page is a page of its own, to which the caller must copy the parent's.  A parent may be named any
 * number of times.  The page table of a trimmed parent's child begins with as many entries without pages.
 *
 * @param[out] children  n ids; written on OK only
 * @retval PAGED_ERR_CAPACITY  n_tokens exceeds the parent's capacity
 * @retval PAGED_ERR_INVALID   a parent was trimmed beyond n_tokens
 * @retval PAGED_ERR_LIMIT     n above PAGED_MAX_REQUEST_SEQS
 * @retval PAGED_ERR_FULL, PAGED_ERR_QUOTA, PAGED_ERR_STALE, PAGED_ERR_PERM, PAGED_ERR_INVALID, PAGED_ERR_NOENT,
 * PAGED_ERR_NOMEM
 */
enum paged_status core_seq_fork(struct core *core, uint32_t session, uint32_t n, const struct seq_fork *forks,
				paged_seq_id *children, struct paged_error *error);

/** Pages to publish. */
struct core_publish {
	paged_seq_id seq;
	uint64_t version; /* of the sequence's page table when the caller decided to publish */
	uint32_t from;    /* page that keys begin with */
	struct prefix_keys keys;
};

/**
 * core_seq_publish - store nodes for pages [from, from + keys.n_pages) of each sequence
 *
 * The caller promises that their K and V were written.  Pages before the sequence's `published` are passed over.  A
 * page for whose prefix there is a node already stays private: that node stands for it.  When one of the nodes that
 * stand for a sequence is removed, its `published` ends before that page, or is 0; past 1,024 nodes below a removed
 * one, this takes some calls of core_tick().  If a bucket of the index is full, a node is removed of the tenant with
 * most nodes there, of its session with most, of those that the fewest others use the one used least recently.
 *
 * @param[out] n_published  [n] pages published in all; written on OK only
 * @param[out] ends         [n] enum paged_publish_end: why fewer than from + n_pages are; written on OK only
 * @retval PAGED_ERR_STALE        another version of the page table
 * @retval PAGED_ERR_INVALID      a token id is PREFIX_NO_TOKENS; extra_page is not ascending
 * @retval PAGED_ERR_CAPACITY     the sequence has fewer pages
 * @retval PAGED_ERR_UNSUPPORTED  the pool publishes nothing
 * @retval PAGED_ERR_LIMIT, PAGED_ERR_PERM, PAGED_ERR_NOENT
 */
enum paged_status core_seq_publish(struct core *core, uint32_t session, uint32_t n,
				   const struct core_publish *publishes, uint32_t *n_published, uint32_t *ends,
				   struct paged_error *error);

/**
 * core_divide_publish - make the items of core_seq_publish() from the lists of a message
 *
 * @param[in]  list        the caller has checked that its pools exist, and that there are page_size token ids for each
 *                         page, or an extra for each
 * @param[out] publishes   [list->n] they point into the list, and to extra_page
 * @param[out] extra_page  [list->n_extras]
 */
void core_divide_publish(const struct core *core, const struct seq_publish_list *list, struct core_publish *publishes,
			 uint32_t *extra_page);

/** core_pin_next - the pool's pin with the smallest number above `after`; false: none */
bool core_pin_next(const struct core *core, uint32_t pool, uint64_t after, struct paged_pin_entry *entry);

/** core_pin_end - end a pin of any member; PAGED_ERR_NOENT: there is none of this number */
enum paged_status core_pin_end(struct core *core, uint32_t pool, uint64_t number, struct paged_error *error);

/** Most pins of a pool. */
#define CORE_MAX_PINS 1024u

/** Most pages of a pin, so that no pin takes long: 131,072 tokens in pages of 16. */
#define CORE_MAX_PIN_PAGES 8192u

/** Who makes a pin. */
struct core_pinner {
	uint32_t session;
	uint32_t uid, pid; /* for the list of pins */
};

/**
 * core_prefix_pin - evict the chain that ends with a node only after all pages that are not pinned
 *
 * A pin ends after `seconds`, or when the tenant of its session replaces it by another of the same node; 0 seconds:
 * ends it now.  It outlives its session.  The chains of all pins have at most the pool's pin_limit pages in all, and a
 * pool has at most CORE_MAX_PINS pins.
 *
 * If the end of a pin's chain is evicted all the same, it is a pin of what is left, and if nothing is left, it ends.
 * This is seen at the next pin of the pool, and at a hold for which the limits would leave no room.
 *
 * @param[out] n_pages_p  pages of the chain
 * @retval PAGED_ERR_GONE   no such active session
 * @retval PAGED_ERR_STALE  the node is gone, or one before it
 * @retval PAGED_ERR_LIMIT  the pool's pin_limit, CORE_MAX_PINS, CORE_MAX_PIN_PAGES, or seconds above 366 days
 * @retval PAGED_ERR_QUOTA  the tenant may not have so many pins, or pages of pins and holds
 * @retval PAGED_ERR_RANGE, PAGED_ERR_NOENT, PAGED_ERR_NOMEM
 */
enum paged_status core_prefix_pin(struct core *core, const struct core_pinner *by, uint32_t pool, uint32_t page,
				  uint64_t serial, uint32_t seconds, uint32_t *n_pages_p, struct paged_error *error);

/**
 * core_pages_hold - keep published pages from eviction until the returned sequence is erased
 *
 * The pages may be in any order and of any prefixes; each is proved by its serial alone.  Nothing but erase can be done
 * with a hold.  The pages of all holds and pins of a pool are at most its pin_limit.
 *
 * @param[in]  n        at least 1
 * @param[in]  serials  [n] of the pages' nodes
 * @param[out] id_p     written on OK only
 * @retval PAGED_ERR_STALE    a page's node has another serial
 * @retval PAGED_ERR_INVALID  n is 0, or a page is named twice
 * @retval PAGED_ERR_LIMIT    pin_limit, or more pages than a page table has entries
 * @retval PAGED_ERR_FULL     no slot is free
 * @retval PAGED_ERR_QUOTA, PAGED_ERR_STOPPING, PAGED_ERR_RANGE, PAGED_ERR_NOENT, PAGED_ERR_NOMEM
 */
enum paged_status core_pages_hold(struct core *core, uint32_t session, uint32_t pool, uint32_t n, const uint32_t *pages,
				  const uint64_t *serials, paged_seq_id *id_p, struct paged_error *error);

/**
 * core_prefix_evict - free up to n cached pages, the coldest first
 *
 * Pinned pages are evicted after all others.  n 0: all.
 * @return pages freed; at most CORE_MAX_EVICT, so that no call takes long
 */
#define CORE_MAX_EVICT 4096u
uint32_t core_prefix_evict(struct core *core, uint32_t pool, uint32_t n);

/** How long a ticket is valid if the giver names no time and its owner allows so long. */
#define CORE_TICKET_MS 10000u

/**
 * core_seq_give - freeze n sequences of one pool until a session adopts them, the giver cancels, or the ticket expires
 *
 * A frozen sequence is read as before; all requests that name it are refused.  If the giver's session ends, the ticket
 * keeps the sequences; if it then expires, they end as those of the session did.  A ticket expires by core_tick().
 *
 * @param[in] items   n_tokens: length, which core_seq_adopt() returns
 * @param[in] ticket  PAGED_TICKET_SIZE random bytes
 * @retval PAGED_ERR_CAPACITY  a length exceeds the sequence's capacity
 * @retval PAGED_ERR_INVALID   n_ahead is not 0, unknown flags, sequences of two pools, a ticket with these bytes
 * exists, or a sequence was trimmed beyond its length
 * @retval PAGED_ERR_NOENT     the session that may adopt does not exist or has ended
 * @retval PAGED_ERR_LIMIT     PAGED_MAX_TICKETS
 * @retval PAGED_ERR_QUOTA     the session's tenant may not have another ticket
 * @retval PAGED_ERR_STALE, PAGED_ERR_PERM, PAGED_ERR_NOMEM  as core_seq_reserve()
 */
enum paged_status core_seq_give(struct core *core, uint32_t session, uint32_t n, const struct paged_seq_item *items,
				const struct seq_give *give, const uint8_t ticket[PAGED_TICKET_SIZE],
				struct paged_error *error);

/**
 * core_seq_adopt - make the session the owner of a ticket's sequences, in the order in which they were given
 *
 * Ids and pages stay.  The versions of the page tables change, so that plans of the giver are stale.  Within a tenant,
 * the number of pages does not matter.  While an adopt by another tenant is unfinished, the ticket counts as used and
 * does not expire; if it is refused, or the session ends, the ticket is valid again.
 *
 * @param[in]  uid    of the process that asks
 * @param[in]  n_max  sequences that the caller has room for
 * @param[out] items  [n_max] n_tokens: length; written on OK only
 * @retval PAGED_ERR_NOENT    no ticket of this pool with these bytes: unknown, used or expired
 * @retval PAGED_ERR_PERM     the ticket is for another session or user; it stays valid
 * @retval PAGED_ERR_INVALID  the ticket has more than n_max sequences; it stays valid
 * @retval PAGED_ERR_QUOTA    the session's tenant may not have so many pages or sequences; it stays valid
 * @retval PAGED_ERR_NOMEM    it stays valid
 */
enum paged_status core_seq_adopt(struct core *core, uint32_t session, uint32_t uid, uint32_t pool,
				 const uint8_t ticket[PAGED_TICKET_SIZE], uint32_t n_max, struct paged_seq_item *items,
				 uint32_t *n_p, struct paged_error *error);

/**
 * core_tickets_revoke - let all tickets of a session that has ended expire now; core_tick() ends their sequences
 *
 * @return how many tickets; 0 if the session is active
 */
uint32_t core_tickets_revoke(struct core *core, uint32_t session);

/**
 * core_ticket_cancel - return a ticket's sequences to their giver
 *
 * @retval PAGED_ERR_NOENT  the ticket is unknown, used or expired
 * @retval PAGED_ERR_PERM   another session gave the sequences
 */
enum paged_status core_ticket_cancel(struct core *core, uint32_t session, const uint8_t ticket[PAGED_TICKET_SIZE],
				     struct paged_error *error);

/** core_ticket_next - the ticket with the smallest number above `after`; false: none */
bool core_ticket_next(const struct core *core, uint64_t after, struct paged_ticket_entry *entry);

/** core_seq_erase - end the sequences and free their pages; the ids are stale when the request is finished */
enum paged_status core_seq_erase(struct core *core, uint32_t session, uint32_t n, const paged_seq_id *ids,
				 struct paged_error *error);

/**
 * core_seq_status - fill the fields that the core knows; the others are 0
 *
 * @retval PAGED_ERR_STALE  the id names no live sequence
 * @retval PAGED_ERR_NOENT  the id names a pool that does not exist
 */
enum paged_status core_seq_status(const struct core *core, paged_seq_id id, struct paged_seq_entry *entry,
				  struct paged_error *error);

/**
 * core_seq_pages - copy the page table of a live sequence, starting at entry `from`
 *
 * @return number of entries written, at most `most`
 */
uint32_t core_seq_pages(const struct core *core, paged_seq_id id, uint32_t from, uint32_t *pages, uint32_t most);

/** core_seq_next - the live sequence with the smallest slot in [slot, end); false: none */
bool core_seq_next(const struct core *core, uint32_t pool, uint32_t slot, uint32_t end, paged_seq_id *id_p);

/**
 * core_node_next - fill the entry of the published page with the smallest number in [page, end); false: none
 */
bool core_node_next(const struct core *core, uint32_t pool, uint32_t page, uint32_t end,
		    struct paged_node_entry *entry);

/** core_high_slot - slots at or above this number have never held a sequence */
uint32_t core_high_slot(const struct core *core, uint32_t pool);

/* Page accounting */

/**
 * core_audit_begin - verify a pool's page accounting in steps, while requests go on
 *
 * Every page must be free, cached, quarantined, or referenced with a count equal
 * to the number of page table entries that name it (invariant 2 of HACKING.md).
 * The audit verifies the state as of core_audit_begin(), from every page
 * table, every count and the free list; changes by later requests do not
 * affect the result.
 *
 * Costs: about 5 ns and 8 bytes per page ever used, and 4 bytes per slot ever used.
 * @retval PAGED_ERR_AGAIN  an audit of this pool is already under way
 * @retval PAGED_ERR_NOMEM  no memory for the counters
 */
struct core_audit;
enum paged_status core_audit_begin(struct core *core, uint32_t pool, struct core_audit **audit_p,
				   struct paged_error *error);

/** core_audit_step - visit about `budget` entries, pages and slots; true: there are more */
bool core_audit_step(struct core_audit *audit, uint32_t budget);

/**
 * core_audit_end - return the verdict after the last step, and free the audit
 *
 * @param[out] result  written also on PAGED_ERR_CORRUPT
 * @retval PAGED_ERR_CORRUPT  error names the first inconsistency found
 */
enum paged_status core_audit_end(struct core_audit *audit, struct paged_check_result *result,
				 struct paged_error *error);

/** core_audit_abandon - free an audit without a verdict */
void core_audit_abandon(struct core_audit *audit);

/** core_check - run a whole audit, and check the core's own lists of slots and quarantined pages */
enum paged_status core_check(struct core *core, uint32_t pool, struct paged_check_result *result,
			     struct paged_error *error);

#endif
