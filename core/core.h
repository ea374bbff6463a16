/* SPDX-License-Identifier: Apache-2.0 */
/**
 * core.h - the owner's state machine: pools, page tables, counts, sessions
 *
 * Pure: no I/O, no clock, no randomness.  The daemon runs it behind its
 * loop; an embedded client runs it inside its own process.  It writes the
 * table regions (common/region.h) that the caller gives it memory for, and
 * knows pages by number alone: where their bytes lie is not its business.
 *
 * Every verb is all-or-nothing: on any status but PAGED_OK nothing changed
 * and error says why, with the object and the numbers.
 *
 * Costs: O(1) a page and O(1) a sequence named, whatever the pool's size.
 * Memory follows the high-water marks of slots and pages used.
 *
 * Sessions.  A session has members (processes); it ends when its first
 * member leaves, or by core_session_end().  From then on it may ask for
 * nothing.  Its sequences are ended and its pages wait in quarantine until
 * the last member has left.  Ending may touch many pages, so it is done in
 * steps by core_reap().
 *
 * Threads: one caller at a time.
 */
#ifndef PAGED_CORE_H
#define PAGED_CORE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/paged_reports.h"
#include "common/region.h"
#include "common/sequence.h"
#include "common/status.h"

struct core;

enum paged_status core_create(const uint8_t boot_id[REGION_BOOT_ID_SIZE], struct core **core_p,
			      struct paged_error *error);

/** core_destroy - frees everything but the regions, which are the caller's; takes NULL */
void core_destroy(struct core *core);

/* Pools */

struct core_pool_params {
	const char *name; /* 1 to PAGED_MAX_NAME bytes, unique; copied */
	uint32_t n_pages;
	uint32_t page_size; /* tokens */
	uint32_t n_slots;
	uint32_t max_length; /* tokens a sequence may reserve */
};

/** core_region_size - bytes of the region that a pool needs; 0 when the numbers overflow or one is 0 */
size_t core_region_size(const struct core_pool_params *params);

/**
 * core_pool_add - a pool with all pages free
 *
 * @param[in]  region  core_region_size() bytes of zeroed memory; borrowed until core_destroy()
 * @param[out] pool_p  0 for the first pool, 1 for the next, ...
 */
enum paged_status core_pool_add(struct core *core, const struct core_pool_params *params, void *region,
				uint32_t *pool_p, struct paged_error *error);

uint32_t core_n_pools(const struct core *core);

/** core_pool_find - PAGED_ERR_NOENT names the pools that there are */
enum paged_status core_pool_find(const struct core *core, const char *name, uint32_t *pool_p,
				 struct paged_error *error);

/** core_pool_status - what the core knows of a pool below core_n_pools(); the rest of the entry is zero */
void core_pool_status(const struct core *core, uint32_t pool, struct paged_pool_entry *entry);

/** core_pool_view - the pool's region, for readers */
const struct region_view *core_pool_view(const struct core *core, uint32_t pool);

/**
 * core_pool_free_list - the free pages as PyTorch lists them (taken from the end)
 *
 * For tests that compare the order literally.
 * @param[out] pages  room for n_free entries
 */
void core_pool_free_list(const struct core *core, uint32_t pool, uint32_t *pages);

/* Sessions and members */

/** core_session_open - a session with its first member; ids count from 1 and are never reused */
enum paged_status core_session_open(struct core *core, uint32_t *session_p, uint32_t *member_p,
				    struct paged_error *error);

/** core_session_outlive - the session, which is active, ends with its last member, not with its first */
void core_session_outlive(struct core *core, uint32_t session);

/** core_session_join - a further member of an active session; PAGED_ERR_GONE when it has ended or never was */
enum paged_status core_session_join(struct core *core, uint32_t session, uint32_t *member_p, struct paged_error *error);

/**
 * core_member_leave - the process is gone, or has promised to touch nothing any more
 *
 * Ends the session when it was the first member.  No such member: nothing.
 */
void core_member_leave(struct core *core, uint32_t member);

/** core_session_end - end it though members live (kick); PAGED_ERR_NOENT for none, OK when it had ended already */
enum paged_status core_session_end(struct core *core, uint32_t session, struct paged_error *error);

/**
 * core_wake - wake the workers that sleep until pages of a pool are free
 *
 * To be called after verbs and core_reap(); it is the core's only system call.
 */
void core_wake(struct core *core);

/**
 * core_reap - go on with what ended sessions left
 *
 * @param[in] budget_pages  about how many pages to touch; 0: all there is
 * @return there is more to do now (call again); pages whose members still live do not count
 */
bool core_reap(struct core *core, uint32_t budget_pages);

uint32_t core_n_sessions(const struct core *core);

