/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Modules and launches.  An image is one of three things: a cubin or PTX, of
 * which only the kernels' names are used, to find them among those built in; the
 * word FAKE_CUDA_BUILT_IN, for builds without nvcc; or a host library, as the
 * fake NVRTC makes them.
 */
#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fake-cuda/cubin.h"
#include "tests/fake-cuda/simt_run.h"
#include "tests/fake-cuda/fake_cuda.h"
#include "tests/fake-cuda/image.h"

#define DEFAULT_SHARED (48u << 10)
#define CARVEOUT_DEFAULT (-1)

struct CUfunc_st {
	struct CUfunc_st *next;
	const struct simt_kernel *kernel;
	int arch; /* for which it was compiled */
	int max_shared, carveout;
};

struct CUmod_st {
	struct CUmod_st *next;
	struct CUctx_st *context;
	const void *cubin; /* NULL: any name that is built in */
	int arch;
	void *library; /* NULL: the kernels built in */
	int fd;        /* of the library's file; the loader tells libraries apart by the name /proc/self/fd/<number> */
	struct CUfunc_st *functions;
};

static struct CUmod_st *modules;

static size_t
elf_size(const Elf64_Ehdr *header)
{
	return header->e_shoff + (size_t)header->e_shnum * header->e_shentsize;
}

/* A cubin runs on its major architecture, from its minor one on. */
static bool
arch_fits(const struct CUmod_st *module, int arch)
{
	cuda_device device = module->context->device;

	return arch / 10 == device_attribute_of(device, CUDA_DEVICE_COMPUTE_MAJOR) &&
	       arch % 10 <= device_attribute_of(device, CUDA_DEVICE_COMPUTE_MINOR);
}

static void
library_unload(struct CUmod_st *module)
{
	if (module->library != NULL)
		dlclose(module->library);
	close(module->fd);
}

