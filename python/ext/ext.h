/* SPDX-License-Identifier: Apache-2.0 */
/**
 * ext.h - the extension paged._paged: Python objects over libpagedclient
 *
 * The extension uses CPython's limited API 3.11, so one binary serves 3.11 and all later versions.  It keeps its state
 * in static variables, refuses to be imported into a subinterpreter, and can be loaded once in a process.
 *
 * Lifetime.  A Batch holds a reference to its Pool, a Pool to its Client.  Closing an outer object closes the inner
 * ones in the library, so an inner handle may be used only while all outer objects are open: client_enter(),
 * pool_enter() and batch_enter() check that.
 *
 * Threads.  A call that may wait or compute releases the GIL between *_enter() and *_leave().  Meanwhile no thread can
 * close the object, and no other thread can use the same batch: both raise RuntimeError.  All fields are read and
 * written with the GIL held.
 */
#ifndef PAGED_EXT_H
#define PAGED_EXT_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <pagedclient.h>
#include <stdbool.h>
#include <string.h>
#include <sys/types.h>

struct pool;

/* errors.c */

/** errors_add - create the exceptions and add them to the module; -1 with an exception */
int errors_add(PyObject *module);

/** error_raise - raise the exception of a status with the client's message; returns NULL */
PyObject *error_raise(const struct paged_client *client, enum paged_status status);

/** error_format - raise the exception of a status with a message as PyErr_Format() makes; returns NULL */
PyObject *error_format(enum paged_status status, const char *format, ...);

/* call.c */

/** The parameters of a function.  A static variable; `interned` is zero at first. */
struct call_signature {
	const char *function;     /* "Batch.append" */
	const char *const *names; /* [n] */
	uint8_t n;
	uint8_t n_positional; /* may be given by position: the first ones */
	uint8_t n_required;   /* must be given: the first ones */
	PyObject *interned[24];
};

/**
 * call_parse - sort the arguments of a METH_FASTCALL | METH_KEYWORDS function by parameter
 *
 * @param[out] values  [signature->n] borrowed; NULL: not given.  None is passed on
 * @return false with TypeError
 */
bool call_parse(struct call_signature *signature, PyObject *const *arguments, Py_ssize_t n_arguments,
		PyObject *keyword_names, PyObject **values);

/** call_parse_one - the argument of a function with one parameter, borrowed; NULL with TypeError */
PyObject *call_parse_one(const char *function, const char *name, PyObject *const *arguments, Py_ssize_t n_arguments,
			 PyObject *keyword_names);

/** call_join_methods - the methods of lists that end with an empty one; lists end with NULL; to: room for all */
void call_join_methods(PyMethodDef *to, const PyMethodDef *const *lists);

/** A method with METH_FASTCALL | METH_KEYWORDS. */
#define CALL_METHOD(name, function, doc)                                                        \
	{                                                                                       \
		name, (PyCFunction)(void (*)(void))function, METH_FASTCALL | METH_KEYWORDS, doc \
	}
/** A method without arguments. */
#define CALL_METHOD_NOARGS(name, function, doc)                               \
	{                                                                     \
		name, (PyCFunction)(void (*)(void))function, METH_NOARGS, doc \
	}

/** call_is_given - the argument was given and is not None */
static inline bool
call_is_given(const PyObject *value)
{
	return value != NULL && value != Py_None;
}

/* numbers.c: on failure return false with TypeError, ValueError or OverflowError, which names the argument */

bool number_u32(PyObject *object, const char *name, uint32_t *number_p);
bool number_u64(PyObject *object, const char *name, uint64_t *number_p);
bool number_i64(PyObject *object, const char *name, int64_t *number_p);
/** number_timeout_ms - seconds as a number, to milliseconds; rounded up */
bool number_timeout_ms(PyObject *object, const char *name, uint32_t *timeout_ms_p);
/** number_dtype - a dtype of pools, "f32" and so on, to enum paged_dtype; ValueError lists the names */
bool number_dtype(PyObject *object, const char *name, uint32_t *dtype_p);
/** text_utf8 - a str without zero bytes as UTF-8, borrowed from the object; NULL with TypeError or ValueError */
const char *text_utf8(PyObject *object, const char *name);

