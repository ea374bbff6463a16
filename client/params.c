/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion of public structs from callers that are older or newer than this library. */
#include "config.h"

#include "client/params.h"

#include <assert.h>
#include <string.h>

#include "client/pagedclient.h"

/* Bindings of other languages and compiled programs rely on these sizes; a change needs a new major version. */
#define HAS_SIZE(type, size) static_assert(sizeof(void *) != 8 || sizeof(type) == (size), "the size of a " #type)
HAS_SIZE(struct paged_array, 96);
HAS_SIZE(struct paged_batch_row, 64);
HAS_SIZE(struct paged_mark, 256);
HAS_SIZE(struct paged_mod_point, 32);
HAS_SIZE(struct paged_plane_info, 64);
HAS_SIZE(struct paged_tensor, 64);

/* A larger struct_size means that the caller has not initialised the struct. */
#define STRUCT_SIZE_MAX 4096u

static enum paged_status
struct_size_get(const void *user, const char *name, size_t *size_p, struct paged_error *error)
{
	memcpy(size_p, user, sizeof(*size_p));
	if (*size_p < sizeof(*size_p) || *size_p > STRUCT_SIZE_MAX)
		return paged_fail(error, PAGED_ERR_INVALID, "%s: struct_size is %zu; set it to sizeof(the struct)",
				  name, *size_p);
	return PAGED_OK;
}

enum paged_status
client_params_in(void *ours, size_t our_size, const void *user, const char *name, struct paged_error *error)
{
	size_t size;

	memset(ours, 0, our_size);
	memcpy(ours, &our_size, sizeof(our_size));
	if (user == NULL)
		return PAGED_OK;
	if (struct_size_get(user, name, &size, error) != PAGED_OK)
		return error->status;
	if (size > our_size && !client_is_zero((const uint8_t *)user + our_size, size - our_size))
		return paged_fail(error, PAGED_ERR_UNSUPPORTED,
				  "%s: a field past byte %zu is set, which this library does not know", name, our_size);
	memcpy((uint8_t *)ours + sizeof(size), (const uint8_t *)user + sizeof(size),
	       (size < our_size ? size : our_size) - sizeof(size));
	return PAGED_OK;
}

enum paged_status
client_info_out(void *user, const void *ours, size_t our_size, const char *name, struct paged_error *error)
{
	size_t size;

	if (struct_size_get(user, name, &size, error) != PAGED_OK)
		return error->status;
	memset((uint8_t *)user + sizeof(size), 0, size - sizeof(size));
	memcpy((uint8_t *)user + sizeof(size), (const uint8_t *)ours + sizeof(size),
	       (size < our_size ? size : our_size) - sizeof(size));
	return PAGED_OK;
}
