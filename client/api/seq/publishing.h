/* SPDX-License-Identifier: Apache-2.0 */
/**
 * publishing.h - what this process publishes and the owner has not answered yet
 *
 * Publishing never waits, so a sequence's slot shows a publish only some time
 * after the call.  From the call on, this process must not write what it
 * publishes.  For each slot of a pool, this records how far the messages that
 * have no reply, or wait in the queue of a batch, want to publish.
 *
 * Messages to the owner are numbered from 1 on.  A refusal may overtake the
 * replies to earlier messages, so a message counts as unanswered until all
 * earlier ones are answered, too: while its number exceeds
 * client->publishes_answered.
 *
 * All handles of one pool in a client share one record.
 */
#ifndef PAGED_CLIENT_PUBLISHING_H
#define PAGED_CLIENT_PUBLISHING_H

#include "client/api/objects.h"

struct publish_message;

/** publishing_open - create the pool's record, or share that of another handle; the client's mutex is held */
enum paged_status publishing_open(struct paged_pool *pool, struct paged_error *error);

/** publishing_close - the inverse; the client's mutex is held, or this is a forked child */
void publishing_close(struct paged_pool *pool, bool in_child);

/** publishing_send - note the sequences and send the owner's publish(); the client's mutex is held */
enum paged_status publishing_send(struct paged_client *client, const struct seq_publish_list *publish,
				  struct paged_error *error);

/** publishing_queue - a message was put into a batch's queue */
void publishing_queue(struct paged_pool *pool, const struct publish_message *message);

/** publishing_unqueue - n elements of a message left the queue: they were sent or dropped */
void publishing_unqueue(const struct paged_pool *pool, uint32_t n, const struct seq_publish_spec *specs);

/** publishing_any - may a sequence of the pool have a publish that the owner has not answered?  A few loads */
bool publishing_any(const struct paged_pool *pool);

/**
 * publishing_writable_from - the first token that this process may write to a sequence
 *
 * Reads the sequence's slot again, after the record: the caller's read does not show a publish that was answered since.
 * If only an unanswered publish stands in the way, handles the replies that have arrived, unless another thread uses
 * the client.
 *
 * @param[in] version        of the sequence's page table
 * @param[in] writable_from  what the caller has read; the result is no less
 */
uint32_t publishing_writable_from(const struct paged_pool *pool, paged_seq_id id, uint64_t version,
				  uint32_t writable_from);

#endif