/** Integers from a Python object.  Short lists lie in `small`; longer ones are freed by numbers_u32_free(). */
struct numbers_u32 {
	uint32_t *at;
	size_t n;
	uint32_t small[16];
};
struct numbers_u64 {
	uint64_t *at;
	size_t n;
	uint64_t small[16];
};

/**
 * numbers_u32 - from an int, a sequence of ints, an object with the buffer protocol, or a DLPack tensor in host memory
 *
 * Elements may be of any integer type; one outside the result's range is OverflowError.
 */
bool numbers_u32(PyObject *object, const char *name, struct numbers_u32 *numbers);
bool numbers_u64(PyObject *object, const char *name, struct numbers_u64 *numbers);
/** numbers_u32_n - the same, but exactly n numbers; an int stands for n equal ones */
bool numbers_u32_n(PyObject *object, const char *name, size_t n, struct numbers_u32 *numbers);
/** list_u32, list_u64 - a list of ints */
PyObject *list_u32(const uint32_t *numbers, size_t n);
PyObject *list_u64(const uint64_t *numbers, size_t n);
void numbers_u32_free(struct numbers_u32 *numbers);
void numbers_u64_free(struct numbers_u64 *numbers);

/* reports.c */

int reports_add(PyObject *module);
PyObject *report_counts(const struct paged_pool_counts *counts);
PyObject *report_sequence(const struct paged_seq_info *info);
PyObject *report_check(const struct paged_check_result *result);
PyObject *report_started(paged_seq_id seq, uint32_t n_shared);
PyObject *report_adopted(paged_seq_id seq, uint32_t length);
PyObject *report_named_mod(const struct paged_named_mod *mod);
PyObject *report_change(const struct paged_change *change);
PyObject *report_node_info(const struct paged_node_info *node);
PyObject *report_block_key(const struct paged_block_key *key, const uint32_t *tokens, size_t n);
PyObject *report_watch_info(const struct paged_watch_info *info);
/* Dicts with the names of paged_reports.h. */
PyObject *report_daemon(const struct paged_daemon_info *info);
PyObject *report_totals(const struct paged_pool_totals *totals);
/** report_metrics - a dict of the metrics, whose "requests" is a dict of the kinds of requests by name */
PyObject *report_metrics(const struct paged_metrics *metrics, const struct paged_request_entry *requests, size_t n);
PyObject *report_pool(const struct paged_pool_entry *entry);
PyObject *report_session(const struct paged_session_entry *entry);
PyObject *report_seq_entry(const struct paged_seq_entry *entry);
PyObject *report_node(const struct paged_node_entry *entry);
PyObject *report_pin(const struct paged_pin_entry *entry);
PyObject *report_quota(const struct paged_quota_entry *entry);
PyObject *report_ticket(const struct paged_ticket_entry *entry);

/* client.c */

struct client {
	PyObject_HEAD
	struct paged_client *handle; /* NULL: closed */
	uint32_t n_inside;           /* calls that have released the GIL */
	uint32_t n_tensors;          /* over pages of the client's pools */
	uint32_t n_threads;
	bool openmp;
	bool tables_only;
	PyObject *log; /* callable, or NULL */
	pid_t pid;     /* of the process that opened the client */
	PyObject *weak_references;
};
extern PyTypeObject *client_type;
int client_add(PyObject *module);

/** client_log - the library's log function; it is called in the thread that is inside a call, with or without the GIL
 */
void client_log(void *client, enum paged_log_level level, const char *text);

/**
 * client_enter - the handle, for a call of the library; NULL with RuntimeError if the client is closed
 *
 * Also for a call that keeps the GIL: the library may call the log function, which runs Python code.  In the log
 * function it raises RuntimeError.
 */
