/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/seats.h"

#include <assert.h>
#include <stdlib.h>

enum kind { OF_USER, OF_PROCESS };

struct seats_count {
	enum kind kind;
	uint32_t id;
	uint32_t n;
	LIST_ENTRY(seats_count) link;
};

void
seats_open(struct seats *seats)
{
	seats->n = 0;
	for (int i = 0; i < SEATS_BUCKETS; i++)
		LIST_INIT(&seats->counts[i]);
}

void
seats_close(struct seats *seats)
{
	for (int i = 0; i < SEATS_BUCKETS; i++) {
		struct seats_count *count;

		while ((count = LIST_FIRST(&seats->counts[i])) != NULL) {
			LIST_REMOVE(count, link);
			free(count);
		}
	}
}

static struct seats_count *
count_find(const struct seats *seats, enum kind kind, uint32_t id)
{
	struct seats_count *count;

	LIST_FOREACH(count, &seats->counts[id % SEATS_BUCKETS], link)
		if (count->kind == kind && count->id == id)
			return count;
	return NULL;
}

static uint32_t
count_of(const struct seats *seats, enum kind kind, uint32_t id)
{
	const struct seats_count *count = count_find(seats, kind, id);

	return count != NULL ? count->n : 0;
}

/* False: no memory. */
static bool
count_up(struct seats *seats, enum kind kind, uint32_t id)
{
	struct seats_count *count = count_find(seats, kind, id);

	if (count == NULL) {
		count = calloc(1, sizeof(*count));
		if (count == NULL)
			return false;
		count->kind = kind;
		count->id = id;
		LIST_INSERT_HEAD(&seats->counts[id % SEATS_BUCKETS], count, link);
	}
	count->n++;
	return true;
}

static void
count_down(struct seats *seats, enum kind kind, uint32_t id)
{
	struct seats_count *count = count_find(seats, kind, id);

	assert(count != NULL && count->n > 0);
	if (--count->n > 0)
		return;
	LIST_REMOVE(count, link);
	free(count);
}

static enum paged_status
seats_check(const struct seats *seats, const struct config *config, uid_t uid, pid_t pid, bool admin,
	    struct paged_error *error)
{
	uint32_t n_process = count_of(seats, OF_PROCESS, (uint32_t)pid), n_user = count_of(seats, OF_USER, uid);

	if (n_process >= SEATS_PER_PROCESS)
		return paged_fail(error, PAGED_ERR_LIMIT,
				  "process %d has %u members, the most for one; those that hung up without a goodbye "
				  "count until it ends",
				  (int)pid, n_process);
	if (seats->n >= config->max_members + (admin ? SEATS_OF_ADMINS : 0))
		return paged_fail(error, PAGED_ERR_LIMIT, "%u members, and max-members is %u", seats->n,
				  config->max_members);
	if (!admin && n_user >= config->max_user_members)
		return paged_fail(error, PAGED_ERR_LIMIT, "uid %u has %u members, and max-members-per-user is %u",
				  (unsigned)uid, n_user, config->max_user_members);
	return PAGED_OK;
}

enum paged_status
seats_take(struct seats *seats, const struct config *config, uid_t uid, pid_t pid, bool admin,
	   struct paged_error *error)
{
	enum paged_status status = seats_check(seats, config, uid, pid, admin, error);

	if (status != PAGED_OK)
		return status;
	if (!count_up(seats, OF_USER, uid))
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for a member");
	if (!count_up(seats, OF_PROCESS, (uint32_t)pid)) {
		count_down(seats, OF_USER, uid);
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for a member");
	}
	seats->n++;
	return PAGED_OK;
}

void
seats_give(struct seats *seats, uid_t uid, pid_t pid)
{
	count_down(seats, OF_USER, uid);
	count_down(seats, OF_PROCESS, (uint32_t)pid);
	seats->n--;
}
