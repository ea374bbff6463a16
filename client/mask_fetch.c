/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/mask_fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* What nobody can change any more may be read where it lies. */
#define SEALS (F_SEAL_WRITE | F_SEAL_SHRINK)

static enum paged_status
image_map(int fd, uint64_t size, void **base_p, struct paged_error *error)
{
	struct stat facts;
	int seals = fcntl(fd, F_GET_SEALS);
	void *base;

	if (fstat(fd, &facts) != 0)
		return paged_fail(error, PAGED_ERR_BACKEND, "block mask: %s", strerror(errno));
	if (size == 0 || size > SIZE_MAX || (uint64_t)facts.st_size != size || seals < 0 || (seals & SEALS) != SEALS)
		return paged_fail(error, PAGED_ERR_PROTOCOL,
				  "block mask: %" PRIu64 " sealed bytes were promised, %" PRId64 " came", size,
				  (int64_t)facts.st_size);
	base = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (base == MAP_FAILED)
		return paged_fail(error, PAGED_ERR_BACKEND, "block mask: cannot map %" PRIu64 " bytes: %s", size,
				  strerror(errno));
	*base_p = base;
	return PAGED_OK;
}

static enum paged_status
image_take(int fd, uint64_t size, struct mask_memory *memory, struct image *image, struct paged_error *error)
{
	void *base = NULL;
	enum paged_status status = image_map(fd, size, &base, error);

	if (status != PAGED_OK)
		return status;
	status = image_read(base, size, memory, image, error);
	munmap(base, (size_t)size);
	return status;
}

static enum paged_status
ticket_redeem(struct rpc *rpc, uint64_t ticket, uint64_t size, struct mask_memory *memory, struct image *image,
	      struct paged_error *error)
{
	const struct wire_control_request request = { .kind = WIRE_FETCH_MASK, .fetch_mask.ticket = ticket };
	struct wire_control_reply reply;
	int fds[WIRE_N_POOL_FDS];
	enum paged_status status;

	status = control_ask(rpc->control, &request, control_now_ms() + rpc->timeout_ms, &reply, fds, error);
	if (status != PAGED_OK)
		return status;
	if (reply.kind == WIRE_MASK_GRANT && reply.mask_grant.ticket == ticket && reply.mask_grant.size == size)
		status = image_take(fds[WIRE_FD_IMAGE], size, memory, image, error);
	else
		status = paged_fail(error, PAGED_ERR_PROTOCOL, "the daemon answers for a block mask by kind %d",
				    (int)reply.kind);
	for (int i = 0; i < WIRE_N_POOL_FDS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return status;
}

enum paged_status
mask_fetch(struct rpc *rpc, const struct wire_mask_order *order, struct mask_memory *memory, struct image *image,
	   struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_BUILD_MASK, .build_mask = *order };
	struct wire_reply reply;
	enum paged_status status = rpc_call(rpc, &request, WIRE_REPLY_MASK, &reply, error);

	*image = (struct image){ 0 };
	if (status != PAGED_OK)
		return status;
	if (reply.mask.image != NULL)
		return image_read(reply.mask.image, reply.mask.size, memory, image, error);
	return ticket_redeem(rpc, reply.mask.ticket, reply.mask.size, memory, image, error);
}

enum paged_status
mask_fetch_put(struct rpc *rpc, const struct wire_array_part *part, struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_PUT_ARRAY, .put_array = *part };
	struct wire_reply reply;

	return rpc_call(rpc, &request, WIRE_REPLY_EMPTY, &reply, error);
}

enum paged_status
mask_fetch_drop(struct rpc *rpc, const char *name, struct paged_error *error)
{
	struct wire_request request = { .kind = WIRE_DROP_ARRAY };
	struct wire_reply reply;

	snprintf(request.drop_array.name, sizeof(request.drop_array.name), "%s", name);
	return rpc_call(rpc, &request, WIRE_REPLY_EMPTY, &reply, error);
}
