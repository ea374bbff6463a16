/* SPDX-License-Identifier: Apache-2.0 */
/* Marks of pools in host memory, where work is complete when its call returns. */
#include "config.h"

#include <criterion/criterion.h>
#include <string.h>

#include "client/api/mark.h"
#include "client/pagedclient.h"

static struct paged_client *
client_with_pools(struct paged_pool *pools[2], struct paged_batch *batches[2])
{
	const struct paged_pool_params params[] = {
		{ .struct_size = sizeof(params[0]),
		  .name = "one",
		  .n_layers = 1,
		  .n_kv_heads = 1,
		  .k_dim = 8,
		  .dtype = PAGED_F32,
		  .n_pages = 4 },
		{ .struct_size = sizeof(params[0]),
		  .name = "two",
		  .n_layers = 1,
		  .n_kv_heads = 1,
		  .k_dim = 8,
		  .dtype = PAGED_F32,
		  .n_pages = 4 },
	};
	struct paged_client *client;

	cr_assert_eq(paged_client_open_embedded(params, 2, NULL, &client), PAGED_OK);
	for (unsigned int i = 0; i < 2; i++) {
		cr_assert_eq(paged_pool_open(client, params[i].name, &pools[i]), PAGED_OK);
		cr_assert_eq(paged_batch_create(pools[i], NULL, &batches[i]), PAGED_OK);
	}
	return client;
}

Test(mark, a_host_mark_is_reached_immediately)
{
	struct paged_batch *batches[2], *other;
	struct paged_pool *pools[2];
	struct paged_client *client = client_with_pools(pools, batches);
	struct paged_mark mark;

	cr_assert_eq(paged_batch_create(pools[0], NULL, &other), PAGED_OK);
	cr_assert_eq(paged_batch_mark(batches[0], &mark), PAGED_OK);
	cr_expect_eq(paged_batch_wait(other, &mark), PAGED_OK);
	cr_expect_eq(paged_batch_wait(batches[0], &mark), PAGED_OK);
	paged_batch_destroy(batches[0]);
	cr_expect_eq(paged_batch_wait(other, &mark), PAGED_OK);
	cr_expect_eq(paged_batch_finish(other), PAGED_OK);
	paged_client_close(client);
}

Test(mark, a_mark_of_another_pool_is_refused)
{
	struct paged_batch *batches[2], *elsewhere[2];
	struct paged_pool *pools[2], *others[2];
	struct paged_client *client = client_with_pools(pools, batches);
	struct paged_client *another = client_with_pools(others, elsewhere);
	struct paged_mark mark, zeros = { { 0 } };
	struct mark inside;

	cr_assert_eq(paged_batch_mark(batches[0], &mark), PAGED_OK);
	cr_expect_eq(paged_batch_wait(batches[1], &mark), PAGED_ERR_INVALID);
	cr_expect_str_eq(paged_client_error(client), "pool two is number 1 of its daemon, the mark is of number 0");
	cr_expect_eq(paged_batch_wait(elsewhere[0], &mark), PAGED_ERR_GONE);
	cr_expect_eq(paged_batch_wait(batches[0], &zeros), PAGED_ERR_INVALID);
	cr_expect_str_eq(paged_client_error(client), "pool one: these bytes are no mark of a batch");
	cr_expect_eq(paged_batch_wait(batches[0], NULL), PAGED_ERR_INVALID);
	cr_expect_eq(paged_batch_mark(batches[0], NULL), PAGED_ERR_INVALID);
	memcpy(&inside, &mark, sizeof(inside));
	inside.kind = MARK_EVENT;
	memcpy(&mark, &inside, sizeof(inside));
	cr_expect_eq(paged_batch_wait(batches[0], &mark), PAGED_ERR_INVALID);
	cr_expect_str_eq(paged_client_error(client), "pool one is in the host's memory, the mark is not");
	paged_client_close(client);
	paged_client_close(another);
}
