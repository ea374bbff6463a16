/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a plan or block mask. */
#include "python/ext/ext.h"

#include <string.h>

/* An int, as opposed to several numbers: arrays of one element also have __index__(). */
static bool
rows_is_one(PyObject *object)
{
	return PyLong_Check(object) || (PyIndex_Check(object) && !PySequence_Check(object));
}

static bool
rows_count(PyObject *object, const char *name, size_t *n_p)
{
	struct numbers_u32 numbers;

	if (!call_is_given(object) || rows_is_one(object))
		return true;
	if (!numbers_u32(object, name, &numbers))
		return false;
	if (numbers.n > *n_p)
		*n_p = numbers.n;
	numbers_u32_free(&numbers);
	return true;
}

/* The length of a list; false with TypeError that names the argument. */
static bool
rows_length(PyObject *object, const char *name, Py_ssize_t *n_p)
{
	*n_p = PySequence_Size(object);
	if (*n_p < 0 && PyErr_ExceptionMatches(PyExc_TypeError))
		PyErr_Format(PyExc_TypeError, "%s must be a list with an element for each row, not %R", name,
			     (PyObject *)Py_TYPE(object));
	return *n_p >= 0;
}

/* Without sequences and pages, the longest of the other lists has a number for each row. */
static bool
rows_find_n(const struct rows_arguments *arguments, struct rows *rows)
{
	Py_ssize_t n;

	rows->n = 1;
	if (call_is_given(arguments->pages)) {
		if (!rows_length(arguments->pages, "pages", &n))
			return false;
		rows->n = (size_t)n;
		return true;
	}
	return rows_count(arguments->q_len, "q_len", &rows->n) && rows_count(arguments->kv_len, "kv_len", &rows->n) &&
	       rows_count(arguments->b, "b", &rows->n) && rows_count(arguments->kv_first, "kv_first", &rows->n);
}

static bool
rows_allocate(struct rows *rows)
{
	rows->at = rows->small;
	if (rows->n <= sizeof(rows->small) / sizeof(rows->small[0])) {
		memset(rows->small, 0, sizeof(rows->small));
		return true;
	}
	rows->at = PyMem_Calloc(rows->n, sizeof(rows->at[0]));
	if (rows->at == NULL)
		PyErr_NoMemory();
	return rows->at != NULL;
}

static bool
rows_parse_seqs(PyObject *object, struct rows *rows)
{
	struct numbers_u64 seqs;
	bool made;

	if (!numbers_u64(object, "seqs", &seqs))
		return false;
	rows->n = seqs.n;
	made = rows_allocate(rows);
	for (size_t i = 0; made && i < seqs.n; i++)
		rows->at[i].seq = seqs.at[i];
	numbers_u64_free(&seqs);
	return made;
}

static bool
rows_parse_lengths(const struct rows_arguments *arguments, struct rows *rows)
{
	struct numbers_u32 q_len, kv_len;

	if (!numbers_u32_n(arguments->q_len, "q_len", rows->n, &q_len))
		return false;
	if (!numbers_u32_n(arguments->kv_len, "kv_len", rows->n, &kv_len)) {
		numbers_u32_free(&q_len);
		return false;
	}
	for (size_t i = 0; i < rows->n; i++) {
		rows->at[i].q_len = q_len.at[i];
		rows->at[i].kv_len = kv_len.at[i];
		rows->total_q += q_len.at[i];
		rows->total_kv += kv_len.at[i];
	}
	numbers_u32_free(&q_len);
	numbers_u32_free(&kv_len);
	return true;
}

static bool
rows_parse_b(PyObject *object, struct rows *rows)
{
	struct numbers_u32 b;

	if (!numbers_u32_n(object, "b", rows->n, &b))
		return false;
	for (size_t i = 0; i < rows->n; i++) {
		rows->at[i].b = b.at[i];
		rows->at[i].flags |= PAGED_ROW_B;
	}
	numbers_u32_free(&b);
	return true;
}

/* A kv_first past the row's kv_len is the library's to refuse. */
static bool
rows_parse_kv_first(PyObject *object, struct rows *rows)
{
	struct numbers_u32 kv_first;

	if (!numbers_u32_n(object, "kv_first", rows->n, &kv_first))
		return false;
	for (size_t i = 0; i < rows->n; i++)
		rows->at[i].kv_first = kv_first.at[i];
	numbers_u32_free(&kv_first);
	return true;
}

/* A list of one object for each row; false with ValueError that names the argument. */
static bool
rows_check_length(PyObject *object, const char *name, size_t n)
{
	Py_ssize_t length;

	if (!rows_length(object, name, &length))
		return false;
	if ((size_t)length == n)
		return true;
	PyErr_Format(PyExc_ValueError, "%s has %zd elements for %zu rows", name, length, n);
	return false;
}

