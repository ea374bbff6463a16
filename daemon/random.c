/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/random.h"

#include <sys/random.h>
#include <sys/types.h>

enum paged_status
daemon_random(void *bytes, size_t size, struct paged_error *error)
{
	if (getrandom(bytes, size, 0) != (ssize_t)size) /* up to 256 bytes are never cut short */
		return paged_fail(error, PAGED_ERR_SYSTEM, "getrandom: %m");
	return PAGED_OK;
}
