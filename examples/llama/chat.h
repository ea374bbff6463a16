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

/**
 * chat_system - recognise the file's template; one that is not ChatML is refused
 *
 * @return the text of the system's turn where the user gives none, to be
 *         freed; NULL: the template has no such turn
 */
char *chat_system(const struct gguf *gguf);

/**
 * chat_turn - the text of a user's turn, up to where the answer begins
 *
 * @param[in] system  from chat_system()
 * @param[in] first   the conversation begins: with the system's turn; later
 *                    ones begin with the end of the answer before
 * @return to be freed
 */
char *chat_turn(const char *system, const char *user, bool first);

#endif
