/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "events/block_hash.h"

#include <assert.h>
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* vLLM's DEFAULT_NONE_HASH_SEED. */
#define DEFAULT_SEED "vllm-none-hash"
/* That of RFC 1527. */
#define XXH3_64_SEED 1337
/* The key under which vLLM hashes a salt. */
#define EXTRA_TAG "cache_salt"

/* What is serialized: a token id takes at most 7 bytes, the rest at most 256. */
struct block_bytes {
	size_t n;
	uint8_t bytes[256 + BLOCK_HASH_MAX_SEED + 7 * PAGED_MAX_PAGE_SIZE];
};

static void
bytes_put(struct block_bytes *to, const void *bytes, size_t n)
{
	assert(to->n + n <= sizeof(to->bytes));
	memcpy(to->bytes + to->n, bytes, n);
	to->n += n;
}

static void
bytes_put_u8(struct block_bytes *to, uint8_t byte)
{
	bytes_put(to, &byte, 1);
}

/* n bytes of a number, the least significant first. */
static void
bytes_put_little(struct block_bytes *to, uint64_t number, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		bytes_put_u8(to, (uint8_t)(number >> 8 * i));
}

static void
bytes_put_big(struct block_bytes *to, uint64_t number, unsigned int n)
{
	for (unsigned int i = n; i-- > 0;)
		bytes_put_u8(to, (uint8_t)(number >> 8 * i));
}

/* What a block's hash is computed of. */
struct block_input {
	const struct block_hash *parent;
	const uint32_t *tokens;
	uint32_t n;
	const char *extra_text; /* [BLOCK_HASH_EXTRA_TEXT]; NULL: none */
};

/* Canonical CBOR: RFC 8949, section 4.2 */

enum cbor_type { CBOR_UINT = 0, CBOR_BYTES = 2, CBOR_TEXT = 3, CBOR_ARRAY = 4 };
#define CBOR_NULL 0xf6

static void
cbor_put_head(struct block_bytes *to, enum cbor_type type, uint32_t number)
{
	uint8_t major = (uint8_t)(type << 5);

	if (number < 24) {
		bytes_put_u8(to, (uint8_t)(major | number));
	} else if (number <= UINT8_MAX) {
		bytes_put_u8(to, major | 24);
		bytes_put_big(to, number, 1);
	} else if (number <= UINT16_MAX) {
		bytes_put_u8(to, major | 25);
		bytes_put_big(to, number, 2);
	} else {
		bytes_put_u8(to, major | 26);
		bytes_put_big(to, number, 4);
	}
}

static void
cbor_put_text(struct block_bytes *to, const char *text, size_t n)
{
	cbor_put_head(to, CBOR_TEXT, (uint32_t)n);
	bytes_put(to, text, n);
}

static void
cbor_put_seed(struct block_bytes *to, const char *seed)
{
	cbor_put_text(to, seed, strlen(seed));
}

static void
cbor_put_block(struct block_bytes *to, const struct block_input *block)
{
	cbor_put_head(to, CBOR_ARRAY, 3);
	cbor_put_head(to, CBOR_BYTES, block->parent->size);
	bytes_put(to, block->parent->bytes, block->parent->size);
	cbor_put_head(to, CBOR_ARRAY, block->n);
	for (uint32_t i = 0; i < block->n; i++)
		cbor_put_head(to, CBOR_UINT, block->tokens[i]);
	if (block->extra_text == NULL) {
		bytes_put_u8(to, CBOR_NULL);
		return;
	}
	cbor_put_head(to, CBOR_ARRAY, 1);
	cbor_put_head(to, CBOR_ARRAY, 2);
	cbor_put_text(to, EXTRA_TAG, strlen(EXTRA_TAG));
	cbor_put_text(to, block->extra_text, BLOCK_HASH_EXTRA_TEXT);
}

/*
 * Pickle, protocol 5, as CPython's pickle.dumps() writes it: a frame, and each string, bytes object and tuple is
 * memoized.  Values of fewer than 64 KiB have one frame.
 */

enum pickle_opcode {
	PICKLE_MARK = '(',
	PICKLE_STOP = '.',
	PICKLE_BININT = 'J',
	PICKLE_BININT1 = 'K',
	PICKLE_BININT2 = 'M',
	PICKLE_NONE = 'N',
	PICKLE_SHORT_BINBYTES = 'C',
	PICKLE_TUPLE = 't',
	PICKLE_PROTO = 0x80,
	PICKLE_TUPLE1 = 0x85, /* TUPLE2 and TUPLE3 follow */
	PICKLE_LONG1 = 0x8a,
	PICKLE_SHORT_BINUNICODE = 0x8c,
	PICKLE_MEMOIZE = 0x94,
	PICKLE_FRAME = 0x95,
};
#define PICKLE_PROTOCOL 5
/* Bytes of the protocol and the frame. */
#define PICKLE_HEAD_SIZE (2 + 1 + 8)

