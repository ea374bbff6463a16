/* SPDX-License-Identifier: Apache-2.0 */
/* request.h - checks that requests have in common; requests whose work goes on in steps */
#ifndef PAGED_CORE_REQUEST_H
#define PAGED_CORE_REQUEST_H

#include "core/core_internal.h"

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

#endif
