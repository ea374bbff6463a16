/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "examples/llama/die.h"
#include "examples/llama/xalloc.h"

/*
 * Sizes of the smallest possible entries: counts that need more bytes than the file has left are refused before
 * memory is allocated.
 */
#define KV_MIN_BYTES 13u     /* key length, type, one byte of value */
#define TENSOR_MIN_BYTES 24u /* name length, n_dims, type, offset */
#define DEFAULT_ALIGNMENT 32u

struct gguf_kv {
	struct gguf_string key;
	bool is_array;
	struct gguf_array values; /* one element if it is not an array */
};

/* The read position; `what` names the entry that is being read, for error messages. */
struct cursor {
	const struct gguf *gguf;
	uint64_t at;
	char what[96];
};

#define cursor_die(cursor, format, ...) die("%s: %s: " format, (cursor)->gguf->path, (cursor)->what, ##__VA_ARGS__)

static void
cursor_name(struct cursor *cursor, const char *kind, struct gguf_string name)
{
	snprintf(cursor->what, sizeof(cursor->what), "%s %.*s", kind, GGUF_SHOWN(name));
}

static const struct gguf_type_info tensor_types[] = {
	[0] = { "F32", 1, 4 },      [1] = { "F16", 1, 2 },     [2] = { "Q4_0", 32, 18 },   [3] = { "Q4_1", 32, 20 },
	[6] = { "Q5_0", 0, 0 },     [7] = { "Q5_1", 0, 0 },    [8] = { "Q8_0", 32, 34 },   [9] = { "Q8_1", 0, 0 },
	[10] = { "Q2_K", 0, 0 },    [11] = { "Q3_K", 0, 0 },   [12] = { "Q4_K", 0, 0 },    [13] = { "Q5_K", 0, 0 },
	[14] = { "Q6_K", 0, 0 },    [15] = { "Q8_K", 0, 0 },   [16] = { "IQ2_XXS", 0, 0 }, [17] = { "IQ2_XS", 0, 0 },
	[18] = { "IQ3_XXS", 0, 0 }, [19] = { "IQ1_S", 0, 0 },  [20] = { "IQ4_NL", 0, 0 },  [21] = { "IQ3_S", 0, 0 },
	[22] = { "IQ2_S", 0, 0 },   [23] = { "IQ4_XS", 0, 0 }, [24] = { "I8", 0, 0 },      [25] = { "I16", 0, 0 },
	[26] = { "I32", 0, 0 },     [27] = { "I64", 0, 0 },    [28] = { "F64", 0, 0 },     [29] = { "IQ1_M", 0, 0 },
	[30] = { "BF16", 0, 0 },    [34] = { "TQ1_0", 0, 0 },  [35] = { "TQ2_0", 0, 0 },   [39] = { "MXFP4", 0, 0 },
};
#define N_TENSOR_TYPES (sizeof(tensor_types) / sizeof(tensor_types[0]))

const struct gguf_type_info *
gguf_type(uint32_t type)
{
	static const struct gguf_type_info unknown = { "unknown", 0, 0 };

	return type < N_TENSOR_TYPES && tensor_types[type].name != NULL ? &tensor_types[type] : &unknown;
}

bool
gguf_string_is(struct gguf_string string, const char *text)
{
	return string.size == strlen(text) && memcmp(string.data, text, string.size) == 0;
}

/* ----------------------------------------------------------------- reading */

static uint64_t
cursor_left(const struct cursor *cursor)
{
	return cursor->gguf->size - cursor->at;
}

static const uint8_t *
cursor_take(struct cursor *cursor, uint64_t size)
{
	const uint8_t *data = cursor->gguf->data + cursor->at;

	if (size > cursor_left(cursor))
		cursor_die(cursor, "%" PRIu64 " bytes needed at offset %" PRIu64 ", the file has %" PRIu64 " more",
			   size, cursor->at, cursor_left(cursor));
	cursor->at += size;
	return data;
}

static uint64_t
load_little_endian(const void *data, unsigned int size)
{
	uint64_t value = 0;

	for (unsigned int i = 0; i < size; i++)
		value |= (uint64_t)((const uint8_t *)data)[i] << (8 * i);
	return value;
}

static uint32_t
cursor_u32(struct cursor *cursor)
{
	return (uint32_t)load_little_endian(cursor_take(cursor, 4), 4);
}

static uint64_t
cursor_u64(struct cursor *cursor)
{
	return load_little_endian(cursor_take(cursor, 8), 8);
}

static struct gguf_string
cursor_string(struct cursor *cursor)
{
	uint64_t size = cursor_u64(cursor);

	return (struct gguf_string){ (const char *)cursor_take(cursor, size), size };
}

/* Bytes of a value; for a string those of its length field; 0 for arrays and unknown types. */
static uint32_t
gguf_value_size(uint32_t type)
{
	static const uint8_t sizes[] = { 1, 1, 2, 2, 4, 4, 4, 1, 8, 0, 8, 8, 8 };

	return type < sizeof(sizes) ? sizes[type] : 0;
}

