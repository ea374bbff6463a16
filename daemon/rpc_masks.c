/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block masks that the daemon builds, and the arrays that sessions keep for
 * them.  A request is checked on the loop; the background thread builds the part
 * of the mask, and the loop then sends the reply.
 */
#include <stdlib.h>
#include <string.h>

#include "core/array.h"
#include "daemon/rpc.h"
#include "kernels/mask/remote_mask.h"
#include "kernels/mod/mod.h"

static_assert(WIRE_MAX_MOD == MOD_MAX_TEXT, "mods");
static_assert(WIRE_MAX_INDEXES == MOD_MAX_INDEXES && WIRE_MAX_INDEXES == CORE_ARRAY_MAX_DIMS, "indexes of arrays");

enum paged_status
rpc_put_array(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	      struct paged_error *error)
{
	const struct wire_array_chunk *from = &request->put_array;
	struct core_array_chunk part = {
		.name = from->name,
		.shape = { .dtype = (enum paged_dtype)from->dtype, .n_dims = from->n_dims },
		.offset = from->offset,
		.data = from->data,
		.size = from->size,
	};

	(void)reply;
	memcpy(part.shape.extents, from->extents, sizeof(part.shape.extents));
	return core_array_put(rpc->core, member->session->id, member->id, &part, error);
}

enum paged_status
rpc_drop_array(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	       struct paged_error *error)
{
	(void)reply;
	return core_array_drop(rpc->core, member->session->id, request->drop_array.name, error);
}

struct mask_job {
	struct background_job job;
	struct rpc *rpc;
	uint64_t request;
	struct endpoint_route *route;
	struct remote_mask *remote_mask;
	struct core_arrays arrays;

	/* The result. */
	enum paged_status status;
	struct paged_error error;
	struct rle_writer part;
};

static void
mask_job_free(struct mask_job *job)
{
	if (job->route != NULL)
		endpoint_route_free(job->route);
	remote_mask_destroy(job->remote_mask);
	core_arrays_release(&job->arrays);
	free(job->part.values);
	free(job);
}

/* On the background thread. */
static void
mask_job_run(struct background_job *background_job)
{
	struct mask_job *job = container_of(background_job, struct mask_job, job);

	job->part.capacity = MASK_PART_MAX;
	job->part.values = malloc(MASK_PART_MAX * sizeof(*job->part.values));
	if (job->part.values != NULL)
		job->status = remote_mask_build(job->remote_mask, &job->job.cancelled, &job->part, &job->error);
	else
		job->status = paged_fail(&job->error, PAGED_ERR_NOMEM, "block mask: no memory for a part of it");
}

/* The functions below run on the loop. */

static enum paged_status
mask_job_status(struct mask_job *job)
{
	if (job->job.late && job->status != PAGED_OK)
		return paged_fail(&job->error, PAGED_ERR_LIMIT,
				  "block mask: it takes longer than mask-time, %u ms; "
				  "a mask that is not remote is built without this limit",
				  job->rpc->config->mask_time_ms);
	if (atomic_load_explicit(&job->job.cancelled, memory_order_relaxed) && !job->job.late)
		return paged_fail(&job->error, PAGED_ERR_GONE, "session %u has ended", job->job.session);
	return job->status;
}

static void
mask_job_finish(struct background_job *background_job)
{
	struct mask_job *job = container_of(background_job, struct mask_job, job);
	const struct member *member = member_find(job->rpc->members, job->job.member);
	struct wire_reply reply = { .id = job->request, .text = "" };

	if (member != NULL && member->state == MEMBER_ATTACHED) {
		reply.status = mask_job_status(job);
		if (reply.status == PAGED_OK) {
			reply.kind = WIRE_REPLY_MASK;
			reply.mask = (struct mask_part){ job->part.n, job->part.values, job->part.list_continues,
							 job->arrays.number };
		} else {
			reply.text = job->error.text;
		}
		rpc_reply_deferred(job->rpc, WIRE_BUILD_MASK, job->job.member, job->route, &reply);
	}
	mask_job_free(job);
}

static enum paged_status
mask_job_submit(struct mask_job *job, const struct mask_request *request, struct paged_error *error)
{
	struct rpc *rpc = job->rpc;
	enum paged_status status;

	status = core_arrays_acquire(rpc->core, job->job.session, request, &job->arrays, error);
	if (status == PAGED_OK)
		status = remote_mask_create(request, rpc->config->mask_bytes, &job->remote_mask, error);
	if (status != PAGED_OK)
		return status;
	for (uint32_t i = 0; i < request->n_names; i++)
		if (job->arrays.array[i] != NULL)
			remote_mask_set_array(job->remote_mask, i, job->arrays.array[i]->shape.extents,
					      job->arrays.array[i]->data);
	job->route = endpoint_route_copy(rpc->endpoint);
	if (job->route == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for a build");
	return background_thread_submit(rpc->background, &job->job, error);
}

enum paged_status
rpc_build_mask(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	       struct paged_error *error)
{
	struct mask_job *job = calloc(1, sizeof(*job));
	enum paged_status status;

	(void)reply;
	if (job == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for a build");
	job->job.run = mask_job_run;
	job->job.finish = mask_job_finish;
	job->job.member = member->id;
	job->job.session = member->session->id;
	job->rpc = rpc;
	job->request = request->id;
	status = mask_job_submit(job, &request->build_mask, error);
	if (status != PAGED_OK) {
		mask_job_free(job);
		return status;
	}
	rpc->deferred = true;
	return PAGED_OK;
}
