/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/cuda/cuda_kernels.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "client/owner/map_cuda.h"
#include "kernels/cuda/host/images.h"

/* Bytes of dynamic shared memory above which a kernel must opt in. */
#define SHARED_WITHOUT_OPT_IN (48u << 10)

/*
 * Whether a module's image is damaged, or not for this driver, or not for this device.  A driver without the library
 * that compiles PTX, or with CUDA_DISABLE_PTX_JIT=1 in its environment, loads cubins only.
 */
static bool
cuda_kernels_image_refused(int result)
{
	switch (result) {
	case CUDA_ERROR_INVALID_IMAGE:
	case CUDA_ERROR_NO_BINARY_FOR_GPU:
	case CUDA_ERROR_INVALID_PTX:
	case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
	case CUDA_ERROR_UNSUPPORTED_PTX:
	case CUDA_ERROR_JIT_COMPILATION_DISABLED:
	case CUDA_ERROR_INVALID_SOURCE:
		return true;
	default:
		return false;
	}
}

static enum paged_status
cuda_kernels_load_module(const struct paged_pool *pool, struct cuda_kernels *kernels, const char *source,
			 cuda_module *module_p, struct paged_error *error)
{
	const struct cuda_gpu *gpu = kernels->gpu;
	const struct cuda_image *image;
	enum paged_status status;
	int result;

	for (unsigned int i = 0; i < kernels->n_modules; i++) {
		if (strcmp(kernels->sources[i], source) != 0)
			continue;
		*module_p = kernels->modules[i];
		return PAGED_OK;
	}
	image = cuda_image_find(source, cuda_gpu_attribute(gpu, CUDA_DEVICE_COMPUTE_MAJOR),
				cuda_gpu_attribute(gpu, CUDA_DEVICE_COMPUTE_MINOR));
	if (image == NULL && cuda_gpu_attribute(gpu, CUDA_DEVICE_COMPUTE_MAJOR) < 8)
		return paged_fail(error, PAGED_ERR_UNSUPPORTED,
				  "pool %s: no kernels for %s, a device of %s: 8.0 or later is needed",
				  pool->mapping.name, gpu->name, gpu->isa);
	if (image == NULL)
		return paged_fail(
			error, PAGED_ERR_UNSUPPORTED,
			"pool %s: this library was built without %s for %s, a device of %s (CUDA_ARCHS): unset "
			"the environment variable that asks for it",
			pool->mapping.name, source, gpu->name, gpu->isa);
	assert(kernels->n_modules < sizeof(kernels->modules) / sizeof(kernels->modules[0]));
	result = gpu->driver.module_load(module_p, image->data);
	status = map_cuda_check(&pool->mapping, result, error, "cuModuleLoadData of %s", source);
	if (cuda_kernels_image_refused(result))
		cuda_add_driver_age(&gpu->driver, cuda_images_version(), error);
	if (status != PAGED_OK)
		return error->status;
	kernels->sources[kernels->n_modules] = source;
	kernels->modules[kernels->n_modules++] = *module_p;
	return PAGED_OK;
}

/*
 * Allow the kernel its dynamic shared memory.  Every kernel asks for the largest carve-out of shared memory from the L1
 * cache: the driver's own need not hold as many blocks as fit the multiprocessor, and a multiprocessor waits for the
 * end of a kernel's blocks before it runs a kernel with another carve-out.
 */
static enum paged_status
cuda_kernels_allow_shared(const struct paged_pool *pool, const struct cuda_driver *driver,
			  const struct cuda_kernel *kernel, struct paged_error *error)
{
	enum paged_status status = PAGED_OK;
	int result;

	if (kernel->shared_size > SHARED_WITHOUT_OPT_IN) {
		result = driver->function_set(kernel->function, CUDA_FUNCTION_MAX_DYNAMIC_SHARED,
					      (int)kernel->shared_size);
		status = map_cuda_check(&pool->mapping, result, error, "%u bytes of shared memory for %s",
					kernel->shared_size, kernel->name);
	}
	if (status != PAGED_OK)
		return status;
	result = driver->function_set(kernel->function, CUDA_FUNCTION_SHARED_CARVEOUT, CUDA_CARVEOUT_MAX_SHARED);
	return map_cuda_check(&pool->mapping, result, error, "the largest carve-out of shared memory for %s",
			      kernel->name);
}

/* Captured graphs keep dependent launches from this version of CUDA on. */
#define OVERLAP_DRIVER 12030
/* Code compiled for this architecture and later ones has the instructions (simt_device.h). */
#define OVERLAP_ARCH 90

