/* SPDX-License-Identifier: Apache-2.0 */
/* sequences.h - sequence requests with their items given as parallel arrays */
#ifndef TESTS_SEQUENCES_H
#define TESTS_SEQUENCES_H

#include <pagedclient.h>
#include <stdlib.h>

static inline enum paged_status
seqs_create(struct paged_client *of, struct paged_pool *in, size_t n, paged_seq_id *ids)
{
	struct paged_seq_params *params = calloc(n + 1, sizeof(*params));
	enum paged_status status;

	for (size_t i = 0; i < n; i++)
		params[i].pool = in;
	status = paged_seq_create(of, n, params, ids);
	free(params);
	return status;
}

typedef enum paged_status (*seqs_change_fn)(struct paged_client *client, size_t n, const struct paged_seq_item *items);

static inline enum paged_status
seqs_change(seqs_change_fn change, struct paged_client *of, size_t n, const paged_seq_id *ids, const uint32_t *n_tokens)
{
	struct paged_seq_item *items = calloc(n + 1, sizeof(*items));
	enum paged_status status;

	for (size_t i = 0; i < n; i++)
		items[i] = (struct paged_seq_item){ .seq = ids[i], .n_tokens = n_tokens[i] };
	status = change(of, n, items);
	free(items);
	return status;
}

static inline enum paged_status
seqs_reserve(struct paged_client *of, size_t n, const paged_seq_id *ids, const uint32_t *n_tokens)
{
	return seqs_change(paged_seq_reserve, of, n, ids, n_tokens);
}

static inline enum paged_status
seqs_truncate(struct paged_client *of, size_t n, const paged_seq_id *ids, const uint32_t *n_tokens)
{
	return seqs_change(paged_seq_truncate, of, n, ids, n_tokens);
}

static inline enum paged_status
seqs_trim(struct paged_client *of, size_t n, const paged_seq_id *ids, const uint32_t *first_tokens)
{
	return seqs_change(paged_seq_trim, of, n, ids, first_tokens);
}

#endif
