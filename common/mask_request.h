/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mask_request.h - a block mask that a member asks the pools' owner for, and the part of it that answers
 *
 * The same structs serve the wire, both owners and the client.  A mask comes in parts, each by a request that names
 * where it begins; the owner keeps nothing between two of them.  kernels/mask/runs.h says what a part's numbers mean.
 */
#ifndef PAGED_MASK_REQUEST_H
#define PAGED_MASK_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

/** Longest name of a parameter or array. */
#define MASK_MAX_NAME 31u
/** Most names of a mask mod. */
#define MASK_MAX_NAMES 16u
/** Most numbers of a part, so that a reply fits a message. */
#define MASK_PART_MAX 16000u

/** A parameter, or an array that the session has. */
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
	const uint32_t *b;              /* [n_rows], what the mod sees as b, at most INT32_MAX; NULL: a row's place */
	uint32_t n_heads;               /* 0: one stands for all; the mod may then not depend on h */
	uint32_t q_block, kv_block;     /* tokens */
	const char *text;               /* of a mask mod */
	uint32_t n_names;
	const struct mask_request_name *names; /* what the text names */
	uint64_t first_list;                   /* where the part begins: rows x heads x query blocks before it, */
	uint32_t first_block;                  /* and KV blocks of its first list */
};

struct mask_part {
	uint32_t n; /* at most MASK_PART_MAX */
	const uint32_t *values;
	bool cut;        /* the last list goes on in the next part */
	uint64_t arrays; /* another number: an array that the mask names was replaced; 0: it names none */
};

#endif
