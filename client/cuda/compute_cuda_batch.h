/* SPDX-License-Identifier: Apache-2.0 */
/**
 * compute_cuda_batch.h - a batch's state in GPU memory
 *
 * A batch has one allocation in device memory and one in pinned host memory,
 * both made when the batch is created.  A step allocates nothing.
 *
 * Mirror: the device has a copy of the rows' page tables, `table`, of shape
 * [max_rows][table_stride]; entries are UINT32_MAX where a row has no page.
 * `shadow` is the host's record of the values that the table will have once the
 * stream has executed everything issued so far.  A plan writes only the entries
 * that differ from it.
 *
 * Staging: copies to the device and the kernel scatter_words read pinned memory
 * when the stream executes them.  CUDA_STAGES buffers are used in rotation;
 * before a buffer is written again, the host waits for the event recorded after
 * what read it last.
 *
 * Scatter: a plan collects the words that change, of all rows and arrays, as
 * records in the stage.  One launch of scatter_words writes them, so a plan makes
 * the same driver calls however many rows change.  Until that launch has been
 * issued, what it writes counts as torn: a plan that fails before loses nothing,
 * because the next one writes it all.
 *
 * Shapes: how the planner cuts a row into work items depends on the number of
 * query heads and on the attention kernels of the queries' dtype, which are
 * known only at the attention call.  plan() plans for the shape of the last
 * attention call.  An attention call with another shape launches the planner
 * again, once per plan.  Append reads only the rows, which are the same in
 * every shape.
 */
#ifndef PAGED_CLIENT_COMPUTE_CUDA_BATCH_H
#define PAGED_CLIENT_COMPUTE_CUDA_BATCH_H

#include "client/api/compute_ops.h"
#include "client/api/objects.h"
#include "client/cuda/cuda_kernels.h"
#include "kernels/cuda/host/plan.h"

#define CUDA_SHAPES 4u
#define CUDA_STAGES 4u
/**
 * A stage has this many bytes, and more for each row: the records of a row's lengths and words, and one of its page
 * table.  A run of words of this size is copied by the driver.  A launch of scatter_words would serve no other run, so
 * it would save no call, and a copy engine reads the host's memory in larger requests than a kernel.  Below that size
 * the kernel is faster: a copy makes the stream wait for another engine twice, which takes as long as the kernel needs
 * to read several stages.
 */
#define CUDA_STAGE_SIZE (64u << 10)
#define CUDA_STAGE_ROW_SIZE (2u * (uint32_t)sizeof(struct cuda_scatter_record))
/** Bytes of a row's q_base, q_indptr and kv_len. */
#define CUDA_LENGTHS_SIZE 16u
#define CUDA_Q_TOKENS_DEFAULT 512u

/** A plan for n_q_heads query heads and for the tiles of these kernels; n_q_heads 0: unused. */
struct cuda_shape {
	uint32_t n_q_heads;
	uint32_t tile_q_rows[CUDA_N_PARTS];
	uint32_t wide_kv_chunk_factor; /* cuda_plan_params.wide_kv_chunk_factor */
	uint64_t planned;              /* number of the last plan for which the planner was launched */
	bool captured;                 /* a captured graph has the planner's launch: a replay plans for this shape */
	bool dirty;                    /* its head has faults that were already reported */
	cuda_address head, rows, first_work_item;
};

struct cuda_stage {
	uint8_t *memory;
	cuda_event copied; /* recorded after the last copy or kernel that reads this stage */
};

/** A row of the mirror: it has entries [0, n) of this version of the sequence; the rest is unmapped. */
struct cuda_mirror_row {
	paged_seq_id id; /* 0: no sequence */
	uint64_t version;
	uint32_t n;
	bool torn; /* a plan did not write them: entries [0, n) are unknown; entries from n on are unmapped */
};

/** One word for each row, written on the device only when it changes. */
struct cuda_words {
	cuda_address device; /* uint32_t [max_rows] */
	uint32_t *shadow;    /* the values on the device */
	bool torn;           /* a plan did not write them: the values on the device are unknown */
};

struct cuda_batch {
	const struct cuda_gpu *gpu;
	struct cuda_kernels *kernels;
	cuda_stream stream;
	uint32_t max_q_tokens, max_q_heads;

	uint64_t memory_size;
	cuda_address memory; /* the allocation in device memory, which contains: */
	cuda_address table;
	cuda_address lengths; /* arrays q_base, q_indptr and kv_len, consecutive */
	cuda_address workspace_states, workspace_values;
	struct cuda_shape shape[CUDA_SHAPES];
	uint32_t shape_last; /* shape of the last attention call */

	uint8_t *pinned; /* pinned host memory: the stages, and the heads that validate copies to the host */
	struct cuda_plan_head *heads; /* [CUDA_SHAPES] */
	struct cuda_stage stage[CUDA_STAGES];
	uint32_t stage_now;
	uint32_t stage_size, stage_used; /* bytes */
	uint32_t scatter_from;           /* the stage's bytes from here to stage_used are records that no launch has */
	uint32_t n_mirrored;             /* rows from here on have no entry on the device */
	uint32_t n_updated;              /* rows that the current plan's scatter writes, if they changed */
	struct cuda_words writable;      /* cuda_plan_params.writable_from */
	struct cuda_words b;             /* cuda_plan_params.b */
	struct cuda_words kv_first;      /* cuda_plan_params.kv_first */

	void *host; /* pageable host memory, which contains: */
	size_t host_size;
	uint32_t *shadow;               /* [max_rows][table_stride] */
	struct cuda_mirror_row *mirror; /* [max_rows] */
	int64_t *lengths_host;          /* a plan's lengths, in the layout of `lengths` */

