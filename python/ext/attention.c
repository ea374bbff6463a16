/* SPDX-License-Identifier: Apache-2.0 */
#include "python/ext/ext.h"

#include <string.h>
#include <unistd.h>

#include "python/ext/dlpack.h"

/* ------------------------------------------------------------------- operands */

enum { OPERANDS_MAX = 12 };

/**
 * The tensors of a call on a batch that has been entered.  Reading a tensor may run Python code, so the batch is
 * entered first: no other thread can then change the plan that sizes are checked against.
 */
struct operands {
	struct batch *batch;
	uint32_t n;
	struct tensor tensors[OPERANDS_MAX];
};

static void
operands_release(struct operands *operands)
{
	while (operands->n > 0)
		tensor_release(&operands->tensors[--operands->n]);
}

static struct tensor *
operands_add(struct operands *operands, PyObject *object, const char *name, bool out)
{
	struct tensor *tensor = &operands->tensors[operands->n];

	if (out ? !tensor_from_out(object, name, tensor) : !tensor_from(object, name, tensor))
		return NULL;
	operands->n++;
	return tensor;
}

/* On a GPU, a call runs on the stream of the plan, and the framework's work on the tensors must be in its order. */
static bool
operands_check_stream(const struct operands *operands)
{
	const struct batch *batch = operands->batch;
	void *stream;

	if (!batch->follows || batch->pool->info.device == NULL || operands->n == 0)
		return true;
	for (uint32_t i = 0; i < operands->n; i++) {
		PyTypeObject *type = Py_TYPE(operands->tensors[i].object);

		if (dlpack_exchange_of(type) == NULL)
			continue;
		if (!tensor_stream(type, batch->device_id, &stream))
			return false;
		if (stream != batch->stream) {
			PyErr_Format(PyExc_ValueError,
				     "%R works on stream %p and the plan on %p: plan and call under the same stream",
				     (PyObject *)type, stream, batch->stream);
			return false;
		}
		break;
	}
	return true;
}

/* Number of tokens of a packed tensor. */
static uint64_t
operand_tokens(const struct tensor *tensor)
{
	return (uint64_t)(tensor->n_dims == 3 ? tensor->shape[0] : tensor->shape[0] * tensor->shape[2]);
}

/* struct paged_tensor has no number of tokens: the library reads as many as the plan has. */
static bool
operand_check_tokens(const struct tensor *tensor, const struct paged_tensor *packed, const char *name,
		     uint64_t n_tokens, uint32_t n_rows)
{
	if (operand_tokens(tensor) != n_tokens) {
		PyErr_Format(PyExc_ValueError, "%s has %llu tokens, not %llu", name,
			     (unsigned long long)operand_tokens(tensor), (unsigned long long)n_tokens);
		return false;
	}
	if (packed->batch_stride != 0 && tensor->shape[0] != (int64_t)n_rows) {
		PyErr_Format(PyExc_ValueError, "%s has %lld rows; the plan has %lu: make its tokens evenly spaced",
			     name, (long long)tensor->shape[0], (unsigned long)n_rows);
		return false;
	}
	return true;
}

/*
 * If plan() fails because the stream cannot be changed, the library still has the plan before.  In a forked child the
 * library refuses all calls.
 */
static bool
operands_check_plan(const struct batch *batch)
{
	if (batch->planned || batch->pool->client->pid != getpid())
		return true;
	error_format(PAGED_ERR_INVALID, "the batch has no plan");
	return false;
}

/* A tensor with the query tokens of the plan. */
static struct tensor *
operand_q(struct operands *operands, PyObject *object, const char *name, bool out, struct paged_tensor *packed)
{
	const struct batch *batch = operands->batch;
	struct tensor *tensor = operands_add(operands, object, name, out);

	if (tensor == NULL || !tensor_packed(tensor, batch->pool, name, packed))
		return NULL;
	if (batch->planned && !operand_check_tokens(tensor, packed, name, batch->total_q, batch->n_rows))
		return NULL;
	return tensor;
}

