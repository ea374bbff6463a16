/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mask_request.h - a member's request for a block mask, and the part of the mask in the reply
 *
 * Messages, both owners (daemon and embedded client) and the client library share these structs.  A mask is
 * transferred in parts.  Each request names where its part begins; the owner keeps no state between two requests.
 * kernels/mask/rle.h defines the encoding of a part.
 */
#ifndef PAGED_MASK_REQUEST_H
#define PAGED_MASK_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

/** Longest name of a parameter or array. */
#define MASK_MAX_NAME 31u
/** Most parameters and arrays of a mask mod. */
#define MASK_MAX_NAMES 16u
/** Most numbers in a part, so that a reply fits a message. */
#define MASK_PART_MAX 16000u

/** A parameter with its value, or the name of one of the session's arrays. */
struct mask_request_name {
	char name[MASK_MAX_NAME + 1];
	uint32_t dtype;   /* enum paged_dtype */
	uint32_t n_dims;  /* 0: a parameter */
	uint8_t value[4]; /* of a parameter */
};

struct mask_request {
	uint32_t n_rows;                /* 1 to PAGED_MAX_MASK_ROWS */
	const uint32_t *q_len, *kv_len; /* [n_rows] */
	const int64_t *q_base;          /* [n_rows]; NULL: kv_len - q_len */
	const uint32_t *kv_first;       /* [n_rows], at most kv_len; NULL: 0 */
	const uint32_t *b;              /* [n_rows], the mod's b, at most INT32_MAX; NULL: the row's index */
	uint32_t n_heads;               /* 0: all heads share one mask; the mod must not depend on h */
	uint32_t q_block, kv_block;     /* tokens */
	const char *text;               /* of the mask mod */
	uint32_t n_names;
	const struct mask_request_name *names; /* the parameters and arrays that the text uses */
	uint64_t first_list;  /* number of the part's first list, in the order rows, heads, query blocks */
	uint32_t first_block; /* KV blocks of this list that earlier parts cover */
};

struct mask_part {
	uint32_t n; /* at most MASK_PART_MAX */
	const uint32_t *values;
	bool list_continues; /* the last list continues in the next part */
	uint64_t arrays;     /* differs between parts if an array that the mod names was replaced; 0: it names none */
};

#endif
