/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes of blocks, compared with those that vLLM's own functions compute (tests/golden/block_hashes). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "events/block_hash.h"

struct golden_line {
	char algorithm[16], seed[32], begins[8], extra[80], tokens[2048], hash[80];
};

static bool
golden_read(FILE *file, struct golden_line *line)
{
	return fscanf(file, "%15s %31s %7s %79s %2047s %79s", line->algorithm, line->seed, line->begins, line->extra,
		      line->tokens, line->hash) == 6;
}

static void
hex_parse(const char *text, uint8_t *bytes, size_t n)
{
	unsigned int byte;

	for (size_t i = 0; i < n; i++) {
		cr_assert_eq(sscanf(text + 2 * i, "%2x", &byte), 1);
		bytes[i] = (uint8_t)byte;
	}
}

static uint32_t
tokens_parse(char *text, uint32_t *tokens)
{
	uint32_t n = 0;

	for (char *word = strtok(text, ","); word != NULL; word = strtok(NULL, ",")) {
		cr_assert_lt(n, PAGED_MAX_PAGE_SIZE);
		tokens[n++] = (uint32_t)strtoul(word, NULL, 10);
	}
	return n;
}

static void
hasher_open(struct block_hasher *hasher, struct golden_line *line)
{
	const char *problem;

	for (char *c = line->seed; *c != '\0'; c++)
		*c = *c == '_' ? ' ' : *c;
	problem = block_hasher_init(hasher, line->algorithm, strcmp(line->seed, "-") == 0 ? NULL : line->seed);
	cr_assert_null(problem, "%s", problem);
}

Test(block_hash, are_those_of_vllm)
{
	uint32_t tokens[PAGED_MAX_PAGE_SIZE], n_lines = 0;
	struct block_hash hash = { 0 };
	struct block_hasher hasher;
	struct golden_line line;
	uint8_t extra[PAGED_DIGEST_SIZE], expected[BLOCK_HASH_MAX_SIZE];
	char path[512];
	FILE *file;

	snprintf(path, sizeof(path), "%s/tests/golden/block_hashes/block_hashes.txt", getenv("PAGED_SRCDIR"));
	file = fopen(path, "r");
	cr_assert_not_null(file, "%s", path);
	for (; golden_read(file, &line); n_lines++) {
		struct block_hash parent = hash;
		bool first = strcmp(line.begins, "first") == 0, has_extra = strcmp(line.extra, "-") != 0;
		uint32_t n = tokens_parse(line.tokens, tokens);

		hasher_open(&hasher, &line);
		if (has_extra)
			hex_parse(line.extra, extra, sizeof(extra));
		block_hash_next(&hasher, first ? NULL : &parent, tokens, n, has_extra ? extra : NULL, &hash);
		cr_assert_eq(strlen(line.hash), 2 * hash.size);
		hex_parse(line.hash, expected, hash.size);
		cr_assert_eq(memcmp(hash.bytes, expected, hash.size), 0, "%s, seed %s: %u tokens", line.algorithm,
			     line.seed, n);
	}
	cr_assert(feof(file));
	cr_assert_eq(n_lines, 100);
	fclose(file);
}

/* Values of the Python package xxhash, by the formulas of RFC 1527. */
Test(block_hash, xxh3_64)
{
	static const uint32_t tokens[3][4] = { { 1, 2, 3, 4 }, { 5, 6, 7, 8 }, { 4000000000, 0, 65536, 255 } };
	static const uint64_t rolling[3] = { 0xcb38e4d7fb2dca5c, 0x44a2b2379d6d3c3d, 0x590c0865a92e0ee1 };
	struct block_hasher hasher;
	struct block_hash hash[3];
	uint8_t extra[PAGED_DIGEST_SIZE];

	cr_assert_null(block_hasher_init(&hasher, "xxh3_64", NULL));
	for (int i = 0; i < 3; i++) {
		block_hash_next(&hasher, i > 0 ? &hash[i - 1] : NULL, tokens[i], 4, NULL, &hash[i]);
		cr_assert_eq(hash[i].size, 8);
		cr_assert_eq(block_hash_integer(&hash[i]), rolling[i]);
	}
	memset(extra, 0xab, sizeof(extra));
	block_hash_next(&hasher, NULL, tokens[0], 4, extra, &hash[0]);
	cr_assert_eq(block_hash_integer(&hash[0]), 0x80af5b22326f5c6c);
	block_hash_next(&hasher, &hash[0], tokens[1], 4, NULL, &hash[1]);
	cr_assert_eq(block_hash_integer(&hash[1]), 0x12d0080d209186b6);
	cr_assert_null(block_hasher_init(&hasher, "xxh3_64", "42"));
	block_hash_next(&hasher, NULL, tokens[0], 4, NULL, &hash[0]);
	cr_assert_eq(block_hash_integer(&hash[0]), 0xcabc6cf291a3ba46);
	cr_assert_not_null(block_hasher_init(&hasher, "xxh3_64", "0x7"));
	cr_assert_not_null(block_hasher_init(&hasher, "xxh3_64", "-7"));
	cr_assert_not_null(block_hasher_init(&hasher, "xxh3_64", ""));
}

Test(block_hash, refusals)
{
	struct block_hasher hasher;
	char seed[BLOCK_HASH_MAX_SEED + 2] = { 0 };

	cr_assert_not_null(block_hasher_init(&hasher, "md5", NULL));
	cr_assert_not_null(block_hasher_init(&hasher, "xxhash", NULL));
	cr_assert_not_null(block_hasher_init(&hasher, "xxhash_cbor", NULL));
	memset(seed, 's', BLOCK_HASH_MAX_SEED);
	cr_assert_null(block_hasher_init(&hasher, "sha256", seed));
	seed[BLOCK_HASH_MAX_SEED] = 's';
	cr_assert_not_null(block_hasher_init(&hasher, "sha256", seed));
}

Test(block_hash, integers_are_the_last_64_bits)
{
	struct block_hash hash = { .size = 16 };

	for (uint8_t i = 0; i < 16; i++)
		hash.bytes[i] = i;
	cr_assert_eq(block_hash_integer(&hash), 0x08090a0b0c0d0e0f);
	hash.size = 32;
	hash.bytes[24] = 0xff;
	hash.bytes[31] = 1;
	cr_assert_eq(block_hash_integer(&hash), 0xff00000000000001);
}
