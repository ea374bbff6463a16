/* SPDX-License-Identifier: Apache-2.0 */
/* What both owners share. */
#include "config.h"

#include "client/owner.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void
owner_log(const struct owner *owner, enum paged_log_level level, const char *format, ...)
{
	char text[512];
	va_list arguments;

	if (owner->log == NULL)
		return;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	owner->log(owner->log_argument, level, text);
}

void
owner_hex(char *text, const uint8_t *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

void
owner_check_result(struct paged_check_result *result, const struct region_books *books, const struct paged_error *error)
{
	*result = (struct paged_check_result){
		.n_pages = books->n_pages,
		.n_free = books->n_free,
		.n_referenced = books->n_referenced,
		.n_quarantined = books->n_quarantined,
		.n_sequences = books->n_sequences,
		.holds = error == NULL,
	};
	if (error != NULL)
		snprintf(result->text, sizeof(result->text), "%s", error->text);
}