static void
pickle_put_string(struct block_bytes *to, enum pickle_opcode opcode, const void *bytes, size_t n)
{
	bytes_put_u8(to, (uint8_t)opcode);
	bytes_put_u8(to, (uint8_t)n);
	bytes_put(to, bytes, n);
	bytes_put_u8(to, PICKLE_MEMOIZE);
}

static void
pickle_put_token(struct block_bytes *to, uint32_t token)
{
	if (token <= UINT8_MAX) {
		bytes_put_u8(to, PICKLE_BININT1);
		bytes_put_little(to, token, 1);
	} else if (token <= UINT16_MAX) {
		bytes_put_u8(to, PICKLE_BININT2);
		bytes_put_little(to, token, 2);
	} else if (token <= INT32_MAX) {
		bytes_put_u8(to, PICKLE_BININT);
		bytes_put_little(to, token, 4);
	} else {
		/* Two's complement, so the fifth byte is the sign. */
		bytes_put_u8(to, PICKLE_LONG1);
		bytes_put_u8(to, 5);
		bytes_put_little(to, token, 5);
	}
}

/* The end of a tuple of 1 to 3 elements, which are before it. */
static void
pickle_put_small_tuple(struct block_bytes *to, uint32_t n)
{
	bytes_put_u8(to, (uint8_t)(PICKLE_TUPLE1 + n - 1));
	bytes_put_u8(to, PICKLE_MEMOIZE);
}

static void
pickle_put_tokens(struct block_bytes *to, const uint32_t *tokens, uint32_t n)
{
	if (n > 3)
		bytes_put_u8(to, PICKLE_MARK);
	for (uint32_t i = 0; i < n; i++)
		pickle_put_token(to, tokens[i]);
	if (n <= 3) {
		pickle_put_small_tuple(to, n);
		return;
	}
	bytes_put_u8(to, PICKLE_TUPLE);
	bytes_put_u8(to, PICKLE_MEMOIZE);
}

static void
pickle_begin(struct block_bytes *to)
{
	to->n = PICKLE_HEAD_SIZE;
}

static void
pickle_end(struct block_bytes *to)
{
	struct block_bytes head = { .n = 0 };

	bytes_put_u8(to, PICKLE_STOP);
	bytes_put_u8(&head, PICKLE_PROTO);
	bytes_put_u8(&head, PICKLE_PROTOCOL);
	bytes_put_u8(&head, PICKLE_FRAME);
	bytes_put_little(&head, to->n - PICKLE_HEAD_SIZE, 8);
	memcpy(to->bytes, head.bytes, PICKLE_HEAD_SIZE);
}

static void
pickle_put_seed(struct block_bytes *to, const char *seed)
{
	pickle_begin(to);
	pickle_put_string(to, PICKLE_SHORT_BINUNICODE, seed, strlen(seed));
	pickle_end(to);
}

static void
pickle_put_block(struct block_bytes *to, const struct block_input *block)
{
	pickle_begin(to);
	pickle_put_string(to, PICKLE_SHORT_BINBYTES, block->parent->bytes, block->parent->size);
	pickle_put_tokens(to, block->tokens, block->n);
	if (block->extra_text == NULL) {
		bytes_put_u8(to, PICKLE_NONE);
	} else {
		pickle_put_string(to, PICKLE_SHORT_BINUNICODE, EXTRA_TAG, strlen(EXTRA_TAG));
		pickle_put_string(to, PICKLE_SHORT_BINUNICODE, block->extra_text, BLOCK_HASH_EXTRA_TEXT);
		pickle_put_small_tuple(to, 2);
		pickle_put_small_tuple(to, 1);
	}
	pickle_put_small_tuple(to, 3);
	pickle_end(to);
}

/*
 * XXH3 with 64 bits: the hash of a block is that of its token ids, little-endian; a rolling hash is that of the one
 * before and the block's, as 8 bytes each, little-endian.
 */

static uint64_t
xxh3_64_tokens(const struct block_input *block, uint64_t seed)
{
	struct block_bytes bytes = { .n = 0 };

	/* As Dynamo derives the seed of a salt. */
	if (block->extra_text != NULL)
		seed += XXH3_64bits_withSeed(block->extra_text, BLOCK_HASH_EXTRA_TEXT, 1);
	for (uint32_t i = 0; i < block->n; i++)
		bytes_put_little(&bytes, block->tokens[i], 4);
	return XXH3_64bits_withSeed(bytes.bytes, bytes.n, seed);
}

static void
xxh3_64_store(uint64_t number, struct block_hash *hash)
{
	struct block_bytes bytes = { .n = 0 };

	bytes_put_big(&bytes, number, 8);
	hash->size = 8;
	memcpy(hash->bytes, bytes.bytes, 8);
}

static void
xxh3_64_next(const struct block_hasher *hasher, const struct block_input *block, struct block_hash *hash)
{
	uint64_t seed = block_hash_integer(&hasher->none), number = xxh3_64_tokens(block, seed);
	struct block_bytes bytes = { .n = 0 };

	if (block->parent != &hasher->none) {
		bytes_put_little(&bytes, block_hash_integer(block->parent), 8);
		bytes_put_little(&bytes, number, 8);
		number = XXH3_64bits_withSeed(bytes.bytes, bytes.n, seed);
	}
	xxh3_64_store(number, hash);
}