/*
 * Read an environment variable that permits something that is off by default until a GPU has run it; the conformance
 * program has cases for it.  PAGED_PDL: programmatic dependent launches.  PAGED_WGMMA: attention_wgmma_* and
 * attention_mla_wgmma_*.  PAGED_CLUSTERS, if that is permitted too: attention_mla_cluster_*.  PAGED_BULK:
 * attention_bulk_*.
 */
static enum paged_status
cuda_kernels_read_switch(const struct paged_pool *pool, const char *variable, bool *permitted_p,
			 struct paged_error *error)
{
	const char *value = secure_getenv(variable);

	*permitted_p = value != NULL && strcmp(value, "1") == 0;
	if (value == NULL || value[0] == '\0' || strcmp(value, "0") == 0 || *permitted_p)
		return PAGED_OK;
	return paged_fail(error, PAGED_ERR_INVALID, "pool %s: %s is \"%s\": 0 and 1 are possible", pool->mapping.name,
			  variable, value);
}

/*
 * The kernel must have the wait for the kernel before it, which depends on the architecture that its code was compiled
 * for, not on the device: a device of sm_90 also runs PTX of compute_80.
 */
static bool
cuda_kernels_can_overlap(const struct cuda_driver *driver, cuda_function function)
{
	int arch;

	return driver->launch_ex != NULL && driver->version >= OVERLAP_DRIVER &&
	       driver->function_attribute(&arch, CUDA_FUNCTION_PTX_VERSION, function) == CUDA_SUCCESS &&
	       arch >= OVERLAP_ARCH;
}

/* Set the number of blocks of a kernel of clusters.  Both blocks of a cluster must fit a part of the device. */
static enum paged_status
cuda_kernels_count_clusters(const struct paged_pool *pool, const struct cuda_gpu *gpu, struct cuda_kernel *kernel,
			    struct paged_error *error)
{
	const struct cuda_launch_config config = { .grid_x = CUDA_CLUSTER_BLOCKS,
						   .grid_y = 1,
						   .grid_z = 1,
						   .block_x = kernel->n_threads,
						   .block_y = 1,
						   .block_z = 1,
						   .shared_size = kernel->shared_size };
	int n, result = gpu->driver.cluster_occupancy(&n, kernel->function, &config);
	enum paged_status status = map_cuda_check(&pool->mapping, result, error, "clusters of %s", kernel->name);

	if (status != PAGED_OK)
		return status;
	if (n < 1)
		return paged_fail(error, PAGED_ERR_UNSUPPORTED, "pool %s: no cluster of %s fits %s", pool->mapping.name,
				  kernel->name, gpu->name);
	kernel->n_blocks = (uint32_t)n * CUDA_CLUSTER_BLOCKS;
	return PAGED_OK;
}

/* Find a kernel in a module and fill in everything that a launch needs. */
static enum paged_status
cuda_kernels_find(const struct paged_pool *pool, const struct cuda_gpu *gpu, cuda_module module,
		  struct cuda_kernel *kernel, struct paged_error *error)
{
	const struct cuda_driver *driver = &gpu->driver;
	int result = driver->module_function(&kernel->function, module, kernel->name), n;
	enum paged_status status;

	if (result == CUDA_ERROR_NOT_FOUND && cuda_image_at(0) == NULL)
		return paged_fail(error, PAGED_ERR_UNSUPPORTED,
				  "pool %s: this library was built without the CUDA toolkit and has no kernels for %s",
				  pool->mapping.name, gpu->name);
	status = map_cuda_check(&pool->mapping, result, error, "cuModuleGetFunction of %s", kernel->name);
	if (status == PAGED_OK)
		status = cuda_kernels_allow_shared(pool, driver, kernel, error);
	if (status == PAGED_OK)
		status = cuda_kernels_read_switch(pool, "PAGED_PDL", &kernel->overlaps, error);
	if (status != PAGED_OK)
		return status;
	kernel->overlaps = kernel->overlaps && cuda_kernels_can_overlap(driver, kernel->function);
	if (kernel->clusters)
		return cuda_kernels_count_clusters(pool, gpu, kernel, error);
	result = driver->occupancy(&n, kernel->function, (int)kernel->n_threads, kernel->shared_size);
	status = map_cuda_check(&pool->mapping, result, error, "occupancy of %s", kernel->name);
	if (status != PAGED_OK)
		return status;
	if (n < 1)
		return paged_fail(error, PAGED_ERR_UNSUPPORTED, "pool %s: %s does not fit %s", pool->mapping.name,
				  kernel->name, gpu->name);
	/* The attribute is 0 if the driver failed to report it. */
	kernel->n_blocks = (uint32_t)n * (uint32_t)cuda_gpu_attribute(gpu, CUDA_DEVICE_MULTIPROCESSORS);
	if (kernel->n_blocks == 0)
		return paged_fail(error, PAGED_ERR_BACKEND,
				  "pool %s: the driver does not say how many processors %s has", pool->mapping.name,
				  gpu->name);
	return PAGED_OK;
}

