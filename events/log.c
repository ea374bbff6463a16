/* SPDX-License-Identifier: Apache-2.0 */
#include "events/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	enum events_log_level level;
} levels[] = {
	{ "error", EVENTS_LOG_ERROR },
	{ "warning", EVENTS_LOG_WARNING },
	{ "info", EVENTS_LOG_INFO },
	{ "debug", EVENTS_LOG_DEBUG },
};
#define N_LEVELS (sizeof(levels) / sizeof(levels[0]))

static enum events_log_level threshold = EVENTS_LOG_INFO;

bool
events_log_set_level(const char *name)
{
	for (size_t i = 0; i < N_LEVELS; i++)
		if (strcmp(levels[i].name, name) == 0) {
			threshold = levels[i].level;
			return true;
		}
	return false;
}

static const char *
events_log_level_name(enum events_log_level level)
{
	for (size_t i = 0; i < N_LEVELS; i++)
		if (levels[i].level == level)
			return levels[i].name;
	return "?";
}

void
events_log(enum events_log_level level, const char *part, const char *format, ...)
{
	int saved = errno; /* for %m, and for the caller */
	char line[1024];
	va_list arguments;

	if (level > threshold)
		return;
	va_start(arguments, format);
	errno = saved;
	vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	if (getenv("JOURNAL_STREAM") != NULL)
		fprintf(stderr, "<%d>%s: %s\n", (int)level, part, line);
	else
		fprintf(stderr, "paged-events: %s: %s: %s\n", events_log_level_name(level), part, line);
	errno = saved;
}
