/* SPDX-License-Identifier: Apache-2.0 */
/* The command quota: the pages that tenants are charged, and their limits. */
#include "config.h"

#include "pagedctl/ctl.h"
#include "pagedctl/print.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum ctl_exit
ctl_quota(struct ctl *ctl)
{
	static const char *const columns[] = { "TENANT", "POOL", "CHARGED", "LIMIT", "USED" };
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
	}
	print_end(&list, NULL);
	paged_free(quotas);
	paged_free(pools);
	return CTL_OK;
}
