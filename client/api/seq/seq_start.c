/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paged_seq_start(): sequences on their longest published prefixes.
 *
 * The search runs without a lock and its result may be stale when the owner
 * reads it: then all is searched again.  Most calls send one message.  A prefix
 * that exceeds a message is taken in parts: the first part creates the sequence,
 * the others continue it, each in a message of its own.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "client/api/checking.h"
#include "client/api/enter.h"
#include "client/api/seq/prefix.h"
#include "client/api/seq/seq.h"
#include "client/params.h"

/* Searches before nothing is shared. */
#define START_SEARCHES 3

/* What was found for one sequence. */
struct start_found {
	size_t first; /* of its pages, in start_call.pages */
	uint32_t n_pages;
	uint32_t n_asked; /* tokens */
	uint64_t serial;  /* of the last page; 0: none */
};

struct start_call {
	struct paged_pool *pool;
	uint32_t n;
	const struct paged_start *starts;
	struct start_found *found;    /* [n] */
	paged_seq_id *ids;            /* [n] */
	struct seq_start_spec *specs; /* [min(n, WIRE_MAX_STARTS)] */
	uint32_t n_created;           /* ids[0, n_created) */
	uint32_t *pages;
	size_t n_pages, max_pages;
};

static enum paged_status
seq_start_check(const struct start_call *call, struct paged_error *error)
{
	enum paged_status status = PAGED_OK;
	size_t tags = 0;

	for (uint32_t i = 0; i < call->n && status == PAGED_OK; i++) {
		const struct paged_start *start = &call->starts[i];

		if (!client_is_zero(start->reserved, sizeof(start->reserved)))
			return paged_fail(error, PAGED_ERR_INVALID, "starts[%u].reserved is not zero", i);
		status = seq_tag_check("starts", i, start->tag, &tags, error);
	}
	return status;
}

