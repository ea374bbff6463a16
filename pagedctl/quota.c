/* SPDX-License-Identifier: Apache-2.0 */
/* The command quota: what tenants have of each pool and of all, and their limits. */
#include "config.h"

#include "pagedctl/ctl.h"
#include "pagedctl/print.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* 0: no limit. */
static void
print_limit(struct print_list *list, uint32_t limit)
{
	if (limit != 0)
		print_number(list, limit);
	else
		print_text(list, NULL);
}

enum ctl_exit
ctl_quota(struct ctl *ctl)
{
	static const char *const columns[] = { "TENANT",   "POOL",         "CHARGED",   "LIMIT",
					       "USED",     "QUARANTINED",  "SEQUENCES", "MAX SEQUENCES",
					       "PINS",     "MAX PINS",     "PIN PAGES", "MAX PIN PAGES",
					       "SESSIONS", "MAX SESSIONS", "MEMBERS",   "MAX MEMBERS",
					       "TICKETS",  "MAX TICKETS",  "CACHED",    "CACHE SHARE",
					       "TABLES",   "TABLE LIMIT" };
	struct paged_quota_entry *quotas = NULL;
	struct paged_pool_entry *pools = NULL;
	size_t n_quotas = 0, n_pools = 0;
	struct print_list list;
	enum paged_status status;

	status = paged_admin_pools(ctl->client, sizeof(*pools), &pools, &n_pools);
	if (status == PAGED_OK)
		status = paged_admin_quotas(ctl->client, sizeof(*quotas), &quotas, &n_quotas);
	if (status != PAGED_OK) {
		paged_free(pools);
		return ctl_fail(ctl, status);
	}
	print_begin(&list, "quotas", columns, COUNT(columns), ctl->json);
	for (size_t i = 0; i < n_quotas; i++) {
		print_text(&list, quotas[i].tenant);
		print_text(&list, ctl_pool_name(pools, n_pools, quotas[i].pool));
		print_number(&list, quotas[i].n_charged);
		if (quotas[i].limited)
			print_number(&list, quotas[i].limit);
		else
			print_text(&list, NULL);
		print_ratio(&list, quotas[i].n_charged, quotas[i].limit);
		print_number(&list, quotas[i].n_quarantined);
		print_number(&list, quotas[i].n_sequences);
		print_limit(&list, quotas[i].max_sequences);
		print_number(&list, quotas[i].n_pins);
		print_limit(&list, quotas[i].max_pins);
		print_number(&list, quotas[i].n_pin_pages);
		print_limit(&list, quotas[i].max_pin_pages);
		print_number(&list, quotas[i].n_sessions);
		print_limit(&list, quotas[i].max_sessions);
		print_number(&list, quotas[i].n_members);
		print_limit(&list, quotas[i].max_members);
		print_number(&list, quotas[i].n_tickets);
		print_limit(&list, quotas[i].max_tickets);
		print_number(&list, quotas[i].n_cached);
		print_limit(&list, quotas[i].cache_share);
		print_size(&list, quotas[i].table_used);
		if (quotas[i].table_limit != 0)
			print_size(&list, quotas[i].table_limit);
		else
			print_text(&list, NULL);
	}
	print_end(&list, NULL);
	paged_free(quotas);
	paged_free(pools);
	return CTL_OK;
}
