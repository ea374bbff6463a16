/* SPDX-License-Identifier: Apache-2.0 */
/* What pagedctl's commands share: error messages, exit statuses, names of pools. */
#include "config.h"

#include "pagedctl/ctl.h"

#include <stdarg.h>
#include <stdio.h>

enum ctl_exit
ctl_usage(const char *format, ...)
{
	va_list arguments;

	fprintf(stderr, "pagedctl: ");
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, " (see pagedctl --help)\n");
	return CTL_USAGE;
}

enum ctl_exit
ctl_fail(const struct ctl *ctl, enum paged_status status)
{
	fprintf(stderr, "pagedctl: %s\n", paged_client_error(ctl->client));
	return status == PAGED_ERR_NO_DAEMON || status == PAGED_ERR_GONE ? CTL_NO_DAEMON : CTL_FAILED;
}

const char *
ctl_pool_name(const struct paged_pool_entry *pools, size_t n_pools, uint32_t number)
{
	for (size_t i = 0; i < n_pools; i++)
		if (pools[i].number == number)
			return pools[i].name;
	return NULL;
}
