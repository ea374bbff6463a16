/* SPDX-License-Identifier: Apache-2.0 */
/* Marks, waits and paged_batch_finish(). */
#include "config.h"

#include "client/api/mark.h"

#include <inttypes.h>
#include <string.h>

#include "client/api/compute_ops.h"
#include "client/api/enter.h"
#include "client/api/seq/publish.h"

#define MARK_MAGIC 0x6b72616du /* "mark" */
#define MARK_VERSION 2u

_Static_assert(sizeof(struct mark) == 144, "no padding, and the same for every compiler");
_Static_assert(sizeof(struct mark) <= sizeof(struct paged_mark), "there is room to grow");

/* Copy and check a mark.  The fields that every version of a mark has at the same place are checked first. */
static enum paged_status
mark_decode(const struct paged_pool *pool, const struct paged_mark *from, struct mark *mark, struct paged_error *error)
{
	memcpy(mark, from, sizeof(*mark));
	if (mark->magic != MARK_MAGIC || mark->version == 0)
		return paged_fail(error, PAGED_ERR_INVALID, "pool %s: these bytes are no mark of a batch",
				  pool->mapping.name);
	if (mark->version != MARK_VERSION)
		return paged_fail(error, PAGED_ERR_VERSION,
				  "pool %s: a mark of version %" PRIu32 ", this library knows %u", pool->mapping.name,
				  mark->version, MARK_VERSION);
	if (mark->pool != pool->mapping.index)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "pool %s is number %" PRIu32 " of its daemon, the mark is of number %" PRIu32,
				  pool->mapping.name, pool->mapping.index, mark->pool);
	if (memcmp(mark->memory_id, pool->mapping.view.header->memory_id, sizeof(mark->memory_id)) != 0)
		return paged_fail(
			error, PAGED_ERR_GONE,
			"pool %s: the mark is of another daemon's pool, or of memory that this daemon had before",
			pool->mapping.name);
	return PAGED_OK;
}

enum paged_status
paged_batch_mark(struct paged_batch *batch, struct paged_mark *mark)
{
	struct paged_client *client = batch_client(batch);
	enum paged_status status = client_enter_owner(client);
	struct mark made = { .magic = MARK_MAGIC, .version = MARK_VERSION };
	const struct paged_pool *pool;
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	if (mark == NULL)
		return client_failf(client, PAGED_ERR_INVALID, "a mark needs a place");
	pool = batch->pool;
	made.pool = pool->mapping.index;
	memcpy(made.memory_id, pool->mapping.view.header->memory_id, sizeof(made.memory_id));
	status = pool->compute_ops->mark(batch, &made, &error);
	if (status != PAGED_OK)
		return client_fail(client, &error);
	memset(mark, 0, sizeof(*mark));
	memcpy(mark, &made, sizeof(made));
	return PAGED_OK;
}

enum paged_status
paged_batch_wait(struct paged_batch *batch, const struct paged_mark *from)
{
	struct paged_client *client = batch_client(batch);
	enum paged_status status = client_enter_owner(client);
	struct paged_error error;
	struct mark mark;

	if (status != PAGED_OK)
		return status;
	if (from == NULL)
		return client_failf(client, PAGED_ERR_INVALID, "mark is NULL");
	status = mark_decode(batch->pool, from, &mark, &error);
	if (status == PAGED_OK)
		status = batch->pool->compute_ops->wait(batch, &mark, &error);
	return client_leave(client, status, &error);
}

enum paged_status
paged_batch_finish(struct paged_batch *batch)
{
	struct paged_client *client = batch_client(batch);
	enum paged_status status = client_enter(client);
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	status = batch->pool->compute_ops->finish(batch, &error);
	if (status == PAGED_OK)
		batch_publish_dispatch(batch);
	return client_leave(client, status, &error);
}
