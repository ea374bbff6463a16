/* SPDX-License-Identifier: Apache-2.0 */
/* From the lists of a publish to an item for each of its sequences. */
#include "core/request.h"

/* Pages [first, first + n_pages) of the list; *extra_p is the number of extras that the sequences before took. */
static struct prefix_keys
divide_keys(const struct seq_publish_list *list, uint32_t first, uint32_t n_pages, uint32_t page_size,
	    uint32_t *extra_p, uint32_t *extra_page)
{
	struct prefix_keys keys = { .n_pages = n_pages };

	if (list->keyed) {
		keys.attached_tokens = list->tokens != NULL ? list->tokens + (size_t)first * page_size : NULL;
		keys.n_extras = n_pages;
		keys.extra = list->extra + first;
		return keys;
	}
	keys.tokens = list->tokens + (size_t)first * page_size;
	if (*extra_p == list->n_extras)
		return keys;
	keys.extra_page = extra_page + *extra_p;
	keys.extra = list->extra + *extra_p;
	for (; *extra_p < list->n_extras && list->extra_page[*extra_p] < first + n_pages; ++*extra_p) {
		extra_page[*extra_p] = list->extra_page[*extra_p] - first;
		keys.n_extras++;
	}
	return keys;
}

void
core_divide_publish(const struct core *core, const struct seq_publish_list *list, struct core_publish *publishes,
		    uint32_t *extra_page)
{
	uint32_t first = 0, extra = 0;

	for (uint32_t i = 0; i < list->n; i++) {
		const struct seq_publish_spec *spec = &list->specs[i];
		uint32_t page_size = request_pool(core, spec->seq)->view.page_size;

		publishes[i] = (struct core_publish){
			.seq = spec->seq,
			.version = spec->version,
			.from = spec->from,
			.keys = divide_keys(list, first, spec->n_pages, page_size, &extra, extra_page),
		};
		first += spec->n_pages;
	}
}