/* The seed is a number. */
static const char *
xxh3_64_init(struct block_hasher *hasher, const char *seed)
{
	unsigned long long number = XXH3_64_SEED;
	char *end = NULL;

	errno = 0;
	if (seed != NULL)
		number = strtoull(seed, &end, 10);
	if (seed != NULL && (errno != 0 || end == seed || *end != '\0' || seed[0] == '-'))
		return "the seed of xxh3_64 is a number";
	xxh3_64_store(number, &hasher->none);
	return NULL;
}

/* Algorithms */

struct block_hash_algorithm {
	const char *name;
	/* How what is hashed is serialized; NULL of xxh3_64. */
	void (*put_seed)(struct block_bytes *to, const char *seed);
	void (*put_block)(struct block_bytes *to, const struct block_input *block);
	void (*digest)(const struct block_bytes *from, struct block_hash *hash);
	bool has_default_seed;
};

static void
sha256_digest(const struct block_bytes *from, struct block_hash *hash)
{
	hash->size = crypto_hash_sha256_BYTES;
	crypto_hash_sha256(hash->bytes, from->bytes, from->n);
}

static void
xxh3_digest(const struct block_bytes *from, struct block_hash *hash)
{
	XXH128_canonical_t canonical;

	XXH128_canonicalFromHash(&canonical, XXH3_128bits(from->bytes, from->n));
	hash->size = sizeof(canonical.digest);
	memcpy(hash->bytes, canonical.digest, sizeof(canonical.digest));
}

/* vLLM's default comes first. */
static const struct block_hash_algorithm algorithms[] = {
	{ "sha256", pickle_put_seed, pickle_put_block, sha256_digest, true },
	{ "sha256_cbor", cbor_put_seed, cbor_put_block, sha256_digest, true },
	{ "xxhash", pickle_put_seed, pickle_put_block, xxh3_digest, false },
	{ "xxhash_cbor", cbor_put_seed, cbor_put_block, xxh3_digest, false },
	{ .name = "xxh3_64" },
};
const char block_hash_names[] = "sha256, sha256_cbor, xxhash, xxhash_cbor, xxh3_64";

const char *
block_hasher_init(struct block_hasher *hasher, const char *name, const char *seed)
{
	struct block_bytes bytes = { .n = 0 };

	hasher->algorithm = NULL;
	for (size_t i = 0; i < sizeof(algorithms) / sizeof(algorithms[0]); i++)
		if (strcmp(algorithms[i].name, name) == 0)
			hasher->algorithm = &algorithms[i];
	if (hasher->algorithm == NULL)
		return "no such algorithm";
	if (hasher->algorithm->digest == NULL)
		return xxh3_64_init(hasher, seed);
	if (seed == NULL && !hasher->algorithm->has_default_seed)
		return "each process of vLLM has a random seed, unless PYTHONHASHSEED is set: pass that";
	if (seed == NULL)
		seed = DEFAULT_SEED;
	if (strlen(seed) > BLOCK_HASH_MAX_SEED)
		return "the seed has more than 255 bytes";
	hasher->algorithm->put_seed(&bytes, seed);
	hasher->algorithm->digest(&bytes, &hasher->none);
	return NULL;
}

void
block_hash_next(const struct block_hasher *hasher, const struct block_hash *parent, const uint32_t *tokens, uint32_t n,
		const uint8_t *extra, struct block_hash *hash)
{
	char text[BLOCK_HASH_EXTRA_TEXT];
	struct block_input block = { .parent = parent != NULL ? parent : &hasher->none, .tokens = tokens, .n = n };
	struct block_bytes bytes = { .n = 0 };

	assert(n >= 1 && n <= PAGED_MAX_PAGE_SIZE);
	if (extra != NULL) {
		block_hash_extra_text(extra, text);
		block.extra_text = text;
	}
	if (hasher->algorithm->digest == NULL) {
		xxh3_64_next(hasher, &block, hash);
		return;
	}
	hasher->algorithm->put_block(&bytes, &block);
	hasher->algorithm->digest(&bytes, hash);
}

void
block_hash_extra_text(const uint8_t *extra, char text[BLOCK_HASH_EXTRA_TEXT])
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < PAGED_DIGEST_SIZE; i++) {
		text[2 * i] = digits[extra[i] >> 4];
		text[2 * i + 1] = digits[extra[i] & 15];
	}
}

uint64_t
block_hash_integer(const struct block_hash *hash)
{
	uint64_t number = 0;

	for (size_t i = hash->size - sizeof(number); i < hash->size; i++)
		number = number << 8 | hash->bytes[i];
	return number;
}

bool
block_hash_equal(const struct block_hash *a, const struct block_hash *b)
{
	return a->size == b->size && memcmp(a->bytes, b->bytes, a->size) == 0;
}
