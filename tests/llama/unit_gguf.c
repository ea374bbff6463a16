/* SPDX-License-Identifier: Apache-2.0 */
/* A valid file reads back; each invalid file is refused with a message that names the error. */
#include <criterion/criterion.h>

#include "tests/llama/catch_die.h"
#include "tests/llama/gguf_writer.h"

static void
write_small(struct writer *writer)
{
	float data[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };

	writer_header(writer, 2, 4);
	writer_kv_u32(writer, "a.u32", 7);
	writer_kv_f32(writer, "a.f32", 0.5f);
	writer_kv_text(writer, "a.text", "hello");
	writer_kv_array(writer, "a.list", GGUF_STRING, 2);
	writer_text(writer, "one");
	writer_text(writer, "");
	writer_tensor(writer, "first", 2, 2, GGUF_TYPE_F32, 0);
	writer_tensor(writer, "second", 4, 1, GGUF_TYPE_F32, 32);
	writer_align(writer);
	writer_bytes(writer, data, 16);
	writer_align(writer);
	writer_bytes(writer, data + 4, 16);
}

static void
read_text_as_number(void *gguf)
{
	gguf_u32(gguf, "a.text");
}

static void
read_missing(void *gguf)
{
	gguf_u32(gguf, "b");
}

Test(gguf, reads_back)
{
	struct writer writer = { 0 };
	struct gguf *gguf;
	struct gguf_array list;
	const struct gguf_tensor *tensor;

	write_small(&writer);
	gguf = writer_open(&writer, writer.size);
	cr_assert_eq(gguf_u32(gguf, "a.u32"), 7);
	cr_assert_eq(gguf_f32(gguf, "a.f32"), 0.5f);
	cr_assert(gguf_string_is(gguf_string(gguf, "a.text"), "hello"));
	list = gguf_array(gguf, "a.list", GGUF_STRING);
	cr_assert_eq(list.n_items, 2);
	cr_assert(gguf_string_is(gguf_array_next(&list), "one"));
	cr_assert(gguf_string_is(gguf_array_next(&list), ""));
	cr_assert(call_dies(read_text_as_number, gguf));
	cr_assert(strstr(die_text, "metadata a.text has type 8, type 4 is expected"), "%s", die_text);
	cr_assert(call_dies(read_missing, gguf));
	cr_assert(strstr(die_text, "metadata b is missing"), "%s", die_text);
	tensor = gguf_tensor(gguf, "second");
	cr_assert(tensor != NULL && tensor->size == 16 && ((const float *)tensor->data)[3] == 8);
	cr_assert_null(gguf_tensor(gguf, "third"));
	gguf_close(gguf);
	writer_free(&writer);
}

/* The file as far as it was written. */
static void
open_and_close(void *argument)
{
	const struct writer *writer = argument;

	gguf_close(writer_open(writer, writer->size));
}

/* Every shorter file is refused; none is read past its end (the sanitizers watch). */
Test(gguf, truncated_files_are_refused)
{
	struct writer writer = { 0 };
	size_t size;

	write_small(&writer);
	size = writer.size;
	for (writer.size = 0; writer.size < size; writer.size++)
		cr_assert(call_dies(open_and_close, &writer), "%zu of %zu bytes were accepted", writer.size, size);
	writer_free(&writer);
}

/* Every byte of the small file set to a few values: accepted or refused, never a fault. */
Test(gguf, any_byte_changed)
{
	static const uint8_t values[] = { 0x00, 0x01, 0x7f, 0x80, 0xff };
	struct writer writer = { 0 };

	write_small(&writer);
	for (size_t at = 0; at < writer.size; at++) {
		uint8_t was = writer.data[at];

		for (size_t i = 0; i < sizeof(values); i++) {
			writer.data[at] = values[i];
			call_dies(open_and_close, &writer);
		}
		writer.data[at] = was;
	}
	writer_free(&writer);
}

static void
refuse(struct writer *writer, const char *sentence)
{
	cr_assert(call_dies(open_and_close, writer), "accepted, though: %s", sentence);
	cr_assert(strstr(die_text, sentence), "\"%s\" does not say \"%s\"", die_text, sentence);
	writer_free(writer);
}