/* An optional vector; the address stays NULL if it is not given. */
static bool
operand_f32(struct operands *operands, PyObject *object, const char *name, bool out, uint64_t n_elements, void **data_p)
{
	struct tensor *tensor;

	if (!call_is_given(object))
		return true;
	tensor = operands_add(operands, object, name, out);
	return tensor != NULL && tensor_vector(tensor, operands->batch->pool, name, PAGED_F32, n_elements, data_p);
}

/* An optional vector with a number for each token and head: heads last, unlike PyTorch's [B, H, L]. */
static bool
operand_scores(struct operands *operands, PyObject *object, const char *name, bool out, uint64_t n_tokens,
	       uint32_t n_heads, void **data_p)
{
	const struct tensor *tensor;

	if (!operand_f32(operands, object, name, out, n_tokens * n_heads, data_p))
		return false;
	if (!call_is_given(object))
		return true;
	tensor = &operands->tensors[operands->n - 1];
	if (tensor->n_dims > 0 && tensor->shape[tensor->n_dims - 1] == (int64_t)n_heads)
		return true;
	PyErr_Format(PyExc_ValueError, "the last dimension of %s must be the %lu heads: its shape is [%llu, %lu]", name,
		     (unsigned long)n_heads, (unsigned long long)n_tokens, (unsigned long)n_heads);
	return false;
}

static bool
operand_scales(struct operands *operands, PyObject *k, PyObject *v, const float **k_p, const float **v_p)
{
	uint32_t n = operands->batch->pool->info.n_kv_heads;
	void *data[2] = { NULL };

	if (!operand_f32(operands, k, "k_scale", false, n, &data[0]) ||
	    !operand_f32(operands, v, "v_scale", false, n, &data[1]))
		return false;
	*k_p = data[0];
	*v_p = data[1];
	return true;
}

/** Optional indexes: in host memory any integers, which are copied; on a GPU a tensor of int32. */
struct operand_indexes {
	struct numbers_u32 numbers;
	const uint32_t *at; /* NULL: not given */
	bool copied;
};

static bool
operand_indexes(struct operands *operands, PyObject *object, const char *name, uint64_t n,
		struct operand_indexes *indexes)
{
	struct tensor *tensor;
	void *data;

	if (!call_is_given(object))
		return true;
	if (operands->batch->pool->info.device == NULL) {
		if (!numbers_u32_n(object, name, (size_t)n, &indexes->numbers))
			return false;
		indexes->copied = true;
		indexes->at = indexes->numbers.at;
		return true;
	}
	tensor = operands_add(operands, object, name, false);
	if (tensor == NULL || !tensor_vector(tensor, operands->batch->pool, name, PAGED_I32, n, &data))
		return false;
	indexes->at = data;
	return true;
}

static void
operand_indexes_free(struct operand_indexes *indexes)
{
	if (indexes->copied)
		numbers_u32_free(&indexes->numbers);
}

/* ---------------------------------------------------------------------- Rotary */

/** The type paged.Rotary. */
struct rotary {
	PyObject_HEAD PyObject *cos_sin, *positions, *q, *q_out; /* NULL: not given */
	uint32_t first;
	uint32_t style;
};

static PyTypeObject *rotary_type;

