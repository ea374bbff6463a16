/* SPDX-License-Identifier: Apache-2.0 */
/* The record of unanswered publishes, in the orders in which an owner and other threads may act. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "client/api/seq/publish.h"
#include "client/api/seq/publishing.h"

enum { N_SLOTS = 4, SEQ_SLOT = 2, PAGE_SIZE = 16, VERSION = 9 };

#define SEQ (((paged_seq_id)1 << 32) | SEQ_SLOT)

/* An owner that answers when a test says so. */
static struct {
	uint64_t open[OWNER_MAX_PUBLISHES]; /* 0: answered */
	unsigned int n;
	enum paged_status refusal;
	void (*meanwhile)(void); /* what another thread does while a publish is sent */
} sent;

static struct region_slot slots[N_SLOTS];
static struct publish_message message;
static struct paged_client client = { .mutex = PTHREAD_MUTEX_INITIALIZER };
static struct paged_pool pool = { .client = &client };

static enum paged_status
fake_publish(struct owner *owner, const struct seq_publish_list *publish, uint64_t number, struct paged_error *error)
{
	(void)owner, (void)publish, (void)error;
	if (sent.meanwhile != NULL)
		sent.meanwhile();
	if (sent.refusal == PAGED_OK)
		sent.open[sent.n++] = number;
	return sent.refusal;
}

static uint64_t
fake_oldest_publish(const struct owner *owner)
{
	uint64_t oldest = 0;

	(void)owner;
	for (unsigned int i = 0; i < sent.n; i++)
		if (sent.open[i] != 0 && (oldest == 0 || sent.open[i] < oldest))
			oldest = sent.open[i];
	return oldest;
}

static void
fake_dispatch(struct owner *owner)
{
	(void)owner;
}

static const struct owner_ops fake_ops = {
	.publish = fake_publish,
	.oldest_publish = fake_oldest_publish,
	.dispatch = fake_dispatch,
};

static struct owner owner = { .ops = &fake_ops };

static void
publishing_setup(void)
{
	struct paged_error error;

	client.owner = &owner;
	pool.mapping.view = (struct region_view){ .base = (const uint8_t *)slots,
						  .slot_stride = sizeof(slots[0]),
						  .n_slots = N_SLOTS,
						  .n_buckets = 1,
						  .page_size = PAGE_SIZE };
	LIST_INIT(&client.pools);
	LIST_INSERT_HEAD(&client.pools, &pool, link);
	cr_assert_eq(publishing_open(&pool, &error), PAGED_OK);
}

static void
publishing_teardown(void)
{
	publishing_close(&pool, false);
}

TestSuite(publishing, .init = publishing_setup, .fini = publishing_teardown);

static enum paged_status
send_pages(uint32_t slot, uint32_t n_pages)
{
	const struct seq_publish_spec spec = { .seq = SEQ - SEQ_SLOT + slot, .version = VERSION, .n_pages = n_pages };
	struct paged_error error;

	return publishing_send(&client, &(struct seq_publish_list){ .n = 1, .specs = &spec }, &error);
}

static uint32_t
writable_from(void)
{
	return publishing_writable_from(&pool, SEQ, VERSION, 0);
}

/* An append has read the slot; then the owner publishes and answers, and another thread handles the reply. */
Test(publishing, answers_after_the_slot_was_read)
{
	cr_assert_eq(send_pages(SEQ_SLOT, 2), PAGED_OK);
	cr_assert_eq(writable_from(), 2 * PAGE_SIZE);
	slots[SEQ_SLOT].writable_from = 2 * PAGE_SIZE;
	sent.open[0] = 0;
	sent.refusal = PAGED_ERR_AGAIN;
	cr_assert_eq(send_pages(0, 1), PAGED_ERR_AGAIN);
	cr_assert_not(publishing_any(&pool));
	cr_assert_eq(writable_from(), 2 * PAGE_SIZE);
}

/* The second of three is refused before the first is answered. */
Test(publishing, replies_in_another_order)
{
	cr_assert_eq(send_pages(SEQ_SLOT, 2), PAGED_OK);
	cr_assert_eq(send_pages(0, 1), PAGED_OK);
	cr_assert_eq(send_pages(1, 1), PAGED_OK);
	sent.open[1] = 0;
	cr_assert_eq(writable_from(), 2 * PAGE_SIZE);
	sent.open[2] = 0;
	cr_assert_eq(writable_from(), 2 * PAGE_SIZE);
	sent.open[0] = 0;
	cr_assert_eq(writable_from(), 0, "the owner has published nothing");
}

static void
queue_more(void)
{
	message.n = 1;
	message.specs[0] = (struct seq_publish_spec){ .seq = SEQ, .version = VERSION, .from = 1, .n_pages = 3 };
	publishing_queue(&pool, &message);
}

/* A message that is not sent takes back what it noted, but nothing that a batch has queued since. */
Test(publishing, queued_while_a_send_fails)
{
	sent.refusal = PAGED_ERR_AGAIN;
	cr_assert_eq(send_pages(SEQ_SLOT, 2), PAGED_ERR_AGAIN);
	cr_assert_eq(writable_from(), 0);
	sent.meanwhile = queue_more;
	cr_assert_eq(send_pages(SEQ_SLOT, 2), PAGED_ERR_AGAIN);
	cr_assert_eq(writable_from(), 4 * PAGE_SIZE);
	publishing_unqueue(&pool, message.n, message.specs);
	cr_assert_eq(writable_from(), 0);
}
