/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/log/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/text.h"
#include "daemon/log/log_queue.h"

static uint32_t threshold = LOG_LEVEL_INFO;
static enum { LOG_DIRECT, LOG_QUEUED, LOG_ABANDONED } state; /* ABANDONED: log_stop() waited in vain */

void
log_set_level(uint32_t level)
{
	threshold = level;
}

uint32_t
log_get_level(void)
{
	return threshold;
}

const char *
log_level_name(uint32_t level)
{
	switch ((enum log_level)level) {
	case LOG_LEVEL_ERROR:
		return "error";
	case LOG_LEVEL_WARNING:
		return "warning";
	case LOG_LEVEL_INFO:
		return "info";
	case LOG_LEVEL_DEBUG:
		return "debug";
	}
	return NULL;
}

enum paged_status
log_start(struct paged_error *error)
{
	enum paged_status status = log_queue_start(error);

	if (status == PAGED_OK)
		state = LOG_QUEUED;
	return status;
}

void
log_stop(void)
{
	if (state == LOG_QUEUED)
		state = log_queue_stop(LOG_WAIT_MS) ? LOG_DIRECT : LOG_ABANDONED;
}

void
log_write(enum log_level level, const char *token, struct log_ids ids, const char *format, ...)
{
	int saved = errno; /* for %m, and for the caller */
	struct log_line line;
	va_list arguments;
	int n;

	if ((uint32_t)level > threshold || state == LOG_ABANDONED)
		return;
	line.level = level;
	line.token = token;
	line.n_lost = 0;
	line.session = ids.session;
	line.member = ids.member;
	line.pid = ids.pid;
	snprintf(line.pool, sizeof(line.pool), "%s", ids.pool != NULL ? ids.pool : "");
	errno = saved;
	va_start(arguments, format);
	n = vsnprintf(line.text, sizeof(line.text), format, arguments);
	va_end(arguments);
	if (n < 0)
		line.text[0] = '\0';
	text_clean_utf8(line.text); /* it may quote a peer's bytes, or be cut within a character */
	line.n = strlen(line.text);
	if (state == LOG_QUEUED)
		log_queue_put(&line);
	else
		log_output_write(&line, LOG_WAIT_MS);
	errno = saved;
}

bool
log_limit_pass(struct log_limit *limit, enum log_level level, const char *token, uint64_t now_ms)
{
	if ((uint32_t)level > threshold)
		return false;
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
