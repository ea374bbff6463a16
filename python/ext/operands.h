/* SPDX-License-Identifier: Apache-2.0 */
/**
 * operands.h - the tensors of a call on a batch
 */
#ifndef PAGED_EXT_OPERANDS_H
#define PAGED_EXT_OPERANDS_H

#include "python/ext/ext.h"

/* Most tensors of a call, and most arguments. */
enum { OPERANDS_MAX = 12, OPERANDS_ARGUMENTS_MAX = 12 };

/**
 * The tensors of a call on a batch that has been entered.  Reading a tensor may run Python code, so the batch is
 * entered first: no other thread can then change the plan that sizes are checked against.
 */
struct operands {
	struct batch *batch;
	uint32_t n;
	struct tensor tensors[OPERANDS_MAX];
	const char *names[OPERANDS_MAX];
	bool outs[OPERANDS_MAX]; /* written */
};

/** Optional indexes: in host memory any integers, which are copied; on a GPU a tensor of int32. */
struct operand_indexes {
	struct numbers_u32 numbers;
	const uint32_t *at; /* NULL: not given */
	bool copied;
};

/** The work of a call from its arguments to its result; leaves the batch in all cases. */
typedef PyObject *(*operands_run_fn)(struct operands *operands, struct paged_batch *handle, PyObject **values);

/** operands_call - parse the arguments of a method, enter the batch, run(), and release the tensors */
PyObject *operands_call(struct batch *batch, struct call_signature *signature, operands_run_fn run,
			PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names);

struct tensor *operands_add(struct operands *operands, PyObject *object, const char *name, bool out);
bool operands_check_stream(const struct operands *operands);
uint64_t operand_tokens(const struct tensor *tensor);
bool operand_check_tokens(const struct tensor *tensor, const struct paged_tensor *packed, const char *name,
			  uint64_t n_tokens, uint32_t n_rows);
bool operands_check_plan(const struct batch *batch);
struct tensor *operand_q(struct operands *operands, PyObject *object, const char *name, bool out,
			 struct paged_tensor *packed);
bool operand_f32(struct operands *operands, PyObject *object, const char *name, bool out, uint64_t n_elements,
		 void **data_p);
bool operand_scores(struct operands *operands, PyObject *object, const char *name, bool out, uint64_t n_tokens,
		    uint32_t n_heads, void **data_p);
bool operand_scales(struct operands *operands, PyObject *k, PyObject *v, const float **k_p, const float **v_p);
bool operand_indexes(struct operands *operands, PyObject *object, const char *name, uint64_t n,
		     struct operand_indexes *indexes);
void operand_indexes_free(struct operand_indexes *indexes);

#endif
