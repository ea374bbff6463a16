/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The heart of a ChatML template, blanks and newlines left out; both ways to name a field. */
static const char *const hearts[] = {
	"'<|im_start|>'+message['role']+''+message['content']+'<|im_end|>'",
	"'<|im_start|>'+message.role+''+message.content+'<|im_end|>'",
};
static const char system_start[] = "<|im_start|>system\n";
static const char turn_end[] = "<|im_end|>";

/* A copy in which a backslash and n, as some files have it, is a newline. */
static char *
copy_template(struct gguf_string text)
{
	char *copy = malloc(text.size + 1);
	size_t n = 0;

	for (size_t i = 0; i < text.size && copy != NULL; i++) {
		bool escaped = text.data[i] == '\\' && i + 1 < text.size && text.data[i + 1] == 'n';

		copy[n++] = escaped ? '\n' : text.data[i];
		i += escaped;
	}
	if (copy != NULL)
		copy[n] = '\0';
	return copy;
}

static bool
is_chatml(const char *template)
{
	char *tight = strdup(template);
	size_t n = 0;
	bool found = false;

	if (tight == NULL)
		return false;
	for (const char *c = template; *c != '\0'; c++)
		if (*c != ' ' && *c != '\n')
			tight[n++] = *c == '"' ? '\'' : *c;
	tight[n] = '\0';
	for (size_t i = 0; i < sizeof(hearts) / sizeof(hearts[0]); i++)
		found = found || strstr(tight, hearts[i]) != NULL;
	free(tight);
	return found;
}

bool
chat_create(struct chat *chat, const struct gguf *gguf, struct error *error)
{
	struct gguf_string text;
	char *template, *start, *end;

	*chat = (struct chat){ 0 };
	if (!gguf_string(gguf, "tokenizer.chat_template", &text, error))
		return false;
	template = copy_template(text);
	if (template == NULL || !is_chatml(template)) {
		free(template);
		return error_set(error, "%s: the chat template \"%.*s...\" is not ChatML, the only one known here",
				 gguf_path(gguf), (int)(text.size > 60 ? 60 : text.size), text.data);
	}
	start = strstr(template, system_start);
	end = start != NULL ? strstr(start, turn_end) : NULL;
	if (end != NULL) {
		start += strlen(system_start);
		chat->system = strndup(start, (size_t)(end - start));
		if (chat->system == NULL)
			error_set(error, "%s: no memory for the chat template", gguf_path(gguf));
	}
	free(template);
	return end == NULL || chat->system != NULL;
}

void
chat_destroy(struct chat *chat)
{
	free(chat->system);
	chat->system = NULL;
}

char *
chat_turn(const struct chat *chat, const char *user, bool first)
{
	char *text = NULL;
	bool system = first && chat->system != NULL;
	int n;

	n = asprintf(&text, "%s%s%s%s<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n",
		     first ? "" : "<|im_end|>\n", system ? system_start : "", system ? chat->system : "",
		     system ? "<|im_end|>\n" : "", user);
	return n >= 0 ? text : NULL;
}
