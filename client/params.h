/* SPDX-License-Identifier: Apache-2.0 */
/**
 * params.h - public structs of callers that are older or newer than this library
 */
#ifndef PAGED_CLIENT_PARAMS_H
#define PAGED_CLIENT_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

/**
 * client_params_in - copy the caller's parameter struct, which may be of another version
 *
 * Both structs begin with struct_size.  Fields that the caller's struct lacks
 * become zero.  Fields that this library does not know must be zero: a request
 * of a newer program is refused, not ignored.
 *
 * @param[in] user  NULL: all zero
 */
enum paged_status client_params_in(void *ours, size_t our_size, const void *user, const char *name,
				   struct paged_error *error);

/** client_info_out - copy an info struct to the caller's, up to its struct_size; fields unknown here become zero */
enum paged_status client_info_out(void *user, const void *ours, size_t our_size, const char *name,
				  struct paged_error *error);

/** client_is_zero - are all bytes zero?  Inline, because a plan checks the reserved words of each row */
static inline bool
client_is_zero(const void *words, size_t size)
{
	const uint8_t *bytes = words;
	uint8_t any = 0;

	for (size_t i = 0; i < size; i++)
		any |= bytes[i];
	return any == 0;
}

#endif
