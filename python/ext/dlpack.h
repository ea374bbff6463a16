/* SPDX-License-Identifier: Apache-2.0 */
/**
 * dlpack.h - what the extension uses of DLPack 1.3, a C ABI for tensors in memory
 *
 * Declared from the specification, github.com/dmlc/dlpack (dlpack.h, version 1.3), under names of our
 * own.  Layouts and numbers are the ABI; enums of the original are int32_t and uint8_t here.
 */
#ifndef PAGED_EXT_DLPACK_H
#define PAGED_EXT_DLPACK_H

#include "python/ext/ext.h"

enum { DLPACK_MAJOR = 1, DLPACK_MINOR = 1 };

/** Names of capsules.  A consumer renames the capsule of a managed tensor that it has taken to "used_...". */
#define DLPACK_CAPSULE "dltensor_versioned"
#define DLPACK_CAPSULE_USED "used_dltensor_versioned"
#define DLPACK_CAPSULE_LEGACY "dltensor"
#define DLPACK_CAPSULE_LEGACY_USED "used_dltensor"
#define DLPACK_CAPSULE_EXCHANGE "dlpack_exchange_api"

enum dlpack_device_type {
	DLPACK_HOST = 1,
	DLPACK_CUDA = 2,
	DLPACK_CUDA_HOST = 3, /* pinned: the host addresses it as its own memory */
};

enum dlpack_type_code {
	DLPACK_INT = 0,
	DLPACK_UINT = 1,
	DLPACK_FLOAT = 2,
	DLPACK_BFLOAT = 4,
	DLPACK_BOOL = 6,
	DLPACK_FLOAT8_E4M3FN = 10,
	DLPACK_FLOAT8_E5M2 = 12,
};

struct dlpack_device {
	int32_t type; /* enum dlpack_device_type */
	int32_t id;
};

struct dlpack_dtype {
	uint8_t code; /* enum dlpack_type_code */
	uint8_t bits;
	uint16_t lanes;
};

struct dlpack_tensor {
	void *data;
	struct dlpack_device device;
	int32_t n_dims;
	struct dlpack_dtype dtype;
	int64_t *shape;
	int64_t *strides; /* elements; NULL before version 1.2: row-major and dense */
	uint64_t byte_offset;
};

struct dlpack_version {
	uint32_t major, minor;
};

/** A tensor before version 1.0. */
struct dlpack_legacy {
	struct dlpack_tensor tensor;
	void *context;
	void (*deleter)(struct dlpack_legacy *self); /* may be NULL */
};

#define DLPACK_READ_ONLY (UINT64_C(1) << 0)

struct dlpack_managed {
	struct dlpack_version version;
	void *context;
	void (*deleter)(struct dlpack_managed *self); /* may be NULL */
	uint64_t flags;
	struct dlpack_tensor tensor;
};

/** C functions of a tensor type: its attribute __dlpack_c_exchange_api__.  They return 0, or -1 with an exception. */
struct dlpack_exchange {
	struct dlpack_version version;
	const struct dlpack_exchange *previous; /* of an older version, or NULL */
	int (*allocate)(const struct dlpack_tensor *prototype, struct dlpack_managed **managed_p, void *context,
			void (*set_error)(void *context, const char *kind, const char *message));
	int (*export)(void *object, struct dlpack_managed **managed_p);
	int (*import)(struct dlpack_managed *managed, void **object_p); /* takes the tensor, on success */
	int (*borrow)(void *object, struct dlpack_tensor *tensor);      /* may be NULL; valid during the call */
	int (*stream)(int32_t device_type, int32_t device_id, void **stream_p);
};

/* dlpack.c */

/** dlpack_dtype_from - from an enum paged_dtype; U8 is unsigned, not bool.  false: NONE */
bool dlpack_dtype_from(uint32_t dtype, struct dlpack_dtype *type_p);

/** dlpack_dtype_to - enum paged_dtype; PAGED_DTYPE_NONE: the library knows no such type */
uint32_t dlpack_dtype_to(struct dlpack_dtype type);

/** dlpack_exchange_of - the C functions of a tensor type, version 1; NULL without an exception: it has none */
const struct dlpack_exchange *dlpack_exchange_of(PyTypeObject *type);

/** dlpack_is_torch - the type is torch.Tensor or derived from it */
bool dlpack_is_torch(PyTypeObject *type);

/** dlpack_capsule_free - the destructor of a capsule, which frees a tensor that no consumer has taken */
void dlpack_capsule_free(PyObject *capsule);

#endif