static bool
rows_parse_q_base(PyObject *object, struct rows *rows)
{
	bool one = rows_is_one(object), parsed;
	PyObject *item;

	if (!one && !rows_check_length(object, "q_base", rows->n))
		return false;
	for (size_t i = 0; i < rows->n; i++) {
		item = one ? object : PySequence_GetItem(object, (Py_ssize_t)i);
		parsed = item != NULL && number_i64(item, "q_base", &rows->at[i].q_base);
		if (!one)
			Py_XDECREF(item);
		if (!parsed)
			return false;
		rows->at[i].flags |= PAGED_ROW_Q_BASE;
	}
	return true;
}

static bool
rows_parse_no_append(PyObject *object, struct rows *rows)
{
	bool one = PyBool_Check(object);
	PyObject *item;
	int is;

	if (!one && !rows_check_length(object, "no_append", rows->n))
		return false;
	for (size_t i = 0; i < rows->n; i++) {
		item = one ? object : PySequence_GetItem(object, (Py_ssize_t)i);
		is = item != NULL ? PyObject_IsTrue(item) : -1;
		if (!one)
			Py_XDECREF(item);
		if (is < 0)
			return false;
		if (is)
			rows->at[i].flags |= PAGED_ROW_NO_APPEND;
	}
	return true;
}

static bool
rows_add_pages(struct rows *rows, size_t n_before, const struct numbers_u32 *pages)
{
	uint32_t *larger;

	if (pages->n > UINT32_MAX || n_before + pages->n > SIZE_MAX / sizeof(*larger)) {
		PyErr_NoMemory();
		return false;
	}
	if (pages->n == 0)
		return true;
	larger = PyMem_Realloc(rows->pages, (n_before + pages->n) * sizeof(*larger));
	if (larger == NULL) {
		PyErr_NoMemory();
		return false;
	}
	rows->pages = larger;
	memcpy(rows->pages + n_before, pages->at, pages->n * sizeof(*larger));
	return true;
}

static bool
rows_parse_pages(PyObject *object, struct rows *rows)
{
	static const uint32_t none[1];
	struct numbers_u32 pages;
	PyObject *item;
	size_t n = 0;
	bool parsed;

	for (size_t i = 0; i < rows->n; i++) {
		item = PySequence_GetItem(object, (Py_ssize_t)i);
		parsed = item != NULL && numbers_u32(item, "pages", &pages);
		Py_XDECREF(item);
		if (!parsed)
			return false;
		parsed = rows_add_pages(rows, n, &pages);
		rows->at[i].n_pages = (uint32_t)pages.n;
		n += pages.n;
		numbers_u32_free(&pages);
		if (!parsed)
			return false;
	}
	/* The array no longer moves. */
	n = 0;
	for (size_t i = 0; i < rows->n; i++) {
		rows->at[i].pages = rows->at[i].n_pages != 0 ? rows->pages + n : none;
		n += rows->at[i].n_pages;
	}
	return true;
}

static bool
rows_parse_all(const struct rows_arguments *arguments, struct rows *rows)
{
	bool seqs = call_is_given(arguments->seqs), pages = call_is_given(arguments->pages);

	if (seqs && pages) {
		PyErr_SetString(PyExc_ValueError, "seqs and pages exclude each other: pass None for one of them");
		return false;
	}
	if (seqs ? !rows_parse_seqs(arguments->seqs, rows) : !rows_find_n(arguments, rows) || !rows_allocate(rows))
		return false;
	return rows_parse_lengths(arguments, rows) &&
	       (!call_is_given(arguments->b) || rows_parse_b(arguments->b, rows)) &&
	       (!call_is_given(arguments->kv_first) || rows_parse_kv_first(arguments->kv_first, rows)) &&
	       (!call_is_given(arguments->q_base) || rows_parse_q_base(arguments->q_base, rows)) &&
	       (!call_is_given(arguments->no_append) || rows_parse_no_append(arguments->no_append, rows)) &&
	       (!pages || rows_parse_pages(arguments->pages, rows));
}

bool
rows_parse(const struct rows_arguments *arguments, struct rows *rows)
{
	rows->at = rows->small;
	rows->n = 0;
	rows->total_q = 0;
	rows->total_kv = 0;
	rows->pages = NULL;
	if (rows_parse_all(arguments, rows))
		return true;
	rows_free(rows);
	return false;
}

void
rows_free(struct rows *rows)
{
	if (rows->at != rows->small)
		PyMem_Free(rows->at);
	PyMem_Free(rows->pages);
}
