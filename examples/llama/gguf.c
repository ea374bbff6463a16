/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The smallest entries a file can have; counts that need more bytes than are left are refused before allocating. */
#define KV_MIN_BYTES 13u     /* key length, type, one byte of value */
#define TENSOR_MIN_BYTES 24u /* name length, n_dims, type, offset */
#define DEFAULT_ALIGNMENT 32u

struct kv {
	struct gguf_string key;
	enum gguf_value_type type;
	struct gguf_array array; /* GGUF_ARRAY */
	const uint8_t *value;    /* any other: the bytes, a string's without its length */
	uint64_t size;
};

struct gguf {
	char *path;
	const uint8_t *data;
	uint64_t size;
	uint32_t version;
	struct kv *kvs;
	uint64_t n_kvs;
	struct gguf_tensor *tensors;
	uint64_t n_tensors;
};

/* Where reading stands; what names the thing being read in sentences. */
struct cursor {
	const struct gguf *gguf;
	uint64_t at;
	char what[96];
	struct error *error;
};

static const struct {
	const char *name;
	uint32_t n_elements, n_bytes; /* 0: refused */
} tensor_types[] = {
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

const char *
gguf_type_name(uint32_t type)
{
	return type < N_TENSOR_TYPES && tensor_types[type].name != NULL ? tensor_types[type].name : "unknown";
}

void
gguf_type_block(enum gguf_type type, uint32_t *n_elements_p, uint32_t *n_bytes_p)
{
	*n_elements_p = tensor_types[type].n_elements;
	*n_bytes_p = tensor_types[type].n_bytes;
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

static bool
cursor_take(struct cursor *cursor, uint64_t size, const uint8_t **data_p)
{
	if (size > cursor_left(cursor))
		return error_set(cursor->error, "%s: %s: %llu bytes needed at offset %llu, the file has %llu more",
				 cursor->gguf->path, cursor->what, (unsigned long long)size,
				 (unsigned long long)cursor->at, (unsigned long long)cursor_left(cursor));
	*data_p = cursor->gguf->data + cursor->at;
	cursor->at += size;
	return true;
}

static uint64_t
load_little(const uint8_t *data, unsigned int size)
{
	uint64_t value = 0;

	for (unsigned int i = 0; i < size; i++)
		value |= (uint64_t)data[i] << (8 * i);
	return value;
}

static bool
cursor_u32(struct cursor *cursor, uint32_t *value_p)
{
	const uint8_t *data;

	if (!cursor_take(cursor, 4, &data))
		return false;
	*value_p = (uint32_t)load_little(data, 4);
	return true;
}

static bool
cursor_u64(struct cursor *cursor, uint64_t *value_p)
{
	const uint8_t *data;

	if (!cursor_take(cursor, 8, &data))
		return false;
	*value_p = load_little(data, 8);
	return true;
}

static bool
cursor_string(struct cursor *cursor, struct gguf_string *string_p)
{
	const uint8_t *data;
	uint64_t size;

	if (!cursor_u64(cursor, &size) || !cursor_take(cursor, size, &data))
		return false;
	string_p->data = (const char *)data;
	string_p->size = size;
	return true;
}

/* Bytes of a value of fixed size; 0 for strings, arrays and what is no type. */
static uint32_t
value_size(uint32_t type)
{
	static const uint8_t sizes[] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };

	return type < sizeof(sizes) ? sizes[type] : 0;
}

static bool
cursor_array(struct cursor *cursor, struct gguf_array *array)
{
	const uint8_t *data;
	struct gguf_string skipped;
	uint32_t type;
	uint64_t n;

	if (!cursor_u32(cursor, &type) || !cursor_u64(cursor, &n))
		return false;
	if (type != GGUF_STRING && value_size(type) == 0)
		return error_set(cursor->error, "%s: %s: array of type %u is not supported", cursor->gguf->path,
				 cursor->what, type);
	array->type = type;
	array->n_items = n;
	array->next = cursor->gguf->data + cursor->at;
	if (n > cursor_left(cursor) / (type == GGUF_STRING ? 8 : value_size(type)))
		return error_set(cursor->error,
				 "%s: %s: array of %llu elements at offset %llu, the file has %llu more bytes",
				 cursor->gguf->path, cursor->what, (unsigned long long)n,
				 (unsigned long long)cursor->at, (unsigned long long)cursor_left(cursor));
	if (type != GGUF_STRING)
		return cursor_take(cursor, n * value_size(type), &data);
	for (uint64_t i = 0; i < n; i++)
		if (!cursor_string(cursor, &skipped))
			return false;
	return true;
}

static bool
cursor_kv(struct cursor *cursor, struct kv *kv)
{
	struct gguf_string text;
	uint32_t type;

	if (!cursor_string(cursor, &kv->key))
		return false;
	snprintf(cursor->what, sizeof(cursor->what), "metadata %.*s", (int)(kv->key.size > 64 ? 64 : kv->key.size),
		 kv->key.data);
	if (!cursor_u32(cursor, &type))
		return false;
	kv->type = type;
	if (type == GGUF_ARRAY)
		return cursor_array(cursor, &kv->array);
	if (type == GGUF_STRING) {
		if (!cursor_string(cursor, &text))
			return false;
		kv->value = (const uint8_t *)text.data;
		kv->size = text.size;
		return true;
	}
	kv->size = value_size(type);
	if (kv->size == 0)
		return error_set(cursor->error, "%s: %s: no value type %u is known", cursor->gguf->path, cursor->what,
				 type);
	return cursor_take(cursor, kv->size, &kv->value);
}

/* ----------------------------------------------------------------- tensors */

/* Bytes of a tensor, from its checked type and dimensions. */
static bool
tensor_size(const struct cursor *cursor, struct gguf_tensor *tensor)
{
	uint32_t n_elements, n_bytes;
	uint64_t size;

	gguf_type_block(tensor->type, &n_elements, &n_bytes);
	if (tensor->dims[0] % n_elements != 0)
		return error_set(cursor->error, "%s: %s: rows of %llu elements, not a multiple of %s's blocks of %u",
				 cursor->gguf->path, cursor->what, (unsigned long long)tensor->dims[0],
				 gguf_type_name(tensor->type), n_elements);
	size = tensor->dims[0] / n_elements;
	for (uint32_t i = 1; i < GGUF_MAX_DIMS; i++)
		if (__builtin_mul_overflow(size, tensor->dims[i], &size))
			goto err_huge;
	if (__builtin_mul_overflow(size, n_bytes, &size))
		goto err_huge;
	tensor->size = size;
	return true;

err_huge:
	return error_set(cursor->error, "%s: %s: more than 2^64 bytes", cursor->gguf->path, cursor->what);
}

/* One entry of the table of tensors; data is its offset until tensors_place(). */
static bool
cursor_tensor(struct cursor *cursor, struct gguf_tensor *tensor, uint64_t *offset_p)
{
	uint32_t type;

	if (!cursor_string(cursor, &tensor->name))
		return false;
	snprintf(cursor->what, sizeof(cursor->what), "tensor %.*s",
		 (int)(tensor->name.size > 64 ? 64 : tensor->name.size), tensor->name.data);
	if (!cursor_u32(cursor, &tensor->n_dims))
		return false;
	if (tensor->n_dims == 0 || tensor->n_dims > GGUF_MAX_DIMS)
		return error_set(cursor->error, "%s: %s: %u dimensions, 1 to %d are possible", cursor->gguf->path,
				 cursor->what, tensor->n_dims, GGUF_MAX_DIMS);
	for (uint32_t i = 0; i < GGUF_MAX_DIMS; i++) {
		tensor->dims[i] = 1;
		if (i < tensor->n_dims && !cursor_u64(cursor, &tensor->dims[i]))
			return false;
		if (tensor->dims[i] == 0)
			return error_set(cursor->error, "%s: %s: dimension %u is 0", cursor->gguf->path, cursor->what,
					 i);
	}
	if (!cursor_u32(cursor, &type) || !cursor_u64(cursor, offset_p))
		return false;
	if (type >= N_TENSOR_TYPES || tensor_types[type].n_elements == 0)
		return error_set(cursor->error,
				 "%s: %s: type %s (%u) is not supported; F32, F16, Q8_0, Q4_0 and Q4_1 are",
				 cursor->gguf->path, cursor->what, gguf_type_name(type), type);
	tensor->type = type;
	return tensor_size(cursor, tensor);
}

static int
compare_places(const void *a, const void *b)
{
	const struct gguf_tensor *x = *(const struct gguf_tensor *const *)a, *y = *(const struct gguf_tensor *const *)b;

	return x->data < y->data ? -1 : x->data > y->data;
}

static bool
tensors_apart(const struct gguf *gguf, struct error *error)
{
	const struct gguf_tensor **order = calloc(gguf->n_tensors + 1, sizeof(const struct gguf_tensor *));
	bool ok = true;

	if (order == NULL)
		return error_set(error, "%s: no memory for %llu tensors", gguf->path,
				 (unsigned long long)gguf->n_tensors);
	for (uint64_t i = 0; i < gguf->n_tensors; i++)
		order[i] = &gguf->tensors[i];
	qsort(order, gguf->n_tensors, sizeof(const struct gguf_tensor *), compare_places);
	for (uint64_t i = 1; i < gguf->n_tensors && ok; i++)
		if ((const uint8_t *)order[i - 1]->data + order[i - 1]->size > (const uint8_t *)order[i]->data)
			ok = error_set(error, "%s: tensors %.*s and %.*s overlap", gguf->path,
				       (int)order[i - 1]->name.size, order[i - 1]->name.data, (int)order[i]->name.size,
				       order[i]->name.data);
	free(order);
	return ok;
}

static bool
read_tensors(struct gguf *gguf, struct cursor *cursor)
{
	uint64_t *offsets, start, offset;
	uint32_t alignment = DEFAULT_ALIGNMENT;
	bool ok = true;

	if (gguf_has(gguf, "general.alignment") && !gguf_u32(gguf, "general.alignment", &alignment, cursor->error))
		return false;
	if (alignment < 8 || (alignment & (alignment - 1)) != 0)
		return error_set(cursor->error, "%s: general.alignment = %u is not a power of two from 8", gguf->path,
				 alignment);
	gguf->tensors = calloc(gguf->n_tensors + 1, sizeof(*gguf->tensors));
	offsets = calloc(gguf->n_tensors + 1, sizeof(*offsets));
	if (gguf->tensors == NULL || offsets == NULL)
		ok = error_set(cursor->error, "%s: no memory for %llu tensors", gguf->path,
			       (unsigned long long)gguf->n_tensors);
	for (uint64_t i = 0; i < gguf->n_tensors && ok; i++)
		ok = cursor_tensor(cursor, &gguf->tensors[i], &offsets[i]);

	start = (cursor->at + alignment - 1) & ~(uint64_t)(alignment - 1);
	for (uint64_t i = 0; i < gguf->n_tensors && ok; i++) {
		struct gguf_tensor *tensor = &gguf->tensors[i];

		if (offsets[i] % alignment != 0)
			ok = error_set(cursor->error, "%s: tensor %.*s: offset %llu is not aligned to %u", gguf->path,
				       (int)tensor->name.size, tensor->name.data, (unsigned long long)offsets[i],
				       alignment);
		else if (__builtin_add_overflow(start, offsets[i], &offset) || offset > gguf->size ||
			 tensor->size > gguf->size - offset)
			ok = error_set(
				cursor->error,
				"%s: tensor %.*s: %llu bytes at offset %llu of the data, the file has %llu bytes",
				gguf->path, (int)tensor->name.size, tensor->name.data, (unsigned long long)tensor->size,
				(unsigned long long)offsets[i], (unsigned long long)gguf->size);
		else
			tensor->data = gguf->data + offset;
	}
	free(offsets);
	return ok && tensors_apart(gguf, cursor->error);
}

/* -------------------------------------------------------------------- file */

static bool
read_header(struct gguf *gguf, struct cursor *cursor)
{
	const uint8_t *magic;

	if (!cursor_take(cursor, 4, &magic))
		return false;
	if (memcmp(magic, "GGUF", 4) != 0)
		return error_set(cursor->error, "%s: not a GGUF file", gguf->path);
	if (!cursor_u32(cursor, &gguf->version))
		return false;
	if (gguf->version != 2 && gguf->version != 3)
		return error_set(cursor->error, "%s: GGUF version %u is not supported; 2 and 3 are", gguf->path,
				 gguf->version);
	if (!cursor_u64(cursor, &gguf->n_tensors) || !cursor_u64(cursor, &gguf->n_kvs))
		return false;
	if (gguf->n_kvs > cursor_left(cursor) / KV_MIN_BYTES ||
	    gguf->n_tensors > cursor_left(cursor) / TENSOR_MIN_BYTES)
		return error_set(cursor->error,
				 "%s: header claims %llu metadata entries and %llu tensors, the file has %llu bytes",
				 gguf->path, (unsigned long long)gguf->n_kvs, (unsigned long long)gguf->n_tensors,
				 (unsigned long long)gguf->size);
	return true;
}

static bool
read_all(struct gguf *gguf, struct error *error)
{
	struct cursor cursor = { .gguf = gguf, .what = "header", .error = error };

	if (!read_header(gguf, &cursor))
		return false;
	gguf->kvs = calloc(gguf->n_kvs + 1, sizeof(*gguf->kvs));
	if (gguf->kvs == NULL)
		return error_set(error, "%s: no memory for %llu metadata entries", gguf->path,
				 (unsigned long long)gguf->n_kvs);
	for (uint64_t i = 0; i < gguf->n_kvs; i++)
		if (!cursor_kv(&cursor, &gguf->kvs[i]))
			return false;
	return read_tensors(gguf, &cursor);
}

static bool
map_file(struct gguf *gguf, struct error *error)
{
	struct stat st;
	void *data;
	int fd;

	fd = open(gguf->path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return error_set(error, "%s: %s", gguf->path, strerror(errno));
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0) {
		close(fd);
		return error_set(error, "%s: not a GGUF file (empty, or no regular file)", gguf->path);
	}
	data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (data == MAP_FAILED) {
		error_set(error, "%s: mmap: %s", gguf->path, strerror(errno));
		close(fd);
		return false;
	}
	close(fd);
	gguf->data = data;
	gguf->size = (uint64_t)st.st_size;
	return true;
}

bool
gguf_open(const char *path, struct gguf **gguf_p, struct error *error)
{
	struct gguf *gguf;

	gguf = calloc(1, sizeof(*gguf));
	if (gguf == NULL || (gguf->path = strdup(path)) == NULL) {
		free(gguf);
		return error_set(error, "%s: out of memory", path);
	}
	if (!map_file(gguf, error) || !read_all(gguf, error)) {
		gguf_close(gguf);
		return false;
	}
	*gguf_p = gguf;
	return true;
}

void
gguf_close(struct gguf *gguf)
{
	if (gguf == NULL)
		return;
	if (gguf->data != NULL)
		munmap((void *)gguf->data, gguf->size);
	free(gguf->tensors);
	free(gguf->kvs);
	free(gguf->path);
	free(gguf);
}

const char *
gguf_path(const struct gguf *gguf)
{
	return gguf->path;
}

/* --------------------------------------------------------------- accessors */

static const struct kv *
find_kv(const struct gguf *gguf, const char *key)
{
	for (uint64_t i = 0; i < gguf->n_kvs; i++)
		if (gguf_string_is(gguf->kvs[i].key, key))
			return &gguf->kvs[i];
	return NULL;
}

bool
gguf_has(const struct gguf *gguf, const char *key)
{
	return find_kv(gguf, key) != NULL;
}

static const struct kv *
require_kv(const struct gguf *gguf, const char *key, enum gguf_value_type type, struct error *error)
{
	const struct kv *kv = find_kv(gguf, key);

	if (kv == NULL)
		error_set(error, "%s: metadata %s is missing", gguf->path, key);
	else if (kv->type != type)
		error_set(error, "%s: metadata %s has type %u, %u is expected", gguf->path, key, kv->type, type);
	return kv != NULL && kv->type == type ? kv : NULL;
}

bool
gguf_u32(const struct gguf *gguf, const char *key, uint32_t *value_p, struct error *error)
{
	const struct kv *kv = require_kv(gguf, key, GGUF_U32, error);

	if (kv != NULL)
		*value_p = (uint32_t)load_little(kv->value, 4);
	return kv != NULL;
}

bool
gguf_f32(const struct gguf *gguf, const char *key, float *value_p, struct error *error)
{
	const struct kv *kv = require_kv(gguf, key, GGUF_F32, error);
	uint32_t bits;

	if (kv == NULL)
		return false;
	bits = (uint32_t)load_little(kv->value, 4);
	memcpy(value_p, &bits, sizeof(bits));
	return true;
}

bool
gguf_bool(const struct gguf *gguf, const char *key, bool *value_p, struct error *error)
{
	const struct kv *kv = require_kv(gguf, key, GGUF_BOOL, error);

	if (kv != NULL)
		*value_p = kv->value[0] != 0;
	return kv != NULL;
}

bool
gguf_string(const struct gguf *gguf, const char *key, struct gguf_string *value_p, struct error *error)
{
	const struct kv *kv = require_kv(gguf, key, GGUF_STRING, error);

	if (kv != NULL)
		*value_p = (struct gguf_string){ .data = (const char *)kv->value, .size = kv->size };
	return kv != NULL;
}

bool
gguf_array(const struct gguf *gguf, const char *key, enum gguf_value_type type, struct gguf_array *value_p,
	   struct error *error)
{
	const struct kv *kv = require_kv(gguf, key, GGUF_ARRAY, error);

	if (kv == NULL)
		return false;
	if (kv->array.type != type)
		return error_set(error, "%s: metadata %s is an array of type %u, %u is expected", gguf->path, key,
				 kv->array.type, type);
	*value_p = kv->array;
	return true;
}

struct gguf_string
gguf_array_next(struct gguf_array *array)
{
	struct gguf_string string = { (const char *)array->next + 8, load_little(array->next, 8) };

	array->next += 8 + string.size;
	array->n_items--;
	return string;
}

uint32_t
gguf_array_u32(const struct gguf_array *array, uint64_t i)
{
	return (uint32_t)load_little(array->next + 4 * i, 4);
}

uint64_t
gguf_n_tensors(const struct gguf *gguf)
{
	return gguf->n_tensors;
}

const struct gguf_tensor *
gguf_tensor_at(const struct gguf *gguf, uint64_t i)
{
	return &gguf->tensors[i];
}

const struct gguf_tensor *
gguf_tensor(const struct gguf *gguf, const char *name)
{
	for (uint64_t i = 0; i < gguf->n_tensors; i++)
		if (gguf_string_is(gguf->tensors[i].name, name))
			return &gguf->tensors[i];
	return NULL;
}
