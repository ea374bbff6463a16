/* SPDX-License-Identifier: Apache-2.0 */
/* The owner in this process: requests are calls of the core, and the memory is private. */
#include "config.h"

#include "client/owner/owner_embedded.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "client/owner/map_cuda.h"
#include "common/clock.h"
#include "common/text.h"
#include "core/array.h"
#include "kernels/mask/remote_mask.h"

static void
embedded_close(struct owner *owner, bool in_child)
{
	struct embedded *embedded = embedded_of(owner);

	core_destroy(embedded->core);
	for (size_t i = 0; i < embedded->n_pools; i++)
		map_cuda_free(embedded->pools[i].cuda, in_child);
	for (size_t i = 0; i < embedded->n_pools && !in_child; i++) {
		if (embedded->pools[i].memory != NULL)
			munmap(embedded->pools[i].memory, embedded->pools[i].memory_size);
		if (embedded->pools[i].region != NULL)
			munmap(embedded->pools[i].region, embedded->pools[i].region_size);
	}
	free(embedded->pools);
	free(embedded);
}

/* An embedded owner sends no notices and cannot die on its own. */
static void
embedded_dispatch(struct owner *owner)
{
	(void)owner;
}

static bool
embedded_hung_up(struct owner *owner)
{
	(void)owner;
	return false;
}

static enum paged_status
embedded_pool_open(struct owner *owner, const char *name, struct owner_pool *pool, struct paged_error *error)
{
	struct embedded *embedded = embedded_of(owner);
	uint32_t index;
	enum paged_status status = core_pool_find(embedded->core, name, &index, error);

	if (status == PAGED_OK)
		*pool = embedded->pools[index];
	return status;
}

static void
embedded_pool_close(struct owner *owner, struct owner_pool *pool, bool in_child)
{
	(void)owner;
	(void)pool;
	(void)in_child;
}

/* The owner is this process, so it always answers. */
static enum paged_status
embedded_ping(struct owner *owner, struct paged_error *error)
{
	(void)owner, (void)error;
	return PAGED_OK;
}

struct core *
embedded_core_request(struct owner *owner)
{
	struct embedded *embedded = embedded_of(owner);
	uint64_t now_ms = clock_ms(), deadline_ms;

	embedded->n_requests++;
	core_set_now(embedded->core, now_ms);
	deadline_ms = core_next_deadline(embedded->core);
	/* A ticket that has expired must not refuse this request; a daemon's timer would have removed it before. */
	if (deadline_ms != 0 && deadline_ms <= now_ms)
		core_tick(embedded->core, EMBEDDED_TICK_PAGES);
	return embedded->core;
}

enum paged_status
embedded_core_done(struct core *core, enum paged_status status)
{
	core_tick(core, EMBEDDED_TICK_PAGES);
	core_wake(core);
	return status;
}

static enum paged_status
embedded_create(struct owner *owner, uint32_t n, const struct seq_spec *specs, paged_seq_id *ids,
		struct paged_error *error)
{
	struct core *core = embedded_core_request(owner);

	return embedded_core_done(core, core_seq_create(core, owner->session, n, specs, ids, error));
}

static enum paged_status
embedded_reserve(struct owner *owner, uint32_t n, const struct paged_seq_item *items, struct paged_error *error)
{
	struct core *core = embedded_core_request(owner);

	return embedded_core_done(core, core_seq_reserve(core, owner->session, n, items, error));
}

static enum paged_status
embedded_truncate(struct owner *owner, uint32_t n, const struct paged_seq_item *items, struct paged_error *error)
{
	struct core *core = embedded_core_request(owner);

	return embedded_core_done(core, core_seq_truncate(core, owner->session, n, items, error));
}

static enum paged_status
embedded_trim(struct owner *owner, uint32_t n, const struct paged_seq_item *items, struct paged_error *error)
{
	struct core *core = embedded_core_request(owner);

	return embedded_core_done(core, core_seq_trim(core, owner->session, n, items, error));
}

static enum paged_status
embedded_erase(struct owner *owner, uint32_t n, const paged_seq_id *ids, struct paged_error *error)
{
	struct core *core = embedded_core_request(owner);

	return embedded_core_done(core, core_seq_erase(core, owner->session, n, ids, error));
}

