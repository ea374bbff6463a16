/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/api/seq/publishing.h"

#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "client/api/seq/publish.h"

struct publishing_slot {
	_Atomic uint64_t version;  /* of the page table that the publishes are of */
	_Atomic uint64_t number;   /* of the last message that was sent; 0: none */
	_Atomic uint32_t n_queued; /* elements in the queues of batches */
	_Atomic uint32_t end;      /* tokens that are published if all of these succeed */
};

struct publishing {
	pthread_mutex_t mutex; /* taken to change slots; readers take none */
	unsigned int n_users;  /* handles of the pool; guarded by the client's mutex */
	uint32_t page_size;
	_Atomic uint32_t n_queued; /* the sum of the slots' */
	struct publishing_slot slots[];
};

static struct publishing *
publishing_find(const struct paged_client *client, uint32_t index)
{
	const struct paged_pool *pool;

	LIST_FOREACH(pool, &client->pools, link)
		if (pool->mapping.index == index)
			return pool->publishing;
	return NULL;
}

enum paged_status
publishing_open(struct paged_pool *pool, struct paged_error *error)
{
	struct publishing *publishing = publishing_find(pool->client, pool->mapping.index);
	uint32_t n_slots = pool->mapping.view.n_slots;

	if (pool->mapping.view.n_buckets == 0)
		return PAGED_OK;
	if (publishing == NULL) {
		/* The memory of slots that publish nothing is never touched. */
		publishing = calloc(1, sizeof(*publishing) + n_slots * sizeof(publishing->slots[0]));
		if (publishing == NULL || pthread_mutex_init(&publishing->mutex, NULL) != 0) {
			free(publishing);
			return paged_fail(error, PAGED_ERR_NOMEM, "no memory for %u slots of pool %s", n_slots,
					  pool->mapping.name);
		}
	}
	publishing->n_users++;
	publishing->page_size = pool->mapping.view.page_size;
	pool->publishing = publishing;
	return PAGED_OK;
}

void
publishing_close(struct paged_pool *pool, bool in_child)
{
	struct publishing *publishing = pool->publishing;

	pool->publishing = NULL;
	if (publishing == NULL || --publishing->n_users > 0)
		return;
	if (!in_child)
		pthread_mutex_destroy(&publishing->mutex);
	free(publishing);
}

/*
 * Is there a publish of the slot that the owner has not answered?  The acquires order the loads of `end` after the
 * first ones, and those of the sequence's slot, which then has what was answered, after the last one.
 */
static bool
publishing_slot_is_open(const struct paged_client *client, const struct publishing_slot *slot)
{
	return atomic_load_explicit(&slot->n_queued, memory_order_acquire) > 0 ||
	       atomic_load_explicit(&slot->number, memory_order_acquire) >
		       atomic_load_explicit(&client->publishes_answered, memory_order_acquire);
}

/* Notes a publish that is sent with this number, or is queued if it is 0; the mutex is held. */
static void
publishing_slot_note(const struct paged_client *client, const struct publishing *publishing,
		     struct publishing_slot *slot, const struct seq_publish_spec *spec, uint64_t number)
{
	uint32_t end = (spec->from + spec->n_pages) * publishing->page_size;

	if (publishing_slot_is_open(client, slot) &&
	    atomic_load_explicit(&slot->version, memory_order_relaxed) == spec->version)
		end = MAX(end, atomic_load_explicit(&slot->end, memory_order_relaxed));
	atomic_store_explicit(&slot->end, end, memory_order_relaxed);
	atomic_store_explicit(&slot->version, spec->version, memory_order_relaxed);
	if (number != 0)
		atomic_store_explicit(&slot->number, number, memory_order_release);
	else
		atomic_fetch_add_explicit(&slot->n_queued, 1, memory_order_release);
}

/* What a slot had before a message was sent. */
struct publishing_before {
	uint64_t version, number;
	uint32_t end;
};

static void
publishing_note_sent(const struct paged_client *client, struct publishing *publishing,
		     const struct seq_publish_list *publish, uint64_t number, struct publishing_before *before)
{
	pthread_mutex_lock(&publishing->mutex);
	for (uint32_t i = 0; i < publish->n; i++) {
		struct publishing_slot *slot = &publishing->slots[PAGED_SEQ_SLOT(publish->specs[i].seq)];

		before[i] = (struct publishing_before){ slot->version, slot->number, slot->end };
		publishing_slot_note(client, publishing, slot, &publish->specs[i], number);
	}
	pthread_mutex_unlock(&publishing->mutex);
}

/*
 * The message was not sent.  The rest of a slot that has elements in a queue stays as it is: another thread may have
 * queued them since the slot was noted.
 */