static bool
rotary_parse_style(const char *text, uint32_t *style_p)
{
	if (strcmp(text, "neox") == 0)
		*style_p = PAGED_ROTARY_NEOX;
	else if (strcmp(text, "interleaved") == 0)
		*style_p = PAGED_ROTARY_INTERLEAVED;
	else {
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
	PyObject *cos_sin, *first = NULL, *positions = NULL, *q = NULL, *q_out = NULL;
	uint32_t style = PAGED_ROTARY_NEOX, first_dim = 0;
	const char *style_text = "neox";
	struct rotary *rotary;
	allocfunc allocate;

	if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|$sOOOO:Rotary", names, &cos_sin, &style_text, &first,
					 &positions, &q, &q_out) ||
	    !rotary_parse_style(style_text, &style) || (first != NULL && !number_u32(first, "first", &first_dim)))
		return NULL;
	if (call_is_given(q) != call_is_given(q_out)) {
		PyErr_SetString(PyExc_ValueError, "q and q_out must be given together; they may be the same tensor");
		return NULL;
	}
	allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
	rotary = (struct rotary *)allocate(type, 0);
	if (rotary == NULL)
		return NULL;
	rotary->cos_sin = rotary_keep(cos_sin);
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
		PyErr_Format(PyExc_TypeError, "rotary must be a Rotary, not %R", object);
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

PyDoc_STRVAR(append_doc,
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
	     "sequence's capacity, and RangeError if a rotary position is outside cos_sin.");

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
		Py_BEGIN_ALLOW_THREADS status = paged_append(handle, layer, &k, has_v ? &v : NULL, &params);
		Py_END_ALLOW_THREADS
	}
	operand_indexes_free(&positions);
	operand_indexes_free(&rotary_positions);
	return parsed ? batch_result(batch, status) : NULL;
}

static PyObject *
batch_append(struct batch *batch, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "layer", "k", "v", "positions", "k_scale", "v_scale", "rotary" };
	static struct call_signature signature = {
		.function = "Batch.append", .names = names, .n = 7, .n_positional = 3, .n_required = 2
	};
	struct operands operands;
	struct paged_batch *handle;
	PyObject *values[7], *result;

	if (!call_parse(&signature, arguments, n, keyword_names, values))
		return NULL;
	handle = batch_enter(batch);
	if (handle == NULL)
		return NULL;
	operands.batch = batch;
	operands.n = 0;
	result = append_run(&operands, handle, values);
	operands_release(&operands);
	return result;
}

/* ------------------------------------------------------------------- attention */

PyDoc_STRVAR(attention_doc, "attention($self, /, layer, q, out=None, *, mods=None, causal=True, scale=None, lse=None, "
			    "max_score=None, sink=None, lse_without_sink=False, k_scale=None, v_scale=None)\n--\n\n"
			    "Return softmax(scale q K^T) V over the planned pages of one layer.\n\n"
			    "q\n"
			    "    Tensor [total_q, n_heads, k_dim], or [n_rows, n_heads, q_len, k_dim] where all\n"
			    "    rows have the same q_len.  f32, f16 or bf16.  n_heads is a multiple of the\n"
			    "    pool's n_kv_heads.\n"
			    "out\n"
			    "    Written and returned: [total_q, n_heads, v_dim] or [n_rows, n_heads, q_len,\n"
			    "    v_dim]; must not overlap q.  None: a new tensor of q's type, dtype and layout, for\n"
			    "    a q of NumPy or of a framework with DLPack's C exchange API (TypeError otherwise).\n"
			    "mods\n"
			    "    A ModSet of this batch.  Its mods apply in addition to causal.\n"
			    "causal\n"
			    "    True: a query sees keys up to its own position (kv_idx <= q_idx).  False: all\n"
			    "    keys, or those that the mods show.\n"
			    "scale\n"
			    "    Factor of the scores, not 0.  None: 1 / sqrt(k_dim).\n"
			    "lse\n"
			    "    [total_q, n_heads] of f32, dense, also for a q of four dimensions; written:\n"
			    "    natural logarithm of the softmax denominator, -inf if the query sees no key.\n"
			    "max_score\n"
			    "    As lse: the largest score after scale and score mod.\n"
			    "sink\n"
			    "    [n_heads] of f32: adds exp(sink) to the softmax denominator.\n"
			    "lse_without_sink\n"
			    "    True: lse excludes the sink.\n"
			    "k_scale, v_scale\n"
			    "    As passed to append().\n\n"
			    "A query that sees no key yields 0.  Gradients are not recorded.\n\n"
			    "Raises ValueError if a tensor does not fit the plan or the pool, or if the mods\n"
			    "belong to another batch or have no binding, StaleError if a physical block mask was\n"
			    "made for other pages, and LimitError if q has more heads than max_q_heads (GPU).\n"
			    "An index out of bounds of an array that a mod reads is reported by validate().");

