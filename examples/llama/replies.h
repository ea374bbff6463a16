/* SPDX-License-Identifier: Apache-2.0 */
/**
 * replies.h - answers a process's share of the prompts, and reports the results
 */
#ifndef LLAMA_REPLIES_H
#define LLAMA_REPLIES_H

#include "examples/llama/options.h"
#include "examples/llama/pipeline.h"

enum verdict { VERDICT_NONE, VERDICT_EQUAL, VERDICT_DIFFERENT };

/** Counts of a process's work; a worker also passes them to the process that started it. */
struct report {
	uint32_t worker;
	uint32_t pid;
	uint32_t n_prompts;
	uint64_t n_prompt_tokens, n_tokens; /* prompt tokens computed, answer tokens written */
	uint64_t n_found_tokens;            /* tokens that the prefix cache had */
	double first_token_s;               /* mean time of a prompt until its first token */
	double seconds;
	uint32_t peak_pages;
	enum verdict verdict;
};

/**
 * replies_run - generate answers to prompts `worker`, worker + n_workers, ... of the options
 *
 * The answer of a single prompt is written to stdout token by token.  Each of several
 * answers is written in one piece when it is complete, so that answers of
 * different processes do not mix.
 *
 * @param[in] label  printed before each of several answers ("worker 2"); NULL: "prompt N"
 */
void replies_run(struct pipeline *pipeline, const struct options *options, uint32_t worker, const char *label,
		 struct report *report);

#endif