static void
publishing_note_undo(struct publishing *publishing, const struct seq_publish_list *publish,
		     const struct publishing_before *before)
{
	pthread_mutex_lock(&publishing->mutex);
	for (uint32_t i = publish->n; i-- > 0;) {
		struct publishing_slot *slot = &publishing->slots[PAGED_SEQ_SLOT(publish->specs[i].seq)];

		slot->number = before[i].number;
		if (slot->n_queued > 0)
			continue;
		slot->version = before[i].version;
		slot->end = before[i].end;
	}
	pthread_mutex_unlock(&publishing->mutex);
}

/* All messages before the oldest one without a reply are answered; those after it count as unanswered until it is. */
static void
publishing_settle(struct paged_client *client)
{
	uint64_t oldest = client->owner->ops->oldest_publish(client->owner);

	atomic_store_explicit(&client->publishes_answered,
			      oldest > 0 ? oldest - 1 : atomic_load(&client->publishes_sent), memory_order_release);
}

enum paged_status
publishing_send(struct paged_client *client, const struct seq_publish_list *publish, struct paged_error *error)
{
	struct publishing *publishing = publishing_find(client, PAGED_SEQ_POOL(publish->specs[0].seq));
	uint64_t number = atomic_fetch_add(&client->publishes_sent, 1) + 1;
	struct publishing_before before[WIRE_MAX_PUBLISHES];
	enum paged_status status;

	/* Noted before it is sent, so that no append of another thread slips in between. */
	publishing_note_sent(client, publishing, publish, number, before);
	status = client->owner->ops->publish(client->owner, publish, number, error);
	if (status != PAGED_OK)
		publishing_note_undo(publishing, publish, before);
	publishing_settle(client);
	return status;
}

void
publishing_queue(struct paged_pool *pool, const struct publish_message *message)
{
	struct publishing *publishing = pool->publishing;

	atomic_fetch_add_explicit(&publishing->n_queued, message->n, memory_order_relaxed);
	pthread_mutex_lock(&publishing->mutex);
	for (uint32_t i = 0; i < message->n; i++)
		publishing_slot_note(pool->client, publishing,
				     &publishing->slots[PAGED_SEQ_SLOT(message->specs[i].seq)], &message->specs[i], 0);
	pthread_mutex_unlock(&publishing->mutex);
}

void
publishing_unqueue(const struct paged_pool *pool, uint32_t n, const struct seq_publish_spec *specs)
{
	for (uint32_t i = 0; i < n; i++)
		atomic_fetch_sub_explicit(&pool->publishing->slots[PAGED_SEQ_SLOT(specs[i].seq)].n_queued, 1,
					  memory_order_release);
	atomic_fetch_sub_explicit(&pool->publishing->n_queued, n, memory_order_release);
}

bool
publishing_any(const struct paged_pool *pool)
{
	const struct paged_client *client = pool->client;

	return pool->publishing != NULL &&
	       (atomic_load_explicit(&pool->publishing->n_queued, memory_order_acquire) > 0 ||
		atomic_load_explicit(&client->publishes_sent, memory_order_acquire) >
			atomic_load_explicit(&client->publishes_answered, memory_order_acquire));
}

/* The end of what is published if all open publishes of this version succeed; 0: there is none. */
static uint32_t
publishing_end(const struct paged_pool *pool, paged_seq_id id, uint64_t version)
{
	const struct publishing_slot *slot;

	if (!publishing_any(pool))
		return 0;
	slot = &pool->publishing->slots[PAGED_SEQ_SLOT(id)];
	if (!publishing_slot_is_open(pool->client, slot) ||
	    atomic_load_explicit(&slot->version, memory_order_relaxed) != version)
		return 0;
	return atomic_load_explicit(&slot->end, memory_order_relaxed);
}

uint32_t
publishing_writable_from(const struct paged_pool *pool, paged_seq_id id, uint64_t version, uint32_t writable_from)
{
	const struct region_slot *slot = region_slot(&pool->mapping.view, PAGED_SEQ_SLOT(id));
	struct paged_client *client = pool->client;
	uint32_t end = publishing_end(pool, id, version);

	/* Read after what is unanswered: a publish that was answered in between is in the slot. */
	writable_from = MAX(writable_from, atomic_load_explicit(&slot->writable_from, memory_order_acquire));
	if (end <= writable_from)
		return writable_from;
	if (pthread_mutex_trylock(&client->mutex) == 0) {
		client->owner->ops->dispatch(client->owner);
		publishing_settle(client);
		client_unlock(client);
	}
	end = publishing_end(pool, id, version);
	writable_from = MAX(writable_from, atomic_load_explicit(&slot->writable_from, memory_order_acquire));
	return MAX(writable_from, end);
}
