/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/cuda/compute_cuda_mod_set.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "client/cuda/compute_cuda_batch.h"
#include "client/cuda/jit_store.h"
#include "client/owner/map_cuda.h"
#include "common/clock.h"
#include "kernels/mod/cuda_source.h"

struct cuda_compiler {
	struct jit_store *store;
	struct jit_nvrtc nvrtc;
};

/** The attention kernels with these mods, for queries of one dtype. */
struct cuda_mod_kernels {
	struct jit_code *code[CUDA_N_PARTS]; /* NULL: not requested */
	cuda_module module[CUDA_N_PARTS];    /* NULL: not loaded */
	struct cuda_kernel kernel[CUDA_N_PARTS];
	bool loaded; /* all of them */
};

struct cuda_mod_set {
	char *source;
	struct cuda_mod_kernels kernels[PAGED_BF16 + 1]; /* by enum paged_dtype of the queries */
	cuda_address args;                               /* struct cuda_mod_args, followed by `range` */
	cuda_address range;                              /* struct cuda_mod_range */
	bool written;                                    /* the bound values were copied to args, in stream order */
};

/* Compiling */

static enum paged_status
cuda_compiler_open(const struct paged_pool *pool, struct paged_error *error)
{
	struct paged_client *client = pool->client;
	struct cuda_compiler *compiler;
	enum paged_status status;

	if (client->compiler != NULL)
		return PAGED_OK;
	compiler = calloc(1, sizeof(*compiler));
	if (compiler == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for compiled mods");
	compiler->nvrtc.driver_version = map_cuda_gpu(&pool->mapping)->driver.version;
	status = jit_store_create(&(struct jit_store_params){ .compiler = &jit_compiler_nvrtc,
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
compute_cuda_client_close(struct paged_client *client, bool in_child)
{
	if (client->compiler == NULL)
		return;
	jit_store_destroy(client->compiler->store, in_child);
	free(client->compiler);
}

static enum paged_status
cuda_mod_set_request_part(struct paged_mod_set *set, enum paged_dtype q, unsigned int part, struct paged_error *error)
{
	const struct paged_pool *pool = set->batch->pool;
	const struct cuda_gpu *gpu = map_cuda_gpu(&pool->mapping);
	const struct cuda_choice *choice = &pool->kernels->attention[q].choices[part];
	struct cuda_mod_set *device = set->device;
	const struct jit_request request = {
		.source = choice->source,
		.kernel = choice->kernel,
		.mods = device->source,
		.capability = 10 * cuda_gpu_attribute(gpu, CUDA_DEVICE_COMPUTE_MAJOR) +
			      cuda_gpu_attribute(gpu, CUDA_DEVICE_COMPUTE_MINOR),
		.arch_specific = choice->arch_specific,
	};

	assert(paged_dtype_is_tensor(q));
	if (device->kernels[q].code[part] != NULL)
		return PAGED_OK;
	return jit_prepare(pool->client->compiler->store, &request, &device->kernels[q].code[part], error);
}

/* Does a part have a kernel that calls with the set may launch? */
static bool
cuda_mod_set_has_part(const struct paged_mod_set *set, enum paged_dtype q, unsigned int part)
{
	const struct paged_pool *pool = set->batch->pool;
	uint32_t most_group = cuda_batch_of(set->batch)->max_q_heads / pool->mapping.layout.params.n_kv_heads;

	if (part == CUDA_CLUSTER && most_group < CUDA_CLUSTER_Q_ROWS)
		return false;
	return pool->kernels->attention[q].choices[part].kernel != NULL;
}

/* Request the code of all parts, so that the compiler never waits for a caller that waits for one of them. */
static enum paged_status
cuda_mod_set_request_code(struct paged_mod_set *set, enum paged_dtype q, struct paged_error *error)
{
	enum paged_status status = PAGED_OK;

	for (unsigned int part = 0; status == PAGED_OK && part < CUDA_N_PARTS; part++)
		if (cuda_mod_set_has_part(set, q, part))
			status = cuda_mod_set_request_part(set, q, part, error);
	return status;
}

static void
cuda_mod_set_release_code(struct jit_code **code)
{
	jit_release(*code);
	*code = NULL;
}

static enum paged_status
cuda_mod_set_wait_code(struct paged_mod_set *set, enum paged_dtype q, unsigned int part, int timeout_ms,
		       struct paged_error *error)
{
	enum paged_status status = cuda_mod_set_request_code(set, q, error);
	struct jit_code **code = &set->device->kernels[q].code[part];

	if (status != PAGED_OK)
		return status;
	status = jit_wait(*code, timeout_ms, error);
	jit_store_flush_log(set->batch->pool->client->compiler->store);
	/* Code that failed is requested again at the next call. */
	if (status != PAGED_OK && status != PAGED_ERR_AGAIN && status != PAGED_ERR_TIMEOUT)
		cuda_mod_set_release_code(code);
	return status;
}

/* Say which NVRTC compiled an image that the driver refused.  No other thread writes its version any more. */
static void
cuda_mod_set_add_versions(const struct paged_mod_set *set, struct paged_error *error)
{
	const struct paged_pool *pool = set->batch->pool;
	const struct cuda_nvrtc *nvrtc = &pool->client->compiler->nvrtc.nvrtc;

	cuda_add_nvrtc_version(&map_cuda_gpu(&pool->mapping)->driver, 1000 * nvrtc->major + 10 * nvrtc->minor, error);
}

/* Load a part's code into the current context.  If the driver refuses the image, try the code of the next origin. */
static enum paged_status
cuda_mod_set_load_part(struct paged_mod_set *set, enum paged_dtype q, unsigned int part, int timeout_ms,
		       struct paged_error *error)
{
	const struct paged_pool *pool = set->batch->pool;
	struct cuda_mod_kernels *to = &set->device->kernels[q];

	for (;;) {
		enum paged_status status = cuda_mod_set_wait_code(set, q, part, timeout_ms, error);
		bool refused;

		if (status != PAGED_OK)
			return status;
		to->kernel[part] = cuda_kernel_of(&pool->kernels->attention[q].choices[part]);
		to->kernel[part].name = jit_kernel_name(to->code[part]);
		status = cuda_kernels_load(pool, jit_image(to->code[part])->bytes, &to->kernel[part], &to->module[part],
					   &refused, error);
		if (status == PAGED_OK || !refused)
			return status;
		if (!jit_refused(to->code[part])) {
			cuda_mod_set_add_versions(set, error);
			return error->status;
		}
		cuda_mod_set_release_code(&to->code[part]);
	}
}

/* The milliseconds that are left until a time; at least 1, because 0 would not wait but poll. */
static int
cuda_mod_set_time_left(uint64_t end_us)
{
	uint64_t now_us = clock_us();

	return now_us + 1000 > end_us ? 1 : (int)((end_us - now_us) / 1000);
}

/*
 * Load the code of all parts, also of those that this batch does not need: a later batch then waits for no compiler,
 * and may be captured.
 */
static enum paged_status
cuda_mod_set_load_code(struct paged_mod_set *set, enum paged_dtype q, int timeout_ms, struct paged_error *error)
{
	struct cuda_mod_kernels *to = &set->device->kernels[q];
	uint64_t end_us = clock_us() + (uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * 1000;
	enum paged_status status = PAGED_OK;

	for (unsigned int part = 0; status == PAGED_OK && part < CUDA_N_PARTS; part++)
		if (cuda_mod_set_has_part(set, q, part) && to->module[part] == NULL)
			status = cuda_mod_set_load_part(
				set, q, part, timeout_ms > 0 ? cuda_mod_set_time_left(end_us) : timeout_ms, error);
	to->loaded = status == PAGED_OK;
	return status;
}

enum paged_status
compute_cuda_mod_set_prepare(struct paged_mod_set *set, enum paged_dtype q, int timeout_ms, struct paged_error *error)
{
	if (set->device == NULL || set->device->kernels[q].loaded)
		return PAGED_OK;
	return MAP_CUDA_RUN(map_cuda_gpu(&set->batch->pool->mapping), error,
			    cuda_mod_set_load_code(set, q, timeout_ms, error));
}

/* Values and arrays */

static enum paged_status
cuda_mod_set_write_args(struct paged_mod_set *set, struct paged_error *error)
{
	struct cuda_mod_set *device = set->device;
	struct cuda_mod_args args = { .range = device->range };
	enum paged_status status = PAGED_OK;

	if (set->mask != NULL)
		status = mod_cuda_args(set->mask, &args, error);
	if (status == PAGED_OK && set->score != NULL)
		status = mod_cuda_args(set->score, &args, error);
	if (status == PAGED_OK)
		status = compute_cuda_stage(set->batch, device->args, &args, sizeof(args), error);
	device->written = status == PAGED_OK;
	return status;
}

/* Errors are ignored: the next attention call writes the arguments again and reports the error. */
void
compute_cuda_mod_set_bound(struct paged_mod_set *set)
{
	struct paged_error error;

	if (set->device == NULL)
		return;
	set->device->written = false;
	(void)MAP_CUDA_RUN(map_cuda_gpu(&set->batch->pool->mapping), &error, cuda_mod_set_write_args(set, &error));
}

enum paged_status
compute_cuda_mod_set_kernels(struct paged_mod_set *set, enum paged_dtype q, const struct cuda_kernel **kernels_p,
			     uint64_t *args_p, struct paged_error *error)
{
	struct cuda_mod_set *device = set->device;
	enum paged_status status = PAGED_OK;

	if (!device->kernels[q].loaded)
		status = cuda_mod_set_load_code(set, q, -1, error);
	if (status == PAGED_OK && !device->written)
		status = cuda_mod_set_write_args(set, error);
	if (status != PAGED_OK)
		return status;
	*kernels_p = device->kernels[q].kernel;
	*args_p = device->args;
	return PAGED_OK;
}

/* Indexes out of bounds */

static enum paged_status
cuda_mod_set_clear_range(const struct paged_mod_set *set, struct paged_error *error)
{
	const struct cuda_batch *cuda = cuda_batch_of(set->batch);
	int result = cuda->gpu->driver.fill(set->device->range, 0, sizeof(struct cuda_mod_range), cuda->stream);

	return map_cuda_check(&set->batch->pool->mapping, result, error, "cuMemsetD8Async of a mod's record");
}

enum paged_status
compute_cuda_mod_set_clear_range(struct paged_batch *batch, struct paged_error *error)
{
	enum paged_status status = PAGED_OK;

	for (struct paged_mod_set *set = batch->mod_sets; status == PAGED_OK && set != NULL; set = set->next)
		if (set->device != NULL)
			status = cuda_mod_set_clear_range(set, error);
	return status;
}

static enum paged_status
cuda_mod_set_read_range(const struct paged_mod_set *set, struct paged_error *error)
{
	const struct cuda_batch *cuda = cuda_batch_of(set->batch);
	struct cuda_mod_range range;
	struct mod_bad_index found;
	enum mod_kind kind;
	enum paged_status status =
		compute_cuda_refuse_capture(set->batch, ": what mods read is known after a replay", error);
	int result;

	if (status != PAGED_OK)
		return status;
	result = cuda->gpu->driver.copy_out(&range, set->device->range, sizeof(range), cuda->stream);
	if (result == CUDA_SUCCESS)
		result = cuda->gpu->driver.stream_synchronize(cuda->stream);
	status = map_cuda_check(&set->batch->pool->mapping, result, error, "reading a mod's record");
	if (status != PAGED_OK)
		return status;
	found = mod_cuda_bad_index(&range, &kind);
	if (!found.found)
		return PAGED_OK;
	return mod_bad_index_fail(mod_binding_mod(kind == MOD_MASK ? set->mask : set->score), &found, error);
}

enum paged_status
compute_cuda_mod_set_check(const struct paged_mod_set *set, struct paged_error *error)
{
	if (set->device == NULL)
		return PAGED_OK;
	return MAP_CUDA_RUN(map_cuda_gpu(&set->batch->pool->mapping), error, cuda_mod_set_read_range(set, error));
}

/* Life */

/* Called with the context current. */
static enum paged_status
cuda_mod_set_alloc(struct paged_mod_set *set, struct paged_error *error)
{
	const struct owner_pool *pool = &set->batch->pool->mapping;
	struct cuda_mod_set *device = set->device;
	enum paged_status status = compute_cuda_refuse_capture(set->batch, ": mods are made before", error);

	if (status == PAGED_OK)
		status = map_cuda_check(
			pool,
			map_cuda_gpu(pool)->driver.alloc(&device->args,
							 sizeof(struct cuda_mod_args) + sizeof(struct cuda_mod_range)),
			error, "cuMemAlloc for mods");
	if (status != PAGED_OK)
		return status;
	device->range = device->args + sizeof(struct cuda_mod_args);
	return cuda_mod_set_clear_range(set, error);
}

enum paged_status
compute_cuda_mod_set_open(struct paged_mod_set *set, struct paged_error *error)
{
	const struct paged_pool *pool = set->batch->pool;
	const struct mod *mask = set->mask != NULL ? mod_binding_mod(set->mask) : NULL;
	const struct mod *score = set->score != NULL ? mod_binding_mod(set->score) : NULL;
	enum paged_status status;

	if (mask == NULL && score == NULL)
		return PAGED_OK;
	set->device = calloc(1, sizeof(*set->device));
	if (set->device == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for mods");
	status = mod_cuda_source(CUDA_MOD_STRUCT, mask, score, &set->device->source, error);
	if (status == PAGED_OK)
		status = MAP_CUDA_RUN(map_cuda_gpu(&pool->mapping), error, cuda_mod_set_alloc(set, error));
	client_lock(pool->client);
	if (status == PAGED_OK)
		status = cuda_compiler_open(pool, error);
	client_unlock(pool->client);
	if (status == PAGED_OK)
		status = cuda_mod_set_request_code(set, cuda_kernels_queries(&pool->mapping.layout.params), error);
	if (status != PAGED_OK)
		compute_cuda_mod_set_close(set, false);
	return status;
}

void
compute_cuda_mod_set_close(struct paged_mod_set *set, bool in_child)
{
	const struct cuda_gpu *gpu = map_cuda_gpu(&set->batch->pool->mapping);
	struct cuda_mod_set *device = set->device;
	struct paged_error error;

	if (device == NULL)
		return;
	if (!in_child && cuda_gpu_enter(gpu, &error) == PAGED_OK) {
		for (enum paged_dtype q = PAGED_F32; q <= PAGED_BF16; q++)
			for (unsigned int part = 0; part < CUDA_N_PARTS; part++)
				if (device->kernels[q].module[part] != NULL)
					gpu->driver.module_unload(device->kernels[q].module[part]);
		if (device->args != 0)
			gpu->driver.free(device->args);
		cuda_gpu_leave(gpu);
	}
	for (enum paged_dtype q = PAGED_F32; !in_child && q <= PAGED_BF16; q++)
		for (unsigned int part = 0; part < CUDA_N_PARTS; part++)
			jit_release(device->kernels[q].code[part]);
	free(device->source);
	free(device);
	set->device = NULL;
}
