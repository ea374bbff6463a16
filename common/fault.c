/* SPDX-License-Identifier: Apache-2.0 */
#include "common/fault.h"

#ifdef PAGED_FAULTS
#include <signal.h>
#include <stdlib.h>
#include <string.h>

bool
paged_fault(const char *point)
{
	static unsigned long hits;
	const char *wanted = getenv("PAGED_FAULT");
	size_t length = strlen(point);
	unsigned long n = 1;

	if (wanted == NULL || strncmp(wanted, point, length) != 0 || (wanted[length] != '\0' && wanted[length] != ':'))
		return false;
	if (wanted[length] == ':')
		n = strtoul(wanted + length + 1, NULL, 10);
	if (++hits != n)
		return false;
	if (strcmp(point, "page-table-update") == 0)
		raise(SIGKILL);
	return true;
}
#endif