static bool
attention_parse_scale(PyObject *object, float *scale_p)
{
	double scale;

	if (!call_is_given(object))
		return true;
	scale = PyFloat_AsDouble(object);
	if (scale == -1.0 && PyErr_Occurred())
		return false;
	*scale_p = (float)scale;
	if (*scale_p != 0)
		return true;
	/* To the library, 0 means the default. */
	PyErr_SetString(PyExc_ValueError, "scale is 0; None means 1 / sqrt(k_dim)");
	return false;
}

static bool
attention_parse_flag(PyObject *object, bool *flag_p)
{
	int is;

	if (!call_is_given(object))
		return true;
	is = PyObject_IsTrue(object);
	*flag_p = is == 1;
	return is >= 0;
}

static bool
attention_parse_mods(PyObject *object, const struct batch *batch, struct paged_mod_set **handle_p)
{
	struct mod_set *mod_set = (struct mod_set *)object;

	if (!call_is_given(object))
		return true;
	if (!PyObject_TypeCheck(object, mod_set_type)) {
		PyErr_Format(PyExc_TypeError, "mods must be a ModSet (from Batch.mods()), not %R", object);
		return false;
	}
	if (mod_set->batch != batch) {
		PyErr_SetString(PyExc_ValueError, "mods belong to another batch: make them with this batch's mods()");
		return false;
	}
	/* NULL is attention without mods. */
	if (mod_set->handle == NULL) {
		PyErr_SetString(PyExc_RuntimeError, "the mods are closed");
		return false;
	}
	*handle_p = mod_set->handle;
	return true;
}

/* out, or a new tensor like q; a new reference. */
static PyObject *
attention_out(const struct tensor *q, const struct pool *pool, PyObject *out)
{
	int64_t shape[4];

	if (call_is_given(out))
		return Py_NewRef(out);
	memcpy(shape, q->shape, (size_t)q->n_dims * sizeof(shape[0]));
	shape[q->n_dims - 1] = pool->info.v.dim;
	return tensor_like(q, q->dtype, q->n_dims, shape);
}

static bool
attention_fill(struct operands *operands, PyObject **values, uint64_t n_tokens, uint32_t n_heads,
	       struct paged_attention_params *params)
{
	bool causal = true, without_sink = false;
	void *lse = NULL, *max_score = NULL, *sink = NULL;

	if (!attention_parse_mods(values[3], operands->batch, &params->mod_set) ||
	    !attention_parse_flag(values[4], &causal) || !attention_parse_scale(values[5], &params->scale) ||
	    !operand_scores(operands, values[6], "lse", true, n_tokens, n_heads, &lse) ||
	    !operand_scores(operands, values[7], "max_score", true, n_tokens, n_heads, &max_score))
		return false;
	if (call_is_given(values[8]) &&
	    !operand_f32(operands, values[8], "sink", false, (uint64_t)operands->tensors[0].shape[1], &sink))
		return false;
	params->mask = causal ? PAGED_MASK_CAUSAL : PAGED_MASK_NONE;
	params->lse = lse;
	params->max_score = max_score;
	params->sink = sink;
	if (!attention_parse_flag(values[9], &without_sink))
		return false;
	params->lse_without_sink = without_sink;
	return operand_scales(operands, values[10], values[11], &params->k_scale, &params->v_scale);
}

