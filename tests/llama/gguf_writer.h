/* SPDX-License-Identifier: Apache-2.0 */
/**
 * gguf_writer.h - writes GGUF files for tests, valid or invalid on purpose
 *
 * Append header, metadata and tensor entries in the file's order;
 * writer_open() then writes the bytes to a memfd and opens it.
 */
#ifndef TESTS_GGUF_WRITER_H
#define TESTS_GGUF_WRITER_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "examples/llama/gguf.h"

struct writer {
	uint8_t *data;
	size_t size;
};

static inline void
writer_bytes(struct writer *writer, const void *data, size_t size)
{
	writer->data = realloc(writer->data, writer->size + size + 1);
	memcpy(writer->data + writer->size, data, size);
	writer->size += size;
}

static inline void
writer_u32(struct writer *writer, uint32_t value)
{
	writer_bytes(writer, &value, sizeof(value));
}

static inline void
writer_u64(struct writer *writer, uint64_t value)
{
	writer_bytes(writer, &value, sizeof(value));
}

static inline void
writer_text(struct writer *writer, const char *text)
{
	writer_u64(writer, strlen(text));
	writer_bytes(writer, text, strlen(text));
}

static inline void
writer_header(struct writer *writer, uint64_t n_tensors, uint64_t n_kvs)
{
	writer_bytes(writer, "GGUF", 4);
	writer_u32(writer, 3);
	writer_u64(writer, n_tensors);
	writer_u64(writer, n_kvs);
}

static inline void
writer_kv_u32(struct writer *writer, const char *key, uint32_t value)
{
	writer_text(writer, key);
	writer_u32(writer, GGUF_U32);
	writer_u32(writer, value);
}

static inline void
writer_kv_f32(struct writer *writer, const char *key, float value)
{
	writer_text(writer, key);
	writer_u32(writer, GGUF_F32);
	writer_bytes(writer, &value, sizeof(value));
}

static inline void
writer_kv_text(struct writer *writer, const char *key, const char *value)
{
	writer_text(writer, key);
	writer_u32(writer, GGUF_STRING);
	writer_text(writer, value);
}

static inline void
writer_kv_array(struct writer *writer, const char *key, enum gguf_value_type type, uint64_t n)
{
	writer_text(writer, key);
	writer_u32(writer, GGUF_ARRAY);
	writer_u32(writer, type);
	writer_u64(writer, n);
}

static inline void
writer_tensor(struct writer *writer, const char *name, uint64_t columns, uint64_t rows, uint32_t type, uint64_t offset)
{
	writer_text(writer, name);
	writer_u32(writer, 2);
	writer_u64(writer, columns);
	writer_u64(writer, rows);
	writer_u32(writer, type);
	writer_u64(writer, offset);
}

/* Append zeros up to the next multiple of 32 bytes. */
static inline void
writer_align(struct writer *writer)
{
	while (writer->size % 32 != 0)
		writer_bytes(writer, "", 1);
}

/** writer_open - gguf_open() of a file with the first n bytes of writer; valid until the next call */
static inline struct gguf *
writer_open(const struct writer *writer, size_t n)
{
	static char path[64];
	static int fd = -1;

	if (fd >= 0)
		close(fd);
	fd = memfd_create("gguf", MFD_CLOEXEC);
	if (write(fd, writer->data, n) != (ssize_t)n)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return gguf_open(path);
}

static inline void
writer_free(struct writer *writer)
{
	free(writer->data);
	*writer = (struct writer){ 0 };
}

#endif
