/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary, and Batch.append(). */
#include "python/ext/operands.h"

#include <string.h>

/* ---------------------------------------------------------------------- Rotary */

/** The type paged.Rotary. */
struct rotary {
	PyObject_HEAD
	PyObject *cos_sin, *positions, *q, *q_out; /* NULL: not given */
	uint32_t first;
	uint32_t style;
};

static PyTypeObject *rotary_type;

static bool
rotary_parse_style(PyObject *object, uint32_t *style_p)
{
	const char *text;

	*style_p = PAGED_ROTARY_NEOX;
	if (object == NULL)
		return true;
	text = text_utf8(object, "style");
	if (text == NULL)
		return false;
	if (strcmp(text, "interleaved") == 0)
		*style_p = PAGED_ROTARY_INTERLEAVED;
	else if (strcmp(text, "neox") != 0) {
		PyErr_Format(PyExc_ValueError, "style is \"%s\"; it must be \"neox\" or \"interleaved\"", text);
		return false;
	}
	return true;
}

static PyObject *
rotary_keep(PyObject *object)
{
	return call_is_given(object) ? Py_NewRef(object) : NULL;
}

static PyObject *
rotary_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
	static char *names[] = { "cos_sin", "style", "first", "positions", "q", "q_out", NULL };
	PyObject *cos_sin, *style_text = NULL, *first = NULL, *positions = NULL, *q = NULL, *q_out = NULL;
	uint32_t style, first_dim = 0;
	struct rotary *rotary;
	allocfunc allocate;

	if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|$OOOOO:Rotary", names, &cos_sin, &style_text, &first,
					 &positions, &q, &q_out) ||
	    !rotary_parse_style(style_text, &style) || (first != NULL && !number_u32(first, "first", &first_dim)))
		return NULL;
	if (cos_sin == Py_None) {
		PyErr_SetString(PyExc_TypeError, "cos_sin must be a tensor, not None");
		return NULL;
	}
	if (call_is_given(q) != call_is_given(q_out)) {
		PyErr_SetString(PyExc_ValueError, "q and q_out must be given together; they may be the same tensor");
		return NULL;
	}
	allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
	rotary = (struct rotary *)allocate(type, 0);
	if (rotary == NULL)
		return NULL;
	rotary->cos_sin = Py_NewRef(cos_sin);
	rotary->positions = rotary_keep(positions);
	rotary->q = rotary_keep(q);
	rotary->q_out = rotary_keep(q_out);
	rotary->first = first_dim;
	rotary->style = style;
	return (PyObject *)rotary;
}

static int
rotary_traverse(struct rotary *rotary, visitproc visit, void *arg)
{
	Py_VISIT(Py_TYPE((PyObject *)rotary));
	Py_VISIT(rotary->cos_sin);
	Py_VISIT(rotary->positions);
	Py_VISIT(rotary->q);
	Py_VISIT(rotary->q_out);
	return 0;
}

static int
rotary_clear(struct rotary *rotary)
{
	Py_CLEAR(rotary->cos_sin);
	Py_CLEAR(rotary->positions);
	Py_CLEAR(rotary->q);
	Py_CLEAR(rotary->q_out);
	return 0;
}

static void
rotary_dealloc(struct rotary *rotary)
{
	PyTypeObject *type = Py_TYPE((PyObject *)rotary);

	PyObject_GC_UnTrack(rotary);
	rotary_clear(rotary);
	PyObject_GC_Del(rotary);
	Py_DECREF((PyObject *)type);
}

static PyObject *
rotary_repr(struct rotary *rotary)
{
	return PyUnicode_FromFormat("<paged.Rotary %s, first dim %u%s%s>",
				    rotary->style == PAGED_ROTARY_NEOX ? "neox" : "interleaved", rotary->first,
				    rotary->positions != NULL ? ", with positions" : "",
				    rotary->q != NULL ? ", with q" : "");
}

/* The library's struct for one append.  The tables are read each time, because tensors may be replaced in place. */
static bool
rotary_fill(struct operands *operands, PyObject *object, struct operand_indexes *positions, struct paged_rotary *params)
{
	struct rotary *rotary = (struct rotary *)object;
	struct tensor *table;
	void *data;

	if (!PyObject_TypeCheck(object, rotary_type)) {
		PyErr_Format(PyExc_TypeError, "rotary must be a Rotary, not %R", (PyObject *)Py_TYPE(object));
		return false;
	}
	table = operands_add(operands, rotary->cos_sin, "cos_sin", false);
	if (table == NULL)
		return false;
	if (table->n_dims != 2 || table->shape[0] > UINT32_MAX || table->shape[1] > UINT32_MAX) {
		PyErr_Format(PyExc_ValueError, "cos_sin has %d dimensions; it must be [positions, dim]",
			     (int)table->n_dims);
		return false;
	}
	if (!tensor_vector(table, operands->batch->pool, "cos_sin", PAGED_F32,
			   (uint64_t)table->shape[0] * (uint64_t)table->shape[1], &data) ||
	    !operand_indexes(operands, rotary->positions, "positions of the rotary embedding", operands->batch->total_q,
			     positions))
		return false;
	params->cos_sin = data;
	params->n_positions = (uint32_t)table->shape[0];
	params->dim = (uint32_t)table->shape[1];
	params->first = rotary->first;
	params->style = rotary->style;
	params->positions = positions->at;
	return rotary->q == NULL || (operand_q(operands, rotary->q, "q", false, &params->q) != NULL &&
				     operand_q(operands, rotary->q_out, "q_out", true, &params->q_out) != NULL);
}

