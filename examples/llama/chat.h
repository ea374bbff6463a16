/* SPDX-License-Identifier: Apache-2.0 */
/**
 * chat.h - the words around a conversation: ChatML
 *
 *   <|im_start|>system\n...<|im_end|>\n
 *   <|im_start|>user\n...<|im_end|>\n
 *   <|im_start|>assistant\n
 */
#ifndef LLAMA_CHAT_H
#define LLAMA_CHAT_H

#include "examples/llama/gguf.h"

struct chat {
	char *system; /* what the template says when nobody else does; NULL: no such turn */
};

/** chat_create - recognise the file's template; one that is not ChatML is refused */
bool chat_create(struct chat *chat, const struct gguf *gguf, struct error *error);

/** chat_destroy - also of a zeroed one */
void chat_destroy(struct chat *chat);

/**
 * chat_turn - the text of a user's turn, up to where the answer begins
 *
 * @param[in] first  the conversation begins: with the system's turn; later
 *                   ones begin with the end of the answer before
 * @return to be freed; NULL without memory
 */
char *chat_turn(const struct chat *chat, const char *user, bool first);

#endif