static enum paged_status
seq_start_pages_grow(struct start_call *call, uint32_t n, struct paged_error *error)
{
	size_t max = MAX(call->n_pages + n, 2 * call->max_pages);
	uint32_t *pages;

	if (call->n_pages + n <= call->max_pages)
		return PAGED_OK;
	pages = realloc(call->pages, max * sizeof(*pages));
	if (pages == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for %zu pages of prefixes", max);
	call->pages = pages;
	call->max_pages = max;
	return PAGED_OK;
}

static enum paged_status
seq_start_find(struct start_call *call, uint32_t i, bool share, struct paged_error *error)
{
	const struct paged_start *start = &call->starts[i];
	const struct region_view *view = &call->pool->mapping.view;
	struct start_found *found = &call->found[i];
	struct prefix_position at = prefix_root(view);
	struct prefix_request request;
	struct paged_error why;
	enum paged_status status;

	*found = (struct start_found){ .first = call->n_pages };
	if (start->prefix == NULL)
		return PAGED_OK;
	status = prefix_request_init(call->pool, start->prefix, &request, &why);
	if (status != PAGED_OK)
		return paged_fail(error, status, "starts[%u]: %s", i, why.text);
	if (start->max_tokens != 0)
		request.keys.n_pages = MIN(request.keys.n_pages, start->max_tokens / view->page_size);
	found->n_asked = request.keys.n_pages * view->page_size;
	status = seq_start_pages_grow(call, request.keys.n_pages, error);
	if (status == PAGED_OK && share)
		found->n_pages = prefix_find(view, &request.keys, &at, call->pages + call->n_pages);
	prefix_request_destroy(&request);
	found->serial = at.serial;
	call->n_pages += found->n_pages;
	return status;
}

static enum paged_status
seq_start_find_all(struct start_call *call, bool share, struct paged_error *error)
{
	enum paged_status status = PAGED_OK;

	call->n_pages = 0;
	for (uint32_t i = 0; i < call->n && status == PAGED_OK; i++)
		status = seq_start_find(call, i, share, error);
	return status;
}

static const char *
seq_start_tag(const struct paged_start *start)
{
	return start->tag != NULL ? start->tag : "";
}

static enum paged_status
seq_start_send(struct start_call *call, uint32_t n, const uint32_t *pages, uint32_t n_pages, paged_seq_id *ids,
	       struct paged_error *error)
{
	struct owner *owner = call->pool->client->owner;
	const struct seq_start_list message = {
		.pool = call->pool->mapping.index, .n = n, .specs = call->specs, .n_pages = n_pages, .pages = pages
	};

	return owner->ops->start(owner, &message, ids, error);
}

/* Starts sequences from n_created on in one message. */
static enum paged_status
seq_start_send_group(struct start_call *call, struct paged_error *error)
{
	const struct start_found *first = &call->found[call->n_created];
	uint32_t n = 0, n_pages = 0, bytes = 0;
	enum paged_status status;

	for (uint32_t i = call->n_created; i < call->n && n < WIRE_MAX_STARTS; i++) {
		const struct start_found *found = &call->found[i];
		const struct paged_start *start = &call->starts[i];
		size_t more = WIRE_START_SIZE + strlen(seq_start_tag(start)) + found->n_pages * sizeof(*call->pages);

		if (n_pages + found->n_pages > WIRE_MAX_START_PAGES || bytes + more > WIRE_MAX_LISTS)
			break;
		call->specs[n++] = (struct seq_start_spec){
			.n_pages = found->n_pages,
			.n_tokens = start->reserve,
			.n_asked = found->n_asked,
			.serial = found->serial,
			.tag = seq_start_tag(start),
		};
		n_pages += found->n_pages;
		bytes += (uint32_t)more;
	}
	status = seq_start_send(call, n, call->pages + first->first, n_pages, call->ids + call->n_created, error);
	if (status == PAGED_OK)
		call->n_created += n;
	return status;
}

/*
 * Starts sequence n_created, whose prefix exceeds a message.  The serial of a part's last page is read here, after the
 * search.  If another node has taken its page meanwhile, the next part does not continue it, and the owner says STALE.
 */
static enum paged_status
seq_start_send_parts(struct start_call *call, struct paged_error *error)
{
	uint32_t i = call->n_created, done = 0;
	const struct start_found *found = &call->found[i];
	const uint32_t *pages = call->pages + found->first;
	enum paged_status status = PAGED_OK;
	paged_seq_id id = 0;

	while (done < found->n_pages && status == PAGED_OK) {
		uint32_t n = MIN(found->n_pages - done, WIRE_MAX_START_PAGES);
		bool last = done + n == found->n_pages;
		const struct region_node *node = region_node(&call->pool->mapping.view, pages[done + n - 1]);

		call->specs[0] = (struct seq_start_spec){
			.n_pages = n,
			.n_tokens = last ? call->starts[i].reserve : 0,
			.n_asked = done == 0 ? found->n_asked : 0,
			.serial = last ? found->serial : atomic_load_explicit(&node->serial, memory_order_acquire),
			.seq = id,
			.tag = done == 0 ? seq_start_tag(&call->starts[i]) : "",
		};
		status = seq_start_send(call, 1, pages + done, n, &id, error);
		done += n;
		if (status == PAGED_OK) {
			call->ids[i] = id;
			call->n_created = i + 1;
		}
	}
	return status;
}

/* Creates all sequences, or none. */
static enum paged_status
seq_start_create(struct start_call *call, struct paged_error *error)
{
	struct paged_client *client = call->pool->client;
	enum paged_status status = PAGED_OK;
	struct paged_error undo;

	call->n_created = 0;
	client_lock(client);
	while (call->n_created < call->n && status == PAGED_OK)
		status = call->found[call->n_created].n_pages > WIRE_MAX_START_PAGES
				 ? seq_start_send_parts(call, error)
				 : seq_start_send_group(call, error);
	if (status != PAGED_OK && call->n_created > 0 &&
	    client->owner->ops->erase(client->owner, call->n_created, call->ids, &undo) != PAGED_OK)
		owner_log(client->owner, PAGED_LOG_WARNING, "undoing a start of %u sequences: %s", call->n_created,
			  undo.text);
	client_unlock(client);
	return status;
}

static enum paged_status
seq_start_run(struct start_call *call, struct paged_error *error)
{
	enum paged_status status = seq_start_check(call, error);

	if (status != PAGED_OK)
		return status;
	call->found = calloc(call->n, sizeof(*call->found));
	call->ids = calloc(call->n, sizeof(*call->ids));
	call->specs = calloc(MIN(call->n, WIRE_MAX_STARTS), sizeof(*call->specs));
	if (call->found == NULL || call->ids == NULL || call->specs == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory to start %u sequences", call->n);
	for (int search = 0; search <= START_SEARCHES; search++) {
		status = seq_start_find_all(call, search < START_SEARCHES, error);
		if (status == PAGED_OK)
			status = seq_start_create(call, error);
		if (status != PAGED_ERR_STALE)
			break;
	}
	return status;
}

enum paged_status
paged_seq_start(struct paged_pool *pool, size_t n, const struct paged_start *starts, paged_seq_id *ids,
		uint32_t *n_shared)
{
	struct paged_client *client = pool_client(pool);
	enum paged_status status = seq_request_enter(client, n, starts != NULL && ids != NULL);
	struct start_call call = { .pool = pool, .n = (uint32_t)n, .starts = starts };
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	status = seq_start_run(&call, &error);
	for (size_t i = 0; i < n && status == PAGED_OK; i++) {
		ids[i] = call.ids[i];
		if (n_shared != NULL)
			n_shared[i] = call.found[i].n_pages * pool->mapping.view.page_size;
		if (pool->checking != NULL)
			checking_begin(pool, ids[i], call.found[i].n_pages * pool->mapping.view.page_size);
	}
	free(call.found);
	free(call.ids);
	free(call.specs);
	free(call.pages);
	return client_leave(client, status, &error);
}
