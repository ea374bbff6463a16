/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/gpu/conformance_run.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/host/gpu.h"
#include "tests/fake-cuda/simt_run.h"
#include "tests/fake-cuda/tensor_map.h"
#include "tests/fake-cuda/image.h"
#include "tests/system/cuda/cuda_daemon.h"
#include "tests/gpu/conformance.h"
#include "tests/fake-cuda/load.h"

#define NEWEST_CODE 109 /* devices after these run the PTX of conformance.fatbin (CUDA_ARCHS) */

#define WORD sizeof(uint32_t)
#define WORDS_OF_LINE 8

/* Bytes from an element to the next one of each dimension. */
static void
tensor_strides(const struct conformance_tensor *tensor, uint64_t strides[TENSOR_MAP_RANK])
{
	strides[0] = TENSOR_MAP_ELEMENT;
	for (unsigned int i = 1; i < TENSOR_MAP_RANK; i++)
		strides[i] = strides[i - 1] * tensor->dims[i - 1];
}

/* The models */

static void
model_map(const struct conformance_tensor *tensor, const uint32_t *in, struct cuda_tensor_map *to)
{
	struct tensor_map map = { .magic = TENSOR_MAP_MAGIC, .address = (uintptr_t)in };

	tensor_strides(tensor, map.stride);
	for (unsigned int i = 0; i < TENSOR_MAP_RANK; i++) {
		map.dim[i] = (uint32_t)tensor->dims[i];
		map.box[i] = tensor->box[i];
	}
	memcpy(to, &map, sizeof(map));
}

void
conformance_model(const struct conformance_launch *launch, const uint32_t *in, uint32_t *out)
{
	struct conformance_params params = { .in = in, .out = out, .n = launch->n_items };
	char name[64], report[512];
	struct simt_launch simt = {
		.params = &params,
		.grid = { launch->n_blocks, launch->n_blocks_y },
		.n_threads = launch->n_threads,
		.shared_size = CONFORMANCE_SHARED,
		.seed = 7,
	};

	conformance_link();
	if (launch->tensor != NULL)
		model_map(launch->tensor, in, &params.map);
	snprintf(name, sizeof(name), "conformance_%s", launch->kernel);
	simt.kernel = simt_find(name);
	it_require(simt.kernel != NULL, "no kernel %s", name);
	memset(out, 0, launch->n_out * WORD);
	it_require(simt_region_add(in, launch->n_in * WORD, false, "in"));
	it_require(simt_region_add(out, launch->n_out * WORD, true, "out"));
	for (unsigned int step = 0; step == 0 || step < launch->n_steps; step++) {
		params.n = launch->n_steps > 0 ? step : launch->n_items;
		simt.dependent = step > 0;
		it_require(simt_run(&simt, report, sizeof(report)), "%s", report);
	}
	simt_region_remove(in);
	simt_region_remove(out);
}

/* Records: "launch NAME WORDS WORDS", then the words in and those out. */

static void
words_write(FILE *file, const uint32_t *words, size_t n)
{
	for (size_t i = 0; i < n; i++)
		fprintf(file, "%" PRIx32 "%c", words[i],
			i + 1 == n || i % WORDS_OF_LINE == WORDS_OF_LINE - 1 ? '\n' : ' ');
}

static void
record_append(const char *path, const struct conformance_launch *launch, const uint32_t *in, const uint32_t *out)
{
	FILE *file = fopen(path, "ae");

	it_require(file != NULL, "%s: %s", path, strerror(errno));
	fprintf(file, "launch %s %zu %zu\n", launch->record, launch->n_in, launch->n_out);
	words_write(file, in, launch->n_in);
	words_write(file, out, launch->n_out);
	it_require(fclose(file) == 0, "%s: %s", path, strerror(errno));
}

static void
words_read(FILE *file, uint32_t *words, size_t n, const char *record)
{
	for (size_t i = 0; i < n; i++)
		it_require(fscanf(file, "%" SCNx32, &words[i]) == 1, "record of %s: word %zu is no number", record, i);
}

