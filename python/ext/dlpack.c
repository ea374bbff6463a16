/* SPDX-License-Identifier: Apache-2.0 */
#include "python/ext/ext.h"

#include "python/ext/dlpack.h"

static const struct dlpack_type {
	uint8_t code, bits;
	uint32_t dtype; /* enum paged_dtype */
} dlpack_types[] = {
	{ DLPACK_FLOAT, 32, PAGED_F32 },       { DLPACK_FLOAT, 16, PAGED_F16 },
	{ DLPACK_BFLOAT, 16, PAGED_BF16 },     { DLPACK_FLOAT8_E4M3FN, 8, PAGED_E4M3 },
	{ DLPACK_FLOAT8_E5M2, 8, PAGED_E5M2 }, { DLPACK_INT, 32, PAGED_I32 },
	{ DLPACK_INT, 64, PAGED_I64 },         { DLPACK_INT, 8, PAGED_I8 },
	{ DLPACK_UINT, 8, PAGED_U8 },          { DLPACK_BOOL, 8, PAGED_U8 },
};

bool
dlpack_dtype_from(uint32_t dtype, struct dlpack_dtype *type_p)
{
	for (size_t i = 0; i < sizeof(dlpack_types) / sizeof(dlpack_types[0]); i++)
		if (dlpack_types[i].dtype == dtype) {
			*type_p = (struct dlpack_dtype){ dlpack_types[i].code, dlpack_types[i].bits, 1 };
			return true;
		}
	return false;
}

uint32_t
dlpack_dtype_to(struct dlpack_dtype type)
{
	for (size_t i = 0; i < sizeof(dlpack_types) / sizeof(dlpack_types[0]); i++)
		if (type.code == dlpack_types[i].code && type.bits == dlpack_types[i].bits && type.lanes == 1)
			return dlpack_types[i].dtype;
	return PAGED_DTYPE_NONE;
}

/*
 * Types that were seen, and their C functions; NULL: they have none.  A type that gets some later is still read, by
 * __dlpack__().  The references keep a type's address from being reused.
 */
static struct framework {
	PyTypeObject *type;
	const struct dlpack_exchange *exchange;
	bool is_torch;
} frameworks[8];
static unsigned int framework_next;

static const struct dlpack_exchange *
framework_find_exchange(PyTypeObject *type)
{
	PyObject *capsule = PyObject_GetAttrString((PyObject *)type, "__dlpack_c_exchange_api__");
	const struct dlpack_exchange *exchange = NULL;

	if (capsule != NULL)
		exchange = PyCapsule_GetPointer(capsule, DLPACK_CAPSULE_EXCHANGE);
	PyErr_Clear();
	Py_XDECREF(capsule);
	while (exchange != NULL && exchange->version.major != DLPACK_MAJOR)
		exchange = exchange->previous;
	return exchange;
}

static const struct framework *
framework_of(PyTypeObject *type)
{
	const struct dlpack_exchange *exchange;
	struct framework *entry;
	PyTypeObject *old, *torch;
	bool is_torch;

	for (size_t i = 0; i < sizeof(frameworks) / sizeof(frameworks[0]); i++)
		if (frameworks[i].type == type)
			return &frameworks[i];
	/* Before the entry is chosen: the look-ups may run Python code, which may enter here. */
	exchange = framework_find_exchange(type);
	torch = tensor_torch();
	is_torch = torch != NULL && PyType_IsSubtype(type, torch);
	entry = &frameworks[framework_next++ % (sizeof(frameworks) / sizeof(frameworks[0]))];
	old = entry->type;
	Py_INCREF((PyObject *)type);
	entry->type = type;
	entry->exchange = exchange;
	entry->is_torch = is_torch;
	Py_XDECREF((PyObject *)old);
	return entry;
}

const struct dlpack_exchange *
dlpack_exchange_of(PyTypeObject *type)
{
	return framework_of(type)->exchange;
}

bool
dlpack_is_torch(PyTypeObject *type)
{
	return framework_of(type)->is_torch;
}

void
dlpack_capsule_free(PyObject *capsule)
{
	struct dlpack_managed *managed;
	struct dlpack_legacy *legacy;

	if (PyCapsule_IsValid(capsule, DLPACK_CAPSULE)) {
		managed = PyCapsule_GetPointer(capsule, DLPACK_CAPSULE);
		if (managed->deleter != NULL)
			managed->deleter(managed);
	} else if (PyCapsule_IsValid(capsule, DLPACK_CAPSULE_LEGACY)) {
		legacy = PyCapsule_GetPointer(capsule, DLPACK_CAPSULE_LEGACY);
		if (legacy->deleter != NULL)
			legacy->deleter(legacy);
	}
}
