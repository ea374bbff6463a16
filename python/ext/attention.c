/* SPDX-License-Identifier: Apache-2.0 */
/* Batch: attention, gather, merge. */
#include "python/ext/operands.h"

#include <stdlib.h>
#include <string.h>

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
	if (scale == -1.0 && PyErr_Occurred()) {
		if (PyErr_ExceptionMatches(PyExc_TypeError))
			PyErr_Format(PyExc_TypeError, "scale must be a number, not %R", (PyObject *)Py_TYPE(object));
		return false;
	}
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
		PyErr_Format(PyExc_TypeError, "mods must be a ModSet (from Batch.mods()), not %R",
			     (PyObject *)Py_TYPE(object));
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

/* The library compares all other operands. */
static bool
attention_check_arrays(const struct operands *operands, PyObject *mods)
{
	if (!call_is_given(mods))
		return true;
	for (uint32_t i = 0; i < operands->n; i++)
		if (operands->outs[i] &&
		    !arrays_check_overlap(&((struct mod_set *)mods)->arrays, &operands->tensors[i], operands->names[i]))
			return false;
	return true;
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
	return attention_check_arrays(operands, values[3]) &&
	       operand_scales(operands, values[10], values[11], &params->k_scale, &params->v_scale);
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
	Py_BEGIN_ALLOW_THREADS
	status = paged_attention(handle, layer, &q, &packed, &params);
	Py_END_ALLOW_THREADS
	none = batch_result(batch, status);
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

	return operands_call(batch, &signature, attention_run, arguments, n, keyword_names);
}

/* ---------------------------------------------------------------------- gather */

PyDoc_STRVAR(gather_doc,
	     "gather($self, /, layer, k, v=None, *, begin=None, end=None, k_scale=None, v_scale=None)\n--\n\n"
	     "Copy K and V of the planned rows from the pages of one layer into tensors.\n\n"
	     "k, v\n"
	     "    Written: [tokens, n_kv_heads, dim], the tokens of the first row first; or\n"
	     "    [n_rows, n_kv_heads, tokens of a row, dim].  None: not wanted.\n"
	     "begin, end\n"
	     "    For each row the first token and the one past the last.  None: the plan's\n"
	     "    kv_first, or the first token of a trimmed sequence if that is later, and kv_len.\n"
	     "    On a GPU tensors of int32; k and v then have room for all these tokens.\n"
	     "k_scale, v_scale\n"
	     "    As passed to append().\n\n"
	     "Raises ValueError if a tensor does not fit, and RangeError if begin exceeds end,\n"
	     "end exceeds kv_len, or a token is before the first.");

/*
 * Number of tokens that are gathered, by the first token of each row of the plan; false: the bounds are invalid, and
 * the library says how.
 */
static bool
gather_tokens(const struct batch *batch, const uint32_t *first, const uint32_t *begin, const uint32_t *end,
	      uint64_t *n_p)
{
	uint64_t begins = 0, ends = 0;

	if (begin == NULL)
		begin = first;
	for (uint32_t i = 0; i < batch->n_rows; i++) {
		begins += begin[i];
		ends += end != NULL ? end[i] : 0;
		if (end != NULL && begin[i] > end[i])
			return false;
	}
	if (end == NULL)
		ends = batch->total_kv;
	*n_p = ends - begins;
	return begins <= ends;
}

static bool
gather_check(const struct batch *batch, const uint32_t *first, const struct tensor *tensor,
	     const struct paged_tensor *packed, const char *name, const struct paged_gather_params *params)
{
	bool on_device = batch->pool->info.device != NULL && (params->begin != NULL || params->end != NULL);
	uint64_t n_tokens;

	if (!batch->planned)
		return true;
	if (on_device) {
		if (!gather_tokens(batch, first, NULL, NULL, &n_tokens))
			return true;
		if (operand_tokens(tensor) >= n_tokens)
			return true;
		PyErr_Format(PyExc_ValueError,
			     "%s has %llu tokens; with begin or end on the GPU it needs room for %llu", name,
			     (unsigned long long)operand_tokens(tensor), (unsigned long long)n_tokens);
		return false;
	}
	if (!gather_tokens(batch, first, params->begin, params->end, &n_tokens))
		return true;
	return operand_check_tokens(tensor, packed, name, n_tokens, batch->n_rows);
}

