/* SPDX-License-Identifier: Apache-2.0 */
/* A small vocabulary of the test; and, if PAGED_MODEL names the demo's model, the golden token ids. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "examples/llama/chat_template.h"
#include "examples/llama/tokenizer.h"
#include "tests/llama/catch_die.h"
#include "tests/llama/golden_llama.h"
#include "tests/llama/gguf_writer.h"

#define N_PLAIN 256u

/* Spelling of a byte in the vocabulary, as GPT-2 has it. */
static const char *
spell(unsigned int byte)
{
	static char text[3];
	unsigned int point = 0, next = 256;

	for (unsigned int b = 0; b <= byte; b++)
		point = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174 ? b : next++;
	memset(text, 0, sizeof(text));
	text[0] = (char)(point < 128 ? point : 0xc0 | point >> 6);
	if (point >= 128)
		text[1] = (char)(0x80 | (point & 0x3f));
	return text;
}

struct change {
	const char *model, *rule, *merge, *template;
	uint32_t end;
	int n_kinds;
};

static const char *const extra[] = { "ab",
				     "abc",
				     "bc",
				     "aa",
				     "\xc4\xa0"
				     "a",
				     "<|end|>",
				     "<|end|>>",
				     "<|start|>" };
static const char *const merges[] = { "a b", "ab c", "b c", "a a", "\xc4\xa0 a" };
#define N_EXTRA (sizeof(extra) / sizeof(extra[0]))
#define N_MERGES (sizeof(merges) / sizeof(merges[0]))
/* Ids of what follows the 256 bytes. */
enum { AB = N_PLAIN, ABC, BC, AA, SPACE_A, END, END2, START };

static struct gguf *
small_file(const struct change *change)
{
	struct writer writer = { 0 };
	struct gguf *gguf;
	uint32_t n_tokens = N_PLAIN + N_EXTRA;

	writer_header(&writer, 0, 7);
	writer_kv_text(&writer, "tokenizer.ggml.model", change->model != NULL ? change->model : "gpt2");
	writer_kv_text(&writer, "tokenizer.ggml.pre", change->rule != NULL ? change->rule : "smollm");
	writer_kv_u32(&writer, "tokenizer.ggml.eos_token_id", change->end != 0 ? change->end : END);
	writer_kv_array(&writer, "tokenizer.ggml.tokens", GGUF_STRING, n_tokens);
	for (uint32_t i = 0; i < n_tokens; i++)
		writer_text(&writer, i < N_PLAIN ? spell(i) : extra[i - N_PLAIN]);
	writer_kv_array(&writer, "tokenizer.ggml.token_type", GGUF_I32, change->n_kinds ? 3 : n_tokens);
	for (uint32_t i = 0; i < (change->n_kinds ? 3 : n_tokens); i++)
		writer_u32(&writer, i >= END ? 3 : 1);
	writer_kv_array(&writer, "tokenizer.ggml.merges", GGUF_STRING, N_MERGES);
	for (uint32_t i = 0; i < N_MERGES; i++)
		writer_text(&writer, i == 1 && change->merge != NULL ? change->merge : merges[i]);
	writer_kv_text(&writer, "tokenizer.chat_template", change->template != NULL ? change->template : "none");
	gguf = writer_open(&writer, writer.size);
	writer_free(&writer);
	return gguf;
}

static void
check_encode(const char *text, size_t n, const uint32_t *expected)
{
	struct gguf *gguf = small_file(&(struct change){ 0 });
	struct tokenizer *tokenizer = tokenizer_create(gguf);
	struct token_list list = { 0 };

	tokenizer_encode(tokenizer, text, strlen(text), &list);
	cr_assert_eq(list.n, n, "\"%s\": %zu tokens, %zu expected", text, list.n, n);
	for (size_t i = 0; i < n; i++)
		cr_assert_eq(list.ids[i], expected[i], "\"%s\": token %zu is %u, not %u", text, i, list.ids[i],
			     expected[i]);
	free(list.ids);
	tokenizer_destroy(tokenizer);
	gguf_close(gguf);
}
#define CHECK_ENCODE(text, ...) \
	check_encode(text, sizeof((uint32_t[]){ __VA_ARGS__ }) / sizeof(uint32_t), (uint32_t[]){ __VA_ARGS__ })

Test(tokenizer, lowest_rank_then_leftmost)
{
	CHECK_ENCODE("abc", ABC);
	CHECK_ENCODE("bc", BC);
	CHECK_ENCODE("aaa", AA, 'a');
	CHECK_ENCODE("aaaa", AA, AA);
	CHECK_ENCODE("abab", AB, AB);
	CHECK_ENCODE("aabc", 'a', ABC);
}

Test(tokenizer, pre_tokenization)
{
	CHECK_ENCODE("a a", 'a', SPACE_A);
	CHECK_ENCODE("a  a", 'a', ' ', SPACE_A); /* the last blank goes with the word */
	CHECK_ENCODE("a  1", 'a', ' ', ' ', '1');
	CHECK_ENCODE("ab1bc", AB, '1', BC);
	CHECK_ENCODE("12", '1', '2');
	CHECK_ENCODE("a\xc2\xb2"
		     "bc",
		     'a', 0xc2, 0xb2, BC); /* a superscript is a number */
}

Test(tokenizer, special_tokens_in_the_text)
{
	CHECK_ENCODE("<|start|>abc<|end|>", START, ABC, END);
	CHECK_ENCODE("a<|end|>>", 'a', END2); /* the longest */
	CHECK_ENCODE("<|end|", '<', '|', 'e', 'n', 'd', '|');
}