struct paged_client *client_enter(struct client *client);
void client_leave(struct client *client);
/** client_is_logging - this thread is inside a log function; the library must not be called, not even to close */
bool client_is_logging(void);

/** client_result - leave, then None, or the status's exception */
PyObject *client_result(struct client *client, enum paged_status status);

/* sequences.c: methods of Client and of Pool */
extern PyMethodDef client_seq_methods[], pool_seq_methods[];

/* connect.c: functions of the module */
PyObject *client_connect(PyObject *module, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names);
PyObject *client_embedded(PyObject *module, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names);

/* admin.c: methods of Client */
extern PyMethodDef admin_methods[];

/* pool.c */

struct pool {
	PyObject_HEAD
	struct client *client;
	struct paged_pool *handle; /* NULL: closed */
	uint32_t n_inside;
	uint32_t n_tensors;          /* over its pages */
	struct paged_pool_info info; /* its texts are copies, and valid after the close */
	char *texts;
	PyObject *weak_references;
};
extern PyTypeObject *pool_type;
int pool_add(PyObject *module);
PyObject *pool_open(struct client *client, const char *name);

/** pool_is_open - the pool and its client are open: handles of the pool's objects are valid */
static inline bool
pool_is_open(const struct pool *pool)
{
	return pool->handle != NULL && pool->client->handle != NULL;
}

/** pool_enter - as client_enter(); also enters the client */
struct paged_pool *pool_enter(struct pool *pool);
void pool_leave(struct pool *pool);
PyObject *pool_result(struct pool *pool, enum paged_status status);

/**
 * pool_wait - wait in parts, between which signal handlers run; the pool is entered, and left at the end
 *
 * @return the status of the last part; -1: an exception of a handler.  The library's message of PAGED_ERR_TIMEOUT is
 *         that of one part, so the caller writes its own
 */
typedef enum paged_status (*pool_wait_fn)(void *argument, uint32_t timeout_ms);
int pool_wait(struct pool *pool, pool_wait_fn wait, void *argument, uint32_t timeout_ms);
/** monotonic_ms - the clock of such waits */
uint64_t monotonic_ms(void);
/** timeout_ms of pool_wait(): no limit */
#define POOL_WAIT_FOR_EVER UINT32_MAX

/* prefix.c */

struct prefix {
	PyObject_HEAD
	struct paged_prefix prefix; /* points into memory that the object owns or shares */
	struct prefix_tokens *tokens;
	uint8_t salt[PAGED_DIGEST_SIZE];
	struct paged_extra *extras;
	PyObject *keys;     /* bytes, or NULL */
	uint32_t page_size; /* of the keys */
};
extern PyTypeObject *prefix_type;
int prefix_add(PyObject *module);

/**
 * prefix_from - a prefix for this pool, borrowed; NULL with TypeError or InvalidError
 *
 * Refuses keys of another page size, because the library reads a key for each page of the pool.
 */
struct prefix *prefix_from(const struct pool *pool, PyObject *object, const char *name);

/* sharing.c: methods of Pool */
extern PyMethodDef sharing_methods[];

/* handover.c: methods of Client and of Pool */
extern PyMethodDef client_handover_methods[], pool_handover_methods[];

/** Items of a publish. */
struct publishes {
	struct paged_publish *items; /* [n] */
	size_t n;
	PyObject *owner; /* of the prefixes that the items point to */
};

/** publishes_parse - from (seqs, prefixes): one prefix for each sequence, or one for all; the caller frees them */
bool publishes_parse(const struct pool *pool, PyObject *seqs, PyObject *prefixes, struct publishes *publishes);
void publishes_free(struct publishes *publishes);

/* watch.c */
int watch_add(PyObject *module);
/** watch_open - a method of Pool */
extern const char watch_doc[];
PyObject *watch_open(struct pool *pool, PyObject *nothing);

/* pages.c */

