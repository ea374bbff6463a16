/* SPDX-License-Identifier: Apache-2.0 */
/**
 * chat_template.h - the ChatML template of a conversation
 *
 *   <|im_start|>system\n...<|im_end|>\n
 *   <|im_start|>user\n...<|im_end|>\n
 *   <|im_start|>assistant\n
 */
#ifndef LLAMA_CHAT_TEMPLATE_H
#define LLAMA_CHAT_TEMPLATE_H

#include "examples/llama/gguf.h"

/**
 * chat_template_system - check the file's template; a template that is not ChatML is refused
 *
 * @return the template's default system prompt, which the caller frees; NULL: the
 *         template has none
 */
char *chat_template_system(const struct gguf *gguf);

/**
 * chat_template_turn - the text of a user's turn, up to where the answer begins
 *
 * @param[in] system  from chat_template_system()
 * @param[in] first   true: the conversation begins, with the system's turn; false:
 *                    the text begins with the end of the previous answer
 * @return the caller frees it
 */
char *chat_template_turn(const char *system, const char *user, bool first);

#endif