/* Loaded through a file of its own, so that two loads of one image are two modules. */
static int
library_load(struct CUmod_st *module, const void *image)
{
	size_t size = elf_size(image);
	const struct simt_kernel *before;
	const int *arch;
	char path[64];

	module->fd = memfd_create("paged-fake-cuda-module", MFD_CLOEXEC);
	if (module->fd < 0 || write(module->fd, image, size) != (ssize_t)size) {
		library_unload(module);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", module->fd);
	before = simt_first();
	module->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	for (struct simt_kernel *kernel = simt_first(); kernel != before; kernel = kernel->next)
		kernel->module = module;
	if (module->library == NULL) {
		fprintf(stderr, "# fake-cuda: %s\n", dlerror());
		library_unload(module);
		return CUDA_ERROR_INVALID_IMAGE;
	}
	arch = dlsym(module->library, "fake_cuda_arch");
	if (arch != NULL)
		module->arch = *arch;
	if (arch == NULL || arch_fits(module, *arch))
		return CUDA_SUCCESS;
	library_unload(module);
	return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

/* PTX without a kernel, which builds without nvcc load, stands for the kernels built in, of the device's architecture.
 */
static bool
ptx_load(struct CUmod_st *module, const char *ptx)
{
	const char *target = strstr(ptx, ".target sm_");

	if (strstr(ptx, ".version ") == NULL || target == NULL)
		return false;
	return strstr(ptx, ".entry ") == NULL || sscanf(target, ".target sm_%d", &module->arch) == 1;
}

static int
image_load(struct CUmod_st *module, const void *image)
{
	const Elf64_Ehdr *elf = image;
	const uint32_t *word = image;

	if (strcmp(image, FAKE_CUDA_BUILT_IN) == 0 || word[0] == 0xba55ed50 || word[0] == 0x466243b1)
		return CUDA_SUCCESS;
	if (memcmp(elf->e_ident, ELFMAG, SELFMAG) != 0)
		return ptx_load(module, image) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
	if (elf->e_machine != EM_CUDA)
		return elf->e_type == ET_DYN ? library_load(module, image) : CUDA_ERROR_INVALID_IMAGE;
	if (!arch_fits(module, cubin_arch(image)))
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	module->arch = cubin_arch(image);
	module->cubin = image;
	return CUDA_SUCCESS;
}

static int
module_load(struct CUmod_st **module_p, const void *image)
{
	struct CUmod_st *module = calloc(1, sizeof(*module));
	int result;

	if (module == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	module->context = context_now();
	module->arch = device_attribute_of(module->context->device, CUDA_DEVICE_COMPUTE_MAJOR) * 10 +
		       device_attribute_of(module->context->device, CUDA_DEVICE_COMPUTE_MINOR);
	result = image_load(module, image);
	if (result != CUDA_SUCCESS) {
		free(module);
		return result;
	}
	module->next = modules;
	modules = module;
	*module_p = module;
	return CUDA_SUCCESS;
}

static bool
module_exists(const struct CUmod_st *module)
{
	const struct CUmod_st *each = modules;

	while (each != NULL && each != module)
		each = each->next;
	return each != NULL;
}

static int launch_run(struct operation *operation);

static bool
launch_is_of(const struct operation *operation, const void *module)
{
	if (operation->run != launch_run)
		return false;
	for (const struct CUfunc_st *each = ((const struct CUmod_st *)module)->functions; each != NULL;
	     each = each->next)
		if (each == operation->launch.function)
			return true;
	return false;
}

static int
module_unload(struct CUmod_st *module)
{
	struct CUmod_st **at = &modules;

	if (!module_exists(module))
		return CUDA_ERROR_INVALID_HANDLE;
	if (programs_have(launch_is_of, module))
		return entry_poison(CUDA_ERROR_ILLEGAL_ADDRESS, "a module is unloaded that a capture or a graph uses");
	while (*at != module)
		at = &(*at)->next;
	*at = module->next;
	while (module->functions != NULL) {
		struct CUfunc_st *next = module->functions->next;

		free(module->functions);
		module->functions = next;
	}
	if (module->library != NULL)
		library_unload(module);
	free(module);
	return CUDA_SUCCESS;
}

/* A cubin that was made from other source than what is built in would launch what it does not hold. */
static int
cubin_compare(const void *cubin, const struct simt_kernel *kernel)
{
	struct cubin_kernel found;

	if (!cubin_find(cubin, kernel->name, &found))
		return CUDA_ERROR_NOT_FOUND;
	if (found.params_size == kernel->params_size && found.max_threads == kernel->max_threads &&
	    found.n_cluster_blocks == kernel->n_cluster_blocks)
		return CUDA_SUCCESS;
	fprintf(stderr,
		"# fake-cuda: %s: the cubin has %u bytes of parameters, %u threads, clusters of %u; here %zu, %u, %u\n",
		kernel->name, found.params_size, found.max_threads, found.n_cluster_blocks, kernel->params_size,
		kernel->max_threads, kernel->n_cluster_blocks);
	return CUDA_ERROR_INVALID_IMAGE;
}

static const struct simt_kernel *
kernel_find(const struct CUmod_st *module, const char *name)
{
	const struct simt_kernel *kernel = simt_first();

	while (kernel != NULL && (kernel->module != module || strcmp(kernel->name, name) != 0))
		kernel = kernel->next;
	return kernel;
}

static int
module_function(struct CUfunc_st **function_p, struct CUmod_st *module, const char *name)
{
	const struct simt_kernel *kernel;
	struct CUfunc_st *function;
	int result = CUDA_SUCCESS;

	if (!module_exists(module))
		return CUDA_ERROR_INVALID_HANDLE;
	kernel = kernel_find(module->library != NULL ? module : NULL, name);
	/* Sources have kernels of clusters for compute capability 9.0 and later only. */
	if (kernel == NULL || (kernel->n_cluster_blocks > 1 && module->arch < 90))
		return CUDA_ERROR_NOT_FOUND;
	if (module->cubin != NULL)
		result = cubin_compare(module->cubin, kernel);
	if (result != CUDA_SUCCESS)
		return result;
	function = calloc(1, sizeof(*function));
	if (function == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*function = (struct CUfunc_st){
		.next = module->functions,
		.kernel = kernel,
		.arch = module->arch,
		.max_shared = DEFAULT_SHARED,
		.carveout = CARVEOUT_DEFAULT,
	};
	module->functions = function;
	*function_p = function;
	return CUDA_SUCCESS;
}

static bool
function_exists(const struct CUfunc_st *function)
{
	for (const struct CUmod_st *module = modules; module != NULL; module = module->next)
		for (const struct CUfunc_st *each = module->functions; each != NULL; each = each->next)
			if (each == function)
				return true;
	return false;
}

static int
function_attribute(int *value, int attribute, const struct CUfunc_st *function)
{
	if (!function_exists(function))
		return CUDA_ERROR_INVALID_HANDLE;
	switch (attribute) {
	case CUDA_FUNCTION_LOCAL_SIZE:
		*value = 0;
		return CUDA_SUCCESS;
	case CUDA_FUNCTION_REGISTERS:
		*value = 32;
		return CUDA_SUCCESS;
	case CUDA_FUNCTION_PTX_VERSION:
		*value = function->arch;
		return CUDA_SUCCESS;
	case CUDA_FUNCTION_MAX_DYNAMIC_SHARED:
		*value = function->max_shared;
		return CUDA_SUCCESS;
	case CUDA_FUNCTION_SHARED_CARVEOUT:
		*value = function->carveout;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static int
function_set(struct CUfunc_st *function, int attribute, int value)
{
	if (!function_exists(function))
		return CUDA_ERROR_INVALID_HANDLE;
	switch (attribute) {
	case CUDA_FUNCTION_MAX_DYNAMIC_SHARED:
		if (value < 0 || value > device_attribute_of(context_now()->device, CUDA_DEVICE_SHARED_PER_BLOCK_OPTIN))
			return CUDA_ERROR_INVALID_VALUE;
		function->max_shared = value;
		return CUDA_SUCCESS;
	case CUDA_FUNCTION_SHARED_CARVEOUT:
		if (value < CARVEOUT_DEFAULT || value > CUDA_CARVEOUT_MAX_SHARED)
			return CUDA_ERROR_INVALID_VALUE;
		function->carveout = value;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static int
occupancy(int *n_blocks, const struct CUfunc_st *function, int n_threads, size_t shared_size)
{
	size_t by_shared = (228u << 10) / (shared_size + 1024), by_threads;

	if (!function_exists(function) || n_threads <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	by_threads = 2048 / (unsigned int)n_threads;
	if ((unsigned int)n_threads > function->kernel->max_threads || shared_size > (size_t)function->max_shared)
		by_threads = 0;
	*n_blocks = (int)(by_shared < by_threads ? by_shared : by_threads);
	return CUDA_SUCCESS;
}

/* Two multiprocessors have a cluster each for as many blocks as one of them has. */
static int
cluster_occupancy(int *n_clusters, const struct CUfunc_st *function, const struct cuda_launch_config *config)
{
	int n_blocks, result = occupancy(&n_blocks, function, (int)config->block_x, config->shared_size);

	if (result != CUDA_SUCCESS)
		return result;
	if (function->kernel->n_cluster_blocks != 2 || config->n_attributes != 0)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (config->grid_x == 0 || config->grid_x % function->kernel->n_cluster_blocks != 0)
		return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	*n_clusters = n_blocks * (device_attribute_of(context_now()->device, CUDA_DEVICE_MULTIPROCESSORS) / 2);
	return CUDA_SUCCESS;
}

/* Launches */

static void
launch_log(const char *kernel)
{
	const char *path = getenv("PAGED_FAKE_CUDA_RUNS");
	FILE *file = path != NULL ? fopen(path, "ae") : NULL;

	if (file == NULL)
		return;
	fprintf(file, "%d %s\n", (int)getpid(), kernel);
	fclose(file);
}

static int
launch_run(struct operation *operation)
{
	static uint64_t n_launches;
	uint64_t seed = entry_setting("PAGED_FAKE_CUDA_SEED", 0);
	cuda_device device = operation->launch.device;
	char message[512];
	struct simt_launch launch;
	bool good;

	if (!function_exists(operation->launch.function))
		return entry_poison(CUDA_ERROR_ILLEGAL_ADDRESS, "launch of a kernel whose module was unloaded");
	launch = (struct simt_launch){
		.kernel = operation->launch.function->kernel,
		.params = operation->data,
		.grid = { operation->launch.grid[0], operation->launch.grid[1] },
		.n_threads = operation->launch.n_threads,
		.shared_size = operation->launch.shared_size,
		.dependent = operation->launch.dependent,
		.seed = seed > 1 ? seed + n_launches++ : seed,
	};

	launch_log(launch.kernel->name);
	memory_open(device);
	good = simt_run(&launch, message, sizeof(message));
	memory_close(device);
	return good ? CUDA_SUCCESS : entry_poison(CUDA_ERROR_ILLEGAL_ADDRESS, "%s", message);
}

static int
launch_check(const struct CUfunc_st *function, const unsigned int grid[3], const unsigned int block[3],
	     unsigned int shared_size)
{
	if (!function_exists(function))
		return CUDA_ERROR_INVALID_HANDLE;
	if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || grid[0] > 0x7fffffff || grid[1] > 65535 || block[0] == 0 ||
	    block[0] > 1024)
		return CUDA_ERROR_INVALID_VALUE;
	if (block[0] > function->kernel->max_threads)
		return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
	if (grid[0] % function->kernel->n_cluster_blocks != 0)
		return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	/* Legal for CUDA, but not for simt.h. */
	if (grid[2] != 1 || block[1] != 1 || block[2] != 1 || block[0] % 32 != 0)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (shared_size > (unsigned int)function->max_shared)
		return CUDA_ERROR_INVALID_VALUE;
	/* Legal for CUDA, where fewer blocks than fit may then run on a multiprocessor. */
	return shared_size > DEFAULT_SHARED && function->carveout == CARVEOUT_DEFAULT ? CUDA_ERROR_NOT_SUPPORTED
										      : CUDA_SUCCESS;
}

static int
launch(struct CUfunc_st *function, const unsigned int grid[3], const unsigned int block[3], unsigned int shared_size,
       cuda_stream handle, bool dependent, void **parameters, void **extra)
{
	int result = launch_check(function, grid, block, shared_size);
	struct operation *operation;
	struct CUstream_st *stream;

	if (result == CUDA_SUCCESS)
		result = stream_admit(handle, &stream);
	if (result != CUDA_SUCCESS)
		return result;
	if (extra != NULL || (parameters == NULL && function->kernel->params_size > 0))
		return CUDA_ERROR_INVALID_VALUE;
	operation = stream_operation(function->kernel->params_size, launch_run);
	if (operation == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(operation->data, parameters[0], function->kernel->params_size);
	operation->launch.function = function;
	operation->launch.grid[0] = grid[0];
	operation->launch.grid[1] = grid[1];
	operation->launch.n_threads = block[0];
	operation->launch.shared_size = shared_size;
	operation->launch.device = stream->context->device;
	operation->launch.dependent = dependent;
	stream_add(stream, operation);
	return CUDA_SUCCESS;
}

/* The only attribute is CUDA_LAUNCH_DEPENDENT. */
static int
launch_ex(const struct cuda_launch_config *config, struct CUfunc_st *function, void **parameters, void **extra)
{
	bool dependent = false;

	if (config == NULL || (config->n_attributes > 0 && config->attributes == NULL))
		return CUDA_ERROR_INVALID_VALUE;
	if (!function_exists(function))
		return CUDA_ERROR_INVALID_HANDLE;
	for (unsigned int i = 0; i < config->n_attributes; i++) {
		if (config->attributes[i].id != CUDA_LAUNCH_DEPENDENT)
			return CUDA_ERROR_INVALID_VALUE;
		dependent = config->attributes[i].value.allowed != 0;
	}
	if (dependent &&
	    (function->arch < 90 || device_attribute_of(context_now()->device, CUDA_DEVICE_COMPUTE_MAJOR) < 9))
		return CUDA_ERROR_NOT_SUPPORTED;
	return launch(function, (const unsigned int[]){ config->grid_x, config->grid_y, config->grid_z },
		      (const unsigned int[]){ config->block_x, config->block_y, config->block_z }, config->shared_size,
		      config->stream, dependent, parameters, extra);
}

ENTRY(cuModuleLoadData, (cuda_module * module, const void *image), ENTRY_UNSAFE, module_load(module, image))
ENTRY(cuModuleUnload, (cuda_module module), ENTRY_UNSAFE, module_unload(module))
ENTRY(cuModuleGetFunction, (cuda_function * function, cuda_module module, const char *name), ENTRY_CONTEXT,
      module_function(function, module, name))
ENTRY(cuFuncGetAttribute, (int *value, int attribute, cuda_function function), ENTRY_DRIVER,
      function_attribute(value, attribute, function))
ENTRY(cuFuncSetAttribute, (cuda_function function, int attribute, int value), ENTRY_CONTEXT,
      function_set(function, attribute, value))
ENTRY(cuOccupancyMaxActiveBlocksPerMultiprocessor,
      (int *n_blocks, cuda_function function, int n_threads, size_t shared_size), ENTRY_CONTEXT,
      occupancy(n_blocks, function, n_threads, shared_size))
ENTRY(cuOccupancyMaxActiveClusters, (int *n_clusters, cuda_function function, const struct cuda_launch_config *config),
      ENTRY_CONTEXT, cluster_occupancy(n_clusters, function, config))
ENTRY(cuLaunchKernel,
      (cuda_function function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
       unsigned int block_y, unsigned int block_z, unsigned int shared_size, cuda_stream stream, void **parameters,
       void **extra),
      ENTRY_CONTEXT,
      launch(function, (const unsigned int[]){ grid_x, grid_y, grid_z },
	     (const unsigned int[]){ block_x, block_y, block_z }, shared_size, stream, false, parameters, extra))
ENTRY(cuLaunchKernelEx,
      (const struct cuda_launch_config *config, cuda_function function, void **parameters, void **extra), ENTRY_CONTEXT,
      launch_ex(config, function, parameters, extra))
