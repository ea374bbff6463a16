/* SPDX-License-Identifier: Apache-2.0 */
/* The owner in this process: requests are calls of the core, and the memory is private. */
#include "config.h"

#include "client/owner/owner.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/param.h>
#include <sys/random.h>
#include <unistd.h>

#include "client/owner/map_cuda.h"
#include "client/params.h"
#include "common/clock.h"
#include "common/text.h"
#include "core/array.h"
#include "kernels/mask/remote_mask.h"

#define SLOTS_DEFAULT 1024u
#define PAGE_SIZE_DEFAULT 16u
#define HUGE_PAGE ((size_t)2 << 20)
/* Pages that one request evicts ahead of need. */
#define TICK_PAGES 512u

struct embedded {
	struct owner owner;
	struct core *core;
	struct owner_pool *pools; /* clients get copies; this owner owns memory and region, or cuda */
	size_t n_pools;
	uint8_t boot_id[REGION_BOOT_ID_SIZE];
	uint32_t member; /* 0: observer */
	uint64_t opened_ms;
	uint64_t n_requests;
	char name[PAGED_MAX_NAME + 1];
	/* Of the publish that is being made. */
	struct core_publish publishes[WIRE_MAX_PUBLISHES];
	uint32_t extra_page[WIRE_MAX_EXTRAS];
};

static struct embedded *
embedded_of(struct owner *owner)
{
	return (struct embedded *)owner;
}

/* Map zeroed private memory that is allocated on first touch and does not exist in a forked child. */
static void *
embedded_map_memory(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED)
		return NULL;
	madvise(memory, size, MADV_DONTFORK);
	return memory;
}

/*
 * embedded_map_memory() for a pool's pages: aligned to HUGE_PAGE, and with huge pages
 * where the system gives them on request (madvise).
 */
static void *
embedded_map_host_pages(uint64_t size)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), kept = roundup((size_t)size, page), before;
	uint8_t *memory;

	if (size < HUGE_PAGE)
		return embedded_map_memory(kept);
	memory = embedded_map_memory(kept + HUGE_PAGE);
	if (memory == NULL)
		return NULL;
	before = -(uintptr_t)memory % HUGE_PAGE;
	if (before != 0)
		munmap(memory, before);
	munmap(memory + before + kept, HUGE_PAGE - before);
	madvise(memory + before, kept, MADV_HUGEPAGE);
	return memory + before;
}

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

/* Count a request and return the core that executes it. */
static struct core *
embedded_core_request(struct owner *owner)
{
	struct embedded *embedded = embedded_of(owner);

	embedded->n_requests++;
	core_set_now(embedded->core, clock_ms());
	return embedded->core;
}

