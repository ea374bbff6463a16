/* SPDX-License-Identifier: Apache-2.0 */
/* The log of batches: which are kept, and their bytes. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "events/batch_log.h"

/* Takes the batch from a number on that is kept; its payload is the text of its number.  UINT64_MAX: none. */
static uint64_t
take(struct batch_log *log, uint64_t from)
{
	uint64_t at = from;
	struct batch *batch = batch_log_take(log, &at);
	char text[24];
	size_t n;

	if (batch == NULL) {
		cr_assert_eq(at, from > batch_log_next(log) ? from : batch_log_next(log));
		return UINT64_MAX;
	}
	at--;
	n = (size_t)sprintf(text, "%d", (int)at);
	/* Empty frame, topic "t", number, payload. */
	cr_assert_eq(batch->size, 2 + 3 + 10 + 2 + n);
	cr_assert_eq(memcmp(batch->bytes, "\1\0\1\1t\1\10", 7), 0);
	cr_assert_eq(sequence_load(batch->bytes + 7), at);
	cr_assert_eq(batch->bytes[15], 0);
	cr_assert_eq(batch->bytes[16], n);
	cr_assert_eq(memcmp(batch->bytes + 17, text, n), 0);
	batch_release(batch);
	return at;
}

static void
append(struct batch_log *log, uint32_t n)
{
	char text[24];

	for (; n > 0; n--)
		cr_assert(batch_log_append(log, text, (size_t)sprintf(text, "%d", (int)batch_log_next(log))));
}

Test(batch_log, keeps_the_last)
{
	struct batch_log *log = batch_log_create("t", 100, SIZE_MAX);

	cr_assert_eq(take(log, 0), UINT64_MAX);
	append(log, 70);
	for (uint64_t i = 0; i < 70; i++)
		cr_assert_eq(take(log, i), i);
	cr_assert_eq(take(log, 70), UINT64_MAX);
	append(log, 180);
	cr_assert_eq(take(log, 0), 150);
	cr_assert_eq(take(log, 151), 151);
	batch_log_trim(log, 249);
	cr_assert_eq(take(log, 0), 249);
	batch_log_trim(log, 250);
	cr_assert_eq(take(log, 0), UINT64_MAX);
	append(log, 1);
	cr_assert_eq(take(log, 0), 250);
	batch_log_destroy(log);
}

Test(batch_log, bytes_are_limited)
{
	/* A batch of two digits has 19 bytes. */
	struct batch_log *log = batch_log_create("t", 100, 5 * 19);

	append(log, 50);
	cr_assert_eq(take(log, 0), 45);
	batch_log_destroy(log);
	/* The newest is kept. */
	log = batch_log_create("t", 100, 1);
	append(log, 3);
	cr_assert_eq(take(log, 0), 2);
	batch_log_destroy(log);
}

/* A batch that is being sent stays, whatever the log forgets. */
Test(batch_log, references)
{
	struct batch_log *log = batch_log_create("t", 1, SIZE_MAX);
	struct batch *batch, *end = batch_log_end(log);
	uint64_t at = 0;

	append(log, 1);
	batch = batch_log_take(log, &at);
	append(log, 1);
	batch_log_destroy(log);
	cr_assert_eq(batch->bytes[17], '0');
	batch_release(batch);
	cr_assert_eq(end->size, 16);
	cr_assert_eq(memcmp(end->bytes, "\1\0\1\0\1\10\377\377\377\377\377\377\377\377\0\0", 16), 0);
	batch_release(end);
}