extern PyTypeObject *pages_type;
int pages_add(PyObject *module);
/** pages_new - the pages object of a plane of the pool */
PyObject *pages_new(struct pool *pool, const struct paged_plane_info *plane);

/* device.c */

/** device_of_pool - DLPack's device of the pool's pages; false with RuntimeError if its GPU is not visible here */
bool device_of_pool(const struct pool *pool, int32_t *device_type_p, int32_t *device_id_p);

/* tensor.c */

/** A tensor of the caller, valid until tensor_release(). */
struct tensor {
	void *data;
	uint32_t dtype;    /* enum paged_dtype; PAGED_DTYPE_NONE: a type that the library does not know */
	uint8_t type_code; /* DLPack: 0 int, 1 unsigned int, 2 float, ... */
	uint8_t type_bits;
	bool boolean;        /* dtype is U8, and the elements are conditions */
	int32_t device_type; /* DLPack: 1 host, 2 CUDA, 3 pinned host memory */
	int32_t device_id;
	int32_t n_dims;
	int64_t shape[8];
	int64_t strides[8]; /* elements */
	bool read_only;
	PyObject *owner;  /* capsule of the memory; NULL: the object keeps it alive during the call */
	PyObject *object; /* borrowed */
};

/**
 * tensor_from - describe a tensor without copying it, by DLPack's C exchange API, or else by __dlpack__()
 *
 * The element type is not checked: tensor_packed(), tensor_vector() and tensor_array() do that.
 *
 * @return false with TypeError (no tensor), ValueError (more than eight dimensions, an impossible shape, no memory)
 */
bool tensor_from(PyObject *object, const char *name, struct tensor *tensor);
/** tensor_from_out - the same for a tensor that is written: ValueError if it is read-only */
bool tensor_from_out(PyObject *object, const char *name, struct tensor *tensor);
void tensor_release(struct tensor *tensor);

/** tensor_check_grad - false with NotImplementedError if PyTorch would record what is computed from the tensor */
bool tensor_check_grad(const struct tensor *tensor, const char *name);

/** tensor_bounds - the first byte of a tensor, and the one past its last; equal: it has none */
void tensor_bounds(const struct tensor *tensor, uintptr_t *begin_p, uintptr_t *end_p);

/**
 * tensor_packed - as struct paged_tensor: [tokens, heads, dim], or [rows, heads, q_len, dim]
 *
 * Checks device, rank, and that the last dimension is contiguous.  Strides of dimensions of one element do not matter.
 */
bool tensor_packed(const struct tensor *tensor, const struct pool *pool, const char *name, struct paged_tensor *packed);

/** tensor_vector - address of a dense tensor of this dtype, device and number of elements, for lse, scales and so on */
bool tensor_vector(const struct tensor *tensor, const struct pool *pool, const char *name, uint32_t dtype,
		   uint64_t n_elements, void **data_p);

/** tensor_check_host - false with ValueError if the tensor is not in host memory */
bool tensor_check_host(const struct tensor *tensor, const char *name);

/** tensor_torch - torch.Tensor, borrowed; NULL without an exception: torch is not imported */
PyTypeObject *tensor_torch(void);

/** tensor_array - as struct paged_array of a mod; any strides.  pool NULL: the device is not checked */
bool tensor_array(const struct tensor *tensor, const struct pool *pool, const char *name, struct paged_array *array);

/* tensor_new.c */

/**
 * tensor_like - a new dense tensor of the same Python type and device; NULL with an exception
 *
 * Its dimensions lie in memory in the order in which those of `like` do, if both have equally many.
 */
PyObject *tensor_like(const struct tensor *like, uint32_t dtype, int32_t n_dims, const int64_t *shape);

/**
 * tensor_stream - the CUDA stream that a framework works on
 *
 * @param[in]  framework  a type; NULL: torch.Tensor if torch is imported
 * @param[out] stream_p   NULL, the legacy default stream, if the type has no C exchange API
 */