static void
cursor_kv(struct cursor *cursor, struct gguf_kv *kv)
{
	struct gguf_array *values = &kv->values;

	kv->key = cursor_string(cursor);
	cursor_name(cursor, "metadata", kv->key);
	values->type = cursor_u32(cursor);
	values->n_items = 1;
	kv->is_array = values->type == GGUF_ARRAY;
	if (kv->is_array) {
		values->type = cursor_u32(cursor);
		values->n_items = cursor_u64(cursor);
	}
	if (gguf_value_size(values->type) == 0)
		cursor_die(cursor, "%s type %u is not supported", kv->is_array ? "array of" : "value", values->type);
	if (kv->is_array && values->n_items > cursor_left(cursor) / gguf_value_size(values->type))
		cursor_die(cursor,
			   "array of %" PRIu64 " elements at offset %" PRIu64 ", the file has %" PRIu64 " more bytes",
			   values->n_items, cursor->at, cursor_left(cursor));
	values->next = cursor->gguf->data + cursor->at;
	if (values->type != GGUF_STRING)
		cursor_take(cursor, values->n_items * gguf_value_size(values->type));
	else
		for (uint64_t i = 0; i < values->n_items; i++)
			cursor_string(cursor);
}

/* ----------------------------------------------------------------- tensors */

/* Size in bytes of a tensor whose type and dimensions have been checked. */
static uint64_t
tensor_size(const struct cursor *cursor, const struct gguf_tensor *tensor)
{
	const struct gguf_type_info *type = gguf_type(tensor->type);
	uint64_t size = tensor->dims[0] / type->n_elements;

	if (tensor->dims[0] % type->n_elements != 0)
		cursor_die(cursor, "rows of %" PRIu64 " elements, not a multiple of %s's blocks of %u", tensor->dims[0],
			   type->name, type->n_elements);
	for (uint32_t i = 1; i <= GGUF_MAX_DIMS; i++)
		if (__builtin_mul_overflow(size, i < GGUF_MAX_DIMS ? tensor->dims[i] : type->n_bytes, &size))
			cursor_die(cursor, "more than 2^64 bytes");
	return size;
}

/* Read one entry of the tensor table; returns the tensor's offset in the data section. */
static uint64_t
cursor_tensor(struct cursor *cursor, struct gguf_tensor *tensor)
{
	uint64_t offset;

	tensor->name = cursor_string(cursor);
	cursor_name(cursor, "tensor", tensor->name);
	tensor->n_dims = cursor_u32(cursor);
	if (tensor->n_dims == 0 || tensor->n_dims > GGUF_MAX_DIMS)
		cursor_die(cursor, "%u dimensions, 1 to %d are possible", tensor->n_dims, GGUF_MAX_DIMS);
	for (uint32_t i = 0; i < GGUF_MAX_DIMS; i++) {
		tensor->dims[i] = i < tensor->n_dims ? cursor_u64(cursor) : 1;
		if (tensor->dims[i] == 0)
			cursor_die(cursor, "dimension %u is 0", i);
	}
	tensor->type = cursor_u32(cursor);
	offset = cursor_u64(cursor);
	if (gguf_type(tensor->type)->n_elements == 0)
		cursor_die(cursor, "type %s (%u) is not supported; F32, F16, Q8_0, Q4_0 and Q4_1 are",
			   gguf_type(tensor->type)->name, tensor->type);
	tensor->size = tensor_size(cursor, tensor);
	return offset;
}

static uint64_t
align_up(uint64_t at, uint32_t alignment)
{
	return (at + alignment - 1) & ~(uint64_t)(alignment - 1);
}

/* Each tensor's data must follow that of the tensor before it in the table, aligned; then no two overlap. */
static void
gguf_read_tensors(struct gguf *gguf, struct cursor *cursor)
{
	uint32_t alignment =
		gguf_has(gguf, "general.alignment") ? gguf_u32(gguf, "general.alignment") : DEFAULT_ALIGNMENT;
	uint64_t offset, expected = 0, at;

	if (alignment < 8 || (alignment & (alignment - 1)) != 0)
		die("%s: general.alignment = %u is not a power of two from 8", gguf->path, alignment);
	gguf->tensors = xcalloc(gguf->n_tensors, sizeof(*gguf->tensors));
	for (uint64_t i = 0; i < gguf->n_tensors; i++) {
		offset = cursor_tensor(cursor, &gguf->tensors[i]);
		if (offset != expected)
			cursor_die(cursor, "offset %" PRIu64 " in the data, %" PRIu64 " is expected", offset, expected);
		expected = align_up(offset + gguf->tensors[i].size, alignment);
	}
	at = align_up(cursor->at, alignment);
	for (uint64_t i = 0; i < gguf->n_tensors; i++) {
		struct gguf_tensor *tensor = &gguf->tensors[i];

		cursor_name(cursor, "tensor", tensor->name);
		if (at > gguf->size || tensor->size > gguf->size - at)
			cursor_die(cursor, "%" PRIu64 " bytes at offset %" PRIu64 ", the file has %" PRIu64 " bytes",
				   tensor->size, at, gguf->size);
		tensor->data = gguf->data + at;
		at = align_up(at + tensor->size, alignment);
	}
}

