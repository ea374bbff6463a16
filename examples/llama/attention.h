/* SPDX-License-Identifier: Apache-2.0 */
/**
 * attention.h - the interface of a KV cache that computes attention
 *
 * Two implementations: paged_cache.h keeps K and V in a pool's pages through
 * libpagedclient; contiguous.h keeps them in private arrays and computes
 * attention by its definition, to verify the first.
 *
 * A sequence is opened for a prompt and grows by steps.  A step is planned once
 * and run once per layer.  Rows are packed: row r's q_len queries follow those of
 * the rows before it.
 */
#ifndef LLAMA_ATTENTION_H
#define LLAMA_ATTENTION_H

#include <stdbool.h>
#include <stdint.h>

struct attention_row {
	uint64_t sequence;
	uint32_t q_len;
	uint32_t kv_len; /* tokens after this step */
	bool is_written; /* the cache has the K and V of these tokens: run() does not write them */
};

/** The first tokens of a sequence. */
struct attention_tokens {
	uint64_t sequence;
	const uint32_t *ids; /* [n] */
	uint32_t n;
};

struct attention;

struct attention_ops {
	/**
	 * Open a sequence that will begin with these tokens.  It starts with the K and V of the first *n_found_p of
	 * them, which another sequence has published.  False: no room for the tokens now; try later.
	 */
	bool (*open)(struct attention *attention, const uint32_t *tokens, uint32_t n_tokens, uint64_t *sequence_p,
		     uint32_t *n_found_p);
	/** Free the sequence's memory. */
	void (*close)(struct attention *attention, uint64_t sequence);
	/**
	 * False: no room for all rows now; waits[r] marks the rows that cannot continue.  The rows must not change
	 * until run().
	 */
	bool (*plan)(struct attention *attention, const struct attention_row *rows, uint32_t n_rows, bool *waits);
	/** Append k and v of the planned rows, then attend causally: q and out are [total_q][n_heads][head_dim]. */
	void (*run)(struct attention *attention, uint32_t layer, const float *q, const float *k, const float *v,
		    float *out);
	/** Let other sequences start with these tokens, whose K and V have been written in all layers.  Never waits. */
	void (*publish)(struct attention *attention, const struct attention_tokens *written, uint32_t n);
	/** Pages that a sequence holds; 0 if the implementation has no pages. */
	uint32_t (*n_pages)(struct attention *attention, uint64_t sequence);
};

/** The first member of each implementation. */
struct attention {
	const struct attention_ops *ops;
	uint32_t max_length; /* maximum tokens of a sequence */
};

#endif
