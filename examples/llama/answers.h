/* SPDX-License-Identifier: Apache-2.0 */
/**
 * answers.h - answers a process's share of the prompts, and says how it went
 */
#ifndef LLAMA_ANSWERS_H
#define LLAMA_ANSWERS_H

#include "examples/llama/options.h"
#include "examples/llama/setup.h"

enum verdict { VERDICT_NONE, VERDICT_EQUAL, VERDICT_DIFFERENT };

/** What a process did; also what a worker tells the process that started it. */
struct report {
	uint32_t worker;
	uint32_t pid;
	uint32_t n_prompts;
	uint64_t n_prompt_tokens, n_tokens; /* read and written */
	double seconds;
	uint32_t peak_pages;
	enum verdict verdict;
};

/**
 * answers_run - prompts worker, worker + n_workers, ... of the options
 *
 * An only prompt's answer is written to stdout as it comes; of several, each
 * is written in one piece when it is whole, so that those of different
 * processes do not mix.
 *
 * @param[in] label  before each answer of several ("worker 2"); NULL: "prompt N"
 */
void answers_run(struct setup *setup, const struct options *options, uint32_t worker, const char *label,
		 struct report *report);

#endif
