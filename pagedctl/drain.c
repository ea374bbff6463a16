/* SPDX-License-Identifier: Apache-2.0 */
/* The command drain. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>

#include "pagedctl/ctl.h"
#include "pagedctl/print.h"

/* Prints how many sequences the session still has; in JSON also its processes, which were told to leave. */
static enum paged_status
drain_print(struct ctl *ctl, uint32_t session)
{
	struct paged_session_entry *sessions;
	json_t *processes = json_array();
	uint32_t n_sequences = 0;
	bool ended = false;
	size_t n;
	enum paged_status status = paged_admin_sessions(ctl->client, sizeof(*sessions), &sessions, &n);

	if (status != PAGED_OK) {
		json_decref(processes);
		return status;
	}
	for (size_t i = 0; i < n; i++) {
		if (sessions[i].session != session)
			continue;
		n_sequences = sessions[i].n_sequences;
		ended = sessions[i].ended;
		json_array_append_new(processes, json_pack("{s:I, s:s}", "pid", (json_int_t)sessions[i].pid, "name",
							   sessions[i].name));
	}
	if (ctl->json)
		print_json(json_pack("{s:I, s:I, s:O}", "session", (json_int_t)session, "sequences",
				     (json_int_t)n_sequences, "processes", processes));
	else if (ended)
		printf("session %" PRIu32 " had ended already\n", session);
	else
		printf("session %" PRIu32 " is drained: %" PRIu32 " %s left\n", session, n_sequences,
		       print_plural(n_sequences, "sequence", "sequences"));
	json_decref(processes);
	paged_free(sessions);
	return PAGED_OK;
}

enum ctl_exit
ctl_drain(struct ctl *ctl)
{
	enum paged_status status;
	uint32_t session;

	if (!ctl_parse_session(ctl->operands[0], &session))
		return CTL_USAGE;
	status = paged_admin_drain(ctl->client, session);
	if (status == PAGED_OK)
		status = drain_print(ctl, session);
	return status == PAGED_OK ? CTL_OK : ctl_fail(ctl, status);
}