static PyObject *
attention_run(struct operands *operands, struct paged_batch *handle, PyObject **values)
{
	struct paged_attention_params params = { .struct_size = sizeof(params) };
	struct batch *batch = operands->batch;
	struct paged_tensor q, packed;
	enum paged_status status;
	PyObject *out = NULL, *none;
	struct tensor *tensor = NULL;
	uint32_t layer;

	if (operands_check_plan(batch) && number_u32(values[0], "layer", &layer))
		tensor = operand_q(operands, values[1], "q", false, &q);
	if (tensor != NULL)
		out = attention_out(tensor, batch->pool, values[2]);
	if (out == NULL || operand_q(operands, out, "out", true, &packed) == NULL ||
	    !attention_fill(operands, values, operand_tokens(tensor), q.n_heads, &params) ||
	    !operands_check_stream(operands)) {
		batch_leave(batch);
		Py_XDECREF(out);
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS status = paged_attention(handle, layer, &q, &packed, &params);
	Py_END_ALLOW_THREADS none = batch_result(batch, status);
	if (none == NULL)
		Py_CLEAR(out);
	Py_XDECREF(none);
	return out;
}

static PyObject *
batch_attention(struct batch *batch, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "layer",   "q",      "out",       "mods", "causal",
					     "scale",   "lse",    "max_score", "sink", "lse_without_sink",
					     "k_scale", "v_scale" };
	static struct call_signature signature = {
		.function = "Batch.attention", .names = names, .n = 12, .n_positional = 3, .n_required = 2
	};
	struct operands operands;
	struct paged_batch *handle;
	PyObject *values[12], *result;

	if (!call_parse(&signature, arguments, n, keyword_names, values))
		return NULL;
	handle = batch_enter(batch);
	if (handle == NULL)
		return NULL;
	operands.batch = batch;
	operands.n = 0;
	result = attention_run(&operands, handle, values);
	operands_release(&operands);
	return result;
}

/* ---------------------------------------------------------------------- gather */

PyDoc_STRVAR(gather_doc,
	     "gather($self, /, layer, k, v=None, *, begin=None, end=None, k_scale=None, v_scale=None)\n--\n\n"
	     "Copy K and V of the planned rows from the pages of one layer into tensors.\n\n"
	     "k, v\n"
	     "    Written: [tokens, n_kv_heads, dim], the tokens of the first row first; or\n"
	     "    [n_rows, n_kv_heads, tokens of a row, dim].  None: not wanted.\n"
	     "begin, end\n"
	     "    For each row the first token and the one past the last.  None: 0 and kv_len.\n"
	     "    On a GPU tensors of int32; k and v then have room for all kv_len.\n"
	     "k_scale, v_scale\n"
	     "    As passed to append().\n\n"
	     "Raises ValueError if a tensor does not fit, and RangeError if begin exceeds end or\n"
	     "end exceeds kv_len.");

/* Number of tokens that are gathered; false: the bounds are invalid, and the library says how. */
static bool
gather_tokens(const struct batch *batch, const uint32_t *begin, const uint32_t *end, uint64_t *n_p)
{
	uint64_t begins = 0, ends = 0;

	for (uint32_t i = 0; i < batch->n_rows; i++) {
		begins += begin != NULL ? begin[i] : 0;
		ends += end != NULL ? end[i] : 0;
		if (begin != NULL && end != NULL && begin[i] > end[i])
			return false;
	}
	if (end == NULL)
		ends = batch->total_kv;
	*n_p = ends - begins;
	return begins <= ends;
}

static bool
gather_check(const struct batch *batch, const struct tensor *tensor, const struct paged_tensor *packed,
	     const char *name, const struct paged_gather_params *params)
{
	bool on_device = batch->pool->info.device != NULL && (params->begin != NULL || params->end != NULL);
	uint64_t n_tokens = batch->total_kv;

	if (!batch->planned)
		return true;
	if (on_device) {
		if (operand_tokens(tensor) >= n_tokens)
			return true;
		PyErr_Format(PyExc_ValueError,
			     "%s has %llu tokens; with begin or end on the GPU it needs room for %llu", name,
			     (unsigned long long)operand_tokens(tensor), (unsigned long long)n_tokens);
		return false;
	}
	if (!gather_tokens(batch, params->begin, params->end, &n_tokens))
		return true;
	return operand_check_tokens(tensor, packed, name, n_tokens, batch->n_rows);
}

