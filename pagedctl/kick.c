/* SPDX-License-Identifier: Apache-2.0 */
/* The command kick. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "pagedctl/ctl.h"
#include "pagedctl/print.h"

/* What a session was before it was kicked. */
struct kicked {
	bool ended;           /* at that time already */
	uint32_t n_processes; /* members, each in a list entry */
};

static enum paged_status
kicked_read(struct ctl *ctl, uint32_t session, struct kicked *kicked)
{
	struct paged_session_entry *sessions;
	size_t n;
	enum paged_status status = paged_admin_sessions(ctl->client, sizeof(*sessions), &sessions, &n);

	*kicked = (struct kicked){ .ended = true };
	if (status != PAGED_OK)
		return status;
	for (size_t i = 0; i < n; i++) {
		if (sessions[i].session != session)
			continue;
		kicked->ended = sessions[i].ended;
		kicked->n_processes += sessions[i].pid != 0;
	}
	paged_free(sessions);
	return PAGED_OK;
}

/* The list of sessions, once the ended session's sequences are cleaned up, which the daemon does in steps. */
static enum paged_status
kick_wait(struct ctl *ctl, uint32_t session, struct paged_session_entry **sessions_p, size_t *n_p)
{
	const struct timespec interval = { .tv_nsec = 1000000 };

	for (;; nanosleep(&interval, NULL)) {
		enum paged_status status = paged_admin_sessions(ctl->client, sizeof(**sessions_p), sessions_p, n_p);
		bool cleaned_up = true;

		if (status != PAGED_OK)
			return status;
		for (size_t i = 0; i < *n_p; i++)
			if ((*sessions_p)[i].session == session && (*sessions_p)[i].n_sequences > 0)
				cleaned_up = false;
		if (cleaned_up)
			return PAGED_OK;
		paged_free(*sessions_p);
	}
}

/* Prints how many pages of the ended session are in quarantine, and the processes that they wait for. */
static enum paged_status
kick_print(struct ctl *ctl, uint32_t session, const struct kicked *kicked)
{
	bool killed = ctl->kill && kicked->n_processes > 0;
	struct paged_session_entry *sessions;
	json_t *waits_for = json_array();
	uint32_t n_quarantined = 0;
	size_t n;
	enum paged_status status = kick_wait(ctl, session, &sessions, &n);

	if (status != PAGED_OK) {
		json_decref(waits_for);
		return status;
	}
	if (!ctl->json)
		printf("session %" PRIu32 " %s%s", session, kicked->ended ? "had ended already" : "was ended",
		       killed      ? ", and its processes were killed"
		       : ctl->kill ? "; it has no processes to kill"
				   : "");
	for (size_t i = 0; i < n; i++) {
		if (sessions[i].session != session || sessions[i].n_quarantined == 0 || sessions[i].pid == 0)
			continue;
		if (!ctl->json && n_quarantined == 0)
			printf("; %" PRIu32 " %s for process", sessions[i].n_quarantined,
			       print_plural(sessions[i].n_quarantined, "page waits", "pages wait"));
		if (!ctl->json)
			printf("%s %" PRIu32 " (%s)", n_quarantined == 0 ? "" : " and", sessions[i].pid,
			       sessions[i].name);
		json_array_append_new(waits_for, json_pack("{s:I, s:s}", "pid", (json_int_t)sessions[i].pid, "name",
							   sessions[i].name));
		n_quarantined = sessions[i].n_quarantined;
	}
	if (ctl->json)
		print_json(json_pack("{s:I, s:b, s:I, s:O}", "session", (json_int_t)session, "killed", (int)killed,
				     "quarantined", (json_int_t)n_quarantined, "processes", waits_for));
	else
		printf("\n");
	json_decref(waits_for);
	paged_free(sessions);
	return PAGED_OK;
}

enum ctl_exit
ctl_kick(struct ctl *ctl)
{
	enum paged_status status;
	struct kicked kicked;
	uint32_t session;

	if (!ctl_parse_session(ctl->operands[0], &session))
		return CTL_USAGE;
	status = kicked_read(ctl, session, &kicked);
	if (status == PAGED_OK)
		status = paged_admin_kick(ctl->client, session, ctl->kill);
	if (status == PAGED_OK)
		status = kick_print(ctl, session, &kicked);
	return status == PAGED_OK ? CTL_OK : ctl_fail(ctl, status);
}
