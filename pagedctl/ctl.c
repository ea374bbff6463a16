/* SPDX-License-Identifier: Apache-2.0 */
/* What pagedctl's commands share: error messages, exit statuses, times of options, names of pools. */
#include "config.h"

#include "pagedctl/ctl.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum paged_status
ctl_open(struct ctl *ctl)
{
	return paged_client_open(ctl->runtime_dir, &ctl->params, &ctl->client);
}

enum ctl_exit
ctl_usage(const char *format, ...)
{
	va_list arguments;

	fprintf(stderr, "pagedctl: ");
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, " (see pagedctl --help)\n");
	return CTL_USAGE;
}

enum ctl_exit
ctl_fail(const struct ctl *ctl, enum paged_status status)
{
	fprintf(stderr, "pagedctl: %s\n", paged_client_error(ctl->client));
	return status == PAGED_ERR_NO_DAEMON || status == PAGED_ERR_GONE ? CTL_NO_DAEMON : CTL_FAILED;
}

bool
ctl_parse_session(const char *text, uint32_t *session_p)
{
	unsigned long session;
	char *end;

	errno = 0;
	session = strtoul(text, &end, 10);
	if (errno != 0 || end == text || *end != '\0' || session == 0 || session > UINT32_MAX) {
		ctl_usage("%s is not a session; pagedctl sessions lists them", text);
		return false;
	}
	*session_p = (uint32_t)session;
	return true;
}

const char *
ctl_pool_name(const struct paged_pool_entry *pools, size_t n_pools, uint32_t number)
{
	for (size_t i = 0; i < n_pools; i++)
		if (pools[i].number == number)
			return pools[i].name;
	return NULL;
}

enum ctl_exit
ctl_fail_stdout(void)
{
	fprintf(stderr, "pagedctl: standard output: %s\n", strerror(errno));
	return CTL_FAILED;
}

bool
ctl_parse_seconds(const char *option, const char *text, uint32_t *ms_p)
{
	char *end;
	double seconds = strtod(text, &end);

	/* A comparison with NaN is false. */
	if (end == text || *end != '\0' || !(seconds >= 0.1 && seconds <= 86400)) {
		ctl_usage("%s %s is no number of seconds from 0.1 to 86400", option, text);
		return false;
	}
	*ms_p = (uint32_t)(seconds * 1000 + 0.5);
	return true;
}