/* After a request that changed pages: the work that the daemon does between requests. */
static enum paged_status
embedded_core_done(struct core *core, enum paged_status status)
{
	core_tick(core, TICK_PAGES);
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
embedded_erase(struct owner *owner, uint32_t n, const paged_seq_id *ids, struct paged_error *error)
{
	struct core *core = embedded_core_request(owner);

	return embedded_core_done(core, core_seq_erase(core, owner->session, n, ids, error));
}

/* A message has the pages of all sequences in one list; the core takes a list for each. */
static enum paged_status
embedded_start(struct owner *owner, const struct owner_start *start, paged_seq_id *ids, struct paged_error *error)
{
	struct core *core = embedded_core_request(owner);
	struct core_start *starts = calloc(start->n, sizeof(*starts));
	const uint32_t *pages = start->pages;
	enum paged_status status;

	if (starts == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory to start %u sequences", start->n);
	for (uint32_t i = 0; i < start->n; i++) {
		const struct wire_start_spec *spec = &start->specs[i];

		starts[i] = (struct core_start){
			.pool = start->pool,
			.n_pages = spec->n_pages,
			.pages = pages,
			.serial = spec->serial,
			.n_tokens = spec->n_tokens,
			.n_asked = spec->n_asked,
			.seq = spec->seq,
			.tag = spec->tag,
		};
		pages += spec->n_pages;
	}
	status = embedded_core_done(core, core_seq_start(core, owner->session, start->n, starts, ids, error));
	free(starts);
	return status;
}

static enum paged_status
embedded_fork(struct owner *owner, uint32_t n, const struct seq_fork *forks, paged_seq_id *children,
	      struct paged_error *error)
{
	struct core *core = embedded_core_request(owner);

	return embedded_core_done(core, core_seq_fork(core, owner->session, n, forks, children, error));
}

/* The block keys of spec i of a message, whose first page is page `first` of the message. */
static struct prefix_keys
embedded_publish_keys(const struct owner_publish *publish, uint32_t i, uint32_t first, uint32_t page_size,
		      uint32_t *extra_p, uint32_t *extra_page)
{
	struct prefix_keys keys = { .n_pages = publish->specs[i].n_pages };

	if (publish->tokens == NULL) {
		keys.n_extras = keys.n_pages;
		keys.extra = publish->extra + first;
		return keys;
	}
	keys.tokens = publish->tokens + (size_t)first * page_size;
	keys.extra_page = extra_page + *extra_p;
	keys.extra = publish->extra + *extra_p;
	for (; *extra_p < publish->n_extras && publish->extra_page[*extra_p] < first + keys.n_pages; ++*extra_p) {
		extra_page[*extra_p] = publish->extra_page[*extra_p] - first;
		keys.n_extras++;
	}
	return keys;
}

static enum paged_status
embedded_publish(struct owner *owner, const struct owner_publish *publish, struct paged_error *error)
{
	struct embedded *embedded = embedded_of(owner);
	struct core *core = embedded_core_request(owner);
	uint32_t n_published[WIRE_MAX_PUBLISHES], first = 0, extra = 0;
	enum paged_status status;

	for (uint32_t i = 0; i < publish->n; i++) {
		const struct wire_publish_spec *spec = &publish->specs[i];

		embedded->publishes[i] = (struct core_publish){
			.seq = spec->seq,
			.version = spec->version,
			.from = spec->from,
			.keys = embedded_publish_keys(publish, i, first,
						      core_pool_view(core, PAGED_SEQ_POOL(spec->seq))->page_size,
						      &extra, embedded->extra_page),
		};
		first += spec->n_pages;
	}
	status = core_seq_publish(core, owner->session, publish->n, embedded->publishes, n_published, error);
	owner_log_refused_publish(owner, status, error);
	return embedded_core_done(core, PAGED_OK);
}

static enum paged_status
embedded_pin(struct owner *owner, uint32_t pool, uint32_t page, uint64_t serial, uint32_t seconds, uint32_t *n_pages_p,
	     struct paged_error *error)
{
	struct core *core = embedded_core_request(owner);

	return embedded_core_done(core, core_prefix_pin(core, pool, page, serial, seconds, n_pages_p, error));
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

static enum paged_status
embedded_prefixes(struct owner *owner, uint32_t pool, struct paged_node_entry **list_p, size_t *n_p,
		  struct paged_error *error)
{
	struct core *core = embedded_of(owner)->core;
	struct paged_node_entry entry, *grown;
	size_t room = 0;

	core_set_now(core, clock_ms());
	for (uint32_t page = 0; core_node_next(core, pool, page, UINT32_MAX, &entry); page = entry.page + 1) {
		if (*n_p == room) {
			room = 2 * room + 64;
			grown = reallocarray(*list_p, room, sizeof(*grown));
			if (grown == NULL)
				return paged_fail(error, PAGED_ERR_NOMEM, "no memory to list %zu pages", room);
			*list_p = grown;
		}
		(*list_p)[(*n_p)++] = entry;
	}
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

static enum paged_status
embedded_evict(struct owner *owner, uint32_t pool, uint32_t n, uint32_t *n_evicted_p, struct paged_error *error)
{
	struct core *core = embedded_core_request(owner);
	uint32_t n_evicted = 0, n_now;

	(void)error;
	do {
		n_now = core_prefix_evict(core, pool, n > 0 ? n - n_evicted : 0);
		n_evicted += n_now;
	} while (n_now > 0 && n_evicted != n);
	core_wake(core);
	*n_evicted_p = n_evicted;
	return PAGED_OK;
}

static const struct owner_ops owner_ops_embedded = {
	.close = embedded_close,
	.dispatch = embedded_dispatch,
	.pool_open = embedded_pool_open,
	.pool_close = embedded_pool_close,
	.ping = embedded_ping,
	.create = embedded_create,
	.reserve = embedded_reserve,
	.truncate = embedded_truncate,
	.erase = embedded_erase,
	.reserve_ahead = embedded_reserve,
	.start = embedded_start,
	.fork = embedded_fork,
	.publish = embedded_publish,
	.pin = embedded_pin,
	.array_put = embedded_array_put,
	.array_drop = embedded_array_drop,
	.mask = embedded_mask,
	.pool_find = embedded_pool_find,
	.status = embedded_status,
	.pools = embedded_pools,
	.sessions = embedded_sessions,
	.sequences = embedded_sequences,
	.prefixes = embedded_prefixes,
	.table = embedded_table,
	.check = embedded_check,
	.kick = embedded_kick,
	.evict = embedded_evict,
};

/* Map the pages on the host or on a device.  The layout is already aligned for that. */
static enum paged_status
embedded_map_pages(struct owner_pool *pool, const struct paged_pool_params *params, struct paged_error *error)
{
	const char *device = params->device != NULL ? params->device : "0";
	struct paged_error why;
	enum paged_status status;

	if (pool->layout.params.alignment == LAYOUT_ALIGNMENT_CUDA) {
		status = map_cuda_make(device, pool->layout.size, &pool->cuda, &why);
		if (status != PAGED_OK)
			return paged_fail(error, status, "pool %s: device %s: %s", params->name, device, why.text);
		strcpy(pool->backend, "cuda");
		pool->base = map_cuda_base(pool->cuda);
		return PAGED_OK;
	}
	pool->memory = embedded_map_host_pages(pool->layout.size);
	if (pool->memory == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "pool %s: cannot map %" PRIu64 " bytes of pages: %s",
				  params->name, pool->layout.size, strerror(errno));
	strcpy(pool->backend, "host");
	pool->memory_size = pool->layout.size;
	pool->base = pool->memory;
	return PAGED_OK;
}

static enum paged_status
embedded_add_pool(struct embedded *embedded, struct paged_pool_params *params, struct paged_error *error)
{
	struct owner_pool *pool = &embedded->pools[embedded->n_pools];
	struct layout_params geometry = {
		.n_layers = params->n_layers,
		.n_kv_heads = params->n_kv_heads,
		.k_dim = params->k_dim,
		.v_dim = params->v_dim != 0 ? params->v_dim : params->k_dim,
		.v_in_k = params->v_in_k != 0,
		.dtype = params->dtype,
		.page_size = params->page_size != 0 ? params->page_size : PAGE_SIZE_DEFAULT,
		.n_pages = params->n_pages,
		.alignment = LAYOUT_ALIGNMENT_HOST,
	};
	uint64_t tokens = (uint64_t)geometry.page_size * geometry.n_pages;
	struct core_pool_params core_params = {
		.name = params->name,
		.n_pages = geometry.n_pages,
		.page_size = geometry.page_size,
		.n_slots = params->n_slots != 0 ? params->n_slots : SLOTS_DEFAULT,
		.max_length = params->max_length != 0 ? params->max_length
						      : (uint32_t)(tokens < UINT32_MAX ? tokens : UINT32_MAX),
		.publish = true,
		.free_pages = geometry.n_pages / 100,
		.pin_limit = geometry.n_pages / 4,
	};
	enum paged_status status;

	if (params->name == NULL)
		return paged_fail(error, PAGED_ERR_INVALID, "pool %zu has no name", embedded->n_pools);
	if (params->backend != NULL && strcmp(params->backend, "cuda") == 0)
		geometry.alignment = LAYOUT_ALIGNMENT_CUDA;
	else if (params->backend != NULL && strcmp(params->backend, "host") != 0)
		return paged_fail(error, PAGED_ERR_UNSUPPORTED, "pool %s: back end %s is neither host nor cuda",
				  params->name, params->backend);
	status = layout_init(&pool->layout, &geometry, error);
	if (status != PAGED_OK)
		return status;
	if (core_params.n_slots > PAGED_MAX_SLOTS)
		return paged_fail(error, PAGED_ERR_LIMIT, "pool %s: %u sequences, at most %u", params->name,
				  core_params.n_slots, PAGED_MAX_SLOTS);
	if (getrandom(core_params.memory_id, sizeof(core_params.memory_id), 0) != sizeof(core_params.memory_id) ||
	    getrandom(&core_params.seed, sizeof(core_params.seed), 0) != sizeof(core_params.seed))
		return paged_fail(error, PAGED_ERR_SYSTEM, "getrandom: %s", strerror(errno));
	pool->region_size = core_region_size(&core_params);
	if (pool->region_size == 0)
		return paged_fail(error, PAGED_ERR_LIMIT, "pool %s: tables for %u slots of %u tokens exceed 2^63 bytes",
				  params->name, core_params.n_slots, core_params.max_length);
	/* Counted before mapping, so that closing the owner unmaps a pool whose creation fails. */
	embedded->n_pools++;
	status = embedded_map_pages(pool, params, error);
	if (status != PAGED_OK)
		return status;
	pool->region = embedded_map_memory(pool->region_size);
	if (pool->region == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "pool %s: cannot map %zu bytes of tables: %s", params->name,
				  pool->region_size, strerror(errno));
	status = core_pool_add(embedded->core, &core_params, pool->region, &pool->index, error);
	if (status != PAGED_OK)
		return status;
	pool->view = *core_pool_view(embedded->core, pool->index);
	snprintf(pool->name, sizeof(pool->name), "%s", params->name);
	return PAGED_OK;
}

static enum paged_status
embedded_add_pools(struct embedded *embedded, const struct paged_pool_params *pools, size_t n_pools,
		   struct paged_error *error)
{
	const uint8_t *at = (const uint8_t *)pools;
	struct paged_pool_params params;

	for (size_t i = 0; i < n_pools; i++, at += pools->struct_size) {
		enum paged_status status = client_params_in(&params, sizeof(params), at, "paged_pool_params", error);

		if (status == PAGED_OK && ((const struct paged_pool_params *)at)->struct_size != pools->struct_size)
			status = paged_fail(error, PAGED_ERR_INVALID,
					    "paged_pool_params %zu: struct_size is %zu, the "
					    "first one's is %zu",
					    i, ((const struct paged_pool_params *)at)->struct_size, pools->struct_size);
		if (status == PAGED_OK)
			status = embedded_add_pool(embedded, &params, error);
		if (status != PAGED_OK)
			return status;
	}
	return PAGED_OK;
}

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
