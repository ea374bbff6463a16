/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model's file, as examples/llama reads it: the file is refused by die(), or its tensors, tokenizer and chat template
 * can be used.
 */
#include "config.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "examples/llama/chat_template.h"
#include "examples/llama/die.h"
#include "examples/llama/model.h"
#include "examples/llama/tokenizer.h"
#include "tests/fuzz/fuzz.h"
#include "tests/llama/gguf_writer.h"

const char fuzz_name[] = "gguf";
const unsigned int fuzz_mutations = 1000;

/* What die() leaves behind: the linker's --wrap leads each allocation and mapping of the example to these functions. */
#define MAX_LIVE 64
static struct live {
	void *memory;
	size_t mapped; /* 0: it is freed */
} live[MAX_LIVE];

static void
live_add(void *memory, size_t mapped)
{
	for (int i = 0; i < MAX_LIVE; i++)
		if (live[i].memory == NULL) {
			live[i] = (struct live){ memory, mapped };
			return;
		}
	abort();
}

static void
live_remove(const void *memory)
{
	for (int i = 0; i < MAX_LIVE && memory != NULL; i++)
		if (live[i].memory == memory)
			live[i].memory = NULL;
}

void *__real_xcalloc(size_t n, size_t size);
void *__real_xreallocarray(void *old, size_t n, size_t size);
void __real_free(void *memory);
void *__real_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *at, size_t size);
void *__wrap_xcalloc(size_t n, size_t size);
void *__wrap_xreallocarray(void *old, size_t n, size_t size);
void __wrap_free(void *memory);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *at, size_t size);

void *
__wrap_xcalloc(size_t n, size_t size)
{
	void *memory = __real_xcalloc(n, size);

	live_add(memory, 0);
	return memory;
}

void *
__wrap_xreallocarray(void *old, size_t n, size_t size)
{
	void *memory;

	live_remove(old);
	memory = __real_xreallocarray(old, n, size);
	live_add(memory, 0);
	return memory;
}

void
__wrap_free(void *memory)
{
	live_remove(memory);
	__real_free(memory);
}

void *
__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
	void *memory = __real_mmap(at, size, protection, flags, fd, offset);

	if (memory != MAP_FAILED && fd >= 0)
		live_add(memory, size);
	return memory;
}

int
__wrap_munmap(void *at, size_t size)
{
	live_remove(at);
	return __real_munmap(at, size);
}

static void
live_free_all(void)
{
	for (int i = 0; i < MAX_LIVE; i++) {
		if (live[i].memory != NULL && live[i].mapped > 0)
			__real_munmap(live[i].memory, live[i].mapped);
		else if (live[i].memory != NULL)
			__real_free(live[i].memory);
		live[i].memory = NULL;
	}
}

const char *die_label = "fuzz";
int die_status = EXIT_FAILED;
static jmp_buf die_target;

void
die(const char *format, ...)
{
	fuzz_require(format != NULL);
	longjmp(die_target, 1);
}

static volatile unsigned int sum;

/* Reads all that the accessors promise to be inside of the file. */
static void
gguf_read_all(const struct gguf *gguf)
{
	for (uint64_t i = 0; i < gguf->n_tensors; i++) {
		const struct gguf_tensor *tensor = &gguf->tensors[i];
		const uint8_t *bytes = tensor->data;

		for (uint64_t k = 0; k < tensor->size; k++)
			sum += bytes[k];
		for (uint64_t k = 0; k < tensor->name.size; k++)
			sum += (unsigned char)tensor->name.data[k];
		fuzz_require((uintptr_t)tensor->data % 8 == 0);
	}
}

static struct tokenizer *tokenizer; /* in use */

static void
tokenizer_end_use(void)
{
	tokenizer_destroy(tokenizer);
	tokenizer = NULL;
}

static void
gguf_use_tokenizer(const struct gguf *gguf)
{
	static const char text[] = "a aa<|end|> 12 \xc2\xb2 b";
	struct token_list list = { 0 };
	struct utf8_stream stream = { 0 };
	char shown[UTF8_STREAM_TEXT];

	/* tokenizer_create() would refuse it with the pre-tokenizer compiled, which nothing here frees. */
	if (gguf_u32(gguf, "tokenizer.ggml.eos_token_id") >=
	    gguf_array(gguf, "tokenizer.ggml.tokens", GGUF_STRING).n_items)
		return;
	tokenizer = tokenizer_create(gguf);
	tokenizer_encode(tokenizer, text, sizeof(text) - 1, &list);
	token_list_add(&list, &(uint32_t){ tokenizer_end(tokenizer) }, 1);
	for (size_t i = 0; i < list.n; i++)
		utf8_stream_add(&stream, tokenizer, list.ids[i], shown);
	utf8_stream_end(&stream, shown);
	free(list.ids);
	tokenizer_end_use();
}

