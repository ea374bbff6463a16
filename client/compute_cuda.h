/* SPDX-License-Identifier: Apache-2.0 */
/**
 * compute_cuda.h - what a batch has in a GPU's memory
 *
 * One allocation on the device and one of pinned host memory, both made with
 * the batch; a step allocates nothing.
 *
 * The mirror.  The rows' page tables lie on the device as the planner and the
 * kernels want them: `table`, [max_rows][table_stride], UINT32_MAX where a
 * row has no page.  `shadow` is the host's knowledge of what will lie there
 * once the stream has come so far, so that a plan copies what changed and
 * nothing else.
 *
 * Staging.  Copies to the device are made from pinned memory, which they read
 * when the stream gets to them: CUDA_STAGES pieces take turns, and each waits
 * for the event behind its last copy before it is written again.
 *
 * Shapes.  How the planner cuts a row into work depends on the queries' heads
 * and on the kernel that their dtype gets, which are known only at attention.
 * plan() plans for the shape that attention had last; one that comes with
 * another has the planner run for it too, once a plan.  Append reads rows
 * alone, which are the same in every shape.
 */
#ifndef PAGED_CLIENT_COMPUTE_CUDA_H
#define PAGED_CLIENT_COMPUTE_CUDA_H

#include "client/batch.h"
#include "client/compute.h"
#include "client/cuda_kernels.h"
#include "kernels/cuda/plan.h"

#define CUDA_SHAPES 4u
#define CUDA_STAGES 4u
/** Bytes of table entries that a stage has room for besides a plan's lengths. */
#define CUDA_STAGE_ENTRIES (64u << 10)
/** Bytes of a row's lengths: q_base, q_indptr, kv_len. */
#define CUDA_LENGTHS_SIZE 16u
#define CUDA_Q_TOKENS_DEFAULT 512u

/** A plan for queries of so many heads; n_q_heads 0: not used yet. */
struct cuda_shape {
	uint32_t n_q_heads;
	uint32_t tile_lines;
	uint64_t planned; /* the plan's number for which the planner was launched last */
	bool captured;    /* the planner is in a graph, whose replays plan for it */
	bool dirty;       /* its head has faults that were told */
	cuda_address head, rows, first_item;
};

struct cuda_stage {
	uint8_t *memory;
	cuda_event copied; /* behind the last copy from it */
};

/** What a row of the mirror holds: entries [0, n) of this version of the sequence; the rest is unmapped. */
struct cuda_mirror_row {
	paged_seq_id id; /* 0: no sequence's */
	uint64_t version;
	uint32_t n;
	bool torn; /* a copy failed: what lies there is not known, but that entries from n on are unmapped */
};

/** A word of each row, which rarely changes. */
struct cuda_words {
	cuda_address device; /* uint32_t [max_rows] */
	uint32_t *shadow;    /* what lies there */
	bool torn;           /* a copy failed: what lies there is not known */
};

struct cuda_batch {
	const struct cuda_gpu *gpu;
	struct cuda_kernels *kernels;
	cuda_stream stream;
	uint32_t max_q_tokens, max_q_heads;

	cuda_address memory; /* the device's, of which: */
	cuda_address table;
	cuda_address lengths; /* q_base, q_indptr, kv_len of the rows, one behind another */
	cuda_address partial_states, partial_values;
	struct cuda_shape shape[CUDA_SHAPES];
	uint32_t shape_last; /* which attention had last */

	uint8_t *pinned;              /* the stages, and what validate reads into: */
	struct cuda_plan_head *heads; /* [CUDA_SHAPES] */
	struct cuda_stage stage[CUDA_STAGES];
	uint32_t stage_now;
	uint32_t stage_size, stage_used; /* bytes */
	uint32_t n_mirrored;             /* rows past these have no entry on the device */
	struct cuda_words writable;      /* cuda_plan_params.writable_from */
	struct cuda_words b;             /* cuda_plan_params.b */

	void *host; /* ordinary memory, of which: */
	size_t host_size;
	uint32_t *shadow;               /* [max_rows][table_stride] */
	struct cuda_mirror_row *mirror; /* [max_rows] */
	int64_t *lengths_host;          /* a plan's, as they go to `lengths` */

	struct marks_device *marks; /* compute_cuda_marks.c; NULL: neither marked nor waited yet */
	struct marks_event *mark;   /* NULL: not marked yet */

	/* The plan. */
	struct cuda_plan_params params; /* but for the shape's part */
	bool tables_only;
	bool captured; /* it is in a graph, and has run in no stream */
	bool appends;  /* an append is in some graph */
};

static inline struct cuda_batch *
cuda_batch_of(const struct paged_batch *batch)
{
	return batch->compute;
}

/** compute_cuda_create - everything that the batch will need; batch->compute is set on PAGED_OK only */
enum paged_status compute_cuda_create(struct paged_batch *batch, const struct paged_batch_params *params,
				      struct paged_error *error);

/** compute_cuda_destroy - nothing that was launched runs any more; in a child memory alone is freed */
void compute_cuda_destroy(struct paged_batch *batch, bool in_child);

/* The rest is called with the context current. */

/** compute_cuda_plan - bring the mirror up to date, and launch the planner */
enum paged_status compute_cuda_plan(struct paged_batch *batch, const struct compute_lengths *lengths,
				    struct paged_error *error);

/** compute_cuda_shape - the plan for such queries, launched if it was not */
enum paged_status compute_cuda_shape(struct paged_batch *batch, uint32_t n_q_heads, uint32_t tile_lines,
				     const struct cuda_shape **shape_p, struct paged_error *error);

/** compute_cuda_shape_any - the shape that is planned */
const struct cuda_shape *compute_cuda_shape_any(const struct paged_batch *batch);

/**
 * compute_cuda_stage - copy to the device, in the stream's order, through a stage; at most CUDA_STAGE_ENTRIES bytes
 *
 * @retval PAGED_ERR_UNSUPPORTED  the stream is being captured
 */
enum paged_status compute_cuda_stage(struct paged_batch *batch, cuda_address to, const void *from, uint32_t size,
				     struct paged_error *error);

/** compute_cuda_capture - is the batch's stream being captured? */
enum paged_status compute_cuda_capture(const struct paged_batch *batch, bool *capturing_p, struct paged_error *error);

/** compute_cuda_refuse_capture - PAGED_ERR_UNSUPPORTED if the batch's stream is being captured; `why` ends the sentence
 */
enum paged_status compute_cuda_refuse_capture(const struct paged_batch *batch, const char *why,
					      struct paged_error *error);

/** compute_cuda_faults - wait for the stream; what planner and kernels found wrong since the plan */
enum paged_status compute_cuda_faults(struct paged_batch *batch, struct paged_error *error);

/** compute_cuda_view - the plan as kernels take it */
static inline struct cuda_plan
compute_cuda_view(const struct paged_batch *batch, const struct cuda_shape *shape)
{
	return (struct cuda_plan){
		.head = shape->head,
		.rows = shape->rows,
		.first_item = shape->first_item,
		.table = cuda_batch_of(batch)->table,
		.n_rows = batch->n_rows,
		.table_stride = (uint32_t)batch->table_stride,
	};
}

#endif