	struct marks_device *marks;              /* compute_cuda_marks.c; NULL: no mark and no wait yet */
	struct marks_event *mark;                /* NULL: no mark yet */
	cuda_event publish_event[PUBLISH_QUEUE]; /* compute_cuda_sharing.c; NULL: not needed yet */

	/* The plan. */
	struct cuda_plan_params params; /* without the fields that depend on the shape */
	uint32_t min_q_len;             /* of the rows with queries; 0: the device has the lengths */
	uint32_t most_kv_chunks;        /* of a row; with more KV heads than one there may be fewer */
	bool tables_only;
	bool captured; /* the plan was captured into a graph and has not run on a stream */
	bool appends;  /* some captured graph has an append */
};

static inline struct cuda_batch *
cuda_batch_of(const struct paged_batch *batch)
{
	return batch->backend_state;
}

/** compute_cuda_create - allocate all memory of the batch; batch->backend_state is set on PAGED_OK only */
enum paged_status compute_cuda_create(struct paged_batch *batch, const struct paged_batch_params *params,
				      struct paged_error *error);

/** compute_cuda_destroy - free a batch whose launched work is complete; in a forked child, free host memory only */
void compute_cuda_destroy(struct paged_batch *batch, bool in_child);

/* The functions below are called with the context current. */

/** compute_cuda_mirror_update - add to the scatter what the device lacks of the rows' page tables */
enum paged_status compute_cuda_mirror_update(struct paged_batch *batch, struct paged_error *error);

/** compute_cuda_mirror_written - the scatter with these entries was launched */
void compute_cuda_mirror_written(struct paged_batch *batch);

/** compute_cuda_plan - update the mirror and launch the planner */
enum paged_status compute_cuda_plan(struct paged_batch *batch, const struct compute_lengths *lengths,
				    struct paged_error *error);

/** compute_cuda_protect - bring rows' writable_from to the device after the plan; nothing during a capture */
enum paged_status compute_cuda_protect(struct paged_batch *batch, struct paged_error *error);

/** compute_cuda_shape - get the plan for these queries; launch the planner if it has not run for them */
enum paged_status compute_cuda_shape(struct paged_batch *batch, uint32_t n_q_heads,
				     const struct cuda_attention *attention, const struct cuda_shape **shape_p,
				     struct paged_error *error);

/** compute_cuda_shape_set - use a shape for these queries; it has no plan yet */
void compute_cuda_shape_set(struct cuda_shape *shape, uint32_t n_q_heads, uint32_t n_kv_heads,
			    const struct cuda_attention *attention);

/** compute_cuda_shape_any - the shape that the current plan was made for */
const struct cuda_shape *compute_cuda_shape_any(const struct paged_batch *batch);

/**
 * compute_cuda_scatter_add - write words to the batch's device memory, by the next compute_cuda_scatter_launch()
 *
 * The words are read before the call returns.  If the stage is full, the words before are launched, and the call waits
 * for the next stage.
 */
enum paged_status compute_cuda_scatter_add(struct paged_batch *batch, cuda_address to, const void *words,
					   uint32_t n_words, struct paged_error *error);

/** compute_cuda_scatter_launch - launch the kernel that writes the added words, if there are any */
enum paged_status compute_cuda_scatter_launch(struct paged_batch *batch, struct paged_error *error);

/** compute_cuda_scatter_drop - forget the words that were added since the last launch */
void compute_cuda_scatter_drop(struct paged_batch *batch);

/** compute_cuda_stage_next - switch to the next stage, after everything that reads it is done */
enum paged_status compute_cuda_stage_next(struct paged_batch *batch, struct paged_error *error);

/**
 * compute_cuda_stage - copy at most stage_size bytes to the device, in stream order, and switch to the next stage
 *
 * Waits until earlier copies from the next stage are done.
 *
 * @retval PAGED_ERR_UNSUPPORTED  the stream is being captured
 */
enum paged_status compute_cuda_stage(struct paged_batch *batch, cuda_address to, const void *from, uint32_t size,
				     struct paged_error *error);

/** compute_cuda_capture - is the batch's stream being captured? */
enum paged_status compute_cuda_capture(const struct paged_batch *batch, bool *capturing_p, struct paged_error *error);

/** compute_cuda_refuse_capture - PAGED_ERR_UNSUPPORTED if the batch's stream is being captured; `why` ends the text */
enum paged_status compute_cuda_refuse_capture(const struct paged_batch *batch, const char *why,
					      struct paged_error *error);

/** compute_cuda_copy_pages - copy whole pages, all layers, on the stream */
enum paged_status compute_cuda_copy_pages(struct paged_batch *batch, uint32_t n, const uint32_t *from,
					  const uint32_t *to, struct paged_error *error);

/** compute_cuda_event_record, compute_cuda_event_reached - see compute_ops; an event is created when it is first used
 */
enum paged_status compute_cuda_event_record(struct paged_batch *batch, uint32_t i, struct paged_error *error);
bool compute_cuda_event_reached(const struct paged_batch *batch, uint32_t i);

/** compute_cuda_faults - wait for the stream and report the faults of planner and kernels since the plan */
enum paged_status compute_cuda_faults(struct paged_batch *batch, struct paged_error *error);

/** compute_cuda_view - the plan in the form of the kernels' parameters */
static inline struct cuda_plan
compute_cuda_view(const struct paged_batch *batch, const struct cuda_shape *shape)
{
	return (struct cuda_plan){
		.head = shape->head,
		.rows = shape->rows,
		.first_work_item = shape->first_work_item,
		.table = cuda_batch_of(batch)->table,
		.n_rows = batch->n_rows,
		.table_stride = (uint32_t)batch->table_stride,
	};
}

#endif
