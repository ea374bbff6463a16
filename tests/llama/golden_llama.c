/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/llama/golden_llama.h"

#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *
read_text(unsigned int number, const char *ending)
{
	const char *source = getenv("PAGED_SRCDIR");
	char path[4096];
	char *text = NULL;
	size_t size = 0;
	FILE *file;

	snprintf(path, sizeof(path), "%s/tests/golden/llama/%02u.%s", source != NULL ? source : ".", number, ending);
	file = fopen(path, "r");
	if (file == NULL || (getdelim(&text, &size, '\0', file) < 0 && ferror(file)))
		err(99, "%s", path);
	fclose(file);
	return text != NULL ? text : strdup("");
}

/* Numbers of the line "NAME : ..."; every one is also written as a float. */
static size_t
read_line(const char *text, const char *name, uint32_t **ids_p, float **values_p)
{
	const char *at = strstr(text, name), *end;
	size_t n = 0, size;
	char *next;

	if (at == NULL)
		errx(99, "golden: no line \"%s\"", name);
	at += strlen(name);
	end = strchr(at, '\n');
	size = (size_t)((end != NULL ? end : at + strlen(at)) - at) + 1;
	*ids_p = calloc(size, sizeof(**ids_p));
	*values_p = calloc(size, sizeof(**values_p));
	while (end == NULL || at < end) {
		(*values_p)[n] = strtof(at, &next);
		if (next == at)
			break;
		(*ids_p)[n] = (uint32_t)strtoul(at, NULL, 10);
		n++;
		at = next;
	}
	return n;
}

void
golden_llama_read(unsigned int number, struct golden_llama *golden)
{
	char *text = read_text(number, "tokens");
	uint32_t *ids;
	float *values;

	golden->user = read_text(number, "user");
	golden->answer = read_text(number, "answer");
	golden->n_prompt = read_line(text, "prompt : ", &golden->prompt, &values);
	free(values);
	golden->n_greedy = read_line(text, "greedy : ", &golden->greedy, &values);
	free(values);
	if (read_line(text, "lead : ", &ids, &golden->lead) != golden->n_greedy)
		errx(99, "golden %02u: leads and tokens differ in number", number);
	free(ids);
	if (read_line(text, "first : ", &ids, &values) != 2 * (size_t)GOLDEN_LLAMA_FIRST)
		errx(99, "golden %02u: not %u first logits", number, GOLDEN_LLAMA_FIRST);
	for (size_t i = 0; i < GOLDEN_LLAMA_FIRST; i++) {
		golden->first_id[i] = ids[2 * i];
		golden->first_logit[i] = values[2 * i + 1];
	}
	free(ids);
	free(values);
	free(text);
}

void
golden_llama_free(struct golden_llama *golden)
{
	free(golden->user);
	free(golden->answer);
	free(golden->prompt);
	free(golden->greedy);
	free(golden->lead);
}
