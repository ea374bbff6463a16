/* SPDX-License-Identifier: Apache-2.0 */
/**
 * paged_marks.h - one batch's work after another's, across processes
 *
 * Part of pagedclient.h, which includes it; programs include that alone.
 *
 * On a GPU paged_append() returns before anything is written.  Whoever else
 * reads the sequence, in another process or on another stream of this one,
 * must come after it, and there are two ways:
 *
 *   - the writer waits: paged_batch_finish(), and then tells of the sequence;
 *   - the reader's stream waits: the writer calls paged_batch_mark() behind its
 *     appends and sends the mark along with the sequence's id, by pipe, socket
 *     or shared memory; the reader calls paged_batch_wait() before its kernels.
 *     Neither host waits for anything.
 *
 * A mark says what it has to in itself: it is plain data, needs no freeing, and
 * is one of any number that a batch may have made, for they share one event.
 * It opens nothing but an order of work; still, send it to members of the pool
 * alone.
 *
 * In the host's memory calls have done their work when they return: a mark is
 * reached when it is made, and the same calls check the same things.
 */
#ifndef PAGED_MARKS_H
#define PAGED_MARKS_H

#include <pagedclient.h>

#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif
#ifdef __cplusplus
extern "C" {
#endif

/** What paged_batch_mark() made; to be copied whole, of this machine alone. */
struct paged_mark {
	uint64_t words[32];
};

/**
 * paged_batch_mark - everything that the batch has put on its stream so far
 *
 * Needs no plan.  The first mark of a batch makes an event, which other
 * batches of the process use once this one is destroyed; so a process that
 * has made marks keeps events, and the GPU's primary context, until it ends,
 * and marks of a batch that was destroyed are marks of work that has ended.
 *
 * @param[out] mark  written on PAGED_OK only
 * @retval PAGED_ERR_UNSUPPORTED  the stream is being captured: mark it after each
 *                                replay; or the GPU shares no events between
 *                                processes: paged_batch_finish() does without
 * @retval PAGED_ERR_GONE         the daemon or the session has ended
 */
enum paged_status paged_batch_mark(struct paged_batch *batch, struct paged_mark *mark);

/**
 * paged_batch_wait - what this batch puts on its stream from now on comes after the mark's work
 *
 * The stream waits, the caller does not.  It may wait for more than the mark
 * says: for all that the marking batch had marked by now.  That is never too
 * little, for a batch's later work comes after its earlier work, and two
 * batches that wait for each other's marks never do so in a circle: each call
 * waits for what was marked before it.
 *
 * A writer that dies, or whose GPU fails, when this call has already returned
 * may leave the stream waiting for ever, or break this process's use of CUDA:
 * where that must not be, let the writer call paged_batch_finish().
 *
 * The first wait for a process's batch opens its event; it is closed with the
 * last batch here that waited for anything, or once that process is gone.
 *
 * @retval PAGED_ERR_GONE     the process that made the mark has ended, and whether its work did
 *                            nobody knows; or the mark is of an earlier life of the daemon;
 *                            or the daemon or session of this batch has ended
 * @retval PAGED_ERR_INVALID  these bytes are no mark, or one of another pool
 * @retval PAGED_ERR_VERSION  a newer library made it
 * @retval PAGED_ERR_UNSUPPORTED  the stream is being captured: wait before the replay
 * @retval PAGED_ERR_BACKEND  CUDA does not open the event; the sentence has its reason
 */
enum paged_status paged_batch_wait(struct paged_batch *batch, const struct paged_mark *mark);

/**
 * paged_batch_finish - wait until everything on the batch's stream has ended
 *
 * What others put there as well.  Needs no plan, and no daemon: call it before
 * a batch is destroyed, a sequence erased, or a client closed.
 *
 * @retval PAGED_ERR_UNSUPPORTED  the stream is being captured
 * @retval PAGED_ERR_BACKEND      the driver's error, also of a kernel's before
 */
enum paged_status paged_batch_finish(struct paged_batch *batch);

#ifdef __cplusplus
}
#endif
#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#endif