Test(gguf, invalid_headers_are_refused)
{
	struct writer writer = { 0 };

	writer_bytes(&writer, "GGML\3\0\0\0", 8);
	refuse(&writer, "not a GGUF file");
	writer_bytes(&writer, "GGUF\1\0\0\0", 8);
	refuse(&writer, "GGUF version 1 is not supported");
	writer_header(&writer, UINT64_MAX, 0);
	refuse(&writer, "header claims 0 metadata entries and 18446744073709551615 tensors");
	writer_header(&writer, 0, UINT64_MAX / 2);
	refuse(&writer, "header claims 9223372036854775807 metadata entries");
}

Test(gguf, invalid_metadata_is_refused)
{
	struct writer writer = { 0 };

	writer_header(&writer, 0, 1);
	writer_u64(&writer, UINT64_MAX);
	writer_u64(&writer, 0);
	refuse(&writer, "header: 18446744073709551615 bytes needed at offset 32");

	writer_header(&writer, 0, 1);
	writer_text(&writer, "key");
	writer_u32(&writer, 77);
	refuse(&writer, "metadata key: value type 77 is not supported");

	writer_header(&writer, 0, 1);
	writer_kv_array(&writer, "key", GGUF_STRING, UINT64_MAX / 4);
	refuse(&writer, "metadata key: array of 4611686018427387903 elements");

	writer_header(&writer, 0, 1);
	writer_kv_array(&writer, "key", GGUF_ARRAY, 1);
	writer_u64(&writer, 0);
	refuse(&writer, "metadata key: array of type 9 is not supported");

	writer_header(&writer, 0, 1);
	writer_kv_u32(&writer, "general.alignment", 24);
	refuse(&writer, "general.alignment = 24 is not a power of two");
}

Test(gguf, invalid_tensors_are_refused)
{
	struct writer writer = { 0 };

	writer_header(&writer, 1, 0);
	writer_tensor(&writer, "blk.0.ffn_down.weight", 256, 1, 14, 0);
	refuse(&writer, "tensor blk.0.ffn_down.weight: type Q6_K (14) is not supported");

	writer_header(&writer, 1, 0);
	writer_tensor(&writer, "x", 256, 1, 0xffffffffu, 0);
	refuse(&writer, "tensor x: type unknown (4294967295) is not supported");

	writer_header(&writer, 1, 0);
	writer_tensor(&writer, "x", UINT64_MAX / 2, 4, GGUF_TYPE_F32, 0);
	refuse(&writer, "tensor x: more than 2^64 bytes");

	writer_header(&writer, 1, 0);
	writer_tensor(&writer, "x", 0, 4, GGUF_TYPE_F32, 0);
	refuse(&writer, "tensor x: dimension 0 is 0");

	writer_header(&writer, 1, 0);
	writer_tensor(&writer, "x", 33, 1, GGUF_TYPE_Q8_0, 0);
	refuse(&writer, "tensor x: rows of 33 elements, not a multiple of Q8_0's blocks of 32");

	writer_header(&writer, 1, 0);
	writer_tensor(&writer, "x", 4, 1, GGUF_TYPE_F32, UINT64_MAX - 31);
	refuse(&writer, "tensor x: offset 18446744073709551584 in the data, 0 is expected");

	writer_header(&writer, 1, 0);
	writer_tensor(&writer, "x", 4, 1, GGUF_TYPE_F32, 4);
	refuse(&writer, "tensor x: offset 4 in the data, 0 is expected");

	writer_header(&writer, 1, 0);
	writer_text(&writer, "x");
	writer_u32(&writer, 5);
	writer_u64(&writer, 0);
	writer_u64(&writer, 0);
	refuse(&writer, "tensor x: 5 dimensions, 1 to 4 are possible");

	writer_header(&writer, 2, 0);
	writer_tensor(&writer, "x", 16, 1, GGUF_TYPE_F32, 0);
	writer_tensor(&writer, "y", 4, 1, GGUF_TYPE_F32, 32);
	writer_align(&writer);
	for (int i = 0; i < 32; i++)
		writer_u32(&writer, 0);
	refuse(&writer, "tensor y: offset 32 in the data, 64 is expected");
}

static void
open_path(void *path)
{
	gguf_open(path);
}

Test(gguf, missing_file_is_refused)
{
	cr_assert(call_dies(open_path, (char[]){ "/nonexistent/model.gguf" }));
	cr_assert_str_eq(die_text, "/nonexistent/model.gguf: No such file or directory");
	cr_assert(call_dies(open_path, (char[]){ "/dev" }));
	cr_assert(strstr(die_text, "/dev: not a GGUF file"));
}
