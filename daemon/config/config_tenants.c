/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/config/config_tenants.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "common/text.h"
#include "daemon/config/settings.h"

enum paged_status
config_tenant_fail(const struct config *config, const struct config_tenant *tenant, enum config_setting setting,
		   const struct config_limit *limit, struct paged_error *error, const char *format, ...)
{
	const struct config_source *source = limit != NULL ? &limit->source : &tenant->source[setting];
	char why[sizeof(error->text)];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(why, sizeof(why), format, arguments);
	va_end(arguments);
	return paged_fail(error, PAGED_ERR_INVALID, "%s:%u: tenant %s: %s%s%s = %s: %s", config->path, source->line,
			  tenant->name, settings_table[setting].name, limit != NULL ? " " : "",
			  limit != NULL ? limit->name : "", source->text, why);
}

struct config_limit *
config_tenant_add_limit(struct config_tenant *tenant, enum config_setting setting, const char *pool)
{
	struct config_limit *grown = reallocarray(tenant->limits, tenant->n_limits + 1, sizeof(*grown)), *limit;

	if (grown == NULL)
		return NULL;
	tenant->limits = grown;
	limit = &grown[tenant->n_limits++];
	*limit = (struct config_limit){ .setting = setting };
	snprintf(limit->name, sizeof(limit->name), "%s", pool);
	return limit;
}

/* Refuses an unknown pool, and suggests the nearest one. */
static enum paged_status
limit_find_pool(const struct config *config, const struct config_tenant *tenant, struct config_limit *limit,
		struct paged_error *error)
{
	uint32_t least = UINT32_MAX;
	size_t length = strlen(limit->name);
	const char *nearest = "";

	for (limit->pool = 0; limit->pool < config->n_pools; limit->pool++) {
		const char *name = config->pools[limit->pool].name;
		uint32_t distance = text_edit_distance(limit->name, length, name, strlen(name));

		if (distance == 0)
			return PAGED_OK;
		if (distance < least) {
			nearest = name;
			least = distance;
		}
	}
	if (least > MAX(length / 3, 1))
		return config_tenant_fail(config, tenant, limit->setting, limit, error, "there is no pool %s",
					  limit->name);
	return config_tenant_fail(config, tenant, limit->setting, limit, error, "there is no pool %s; did you mean %s?",
				  limit->name, nearest);
}

static enum paged_status
limit_compute(const struct config *config, const struct config_tenant *tenant, struct config_limit *limit,
	      struct paged_error *error)
{
	const struct config_pool *pool = &config->pools[limit->pool];
	uint64_t n_pages = limit->size != 0 ? limit->size / pool->layout.page_bytes
					    : config_share_pages(limit->share, pool->pages);
	char page[32];

	config_format_bytes(pool->layout.page_bytes, page, sizeof(page));
	if (limit->size != 0 && n_pages == 0)
		return config_tenant_fail(config, tenant, limit->setting, limit, error,
					  "less than a page, which has %s; write 0 for no pages", page);
	if (n_pages > pool->pages && limit->size != 0)
		return config_tenant_fail(config, tenant, limit->setting, limit, error,
					  "%" PRIu64 " pages of %s, and the pool has %u", n_pages, page, pool->pages);
	if (n_pages > pool->pages)
		return config_tenant_fail(config, tenant, limit->setting, limit, error, "the pool has %u pages",
					  pool->pages);
	limit->pages = (uint32_t)n_pages;
	return PAGED_OK;
}

static bool
ids_have(const struct config_ids *ids, uint32_t id)
{
	for (size_t i = 0; i < ids->n; i++)
		if (ids->id[i] == id)
			return true;
	return false;
}

/* A user or group of two tenants is a mistake: the second would never apply. */
static enum paged_status
tenant_check_ids(const struct config *config, const struct config_tenant *tenant, enum config_setting setting,
		 struct paged_error *error)
{
	bool users = setting == CONFIG_TENANT_ALLOW_USER;
	const struct config_ids *ids = users ? &tenant->allow_users : &tenant->allow_groups;

	for (const struct config_tenant *other = config->tenants; other < tenant; other++)
		for (size_t i = 0; i < ids->n; i++)
			if (ids_have(users ? &other->allow_users : &other->allow_groups, ids->id[i]))
				return config_tenant_fail(config, tenant, setting, NULL, error,
							  "%s %u is tenant %s's already, in line %u",
							  users ? "uid" : "gid", ids->id[i], other->name,
							  other->source[setting].line);
	return PAGED_OK;
}

/*
 * The default: the largest part of a pool that the tenant is limited to, rounded up, but no more than user-share: a
 * limit of all pages must not let the tenant take all of everything else, too.
 */
static uint32_t
tenant_default_share(const struct config *config, const struct config_tenant *tenant)
{
	uint32_t share = 0;
	bool limited = false;

	for (size_t i = 0; i < tenant->n_limits; i++) {
		uint64_t n_pages = config->pools[tenant->limits[i].pool].pages;

		if (tenant->limits[i].setting != CONFIG_TENANT_LIMIT)
			continue;
		limited = true;
		share = MAX(share, (uint32_t)((tenant->limits[i].pages * UINT64_C(100) + n_pages - 1) / n_pages));
	}
	return limited ? MIN(share, config->user_share) : config->user_share;
}

enum paged_status
config_tenants_check(struct config *config, struct paged_error *error)
{
	enum paged_status status = PAGED_OK;

	for (size_t i = 0; i < config->n_tenants && status == PAGED_OK; i++) {
		struct config_tenant *tenant = &config->tenants[i];

		status = tenant_check_ids(config, tenant, CONFIG_TENANT_ALLOW_USER, error);
		if (status == PAGED_OK)
			status = tenant_check_ids(config, tenant, CONFIG_TENANT_ALLOW_GROUP, error);
		for (size_t k = 0; k < tenant->n_limits && status == PAGED_OK; k++) {
			status = limit_find_pool(config, tenant, &tenant->limits[k], error);
			if (status == PAGED_OK)
				status = limit_compute(config, tenant, &tenant->limits[k], error);
		}
		if (status == PAGED_OK && tenant->share == 0)
			tenant->share = tenant_default_share(config, tenant);
	}
	return status;
}

void
config_tenant_free(struct config_tenant *tenant)
{
	free(tenant->allow_users.id);
	free(tenant->allow_groups.id);
	for (size_t i = 0; i < tenant->n_limits; i++)
		free(tenant->limits[i].source.text);
	free(tenant->limits);
	for (int i = 0; i < CONFIG_N_SETTINGS; i++)
		free(tenant->source[i].text);
}