PyDoc_STRVAR(rotary_doc, "Rotary(cos_sin, *, style=\"neox\", first=0, positions=None, q=None, q_out=None)\n--\n\n"
			 "A rotary embedding, which append() applies to K as it writes the pages.\n\n"
			 "cos_sin\n"
			 "    Tensor [n_positions, dim] of f32: for each position the cosines of its dim / 2\n"
			 "    pairs, then their sines, as in the cache of vLLM.  dim is the number of dims that\n"
			 "    are rotated.\n"
			 "style\n"
			 "    Which dims form pair i: \"neox\" i and i + dim / 2, \"interleaved\" 2 i and 2 i + 1.\n"
			 "first\n"
			 "    First rotated dim.\n"
			 "positions\n"
			 "    [total_q] positions, below n_positions; on a GPU a tensor of int32.  None: q_idx.\n"
			 "q, q_out\n"
			 "    Queries [total_q, n_heads, k_dim] to rotate as well, and where to.  They may be\n"
			 "    the same tensor.\n\n"
			 "The object keeps references to the tensors, and each append() reads them.");

/* ---------------------------------------------------------------------- append */

const char batch_append_doc[] =
	"append($self, /, layer, k, v=None, *, positions=None, k_scale=None, v_scale=None, rotary=None)\n--\n\n"
	"Write this step's K and V of one layer into the pages.\n\n"
	"k, v\n"
	"    Tensors [total_q, n_kv_heads, dim], or [n_rows, n_kv_heads, q_len, dim] where\n"
	"    all rows have the same q_len.  f32, f16 or bf16, converted to the pool's dtype.\n"
	"    No v in a pool whose V lies in K.\n"
	"positions\n"
	"    [total_q] positions in the sequences, in any order; on a GPU a tensor of int32.\n"
	"    None: consecutive, the last at kv_len - 1.\n"
	"k_scale, v_scale\n"
	"    [n_kv_heads] of f32, for pools of e4m3 and e5m2: K and V are divided by them.\n"
	"    Pass the same to attention() and gather().\n"
	"rotary\n"
	"    A Rotary, applied to K.\n\n"
	"Gradients are not recorded.\n\n"
	"Raises ValueError if a tensor does not fit the plan or the pool, or if two rows\n"
	"write the same token, PermissionDeniedError if a sequence belongs to another session\n"
	"or a token is shared or published, CapacityError if a position exceeds the\n"
	"sequence's capacity, and RangeError if a rotary position is outside cos_sin.";

static PyObject *
append_run(struct operands *operands, struct paged_batch *handle, PyObject **values)
{
	struct paged_append_params params = { .struct_size = sizeof(params) };
	struct paged_rotary rotary = { .struct_size = sizeof(rotary) };
	struct operand_indexes positions = { .at = NULL }, rotary_positions = { .at = NULL };
	struct batch *batch = operands->batch;
	struct paged_tensor k, v;
	enum paged_status status;
	bool has_v = call_is_given(values[2]), parsed;
	uint32_t layer;

	parsed = operands_check_plan(batch) && number_u32(values[0], "layer", &layer) &&
		 operand_q(operands, values[1], "k", false, &k) != NULL &&
		 (!has_v || operand_q(operands, values[2], "v", false, &v) != NULL) &&
		 operand_indexes(operands, values[3], "positions", batch->total_q, &positions) &&
		 operand_scales(operands, values[4], values[5], &params.k_scale, &params.v_scale) &&
		 (!call_is_given(values[6]) || rotary_fill(operands, values[6], &rotary_positions, &rotary)) &&
		 operands_check_stream(operands);
	if (!parsed) {
		batch_leave(batch);
	} else {
		params.positions = positions.at;
		params.rotary = call_is_given(values[6]) ? &rotary : NULL;
		Py_BEGIN_ALLOW_THREADS
		status = paged_append(handle, layer, &k, has_v ? &v : NULL, &params);
		Py_END_ALLOW_THREADS
	}
	operand_indexes_free(&positions);
	operand_indexes_free(&rotary_positions);
	return parsed ? batch_result(batch, status) : NULL;
}

PyObject *
batch_append(struct batch *batch, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "layer", "k", "v", "positions", "k_scale", "v_scale", "rotary" };
	static struct call_signature signature = {
		.function = "Batch.append", .names = names, .n = 7, .n_positional = 3, .n_required = 2
	};

	return operands_call(batch, &signature, append_run, arguments, n, keyword_names);
}

/* ------------------------------------------------------------------------ type */

int
append_add(PyObject *module)
{
	static PyType_Slot slots[] = {
		{ Py_tp_doc, (void *)rotary_doc },
		{ Py_tp_new, rotary_new },
		{ Py_tp_dealloc, rotary_dealloc },
		{ Py_tp_traverse, rotary_traverse },
		{ Py_tp_clear, rotary_clear },
		{ Py_tp_repr, rotary_repr },
		{ 0, NULL },
	};
	static PyType_Spec spec = {
		.name = "paged.Rotary",
		.basicsize = sizeof(struct rotary),
		.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
		.slots = slots,
	};

	rotary_type = (PyTypeObject *)PyType_FromSpec(&spec);
	if (rotary_type == NULL)
		return -1;
	return PyModule_AddType(module, rotary_type);
}