static void
record_read(const char *path, const struct conformance_launch *launch, uint32_t *in, uint32_t *out)
{
	FILE *file = fopen(path, "re");
	char line[256], name[64];
	size_t n_in, n_out;

	it_require(file != NULL, "%s: %s", path, strerror(errno));
	while (fgets(line, sizeof(line), file) != NULL) {
		if (sscanf(line, "launch %63s %zu %zu", name, &n_in, &n_out) != 3 || strcmp(name, launch->record) != 0)
			continue;
		it_require(n_in == launch->n_in && n_out == launch->n_out,
			   "record of %s: %zu words in and %zu out, %zu and %zu expected", name, n_in, n_out,
			   launch->n_in, launch->n_out);
		words_read(file, in, n_in, name);
		words_read(file, out, n_out, name);
		fclose(file);
		return;
	}
	if (launch->capability != 0)
		it_skip("no record of an sm_%d device", launch->capability);
	it_require(!"the record has this launch", "%s: no %s", path, launch->record);
}

/* The device */

#define ok(gpu, call)                                                                                 \
	do {                                                                                          \
		struct paged_error error_;                                                            \
		it_require(cuda_gpu_check(gpu, call, #call, &error_) == PAGED_OK, "%s", error_.text); \
	} while (0)

/* For a GPU the kernels that nvcc compiled; NULL: there are none. */
static void *
image_read(void)
{
	FILE *file = fopen(it_build_path("tests/gpu/conformance.fatbin"), "re");
	char *image = NULL;
	long size;

	if (file == NULL)
		return NULL;
	if (fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) > 0 && fseek(file, 0, SEEK_SET) == 0) {
		image = malloc((size_t)size);
		it_require(image != NULL && fread(image, 1, (size_t)size, file) == (size_t)size);
	}
	fclose(file);
	return image;
}

/*
 * Steps after the first are dependent launches where the device and the image have them, except for one in three: as a
 * kernel of another program may be among the library's.
 */
static void
device_launch(const struct cuda_gpu *gpu, cuda_function function, const struct conformance_launch *launch,
	      struct conformance_params *params, cuda_stream stream, unsigned int step)
{
	struct cuda_launch_attribute dependent = { .id = CUDA_LAUNCH_DEPENDENT, .value.allowed = 1 };
	const struct cuda_launch_config config = { .grid_x = launch->n_blocks,
						   .grid_y = launch->n_blocks_y,
						   .grid_z = 1,
						   .block_x = launch->n_threads,
						   .block_y = 1,
						   .block_z = 1,
						   .shared_size = CONFORMANCE_SHARED,
						   .stream = stream,
						   .attributes = &dependent,
						   .n_attributes = 1 };
	int arch = 0;

	params->n = launch->n_steps > 0 ? step : launch->n_items;
	ok(gpu, gpu->driver.function_attribute(&arch, CUDA_FUNCTION_PTX_VERSION, function));
	if (step % 3 > 0 && arch >= 90 && gpu->driver.launch_ex != NULL)
		ok(gpu, gpu->driver.launch_ex(&config, function, (void *[]){ params }, NULL));
	else
		ok(gpu, gpu->driver.launch(function, launch->n_blocks, launch->n_blocks_y, 1, launch->n_threads, 1, 1,
					   CONFORMANCE_SHARED, stream, (void *[]){ params }, NULL));
}

static void
device_map(const struct cuda_gpu *gpu, const struct conformance_tensor *tensor, cuda_address in,
	   struct cuda_tensor_map *map)
{
	static const uint32_t steps[TENSOR_MAP_RANK] = { 1, 1, 1, 1 };
	uint64_t strides[TENSOR_MAP_RANK];

	if (gpu->driver.tensor_map_encode == NULL)
		it_skip("the driver has no cuTensorMapEncodeTiled");
	tensor_strides(tensor, strides);
	ok(gpu, gpu->driver.tensor_map_encode(map, CUDA_TENSOR_U16, TENSOR_MAP_RANK, in, tensor->dims, strides + 1,
					      tensor->box, steps, CUDA_TENSOR_INTERLEAVE_NONE, CUDA_TENSOR_SWIZZLE_128B,
					      CUDA_TENSOR_L2_PROMOTION_128B, CUDA_TENSOR_FILL_ZERO));
}

static void
device_run(const struct cuda_gpu *gpu, const void *image, const struct conformance_launch *launch, const uint32_t *in,
	   uint32_t *out)
{
	struct conformance_params params = { .n = 0 };
	cuda_stream stream;
	cuda_address device_in, device_out;
	cuda_function function;
	cuda_module module;
	char name[64];

	snprintf(name, sizeof(name), "conformance_%s", launch->kernel);
	ok(gpu, gpu->driver.module_load(&module, image));
	ok(gpu, gpu->driver.module_function(&function, module, name));
	ok(gpu, gpu->driver.alloc(&device_in, launch->n_in * WORD));
	ok(gpu, gpu->driver.alloc(&device_out, launch->n_out * WORD));
	ok(gpu, gpu->driver.stream_create(&stream, CUDA_STREAM_NON_BLOCKING));
	ok(gpu, gpu->driver.copy_in(device_in, in, launch->n_in * WORD, stream));
	ok(gpu, gpu->driver.fill(device_out, 0, launch->n_out * WORD, stream));
	if (launch->tensor != NULL)
		device_map(gpu, launch->tensor, device_in, &params.map);
	params.in = (const uint32_t *)(uintptr_t)device_in;
	params.out = (uint32_t *)(uintptr_t)device_out;
	for (unsigned int step = 0; step == 0 || step < launch->n_steps; step++)
		device_launch(gpu, function, launch, &params, stream, step);
	ok(gpu, gpu->driver.copy_out(out, device_out, launch->n_out * WORD, stream));
	ok(gpu, gpu->driver.stream_synchronize(stream));
	ok(gpu, gpu->driver.stream_destroy(stream));
	ok(gpu, gpu->driver.free(device_in));
	ok(gpu, gpu->driver.free(device_out));
	ok(gpu, gpu->driver.module_unload(module));
}

void
conformance_device(const struct conformance_launch *launch, uint32_t *in, uint32_t *out)
{
	const char *record = getenv("PAGED_CONFORMANCE_RECORD"), *replay = getenv("PAGED_CONFORMANCE_REPLAY");
	struct paged_error error;
	struct cuda_gpu gpu;
	void *image = NULL;
	int capability;

	if (replay != NULL) {
		record_read(replay, launch, in, out);
		return;
	}
	cuda_daemon_environment();
	it_require(fake_cuda_load(), "%s", dlerror());
	if (!fake_cuda_wanted() && (image = image_read()) == NULL)
		it_skip("no tests/gpu/conformance.fatbin: make gpu-tests where the CUDA toolkit is");
	it_require(cuda_gpu_open(&gpu, "0", &error) == PAGED_OK, "%s", error.text);
	it_require(cuda_gpu_enter(&gpu, &error) == PAGED_OK, "%s", error.text);
	it_note("%s, %s", gpu.name, gpu.isa);
	capability = 10 * cuda_gpu_attribute(&gpu, CUDA_DEVICE_COMPUTE_MAJOR) +
		     cuda_gpu_attribute(&gpu, CUDA_DEVICE_COMPUTE_MINOR);
	if (launch->capability != 0 && launch->capability != capability &&
	    (!launch->or_later || capability < launch->capability))
		it_skip("only devices of sm_%d%s have these instructions", launch->capability,
			launch->or_later ? " and later" : "");
	if (launch->capability != 0 && capability > NEWEST_CODE)
		it_skip("conformance.fatbin has PTX of sm_80 alone for a device of sm_%d", capability);
	device_run(&gpu, image != NULL ? image : FAKE_CUDA_BUILT_IN, launch, in, out);
	cuda_gpu_leave(&gpu);
	cuda_gpu_close(&gpu);
	free(image);
	if (record != NULL)
		record_append(record, launch, in, out);
}
