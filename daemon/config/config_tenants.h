/* SPDX-License-Identifier: Apache-2.0 */
/**
 * config_tenants.h - the tenants of pagedd.conf(5)
 */
#ifndef PAGED_DAEMON_CONFIG_CONFIG_TENANTS_H
#define PAGED_DAEMON_CONFIG_CONFIG_TENANTS_H

#include <stdarg.h>

#include "daemon/config/config.h"

/**
 * config_tenant_fail - report a tenant's setting as invalid, as config_fail() does
 *
 * @param[in] limit  the limit at fault; NULL: the setting is another
 */
enum paged_status config_tenant_fail(const struct config *config, const struct config_tenant *tenant,
				     enum config_setting setting, const struct config_limit *limit,
				     struct paged_error *error, const char *format, ...)
	__attribute__((format(printf, 6, 7)));

/** config_tenant_add_limit - append an empty limit for the pool of this name; NULL: no memory */
struct config_limit *config_tenant_add_limit(struct config_tenant *tenant, enum config_setting setting,
					     const char *pool);

/** config_tenants_check - check the tenants against each other and the pools, and compute their limits */
enum paged_status config_tenants_check(struct config *config, struct paged_error *error);

void config_tenant_free(struct config_tenant *tenant);

#endif
