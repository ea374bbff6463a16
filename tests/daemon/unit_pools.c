/* SPDX-License-Identifier: Apache-2.0 */
/* Selection of the failed pool that is reported to the daemon, if several pools have failed. */
#include <criterion/criterion.h>
#include <string.h>

#include "daemon/pools.h"

static enum paged_status
poll_busy(const struct memory *memory, struct paged_error *error)
{
	(void)memory;
	return paged_fail(error, PAGED_ERR_BACKEND, "busy");
}

static enum paged_status
poll_lost(const struct memory *memory, struct paged_error *error)
{
	(void)memory;
	return paged_fail(error, PAGED_ERR_GONE, "lost");
}

static const struct memory_ops ok_ops = { .poll = memory_poll_ok }, busy_ops = { .poll = poll_busy },
			       lost = { .poll = poll_lost };
static const struct config_pool config[] = { { .name = "a" }, { .name = "b" }, { .name = "c" } };

static void
expect(const struct memory_ops *a, const struct memory_ops *b, const struct memory_ops *c, enum paged_status status,
       const char *sentence)
{
	struct pool pool[] = { { .config = &config[0], .memory.ops = a },
			       { .config = &config[1], .memory.ops = b },
			       { .config = &config[2], .memory.ops = c } };
	const struct pools pools = { .pool = pool, .n = 3 };
	struct paged_error error = { .text = "" };

	cr_expect_eq(daemon_pools_poll(&pools, &error), status);
	cr_expect_str_eq(error.text, sentence);
	cr_expect_eq(daemon_pools_can_fail(&pools), a != &ok_ops || b != &ok_ops || c != &ok_ops);
}

Test(pools, lost_pools_are_reported_first)
{
	expect(&ok_ops, &ok_ops, &ok_ops, PAGED_OK, "");
	expect(&ok_ops, &busy_ops, &busy_ops, PAGED_ERR_BACKEND, "b: busy");
	expect(&busy_ops, &ok_ops, &lost, PAGED_ERR_GONE, "c: lost");
	expect(&ok_ops, &lost, &lost, PAGED_ERR_GONE, "b: lost");
}