static enum paged_status
cuda_kernels_load_kernel(const struct paged_pool *pool, struct cuda_kernels *kernels, const char *source,
			 struct cuda_kernel *kernel, struct paged_error *error)
{
	enum paged_status status;
	cuda_module module;

	status = cuda_kernels_load_module(pool, kernels, source, &module, error);
	return status == PAGED_OK ? cuda_kernels_find(pool, kernels->gpu, module, kernel, error) : status;
}

enum paged_status
cuda_kernels_load(const struct paged_pool *pool, const void *image, struct cuda_kernel *kernel, cuda_module *module_p,
		  bool *refused_p, struct paged_error *error)
{
	const struct cuda_gpu *gpu = pool->kernels->gpu;
	enum paged_status status;
	cuda_module module;
	int result = gpu->driver.module_load(&module, image);

	*refused_p = cuda_kernels_image_refused(result);
	status = map_cuda_check(&pool->mapping, result, error, "cuModuleLoadData of %s with mods", kernel->name);
	if (status != PAGED_OK)
		return status;
	status = cuda_kernels_find(pool, gpu, module, kernel, error);
	if (status == PAGED_OK) {
		*module_p = module;
		return PAGED_OK;
	}
	*refused_p = gpu->driver.module_function(&kernel->function, module, kernel->name) == CUDA_ERROR_NOT_FOUND;
	gpu->driver.module_unload(module);
	return status;
}

/* Choose the attention kernels for queries of one dtype. */
static enum paged_status
cuda_kernels_choose(const struct paged_pool *pool, const struct cuda_kernels *kernels, enum paged_dtype q,
		    struct cuda_choice choices[CUDA_N_PARTS], struct paged_error *error)
{
	uint32_t max_shared = (uint32_t)cuda_gpu_attribute(kernels->gpu, CUDA_DEVICE_SHARED_PER_BLOCK_OPTIN);
	const struct layout_params *params = &pool->mapping.layout.params;
	const struct cuda_driver *driver = &kernels->gpu->driver;
	int major = cuda_gpu_attribute(kernels->gpu, CUDA_DEVICE_COMPUTE_MAJOR);
	enum paged_status status = cuda_choose(params, q, max_shared, choices, error);

	if (status != PAGED_OK)
		return status;
	if (kernels->wgmma && major == 9 && cuda_gpu_attribute(kernels->gpu, CUDA_DEVICE_COMPUTE_MINOR) == 0)
		cuda_choose_wgmma(params, q, max_shared, choices);
	if (kernels->clusters && driver->tensor_map_encode != NULL && driver->cluster_occupancy != NULL)
		cuda_choose_clusters(params, q, choices);
	if (kernels->bulk && major >= 9)
		cuda_choose_bulk(params, q, max_shared, &choices[CUDA_DECODE]);
	return PAGED_OK;
}

/* Load the attention kernels for queries of one dtype. */
static enum paged_status
cuda_kernels_load_attention(const struct paged_pool *pool, struct cuda_kernels *kernels, enum paged_dtype q,
			    struct paged_error *error)
{
	struct cuda_attention *to = &kernels->attention[q];
	enum paged_status status = cuda_kernels_choose(pool, kernels, q, to->choices, error);

	for (unsigned int part = 0; status == PAGED_OK && part < CUDA_N_PARTS; part++) {
		if (to->choices[part].kernel == NULL)
			continue;
		to->kernels[part] = cuda_kernel_of(&to->choices[part]);
		status = cuda_kernels_load_kernel(pool, kernels, to->choices[part].source, &to->kernels[part], error);
		/* CUDA_DECODE computes what clusters cannot, as on a part of a device. */
		if (status == PAGED_ERR_UNSUPPORTED && part == CUDA_CLUSTER) {
			to->choices[part].kernel = NULL;
			return PAGED_OK;
		}
	}
	return status;
}

static void
cuda_kernels_free(struct cuda_kernels *kernels, bool in_child)
{
	while (!in_child && kernels->n_modules > 0)
		kernels->gpu->driver.module_unload(kernels->modules[--kernels->n_modules]);
	free(kernels);
}

