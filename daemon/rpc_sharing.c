/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests on published pages: start, fork, publish, pin, unpin, hold, evict, and their lists.  Checks the permission
 * for each pool, and that the lists of a message fit together; the core does the rest.
 */
#include <inttypes.h>

#include "daemon/rpc.h"

/* Pages that one request scans at most: all of millions of pages may be private. */
#define SCAN_PAGES 16384u

static enum paged_status
start_check_pages(const struct wire_request *request, struct paged_error *error)
{
	uint64_t n_pages = 0;

	for (uint32_t i = 0; i < request->start.n; i++)
		n_pages += request->start.specs[i].n_pages;
	if (n_pages != request->start.n_pages)
		return paged_fail(error, PAGED_ERR_PROTOCOL,
				  "SeqStart.page has %u entries, and its sequences have %" PRIu64 " pages",
				  request->start.n_pages, n_pages);
	return PAGED_OK;
}

enum paged_status
rpc_start(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	  struct paged_error *error)
{
	enum paged_status status = member_check_pool(member, request->start.pool, error);

	if (status == PAGED_OK)
		status = start_check_pages(request, error);
	if (status == PAGED_OK)
		status = core_seq_start(rpc->core, member->session->id, &request->start, rpc->scratch.ids, error);
	if (status != PAGED_OK)
		return status;
	reply->kind = WIRE_REPLY_IDS;
	reply->ids.n = request->start.n;
	reply->ids.seq = rpc->scratch.ids;
	return PAGED_OK;
}

enum paged_status
rpc_fork(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	 struct paged_error *error)
{
	enum paged_status status = PAGED_OK;
	uint32_t n = request->fork.n;

	for (uint32_t i = 0; i < n && status == PAGED_OK; i++)
		status = member_check_pool(member, PAGED_SEQ_POOL(request->fork.forks[i].parent), error);
	if (status == PAGED_OK)
		status = core_seq_fork(rpc->core, member->session->id, n, request->fork.forks, rpc->scratch.ids, error);
	if (status != PAGED_OK)
		return status;
	reply->kind = WIRE_REPLY_IDS;
	reply->ids.n = n;
	reply->ids.seq = rpc->scratch.ids;
	return PAGED_OK;
}

/* Are the extras the block keys?  Else each names its page. */
static bool
publish_is_keyed(const struct wire_request *request)
{
	return request->publish.n_extra_pages == 0 &&
	       (request->publish.tokens == NULL || request->publish.extra_size > 0);
}

/* Compares the numbers of pages, token ids and extras, and the order of the extras. */
static enum paged_status
publish_check_lists(const struct rpc *rpc, const struct wire_request *request, struct paged_error *error)
{
	uint32_t n_extras = request->publish.extra_size / REGION_EXTRA_SIZE;
	uint64_t n_pages = 0, n_tokens = 0;

	for (uint32_t i = 0; i < request->publish.n; i++) {
		const struct seq_publish_spec *spec = &request->publish.specs[i];

		n_pages += spec->n_pages;
		n_tokens += (uint64_t)spec->n_pages * core_pool_view(rpc->core, PAGED_SEQ_POOL(spec->seq))->page_size;
	}
	if (n_pages > WIRE_MAX_PUBLISH_PAGES)
		return paged_fail(error, PAGED_ERR_LIMIT, "Publish has %" PRIu64 " pages; it may have %u", n_pages,
				  WIRE_MAX_PUBLISH_PAGES);
	if (request->publish.extra_size % REGION_EXTRA_SIZE != 0)
		return paged_fail(error, PAGED_ERR_PROTOCOL, "Publish.extra has %u bytes; an extra has %u",
				  request->publish.extra_size, REGION_EXTRA_SIZE);
	if (request->publish.tokens != NULL && request->publish.n_tokens != n_tokens)
		return paged_fail(error, PAGED_ERR_PROTOCOL,
				  "Publish.token has %u entries, and its pages have %" PRIu64 " tokens",
				  request->publish.n_tokens, n_tokens);
	if (publish_is_keyed(request) && n_extras == n_pages)
		return PAGED_OK;
	if (request->publish.tokens == NULL)
		return paged_fail(error, PAGED_ERR_PROTOCOL,
				  "Publish without tokens has %u extras, %u of them for named pages, for %" PRIu64
				  " pages",
				  n_extras, request->publish.n_extra_pages, n_pages);
	if (request->publish.n_extra_pages != n_extras)
		return paged_fail(error, PAGED_ERR_PROTOCOL, "Publish.extra_page has %u entries for %u extras",
				  request->publish.n_extra_pages, n_extras);
	for (uint32_t i = 0; i < n_extras; i++) {
		uint32_t page = request->publish.extra_page[i];

		if (page >= n_pages || (i > 0 && page <= request->publish.extra_page[i - 1]))
			return paged_fail(error, PAGED_ERR_PROTOCOL,
					  "Publish.extra_page: entry %u is page %u; it must be ascending and below "
					  "%" PRIu64,
					  i, page, n_pages);
	}
	return PAGED_OK;
}

