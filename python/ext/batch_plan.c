/* SPDX-License-Identifier: Apache-2.0 */
/* Batch: plan. */
#include "python/ext/ext.h"

/* The stream of a plan: the caller's, or the one that torch works on. */
static bool
batch_parse_stream(const struct batch *batch, PyObject *stream, void **stream_p)
{
	PyObject *number;

	*stream_p = NULL;
	if (!call_is_given(stream))
		return batch->pool->info.device == NULL || tensor_stream(NULL, batch->device_id, stream_p);
	if (PyLong_Check(stream)) {
		*stream_p = PyLong_AsVoidPtr(stream);
		if (PyErr_Occurred())
			PyErr_Format(PyExc_OverflowError, "stream: %S is no CUstream", stream);
		return *stream_p != NULL || !PyErr_Occurred();
	}
	number = PyObject_GetAttrString(stream, "cuda_stream");
	if (number == NULL) {
		PyErr_Format(PyExc_TypeError, "stream must be an int or an object with cuda_stream, not %R",
			     (PyObject *)Py_TYPE(stream));
		return false;
	}
	*stream_p = PyLong_AsVoidPtr(number);
	Py_DECREF(number);
	return *stream_p != NULL || !PyErr_Occurred();
}

/*
 * The buffers are reused, so the work on the old stream must have ended.  If the driver does not say so (the stream was
 * destroyed, for example), the plan fails, and the next one goes to the new stream.  During a capture the stream stays.
 * Without the GIL: while the batch is busy, no other thread reads its stream.
 */
static enum paged_status
batch_change_stream(struct batch *batch, struct paged_batch *handle, void *stream)
{
	enum paged_status finished = paged_batch_finish(handle), status;

	status = finished != PAGED_ERR_UNSUPPORTED ? paged_batch_stream(handle, stream) : finished;
	if (status == PAGED_OK)
		batch->stream = stream;
	return finished != PAGED_OK ? finished : status;
}

const char batch_plan_doc[] =
	"plan($self, /, seqs, q_len, kv_len, *, kv_first=None, q_base=None, b=None, no_append=False, pages=None, "
	"stream=None)\n--\n\n"
	"Set rows, lengths and page tables for one step.\n\n"
	"seqs\n"
	"    Ids of the sequences, one row each.\n"
	"q_len\n"
	"    Query tokens of each row, or one number for all.  0: the row is idle.\n"
	"kv_len\n"
	"    Tokens of each sequence, those of this step included, or one number for all.\n"
	"kv_first\n"
	"    The first key of each row that attention reads, at most its kv_len, or one\n"
	"    number for all.  None: 0.\n"
	"q_base\n"
	"    Position (q_idx) of each row's first query.  None: kv_len - q_len.\n"
	"b\n"
	"    What mods see as b, for each row or one number for all.  None: the row's index.\n"
	"no_append\n"
	"    True: append() writes nothing.  Or one bool for each row.\n"
	"pages\n"
	"    With seqs None: for each row its physical pages, in order.  Those that lie\n"
	"    wholly before kv_first may be any number.\n"
	"stream\n"
	"    For a pool in GPU memory: a CUstream as int, or an object with cuda_stream.\n"
	"    None: the stream that torch works on; without torch, the legacy default\n"
	"    stream.  If it is not the last plan's, the call waits for the work on that.\n\n"
	"The plan reads the page tables from shared memory, and sends no request unless it\n"
	"has to reserve.  A batch with reserve_ahead reserves the pages that are missing, and\n"
	"may then wait for the daemon.  After a failure the batch has no plan.\n\n"
	"Raises CapacityError if kv_len exceeds a row's capacity and the batch cannot\n"
	"reserve, FullError if the pool lacks pages or QuotaError if the session's tenant may\n"
	"not have them (see pages_missing() for both), LimitError for\n"
	"more rows than max_rows, a length past max_length, or more queries than max_q_tokens\n"
	"(GPU), StaleError if an id names no live sequence, InvalidError for a sequence of\n"
	"another pool or a kv_first past kv_len, and RangeError for a page outside the pool.";

PyObject *
batch_plan(struct batch *batch, PyObject *const *arguments, Py_ssize_t n, PyObject *keyword_names)
{
	static const char *const names[] = { "seqs", "q_len",     "kv_len", "kv_first", "q_base",
					     "b",    "no_append", "pages",  "stream" };
	static struct call_signature signature = {
		.function = "Batch.plan", .names = names, .n = 9, .n_positional = 3, .n_required = 3
	};
	enum paged_status status = PAGED_OK;
	struct paged_batch *handle;
	PyObject *values[9];
	struct rows rows;
	void *stream;

	if (!call_parse(&signature, arguments, n, keyword_names, values) ||
	    !batch_parse_stream(batch, values[8], &stream) ||
	    !rows_parse(&(struct rows_arguments){ .seqs = values[0],
						  .q_len = values[1],
						  .kv_len = values[2],
						  .kv_first = values[3],
						  .q_base = values[4],
						  .b = values[5],
						  .no_append = values[6],
						  .pages = values[7] },
			&rows))
		return NULL;
	handle = batch_enter(batch);
	if (handle == NULL) {
		rows_free(&rows);
		return NULL;
	}
	batch->planned = false;
	batch->n_rows = 0;
	Py_BEGIN_ALLOW_THREADS
	if (stream != batch->stream)
		status = batch_change_stream(batch, handle, stream);
	if (status == PAGED_OK)
		status = paged_batch_plan(handle, rows.n, rows.at);
	Py_END_ALLOW_THREADS
	batch->n_rows_tried = rows.n <= batch->max_rows ? (uint32_t)rows.n : 0;
	if (status == PAGED_OK) {
		batch->planned = true;
		batch->n_rows = (uint32_t)rows.n;
		batch->total_q = rows.total_q;
		batch->total_kv = rows.total_kv;
		batch->follows = !call_is_given(values[8]);
	}
	rows_free(&rows);
	return batch_result(batch, status);
}

const char batch_pages_missing_doc[] =
	"pages_missing($self, /)\n--\n\n"
	"Number of pages that each row of the last plan lacks, as a list.\n\n"
	"For a plan that raised FullError.  Free pages are assigned in the order of the\n"
	"plan, so the rows with 0 can be planned together.  After QuotaError, only the\n"
	"last row that lacks pages has its number: plan again without it.";

PyObject *
batch_pages_missing(struct batch *batch, PyObject *nothing)
{
	struct paged_batch *handle = batch_enter(batch);
	PyObject *list, *number;

	(void)nothing;
	if (handle == NULL)
		return NULL;
	list = PyList_New(batch->n_rows_tried);
	for (uint32_t i = 0; list != NULL && i < batch->n_rows_tried; i++) {
		number = PyLong_FromUnsignedLong(paged_batch_pages_missing(handle, i));
		if (number == NULL || PyList_SetItem(list, i, number) != 0)
			Py_CLEAR(list);
	}
	batch_leave(batch);
	return list;
}
