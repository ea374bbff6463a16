/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static uint32_t threshold = LOG_LEVEL_INFO;

static const char *
level_name(enum log_level level)
{
	switch (level) {
	case LOG_LEVEL_ERROR:
		return "error";
	case LOG_LEVEL_WARNING:
		return "warning";
	case LOG_LEVEL_INFO:
		return "info";
	case LOG_LEVEL_DEBUG:
		return "debug";
	}
	return "?";
}

void
log_set_level(uint32_t level)
{
	threshold = level;
}

void
log_write(enum log_level level, const char *token, const char *format, ...)
{
	static int journal = -1;
	int saved = errno; /* for %m, and for the caller */
	char line[1024];
	va_list arguments;

	if ((uint32_t)level > threshold)
		return;
	if (journal < 0)
		journal = getenv("JOURNAL_STREAM") != NULL;
	va_start(arguments, format);
	errno = saved;
	vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	if (journal)
		fprintf(stderr, "<%d>%s: %s\n", (int)level, token, line);
	else
		fprintf(stderr, "pagedd: %s: %s: %s\n", level_name(level), token, line);
	errno = saved;
}

bool
log_limit_pass(struct log_limit *limit, const char *token, uint64_t now_ms)
{
	if (limit->n_passed == 0 || now_ms - limit->window_ms >= LOG_WINDOW_MS) {
		if (limit->n_dropped != 0)
			log_warning(token, "%u similar lines were omitted", limit->n_dropped);
		*limit = (struct log_limit){ .burst = limit->burst, .window_ms = now_ms };
	}
	if (limit->n_passed == (limit->burst != 0 ? limit->burst : LOG_BURST)) {
		limit->n_dropped++;
		return false;
	}
	limit->n_passed++;
	return true;
}
