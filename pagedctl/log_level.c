/* SPDX-License-Identifier: Apache-2.0 */
/* The command log-level. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "pagedctl/ctl.h"
#include "pagedctl/print.h"

static const struct {
	const char *name;
	uint32_t level;
} levels[] = { { "error", PAGED_LOG_ERROR },
	       { "warning", PAGED_LOG_WARNING },
	       { "info", PAGED_LOG_INFO },
	       { "debug", PAGED_LOG_DEBUG } };

#define N_LEVELS (sizeof(levels) / sizeof(levels[0]))

static const char *
level_name(uint32_t level)
{
	for (size_t i = 0; i < N_LEVELS; i++)
		if (levels[i].level == level)
			return levels[i].name;
	return "unknown";
}

enum ctl_exit
ctl_log_level(struct ctl *ctl)
{
	const char *wanted = ctl->operands[0];
	uint32_t level = 0, was;
	enum paged_status status;

	for (size_t i = 0; wanted != NULL && i < N_LEVELS; i++)
		if (strcmp(levels[i].name, wanted) == 0)
			level = levels[i].level;
	if (wanted != NULL && level == 0)
		return ctl_usage("log level %s is none of error, warning, info, debug", wanted);
	status = paged_admin_log_level(ctl->client, level, &was);
	if (status != PAGED_OK)
		return ctl_fail(ctl, status);
	if (wanted == NULL)
		wanted = level_name(was);
	if (ctl->json)
		print_json(json_pack("{s:s, s:s}", "log_level", wanted, "was", level_name(was)));
	else if (level != 0)
		printf("log level %s, was %s\n", wanted, level_name(was));
	else
		printf("%s\n", wanted);
	return CTL_OK;
}
