/* SPDX-License-Identifier: Apache-2.0 */
/* The commands on published pages: prefixes, evict, pin. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "pagedctl/ctl.h"
#include "pagedctl/print.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* A decimal number of at most `max`; false: a message was printed. */
static bool
operand_parse(const char *name, const char *text, uint64_t max, uint64_t *number_p)
{
	char *end;

	errno = 0;
	*number_p = strtoull(text, &end, 10);
	if (errno == 0 && end != text && *end == '\0' && text[0] != '-' && *number_p <= max)
		return true;
	ctl_usage("%s %s is no number from 0 to %" PRIu64, name, text, max);
	return false;
}

/* With --tokens: the token ids of a node; no value if it was evicted meanwhile or published under a key. */
static enum paged_status
node_print_tokens(struct print_list *list, struct paged_pool *pool, const struct paged_node_entry *node)
{
	uint32_t tokens[PAGED_MAX_PAGE_SIZE];
	struct paged_pool_info info = { .struct_size = sizeof(info) };
	enum paged_status status = paged_pool_get_info(pool, &info);

	if (status == PAGED_OK)
		status = paged_prefix_tokens(pool, node->page, node->serial, tokens, COUNT(tokens));
	if (status == PAGED_OK)
		print_numbers(list, tokens, info.page_size);
	else if (status == PAGED_ERR_STALE || status == PAGED_ERR_NOENT)
		print_text(list, NULL);
	else
		return status;
	return PAGED_OK;
}

static enum paged_status
nodes_print(struct print_list *list, const struct paged_node_entry *nodes, size_t n, struct paged_pool *tokens_of)
{
	for (size_t i = 0; i < n; i++) {
		enum paged_status status = PAGED_OK;

		print_number(list, nodes[i].page);
		print_number(list, nodes[i].serial);
		if (nodes[i].parent_serial != 0)
			print_number(list, nodes[i].parent);
		else
			print_text(list, NULL);
		print_number(list, nodes[i].n_references);
		print_number(list, nodes[i].hits);
		print_number(list, nodes[i].used_s);
		print_text(list, nodes[i].pinned ? "yes" : NULL);
		if (tokens_of != NULL)
			status = node_print_tokens(list, tokens_of, &nodes[i]);
		if (status != PAGED_OK)
			return status;
	}
	return PAGED_OK;
}

/* For people; "pool llama: 120 published pages, 100 cached, 3 pinned" */
static void
nodes_print_totals(const char *pool, const struct paged_node_entry *nodes, size_t n)
{
	size_t n_cached = 0, n_pinned = 0;

	for (size_t i = 0; i < n; i++) {
		n_cached += nodes[i].n_references == 0;
		n_pinned += nodes[i].pinned;
	}
	printf("pool %s: %zu %s, %zu cached, %zu pinned\n", pool, n,
	       print_plural(n, "published page", "published pages"), n_cached, n_pinned);
}

enum ctl_exit
ctl_prefixes(struct ctl *ctl)
{
	static const char *const columns[] = { "PAGE", "SERIAL", "PARENT", "REFERENCES",
					       "HITS", "USED S", "PINNED", "TOKENS" };
	const char *name = ctl->operands[0];
	struct paged_node_entry *nodes = NULL;
	struct paged_pool *pool = NULL;
	struct print_list list;
	enum paged_status status;
	size_t n = 0;

	status = paged_admin_prefixes(ctl->client, name, sizeof(*nodes), &nodes, &n);
	if (status == PAGED_OK && ctl->tokens)
		status = paged_pool_open(ctl->client, name, &pool);
	if (status != PAGED_OK) {
		paged_free(nodes);
		return ctl_fail(ctl, status);
	}
	print_begin(&list, "prefixes", columns, ctl->tokens ? COUNT(columns) : COUNT(columns) - 1, ctl->json);
	status = nodes_print(&list, nodes, n, pool);
	paged_pool_close(pool);
	if (status != PAGED_OK) {
		print_discard(&list);
		paged_free(nodes);
		return ctl_fail(ctl, status);
	}
	if (!ctl->json)
		nodes_print_totals(name, nodes, n);
	print_end(&list, ctl->json ? json_pack("{s:s}", "pool", name) : NULL);
	paged_free(nodes);
	return CTL_OK;
}

enum ctl_exit
ctl_evict(struct ctl *ctl)
{
	const char *name = ctl->operands[0];
	uint64_t n_pages = 0;
	enum paged_status status;
	uint32_t n_evicted;

	if (ctl->operands[1] != NULL && !operand_parse("PAGES", ctl->operands[1], UINT32_MAX, &n_pages))
		return CTL_USAGE;
	/* The call takes 0 for all. */
	if (ctl->operands[1] != NULL && n_pages == 0)
		return ctl_usage("PAGES is 0; without PAGES, all cached pages are evicted");
	status = paged_admin_evict(ctl->client, name, (uint32_t)n_pages, &n_evicted);
	if (status != PAGED_OK)
		return ctl_fail(ctl, status);
	if (ctl->json)
		print_json(json_pack("{s:s, s:I}", "pool", name, "evicted", (json_int_t)n_evicted));
	else
		printf("pool %s: %" PRIu32 " cached %s evicted\n", name, n_evicted,
		       print_plural(n_evicted, "page was", "pages were"));
	return CTL_OK;
}

enum ctl_exit
ctl_pin(struct ctl *ctl)
{
	const char *const *operands = ctl->operands;
	uint64_t page, serial, seconds;
	enum paged_status status;
	uint32_t n_pages;

	if (!operand_parse("PAGE", operands[1], UINT32_MAX, &page) ||
	    !operand_parse("SERIAL", operands[2], UINT64_MAX, &serial) ||
	    !operand_parse("SECONDS", operands[3], UINT32_MAX, &seconds))
		return CTL_USAGE;
	status = paged_admin_pin(ctl->client, operands[0], (uint32_t)page, serial, (uint32_t)seconds, &n_pages);
	if (status != PAGED_OK)
		return ctl_fail(ctl, status);
	if (ctl->json)
		print_json(json_pack("{s:s, s:I, s:I}", "pool", operands[0], "pages", (json_int_t)n_pages, "seconds",
				     (json_int_t)seconds));
	else if (seconds == 0)
		printf("pool %s: the pin of %" PRIu32 " %s has ended\n", operands[0], n_pages,
		       print_plural(n_pages, "page", "pages"));
	else
		printf("pool %s: %" PRIu32 " %s for %" PRIu64 " s\n", operands[0], n_pages,
		       print_plural(n_pages, "page is pinned", "pages are pinned"), seconds);
	return CTL_OK;
}
