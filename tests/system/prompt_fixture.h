/* SPDX-License-Identifier: Apache-2.0 */
/**
 * prompt_fixture.h - prompts whose K and V show to which prefix they belong
 *
 * For it_* programs that share pages.  K and V of a token are computed from all
 * tokens up to it, as in a model, so prompt_verify() finds any page that was
 * shared wrongly.  Any failure in these functions ends the test.
 */
#ifndef TESTS_PROMPT_FIXTURE_H
#define TESTS_PROMPT_FIXTURE_H

#include "tests/support/worker_fixture.h"

struct prompt {
	uint32_t n; /* tokens */
	uint32_t tokens[WORKER_MAX_LENGTH];
};

/** Pool "test" with no pages evicted ahead, so that the numbers of free and cached pages are exact. */
#define PROMPT_POOL(more) "pool test {\n" WORKER_POOL_SETTINGS "\n free-pages = 0 " more "\n}\n"

/** prompt_make - n random tokens; equal seeds give equal tokens */
struct prompt prompt_make(uint64_t seed, uint32_t n);

/** prompt_diverge - the prompt with other tokens from token `at` on, n in all */
struct prompt prompt_diverge(const struct prompt *prompt, uint32_t at, uint64_t seed, uint32_t n);

/** prompt_prefix - the first n_tokens of the prompt, for calls of the library; points into it */
struct paged_prefix prompt_prefix(const struct prompt *prompt, uint32_t n_tokens);

/** prompt_match - how many of the prompt's tokens are published */
uint32_t prompt_match(struct worker_fixture *worker, const struct prompt *prompt);

/** prompt_start - start a sequence on what is published, with room for the whole prompt; n_shared may be NULL */
paged_seq_id prompt_start(struct worker_fixture *worker, const struct prompt *prompt, uint32_t *n_shared);

/** prompt_write - append K and V of tokens [from, to) in all layers */
void prompt_write(struct worker_fixture *worker, paged_seq_id seq, const struct prompt *prompt, uint32_t from,
		  uint32_t to);

/** prompt_verify - the first n_tokens K and V of a sequence, gathered, are those of the prompt bit for bit */
void prompt_verify(struct worker_fixture *worker, paged_seq_id seq, const struct prompt *prompt, uint32_t n_tokens);

/** prompt_verify_pages - the same of whole pages that no sequence needs to have */
void prompt_verify_pages(struct worker_fixture *worker, const uint32_t *pages, const struct prompt *prompt,
			 uint32_t n_tokens);

/** prompt_publish - publish the first n_tokens, and wait until the daemon has answered; returns tokens published */
uint32_t prompt_publish(struct worker_fixture *worker, paged_seq_id seq, const struct prompt *prompt,
			uint32_t n_tokens);

/** prompt_compute - start, write what is not shared, and publish; the sequence's whole pages are published then */
paged_seq_id prompt_compute(struct worker_fixture *worker, const struct prompt *prompt);

/** prompt_info - what paged_seq_read() tells about a sequence; pages NULL: not wanted, else [WORKER_MAX_LENGTH] */
struct paged_seq_info prompt_info(struct worker_fixture *worker, paged_seq_id seq, uint32_t *pages);

/** prompt_expect_pages - the pool's free, referenced and cached pages, and the rest in quarantine; check holds */
void prompt_expect_pages(struct worker_fixture *worker, uint32_t n_free, uint32_t n_referenced, uint32_t n_cached);

/** prompt_wait_unused - wait until every page is free or cached */
void prompt_wait_unused(struct worker_fixture *observer);

#endif
