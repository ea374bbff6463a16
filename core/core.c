/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/array.h"
#include "core/request.h"
#include "core/session.h"
#include "core/tenant.h"
#include "core/ticket.h"

enum paged_status
core_create(const uint8_t boot_id[REGION_BOOT_ID_SIZE], struct core **core_p, struct paged_error *error)
{
	struct core *core = calloc(1, sizeof(*core));

	if (core == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for the core");
	memcpy(core->boot_id, boot_id, REGION_BOOT_ID_SIZE);
	core_array_set_quota(core, CORE_ARRAY_BYTES_DEFAULT);
	core->step = CORE_NO_STEP;
	*core_p = core;
	return PAGED_OK;
}

void
core_destroy(struct core *core)
{
	if (core == NULL)
		return;
	operations_free(core);
	for (uint32_t i = 0; i < core->sessions.n; i++)
		core_session_free(core->sessions.entries[i].session);
	free(core->sessions.entries);
	free(core->members.entries);
	tenants_free(core);
	for (uint32_t i = 0; i < core->n_pools; i++)
		core_pool_destroy(core->pools[i]);
	tickets_free(core);
	free(core->pools);
	free(core);
}

void
core_set_now(struct core *core, uint64_t now_ms)
{
	if (now_ms > core->now_ms)
		core->now_ms = now_ms;
}

static bool
pool_by_name(const struct core *core, const char *name, uint32_t *pool_p)
{
	for (uint32_t i = 0; i < core->n_pools; i++) {
		if (strcmp(core->pools[i]->name, name) == 0) {
			*pool_p = i;
			return true;
		}
	}
	return false;
}

enum paged_status
core_pool_add(struct core *core, const struct core_pool_params *params, void *region, uint32_t *pool_p,
	      struct paged_error *error)
{
	enum paged_status status;
	struct core_pool **pools;
	uint32_t other;

	if (pool_by_name(core, params->name, &other))
		return paged_fail(error, PAGED_ERR_INVALID, "pool %s: the name is already in use", params->name);
	if (core->n_pools == PAGED_MAX_POOLS)
		return paged_fail(error, PAGED_ERR_LIMIT, "pool %s: at most %u pools", params->name, PAGED_MAX_POOLS);
	pools = reallocarray(core->pools, core->n_pools + 1, sizeof(struct core_pool *));
	if (pools == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "pool %s: no memory", params->name);
	core->pools = pools;
	status = core_pool_create(params, core->n_pools, region, core->boot_id, &pools[core->n_pools], error);
	if (status != PAGED_OK)
		return status;
	pools[core->n_pools]->tenants = &core->tenants;
	pools[core->n_pools]->step = core->step;
	*pool_p = core->n_pools++;
	return PAGED_OK;
}

uint32_t
core_n_pools(const struct core *core)
{
	return core->n_pools;
}

enum paged_status
core_pool_find(const struct core *core, const char *name, uint32_t *pool_p, struct paged_error *error)
{
	char names[sizeof(error->text)] = "";
	size_t length = 0;

	if (pool_by_name(core, name, pool_p))
		return PAGED_OK;
	for (uint32_t i = 0; i < core->n_pools && length < sizeof(names); i++)
		length += (size_t)snprintf(names + length, sizeof(names) - length, "%s%s", i == 0 ? "" : ", ",
					   core->pools[i]->name);
	return paged_fail(error, PAGED_ERR_NOENT, "there is no pool %.*s; there are: %s", (int)PAGED_MAX_NAME, name,
			  core->n_pools == 0 ? "none" : names);
}

const struct region_view *
core_pool_view(const struct core *core, uint32_t pool)
{
	return &core->pools[pool]->view;
}
