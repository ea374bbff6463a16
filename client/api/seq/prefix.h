/* SPDX-License-Identifier: Apache-2.0 */
/**
 * prefix.h - from a program's struct paged_prefix to the block keys of its pages
 *
 * Token ids and keys are used in place.  Only the extras of pages are computed:
 * the SHA-256 of the salt (first page only) and, for each struct paged_extra
 * that overlaps the page, of
 *   extra.first - the page's first token  (int32, least significant byte first)
 *   extra.n_tokens                        (uint32, least significant byte first)
 *   extra.digest
 * A page with neither has zeros.
 */
#ifndef PAGED_CLIENT_PREFIX_H
#define PAGED_CLIENT_PREFIX_H

#include "client/api/objects.h"
#include "common/prefix.h"

/** Extras that need no allocation. */
#define PREFIX_EXTRAS_INLINE 16u

/** A checked prefix. */
struct prefix_source {
	struct paged_prefix user;
	uint32_t n_pages; /* whole pages */
	uint32_t page_size;
};

/** The block keys of a prefix's pages, and memory for their extras. */
struct prefix_request {
	struct prefix_keys keys;
	uint32_t extra_page[PREFIX_EXTRAS_INLINE];
	uint8_t extra[PREFIX_EXTRAS_INLINE][REGION_EXTRA_SIZE];
	void *memory; /* of more extras; NULL: none */
};

/**
 * prefix_source_init - check a program's prefix
 *
 * @retval PAGED_ERR_INVALID  with the field and the numbers
 * @retval PAGED_ERR_LIMIT    2^32 - 1 tokens or more
 */
enum paged_status prefix_source_init(const struct paged_pool *pool, const struct paged_prefix *user,
				     struct prefix_source *source, struct paged_error *error);

/**
 * prefix_source_check_tokens - PAGED_ERR_INVALID if a token id of pages [from, n_pages) has the value that stands for
 * none
 */
enum paged_status prefix_source_check_tokens(const struct prefix_source *source, uint32_t from,
					     struct paged_error *error);

/**
 * prefix_source_extras - compute the extras of pages [from, end), at most n_max of them
 *
 * @param[out] extra_page  index of each extra's page, minus `from`
 * @param[out] end_p       extras of pages [from, *end_p) were computed
 * @return number of extras
 */
uint32_t prefix_source_extras(const struct prefix_source *source, uint32_t from, uint32_t end, uint32_t n_max,
			      uint32_t *extra_page, uint8_t (*extra)[REGION_EXTRA_SIZE], uint32_t *end_p);

/** prefix_source_n_extras - how many of pages [from, end) have an extra */
uint32_t prefix_source_n_extras(const struct prefix_source *source, uint32_t from, uint32_t end);

/** prefix_source_keys - the block keys of pages [from, end) without extras, or with those of user.keys */
static inline struct prefix_keys
prefix_source_keys(const struct prefix_source *source, uint32_t from, uint32_t end)
{
	if (source->user.keys != NULL)
		return (struct prefix_keys){ .n_pages = end - from,
					     .n_extras = end - from,
					     .extra = source->user.keys + from };
	return (struct prefix_keys){ .n_pages = end - from,
				     .tokens = source->user.tokens + (size_t)from * source->page_size };
}

/**
 * prefix_request_init - check a program's prefix and make the block keys of all its pages, for a search
 *
 * @param[out] request  its caller keeps it in place, and calls prefix_request_destroy() after PAGED_OK
 */
enum paged_status prefix_request_init(const struct paged_pool *pool, const struct paged_prefix *user,
				      struct prefix_request *request, struct paged_error *error);

void prefix_request_destroy(struct prefix_request *request);

#endif
