/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block masks that the daemon builds, and the arrays that sessions keep for
 * them.  A build is checked here and runs on the helper's thread, which reads
 * the rows from the pool's tables as any reader does; its reply comes when it
 * is done, with the image or with a ticket for it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/core/array.h"
#include "daemon/daemon.h"
#include "daemon/rpc.h"
#include "kernels/mask/served.h"

static_assert(WIRE_MAX_SYMBOL == MOD_MAX_NAME && WIRE_MAX_SYMBOL == CORE_ARRAY_MAX_NAME, "names of arrays");
static_assert(WIRE_MAX_SYMBOLS == MOD_MAX_NAMES && WIRE_MAX_MOD == MOD_MAX_TEXT, "mods");
static_assert(WIRE_MAX_INDEXES == MOD_MAX_INDEXES && WIRE_MAX_INDEXES == CORE_ARRAY_MAX_DIMS, "indexes of arrays");

enum paged_status
rpc_put_array(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	      struct paged_error *error)
{
	const struct wire_array_part *from = &request->put_array;
	struct core_array_part part = {
		.name = from->name,
		.shape = { .dtype = (enum paged_dtype)from->dtype, .n_dims = from->n_dims },
		.offset = from->offset,
		.data = from->data,
		.size = from->size,
	};

	(void)reply;
	memcpy(part.shape.extents, from->extents, sizeof(part.shape.extents));
	return core_array_put(rpc->daemon->core, member->session->id, member->id, &part, error);
}

enum paged_status
rpc_drop_array(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	       struct paged_error *error)
{
	(void)reply;
	return core_array_drop(rpc->daemon->core, member->session->id, request->drop_array.name, error);
}

struct mask_job {
	struct helper_job job;
	struct rpc *rpc;
	uint64_t request;
	struct endpoint_route *route;
	struct served *served;
	const struct region_view *view;
	struct core_array *arrays[MOD_MAX_NAMES];
	uint32_t n_arrays;

	/* What became of it. */
	enum paged_status status;
	struct paged_error error;
	uint8_t *image; /* a small one */
	int fd;         /* a large one's memfd; -1: none */
	uint64_t size;  /* bytes */
};

static void
job_free(struct mask_job *job)
{
	if (job->route != NULL)
		endpoint_route_drop(job->route);
	served_destroy(job->served);
	for (uint32_t i = 0; i < job->n_arrays; i++)
		core_array_release(job->arrays[i]);
	free(job->image);
	if (job->fd >= 0)
		close(job->fd);
	free(job);
}

/* On the helper's thread, until job_finish(). */

static enum paged_status
bytes_write(int fd, const uint8_t *bytes, uint64_t size, struct paged_error *error)
{
	while (size > 0) {
		ssize_t n = write(fd, bytes, size < INT32_MAX ? (size_t)size : INT32_MAX);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return paged_fail(error, PAGED_ERR_BACKEND, "block mask: memfd: %m");
		bytes += n;
		size -= (uint64_t)n;
	}
	return PAGED_OK;
}