enum paged_status
rpc_publish(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	    struct paged_error *error)
{
	const struct seq_publish_list list = {
		.n = request->publish.n,
		.specs = request->publish.specs,
		.n_tokens = request->publish.n_tokens,
		.keyed = publish_is_keyed(request),
		.tokens = request->publish.tokens,
		.n_extras = request->publish.extra_size / REGION_EXTRA_SIZE,
		.extra_page = request->publish.extra_page,
		.extra = (const uint8_t(*)[REGION_EXTRA_SIZE])request->publish.extra,
	};
	struct core_publish *publishes = rpc->scratch.publish.publishes;
	enum paged_status status = PAGED_OK;
	uint32_t n = list.n;

	for (uint32_t i = 0; i < n && status == PAGED_OK; i++)
		status = member_check_pool(member, PAGED_SEQ_POOL(request->publish.specs[i].seq), error);
	if (status == PAGED_OK)
		status = publish_check_lists(rpc, request, error);
	if (status != PAGED_OK)
		return status;
	core_divide_publish(rpc->core, &list, publishes, rpc->scratch.publish.extra_page);
	status = core_seq_publish(rpc->core, member->session->id, n, publishes, rpc->scratch.publish.n_published,
				  rpc->scratch.publish.ends, error);
	if (status != PAGED_OK)
		return status;
	reply->kind = WIRE_REPLY_PUBLISHED;
	reply->published.n = n;
	reply->published.n_pages = rpc->scratch.publish.n_published;
	reply->published.ends = rpc->scratch.publish.ends;
	return PAGED_OK;
}

enum paged_status
rpc_pin(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	struct paged_error *error)
{
	const struct core_pinner by = { member->session->id, member->uid, (uint32_t)member->pid };
	enum paged_status status = member_check_pool(member, request->pin.pool, error);

	if (status != PAGED_OK)
		return status;
	if (!member->admin && request->pin.seconds > rpc->config->max_pin_ms / 1000)
		return paged_fail(error, PAGED_ERR_LIMIT,
				  "a pin of %u seconds, and max-pin-time is %u seconds for those who are no "
				  "administrators",
				  request->pin.seconds, rpc->config->max_pin_ms / 1000);
	reply->kind = WIRE_REPLY_PINNED;
	return core_prefix_pin(rpc->core, &by, request->pin.pool, request->pin.page, request->pin.serial,
			       request->pin.seconds, &reply->pinned.n_pages, error);
}

enum paged_status
rpc_get_pins(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	     struct paged_error *error)
{
	uint64_t after = request->get_pins.after;
	uint32_t pool = request->get_pins.pool, n = 0;
	enum paged_status status = member_check_pool(member, pool, error);
	struct paged_pin_entry next;

	if (status != PAGED_OK)
		return status;
	while (n < WIRE_LIST_MAX && core_pin_next(rpc->core, pool, after, &rpc->scratch.pins[n]))
		after = rpc->scratch.pins[n++].number;
	reply->kind = WIRE_REPLY_PINS;
	reply->pins.n = n;
	reply->pins.report = rpc->scratch.pins;
	reply->pins.more = core_pin_next(rpc->core, pool, after, &next);
	return PAGED_OK;
}

enum paged_status
rpc_unpin(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	  struct paged_error *error)
{
	enum paged_status status = member_check_pool(member, request->unpin.pool, error);

	(void)reply;
	return status != PAGED_OK ? status : core_pin_end(rpc->core, request->unpin.pool, request->unpin.number, error);
}

enum paged_status
rpc_hold(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	 struct paged_error *error)
{
	enum paged_status status = member_check_pool(member, request->hold.pool, error);

	if (status == PAGED_OK)
		status = core_pages_hold(rpc->core, member->session->id, request->hold.pool, request->hold.n,
					 request->hold.pages, request->hold.serials, &rpc->scratch.ids[0], error);
	if (status != PAGED_OK)
		return status;
	reply->kind = WIRE_REPLY_IDS;
	reply->ids.n = 1;
	reply->ids.seq = rpc->scratch.ids;
	return PAGED_OK;
}

enum paged_status
rpc_evict(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	  struct paged_error *error)
{
	uint32_t pool = request->evict.pool, n_asked = request->evict.n_pages, n;
	enum paged_status status = member_check_pool(member, pool, error);
	const struct region_header *header;

	if (status != PAGED_OK)
		return status;
	header = core_pool_view(rpc->core, pool)->header;
	n = core_prefix_evict(rpc->core, pool, n_asked);
	reply->kind = WIRE_REPLY_EVICTED;
	reply->evicted.n_pages = n;
	reply->evicted.more =
		(n_asked == 0 || n < n_asked) && atomic_load_explicit(&header->n_cached, memory_order_relaxed) > 0;
	return PAGED_OK;
}

enum paged_status
rpc_get_prefixes(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
		 struct paged_error *error)
{
	uint32_t pool = request->get_prefixes.pool, page = request->get_prefixes.from_page;
	uint32_t end = page < UINT32_MAX - SCAN_PAGES ? page + SCAN_PAGES : UINT32_MAX, n = 0;
	enum paged_status status = member_check_pool(member, pool, error);
	const struct region_header *header;

	if (status != PAGED_OK)
		return status;
	header = core_pool_view(rpc->core, pool)->header;
	while (n < WIRE_LIST_MAX && core_node_next(rpc->core, pool, page, end, &rpc->scratch.nodes[n]))
		page = rpc->scratch.nodes[n++].page + 1;
	if (n < WIRE_LIST_MAX)
		page = end;
	reply->kind = WIRE_REPLY_PREFIXES;
	reply->prefixes.n = n;
	reply->prefixes.report = rpc->scratch.nodes;
	reply->prefixes.next_page = page;
	reply->prefixes.more = page < atomic_load_explicit(&header->high_page, memory_order_relaxed);
	return PAGED_OK;
}
