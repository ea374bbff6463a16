/* SPDX-License-Identifier: Apache-2.0 */
/**
 * golden_llama.h - reads tests/golden/llama (tests/golden/README.md describes the files)
 *
 * A file that cannot be read ends the test program.
 */
#ifndef TESTS_GOLDEN_LLAMA_H
#define TESTS_GOLDEN_LLAMA_H

#include <stddef.h>
#include <stdint.h>

#define GOLDEN_LLAMA_CASES 12u
#define GOLDEN_LLAMA_FIRST 5u

struct golden_llama {
	char *user, *answer;
	uint32_t *prompt, *greedy;
	float *lead; /* [n_greedy] */
	size_t n_prompt, n_greedy;
	uint32_t first_id[GOLDEN_LLAMA_FIRST]; /* the tokens with the largest logits after the prompt */
	float first_logit[GOLDEN_LLAMA_FIRST];
};

void golden_llama_read(unsigned int number, struct golden_llama *golden);
void golden_llama_free(struct golden_llama *golden);

#endif
