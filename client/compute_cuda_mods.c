/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/compute_cuda_mods.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "client/code.h"
#include "client/compute_cuda.h"
#include "client/map_cuda.h"
#include "kernels/mod/source.h"

struct cuda_compiler {
	struct code_store *store;
	struct cuda_nvrtc nvrtc;
};

/** Attention for queries of one dtype, with the mods in it. */
struct cuda_modded {
	struct code *code;  /* NULL: not asked for */
	cuda_module module; /* NULL: not loaded */
	struct cuda_kernel kernel;
};

struct cuda_mods {
	char *source;
	struct cuda_modded modded[PAGED_BF16 + 1]; /* by enum paged_dtype of the queries */
	cuda_address args;                         /* struct cuda_mod_args, and behind it */
	cuda_address range;                        /* struct cuda_mod_range */
	bool written;                              /* what is bound is there, or on its way */
};

/* Compiling */

static enum paged_status
compiler_open(struct paged_client *client, struct paged_error *error)
{
	struct cuda_compiler *compiler;
	enum paged_status status;

	if (client->compiler != NULL)
		return PAGED_OK;
	compiler = calloc(1, sizeof(*compiler));
	if (compiler == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for compiled mods");
	status = code_store_create(&(struct code_store_params){ .compiler = &code_compiler_nvrtc,
								.argument = &compiler->nvrtc,
								.log = client->owner->log,
								.log_argument = client->owner->log_argument },
				   &compiler->store, error);
	if (status != PAGED_OK) {
		free(compiler);
		return status;
	}
	client->compiler = compiler;
	return PAGED_OK;
}

void
cuda_compiler_free(struct cuda_compiler *compiler, bool in_child)
{
	if (compiler == NULL)
		return;
	code_store_destroy(compiler->store, in_child);
	free(compiler);
}

static enum paged_status
code_ask(struct paged_mods *mods, enum paged_dtype q, struct paged_error *error)
{
	const struct paged_pool *pool = mods->batch->pool;
	const struct cuda_gpu *gpu = map_cuda_gpu(&pool->at);
	const struct cuda_attention *attention = &pool->kernels->attention[q];
	struct cuda_mods *device = mods->device;
	const struct code_request request = {
		.source = attention->source,
		.kernel = attention->kernel.name,
		.mods = device->source,
		.capability = 10 * cuda_gpu_attribute(gpu, CUDA_DEVICE_COMPUTE_MAJOR) +
			      cuda_gpu_attribute(gpu, CUDA_DEVICE_COMPUTE_MINOR),
	};

	assert(paged_dtype_is_tensor(q));
	if (device->modded[q].code != NULL)
		return PAGED_OK;
	return code_prepare(pool->client->compiler->store, &request, &device->modded[q].code, error);
}

static void
code_drop(struct cuda_modded *modded)
{
	code_release(modded->code);
	modded->code = NULL;
}

static enum paged_status
code_take(struct paged_mods *mods, enum paged_dtype q, int timeout_ms, struct paged_error *error)
{
	struct code_store *store = mods->batch->pool->client->compiler->store;
	enum paged_status status = code_ask(mods, q, error);
	struct cuda_modded *modded = &mods->device->modded[q];

	if (status != PAGED_OK)
		return status;
	status = code_wait(modded->code, timeout_ms, error);
	code_store_tell(store);
	/* What failed is asked for anew next time. */
	if (status != PAGED_OK && status != PAGED_ERR_AGAIN && status != PAGED_ERR_TIMEOUT)
		code_drop(modded);
	return status;
}

/* Into the context. */
static enum paged_status
code_load(struct paged_mods *mods, enum paged_dtype q, bool *refused_p, struct paged_error *error)
{
	const struct paged_pool *pool = mods->batch->pool;
	struct cuda_modded *modded = &mods->device->modded[q];

	modded->kernel = pool->kernels->attention[q].kernel;
	modded->kernel.name = code_kernel(modded->code);
	return cuda_kernels_load(pool, code_compiled(modded->code)->bytes, &modded->kernel, &modded->module, refused_p,
				 error);
}

/* Code that is ready, in the context, which is current. */
static enum paged_status
code_get(struct paged_mods *mods, enum paged_dtype q, int timeout_ms, struct paged_error *error)
{
	struct cuda_modded *modded = &mods->device->modded[q];
	enum paged_status status = code_take(mods, q, timeout_ms, error);
	bool refused;

	if (status != PAGED_OK)
		return status;
	status = code_load(mods, q, &refused, error);
	if (status == PAGED_OK || !refused || !code_refused(modded->code))
		return status;
	code_drop(modded);
	status = code_take(mods, q, timeout_ms, error);
	return status == PAGED_OK ? code_load(mods, q, &refused, error) : status;
}

enum paged_status
compute_cuda_mods_prepare(struct paged_mods *mods, enum paged_dtype q, int timeout_ms, struct paged_error *error)
{
	const struct cuda_gpu *gpu = map_cuda_gpu(&mods->batch->pool->at);
	enum paged_status status;

	if (mods->device == NULL || mods->device->modded[q].module != NULL)
		return PAGED_OK;
	status = cuda_gpu_enter(gpu, error);
	if (status != PAGED_OK)
		return status;
	status = code_get(mods, q, timeout_ms, error);
	cuda_gpu_leave(gpu);
	return status;
}

/* Values and arrays */

static enum paged_status
args_write(struct paged_mods *mods, struct paged_error *error)
{
	struct cuda_mods *device = mods->device;
	struct cuda_mod_args args = { .range = device->range };
	enum paged_status status = PAGED_OK;

	if (mods->mask != NULL)
		status = mod_cuda_args(mods->mask, &args, error);
	if (status == PAGED_OK && mods->score != NULL)
		status = mod_cuda_args(mods->score, &args, error);
	if (status == PAGED_OK)
		status = compute_cuda_stage(mods->batch, device->args, &args, sizeof(args), error);
	device->written = status == PAGED_OK;
	return status;
}

/* What fails here, attention tries again and tells. */
void
compute_cuda_mods_bound(struct paged_mods *mods)
{
	const struct cuda_gpu *gpu = map_cuda_gpu(&mods->batch->pool->at);
	struct paged_error error;

	if (mods->device == NULL)
		return;
	mods->device->written = false;
	if (cuda_gpu_enter(gpu, &error) != PAGED_OK)
		return;
	(void)args_write(mods, &error);
	cuda_gpu_leave(gpu);
}

enum paged_status
compute_cuda_mods_kernel(struct paged_mods *mods, enum paged_dtype q, struct cuda_kernel *kernel, uint64_t *args_p,
			 struct paged_error *error)
{
	struct cuda_mods *device = mods->device;
	enum paged_status status = PAGED_OK;

	if (device->modded[q].module == NULL)
		status = code_get(mods, q, -1, error);
	if (status == PAGED_OK && !device->written)
		status = args_write(mods, error);
	if (status != PAGED_OK)
		return status;
	*kernel = device->modded[q].kernel;
	*args_p = device->args;
	return PAGED_OK;
}

/* Indexes out of bounds */

static enum paged_status
range_clear(const struct paged_mods *mods, struct paged_error *error)
{
	const struct cuda_batch *cuda = cuda_batch_of(mods->batch);
	int result = cuda->gpu->driver.fill(mods->device->range, 0, sizeof(struct cuda_mod_range), cuda->stream);

	if (result == CUDA_SUCCESS)
		return PAGED_OK;
	return cuda_fail(&cuda->gpu->driver, result, error, "pool %s: cuMemsetD8Async of a mod's record",
			 mods->batch->pool->at.name);
}

enum paged_status
compute_cuda_mods_forget(struct paged_batch *batch, struct paged_error *error)
{
	enum paged_status status = PAGED_OK;

	for (struct paged_mods *mods = batch->mods; status == PAGED_OK && mods != NULL; mods = mods->next)
		if (mods->device != NULL)
			status = range_clear(mods, error);
	return status;
}

static enum paged_status
range_read(const struct paged_mods *mods, struct paged_error *error)
{
	const struct cuda_batch *cuda = cuda_batch_of(mods->batch);
	struct cuda_mod_range range;
	struct mod_range found;
	enum mod_kind kind;
	bool capturing;
	enum paged_status status = compute_cuda_capture(mods->batch, &capturing, error);
	int result;

	if (status == PAGED_OK && capturing)
		status = paged_fail(error, PAGED_ERR_UNSUPPORTED,
				    "pool %s: the stream is being captured: what mods read is known after a replay",
				    mods->batch->pool->at.name);
	if (status != PAGED_OK)
		return status;
	result = cuda->gpu->driver.copy_out(&range, mods->device->range, sizeof(range), cuda->stream);
	if (result == CUDA_SUCCESS)
		result = cuda->gpu->driver.stream_synchronize(cuda->stream);
	if (result != CUDA_SUCCESS)
		return cuda_fail(&cuda->gpu->driver, result, error, "pool %s: reading a mod's record",
				 mods->batch->pool->at.name);
	found = mod_cuda_range(&range, &kind);
	if (!found.found)
		return PAGED_OK;
	return mod_range_fail(mod_binding_mod(kind == MOD_MASK ? mods->mask : mods->score), &found, error);
}

enum paged_status
compute_cuda_mods_check(const struct paged_mods *mods, struct paged_error *error)
{
	const struct cuda_gpu *gpu = map_cuda_gpu(&mods->batch->pool->at);
	enum paged_status status;

	if (mods->device == NULL)
		return PAGED_OK;
	status = cuda_gpu_enter(gpu, error);
	if (status != PAGED_OK)
		return status;
	status = range_read(mods, error);
	cuda_gpu_leave(gpu);
	return status;
}

/* Life */

static enum paged_status
memory_alloc(struct paged_mods *mods, struct paged_error *error)
{
	const struct cuda_gpu *gpu = map_cuda_gpu(&mods->batch->pool->at);
	struct cuda_mods *device = mods->device;
	enum paged_status status = cuda_gpu_enter(gpu, error);
	bool capturing;
	int result;

	if (status != PAGED_OK)
		return status;
	status = compute_cuda_capture(mods->batch, &capturing, error);
	if (status == PAGED_OK && capturing)
		status = paged_fail(error, PAGED_ERR_UNSUPPORTED,
				    "pool %s: the stream is being captured: mods are made before",
				    mods->batch->pool->at.name);
	if (status != PAGED_OK) {
		cuda_gpu_leave(gpu);
		return status;
	}
	result = gpu->driver.alloc(&device->args, sizeof(struct cuda_mod_args) + sizeof(struct cuda_mod_range));
	if (result == CUDA_SUCCESS) {
		device->range = device->args + sizeof(struct cuda_mod_args);
		status = range_clear(mods, error);
	} else {
		status = cuda_fail(&gpu->driver, result, error, "pool %s: cuMemAlloc for mods",
				   mods->batch->pool->at.name);
	}
	cuda_gpu_leave(gpu);
	return status;
}

enum paged_status
compute_cuda_mods_open(struct paged_mods *mods, struct paged_error *error)
{
	const struct paged_pool *pool = mods->batch->pool;
	const struct mod *mask = mods->mask != NULL ? mod_binding_mod(mods->mask) : NULL;
	const struct mod *score = mods->score != NULL ? mod_binding_mod(mods->score) : NULL;
	enum paged_status status;

	if (mask == NULL && score == NULL)
		return PAGED_OK;
	mods->device = calloc(1, sizeof(*mods->device));
	if (mods->device == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for mods");
	status = mod_cuda_source(CUDA_MOD_STRUCT, mask, score, &mods->device->source, error);
	if (status == PAGED_OK)
		status = memory_alloc(mods, error);
	client_lock(pool->client);
	if (status == PAGED_OK)
		status = compiler_open(pool->client, error);
	client_unlock(pool->client);
	if (status == PAGED_OK)
		status = code_ask(mods, cuda_kernels_queries(&pool->at.layout.params), error);
	if (status != PAGED_OK)
		compute_cuda_mods_close(mods, false);
	return status;
}

void
compute_cuda_mods_close(struct paged_mods *mods, bool in_child)
{
	const struct cuda_gpu *gpu = map_cuda_gpu(&mods->batch->pool->at);
	struct cuda_mods *device = mods->device;
	struct paged_error error;

	if (device == NULL)
		return;
	if (!in_child && cuda_gpu_enter(gpu, &error) == PAGED_OK) {
		for (enum paged_dtype q = PAGED_F32; q <= PAGED_BF16; q++)
			if (device->modded[q].module != NULL)
				gpu->driver.module_unload(device->modded[q].module);
		if (device->args != 0)
			gpu->driver.free(device->args);
		cuda_gpu_leave(gpu);
	}
	for (enum paged_dtype q = PAGED_F32; !in_child && q <= PAGED_BF16; q++)
		code_release(device->modded[q].code);
	free(device->source);
	free(device);
	mods->device = NULL;
}
