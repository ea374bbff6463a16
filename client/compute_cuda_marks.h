/* SPDX-License-Identifier: Apache-2.0 */
/**
 * compute_cuda_marks.h - events between processes
 *
 * Events are the process's, a list for each device.  A batch takes one at its
 * first mark and leaves it to the next batch when it is destroyed; it is never
 * destroyed itself, for CUDA leaves undefined what becomes of those in other
 * processes that wait for a destroyed one, and nothing would tell them.  So
 * there are as many as batches that had marks at the same time.
 *
 * What other processes made is opened once, and closed when the last batch
 * that holds the device's list is destroyed, or its process is found gone.
 *
 * Called with the context current, but for _drop().  Fork: as map_cuda.c, whose reason holds
 * here too: who takes the lock has used CUDA.
 */
#ifndef PAGED_CLIENT_COMPUTE_CUDA_MARKS_H
#define PAGED_CLIENT_COMPUTE_CUDA_MARKS_H

#include "client/compute_cuda.h"
#include "client/mark.h"

/** compute_cuda_mark - record the batch's event, and name it in the mark */
enum paged_status compute_cuda_mark(struct paged_batch *batch, struct mark *mark, struct paged_error *error);

/** compute_cuda_wait - the stream waits for the last record of the mark's event */
enum paged_status compute_cuda_wait(struct paged_batch *batch, const struct mark *mark, struct paged_error *error);

/** compute_cuda_finish - wait for the stream */
enum paged_status compute_cuda_finish(struct paged_batch *batch, struct paged_error *error);

/** compute_cuda_marks_drop - what the batch has of all this, at its end */
void compute_cuda_marks_drop(struct cuda_batch *cuda);

#endif
