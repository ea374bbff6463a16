/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The request check: audits a pool's page accounting in steps between the
 * loop's other work, and replies after the last step.  Further checks wait in
 * a queue.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/rpc.h"

/* Entries, pages and slots per step: some tens of microseconds. */
enum { CHECK_STEP = 8192 };

enum paged_status
rpc_check(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	  struct paged_error *error)
{
	struct rpc_checks *checks = &rpc->checks;
	struct rpc_job *job;

	(void)reply; /* no member_check_pool(): an administrator may check any pool */
	if (request->check.pool >= rpc->pools->n)
		return paged_fail(error, PAGED_ERR_NOENT, "no pool number %u; there are %zu", request->check.pool,
				  rpc->pools->n);
	if (checks->n == RPC_MAX_CHECKS)
		return paged_fail(error, PAGED_ERR_AGAIN, "%u other checks are waiting", checks->n);
	job = &checks->job[checks->n];
	job->route = endpoint_route_copy(rpc->endpoint);
	if (job->route == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for a check");
	job->member = member->id;
	job->request = request->id;
	job->pool = request->check.pool;
	checks->n++;
	loop_wake(rpc->loop);
	rpc->deferred = true;
	return PAGED_OK;
}

/* Replies to the first check in the queue, which has its verdict or could not begin, and removes it. */
static void
check_reply(struct rpc *rpc, enum paged_status status, const struct paged_check_result *result,
	    struct paged_error *error)
{
	struct rpc_checks *checks = &rpc->checks;
	struct wire_reply reply = { .id = checks->job[0].request, .text = "" };

	if (status == PAGED_OK || status == PAGED_ERR_CORRUPT) {
		reply.kind = WIRE_REPLY_CHECK_RESULT;
		reply.check_result = *result;
	} else {
		reply.status = status;
		reply.text = error->text;
	}
	rpc_reply_deferred(rpc, WIRE_CHECK, checks->job[0].member, checks->job[0].route, &reply);
	endpoint_route_free(checks->job[0].route);
	checks->n--;
	memmove(&checks->job[0], &checks->job[1], checks->n * sizeof(checks->job[0]));
}

static bool
check_run_step(struct loop_work *work)
{
	struct rpc *rpc = container_of(work, struct rpc, checks.work);
	struct rpc_checks *checks = &rpc->checks;
	struct paged_check_result result;
	struct paged_error error;
	enum paged_status status;

	if (checks->n == 0)
		return false;
	if (checks->audit == NULL) {
		status = core_audit_begin(rpc->core, checks->job[0].pool, &checks->audit, &error);
		if (status != PAGED_OK)
			check_reply(rpc, status, &result, &error);
	} else if (!core_audit_step(checks->audit, CHECK_STEP)) {
		status = core_audit_end(checks->audit, &result, &error);
		checks->audit = NULL;
		check_reply(rpc, status, &result, &error);
	}
	return checks->n > 0;
}

void
rpc_checks_open(struct rpc *rpc)
{
	rpc->checks.work.step = check_run_step;
	loop_work_add(rpc->loop, &rpc->checks.work);
}

void
rpc_checks_close(struct rpc *rpc)
{
	struct rpc_checks *checks = &rpc->checks;

	if (checks->audit != NULL)
		core_audit_abandon(checks->audit);
	while (checks->n > 0)
		endpoint_route_free(checks->job[--checks->n].route);
}