static enum paged_status
embedded_array_put(struct owner *owner, const struct wire_array_chunk *part, struct paged_error *error)
{
	struct core_array_chunk ours = {
		.name = part->name,
		.shape = { .dtype = (enum paged_dtype)part->dtype, .n_dims = part->n_dims },
		.offset = part->offset,
		.data = part->data,
		.size = part->size,
	};

	memcpy(ours.shape.extents, part->extents, sizeof(ours.shape.extents));
	return core_array_put(embedded_core_request(owner), owner->session, embedded_of(owner)->member, &ours, error);
}

static enum paged_status
embedded_array_drop(struct owner *owner, const char *name, struct paged_error *error)
{
	return core_array_drop(embedded_core_request(owner), owner->session, name, error);
}

static enum paged_status
embedded_mask(struct owner *owner, const struct mask_request *request, struct rle_reader *reader,
	      struct paged_error *error)
{
	struct rle_writer part = { .capacity = MASK_PART_MAX };
	struct remote_mask *remote_mask = NULL;
	struct core_arrays arrays;
	enum paged_status status =
		core_arrays_acquire(embedded_core_request(owner), owner->session, request, &arrays, error);

	if (status != PAGED_OK)
		return status;
	status = remote_mask_create(request, REMOTE_MASK_DEFAULT_BYTES, &remote_mask, error);
	for (uint32_t i = 0; status == PAGED_OK && i < request->n_names; i++)
		if (arrays.array[i] != NULL)
			remote_mask_set_array(remote_mask, i, arrays.array[i]->shape.extents, arrays.array[i]->data);
	part.values = malloc(MASK_PART_MAX * sizeof(*part.values));
	if (status == PAGED_OK && part.values == NULL)
		status = paged_fail(error, PAGED_ERR_NOMEM, "block mask: no memory for a part of it");
	if (status == PAGED_OK)
		status = remote_mask_build(remote_mask, NULL, &part, error);
	if (status == PAGED_OK)
		status = rle_read_part(reader,
				       &(struct mask_part){ part.n, part.values, part.list_continues, arrays.number });
	free(part.values);
	remote_mask_destroy(remote_mask);
	core_arrays_release(&arrays);
	return status;
}

static enum paged_status
embedded_pool_find(struct owner *owner, const char *name, uint32_t *pool_p, struct paged_error *error)
{
	return core_pool_find(embedded_of(owner)->core, name, pool_p, error);
}

static enum paged_status
embedded_status(struct owner *owner, struct paged_daemon_info *info, struct paged_error *error)
{
	struct embedded *embedded = embedded_of(owner);

	(void)error;
	*info = (struct paged_daemon_info){
		.version = PACKAGE_VERSION,
		.uptime_ms = clock_ms() - embedded->opened_ms,
		.n_requests = embedded->n_requests,
		.n_sessions = core_n_sessions(embedded->core),
		.n_pools = core_n_pools(embedded->core),
		.pid = (uint32_t)getpid(),
	};
	text_hex(info->boot_id, embedded->boot_id, REGION_BOOT_ID_SIZE);
	return PAGED_OK;
}

/* There are no turns of a loop, and requests are calls. */
static enum paged_status
embedded_metrics(struct owner *owner, struct paged_metrics *metrics, struct paged_request_entry **list_p, size_t *n_p,
		 struct paged_error *error)
{
	struct embedded *embedded = embedded_of(owner);
	uint32_t n_sessions = core_n_sessions(embedded->core);

	*metrics = (struct paged_metrics){
		.uptime_ms = clock_ms() - embedded->opened_ms,
		.n_requests = embedded->n_requests,
		.n_attached = 1,
		.n_opened = embedded->member != 0,
		.n_members = 1,
		.n_sessions = n_sessions,
	};
	*n_p = 0;
	*list_p = calloc(1, sizeof(**list_p));
	return *list_p != NULL ? PAGED_OK : paged_fail(error, PAGED_ERR_NOMEM, "no memory for a list");
}

