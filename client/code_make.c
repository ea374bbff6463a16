/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/code_make.h"

#include <assert.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "kernels/cuda/images.h"
#include "kernels/cuda/ready.h"
#include "kernels/cuda/sources.h"

/* Part of the keys: to be raised when compile.c does otherwise with the same sources. */
#define CODE_REVISION "2"

static void __attribute__((format(printf, 3, 4)))
maker_log(const struct code_maker *maker, enum code_log_level level, const char *format, ...)
{
	char text[512];
	va_list values;

	va_start(values, format);
	vsnprintf(text, sizeof(text), format, values);
	va_end(values);
	maker->log(maker->log_argument, level, text);
}

static struct code_key_part
part_of(const char *text)
{
	return (struct code_key_part){ text, strlen(text) };
}

/* Once: they are a hundred kilobytes and never change. */
static const struct code_key *
sources_key(struct code_maker *maker)
{
	struct code_key_part parts[64];
	size_t n = 0;

	if (maker->sources_known)
		return &maker->sources;
	for (const struct cuda_source *source = cuda_sources; source->name != NULL; source++) {
		assert(n + 2 <= sizeof(parts) / sizeof(parts[0]));
		parts[n++] = part_of(source->name);
		parts[n++] = part_of(source->text);
	}
	maker->sources = code_key_make(parts, n);
	maker->sources_known = true;
	return &maker->sources;
}

static struct code_key
key_of(struct code_maker *maker, const struct code_request *request)
{
	const struct code_key *sources = sources_key(maker);
	char capability[16];
	const struct code_key_part parts[] = {
		part_of(CODE_REVISION),   { sources->bytes, sizeof(sources->bytes) },
		part_of(request->source), part_of(request->kernel),
		part_of(request->mods),   { capability, sizeof(capability) },
	};

	memset(capability, 0, sizeof(capability));
	snprintf(capability, sizeof(capability), "%d", request->capability);
	return code_key_make(parts, sizeof(parts) / sizeof(parts[0]));
}

/* Once: a cache that is not there now is not looked for again. */
static void
cache_find(struct code_maker *maker)
{
	char path[PATH_MAX] = "";
	enum paged_status status = PAGED_OK;
	struct paged_error error;

	if (maker->cache_asked)
		return;
	maker->cache_asked = true;
	if (maker->cache_path != NULL)
		snprintf(path, sizeof(path), "%s", maker->cache_path);
	else
		status = code_cache_path(path, sizeof(path), &error);
	if (status == PAGED_OK && path[0] != '\0')
		status = code_cache_open(path, 0, &maker->cache, &error);
	if (status != PAGED_OK)
		maker_log(maker, CODE_LOG_WARNING, "%s; compiled mods are not kept", error.text);
}

static enum paged_status
compiler_find(struct code_maker *maker, struct paged_error *error)
{
	enum paged_status status;

	if (maker->compiler_open)
		return PAGED_OK;
	status = maker->compiler->open(maker->argument, maker->version, sizeof(maker->version), error);
	maker->compiler_open = status == PAGED_OK;
	return status;
}

/* A copy, freed as those are that the other places give. */
static bool
image_copy(const struct cuda_image *image, struct cuda_compiled *copy)
{
	size_t size = (size_t)(image->end - image->data);
	char *bytes = malloc(size + 1);

	if (bytes == NULL)
		return false;
	/* PTX ends with a 0. */
	memcpy(bytes, image->data, size + 1);
	*copy = (struct cuda_compiled){ bytes, size };
	return true;
}

static bool
ready_find(struct code_maker *maker, const struct code_request *request, struct code_made *made)
{
	const struct cuda_ready *ready;
	const struct cuda_image *image;

	if (atomic_load(&maker->ready_refused))
		return false;
	ready = cuda_ready_find(request->source, request->kernel, request->mods);
	if (ready == NULL)
		return false;
	image = cuda_image_find(ready->image, request->capability / 10, request->capability % 10);
	if (image == NULL || !image_copy(image, &made->image))
		return false;
	made->origin = CODE_BUILT_IN;
	snprintf(made->kernel, sizeof(made->kernel), "%s_%s", request->kernel, ready->name);
	maker_log(maker, CODE_LOG_DEBUG, "%s is built in", made->kernel);
	return true;
}

/* All that it takes, the key too. */
static bool
disk_read(struct code_maker *maker, const struct code_request *request, struct code_made *made)
{
	uint64_t begin_us = clock_us();
	struct paged_error trouble;
	enum paged_status status;

	cache_find(maker);
	made->key = key_of(maker, request);
	status = code_cache_get(maker->cache, &made->key, &made->image.bytes, &made->image.size, &trouble);
	if (status == PAGED_OK) {
		made->origin = CODE_FROM_DISK;
		maker_log(maker, CODE_LOG_DEBUG, "%s for %d.%d, %zu bytes, read from disk in %.2f ms", request->kernel,
			  request->capability / 10, request->capability % 10, made->image.size,
			  (double)(clock_us() - begin_us) / 1e3);
	} else if (status != PAGED_ERR_NOENT) {
		maker_log(maker, CODE_LOG_WARNING, "%s", trouble.text);
	}
	return status == PAGED_OK;
}

static enum paged_status
compile(struct code_maker *maker, const struct code_request *request, struct cuda_compiled *image,
	struct paged_error *error)
{
	uint64_t begin_us = clock_us();
	enum paged_status status = maker->compiler->compile(maker->argument, request, image, error);

	if (status == PAGED_OK)
		maker_log(maker, CODE_LOG_INFO, "%s compiled for %d.%d by %s in %.0f ms", request->kernel,
			  request->capability / 10, request->capability % 10, maker->version,
			  (double)(clock_us() - begin_us) / 1e3);
	return status;
}

enum paged_status
code_make(struct code_maker *maker, const struct code_request *request, struct code_made *made_p,
	  struct paged_error *error)
{
	struct code_made made = { .origin = CODE_COMPILED };
	struct paged_error trouble;
	enum paged_status status;

	snprintf(made.kernel, sizeof(made.kernel), "%s", request->kernel);
	if (ready_find(maker, request, &made) || disk_read(maker, request, &made)) {
		*made_p = made;
		return PAGED_OK;
	}
	status = compiler_find(maker, error);
	if (status == PAGED_OK)
		status = compile(maker, request, &made.image, error);
	if (status != PAGED_OK)
		return status;
	if (maker->cache != NULL && code_cache_put(maker->cache, &made.key, maker->version, made.image.bytes,
						   made.image.size, &trouble) != PAGED_OK)
		maker_log(maker, CODE_LOG_WARNING, "%s", trouble.text);
	*made_p = made;
	return PAGED_OK;
}

bool
code_maker_refuse(struct code_maker *maker, const struct code_made *made)
{
	if (made->origin == CODE_BUILT_IN)
		atomic_store(&maker->ready_refused, true);
	else if (made->origin == CODE_FROM_DISK)
		code_cache_remove(maker->cache, &made->key);
	return made->origin != CODE_COMPILED;
}

void
code_maker_close(struct code_maker *maker)
{
	code_cache_close(maker->cache);
	if (maker->compiler_open)
		maker->compiler->close(maker->argument);
}
