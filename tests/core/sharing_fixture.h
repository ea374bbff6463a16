/* SPDX-License-Identifier: Apache-2.0 */
/**
 * sharing_fixture.h - prefixes as text, published, found and started in the pools of core_fixture.h
 *
 * Each character is a token id.  A salt, if there is one, is the extra of a prefix's first page, as in
 * libpagedclient.
 */
#ifndef PAGED_SHARING_FIXTURE_H
#define PAGED_SHARING_FIXTURE_H

#include "tests/core/core_fixture.h"

#define SHARING_MAX_PAGES 400u
#define SHARING_MAX_TOKENS 1024u

/** Pools besides those of core_fixture.h. */
#define SHARING_WIDE 2u   /* 400 pages of 1 token, 140 sequences of 300 tokens; 10 pages can be pinned; 390 kept free */
#define SHARING_CLOSED 3u /* 4 pages of 4 tokens; publishes nothing */
#define SHARING_PEERS 4u  /* 10 pages of 16 tokens, 5 sequences */

void sharing_setup(void);

typedef uint8_t prefix_key[REGION_EXTRA_SIZE];

/** Block keys in the form of a request. */
struct sharing_keys {
	struct prefix_keys keys;
	uint32_t tokens[SHARING_MAX_TOKENS];
	uint32_t extra_page;
	prefix_key extra;
};

/** sharing_keys_init - block keys of the whole pages of a text */
void sharing_keys_init(struct sharing_keys *keys, uint32_t pool, const char *text, const char *salt);

/** Pages found. */
struct sharing_found {
	uint32_t n;
	uint32_t pages[SHARING_MAX_PAGES];
	uint64_t serial;
};

struct sharing_found sharing_find_keys(uint32_t pool, const struct prefix_keys *keys);
struct sharing_found sharing_find(uint32_t pool, const char *text, const char *salt);

/** expect_found - a search for a prefix finds these pages, written as "3 2 1" */
void expect_found(uint32_t pool, const char *text, const char *salt, const char *pages);

uint64_t sharing_version(paged_seq_id seq);

/** sharing_publish_request - a request to publish the pages of a text; `from` is a page of it, where the keys begin */
struct core_publish sharing_publish_request(struct sharing_keys *keys, paged_seq_id seq, uint32_t from,
					    const char *text, const char *salt);

/** sharing_try_publish - publish the pages [from, ...) of a text, by the session that owns the sequence */
enum paged_status sharing_try_publish(paged_seq_id seq, uint32_t from, const char *text, const char *salt,
				      uint32_t *n_published);
/** sharing_publish - the same, which succeeds; returns the pages published in all */
uint32_t sharing_publish(paged_seq_id seq, uint32_t from, const char *text, const char *salt);
uint32_t sharing_publish_keys(paged_seq_id seq, uint32_t from, uint32_t n, const prefix_key *keys);

/** sharing_write - a sequence with the pages of a text, all of them published */
paged_seq_id sharing_write(uint32_t by_session, uint32_t pool, const char *text, const char *salt);

/** A sequence to start, as in struct seq_start_spec, and its pages. */
struct sharing_start_item {
	uint32_t n_pages;
	const uint32_t *pages;
	uint64_t serial;
	uint32_t n_tokens, n_asked;
	paged_seq_id seq;
	const char *tag;
};

/** sharing_starts - core_seq_start() of n items, at most SHARING_MAX_STARTS with SHARING_MAX_PAGES in all */
#define SHARING_MAX_STARTS 8u
enum paged_status sharing_starts(struct core *core, uint32_t by_session, uint32_t pool, uint32_t n,
				 const struct sharing_start_item *items, paged_seq_id *ids, struct paged_error *error);

enum paged_status sharing_try_start(uint32_t by_session, uint32_t pool, const struct sharing_found *found,
				    uint32_t n_tokens, paged_seq_id *seq);
/** sharing_start - a sequence on what a search finds; n_tokens as in struct seq_start_spec */
paged_seq_id sharing_start(uint32_t by_session, uint32_t pool, const char *text, const char *salt, uint32_t n_tokens);

enum paged_status sharing_try_fork(uint32_t by_session, paged_seq_id parent, uint32_t n_tokens, paged_seq_id *child);
paged_seq_id sharing_fork(uint32_t by_session, paged_seq_id parent, uint32_t n_tokens);

enum paged_status sharing_pin(uint32_t pool, const struct sharing_found *found, uint32_t seconds);

/** expect_cached, expect_pinned - the lists of cached pages, the coldest first, written as "3 2 1" */
void expect_cached(uint32_t pool, const char *pages);
void expect_pinned(uint32_t pool, const char *pages);
void expect_seq(paged_seq_id seq, uint32_t n_writable_from, uint32_t n_published);

/** sharing_count - number of page tables that name a page */
uint32_t sharing_count(uint32_t pool, uint32_t page);

/** sharing_save, sharing_is_saved - copy all regions; false: a region differs from its copy */
void sharing_save(void);
bool sharing_is_saved(void);

/** expect_refused - the call fails with this status, names a cause, and changes no byte of the regions */
#define expect_refused(call, expected)                                     \
	do {                                                               \
		core_error.text[0] = '\0';                                 \
		sharing_save();                                            \
		cr_assert_eq((call), (expected), "%s", core_error.text);   \
		cr_assert_eq(core_error.status, (expected));               \
		cr_assert_neq(core_error.text[0], '\0');                   \
		cr_assert(sharing_is_saved(), "%s", "the region changed"); \
		expect_accounting();                                       \
	} while (0)

#endif
