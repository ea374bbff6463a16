/* SPDX-License-Identifier: Apache-2.0 */
/**
 * owner.h - a client's requests to the owner of its pools
 *
 * The same table of operations has two implementations: the daemon, reached
 * over two channels (owner_remote.c), and a core inside this process
 * (owner_embedded.c).  All code above this table works on mapped pages and
 * regions and does not depend on the implementation.
 *
 * Threads: every operation is called with the client's mutex held.  `state` is
 * atomic and is read without the mutex.
 * Errors: as in common/status.h.
 */
#ifndef PAGED_CLIENT_OWNER_H
#define PAGED_CLIENT_OWNER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "client/pagedclient.h"
#include "common/region.h"
#include "common/sequence.h"
#include "common/status.h"
#include "kernels/layout.h"
#include "kernels/mask/rle.h"
#include "proto/wire.h"

/** State of the owner and of this client's session; it only increases. */
enum owner_state {
	OWNER_UP,
	OWNER_DRAINING, /* the session gets no new sequences: finish or give away those it has, and close the client */
	OWNER_STOPPING, /* the owner is stopping: finish and close the client */
	OWNER_ENDED,    /* the owner ended the session and lives on */
	OWNER_GONE,     /* the owner has died, or was restarted */
};

struct owner {
	const struct owner_ops *ops;
	uint32_t session; /* 0: observer */
	bool tables_only; /* pools are opened without their pages */
	char join_token[2 * WIRE_TOKEN_SIZE + 1];
	int fd; /* the descriptor of paged_client_fd() */
	_Atomic int state;
	paged_log_fn log;
	void *log_argument;
};

struct map_cuda;
struct map_ops;

/** A mapped pool. */
struct owner_pool {
	uint32_t index; /* the pool's number in requests */
	char name[PAGED_MAX_NAME + 1];
	char backend[16];
	char model[WIRE_MAX_MODEL]; /* "": not stated */
	struct layout layout;
	struct region_view view;
	bool tables_only; /* the pages are not mapped: base is NULL */
	uint8_t *base;    /* of the pages; in GPU memory a device address, which the host must not dereference */
	const struct map_ops *map; /* NULL: the (embedded) owner owns the mappings */
	void *region, *memory;
	size_t region_size, memory_size;
	struct map_cuda *cuda;       /* back end cuda only */
	_Atomic bool pages_released; /* map->release_pages() was called: base is invalid */
};

/** Most publishes without a reply. */
#define OWNER_MAX_PUBLISHES 4u

struct owner_ops {
	/** In a forked child, close() frees memory only and touches no channel and no thread. */
	void (*close)(struct owner *owner, bool in_child);
	/**
	 * Handles the owner's notices and detects its death; never blocks; costs
	 * one system call if there is no notice.
	 */
	void (*dispatch)(struct owner *owner);
	/** True: the owner's process has died.  Any thread, also while another one is inside a request; one system
	 * call. */
	bool (*hung_up)(struct owner *owner);

	enum paged_status (*pool_open)(struct owner *owner, const char *name, struct owner_pool *pool,
				       struct paged_error *error);
	void (*pool_close)(struct owner *owner, struct owner_pool *pool, bool in_child);

	enum paged_status (*ping)(struct owner *owner, struct paged_error *error);
	enum paged_status (*create)(struct owner *owner, uint32_t n, const struct seq_spec *specs, paged_seq_id *ids,
				    struct paged_error *error);
	enum paged_status (*reserve)(struct owner *owner, uint32_t n, const struct paged_seq_item *items,
				     struct paged_error *error);
	enum paged_status (*truncate)(struct owner *owner, uint32_t n, const struct paged_seq_item *items,
				      struct paged_error *error);
	enum paged_status (*trim)(struct owner *owner, uint32_t n, const struct paged_seq_item *items,
				  struct paged_error *error);
	enum paged_status (*erase)(struct owner *owner, uint32_t n, const paged_seq_id *ids, struct paged_error *error);
	/**
	 * Requests a reserve without waiting; its success shows in the page table.
	 * PAGED_ERR_AGAIN: the previous reserve_ahead has no reply yet.  Another
	 * error: the previous one or this one was refused.
	 */
	enum paged_status (*reserve_ahead)(struct owner *owner, uint32_t n, const struct paged_seq_item *items,
					   struct paged_error *error);

	enum paged_status (*start)(struct owner *owner, const struct seq_start_list *start, paged_seq_id *ids,
				   struct paged_error *error);
	enum paged_status (*fork)(struct owner *owner, uint32_t n, const struct seq_fork *forks, paged_seq_id *children,
				  struct paged_error *error);
	/** Requests a publish without waiting; its success shows in the sequences' slots, and a refusal is logged.
	 * PAGED_ERR_AGAIN: OWNER_MAX_PUBLISHES have no reply yet, or the socket is full.  `number` is the caller's, and
	 * grows from publish to publish.
	 */
	enum paged_status (*publish)(struct owner *owner, const struct seq_publish_list *publish, uint64_t number,
				     struct paged_error *error);
	/** The least number of a publish that has no reply yet; 0: all have one.  Replies come in any order. */
	uint64_t (*oldest_publish)(const struct owner *owner);
	enum paged_status (*pin)(struct owner *owner, uint32_t pool, uint32_t page, uint64_t serial, uint32_t seconds,
				 uint32_t *n_pages_p, struct paged_error *error);
	enum paged_status (*hold)(struct owner *owner, uint32_t pool, uint32_t n, const uint32_t *pages,
				  const uint64_t *serials, paged_seq_id *hold_p, struct paged_error *error);

