/* SPDX-License-Identifier: Apache-2.0 */
/**
 * tenants.h - the tenants of the core: those of pagedd.conf(5), and one of each user that none of them includes
 *
 * The daemon's own user and root are of no tenant unless one of the configuration includes them.
 */
#ifndef PAGED_DAEMON_TENANTS_H
#define PAGED_DAEMON_TENANTS_H

#include "core/core.h"
#include "daemon/config/config.h"
#include "daemon/policy.h"

/** daemon_tenants_add - add the tenants of the configuration, after its pools; their numbers are policy_tenant()'s */
enum paged_status daemon_tenants_add(const struct config *config, struct core *core, struct paged_error *error);

/**
 * daemon_tenant_join - count a process that attaches as a member of its tenant, until core_tenant_leave()
 *
 * @param[out] tenant_p  0: none
 * @retval PAGED_ERR_LIMIT  the tenant has as many members as it may have; administrators are not refused
 * @retval PAGED_ERR_NOMEM
 */
enum paged_status daemon_tenant_join(const struct config *config, struct core *core, const struct policy_peer *peer,
				     uint32_t *tenant_p, struct paged_error *error);

#endif
