/* SPDX-License-Identifier: Apache-2.0 */
/**
 * publish.h - what is published, as messages to the owner
 *
 * paged_seq_publish() fills the client's message and sends it whenever it is
 * full.  A batch on a GPU has a queue of messages, each with an event on the
 * batch's stream.  A message is sent when its event has been reached; the queue
 * is in the batch's buffer and never grows.
 *
 * A message is filled with pages that are not yet published.  If it is not sent
 * or its sequence has changed, it is dropped: publishing goes on from what the
 * sequence's slot says.
 */
#ifndef PAGED_CLIENT_PUBLISH_H
#define PAGED_CLIENT_PUBLISH_H

#include "client/api/objects.h"
#include "client/api/seq/prefix.h"

struct publish_message {
	bool keys;            /* the extras are the block keys */
	bool attached_tokens; /* with keys: the pages have token ids, too */
	uint32_t n, n_pages, n_tokens, n_extras;
	struct seq_publish_spec specs[WIRE_MAX_PUBLISHES];
	uint32_t tokens[WIRE_MAX_PUBLISH_TOKENS];
	uint32_t extra_page[WIRE_MAX_EXTRAS];
	uint8_t extra[WIRE_MAX_EXTRAS][REGION_EXTRA_SIZE];
};

/** Pages of a sequence to publish. */
struct publish_range {
	paged_seq_id seq;
	uint64_t version;
	uint32_t from, end; /* pages */
};

static inline void
publish_message_clear(struct publish_message *message)
{
	message->n = message->n_pages = message->n_tokens = message->n_extras = 0;
}

/**
 * publish_message_add - add as many pages of [range->from, range->end) as there is room for, and advance range->from
 *
 * @return false: the message is full
 */
bool publish_message_add(struct publish_message *message, const struct prefix_source *source,
			 struct publish_range *range);

/** publish_message_send - post a message; the client's mutex is held */
enum paged_status publish_message_send(struct paged_client *client, const struct publish_message *message,
				       struct paged_error *error);

/**
 * publish_message_drop_stale - remove from a queued message the sequences that were given away, or whose page table has
 * another version now
 */
void publish_message_drop_stale(const struct paged_pool *pool, struct publish_message *message);

/** publish_enter - the checks of a call that publishes */
enum paged_status publish_enter(const struct paged_pool *pool, size_t n, const struct paged_publish *publishes);

/**
 * publish_range_init - check one element and find which of its pages are not published
 *
 * @param[out] range  from == end: none
 * @retval PAGED_ERR_STALE, PAGED_ERR_PERM, PAGED_ERR_CAPACITY, PAGED_ERR_INVALID
 */
enum paged_status publish_range_init(struct paged_pool *pool, size_t i, const struct paged_publish *publish,
				     struct prefix_source *source, struct publish_range *range,
				     struct paged_error *error);

/** publish_check_all - publish_range_init() of all elements; *any_p: there are pages to publish */
enum paged_status publish_check_all(struct paged_pool *pool, size_t n, const struct paged_publish *publishes,
				    bool *any_p, struct paged_error *error);

/** publish_now - paged_seq_publish(), after publish_enter() */
enum paged_status publish_now(struct paged_pool *pool, size_t n, const struct paged_publish *publishes,
			      struct paged_error *error);

/** batch_publish_drop - forget the messages that are still in the queue; the batch is destroyed */
void batch_publish_drop(struct paged_batch *batch);

/** batch_publish_dispatch - send the messages of the queue whose events were reached; never waits */
void batch_publish_dispatch(struct paged_batch *batch);

#endif
