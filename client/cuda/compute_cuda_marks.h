/* SPDX-License-Identifier: Apache-2.0 */
/**
 * compute_cuda_marks.h - interprocess CUDA events
 *
 * The process keeps one list of its own events per device.  A batch takes an
 * event at its first mark; when the batch is destroyed, the event becomes free
 * for another batch.  Events are never destroyed: CUDA leaves a wait in another
 * process on a destroyed event undefined, and that process cannot detect it.
 * The number of events is thus the maximum of concurrently marked batches.
 *
 * An event of another process is opened once, without the lock: opening is slow,
 * and only threads that wait for the same event wait for it.  It is closed when the
 * last batch that uses the device's list is destroyed, or when its process has ended.
 *
 * All functions but compute_cuda_marks_release() are called with the context
 * current.  Fork: as in map_cuda.c: only threads that have used CUDA take the
 * lock.
 */
#ifndef PAGED_CLIENT_COMPUTE_CUDA_MARKS_H
#define PAGED_CLIENT_COMPUTE_CUDA_MARKS_H

#include "client/api/mark.h"
#include "client/cuda/compute_cuda_batch.h"

/** compute_cuda_mark - record the batch's event on its stream and write the event's handle to the mark */
enum paged_status compute_cuda_mark(struct paged_batch *batch, struct mark *mark, struct paged_error *error);

/** compute_cuda_wait - make the batch's stream wait for the last record of the mark's event */
enum paged_status compute_cuda_wait(struct paged_batch *batch, const struct mark *mark, struct paged_error *error);

/** compute_cuda_finish - block until the batch's stream is idle */
enum paged_status compute_cuda_finish(struct paged_batch *batch, struct paged_error *error);

/** compute_cuda_marks_release - release the batch's event and its reference to the device's list */
void compute_cuda_marks_release(struct cuda_batch *cuda);

#endif
