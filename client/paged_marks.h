/* SPDX-License-Identifier: Apache-2.0 */
/**
 * paged_marks.h - pools in GPU memory: streams, CUDA graphs, and order between batches
 *
 * Part of pagedclient.h, which includes it; programs include that alone.
 *
 * Addresses.  For a pool with backend "cuda", the following are device
 * addresses, in memory of the pool's device or memory that it can access: the
 * data of tensors, lse, max_score, sink, positions, k_scale and v_scale, the
 * table and positions of a rotary embedding, begin and end of a gather, the
 * parts of a merge, and the arrays that mods read.  The library never reads them
 * on the host.  Plan rows, explicit page tables, parameter structs and the
 * values of mod parameters are in host memory.
 *
 * Asynchrony.  Plan, append, gather, attention and merge launch kernels on the
 * batch's stream (paged_batch_stream()) and return.  Errors that only the device
 * can find are reported by paged_batch_validate(), which waits for the stream.
 * Therefore:
 *
 *   - data that a call reads on the device must be written before the call, in
 *     stream order, and stay unchanged until the call's kernels have ended;
 *   - rows, explicit page tables and parameter structs may be reused as soon as
 *     the call returns;
 *   - before a truncate, an erase or a close, no kernel of this session may work
 *     on the affected pages: call paged_batch_finish() first;
 *   - a batch may be destroyed when all work that it put on the stream has
 *     ended, also work of a plan that failed;
 *   - a batch that reads what another batch writes must be ordered after it,
 *     see Marks.
 *
 * The library uses the device's primary context, as the CUDA runtime does, and
 * restores the calling thread's current context before it returns.
 *
 * Graphs.  A stream capture may contain paged_batch_plan_device(), then append,
 * attention and merge.  A graph contains no copies from the host, so the
 * page tables are not part of it: the rows given at the capture only set bounds,
 * and need not name sequences or pages.  Bind mods (paged_mod_set_bind()) and
 * compile them (paged_mod_set_prepare()) before the capture.
 *
 * Before each replay, including the first, call paged_batch_plan_device() with
 * tables_only, outside of any capture and on the stream that the graph is
 * launched on.  This call copies the page table entries that have changed to the
 * device.  Its rows may name any sequences; n_rows, the sum of the q_len bounds
 * and the largest of them must not exceed those of the capture.  A smaller batch
 * has empty rows, with empty lengths on the device as well.  If the graph
 * appends, a row of another session needs PAGED_ROW_NO_APPEND.  After the
 * replay, paged_batch_validate() checks this plan.  Capture decode with bounds of
 * decode: attention then launches one kernel and not another one for prefill.
 *
 * Append, gather and attention accept a captured plan only within its capture,
 * and never a tables_only plan; both are PAGED_ERR_INVALID.  The graph contains
 * addresses of the batch's buffers, of mods and block masks, and of the caller's
 * arrays: launch it only while all of them exist.  It also contains kernels, which
 * the library unloads with the mod set, and with the last batch of the pool, that
 * they belong to; it does not know of the graph.  So end a capture, and destroy its
 * graph and what was instantiated from it, before the batches and the mod sets whose
 * calls it contains.
 *
 * A call that cannot be captured is refused before it puts anything on the
 * stream, and the capture stays valid.  A refused plan leaves the batch without
 * a plan: plan again.  Library calls on other streams, and calls that allocate,
 * do not invalidate a capture of any mode, because the library sets the thread's
 * capture mode to relaxed during its calls.
 *
 * Marks.  On a GPU, paged_append() returns before anything is written.  Work
 * that reads the sequence in another process, or on another stream of this one,
 * must come after it.  There are two ways:
 *
 *   - the writer waits: it calls paged_batch_finish(), then publishes the
 *     sequence's id;
 *   - the reader's stream waits: the writer calls paged_batch_mark() after its
 *     appends and sends the mark with the sequence's id, through a pipe, a socket
 *     or shared memory.  The reader calls paged_batch_wait() before its kernels.
 *     Neither host thread waits.
 *
 * A mark is plain data and is never freed.  A batch may make any number of
 * marks; they share one CUDA event.  A mark gives no access to memory, but send
 * it only to processes that use the pool.
 *
 * For a pool in host memory, calls are complete when they return.  A mark is
 * then reached when it is made, and the calls below make the same checks.
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

/** Made by paged_batch_mark(); copy it as a whole.  Valid on this machine only. */
struct paged_mark {
	uint64_t words[32];
};

/**
 * paged_batch_mark - mark all work that the batch has put on its stream so far
 *
 * Needs no plan.  The first mark of a batch creates a CUDA event.  Events are
 * never destroyed: after the batch is destroyed, other batches of the process
 * reuse its event.  A process that has made marks therefore keeps events, and
 * the GPU's primary context, until it exits.  Marks of a destroyed batch stand
 * for work that has ended.
 *
 * @param[out] mark  written on PAGED_OK only
 * @retval PAGED_ERR_UNSUPPORTED  the stream is being captured: mark it after each
 *                                replay instead; or the GPU cannot share events
 *                                between processes: use paged_batch_finish()
 * @retval PAGED_ERR_BACKEND      the driver failed
 * @retval PAGED_ERR_GONE         the daemon died, or ended this session
 */
enum paged_status paged_batch_mark(struct paged_batch *batch, struct paged_mark *mark);

/**
 * paged_batch_wait - order this batch's later work after the work of a mark
 *
 * The stream waits; the calling thread does not.  The stream waits for all that
 * the marking batch has marked by the time of this call, which may be more than
 * the mark itself, never less: work of a batch runs in stream order.  Two batches
 * that wait for each other's marks cannot deadlock, because a call waits only
 * for marks that were made before it.
 *
 * If the writer dies, or its GPU fails, after this call has returned, the stream
 * may wait for ever, or CUDA may become unusable in this process.  Where that is
 * not acceptable, let the writer call paged_batch_finish() instead.
 *
 * The first wait for a batch of another process opens the event of that batch.
 * The event is closed when the last batch of this process that has waited for
 * any mark is destroyed, or after the other process has exited.
 *
 * @retval PAGED_ERR_GONE     the process that made the mark has exited, so it is unknown whether
 *                            its work was done; or the mark was made under an earlier daemon;
 *                            or this batch's daemon or session has ended
 * @retval PAGED_ERR_INVALID  these bytes are not a mark, or the mark belongs to another pool
 * @retval PAGED_ERR_VERSION  a newer library made the mark
 * @retval PAGED_ERR_UNSUPPORTED  the stream is being captured: wait before each replay instead
 * @retval PAGED_ERR_BACKEND  CUDA cannot open the event; the message has the reason
 */
enum paged_status paged_batch_wait(struct paged_batch *batch, const struct paged_mark *mark);

/**
 * paged_batch_finish - block until all work on the batch's stream has ended
 *
 * Includes work that others have put on the stream.  Needs no plan and no
 * daemon: call it before a batch is destroyed, a sequence truncated or erased,
 * or a client closed.
 *
 * @retval PAGED_ERR_UNSUPPORTED  the stream is being captured
 * @retval PAGED_ERR_BACKEND      an error of the driver, also one of an earlier kernel
 */
enum paged_status paged_batch_finish(struct paged_batch *batch);

#ifdef __cplusplus
}
#endif
#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#endif