bool tensor_stream(PyTypeObject *framework, int32_t device_id, void **stream_p);

/* threads.c */

/** threads_run - a paged_run_fn on OpenMP threads; argument: number of threads as a pointer */
void threads_run(void *argument, paged_work_fn work, void *work_argument, uint32_t n);
/** threads_load - when the extension is loaded */
void threads_load(void);
/**
 * threads_are_of_a_fork - this process was forked, and has not called exec
 *
 * If its parent's thread has used OpenMP, libgomp keeps a team of threads that the child does not have, and the next
 * parallel region waits for them for ever.  Nothing tells whether it has such a team.
 */
bool threads_are_of_a_fork(void);
/** threads_find_openmp - find the libgomp that the process has loaded; false: none */
bool threads_find_openmp(void);

/* rows.c */

/** Rows of a plan or block mask, from parallel arguments. */
struct rows {
	struct paged_batch_row *at;
	size_t n;
	uint64_t total_q, total_kv;
	uint32_t *pages; /* of all rows, or NULL */
	struct paged_batch_row small[16];
};
struct rows_arguments {
	/* borrowed; NULL or None: not given */
	PyObject *seqs, *q_len, *kv_len, *q_base, *b, *no_append, *pages, *kv_first;
};
bool rows_parse(const struct rows_arguments *arguments, struct rows *rows);
void rows_free(struct rows *rows);

/* batch.c */

struct batch {
	PyObject_HEAD
	struct pool *pool;
	struct paged_batch *handle; /* NULL: closed */
	bool busy;                  /* a call has released the GIL */
	bool follows;               /* the plan's stream is the one that the framework worked on */
	int32_t device_id;          /* of a pool in GPU memory */
	uint32_t max_rows;
	bool planned;
	uint32_t n_rows;       /* of the plan */
	uint32_t n_rows_tried; /* of the last plan, also if it failed */
	uint64_t total_q;      /* of the plan */
	uint64_t total_kv;     /* of the plan */
	void *stream;          /* of the plan */
	PyObject *weak_references;
};
extern PyTypeObject *batch_type;
int batch_add(PyObject *module);
PyObject *batch_open(struct pool *pool, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names);

/** batch_enter - as pool_enter(); also raises RuntimeError if another thread is inside a call of the batch */
struct paged_batch *batch_enter(struct batch *batch);
void batch_leave(struct batch *batch);
PyObject *batch_result(struct batch *batch, enum paged_status status);

/* batch_plan.c, batch_tables.c: methods of Batch */
extern const char batch_plan_doc[], batch_pages_missing_doc[], batch_tables_csr_doc[], batch_tables_padded_doc[];
PyObject *batch_plan(struct batch *batch, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names);
PyObject *batch_pages_missing(struct batch *batch, PyObject *nothing);
PyObject *batch_tables_csr(struct batch *batch, PyObject *nothing);
PyObject *batch_tables_padded(struct batch *batch, PyObject *object);

/* append.c: Rotary, and a method of Batch */
int append_add(PyObject *module);
extern const char batch_append_doc[];
PyObject *batch_append(struct batch *batch, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names);

/* attention.c: methods of Batch, append() included */
extern PyMethodDef attention_methods[];

/* arrays.c */

/** Arrays and parameters of mods, and references to all that the library borrows. */
struct arrays {
	struct paged_array *at;       /* [n] */
	struct array_source *sources; /* [n] */
	size_t n;
};

/** arrays_parse - from a mapping of names to tensors, ints and floats; NULL and None: empty */
bool arrays_parse(PyObject *mapping, struct arrays *arrays);

/** An argument by keyword that is not an array. */
struct arrays_keyword {
	const char *name;
	PyObject *value; /* borrowed; NULL: not given */
};

/** arrays_parse_keywords - from the keywords of a METH_FASTCALL | METH_KEYWORDS function, except those in `others` */
bool arrays_parse_keywords(PyObject *const *values, PyObject *names, struct arrays_keyword *others, size_t n_others,
			   struct arrays *arrays);