/** core_session_next - the session with the smallest id above `after`, without its members; false: none */
bool core_session_next(const struct core *core, uint32_t after, struct paged_session_entry *entry);

/** core_member_session - the member's session; 0 when it left or never was */
uint32_t core_member_session(const struct core *core, uint32_t member);

/* Sequences, of any pools.  `session` must be active: else PAGED_ERR_GONE. */

/**
 * core_seq_create - n sequences without tokens, with the capacity that each is to have
 *
 * @param[out] ids  n ids; written on OK only
 * @retval PAGED_ERR_FULL   a pool lacks slots, or pages, for all together
 * @retval PAGED_ERR_LIMIT  n above PAGED_MAX_REQUEST_SEQS, n_tokens above the pool's max_length
 * @retval PAGED_ERR_NOENT  no such pool
 */
enum paged_status core_seq_create(struct core *core, uint32_t session, uint32_t n, const struct seq_spec *specs,
				  paged_seq_id *ids, struct paged_error *error);

/**
 * core_seq_reserve - let each sequence hold at least item.n_tokens tokens
 *
 * Absolute: a sequence that holds as many already is left as it is.  Pages
 * are taken sequence by sequence in the order of the items, each time the
 * last of the free list in list order, as PyTorch's PagedAttention does.
 *
 * @retval PAGED_ERR_FULL   the pool lacks pages for all together; says requested, free, quarantined
 * @retval PAGED_ERR_LIMIT  tokens above the pool's max_length, n above the limit
 * @retval PAGED_ERR_STALE  an id names no live sequence
 * @retval PAGED_ERR_PERM   a sequence is another session's
 * @retval PAGED_ERR_INVALID  an id twice, or one that is none; n of 0
 * @retval PAGED_ERR_NOENT  an id of a pool that does not exist
 */
enum paged_status core_seq_reserve(struct core *core, uint32_t session, uint32_t n, const struct paged_seq_item *items,
				   struct paged_error *error);

/** core_seq_truncate - give back whole pages past item.n_tokens; above the capacity: PAGED_ERR_CAPACITY */
enum paged_status core_seq_truncate(struct core *core, uint32_t session, uint32_t n, const struct paged_seq_item *items,
				    struct paged_error *error);

/** core_seq_erase - end the sequences; their ids are stale at once */
enum paged_status core_seq_erase(struct core *core, uint32_t session, uint32_t n, const paged_seq_id *ids,
				 struct paged_error *error);

/**
 * core_seq_status - what the core knows of a sequence; the rest of the entry is zero
 *
 * @retval PAGED_ERR_STALE  an id names no live sequence
 * @retval PAGED_ERR_NOENT  an id of a pool that does not exist
 */
enum paged_status core_seq_status(const struct core *core, paged_seq_id id, struct paged_seq_entry *entry,
				  struct paged_error *error);

/**
 * core_seq_pages - the page table of a live sequence, from entry `from` on
 *
 * @return entries written, at most `most`
 */
uint32_t core_seq_pages(const struct core *core, paged_seq_id id, uint32_t from, uint32_t *pages, uint32_t most);

/** core_seq_next - the live sequence with the smallest slot from `slot` up to below `end`; false: none */
bool core_seq_next(const struct core *core, uint32_t pool, uint32_t slot, uint32_t end, paged_seq_id *id_p);

/** core_high_slot - slots at or above have never held a sequence */
uint32_t core_high_slot(const struct core *core, uint32_t pool);

/* Books */

/**
 * core_audit_begin - recompute invariant 2 of a pool, in steps, while requests go on
 *
 * What is counted is the state at the beginning, from every row, every
 * count and the free list, wherever later requests put the pages.
 *
 * Costs: some 5 ns a page that was ever used, and 8 bytes.
 * @retval PAGED_ERR_AGAIN  the pool is being audited
 */
struct core_audit;
enum paged_status core_audit_begin(struct core *core, uint32_t pool, struct core_audit **audit_p,
				   struct paged_error *error);

/** core_audit_step - look at about so many entries, pages, slots; true: there are more */
bool core_audit_step(struct core_audit *audit, uint32_t budget);

/**
 * core_audit_end - once no step is left: PAGED_OK, or PAGED_ERR_CORRUPT with the first thing that is wrong; frees it
 *
 * @param[out] result  written in both cases
 */
enum paged_status core_audit_end(struct core_audit *audit, struct paged_check_result *result,
				 struct paged_error *error);

/** core_audit_abandon - free it before its end */
void core_audit_abandon(struct core_audit *audit);

/**
 * core_check - an audit at one go, and the core's own lists of slots and of pages in quarantine
 */
enum paged_status core_check(struct core *core, uint32_t pool, struct paged_check_result *result,
			     struct paged_error *error);

#endif
