/* SPDX-License-Identifier: Apache-2.0 */
/**
 * array.h - PAGED_I64 arrays as the mods read them: 32 bits an element, dense
 */
#ifndef PAGED_CLIENT_ARRAY_H
#define PAGED_CLIENT_ARRAY_H

#include "client/internal.h"

/** The elements of one array, in a list of those that are freed together. */
struct array_values {
	struct array_values *next;
	int32_t at[];
};

/**
 * array_narrow - copy an array of PAGED_I64, in row-major order
 *
 * @param[in,out] values  list that the copy becomes the head of
 * @retval PAGED_ERR_INVALID, PAGED_ERR_LIMIT  as for any array that is uploaded
 * @retval PAGED_ERR_RANGE  a value outside 32 bits; the sentence has its indexes
 */
enum paged_status array_narrow(const struct paged_array *array, struct array_values **values,
			       struct paged_error *error);

/** array_narrow_value - the value of a parameter of PAGED_I64; PAGED_ERR_RANGE outside 32 bits */
enum paged_status array_narrow_value(const struct paged_array *parameter, int32_t *value_p, struct paged_error *error);

/** array_values_free - of the whole list; takes NULL */
void array_values_free(struct array_values *values);

#endif