static enum paged_status
embedded_pools(struct owner *owner, struct paged_pool_entry **list_p, size_t *n_p, struct paged_error *error)
{
	struct embedded *embedded = embedded_of(owner);
	struct paged_pool_entry *list = calloc(embedded->n_pools, sizeof(*list));

	if (list == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory to list %zu pools", embedded->n_pools);
	for (uint32_t i = 0; i < embedded->n_pools; i++) {
		core_pool_status(embedded->core, i, &list[i]);
		layout_report(&embedded->pools[i].layout, &list[i]);
		snprintf(list[i].memory, sizeof(list[i].memory), "private");
		memcpy(list[i].backend, embedded->pools[i].backend, sizeof(list[i].backend));
		if (embedded->pools[i].cuda != NULL)
			snprintf(list[i].device, sizeof(list[i].device), "%s",
				 map_cuda_gpu(&embedded->pools[i])->uuid_text);
	}
	*list_p = list;
	*n_p = embedded->n_pools;
	return PAGED_OK;
}

static enum paged_status
embedded_sessions(struct owner *owner, struct paged_session_entry **list_p, size_t *n_p, struct paged_error *error)
{
	struct embedded *embedded = embedded_of(owner);
	struct paged_session_entry *entry = calloc(1, sizeof(*entry));

	if (entry == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory to list the session");
	*list_p = entry;
	*n_p = 0;
	if (!core_session_next(embedded->core, 0, entry))
		return PAGED_OK;
	entry->member = embedded->member;
	entry->first = 1;
	entry->pid = (uint32_t)getpid();
	entry->uid = (uint32_t)getuid();
	entry->n_requests = embedded->n_requests;
	memcpy(entry->name, embedded->name, sizeof(entry->name));
	*n_p = 1;
	return PAGED_OK;
}

static enum paged_status
embedded_seq_entry(struct embedded *embedded, paged_seq_id id, struct paged_seq_entry *entry, struct paged_error *error)
{
	enum paged_status status = core_seq_status(embedded->core, id, entry, error);

	if (status != PAGED_OK)
		return status;
	entry->pid = (uint32_t)getpid();
	memcpy(entry->name, embedded->name, sizeof(entry->name));
	return PAGED_OK;
}

static enum paged_status
embedded_sequences(struct owner *owner, uint32_t pool, struct paged_seq_entry **list_p, size_t *n_p,
		   struct paged_error *error)
{
	struct embedded *embedded = embedded_of(owner);
	struct paged_pool_entry status;
	uint32_t slot = 0;
	paged_seq_id id;

	core_pool_status(embedded->core, pool, &status);
	*list_p = calloc((size_t)status.n_sequences + 1, sizeof(**list_p));
	if (*list_p == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory to list %u sequences", status.n_sequences);
	while (*n_p < status.n_sequences && core_seq_next(embedded->core, pool, slot, UINT32_MAX, &id)) {
		if (embedded_seq_entry(embedded, id, &(*list_p)[*n_p], error) == PAGED_OK)
			++*n_p;
		slot = PAGED_SEQ_SLOT(id) + 1;
	}
	return PAGED_OK;
}

/* An embedded owner has no configuration, and so no tenants. */
static enum paged_status
embedded_quotas(struct owner *owner, struct paged_quota_entry **list_p, size_t *n_p, struct paged_error *error)
{
	(void)owner, (void)list_p, (void)n_p, (void)error;
	return PAGED_OK;
}

static enum paged_status
embedded_table(struct owner *owner, paged_seq_id seq, struct paged_seq_entry *entry, uint32_t **pages_p, size_t *n_p,
	       struct paged_error *error)
{
	struct embedded *embedded = embedded_of(owner);
	enum paged_status status = embedded_seq_entry(embedded, seq, entry, error);

	if (status != PAGED_OK)
		return status;
	*pages_p = calloc((size_t)entry->n_pages + 1, sizeof(**pages_p));
	if (*pages_p == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for a page table of %u pages", entry->n_pages);
	*n_p = core_seq_pages(embedded->core, seq, 0, *pages_p, entry->n_pages);
	return PAGED_OK;
}

static enum paged_status
embedded_check(struct owner *owner, uint32_t pool, struct paged_check_result *result, struct paged_error *error)
{
	enum paged_status status = core_check(embedded_of(owner)->core, pool, result, error);

	return status == PAGED_ERR_CORRUPT ? PAGED_OK : status;
}

static enum paged_status
embedded_kick(struct owner *owner, uint32_t session, bool kill_members, struct paged_error *error)
{
	struct embedded *embedded = embedded_of(owner);
	enum paged_status status;

	if (kill_members)
		return paged_fail(error, PAGED_ERR_UNSUPPORTED, "an embedded owner does not kill its own process");
	status = core_session_end(embedded->core, session, error);
	if (status == PAGED_OK)
		core_reap(embedded->core, 0);
	return status;
}

/* Its only session is that of this client, to which there is no notice. */
static enum paged_status
embedded_drain(struct owner *owner, uint32_t session, struct paged_error *error)
{
	enum paged_status status = core_session_drain(embedded_of(owner)->core, session, error);

	if (status == PAGED_OK)
		owner_advance(owner, OWNER_DRAINING);
	return status;
}

static enum paged_status
embedded_log_level(struct owner *owner, uint32_t level, uint32_t *was_p, struct paged_error *error)
{
	(void)owner, (void)level, (void)was_p;
	return paged_fail(error, PAGED_ERR_UNSUPPORTED,
			  "an embedded owner has no log: the client's log function gets all lines");
}

static const struct owner_ops owner_ops_embedded = {
	.close = embedded_close,
	.dispatch = embedded_dispatch,
	.hung_up = embedded_hung_up,
	.pool_open = embedded_pool_open,
	.pool_close = embedded_pool_close,
	.ping = embedded_ping,
	.create = embedded_create,
	.reserve = embedded_reserve,
	.truncate = embedded_truncate,
	.trim = embedded_trim,
	.erase = embedded_erase,
	.reserve_ahead = embedded_reserve,
	.start = embedded_start,
	.fork = embedded_fork,
	.publish = embedded_publish,
	.oldest_publish = embedded_oldest_publish,
	.pin = embedded_pin,
	.hold = embedded_hold,
	.give = embedded_give,
	.adopt = embedded_adopt,
	.cancel = embedded_cancel,
	.array_put = embedded_array_put,
	.array_drop = embedded_array_drop,
	.mask = embedded_mask,
	.pool_find = embedded_pool_find,
	.status = embedded_status,
	.metrics = embedded_metrics,
	.pools = embedded_pools,
	.sessions = embedded_sessions,
	.sequences = embedded_sequences,
	.prefixes = embedded_prefixes,
	.tickets = embedded_tickets,
	.quotas = embedded_quotas,
	.pins = embedded_pins,
	.unpin = embedded_unpin,
	.table = embedded_table,
	.check = embedded_check,
	.kick = embedded_kick,
	.drain = embedded_drain,
	.evict = embedded_evict,
	.log_level = embedded_log_level,
};

enum paged_status
owner_embedded_open(const struct paged_pool_params *pools, size_t n_pools, const struct paged_client_params *params,
		    struct owner **owner_p, struct paged_error *error)
{
	struct embedded *embedded;
	enum paged_status status;

	if (params->join_token != NULL)
		return paged_fail(error, PAGED_ERR_UNSUPPORTED, "an embedded client's session has no other members");
	if (pools == NULL || n_pools == 0)
		return paged_fail(error, PAGED_ERR_INVALID, "an embedded client needs at least one pool");
	embedded = calloc(1, sizeof(*embedded));
	if (embedded == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for an owner");
	embedded->owner = (struct owner){
		.ops = &owner_ops_embedded, .fd = -1, .log = params->log, .log_argument = params->log_argument
	};
	snprintf(embedded->name, sizeof(embedded->name), "%s", params->name);
	embedded->opened_ms = clock_ms();
	embedded->pools = calloc(n_pools, sizeof(*embedded->pools));
	if (embedded->pools == NULL) {
		status = paged_fail(error, PAGED_ERR_NOMEM, "no memory for %zu pools", n_pools);
		goto err_free;
	}
	if (getrandom(embedded->boot_id, sizeof(embedded->boot_id), 0) != sizeof(embedded->boot_id)) {
		status = paged_fail(error, PAGED_ERR_SYSTEM, "no random bytes: %s", strerror(errno));
		goto err_free;
	}
	status = core_create(embedded->boot_id, &embedded->core, error);
	if (status != PAGED_OK)
		goto err_free;
	status = embedded_add_pools(embedded, pools, n_pools, error);
	if (status == PAGED_OK && params->observer == 0)
		status = core_session_open(embedded->core, &embedded->owner.session, &embedded->member, error);
	if (status != PAGED_OK) {
		embedded_close(&embedded->owner, false);
		return status;
	}
	*owner_p = &embedded->owner;
	return PAGED_OK;

err_free:
	free(embedded->pools);
	free(embedded);
	return status;
}
