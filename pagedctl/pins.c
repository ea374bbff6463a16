/* SPDX-License-Identifier: Apache-2.0 */
/* The commands pins and unpin: prefixes that are evicted last, and who pinned them. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "pagedctl/ctl.h"
#include "pagedctl/print.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static enum paged_status
pins_print(struct ctl *ctl, const char *pool, struct print_list *list)
{
	struct paged_pin_entry *pins;
	size_t n;
	enum paged_status status = paged_admin_pins(ctl->client, pool, sizeof(*pins), &pins, &n);

	if (status != PAGED_OK)
		return status;
	for (size_t i = 0; i < n; i++) {
		print_text(list, pool);
		print_number(list, pins[i].number);
		print_number(list, pins[i].page);
		print_number(list, pins[i].serial);
		print_number(list, pins[i].n_pages);
		print_number(list, pins[i].n_tokens);
		print_text(list, pins[i].tenant);
		print_number(list, pins[i].session);
		print_number(list, pins[i].uid);
		print_number(list, pins[i].pid);
		print_number(list, pins[i].expires_s);
	}
	paged_free(pins);
	return PAGED_OK;
}

enum ctl_exit
ctl_pins(struct ctl *ctl)
{
	static const char *const columns[] = { "POOL",   "PIN",     "PAGE", "SERIAL", "PAGES",    "TOKENS",
					       "TENANT", "SESSION", "UID",  "PID",    "EXPIRES S" };
	struct print_list list;

	print_begin(&list, "pins", columns, COUNT(columns), ctl->json);
	return ctl_list_pools(ctl, &list, pins_print);
}

enum ctl_exit
ctl_unpin(struct ctl *ctl)
{
	const char *text = ctl->operands[1];
	enum paged_status status;
	uint64_t number;
	char *end;

	errno = 0;
	number = strtoull(text, &end, 10);
	if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0)
		return ctl_usage("%s is not the number of a pin", text);
	status = paged_admin_unpin(ctl->client, ctl->operands[0], number);
	if (status != PAGED_OK)
		return ctl_fail(ctl, status);
	if (ctl->json)
		print_json(json_pack("{s:s, s:I}", "pool", ctl->operands[0], "pin", (json_int_t)number));
	else
		printf("pin %s of pool %s ended\n", text, ctl->operands[0]);
	return CTL_OK;
}
