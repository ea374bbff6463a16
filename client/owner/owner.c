/* SPDX-License-Identifier: Apache-2.0 */
/* Code shared by the remote and the embedded owner. */
#include "config.h"

#include "client/owner/owner.h"

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

/* A sequence's version moves when it is truncated, so such a refusal is part of normal work. */
void
owner_log_refused_publish(const struct owner *owner, enum paged_status status, const struct paged_error *error)
{
	/* Only the chance to share is lost, and a program that publishes in each step would repeat a warning. */
	if (status != PAGED_OK)
		owner_log(owner, PAGED_LOG_DEBUG, "publish refused: %s: %s", paged_status_text(status), error->text);
}

enum paged_status
owner_fail_gone(const struct owner *owner, struct paged_error *error)
{
	if (owner_state(owner) == OWNER_ENDED)
		return paged_fail(error, PAGED_ERR_GONE, "session %u was ended by the daemon", owner->session);
	return paged_fail(error, PAGED_ERR_GONE, "the daemon has ended, and session %u with it", owner->session);
}