/* Into a memfd that nobody can change any more. */
static enum paged_status
image_seal(const uint8_t *bytes, uint64_t size, int *fd_p, struct paged_error *error)
{
	int fd = memfd_create("paged-mask", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	enum paged_status status;

	if (fd < 0)
		return paged_fail(error, PAGED_ERR_BACKEND, "block mask: memfd_create: %m");
	status = bytes_write(fd, bytes, size, error);
	if (status == PAGED_OK && fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		status = paged_fail(error, PAGED_ERR_BACKEND, "block mask: F_ADD_SEALS: %m");
	if (status != PAGED_OK) {
		close(fd);
		return status;
	}
	*fd_p = fd;
	return PAGED_OK;
}

static enum paged_status
image_keep(struct mask_job *job, const struct image *image)
{
	enum paged_status status;

	job->image = image_write(image, &job->size);
	if (job->image == NULL)
		return paged_fail(&job->error, PAGED_ERR_NOMEM, "block mask: no memory for its image");
	if (job->size <= WIRE_MAX_IMAGE)
		return PAGED_OK;
	status = image_seal(job->image, job->size, &job->fd, &job->error);
	free(job->image);
	job->image = NULL;
	return status;
}

static void
mask_run(struct helper_job *helper_job)
{
	struct mask_job *job = container_of(helper_job, struct mask_job, job);
	struct image image;

	job->status = served_build(job->served, job->view, &job->job.cancelled, NULL, &image, &job->error);
	if (job->status == PAGED_OK) {
		job->status = image_keep(job, &image);
		image_free(&image);
	}
}

/* On the loop again. */

static enum paged_status
outcome(struct mask_job *job, struct wire_reply *reply)
{
	struct daemon *daemon = job->rpc->daemon;
	enum paged_status status = job->status;

	if (job->job.late && status != PAGED_OK)
		return paged_fail(&job->error, PAGED_ERR_LIMIT,
				  "block mask: it takes longer than mask-time, %u ms; "
				  "paged_block_mask_create() builds it without this limit",
				  daemon->config->mask_time_ms);
	if (atomic_load_explicit(&job->job.cancelled, memory_order_relaxed) && !job->job.late)
		return paged_fail(&job->error, PAGED_ERR_GONE, "session %u has ended", job->job.session);
	if (status != PAGED_OK)
		return status;
	reply->kind = WIRE_REPLY_MASK;
	reply->mask.size = job->size;
	reply->mask.image = job->image;
	if (job->fd < 0)
		return PAGED_OK;
	status = tickets_put(&daemon->tickets, job->job.member, job->fd, job->size, &reply->mask.ticket, &job->error);
	if (status == PAGED_OK)
		job->fd = -1;
	return status;
}

static void
mask_finish(struct helper_job *helper_job)
{
	struct mask_job *job = container_of(helper_job, struct mask_job, job);
	const struct member *member = member_find(&job->rpc->daemon->members, job->job.member);
	struct wire_reply reply = { .id = job->request, .text = "" };

	if (member != NULL && member->alive) {
		reply.status = outcome(job, &reply);
		if (reply.status != PAGED_OK) {
			reply.kind = WIRE_REPLY_EMPTY;
			reply.text = job->error.text;
		}
		rpc_reply_late(job->rpc, job->job.member, job->route, &reply);
	}
	job_free(job);
}

/* Parameters as they came, arrays as the session has them. */
static enum paged_status
names_bind(struct mask_job *job, const struct wire_mask_order *order, struct mod_array *names,
	   struct paged_error *error)
{
	for (uint32_t i = 0; i < order->n_names; i++) {
		const struct wire_mask_name *from = &order->names[i];
		struct core_array *array;
		enum paged_status status;

		names[i] = (struct mod_array){ .name = from->name,
					       .dtype = (enum mod_dtype)from->dtype,
					       .n_dims = from->n_dims,
					       .data = from->value };
		if (from->n_dims == 0)
			continue;
		status = core_array_take(job->rpc->daemon->core, job->job.session, from->name,
					 (enum paged_dtype)from->dtype, from->n_dims, &array, error);
		if (status != PAGED_OK)
			return status;
		job->arrays[job->n_arrays++] = array;
		memcpy(names[i].extents, array->shape.extents, sizeof(names[i].extents));
		names[i].data = array->data;
	}
	return PAGED_OK;
}

static enum paged_status
job_fill(struct mask_job *job, const struct wire_mask_order *order, struct paged_error *error)
{
	struct mod_array names[MOD_MAX_NAMES];
	const struct served_request request = {
		.n_rows = order->n,
		.seq = order->seq,
		.q_len = order->q_len,
		.kv_len = order->kv_len,
		.q_base = order->q_base,
		.n_heads = order->n_heads,
		.q_block = order->q_block,
		.kv_block = order->kv_block,
		.max_bytes = order->max_bytes,
		.text = order->text,
		.names = names,
		.n_names = order->n_names,
	};
	enum paged_status status = names_bind(job, order, names, error);

	if (status == PAGED_OK)
		status = served_create(&request, job->rpc->daemon->config->mask_bytes, &job->served, error);
	if (status != PAGED_OK)
		return status;
	job->route = endpoint_route_keep(&job->rpc->daemon->endpoint);
	if (job->route == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for a build");
	return helper_submit(&job->rpc->daemon->helper, &job->job, error);
}

enum paged_status
rpc_build_mask(struct rpc *rpc, struct member *member, const struct wire_request *request, struct wire_reply *reply,
	       struct paged_error *error)
{
	const struct wire_mask_order *order = &request->build_mask;
	enum paged_status status = rpc_pool_check(rpc->daemon, member, order->pool, error);
	struct mask_job *job;

	(void)reply;
	if (status != PAGED_OK)
		return status;
	job = calloc(1, sizeof(*job));
	if (job == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for a build");
	job->job.run = mask_run;
	job->job.finish = mask_finish;
	job->job.member = member->id;
	job->job.session = member->session->id;
	job->rpc = rpc;
	job->request = request->id;
	job->view = core_pool_view(rpc->daemon->core, order->pool);
	job->fd = -1;
	status = job_fill(job, order, error);
	if (status != PAGED_OK) {
		job_free(job);
		return status;
	}
	rpc->deferred = true;
	return PAGED_OK;
}
