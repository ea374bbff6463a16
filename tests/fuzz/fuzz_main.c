/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the seeds and mutations of them, without libFuzzer. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

#define MAX_SIZE (70u << 10) /* a little above the largest message */

/* On the heap, so that a sanitizer detects a read past the end. */
static void
fuzz_run(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size > 0 ? size : 1);

	if (copy == NULL)
		abort();
	memcpy(copy, data, size);
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
}

/* One to four changes: a byte, a bit, a removed part, a repeated part, a truncation. */
static size_t
fuzz_mutate(uint8_t *data, size_t size)
{
	for (long n = random() % 4; n >= 0 && size > 0; n--) {
		size_t at = (size_t)random() % size, length = (size_t)random() % (size - at) % 16 + 1;

		switch (random() % 5) {
		case 0:
			data[at] = (uint8_t)random();
			break;
		case 1:
			data[at] ^= (uint8_t)(1 << random() % 8);
			break;
		case 2:
			memmove(data + at, data + at + length, size - at - length);
			size -= length;
			break;
		case 3:
			if (size + length > MAX_SIZE)
				break;
			memmove(data + at + length, data + at, size - at);
			size += length;
			break;
		default:
			size = at;
			break;
		}
	}
	return size;
}

static void
fuzz_write(const char *dir, const char *kind, size_t index, const uint8_t *data, size_t size)
{
	char path[4096];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s-%02zu", dir, kind, index);
	file = fopen(path, "wb");
	if (file == NULL || fwrite(data, 1, size, file) != size || fclose(file) != 0) {
		perror(path);
		exit(1);
	}
}

/* Reads a line of hexadecimal digits; returns its number of bytes. */
static size_t
fuzz_line_read(const char *line, uint8_t *data)
{
	unsigned int byte;
	size_t n = 0;

	while (n < MAX_SIZE && sscanf(line + 2 * n, "%2x", &byte) == 1)
		data[n++] = (uint8_t)byte;
	return n;
}

/* Runs the inputs of tests/fuzz/seeds/NAME, or writes them to a directory; returns their number. */
static size_t
fuzz_kept(const char *dir)
{
	const char *source = getenv("PAGED_SRCDIR");
	static uint8_t data[MAX_SIZE];
	size_t room = 0, size, n = 0;
	char path[4096], *line = NULL;
	FILE *file;

	snprintf(path, sizeof(path), "%s/tests/fuzz/seeds/%s", source != NULL ? source : ".", fuzz_name);
	file = fopen(path, "r");
	if (file == NULL) {
		perror(path);
		exit(1);
	}
	for (; getline(&line, &room, file) > 0; n++) {
		size = fuzz_line_read(line, data);
		if (dir != NULL)
			fuzz_write(dir, "kept", n, data, size);
		else
			fuzz_run(data, size);
	}
	free(line);
	fclose(file);
	return n;
}

int
main(int argc, char **argv)
{
	static uint8_t seed[MAX_SIZE], data[MAX_SIZE];
	size_t index, size, n_kept;

	if (argc == 3 && strcmp(argv[1], "--write") == 0) {
		for (index = 0; (size = fuzz_seed(index, seed, sizeof(seed))) > 0; index++)
			fuzz_write(argv[2], "seed", index, seed, size);
		fuzz_kept(argv[2]);
		return 0;
	}
	srandom(20261121);
	fuzz_run(seed, 0);
	n_kept = fuzz_kept(NULL);
	for (index = 0; (size = fuzz_seed(index, seed, sizeof(seed))) > 0; index++) {
		fuzz_run(seed, size);
		for (unsigned int i = 0; i < fuzz_mutations; i++) {
			memcpy(data, seed, size);
			fuzz_run(data, fuzz_mutate(data, size));
		}
	}
	printf("1..1\nok 1 - %zu kept inputs, %zu seeds, %u mutations of each\n", n_kept, index, fuzz_mutations);
	return 0;
}