/* The first token of each row of the plan; false with an exception. */
static bool
gather_first(const struct batch *batch, const struct paged_batch *handle, uint32_t **first_p)
{
	*first_p = calloc(batch->n_rows + 1, sizeof(**first_p));
	if (*first_p == NULL) {
		PyErr_NoMemory();
		return false;
	}
	/* A plan that has failed since is the gather's to report. */
	(void)paged_batch_kv_first(handle, *first_p);
	return true;
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
	enum paged_status status = PAGED_OK;
	uint32_t layer, *first = NULL;

	parsed = operands_check_plan(batch) && gather_first(batch, handle, &first) &&
		 number_u32(values[0], "layer", &layer) &&
		 operand_indexes(operands, values[3], "begin", batch->n_rows, &begin) &&
		 operand_indexes(operands, values[4], "end", batch->n_rows, &end) &&
		 operand_scales(operands, values[5], values[6], &params.k_scale, &params.v_scale);
	params.begin = begin.at;
	params.end = end.at;
	if (parsed && has_k) {
		k_tensor = operands_add(operands, values[1], "k", true);
		parsed = k_tensor != NULL && tensor_packed(k_tensor, batch->pool, "k", &k) &&
			 gather_check(batch, first, k_tensor, &k, "k", &params);
	}
	if (parsed && has_v) {
		v_tensor = operands_add(operands, values[2], "v", true);
		parsed = v_tensor != NULL && tensor_packed(v_tensor, batch->pool, "v", &v) &&
			 gather_check(batch, first, v_tensor, &v, "v", &params);
	}
	parsed = parsed && operands_check_stream(operands);
	if (!parsed) {
		batch_leave(batch);
	} else {
		Py_BEGIN_ALLOW_THREADS
		status = paged_gather(handle, layer, has_k ? &k : NULL, has_v ? &v : NULL, &params);
		Py_END_ALLOW_THREADS
	}
	operand_indexes_free(&begin);
	operand_indexes_free(&end);
	free(first);
	return parsed ? batch_result(batch, status) : NULL;
}

static PyObject *
batch_gather(struct batch *batch, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "layer", "k", "v", "begin", "end", "k_scale", "v_scale" };
	static struct call_signature signature = {
		.function = "Batch.gather", .names = names, .n = 7, .n_positional = 3, .n_required = 2
	};

	return operands_call(batch, &signature, gather_run, arguments, n, keyword_names);
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
merge_run(struct operands *operands, struct paged_batch *handle, PyObject **values)
{
	struct paged_merge_params params = { .struct_size = sizeof(params) };
	PyObject *out = NULL, *none;
	enum paged_status status;

	if (!merge_fill(operands, values, &out, &params)) {
		batch_leave(operands->batch);
		Py_XDECREF(out);
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS
	status = paged_merge(handle, &params);
	Py_END_ALLOW_THREADS
	none = batch_result(operands->batch, status);
	if (none == NULL)
		Py_CLEAR(out);
	Py_XDECREF(none);
	return out;
}

static PyObject *
batch_merge(struct batch *batch, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "a", "a_lse", "b", "b_lse", "out", "lse" };
	static struct call_signature signature = {
		.function = "Batch.merge", .names = names, .n = 6, .n_positional = 5, .n_required = 4
	};

	return operands_call(batch, &signature, merge_run, arguments, n, keyword_names);
}

/* --------------------------------------------------------------------- methods */

PyMethodDef attention_methods[] = {
	CALL_METHOD("append", batch_append, batch_append_doc),
	CALL_METHOD("attention", batch_attention, attention_doc),
	CALL_METHOD("gather", batch_gather, gather_doc),
	CALL_METHOD("merge", batch_merge, merge_doc),
	{ NULL, NULL, 0, NULL },
};