/* -------------------------------------------------------------------- file */

static void
gguf_map(struct gguf *gguf)
{
	int fd = open(gguf->path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	void *data;

	if (fd < 0)
		die("%s: %s", gguf->path, strerror(errno));
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0)
		die("%s: not a GGUF file (empty, or no regular file)", gguf->path);
	data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (data == MAP_FAILED)
		die("%s: mmap: %s", gguf->path, strerror(errno));
	close(fd);
	gguf->data = data;
	gguf->size = (uint64_t)st.st_size;
}

struct gguf *
gguf_open(const char *path)
{
	struct gguf *gguf = xcalloc(1, sizeof(*gguf));
	struct cursor cursor = { .gguf = gguf, .what = "header" };
	uint32_t version;

	gguf->path = path;
	gguf_map(gguf);
	if (memcmp(cursor_take(&cursor, 4), "GGUF", 4) != 0)
		die("%s: not a GGUF file", path);
	version = cursor_u32(&cursor);
	if (version != 2 && version != 3)
		die("%s: GGUF version %u is not supported; 2 and 3 are", path, version);
	gguf->n_tensors = cursor_u64(&cursor);
	gguf->n_kvs = cursor_u64(&cursor);
	if (gguf->n_kvs > cursor_left(&cursor) / KV_MIN_BYTES ||
	    gguf->n_tensors > cursor_left(&cursor) / TENSOR_MIN_BYTES)
		die("%s: header claims %" PRIu64 " metadata entries and %" PRIu64 " tensors, the file has %" PRIu64
		    " bytes",
		    path, gguf->n_kvs, gguf->n_tensors, gguf->size);
	gguf->kvs = xcalloc(gguf->n_kvs, sizeof(*gguf->kvs));
	for (uint64_t i = 0; i < gguf->n_kvs; i++)
		cursor_kv(&cursor, &gguf->kvs[i]);
	gguf_read_tensors(gguf, &cursor);
	return gguf;
}

void
gguf_close(struct gguf *gguf)
{
	if (gguf == NULL)
		return;
	munmap((void *)gguf->data, gguf->size);
	free(gguf->tensors);
	free(gguf->kvs);
	free(gguf);
}

/* --------------------------------------------------------------- accessors */

static const struct gguf_kv *
gguf_find_kv(const struct gguf *gguf, const char *key)
{
	for (uint64_t i = 0; i < gguf->n_kvs; i++)
		if (gguf_string_is(gguf->kvs[i].key, key))
			return &gguf->kvs[i];
	return NULL;
}

bool
gguf_has(const struct gguf *gguf, const char *key)
{
	return gguf_find_kv(gguf, key) != NULL;
}

static struct gguf_array
gguf_require(const struct gguf *gguf, const char *key, bool is_array, enum gguf_value_type type)
{
	const struct gguf_kv *kv = gguf_find_kv(gguf, key);

	if (kv == NULL)
		die("%s: metadata %s is missing", gguf->path, key);
	if (kv->values.type != type || kv->is_array != is_array)
		die("%s: metadata %s has %stype %u, %stype %u is expected", gguf->path, key,
		    kv->is_array ? "elements of " : "", kv->values.type, is_array ? "elements of " : "", type);
	return kv->values;
}

uint32_t
gguf_u32(const struct gguf *gguf, const char *key)
{
	return (uint32_t)load_little_endian(gguf_require(gguf, key, false, GGUF_U32).next, 4);
}

float
gguf_f32(const struct gguf *gguf, const char *key)
{
	uint32_t bits = (uint32_t)load_little_endian(gguf_require(gguf, key, false, GGUF_F32).next, 4);
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

bool
gguf_bool(const struct gguf *gguf, const char *key)
{
	return *gguf_require(gguf, key, false, GGUF_BOOL).next != 0;
}

struct gguf_string
gguf_string(const struct gguf *gguf, const char *key)
{
	struct gguf_array values = gguf_require(gguf, key, false, GGUF_STRING);

	return gguf_array_next(&values);
}

struct gguf_array
gguf_array(const struct gguf *gguf, const char *key, enum gguf_value_type type)
{
	return gguf_require(gguf, key, true, type);
}

struct gguf_string
gguf_array_next(struct gguf_array *array)
{
	struct gguf_string string = { (const char *)array->next + 8, load_little_endian(array->next, 8) };

	array->next += 8 + string.size;
	array->n_items--;
	return string;
}

uint32_t
gguf_array_u32(const struct gguf_array *array, uint64_t i)
{
	return (uint32_t)load_little_endian(array->next + 4 * i, 4);
}

const struct gguf_tensor *
gguf_tensor(const struct gguf *gguf, const char *name)
{
	for (uint64_t i = 0; i < gguf->n_tensors; i++)
		if (gguf_string_is(gguf->tensors[i].name, name))
			return &gguf->tensors[i];
	return NULL;
}
