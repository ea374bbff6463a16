/* SPDX-License-Identifier: Apache-2.0 */
/**
 * gguf.h - a GGUF file (version 2 or 3), mapped read-only
 *
 * The file is checked completely while it is opened: every length, count and
 * offset is inside the file, tensors are contiguous and have a supported
 * type.  Pointers that the accessors return point into the mapping, need no further
 * bounds check, and are valid until gguf_close().  Strings are not
 * terminated and may contain any byte.
 */
#ifndef LLAMA_GGUF_H
#define LLAMA_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Numbers of the file format. */
enum gguf_value_type {
	GGUF_U8 = 0,
	GGUF_I8 = 1,
	GGUF_U16 = 2,
	GGUF_I16 = 3,
	GGUF_U32 = 4,
	GGUF_I32 = 5,
	GGUF_F32 = 6,
	GGUF_BOOL = 7,
	GGUF_STRING = 8,
	GGUF_ARRAY = 9,
	GGUF_U64 = 10,
	GGUF_I64 = 11,
	GGUF_F64 = 12
};

/** Tensor types that this program computes with; numbers of the file format. */
enum gguf_type { GGUF_TYPE_F32 = 0, GGUF_TYPE_F16 = 1, GGUF_TYPE_Q4_0 = 2, GGUF_TYPE_Q4_1 = 3, GGUF_TYPE_Q8_0 = 8 };

struct gguf_string {
	const char *data;
	size_t size;
};

/** Arguments for %.*s: the beginning of a string, for messages. */
#define GGUF_SHOWN(string) (int)((string).size > 64 ? 64 : (string).size), (string).data

/** The elements of an array; gguf_array_next() reads strings one after another. */
struct gguf_array {
	enum gguf_value_type type;
	uint64_t n_items;
	const uint8_t *next; /* unaligned, little endian */
};

#define GGUF_MAX_DIMS 4

struct gguf_tensor {
	struct gguf_string name;
	enum gguf_type type;
	uint32_t n_dims;
	uint64_t dims[GGUF_MAX_DIMS]; /* innermost (contiguous) first; 1 beyond n_dims */
	const void *data;
	uint64_t size; /* bytes */
};

struct gguf {
	const char *path; /* as given to gguf_open(), for messages */
	struct gguf_tensor *tensors;
	uint64_t n_tensors;
	struct gguf_kv *kvs;
	uint64_t n_kvs;
	const uint8_t *data; /* the mapping */
	uint64_t size;
};

/** gguf_open - map a file and check it; the path is borrowed */
struct gguf *gguf_open(const char *path);

/** gguf_close - takes NULL */
void gguf_close(struct gguf *gguf);

/** gguf_has - whether there is metadata with that key */
bool gguf_has(const struct gguf *gguf, const char *key);

/** A metadata value by key; it is an error if the key is absent or the value has another type. */
uint32_t gguf_u32(const struct gguf *gguf, const char *key);
float gguf_f32(const struct gguf *gguf, const char *key);
bool gguf_bool(const struct gguf *gguf, const char *key);
struct gguf_string gguf_string(const struct gguf *gguf, const char *key);
struct gguf_array gguf_array(const struct gguf *gguf, const char *key, enum gguf_value_type type);

/** gguf_array_next - read the next string; the array must have one left */
struct gguf_string gguf_array_next(struct gguf_array *array);

/** gguf_array_u32 - element i of an array of GGUF_U32 or GGUF_I32 */
uint32_t gguf_array_u32(const struct gguf_array *array, uint64_t i);

/** gguf_tensor - find a tensor by name; NULL if absent */
const struct gguf_tensor *gguf_tensor(const struct gguf *gguf, const char *name);

/** gguf_string_is - whether a string equals a C string */
bool gguf_string_is(struct gguf_string string, const char *text);

struct gguf_type_info {
	const char *name;             /* "Q4_1" and so on, "unknown" for other numbers */
	uint32_t n_elements, n_bytes; /* of one block; 0: not supported */
};

/** gguf_type - information about a tensor type; valid for any number */
const struct gguf_type_info *gguf_type(uint32_t type);

#endif
