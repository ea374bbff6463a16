/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/pretokenizer.h"

#include <stdlib.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/*
 * White space is spelt out: \s of PCRE2 also takes U+180E, which Unicode's
 * White_Space, and so the reference, does not.
 */
#define SPACE "\\t-\\r\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

static const char gpt2_rule[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+"
				"|[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+";
static const char digit_rule[] = "\\p{N}";

struct pretokenizer {
	pcre2_code *gpt2, *digit;
	pcre2_match_data *match;
};

static pcre2_code *
compile(const char *rule, struct error *error)
{
	pcre2_code *code;
	PCRE2_SIZE offset;
	PCRE2_UCHAR message[128];
	int number;

	code = pcre2_compile((PCRE2_SPTR)rule, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &number, &offset, NULL);
	if (code == NULL) {
		pcre2_get_error_message(number, message, sizeof(message));
		error_set(error, "pre-tokenizer rule: %s", (const char *)message);
	}
	return code;
}

bool
pretokenizer_create(struct pretokenizer **pretokenizer_p, struct error *error)
{
	struct pretokenizer *pretokenizer = calloc(1, sizeof(*pretokenizer));

	if (pretokenizer == NULL)
		return error_set(error, "no memory for the pre-tokenizer");
	pretokenizer->gpt2 = compile(gpt2_rule, error);
	if (pretokenizer->gpt2 != NULL)
		pretokenizer->digit = compile(digit_rule, error);
	pretokenizer->match = pcre2_match_data_create(1, NULL);
	if (pretokenizer->match == NULL)
		error_set(error, "no memory for the pre-tokenizer");
	if (pretokenizer->gpt2 == NULL || pretokenizer->digit == NULL || pretokenizer->match == NULL) {
		pretokenizer_destroy(pretokenizer);
		return false;
	}
	/* Without JIT the rules run slower, no more. */
	pcre2_jit_compile(pretokenizer->gpt2, PCRE2_JIT_COMPLETE);
	pcre2_jit_compile(pretokenizer->digit, PCRE2_JIT_COMPLETE);
	*pretokenizer_p = pretokenizer;
	return true;
}

void
pretokenizer_destroy(struct pretokenizer *pretokenizer)
{
	if (pretokenizer == NULL)
		return;
	pcre2_match_data_free(pretokenizer->match);
	pcre2_code_free(pretokenizer->digit);
	pcre2_code_free(pretokenizer->gpt2);
	free(pretokenizer);
}

/*
 * Next match at or after `at`: 1 with its bounds, 0 for none, -1 with a
 * sentence.  The text was checked to be UTF-8 unless `check`.
 */
static int
find(const struct pretokenizer *pretokenizer, const pcre2_code *code, const char *text, size_t size, size_t at,
     bool check, size_t *start_p, size_t *end_p, struct error *error)
{
	PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(pretokenizer->match);
	PCRE2_UCHAR message[128];
	int number;

	number = pcre2_match(code, (PCRE2_SPTR)text, size, at, check ? 0 : PCRE2_NO_UTF_CHECK, pretokenizer->match,
			     NULL);
	if (number == PCRE2_ERROR_NOMATCH)
		return 0;
	if (number < 0) {
		pcre2_get_error_message(number, message, sizeof(message));
		if (check)
			error_set(error, "text is not UTF-8 at byte %zu: %s",
				  (size_t)pcre2_get_startchar(pretokenizer->match), (const char *)message);
		else
			error_set(error, "pre-tokenizer: %s", (const char *)message);
		return -1;
	}
	*start_p = bounds[0];
	*end_p = bounds[1];
	return 1;
}

/* Text between two digits; its end is an end of text for the rule. */
static bool
run_gpt2(const struct pretokenizer *pretokenizer, const char *text, size_t size, pretokenizer_fn take, void *argument,
	 struct error *error)
{
	size_t start, end;
	int found;

	for (size_t at = 0; at < size; at = end) {
		found = find(pretokenizer, pretokenizer->gpt2, text, size, at, false, &start, &end, error);
		if (found < 0)
			return false;
		if (found == 0) /* the rule takes every character, so this does not happen; nothing may get lost */
			start = end = size;
		if (start > at && !take(argument, text + at, start - at, error))
			return false;
		if (end > start && !take(argument, text + start, end - start, error))
			return false;
	}
	return true;
}

bool
pretokenizer_run(const struct pretokenizer *pretokenizer, const char *text, size_t size, pretokenizer_fn take,
		 void *argument, struct error *error)
{
	size_t start, end;
	bool first = true;
	int found;

	for (size_t at = 0; at < size; at = end, first = false) {
		found = find(pretokenizer, pretokenizer->digit, text, size, at, first, &start, &end, error);
		if (found < 0)
			return false;
		if (found == 0)
			start = end = size;
		if (!run_gpt2(pretokenizer, text + at, start - at, take, argument, error))
			return false;
		if (end > start && !take(argument, text + start, end - start, error))
			return false;
	}
	return true;
}
