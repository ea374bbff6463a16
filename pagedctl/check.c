/* SPDX-License-Identifier: Apache-2.0 */
/* The command check. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pagedctl/ctl.h"
#include "pagedctl/print.h"

/* The two checks of one pool: by the daemon, and here from its table region. */
struct check {
	struct paged_check_result daemon, region;
	char unread[256]; /* why the region could not be checked; "": it was */
};

static enum paged_status
check_pool(struct ctl *ctl, const char *name, struct check *check)
{
	struct paged_pool *pool;
	enum paged_status status;

	check->daemon.struct_size = check->region.struct_size = sizeof(check->daemon);
	status = paged_admin_check(ctl->client, name, &check->daemon);
	if (status != PAGED_OK)
		return status;
	check->unread[0] = '\0';
	status = paged_pool_open(ctl->client, name, &pool);
	if (status == PAGED_OK) {
		status = paged_pool_check(pool, &check->region);
		paged_pool_close(pool);
	}
	/* If this process cannot map or walk the region, the daemon's result is still printed. */
	if (status == PAGED_ERR_PERM || status == PAGED_ERR_AGAIN) {
		snprintf(check->unread, sizeof(check->unread), "%s", paged_client_error(ctl->client));
		status = PAGED_OK;
	}
	return status;
}

static bool
check_holds(const struct check *check)
{
	return check->daemon.holds && (check->unread[0] != '\0' || check->region.holds);
}

static void
check_print(const char *name, const struct check *check)
{
	const struct paged_check_result *result = &check->daemon;

	printf("pool %s: %" PRIu32 " pages = %" PRIu32 " free + %" PRIu32 " referenced + %" PRIu32 " cached + %" PRIu32
	       " quarantined: %s\n",
	       name, result->n_pages, result->n_free, result->n_referenced, result->n_cached, result->n_quarantined,
	       check_holds(check) ? "holds" : "DOES NOT HOLD");
	if (!check->daemon.holds)
		printf("  recomputed by the daemon: %s\n", check->daemon.text);
	if (check->unread[0] != '\0')
		printf("  not recomputed here: %s\n", check->unread);
	else if (!check->region.holds)
		printf("  recomputed here from the tables: %s\n", check->region.text);
}

static json_t *
json_of_result(const struct paged_check_result *result)
{
	return json_pack("{s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "holds", (int)result->holds, "pages",
			 (json_int_t)result->n_pages, "free", (json_int_t)result->n_free, "referenced",
			 (json_int_t)result->n_referenced, "cached", (json_int_t)result->n_cached, "quarantined",
			 (json_int_t)result->n_quarantined, "sequences", (json_int_t)result->n_sequences, "text",
			 result->text);
}

enum ctl_exit
ctl_check(struct ctl *ctl)
{
	struct paged_pool_entry *pools;
	json_t *rows = json_array();
	bool holds = true, found = false;
	enum paged_status status;
	struct check check;
	size_t n = 0;

	status = paged_admin_pools(ctl->client, sizeof(*pools), &pools, &n);
	if (status != PAGED_OK)
		pools = NULL;
	for (size_t i = 0; status == PAGED_OK && i < n; i++) {
		if (ctl->pool != NULL && strcmp(ctl->pool, pools[i].name) != 0)
			continue;
		found = true;
		status = check_pool(ctl, pools[i].name, &check);
		if (status != PAGED_OK)
			break;
		holds = holds && check_holds(&check);
		if (ctl->json)
			json_array_append_new(
				rows,
				json_pack("{s:s, s:b, s:o, s:o}", "pool", pools[i].name, "holds",
					  (int)check_holds(&check), "daemon", json_of_result(&check.daemon), "region",
					  check.unread[0] != '\0' ? json_null() : json_of_result(&check.region)));
		else
			check_print(pools[i].name, &check);
	}
	if (status == PAGED_OK && ctl->json)
		print_json(json_pack("{s:O}", "pools", rows));
	json_decref(rows);
	paged_free(pools);
	if (status != PAGED_OK)
		return ctl_fail(ctl, status);
	if (ctl->pool != NULL && !found) {
		fprintf(stderr, "pagedctl: there is no pool %s\n", ctl->pool);
		return CTL_FAILED;
	}
	return holds ? CTL_OK : CTL_CHECK_FAILED;
}
