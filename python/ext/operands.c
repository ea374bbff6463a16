/* SPDX-License-Identifier: Apache-2.0 */
#include "python/ext/operands.h"

#include <assert.h>
#include <unistd.h>

#include "python/ext/dlpack.h"

static void
operands_release(struct operands *operands)
{
	while (operands->n > 0)
		tensor_release(&operands->tensors[--operands->n]);
}

PyObject *
operands_call(struct batch *batch, struct call_signature *signature, operands_run_fn run, PyObject *const *arguments,
	      Py_ssize_t n, PyObject *keyword_names)
{
	PyObject *values[OPERANDS_ARGUMENTS_MAX], *result;
	struct paged_batch *handle;
	struct operands operands;

	assert(signature->n <= OPERANDS_ARGUMENTS_MAX);
	if (!call_parse(signature, arguments, n, keyword_names, values))
		return NULL;
	handle = batch_enter(batch);
	if (handle == NULL)
		return NULL;
	operands.batch = batch;
	operands.n = 0;
	result = run(&operands, handle, values);
	/* After run() has read the text of an error: the end of a tensor may run code that calls paged. */
	operands_release(&operands);
	return result;
}

struct tensor *
operands_add(struct operands *operands, PyObject *object, const char *name, bool out)
{
	struct tensor *tensor = &operands->tensors[operands->n];

	if (out ? !tensor_from_out(object, name, tensor) : !tensor_from(object, name, tensor))
		return NULL;
	operands->names[operands->n] = name;
	operands->outs[operands->n] = out;
	operands->n++;
	return tensor_check_grad(tensor, name) ? tensor : NULL;
}

/* On a GPU, a call runs on the stream of the plan, and the framework's work on the tensors must be in its order. */
bool
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
uint64_t
operand_tokens(const struct tensor *tensor)
{
	return (uint64_t)(tensor->n_dims == 3 ? tensor->shape[0] : tensor->shape[0] * tensor->shape[2]);
}

/* The library knows no end of a tensor: it reads as many tokens as the plan has. */
bool
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
bool
operands_check_plan(const struct batch *batch)
{
	if (batch->planned || batch->pool->client->pid != getpid())
		return true;
	error_format(PAGED_ERR_INVALID, "the batch has no plan");
	return false;
}

/* A tensor with the query tokens of the plan. */
struct tensor *
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
bool
operand_f32(struct operands *operands, PyObject *object, const char *name, bool out, uint64_t n_elements, void **data_p)
{
	struct tensor *tensor;

	if (!call_is_given(object))
		return true;
	tensor = operands_add(operands, object, name, out);
	return tensor != NULL && tensor_vector(tensor, operands->batch->pool, name, PAGED_F32, n_elements, data_p);
}

/* An optional vector with a number for each token and head: heads last, unlike PyTorch's [B, H, L]. */
bool
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

bool
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

bool
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

void
operand_indexes_free(struct operand_indexes *indexes)
{
	if (indexes->copied)
		numbers_u32_free(&indexes->numbers);
}
