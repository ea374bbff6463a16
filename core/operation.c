/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests whose work goes on in steps.  A request checks everything and promises itself the pages that it needs before
 * it changes anything, so that no step can fail for want of them.  Between two steps the lists and page tables are as
 * after any request, and other sessions may change whatever the operation does not own.
 */
#include "core/request.h"
#include "core/session.h"

#include <stdlib.h>

enum paged_status
operation_create(struct core_session *session, const struct operation_ops *ops, uint32_t n,
		 struct core_operation **operation_p, struct paged_error *error)
{
	struct core_operation *operation = calloc(1, sizeof(*operation) + n * sizeof(*operation->items));

	if (operation == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "session %u: no memory for a request on %u sequences",
				  session->id, n);
	operation->session = session;
	operation->ops = ops;
	operation->n = n;
	*operation_p = operation;
	return PAGED_OK;
}

void
operation_queue(struct core *core, struct core_operation *operation)
{
	if (operation->session != NULL)
		operation->session->operation = operation;
	operation->next = NULL;
	if (core->operation_first == NULL)
		core->operation_first = operation;
	else
		core->operation_last->next = operation;
	core->operation_last = operation;
}

/* Does a step of an operation that is not in the queue; true: it is finished, with *error, and freed. */
static bool
operation_step(struct core *core, struct core_operation *operation, struct paged_error *error)
{
	uint32_t budget = core->step;

	while (budget > 0 && operation->next_item < operation->n)
		if (operation->ops->step(core, operation, &operation->items[operation->next_item], &budget))
			operation->next_item++;
	if (operation->next_item < operation->n) {
		operation_queue(core, operation);
		return false;
	}
	if (operation->session != NULL)
		operation->session->operation = NULL;
	*error = operation->error;
	free(operation);
	return true;
}

void
operation_begin(struct core *core, struct core_operation *operation)
{
	struct paged_error none;

	operation->session->operation = operation;
	operation_step(core, operation, &none);
}

static void
operation_unqueue(struct core *core, const struct core_operation *operation)
{
	struct core_operation **link = &core->operation_first, *previous = NULL;

	while (*link != operation) {
		previous = *link;
		link = &(*link)->next;
	}
	*link = operation->next;
	if (core->operation_last == operation)
		core->operation_last = previous;
}

void
operation_stop(struct core *core, struct core_session *session)
{
	struct core_operation *operation = session->operation;

	if (operation == NULL)
		return;
	session->operation = NULL;
	if (operation->ops->outlives) {
		operation->session = NULL;
		return;
	}
	operation_unqueue(core, operation);
	if (operation->ops->stop != NULL)
		operation->ops->stop(core, operation);
	free(operation);
}

uint64_t
core_n_worked(const struct core *core)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < core->n_pools; i++)
		n += core->pools[i]->n_worked;
	return n;
}

static uint32_t
operation_tenant(const struct core_operation *operation)
{
	return operation->session != NULL ? operation->session->tenant : 0;
}

/*
 * The operation to step next: the one that has waited longest, of another tenant than the last one if there is any.  So
 * a tenant's requests do not take longer because another has many sessions.
 */
static struct core_operation *
operation_next(const struct core *core)
{
	struct core_operation *operation = core->operation_first;

	while (operation != NULL && operation_tenant(operation) == core->last_tenant)
		operation = operation->next;
	return operation != NULL ? operation : core->operation_first;
}

bool
core_step(struct core *core, struct core_progress *progress)
{
	struct core_operation *operation = operation_next(core);
	uint64_t n_worked = core_n_worked(core);

	*progress = (struct core_progress){ .session = 0 };
	if (operation == NULL)
		return false;
	core->last_tenant = operation_tenant(operation);
	progress->session = operation->session != NULL ? operation->session->id : 0;
	operation_unqueue(core, operation);
	progress->finished = operation_step(core, operation, &progress->error);
	progress->n_worked = core_n_worked(core) - n_worked;
	return core->operation_first != NULL;
}

bool
core_session_is_busy(const struct core *core, uint32_t id)
{
	const struct core_session *session = idmap_find(&core->sessions, id);

	return session != NULL && session->operation != NULL;
}

void
core_set_step(struct core *core, uint32_t n_entries)
{
	core->step = n_entries;
	for (uint32_t i = 0; i < core->n_pools; i++)
		core->pools[i]->step = n_entries;
}

void
operations_free(struct core *core)
{
	while (core->operation_first != NULL) {
		struct core_operation *operation = core->operation_first;

		core->operation_first = operation->next;
		free(operation);
	}
}