	enum paged_status (*give)(struct owner *owner, uint32_t n, const struct paged_seq_item *items,
				  const struct seq_give *give, uint8_t ticket[PAGED_TICKET_SIZE],
				  struct paged_error *error);
	/** Writes at most n_max items. */
	enum paged_status (*adopt)(struct owner *owner, uint32_t pool, const uint8_t ticket[PAGED_TICKET_SIZE],
				   uint32_t n_max, struct paged_seq_item *items, uint32_t *n_p,
				   struct paged_error *error);
	enum paged_status (*cancel)(struct owner *owner, const uint8_t ticket[PAGED_TICKET_SIZE],
				    struct paged_error *error);

	enum paged_status (*array_put)(struct owner *owner, const struct wire_array_chunk *part,
				       struct paged_error *error);
	enum paged_status (*array_drop)(struct owner *owner, const char *name, struct paged_error *error);
	/** Requests the next part of a block mask and passes it to the reader. */
	enum paged_status (*mask)(struct owner *owner, const struct mask_request *request, struct rle_reader *reader,
				  struct paged_error *error);

	/** Looks up a pool's index by name; the pool need not be open. */
	enum paged_status (*pool_find)(struct owner *owner, const char *name, uint32_t *pool_p,
				       struct paged_error *error);
	enum paged_status (*status)(struct owner *owner, struct paged_daemon_info *info, struct paged_error *error);
	/*
	 * These return lists from malloc().  *list_p is NULL and *n_p is 0 before the call.  The caller frees the list,
	 * also after a failure.
	 */
	enum paged_status (*metrics)(struct owner *owner, struct paged_metrics *metrics,
				     struct paged_request_entry **list_p, size_t *n_p, struct paged_error *error);
	enum paged_status (*pools)(struct owner *owner, struct paged_pool_entry **list_p, size_t *n_p,
				   struct paged_error *error);
	enum paged_status (*sessions)(struct owner *owner, struct paged_session_entry **list_p, size_t *n_p,
				      struct paged_error *error);
	enum paged_status (*sequences)(struct owner *owner, uint32_t pool, struct paged_seq_entry **list_p, size_t *n_p,
				       struct paged_error *error);
	enum paged_status (*prefixes)(struct owner *owner, uint32_t pool, struct paged_node_entry **list_p, size_t *n_p,
				      struct paged_error *error);
	enum paged_status (*tickets)(struct owner *owner, struct paged_ticket_entry **list_p, size_t *n_p,
				     struct paged_error *error);
	enum paged_status (*pins)(struct owner *owner, uint32_t pool, struct paged_pin_entry **list_p, size_t *n_p,
				  struct paged_error *error);
	enum paged_status (*unpin)(struct owner *owner, uint32_t pool, uint64_t number, struct paged_error *error);
	enum paged_status (*quotas)(struct owner *owner, struct paged_quota_entry **list_p, size_t *n_p,
				    struct paged_error *error);
	enum paged_status (*table)(struct owner *owner, paged_seq_id seq, struct paged_seq_entry *entry,
				   uint32_t **pages_p, size_t *n_p, struct paged_error *error);
	enum paged_status (*check)(struct owner *owner, uint32_t pool, struct paged_check_result *result,
				   struct paged_error *error);
	enum paged_status (*kick)(struct owner *owner, uint32_t session, bool kill, struct paged_error *error);
	enum paged_status (*drain)(struct owner *owner, uint32_t session, struct paged_error *error);
	/** Sets the log level of the owner's process; 0: leaves it. */
	enum paged_status (*log_level)(struct owner *owner, uint32_t level, uint32_t *was_p, struct paged_error *error);
	/** Frees up to n cached pages; n 0: all. */
	enum paged_status (*evict)(struct owner *owner, uint32_t pool, uint32_t n, uint32_t *n_evicted_p,
				   struct paged_error *error);
};

static inline enum owner_state
owner_state(const struct owner *owner)
{
	return (enum owner_state)atomic_load_explicit(&owner->state, memory_order_acquire);
}

/** owner_advance - raise the state; a lower state is ignored */
static inline void
owner_advance(struct owner *owner, enum owner_state state)
{
	int seen = atomic_load_explicit(&owner->state, memory_order_relaxed);

	while (seen < (int)state && !atomic_compare_exchange_weak_explicit(&owner->state, &seen, (int)state,
									   memory_order_acq_rel, memory_order_relaxed))
		;
}

/** owner_log - pass a message to the program's log callback, if there is one */
void owner_log(const struct owner *owner, enum paged_log_level level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/** owner_log_refused_publish - log that the owner refused a publish; a success is ignored */
void owner_log_refused_publish(const struct owner *owner, enum paged_status status, const struct paged_error *error);

/** owner_fail_gone - fail with PAGED_ERR_GONE and a text that says how the owner or the session ended */
enum paged_status owner_fail_gone(const struct owner *owner, struct paged_error *error);

/** owner_remote_open - attach to the daemon in a runtime directory; dir NULL: the default.  params are complete */
enum paged_status owner_remote_open(const char *dir, const struct paged_client_params *params, struct owner **owner_p,
				    struct paged_error *error);

/** owner_embedded_open - create an owner in this process; params have every default filled in except max_length */
enum paged_status owner_embedded_open(const struct paged_pool_params *pools, size_t n_pools,
				      const struct paged_client_params *params, struct owner **owner_p,
				      struct paged_error *error);

#endif
