/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/cuda/jit_build.h"

#include <assert.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "kernels/cuda/images.h"
#include "kernels/cuda/aot.h"
#include "kernels/cuda/sources.h"

/* Part of the keys; increase it when compile.c compiles the same sources to different code. */
#define CODE_REVISION "2"

static void __attribute__((format(printf, 3, 4)))
maker_log(const struct code_maker *maker, enum paged_log_level level, const char *format, ...)
{
	char text[512];
	va_list values;

	va_start(values, format);
	vsnprintf(text, sizeof(text), format, values);
	va_end(values);
	maker->params.log(maker->params.log_argument, level, text);
}

static struct code_key_part
part_of(const char *text)
{
	return (struct code_key_part){ text, strlen(text) };
}

static struct code_key
key_of(struct code_maker *maker, const struct code_request *request)
{
	struct code_key_part sources[64];
	char capability[16] = "";
	const struct code_key_part parts[] = {
		part_of(CODE_REVISION),   { maker->sources.bytes, sizeof(maker->sources.bytes) },
		part_of(request->source), part_of(request->kernel),
		part_of(request->mods),   { capability, sizeof(capability) },
	};
	size_t n = 0;

	/* Hashed once, because the sources are a hundred kilobytes and never change. */
	for (const struct cuda_source *source = cuda_sources; !maker->sources_known && source->name != NULL; source++) {
		assert(n + 2 <= sizeof(sources) / sizeof(sources[0]));
		sources[n++] = part_of(source->name);
		sources[n++] = part_of(source->text);
	}
	if (!maker->sources_known)
		maker->sources = code_key_make(sources, n);
	maker->sources_known = true;
	snprintf(capability, sizeof(capability), "%d", request->capability);
	return code_key_make(parts, sizeof(parts) / sizeof(parts[0]));
}

/* Open the cache at the first call; if that fails, later calls do not try again. */
static void
cache_find(struct code_maker *maker)
{
	char path[PATH_MAX] = "";
	enum paged_status status = PAGED_OK;
	struct paged_error error;

	if (maker->cache_asked)
		return;
	maker->cache_asked = true;
	if (maker->params.cache_path != NULL)
		snprintf(path, sizeof(path), "%s", maker->params.cache_path);
	else
		status = code_cache_path(path, sizeof(path), &error);
	if (status == PAGED_OK && path[0] != '\0')
		status = code_cache_open(path, 0, &maker->cache, &error);
	if (status != PAGED_OK)
		maker_log(maker, PAGED_LOG_WARNING, "%s; compiled mods are not kept", error.text);
}

static bool
ready_find(struct code_maker *maker, const struct code_request *request, struct code_made *made)
{
	const struct cuda_aot *aot;
	const struct cuda_image *image;
	size_t size;

	if (atomic_load(&maker->ready_refused))
		return false;
	aot = cuda_aot_find(request->source, request->kernel, request->mods);
	if (aot == NULL)
		return false;
	image = cuda_image_find(aot->image, request->capability / 10, request->capability % 10);
	if (image == NULL)
		return false;
	/* Copied, because images of every origin are freed.  Includes the terminating zero of PTX. */
	size = (size_t)(image->end - image->data);
	made->image = (struct cuda_compiled){ malloc(size + 1), size };
	if (made->image.bytes == NULL)
		return false;
	memcpy(made->image.bytes, image->data, size + 1);
	made->origin = CODE_BUILT_IN;
	snprintf(made->kernel, sizeof(made->kernel), "%s_%s", request->kernel, aot->name);
	maker_log(maker, PAGED_LOG_DEBUG, "%s is built in", made->kernel);
	return true;
}

/* Read the code from the cache; the logged time includes making the key. */
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
		maker_log(maker, PAGED_LOG_DEBUG, "%s for %d.%d, %zu bytes, read from disk in %.2f ms", request->kernel,
			  request->capability / 10, request->capability % 10, made->image.size,
			  (double)(clock_us() - begin_us) / 1e3);
	} else if (status != PAGED_ERR_NOENT) {
		maker_log(maker, PAGED_LOG_WARNING, "%s", trouble.text);
	}
	return status == PAGED_OK;
}

static enum paged_status
compile(struct code_maker *maker, const struct code_request *request, struct cuda_compiled *image,
	struct paged_error *error)
{
	const struct code_store_params *params = &maker->params;
	enum paged_status status = PAGED_OK;
	uint64_t begin_us;

	if (!maker->compiler_open)
		status = params->compiler->open(params->argument, maker->version, sizeof(maker->version), error);
	if (status != PAGED_OK)
		return status;
	maker->compiler_open = true;
	begin_us = clock_us();
	status = params->compiler->compile(params->argument, request, image, error);
	if (status == PAGED_OK)
		maker_log(maker, PAGED_LOG_INFO, "%s compiled for %d.%d by %s in %.0f ms", request->kernel,
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
	status = compile(maker, request, &made.image, error);
	if (status != PAGED_OK)
		return status;
	if (maker->cache != NULL && code_cache_put(maker->cache, &made.key, maker->version, made.image.bytes,
						   made.image.size, &trouble) != PAGED_OK)
		maker_log(maker, PAGED_LOG_WARNING, "%s", trouble.text);
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
		maker->params.compiler->close(maker->params.argument);
}