static PyObject *
gather_run(struct operands *operands, struct paged_batch *handle, PyObject **values)
{
	struct paged_gather_params params = { .struct_size = sizeof(params) };
	struct operand_indexes begin = { .at = NULL }, end = { .at = NULL };
	bool has_k = call_is_given(values[1]), has_v = call_is_given(values[2]), parsed;
	struct tensor *k_tensor = NULL, *v_tensor = NULL;
	struct batch *batch = operands->batch;
	struct paged_tensor k, v;
	enum paged_status status;
	uint32_t layer;

	parsed = operands_check_plan(batch) && number_u32(values[0], "layer", &layer) &&
		 operand_indexes(operands, values[3], "begin", batch->n_rows, &begin) &&
		 operand_indexes(operands, values[4], "end", batch->n_rows, &end) &&
		 operand_scales(operands, values[5], values[6], &params.k_scale, &params.v_scale);
	params.begin = begin.at;
	params.end = end.at;
	if (parsed && has_k) {
		k_tensor = operands_add(operands, values[1], "k", true);
		parsed = k_tensor != NULL && tensor_packed(k_tensor, batch->pool, "k", &k) &&
			 gather_check(batch, k_tensor, &k, "k", &params);
	}
	if (parsed && has_v) {
		v_tensor = operands_add(operands, values[2], "v", true);
		parsed = v_tensor != NULL && tensor_packed(v_tensor, batch->pool, "v", &v) &&
			 gather_check(batch, v_tensor, &v, "v", &params);
	}
	parsed = parsed && operands_check_stream(operands);
	if (!parsed) {
		batch_leave(batch);
	} else {
		Py_BEGIN_ALLOW_THREADS status =
			paged_gather(handle, layer, has_k ? &k : NULL, has_v ? &v : NULL, &params);
		Py_END_ALLOW_THREADS
	}
	operand_indexes_free(&begin);
	operand_indexes_free(&end);
	return parsed ? batch_result(batch, status) : NULL;
}

static PyObject *
batch_gather(struct batch *batch, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "layer", "k", "v", "begin", "end", "k_scale", "v_scale" };
	static struct call_signature signature = {
		.function = "Batch.gather", .names = names, .n = 7, .n_positional = 3, .n_required = 2
	};
	struct operands operands;
	struct paged_batch *handle;
	PyObject *values[7], *result;

	if (!call_parse(&signature, arguments, n, keyword_names, values))
		return NULL;
	handle = batch_enter(batch);
	if (handle == NULL)
		return NULL;
	operands.batch = batch;
	operands.n = 0;
	result = gather_run(&operands, handle, values);
	operands_release(&operands);
	return result;
}

/* ----------------------------------------------------------------------- merge */

PyDoc_STRVAR(merge_doc, "merge($self, /, a, a_lse, b, b_lse, out=None, *, lse=None)\n--\n\n"
			"Combine two attention results over disjoint keys into the result over all of them.\n\n"
			"a, b\n"
			"    Results of attention() for the same queries: [tokens, n_heads, v_dim], or\n"
			"    [rows, n_heads, q_len, v_dim].\n"
			"a_lse, b_lse\n"
			"    [tokens, n_heads] of f32.  At most one includes a sink.\n"
			"out\n"
			"    Written and returned; may be a or b.  None: a new tensor like a.\n"
			"lse\n"
			"    [tokens, n_heads] of f32, written: the merged lse; may be a_lse or b_lse.\n\n"
			"Needs no plan.  Raises ValueError if the tensors have different shapes.");