/** arrays_check_grad - tensor_check_grad() of each array */
bool arrays_check_grad(const struct arrays *arrays);

/** arrays_check_memory - false with ValueError if an array is not in the pool's memory; pool NULL: in host memory */
bool arrays_check_memory(const struct arrays *arrays, const struct pool *pool);

/** arrays_check_overlap - false with ValueError if an array shares memory with a tensor that is written */
bool arrays_check_overlap(const struct arrays *arrays, const struct tensor *out, const char *out_name);

int arrays_traverse(const struct arrays *arrays, visitproc visit, void *arg);
void arrays_free(struct arrays *arrays);

/* mods.c: Mod, and a method of Pool */

struct mod {
	PyObject_HEAD
	struct pool *pool;
	struct paged_mod *handle;
	uint32_t kind; /* enum paged_mod_kind */
};
extern PyTypeObject *mod_type;
int mods_add(PyObject *module);
PyObject *mod_parse(struct pool *pool, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names);

/**
 * pool_enter_to_destroy - pool_enter() in a dealloc, without an exception
 *
 * @return false: the pool is closed, or the library is calling the log function; the pool frees the object when it
 * closes
 */
bool pool_enter_to_destroy(struct pool *pool);

/**
 * mod_from_argument - a Mod of the pool, given as Mod or as text
 *
 * @param[in] name    of the argument, for exceptions
 * @param[in] arrays  declared to a text
 * @return a new reference; NULL with an exception
 */
struct mod *mod_from_argument(struct pool *pool, enum paged_mod_kind kind, const char *name, PyObject *argument,
			      const struct arrays *arrays);

/* mod_set.c: ModSet, and a method of Batch */

struct mod_set {
	PyObject_HEAD
	struct batch *batch;
	struct paged_mod_set *handle;
	struct mod *mask, *score;  /* NULL: none */
	struct block_mask *blocks; /* of the binding; NULL: none */
	struct arrays arrays;      /* of the binding */
	struct mod_set *next;      /* to be freed when its batch is not busy */
};
extern PyTypeObject *mod_set_type;
int mod_set_add(PyObject *module);
PyObject *mod_set_open(struct batch *batch, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names);

/* block_mask.c: BlockMask; methods of Pool */

struct block_mask {
	PyObject_HEAD
	struct pool *pool;
	struct paged_block_mask *handle;
};
extern PyTypeObject *block_mask_type;
int block_mask_add(PyObject *module);
PyObject *block_mask_open(struct pool *pool, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names);

/** block_mask_new - a mask without a handle yet */
struct block_mask *block_mask_new(struct pool *pool);

/** block_mask_result - leave the pool; the mask itself, or NULL with the exception of the status */
PyObject *block_mask_result(struct block_mask *mask, enum paged_status status);

/** Arguments that all ways to make a mask have in common; borrowed, NULL or None: not given. */
struct block_mask_arguments {
	struct rows_arguments rows;
	PyObject *n_heads, *q_block, *kv_block, *physical, *max_bytes;
};

/** block_mask_params - the library's parameters; they point to the rows, which the caller frees after success */
bool block_mask_params(const struct block_mask_arguments *arguments, struct rows *rows,
		       struct paged_block_mask_params *params);

bool block_mask_number(PyObject *value, const char *name, uint32_t *number_p);

/* block_mask_view.c: attributes and methods of BlockMask */
extern PyGetSetDef block_mask_attributes[];
extern const PyMethodDef block_mask_view_methods[];
bool block_mask_get_info(const struct block_mask *mask, struct paged_block_mask_info *info);

/* block_arrays.c: methods of Pool and BlockMask */
extern const char block_mask_arrays_doc[];
PyObject *block_mask_open_arrays(struct pool *pool, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names);
PyObject *block_mask_arrays(PyObject *self, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names);

#endif
