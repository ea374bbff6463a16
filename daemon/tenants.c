/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tenants.h"

#include <sys/param.h>

#include "core/array.h"
#include "daemon/pools.h"

/* Shares of all but pages. */
static void
tenant_set_shares(const struct config *config, struct core *core, uint32_t tenant, uint32_t percent,
		  uint32_t max_members)
{
	const struct core_tenant_limits limits = {
		.n_members = max_members,
		.n_sessions = config_percentage(config->max_sessions, percent),
		.n_tickets = config_percentage(PAGED_MAX_TICKETS, percent),
		/* A session may have its whole quota. */
		.array_bytes = MAX(config->array_bytes * CORE_ARRAY_QUOTAS / 100 * percent, config->array_bytes),
	};

	core_tenant_limit(core, tenant, &limits);
	for (size_t i = 0; i < config->n_pools; i++) {
		struct core_tenant_pool_limits in_pool = CORE_POOL_UNLIMITED;
		struct pool_memory memory;

		daemon_pool_memory(config, &config->pools[i], &memory);
		in_pool.n_sequences = config_percentage(config->pools[i].sequences, percent);
		/* A sequence of max-length must be possible. */
		in_pool.table_bytes = MAX(memory.tables * percent / 100, memory.tables_longest);
		in_pool.n_pins = config_percentage(CORE_MAX_PINS, percent);
		in_pool.n_pin_pages = config_percentage(
			config_share_pages(config->pools[i].pin_limit, config->pools[i].pages), percent);
		core_tenant_limit_pool(core, tenant, (uint32_t)i, &in_pool);
	}
}

/* The limits of pages; that of a pool is also the share of its cache, unless another is set. */
static enum paged_status
tenant_set_limits(const struct config_tenant *tenant, struct core *core, uint32_t number, struct paged_error *error)
{
	enum paged_status status = PAGED_OK;

	for (int pass = 0; pass < 2; pass++) {
		for (size_t k = 0; k < tenant->n_limits && status == PAGED_OK; k++) {
			const struct config_limit *limit = &tenant->limits[k];
			bool of_cache = limit->setting == CONFIG_TENANT_CACHE_SHARE;

			if (of_cache != (pass == 1))
				continue;
			if (!of_cache)
				core_tenant_limit_pages(core, number, limit->pool, limit->pages);
			status = core_tenant_share_cache(core, number, limit->pool, limit->pages, error);
		}
	}
	return status;
}

enum paged_status
daemon_tenants_add(const struct config *config, struct core *core, struct paged_error *error)
{
	uint32_t number;

	for (size_t i = 0; i < config->n_tenants; i++) {
		const struct config_tenant *tenant = &config->tenants[i];
		enum paged_status status = core_tenant_add(core, tenant->name, &number, error);

		if (status != PAGED_OK)
			return status;
		tenant_set_shares(config, core, number, tenant->share,
				  config_percentage(config->max_members, tenant->share));
		status = tenant_set_limits(tenant, core, number, error);
		if (status != PAGED_OK)
			return status;
	}
	return PAGED_OK;
}

enum paged_status
daemon_tenant_join(const struct config *config, struct core *core, const struct policy_peer *peer, uint32_t *tenant_p,
		   struct paged_error *error)
{
	enum paged_status status;
	bool created;

	*tenant_p = policy_tenant(config, peer);
	if (*tenant_p == 0 && !policy_owner(peer)) {
		status = core_tenant_of_user(core, peer->uid, tenant_p, &created, error);
		if (status != PAGED_OK)
			return status;
		if (created)
			tenant_set_shares(config, core, *tenant_p, config->user_share,
					  config->max_user_members != 0
						  ? CORE_NO_LIMIT
						  : config_percentage(config->max_members, config->user_share));
	}
	return core_tenant_join(core, *tenant_p, !policy_admin(config, peer), error);
}
