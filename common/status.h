/* SPDX-License-Identifier: Apache-2.0 */
/**
 * status.h - statuses with a sentence
 *
 * A function that can fail takes a struct paged_error (never NULL), and
 * whoever first knows which error it is writes the sentence there; callers
 * pass the status on silently.  On PAGED_OK the struct is left alone.
 */
#ifndef PAGED_STATUS_H
#define PAGED_STATUS_H

#include <stdarg.h>
#include <stdbool.h>

#include "common/paged_types.h"

struct paged_error {
	enum paged_status status;
	char text[256];
};

/** paged_status_text - a short phrase for a status, for lack of a sentence */
const char *paged_status_text(enum paged_status status);

/** paged_fail - record status and sentence (cut at the buffer's end), return the status */
enum paged_status paged_fail(struct paged_error *error, enum paged_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

enum paged_status paged_vfail(struct paged_error *error, enum paged_status status, const char *format,
			      va_list arguments) __attribute__((format(printf, 3, 0)));

/* Types of planes and tensors; i32, u8 and i64 are mods' alone (kernels/mod/mod.h). */

/** paged_dtype_size - bytes of one element; 0 for what is no such type */
uint32_t paged_dtype_size(enum paged_dtype dtype);

/** paged_dtype_is_tensor - callers' tensors may have it: f32, f16, bf16 */
bool paged_dtype_is_tensor(enum paged_dtype dtype);

/** paged_dtype_name - "f32", "f16", "bf16", "e4m3", "e5m2", "i8", or "?" */
const char *paged_dtype_name(enum paged_dtype dtype);

/** paged_dtype_parse - PAGED_DTYPE_NONE for what is no name of a dtype */
enum paged_dtype paged_dtype_parse(const char *name);

#endif
