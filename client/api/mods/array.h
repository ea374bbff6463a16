/* SPDX-License-Identifier: Apache-2.0 */
/**
 * array.h - convert PAGED_I64 arrays to the dense 32-bit elements that mods read
 */
#ifndef PAGED_CLIENT_ARRAY_H
#define PAGED_CLIENT_ARRAY_H

#include "client/pagedclient.h"
#include "common/status.h"

/** The elements of one converted array; a node of a list that is freed as a whole. */
struct array_values {
	struct array_values *next;
	int32_t at[];
};

/**
 * array_narrow - copy a PAGED_I64 array to 32-bit elements in row-major order
 *
 * @param[in,out] values  list; the copy is added at its head
 * @retval PAGED_ERR_INVALID, PAGED_ERR_LIMIT  as for any array that is uploaded
 * @retval PAGED_ERR_RANGE  a value does not fit in 32 bits; the error text has its indexes
 */
enum paged_status array_narrow(const struct paged_array *array, struct array_values **values,
			       struct paged_error *error);

/** array_narrow_value - read a PAGED_I64 parameter; PAGED_ERR_RANGE if it does not fit in 32 bits */
enum paged_status array_narrow_value(const struct paged_array *parameter, int32_t *value_p, struct paged_error *error);

/** array_values_free - free the whole list; takes NULL */
void array_values_free(struct array_values *values);

#endif