static void
encode_bytes(void *tokenizer)
{
	struct token_list list = { 0 };

	tokenizer_encode(tokenizer, "ab\xff", 3, &list);
}

Test(tokenizer, invalid_utf8_is_encoded)
{
	struct gguf *gguf = small_file(&(struct change){ 0 });
	struct tokenizer *tokenizer = tokenizer_create(gguf);

	cr_assert(call_dies(encode_bytes, tokenizer));
	cr_assert(strstr(die_text, "not UTF-8 at byte 2"), "%s", die_text);
	tokenizer_destroy(tokenizer);
	gguf_close(gguf);
}

static void
create_tokenizer(void *gguf)
{
	tokenizer_create(gguf);
}

static void
refuse(const struct change *change, const char *sentence)
{
	struct gguf *gguf = small_file(change);

	cr_assert(call_dies(create_tokenizer, gguf), "accepted, though: %s", sentence);
	cr_assert(strstr(die_text, sentence), "\"%s\" does not say \"%s\"", die_text, sentence);
	gguf_close(gguf);
}

Test(tokenizer, invalid_vocabularies_are_refused)
{
	refuse(&(struct change){ .model = "llama" }, "tokenizer model \"llama\" is not supported");
	refuse(&(struct change){ .rule = "qwen2" }, "pre-tokenizer \"qwen2\" is not supported; smollm is");
	refuse(&(struct change){ .merge = "abc" }, "merge 1, \"abc\", is not two tokens that make a third");
	refuse(&(struct change){ .merge = "a c" }, "merge 1, \"a c\", is not two tokens that make a third");
	refuse(&(struct change){ .end = 7777 }, "eos_token_id = 7777, the vocabulary has 264 tokens");
	refuse(&(struct change){ .n_kinds = 1 }, "3 token types for 264 tokens");
}

/* A character spans tokens; broken ones become U+FFFD. */
Test(tokenizer, streams_whole_characters)
{
	static const struct {
		unsigned int byte;
		const char *text;
	} steps[] = { { 'a', "a" },
		      { 0xe6, "" },
		      { 0x9d, "" },
		      { 0xb1, "\xe6\x9d\xb1" },
		      { 0xe6, "" },
		      { 'b', "\xef\xbf\xbd"
			     "b" },
		      { 0xff, "\xef\xbf\xbd" },
		      { 0xed, "" },
		      { 0xa0, "\xef\xbf\xbd\xef\xbf\xbd" },
		      { 0xf0, "" } };
	struct gguf *gguf = small_file(&(struct change){ 0 });
	struct tokenizer *tokenizer = tokenizer_create(gguf);
	struct utf8_stream stream = { 0 };
	char text[UTF8_STREAM_TEXT];
	size_t n;

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		n = utf8_stream_add(&stream, tokenizer, steps[i].byte, text);
		cr_assert(n == strlen(steps[i].text) && memcmp(text, steps[i].text, n) == 0, "step %zu: \"%.*s\"", i,
			  (int)n, text);
	}
	cr_assert_eq(utf8_stream_add(&stream, tokenizer, END, text), 0);
	cr_assert_eq(utf8_stream_end(&stream, text), 3);
	cr_assert_eq(utf8_stream_end(&stream, text), 0);
	tokenizer_destroy(tokenizer);
	gguf_close(gguf);
}

static void
read_template(void *gguf)
{
	chat_template_system(gguf);
}

Test(chat, templates)
{
	static const char chatml[] = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
				     "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}";
	struct gguf *gguf = small_file(&(struct change){ .template = chatml });
	char *text;

	cr_assert_null(chat_template_system(gguf));
	text = chat_template_turn(NULL, "hi", true);
	cr_assert_str_eq(text, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
	free(text);
	gguf_close(gguf);

	gguf = small_file(&(struct change){ .template = "{{ bos_token }}[INST]" });
	cr_assert(call_dies(read_template, gguf));
	cr_assert(strstr(die_text, "the chat template \"{{ bos_token }}[INST]...\" is not ChatML"), "%s", die_text);
	gguf_close(gguf);
}

/* Whole chat prompts, digits, blanks, code and scripts: the ids that the reference has. */
Test(tokenizer, token_ids_equal_the_reference)
{
	const char *path = getenv("PAGED_MODEL");
	struct tokenizer *tokenizer;
	struct gguf *gguf;
	char *system;

	if (path == NULL)
		cr_skip_test("PAGED_MODEL names no model");
	gguf = gguf_open(path);
	tokenizer = tokenizer_create(gguf);
	system = chat_template_system(gguf);
	for (unsigned int i = 0; i < GOLDEN_LLAMA_CASES; i++) {
		struct golden_llama golden;
		struct token_list list = { 0 };
		char *text;

		golden_llama_read(i, &golden);
		text = chat_template_turn(system, golden.user, true);
		tokenizer_encode(tokenizer, text, strlen(text), &list);
		cr_assert_eq(list.n, golden.n_prompt, "prompt %u: %zu tokens, %zu expected", i, list.n,
			     golden.n_prompt);
		for (size_t t = 0; t < list.n; t++)
			cr_assert_eq(list.ids[t], golden.prompt[t], "prompt %u: token %zu is %u, not %u", i, t,
				     list.ids[t], golden.prompt[t]);
		free(text);
		free(list.ids);
		golden_llama_free(&golden);
	}
	free(system);
	tokenizer_destroy(tokenizer);
	gguf_close(gguf);
}
