/* SPDX-License-Identifier: Apache-2.0 */
/**
 * status.h - statuses with an error text
 *
 * A function that can fail takes a struct paged_error (never NULL).  The
 * function that detects the error writes its text there; callers only pass
 * the status on.  On PAGED_OK the struct is not written.
 */
#ifndef PAGED_STATUS_H
#define PAGED_STATUS_H

#include <stdarg.h>
#include <stdbool.h>

#include "common/paged_types.h"

struct paged_error {
	enum paged_status status;
	char text[256];
	struct paged_shortage shortage; /* all zero: the request did not lack pages or slots of a pool */
};

/** paged_error_has_shortage - error->shortage says how many pages or slots were missing */
static inline bool
paged_error_has_shortage(const struct paged_error *error)
{
	return error->shortage.pages_missing > 0 || error->shortage.slots_missing > 0;
}

/** paged_status_text - a short phrase for a status, used where there is no error text */
const char *paged_status_text(enum paged_status status);

/** paged_fail - store the status and the formatted text (cut at the buffer's end), return the status */
enum paged_status paged_fail(struct paged_error *error, enum paged_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

enum paged_status paged_vfail(struct paged_error *error, enum paged_status status, const char *format,
			      va_list arguments) __attribute__((format(printf, 3, 0)));

/* These functions know the types of planes and tensors; only mods use i32, u8 and i64 (kernels/mod/mod.h). */

/** paged_dtype_size - bytes of one element; 0 for any other type */
uint32_t paged_dtype_size(enum paged_dtype dtype);

/** paged_dtype_is_tensor - true for the types of callers' tensors: f32, f16, bf16 */
bool paged_dtype_is_tensor(enum paged_dtype dtype);

/** paged_dtype_parse - the inverse of paged_dtype_name(); PAGED_DTYPE_NONE for any other text */
enum paged_dtype paged_dtype_parse(const char *name);

#endif
