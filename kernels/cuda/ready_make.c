/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ready_make FOLDER - a .cu file there for each row of ready_list.h, by the
 * same functions that attention's source comes from at run time.  A file
 * that would not change is let be: nvcc takes half a minute for each.
 */
#include "config.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/ready.h"

/* It includes itself: attention.h asks for the mods where they belong. */
static char *
file_text(const struct cuda_ready *ready, const char *mods)
{
	size_t size;
	char *text = NULL;
	FILE *to = open_memstream(&text, &size);

	if (to == NULL)
		return NULL;
	fprintf(to,
		"/* Made by ready_make. */\n"
		"#ifndef ATTENTION_MOD\n"
		"#define ATTENTION_MOD \"kernels/cuda/%s.cu\"\n"
		"#define ATTENTION_SUFFIX _%s\n"
		"#ifndef ATTENTION_ONE\n"
		"#define ATTENTION_ONE\n",
		ready->image, ready->name);
	for (const char *const *kernel = cuda_ready_kernels; *kernel != NULL; kernel++)
		fprintf(to, "#define ATTENTION_ONLY_%s 1\n", *kernel);
	fprintf(to,
		"#endif\n"
		"#include \"kernels/cuda/" CUDA_READY_SOURCE ".cu\"\n"
		"#else\n"
		"%s"
		"#endif\n",
		mods);
	if (fclose(to) == 0)
		return text;
	free(text);
	return NULL;
}

static bool
is_there(const char *path, const char *text)
{
	FILE *file = fopen(path, "re");
	bool same = file != NULL;

	for (; same && *text != '\0'; text++)
		same = getc(file) == (unsigned char)*text;
	same = same && getc(file) == EOF;
	if (file != NULL)
		fclose(file);
	return same;
}

static bool
file_write(const char *folder, const struct cuda_ready *ready, const char *text)
{
	char path[4096];
	FILE *file;
	bool good;

	snprintf(path, sizeof(path), "%s/%s.cu", folder, ready->image);
	if (is_there(path, text))
		return true;
	file = fopen(path, "we");
	good = file != NULL && fputs(text, file) >= 0;
	good = file != NULL && fclose(file) == 0 && good;
	if (!good)
		fprintf(stderr, "ready_make: %s: %m\n", path);
	return good;
}

static bool
row_write(const char *folder, const struct cuda_ready *ready)
{
	struct paged_error error;
	char *mods, *text;
	bool good;

	if (cuda_ready_source(ready, &mods, &error) != PAGED_OK) {
		fprintf(stderr, "ready_make: %s: %s\n", ready->name, error.text);
		return false;
	}
	text = file_text(ready, mods);
	good = text != NULL && file_write(folder, ready, text);
	free(text);
	free(mods);
	return good;
}

int
main(int argc, char **argv)
{
	bool good = argc == 2;

	for (size_t i = 0; good && cuda_ready_at(i) != NULL; i++)
		good = row_write(argv[1], cuda_ready_at(i));
	return good ? 0 : 1;
}
