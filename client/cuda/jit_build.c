/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/cuda/jit_build.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "kernels/cuda/host/images.h"
#include "kernels/cuda/host/aot.h"
#include "kernels/cuda/host/sources.h"

/* Part of the keys; increase it when jit.c compiles the same sources to different code. */
#define JIT_REVISION "2"

static void __attribute__((format(printf, 3, 4)))
jit_builder_log(const struct jit_builder *builder, enum paged_log_level level, const char *format, ...)
{
	char text[512];
	va_list values;

	va_start(values, format);
	vsnprintf(text, sizeof(text), format, values);
	va_end(values);
	builder->params.log(builder->params.log_argument, level, text);
}

static struct jit_key_part
jit_key_text(const char *text)
{
	return (struct jit_key_part){ text, strlen(text) };
}

/* Once, because the sources are a hundred kilobytes and never change.  Each source is hashed with the key so far. */
static void
jit_build_hash_sources(struct jit_builder *builder)
{
	if (builder->sources_known)
		return;
	for (const struct cuda_source *source = cuda_sources; source->name != NULL; source++) {
		const struct jit_key_part parts[] = {
			{ builder->sources.bytes, sizeof(builder->sources.bytes) },
			jit_key_text(source->name),
			jit_key_text(source->text),
		};

		builder->sources = jit_key_make(parts, sizeof(parts) / sizeof(parts[0]));
	}
	builder->sources_known = true;
}

static struct jit_key
jit_build_key(struct jit_builder *builder, const struct jit_request *request)
{
	char capability[16] = "";
	const struct jit_key_part parts[] = {
		jit_key_text(JIT_REVISION),    { builder->sources.bytes, sizeof(builder->sources.bytes) },
		jit_key_text(request->source), jit_key_text(request->kernel),
		jit_key_text(request->mods),   { capability, sizeof(capability) },
	};

	jit_build_hash_sources(builder);
	snprintf(capability, sizeof(capability), "%d%s", request->capability, request->arch_specific ? "a" : "");
	return jit_key_make(parts, sizeof(parts) / sizeof(parts[0]));
}

/* Open the cache at the first call; if that fails, later calls do not try again. */
static void
jit_build_open_cache(struct jit_builder *builder)
{
	char path[PATH_MAX] = "";
	enum paged_status status = PAGED_OK;
	struct paged_error error;

	if (builder->cache_asked)
		return;
	builder->cache_asked = true;
	if (builder->params.cache_path != NULL)
		snprintf(path, sizeof(path), "%s", builder->params.cache_path);
	else
		status = jit_cache_path(path, sizeof(path), &error);
	if (status == PAGED_OK && path[0] != '\0')
		status = jit_cache_open(path, 0, &builder->cache, &error);
	if (status != PAGED_OK)
		jit_builder_log(builder, PAGED_LOG_WARNING, "%s; compiled mods are not kept", error.text);
}

static bool
jit_build_find_aot(struct jit_builder *builder, const struct jit_request *request, struct jit_built *made)
{
	const struct cuda_aot *aot;
	const struct cuda_image *image;
	size_t size;

	if (atomic_load(&builder->aot_refused))
		return false;
	aot = cuda_aot_find(request->source, request->kernel, request->mods);
	if (aot == NULL)
		return false;
	image = cuda_image_find(aot->image, request->capability / 10, request->capability % 10);
	if (image == NULL)
		return false;
	/* Copied, because images of every origin are freed.  Includes the terminating zero of PTX. */
	size = (size_t)(image->end - image->data);
	made->image = (struct cuda_jit_image){ malloc(size + 1), size };
	if (made->image.bytes == NULL)
		return false;
	memcpy(made->image.bytes, image->data, size + 1);
	made->origin = JIT_AOT;
	snprintf(made->kernel, sizeof(made->kernel), "%s_%s", request->kernel, aot->name);
	jit_builder_log(builder, PAGED_LOG_DEBUG, "%s is built in", made->kernel);
	return true;
}

/* Read the code from the cache; the logged time includes making the key. */
static bool
jit_build_read_cache(struct jit_builder *builder, const struct jit_request *request, struct jit_built *made)
{
	uint64_t begin_us = clock_us();
	struct paged_error trouble;
	enum paged_status status;

	jit_build_open_cache(builder);
	made->key = jit_build_key(builder, request);
	status = jit_cache_get(builder->cache, &made->key, &made->image.bytes, &made->image.size, &trouble);
	if (status == PAGED_OK) {
		made->origin = JIT_CACHED;
		jit_builder_log(builder, PAGED_LOG_DEBUG, "%s for %d.%d, %zu bytes, read from disk in %.2f ms",
				request->kernel, request->capability / 10, request->capability % 10, made->image.size,
				(double)(clock_us() - begin_us) / 1e3);
	} else if (status != PAGED_ERR_NOENT) {
		jit_builder_log(builder, PAGED_LOG_WARNING, "%s", trouble.text);
	}
	return status == PAGED_OK;
}

static enum paged_status
jit_build_compile(struct jit_builder *builder, const struct jit_request *request, struct cuda_jit_image *image,
		  struct paged_error *error)
{
	const struct jit_store_params *params = &builder->params;
	enum paged_status status = PAGED_OK;
	uint64_t begin_us;

	if (!builder->compiler_open)
		status = params->compiler->open(params->argument, builder->version, sizeof(builder->version), error);
	if (status != PAGED_OK)
		return status;
	builder->compiler_open = true;
	begin_us = clock_us();
	status = params->compiler->compile(params->argument, request, image, error);
	if (status == PAGED_OK)
		jit_builder_log(builder, PAGED_LOG_INFO, "%s compiled for %d.%d by %s in %.0f ms", request->kernel,
				request->capability / 10, request->capability % 10, builder->version,
				(double)(clock_us() - begin_us) / 1e3);
	return status;
}

enum paged_status
jit_build(struct jit_builder *builder, const struct jit_request *request, struct jit_built *made_p,
	  struct paged_error *error)
{
	struct jit_built made = { .origin = JIT_COMPILED };
	struct paged_error trouble;
	enum paged_status status;

	snprintf(made.kernel, sizeof(made.kernel), "%s", request->kernel);
	if (jit_build_find_aot(builder, request, &made) || jit_build_read_cache(builder, request, &made)) {
		*made_p = made;
		return PAGED_OK;
	}
	status = jit_build_compile(builder, request, &made.image, error);
	if (status != PAGED_OK)
		return status;
	if (builder->cache != NULL && jit_cache_put(builder->cache, &made.key, builder->version, made.image.bytes,
						    made.image.size, &trouble) != PAGED_OK)
		jit_builder_log(builder, PAGED_LOG_WARNING, "%s", trouble.text);
	*made_p = made;
	return PAGED_OK;
}

bool
jit_builder_refuse(struct jit_builder *builder, const struct jit_built *made)
{
	if (made->origin == JIT_AOT)
		atomic_store(&builder->aot_refused, true);
	else if (made->origin == JIT_CACHED)
		jit_cache_remove(builder->cache, &made->key);
	return made->origin != JIT_COMPILED;
}

void
jit_builder_close(struct jit_builder *builder)
{
	jit_cache_close(builder->cache);
	if (builder->compiler_open)
		builder->params.compiler->close(builder->params.argument);
}
