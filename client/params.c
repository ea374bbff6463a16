/* SPDX-License-Identifier: Apache-2.0 */
/* Public structs that may be older or newer than this library. */
#include "config.h"

#include "client/internal.h"

#include <string.h>

/* Zero up to there, as far as bytes go that this library has no name for. */
static bool
is_zero(const uint8_t *from, const uint8_t *to)
{
	while (from < to && *from == 0)
		from++;
	return from >= to;
}

/* A struct_size that no struct of this library will have is a struct that was never filled in. */
#define STRUCT_SIZE_MAX 4096u

static enum paged_status
struct_size_check(size_t size, const char *name, struct paged_error *error)
{
	if (size < sizeof(size_t) || size > STRUCT_SIZE_MAX)
		return paged_fail(error, PAGED_ERR_INVALID, "%s: struct_size is %zu; set it to sizeof(the struct)",
				  name, size);
	return PAGED_OK;
}

enum paged_status
client_params_in(void *ours, size_t our_size, const void *user, const char *name, struct paged_error *error)
{
	enum paged_status status;
	size_t size;

	memset(ours, 0, our_size);
	memcpy(ours, &our_size, sizeof(our_size));
	if (user == NULL)
		return PAGED_OK;
	memcpy(&size, user, sizeof(size));
	status = struct_size_check(size, name, error);
	if (status != PAGED_OK)
		return status;
	if (size > our_size && !is_zero((const uint8_t *)user + our_size, (const uint8_t *)user + size))
		return paged_fail(error, PAGED_ERR_UNSUPPORTED,
				  "%s: a field past byte %zu is set, which this library does not know", name, our_size);
	memcpy((uint8_t *)ours + sizeof(size), (const uint8_t *)user + sizeof(size),
	       (size < our_size ? size : our_size) - sizeof(size));
	return PAGED_OK;
}

enum paged_status
client_info_out(void *user, const void *ours, size_t our_size, const char *name, struct paged_error *error)
{
	enum paged_status status;
	size_t size;

	memcpy(&size, user, sizeof(size));
	status = struct_size_check(size, name, error);
	if (status != PAGED_OK)
		return status;
	memset((uint8_t *)user + sizeof(size), 0, size - sizeof(size));
	memcpy((uint8_t *)user + sizeof(size), (const uint8_t *)ours + sizeof(size),
	       (size < our_size ? size : our_size) - sizeof(size));
	return PAGED_OK;
}
