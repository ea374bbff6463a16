/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/gpu/gpu.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench/base.h"
#include "bench/processes.h"
#include "bench/random.h"

#define CAPTURE_THREAD_LOCAL 1
#define CLOCK_RATE 13 /* attributes, kHz */
#define MEMORY_CLOCK_RATE 36
#define FILL_BLOCK (4u << 20)
#define READER_MAX_BLOCKS 8u /* per multiprocessor: fills all its threads */

/* An image without kernels.  The tests' fake driver finds its own kernels in any module; a GPU finds none in this. */
static const char no_kernels[] = "// no kernels\n.version 7.0\n.target sm_80\n.address_size 64\n";

struct bench_gpu bench_gpu;

void
bench_gpu_check(int result, const char *call)
{
	struct paged_error error = { 0 };

	if (cuda_gpu_check(&bench_gpu.cuda, result, call, &error) != PAGED_OK)
		bench_die("%s", error.text);
}

/* Memory */

cuda_address
bench_gpu_alloc(size_t size)
{
	cuda_address address;

	bench_gpu_must(bench_gpu.cuda.driver.alloc(&address, size));
	return address;
}

cuda_address
bench_gpu_put(const void *data, size_t size)
{
	cuda_address address = bench_gpu_alloc(size);

	bench_gpu_must(bench_gpu.cuda.driver.copy_in(address, data, size, bench_gpu.stream));
	bench_gpu_must(bench_gpu.cuda.driver.stream_synchronize(bench_gpu.stream));
	return address;
}

/* Copy one block from the host, then double the filled part on the device. */
void
bench_gpu_fill(cuda_address address, size_t size, enum paged_dtype dtype)
{
	size_t done = size < FILL_BLOCK ? size : FILL_BLOCK;
	void *block = bench_alloc(1, FILL_BLOCK);

	bench_fill(block, FILL_BLOCK, dtype);
	bench_gpu_must(bench_gpu.cuda.driver.copy_in(address, block, done, bench_gpu.stream));
	while (done < size) {
		size_t n = size - done < done ? size - done : done;

		bench_gpu_must(bench_gpu.cuda.driver.copy(address + done, address, n, bench_gpu.stream));
		done += n;
	}
	bench_gpu_must(bench_gpu.cuda.driver.stream_synchronize(bench_gpu.stream));
	free(block);
}

/* Graphs */

struct bench_gpu_graph
bench_gpu_graph(bench_gpu_work_fn *work, void *argument, double n_parts)
{
	struct bench_gpu_graph graph = { .n_parts = n_parts };
	void *captured;

	work(argument);
	bench_gpu_must(bench_gpu.cuda.driver.stream_synchronize(bench_gpu.stream));
	bench_gpu_must(bench_gpu.capture_begin(bench_gpu.stream, CAPTURE_THREAD_LOCAL));
	work(argument);
	bench_gpu_must(bench_gpu.capture_end(bench_gpu.stream, &captured));
	bench_gpu_must(bench_gpu.instantiate(&graph.executable, captured, 0));
	return graph;
}

double
bench_gpu_graph_us(const struct bench_gpu_graph *graph)
{
	const struct cuda_driver *driver = &bench_gpu.cuda.driver;
	float ms;

	bench_gpu_must(driver->event_record(bench_gpu.start, bench_gpu.stream));
	bench_gpu_must(bench_gpu.graph_launch(graph->executable, bench_gpu.stream));
	bench_gpu_must(driver->event_record(bench_gpu.stop, bench_gpu.stream));
	bench_gpu_must(driver->event_synchronize(bench_gpu.stop));
	bench_gpu_must(bench_gpu.elapsed(&ms, bench_gpu.start, bench_gpu.stop));
	return (double)ms * 1e3 / graph->n_parts;
}

/* The kernels of gpu_reader.cu */

static cuda_function
bench_gpu_function(const void *image, const char *name)
{
	cuda_function function;
	cuda_module module;
	int result;

	bench_gpu_must(bench_gpu.cuda.driver.module_load(&module, image != NULL ? image : no_kernels));
	result = bench_gpu.cuda.driver.module_function(&function, module, name);
	if (result == CUDA_ERROR_NOT_FOUND)
		bench_die("no kernel %s for %s: build it where the CUDA toolkit is (make gpu-tests)", name,
			  bench_gpu.cuda.isa);
	bench_gpu_must(result);
	return function;
}

/* The device */

void
bench_gpu_open(void)
{
	const struct cuda_driver *driver = &bench_gpu.cuda.driver;
	const char *path = bench_find_file("bench/gpu/gpu_reader.fatbin");
	int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	struct paged_error error = { 0 };
	void *image = NULL;

	bench_must(cuda_gpu_open(&bench_gpu.cuda, "0", &error), &error);
	bench_must(cuda_gpu_enter(&bench_gpu.cuda, &error), &error);
#define GPU_FIND(symbol, field, parameters)                           \
	*(void **)&bench_gpu.field = dlsym(driver->library, #symbol); \
	if (bench_gpu.field == NULL)                                  \
		bench_die("the CUDA driver has no " #symbol);
	BENCH_GPU_FUNCTIONS(GPU_FIND)
#undef GPU_FIND
	bench_gpu.n_multiprocessors = (uint32_t)cuda_gpu_attribute(&bench_gpu.cuda, CUDA_DEVICE_MULTIPROCESSORS);
	bench_gpu.reader_blocks = bench_gpu.n_multiprocessors * READER_MAX_BLOCKS;
	bench_gpu_must(driver->stream_create(&bench_gpu.stream, CUDA_STREAM_NON_BLOCKING));
	bench_gpu_must(driver->event_create(&bench_gpu.start, 0));
	bench_gpu_must(driver->event_create(&bench_gpu.stop, 0));
	bench_gpu.out = bench_gpu_alloc(sizeof(uint32_t));
	if (fd >= 0)
		image = mmap(NULL, (size_t)lseek(fd, 0, SEEK_END), PROT_READ, MAP_PRIVATE, fd, 0);
	if (image == MAP_FAILED)
		bench_die("%s: %m", path);
	bench_gpu.reader = bench_gpu_function(image, "gpu_reader");
	bench_gpu.copy_pages = bench_gpu_function(image, "copy_pages");
}

void
bench_gpu_describe(char *text, size_t size)
{
	const struct cuda_driver *driver = &bench_gpu.cuda.driver;
	FILE *pipe = popen("nvidia-smi --format=csv,noheader --query-gpu=driver_version,clocks.sm,clocks.mem,"
			   "clocks.max.sm,power.limit,ecc.mode.current 2>/dev/null",
			   "re");
	char smi[256] = "";
	size_t memory = 0;

	driver->device_memory(&memory, bench_gpu.cuda.device);
	if (pipe == NULL || fgets(smi, sizeof(smi), pipe) == NULL)
		smi[0] = 0;
	smi[strcspn(smi, "\n")] = 0;
	if (pipe != NULL)
		pclose(pipe);
	snprintf(text, size, "%s (%s, %u multiprocessors, %.1f GiB, at most %d MHz, memory %d MHz), CUDA %d.%d%s%s",
		 bench_gpu.cuda.name, bench_gpu.cuda.isa, bench_gpu.n_multiprocessors, (double)memory / (1 << 30),
		 cuda_gpu_attribute(&bench_gpu.cuda, CLOCK_RATE) / 1000,
		 cuda_gpu_attribute(&bench_gpu.cuda, MEMORY_CLOCK_RATE) / 1000, driver->version / 1000,
		 driver->version % 1000 / 10, smi[0] != 0 ? "; driver, clocks, limit, ECC: " : "", smi);
}