static enum paged_status
cuda_kernels_load_all(const struct paged_pool *pool, struct cuda_kernels **kernels_p, struct paged_error *error)
{
	struct cuda_kernels *kernels = calloc(1, sizeof(*kernels));
	enum paged_status status;

	if (kernels == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for kernels");
	kernels->gpu = map_cuda_gpu(&pool->mapping);
	kernels->plan = (struct cuda_kernel){ .name = "plan_batch",
					      .n_threads = CUDA_PLAN_THREADS,
					      .shared_size = CUDA_PLAN_SHARED };
	kernels->scatter = (struct cuda_kernel){ .name = "scatter_words", .n_threads = CUDA_SCATTER_THREADS };
	kernels->append = (struct cuda_kernel){ .name = "append_tokens", .n_threads = CUDA_APPEND_THREADS };
	kernels->gather = (struct cuda_kernel){ .name = "gather_tokens", .n_threads = CUDA_COPY_THREADS };
	kernels->merge = (struct cuda_kernel){ .name = "merge_results", .n_threads = CUDA_MERGE_THREADS };
	kernels->combine = (struct cuda_kernel){ .name = "combine_kv_chunks",
						 .n_threads = CUDA_COMBINE_THREADS,
						 .shared_size = CUDA_COMBINE_SHARED };
	status = cuda_kernels_read_switch(pool, "PAGED_WGMMA", &kernels->wgmma, error);
	if (status == PAGED_OK)
		status = cuda_kernels_read_switch(pool, "PAGED_CLUSTERS", &kernels->clusters, error);
	if (status == PAGED_OK)
		status = cuda_kernels_read_switch(pool, "PAGED_BULK", &kernels->bulk, error);
	if (status == PAGED_OK)
		status = cuda_kernels_load_kernel(pool, kernels, "plan", &kernels->plan, error);
	if (status == PAGED_OK)
		status = cuda_kernels_load_kernel(pool, kernels, "plan", &kernels->scatter, error);
	if (status == PAGED_OK)
		status = cuda_kernels_load_kernel(pool, kernels, "append", &kernels->append, error);
	if (status == PAGED_OK)
		status = cuda_kernels_load_kernel(pool, kernels, "pages", &kernels->gather, error);
	if (status == PAGED_OK)
		status = cuda_kernels_load_kernel(pool, kernels, "attention_merge", &kernels->merge, error);
	if (status == PAGED_OK)
		status = cuda_kernels_load_kernel(pool, kernels, "attention_combine", &kernels->combine, error);
	for (enum paged_dtype q = PAGED_F32; status == PAGED_OK && q <= PAGED_BF16; q++)
		status = cuda_kernels_load_attention(pool, kernels, q, error);
	if (status != PAGED_OK) {
		cuda_kernels_free(kernels, false);
		return status;
	}
	*kernels_p = kernels;
	return PAGED_OK;
}

enum paged_status
cuda_kernels_acquire(struct paged_pool *pool, struct cuda_kernels **kernels_p, struct paged_error *error)
{
	if (pool->kernels == NULL) {
		enum paged_status status = cuda_kernels_load_all(pool, &pool->kernels, error);

		if (status != PAGED_OK)
			return status;
	}
	pool->kernels->n_users++;
	*kernels_p = pool->kernels;
	return PAGED_OK;
}

void
cuda_kernels_release(struct paged_pool *pool, bool in_child)
{
	if (--pool->kernels->n_users > 0)
		return;
	cuda_kernels_free(pool->kernels, in_child);
	pool->kernels = NULL;
}

enum paged_status
cuda_kernels_launch(const struct paged_pool *pool, const struct cuda_kernel *kernel, uint64_t n_blocks,
		    const void *params, cuda_stream stream, struct paged_error *error)
{
	const struct cuda_driver *driver = &pool->kernels->gpu->driver;
	void *parameters[] = { (void *)(uintptr_t)params };
	uint64_t wanted = kernel->clusters ? n_blocks + n_blocks % CUDA_CLUSTER_BLOCKS : n_blocks;
	uint32_t n = wanted < kernel->n_blocks ? (uint32_t)wanted : kernel->n_blocks;
	struct cuda_launch_attribute dependent = { .id = CUDA_LAUNCH_DEPENDENT, .value.allowed = 1 };
	int result;

	if (kernel->overlaps)
		result = driver->launch_ex(&(struct cuda_launch_config){ .grid_x = n,
									 .grid_y = 1,
									 .grid_z = 1,
									 .block_x = kernel->n_threads,
									 .block_y = 1,
									 .block_z = 1,
									 .shared_size = kernel->shared_size,
									 .stream = stream,
									 .attributes = &dependent,
									 .n_attributes = 1 },
					   kernel->function, parameters, NULL);
	else
		result = driver->launch(kernel->function, n, 1, 1, kernel->n_threads, 1, 1, kernel->shared_size, stream,
					parameters, NULL);
	return map_cuda_check(&pool->mapping, result, error, "launch of %s", kernel->name);
}
