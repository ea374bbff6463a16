/* SPDX-License-Identifier: Apache-2.0 */
/**
 * block_hash.h - hashes of blocks as vLLM and indexers compute them
 *
 * vLLM names a full block by a hash of the tuple (hash of the block before it,
 * token ids, extra keys), which it serializes by pickle or by canonical CBOR and
 * hashes by SHA-256 or by XXH3 with 128 bits.  In place of the hash before the
 * first block stands the hash of a seed, a string (hash_block_tokens() and
 * init_none_hash() in vllm/v1/core/kv_cache_utils.py).
 *
 * The extra keys of a block are None, or what makes the content of its tokens
 * another one.  An extra of 32 bytes (paged_watch.h) becomes the pair
 * ("cache_salt", its 64 hexadecimal digits).
 *
 * xxh3_64 is another scheme, which indexers that hash prompts themselves have in common (Mooncake's RFC 1527, Dynamo):
 * rolling hashes of 64 bits, by XXH3 with the seed 1337.  An extra changes the seed of its block.
 *
 * Both serializations are written here by hand.  One shape is ever serialized, and
 * an encoder for all of CBOR (libcbor) builds a tree with an allocation for each
 * token id.
 */
#ifndef PAGED_EVENTS_BLOCK_HASH_H
#define PAGED_EVENTS_BLOCK_HASH_H

#include <pagedclient.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BLOCK_HASH_MAX_SIZE PAGED_DIGEST_SIZE

struct block_hash {
	uint8_t size; /* bytes: 32, 16 or 8; 0: none */
	uint8_t bytes[BLOCK_HASH_MAX_SIZE];
};

/** Longest seed, bytes. */
#define BLOCK_HASH_MAX_SEED 255

struct block_hasher {
	const struct block_hash_algorithm *algorithm;
	struct block_hash none; /* stands before the first block */
};

/** The names of all algorithms, for messages: "sha256, ...". */
extern const char block_hash_names[];

/**
 * block_hasher_init - choose an algorithm by its name (--prefix-caching-hash-algo)
 *
 * @param[in] seed  PYTHONHASHSEED of the engines and routers; NULL: vLLM's default, which XXH3 with 128 bits lacks.  Of
 * xxh3_64: a number; NULL: 1337
 * @return NULL, or what is wrong
 */
const char *block_hasher_init(struct block_hasher *hasher, const char *name, const char *seed);

/**
 * block_hash_next - the hash of a block
 *
 * @param[in]  parent  of the block before it; NULL: it is the first
 * @param[in]  n       tokens, 1 to PAGED_MAX_PAGE_SIZE
 * @param[in]  extra   [PAGED_DIGEST_SIZE]; NULL: no extra keys
 */
void block_hash_next(const struct block_hasher *hasher, const struct block_hash *parent, const uint32_t *tokens,
		     uint32_t n, const uint8_t *extra, struct block_hash *hash);

/** block_hash_extra_text - an extra as the text that stands for it in a hash and in an event */
#define BLOCK_HASH_EXTRA_TEXT (2 * PAGED_DIGEST_SIZE)
void block_hash_extra_text(const uint8_t *extra, char text[BLOCK_HASH_EXTRA_TEXT]);

/** block_hash_integer - the last 64 bits, big-endian: vLLM's VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES */
uint64_t block_hash_integer(const struct block_hash *hash);

bool block_hash_equal(const struct block_hash *a, const struct block_hash *b);

#endif