static bool
merge_part(struct operands *operands, PyObject *object, const char *name, bool out, uint64_t n_tokens,
	   struct paged_merge_params *params, struct paged_tensor *packed)
{
	struct tensor *tensor = operands_add(operands, object, name, out);
	uint64_t q_len;

	if (tensor == NULL || !tensor_packed(tensor, operands->batch->pool, name, packed) ||
	    !operand_check_tokens(tensor, packed, name, n_tokens, (uint32_t)tensor->shape[0]))
		return false;
	if (packed->batch_stride == 0)
		return true;
	q_len = (uint64_t)tensor->shape[2];
	if (params->q_len == 0 || params->q_len == q_len) {
		params->q_len = q_len;
		return true;
	}
	PyErr_Format(PyExc_ValueError, "%s has rows of %llu tokens, not %llu", name, (unsigned long long)q_len,
		     (unsigned long long)params->q_len);
	return false;
}

static bool
merge_fill(struct operands *operands, PyObject **values, PyObject **out_p, struct paged_merge_params *params)
{
	struct tensor *a = operands_add(operands, values[0], "a", false);
	void *lse[3] = { NULL };
	uint32_t n_heads;

	if (a == NULL || !tensor_packed(a, operands->batch->pool, "a", &params->part[0]))
		return false;
	params->n_tokens = operand_tokens(a);
	n_heads = params->part[0].n_heads;
	if (params->part[0].batch_stride != 0)
		params->q_len = (uint64_t)a->shape[2];
	*out_p = call_is_given(values[4]) ? Py_NewRef(values[4]) : tensor_like(a, a->dtype, a->n_dims, a->shape);
	if (*out_p == NULL ||
	    !merge_part(operands, values[2], "b", false, params->n_tokens, params, &params->part[1]) ||
	    !merge_part(operands, *out_p, "out", true, params->n_tokens, params, &params->out) ||
	    !operand_scores(operands, values[1], "a_lse", false, params->n_tokens, n_heads, &lse[0]) ||
	    !operand_scores(operands, values[3], "b_lse", false, params->n_tokens, n_heads, &lse[1]) ||
	    !operand_scores(operands, values[5], "lse", true, params->n_tokens, n_heads, &lse[2]))
		return false;
	params->part_lse[0] = lse[0];
	params->part_lse[1] = lse[1];
	params->lse = lse[2];
	return operands_check_stream(operands);
}

static PyObject *
batch_merge(struct batch *batch, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "a", "a_lse", "b", "b_lse", "out", "lse" };
	static struct call_signature signature = {
		.function = "Batch.merge", .names = names, .n = 6, .n_positional = 5, .n_required = 4
	};
	struct paged_merge_params params = { .struct_size = sizeof(params) };
	struct operands operands;
	struct paged_batch *handle;
	PyObject *values[6], *out = NULL, *none;
	enum paged_status status;

	if (!call_parse(&signature, arguments, n, keyword_names, values))
		return NULL;
	handle = batch_enter(batch);
	if (handle == NULL)
		return NULL;
	operands.batch = batch;
	operands.n = 0;
	if (!merge_fill(&operands, values, &out, &params)) {
		batch_leave(batch);
		operands_release(&operands);
		Py_XDECREF(out);
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS status = paged_merge(handle, &params);
	Py_END_ALLOW_THREADS operands_release(&operands);
	none = batch_result(batch, status);
	if (none == NULL)
		Py_CLEAR(out);
	Py_XDECREF(none);
	return out;
}

/* ------------------------------------------------------------------------ type */

PyMethodDef attention_methods[] = {
	CALL_METHOD("append", batch_append, append_doc),
	CALL_METHOD("attention", batch_attention, attention_doc),
	CALL_METHOD("gather", batch_gather, gather_doc),
	CALL_METHOD("merge", batch_merge, merge_doc),
	{ NULL, NULL, 0, NULL },
};

int
attention_add(PyObject *module)
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