static void
gguf_use(const char *path)
{
	struct gguf *gguf = gguf_open(path);
	char *system, *turn;

	gguf_read_all(gguf);
	/* A file with a model has the key; others are those of a tokenizer. */
	if (gguf_has(gguf, "general.architecture"))
		model_destroy(model_create(gguf, false));
	if (gguf_has(gguf, "tokenizer.chat_template")) {
		system = chat_template_system(gguf);
		turn = chat_template_turn(system, "a", true);
		free(turn);
		free(system);
	}
	gguf_use_tokenizer(gguf);
	gguf_close(gguf);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd = memfd_create("gguf", MFD_CLOEXEC);
	char path[32];

	fuzz_require(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (setjmp(die_target) == 0)
		gguf_use(path);
	/* A token that is a part of a character leaves text that is not UTF-8, which ends the program. */
	tokenizer_end_use();
	live_free_all();
	close(fd);
	return 0;
}

static void
seed_tokenizer(struct writer *writer, bool has_template)
{
	static const char *const tokens[] = { "a", "aa", "b", "<|end|>", "ab" };

	writer_kv_text(writer, "tokenizer.ggml.model", "gpt2");
	writer_kv_text(writer, "tokenizer.ggml.pre", "smollm");
	writer_kv_u32(writer, "tokenizer.ggml.eos_token_id", 3);
	writer_kv_array(writer, "tokenizer.ggml.tokens", GGUF_STRING, 5);
	for (int i = 0; i < 5; i++)
		writer_text(writer, tokens[i]);
	writer_kv_array(writer, "tokenizer.ggml.token_type", GGUF_I32, 5);
	for (uint32_t i = 0; i < 5; i++)
		writer_u32(writer, i == 3 ? 3 : 1);
	writer_kv_array(writer, "tokenizer.ggml.merges", GGUF_STRING, 1);
	writer_text(writer, "a a");
	if (has_template)
		writer_kv_text(writer, "tokenizer.chat_template",
			       "<|im_start|>system\\nBe<|im_end|>{{'<|im_start|>' + message['role'] + '' + "
			       "message['content'] + '<|im_end|>'}}");
}

/* One layer, with an embedding of 2, one head and 5 tokens; each tensor takes 32 bytes in the file. */
static void
seed_model(struct writer *writer)
{
	static const struct {
		const char *name;
		uint32_t columns, rows;
	} tensors[] = {
		{ "token_embd.weight", 2, 5 },      { "output_norm.weight", 2, 1 },
		{ "blk.0.attn_norm.weight", 2, 1 }, { "blk.0.ffn_norm.weight", 2, 1 },
		{ "blk.0.attn_q.weight", 2, 2 },    { "blk.0.attn_k.weight", 2, 2 },
		{ "blk.0.attn_v.weight", 2, 2 },    { "blk.0.attn_output.weight", 2, 2 },
		{ "blk.0.ffn_gate.weight", 2, 4 },  { "blk.0.ffn_up.weight", 2, 4 },
		{ "blk.0.ffn_down.weight", 4, 2 },
	};
	static const uint8_t zeros[64];
	uint64_t offset = 0;
	size_t n = sizeof(tensors) / sizeof(tensors[0]);

	writer_header(writer, n, 16);
	writer_kv_text(writer, "general.architecture", "llama");
	writer_kv_u32(writer, "general.alignment", 32);
	writer_kv_u32(writer, "llama.block_count", 1);
	writer_kv_u32(writer, "llama.embedding_length", 2);
	writer_kv_u32(writer, "llama.feed_forward_length", 4);
	writer_kv_u32(writer, "llama.attention.head_count", 1);
	writer_kv_u32(writer, "llama.attention.head_count_kv", 1);
	writer_kv_u32(writer, "llama.context_length", 64);
	writer_kv_f32(writer, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
	seed_tokenizer(writer, true);
	for (size_t i = 0; i < n; i++) {
		writer_tensor(writer, tensors[i].name, tensors[i].columns, tensors[i].rows, GGUF_TYPE_F32, offset);
		offset += (tensors[i].columns * tensors[i].rows * 4 + 31) / 32 * 32;
	}
	writer_align(writer);
	for (uint64_t i = 0; i < offset; i += 32)
		writer_bytes(writer, zeros, 32);
}

size_t
fuzz_seed(size_t index, uint8_t *buffer, size_t buffer_size)
{
	struct writer writer = { 0 };
	size_t size;

	if (index > 1)
		return 0;
	if (index == 0) {
		writer_header(&writer, 0, 6);
		seed_tokenizer(&writer, false);
	} else {
		seed_model(&writer);
	}
	size = writer.size;
	fuzz_require(size <= buffer_size);
	memcpy(buffer, writer.data, size);
	writer_free(&writer);
	return size;
}
