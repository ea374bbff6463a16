/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/chat_template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/llama/die.h"
#include "examples/llama/xalloc.h"

/*
 * A template that contains one of these, blanks and newlines removed, is ChatML.
 * They differ in how a field is named.
 */
static const char *const chatml_patterns[] = {
	"'<|im_start|>'+message['role']+''+message['content']+'<|im_end|>'",
	"'<|im_start|>'+message.role+''+message.content+'<|im_end|>'",
};
static const char system_start[] = "<|im_start|>system\n";
static const char turn_end[] = "<|im_end|>";

/* A copy in which each backslash followed by n, as some files write it, is a newline. */
static char *
chat_template_unescape(struct gguf_string text)
{
	char *copy = xcalloc(text.size + 1, 1);
	size_t n = 0;

	for (size_t i = 0; i < text.size; i++) {
		bool escaped = text.data[i] == '\\' && i + 1 < text.size && text.data[i + 1] == 'n';

		copy[n++] = escaped ? '\n' : text.data[i];
		i += escaped;
	}
	return copy;
}

static bool
chat_template_is_chatml(const char *template)
{
	char *tight = xcalloc(strlen(template) + 1, 1);
	size_t n = 0;
	bool found;

	for (const char *c = template; *c != '\0'; c++)
		if (*c != ' ' && *c != '\n')
			tight[n++] = *c == '"' ? '\'' : *c;
	found = strstr(tight, chatml_patterns[0]) != NULL || strstr(tight, chatml_patterns[1]) != NULL;
	free(tight);
	return found;
}

char *
chat_template_system(const struct gguf *gguf)
{
	struct gguf_string text = gguf_string(gguf, "tokenizer.chat_template");
	char *template = chat_template_unescape(text), *start = strstr(template, system_start);
	char *end = start != NULL ? strstr(start, turn_end) : NULL, *system = NULL;

	if (!chat_template_is_chatml(template))
		die("%s: the chat template \"%.*s...\" is not ChatML, the only one known here", gguf->path,
		    GGUF_SHOWN(text));
	if (end != NULL) {
		*end = '\0';
		system = strdup(start + strlen(system_start));
	}
	free(template);
	return system;
}

char *
chat_template_turn(const char *system, const char *user, bool first)
{
	bool introduce = first && system != NULL;
	char *text;

	if (asprintf(&text, "%s%s%s%s<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n",
		     first ? "" : "<|im_end|>\n", introduce ? system_start : "", introduce ? system : "",
		     introduce ? "<|im_end|>\n" : "", user) < 0)
		die("no memory for a prompt");
	return text;
}
