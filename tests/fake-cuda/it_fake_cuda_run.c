/* SPDX-License-Identifier: Apache-2.0 */
/* The fake CUDA driver: streams, events between processes, launches, compiling, injected failures. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fake-cuda/fixture.h"
#include "kernels/cuda/host/nvrtc.h"
#include "tests/fake-cuda/image.h"
#include "tests/fake-cuda/kernels/simt_cases.h"

/* Streams */

IT_TEST(missing_synchronisation_is_detected)
{
	cuda_stream one, two;
	cuda_address address;
	cuda_event event;
	uint32_t *pinned;

	fake_cuda_start(0);
	ok(cuda.stream_create(&one, CUDA_STREAM_NON_BLOCKING));
	ok(cuda.stream_create(&two, CUDA_STREAM_NON_BLOCKING));
	ok(cuda.event_create(&event, CUDA_EVENT_DISABLE_TIMING));
	ok(cuda.alloc(&address, 4096));
	ok(cuda.host_alloc((void **)&pinned, 4096, 0));
	fake_cuda_write_word(address, 1);
	ok(cuda.fill(address, 2, 4, one));
	ok(cuda.event_record(event, one));
	ok(cuda.copy_out(pinned, address, 4, two));
	ok(cuda.stream_synchronize(two));
	it_require(pinned[0] == 1);
	gives(CUDA_ERROR_NOT_READY, cuda.event_query(event));
	ok(cuda.stream_wait(two, event, 0));
	ok(cuda.copy_out(pinned, address, 4, two));
	it_require(pinned[0] == 1);
	ok(cuda.stream_synchronize(two));
	it_require(pinned[0] == 0x02020202);
	ok(cuda.event_query(event));
	/* Pinned memory is read late, other memory at once. */
	pinned[0] = 7;
	ok(cuda.copy_in(address, pinned, 4, one));
	pinned[0] = 8;
	gives(CUDA_ERROR_NOT_READY, cuda.stream_query(one));
	ok(cuda.stream_query(one));
	it_require(fake_cuda_read_word(address) == 8);
	ok(cuda.event_destroy(event));
	gives(CUDA_ERROR_INVALID_HANDLE, cuda.event_record(event, one));
	ok(cuda.stream_destroy(one));
	ok(cuda.stream_destroy(two));
	gives(CUDA_ERROR_INVALID_HANDLE, cuda.stream_destroy(two));
	ok(cuda.host_free(pinned));
	fake_cuda_finish();
}

IT_TEST(legacy_stream_synchronises_with_blocking_streams)
{
	cuda_stream blocking, other;
	cuda_address address;
	int capturing = -1;

	fake_cuda_start(0);
	ok(cuda.stream_create(&blocking, 0));
	ok(cuda.stream_create(&other, CUDA_STREAM_NON_BLOCKING));
	ok(cuda.stream_capturing(other, &capturing));
	it_require(capturing == CUDA_CAPTURE_NONE);
	ok(cuda.alloc(&address, 4096));
	ok(cuda.fill(address, 1, 4, blocking));
	ok(cuda.fill(address + 4, 1, 4, other));
	it_require(fake_cuda_read_word(address) == 0x01010101);
	it_require(fake_cuda_read_word(address + 4) == 0xffffffff);
	ok(cuda.fill(address, 2, 4, NULL));
	ok(cuda.fill(address, 3, 4, blocking));
	ok(cuda.stream_synchronize(blocking));
	it_require(fake_cuda_read_word(address) == 0x03030303);
	ok(cuda.context_synchronize());
	it_require(fake_cuda_read_word(address + 4) == 0x01010101);
	fake_cuda_finish();
}

/* Fills and records, and never waits for its own stream. */
static void
event_exporter(int from, int to, __attribute__((unused)) void *argument)
{
	struct {
		struct cuda_ipc_handle memory, event;
	} said;
	cuda_address address;
	cuda_stream stream;
	cuda_event event;
	int word;

	fake_cuda_start(0);
	gives(CUDA_ERROR_INVALID_VALUE, cuda.event_create(&event, CUDA_EVENT_INTERPROCESS));
	ok(cuda.event_create(&event, CUDA_EVENT_INTERPROCESS | CUDA_EVENT_DISABLE_TIMING));
	ok(cuda.stream_create(&stream, CUDA_STREAM_NON_BLOCKING));
	ok(cuda.alloc(&address, 4096));
	fake_cuda_write_word(address, 0);
	ok(cuda.ipc_export(&said.memory, address));
	ok(cuda.ipc_export_event(&said.event, event));
	it_send(to, &said, sizeof(said));
	it_receive(from, &word, sizeof(word));
	ok(cuda.fill(address, 9, 4, stream));
	ok(cuda.event_record(event, stream));
	it_send(to, &word, sizeof(word));
	it_receive(from, &word, sizeof(word));
	ok(cuda.event_destroy(event));
	it_send(to, &word, sizeof(word));
	it_receive(from, &word, sizeof(word));
}

IT_TEST(ipc_event_orders_two_processes)
{
	struct {
		struct cuda_ipc_handle memory, event;
	} heard;
	struct it_worker worker;
	cuda_address address;
	cuda_stream stream;
	cuda_event event;
	int word = 0;

	it_fork(&worker, event_exporter, NULL);
	fake_cuda_start(0);
	it_receive(worker.from, &heard, sizeof(heard));
	ok(cuda.ipc_open(&address, heard.memory, CUDA_IPC_LAZY_PEER_ACCESS));
	ok(cuda.ipc_open_event(&event, heard.event));
	ok(cuda.stream_create(&stream, CUDA_STREAM_NON_BLOCKING));
	/* A wait for an event that was never recorded has no effect; after a record it does. */
	ok(cuda.stream_wait(stream, event, 0));
	ok(cuda.stream_synchronize(stream));
	it_send(worker.to, &word, sizeof(word));
	it_receive(worker.from, &word, sizeof(word));
	it_require(fake_cuda_read_word(address) == 0);
	gives(CUDA_ERROR_NOT_READY, cuda.event_query(event));
	ok(cuda.stream_wait(stream, event, 0));
	ok(cuda.stream_synchronize(stream));
	it_require(fake_cuda_read_word(address) == 0x09090909);
	ok(cuda.event_query(event));
	ok(cuda.event_destroy(event));
	it_send(worker.to, &word, sizeof(word));
	it_receive(worker.from, &word, sizeof(word));
	gives(CUDA_ERROR_INVALID_HANDLE, cuda.ipc_open_event(&event, heard.event));
	it_send(worker.to, &word, sizeof(word));
	it_join(&worker);
	gives(CUDA_ERROR_INVALID_VALUE, cuda.ipc_open_event(&event, heard.memory));
	fake_cuda_finish();
}

/* Undefined with CUDA, and an error here. */
static void
event_destroyer(int from, int to, __attribute__((unused)) void *argument)
{
	struct cuda_ipc_handle handle;
	cuda_address address;
	cuda_stream stream;
	cuda_event event;
	int word;

	fake_cuda_start(0);
	ok(cuda.event_create(&event, CUDA_EVENT_INTERPROCESS | CUDA_EVENT_DISABLE_TIMING));
	ok(cuda.stream_create(&stream, CUDA_STREAM_NON_BLOCKING));
	ok(cuda.alloc(&address, 4096));
	ok(cuda.ipc_export_event(&handle, event));
	ok(cuda.fill(address, 9, 4, stream));
	ok(cuda.event_record(event, stream));
	it_send(to, &handle, sizeof(handle));
	it_receive(from, &word, sizeof(word));
	ok(cuda.event_destroy(event));
	it_send(to, &word, sizeof(word));
	it_receive(from, &word, sizeof(word));
}

/* In a separate process: after such an error nothing can be released. */
static void
event_waiter(int from, int to, void *argument)
{
	const struct cuda_ipc_handle *handle = argument;
	cuda_stream stream;
	cuda_event event;
	int word = 0;

	fake_cuda_start(0);
	ok(cuda.ipc_open_event(&event, *handle));
	ok(cuda.stream_create(&stream, CUDA_STREAM_NON_BLOCKING));
	ok(cuda.stream_wait(stream, event, 0));
	it_send(to, &word, sizeof(word));
	it_receive(from, &word, sizeof(word));
	gives(CUDA_ERROR_UNKNOWN, cuda.stream_synchronize(stream));
}

IT_TEST(destroying_an_event_in_use_is_an_error)
{
	struct it_worker destroyer, waiter;
	struct cuda_ipc_handle handle;
	int word;

	it_fork(&destroyer, event_destroyer, NULL);
	it_receive(destroyer.from, &handle, sizeof(handle));
	it_fork(&waiter, event_waiter, &handle);
	it_receive(waiter.from, &word, sizeof(word));
	it_send(destroyer.to, &word, sizeof(word));
	it_receive(destroyer.from, &word, sizeof(word));
	it_send(waiter.to, &word, sizeof(word));
	it_join(&waiter);
	it_send(destroyer.to, &word, sizeof(word));
	it_join(&destroyer);
}

/* Launches */

static cuda_function
function_of(const char *name)
{
	cuda_function function;
	cuda_module module;

	ok(cuda.module_load(&module, FAKE_CUDA_BUILT_IN));
	gives(CUDA_ERROR_NOT_FOUND, cuda.module_function(&function, module, "no_such_kernel"));
	ok(cuda.module_function(&function, module, name));
	return function;
}

static int
launch(cuda_function function, unsigned int n_threads, unsigned int shared_size, void *params)
{
	return cuda.launch(function, 1, 1, 1, n_threads, 1, 1, shared_size, NULL, (void *[]){ params }, NULL);
}

IT_TEST(kernels_run_when_waited_for)
{
	struct simt_reverse_params p = { 0 };
	cuda_function function;
	cuda_address in, out;
	int value;

	fake_cuda_start(0);
	gives(CUDA_ERROR_INVALID_IMAGE, cuda.module_load(&(cuda_module){ 0 }, "no image"));
	function = function_of("simt_case_reverse");
	ok(cuda.alloc(&in, 64 * 4));
	ok(cuda.alloc(&out, 64 * 4));
	ok(cuda.fill(in, 1, 64 * 4, NULL));
	fake_cuda_write_word(in, 77);
	p.in = (const uint32_t *)(uintptr_t)in;
	p.out = (uint32_t *)(uintptr_t)out;
	ok(launch(function, 64, 8192, &p));
	memset(&p, 0xff, sizeof(p)); /* the launch has copied them */
	it_require(fake_cuda_read_word(out + 63 * 4) == 77);
	gives(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, launch(function, 96, 8192, &p));
	gives(CUDA_ERROR_INVALID_VALUE, launch(function, 64, 64 << 10, &p));
	ok(cuda.function_set(function, CUDA_FUNCTION_MAX_DYNAMIC_SHARED, 64 << 10));
	ok(cuda.function_attribute(&value, CUDA_FUNCTION_MAX_DYNAMIC_SHARED, function));
	it_require(value == 64 << 10);
	gives(CUDA_ERROR_INVALID_VALUE, cuda.function_set(function, CUDA_FUNCTION_MAX_DYNAMIC_SHARED, 228 << 10));
	gives(CUDA_ERROR_NOT_SUPPORTED, launch(function, 64, 64 << 10, &p));
	gives(CUDA_ERROR_INVALID_VALUE, cuda.function_set(function, CUDA_FUNCTION_SHARED_CARVEOUT, 101));
	ok(cuda.function_set(function, CUDA_FUNCTION_SHARED_CARVEOUT, CUDA_CARVEOUT_MAX_SHARED));
	ok(cuda.function_attribute(&value, CUDA_FUNCTION_SHARED_CARVEOUT, function));
	it_require(value == CUDA_CARVEOUT_MAX_SHARED);
	ok(cuda.occupancy(&value, function, 64, 64 << 10));
	it_require(value == 3, "%d", value);
	fake_cuda_finish();
}

IT_TEST(faulting_kernel_is_a_sticky_error)
{
	struct simt_reverse_params p = { .bug = BUG_READ_PAST };
	cuda_function function;
	cuda_address address;

	fake_cuda_start(0);
	function = function_of("simt_case_reverse");
	ok(cuda.alloc(&address, 64 * 4));
	p.in = (const uint32_t *)(uintptr_t)address;
	p.out = (uint32_t *)(uintptr_t)address;
	ok(launch(function, 64, 8192, &p));
	gives(CUDA_ERROR_ILLEGAL_ADDRESS, cuda.stream_synchronize(NULL));
	gives(CUDA_ERROR_ILLEGAL_ADDRESS, cuda.stream_synchronize(NULL));
	gives(CUDA_ERROR_ILLEGAL_ADDRESS, cuda.free(address));
	fake_cuda_finish();
}

/* Compiling */

static const char source[] = "#include \"kernels/cuda/simt/simt.h\"\n"
			     "#include \"scale.h\"\n"
			     "struct parameters { float *at; uint32_t n; };\n"
			     "SIMT_KERNEL(scale_all, parameters, 64, 1)\n"
			     "{\n"
			     "	for (uint32_t i = simt_thread(); i < p.n; i += simt_n_threads())\n"
			     "		p.at[i] = scale(p.at[i]);\n"
			     "}\n";
static const char header[] = "SIMT_FUNCTION float scale(float x) { return x * SCALE; }\n";

static int
compile(const struct cuda_nvrtc *nvrtc, const char *text, const char *arch, char **image_p)
{
	const char *const options[] = { arch, "-std=c++17", "-DSCALE=3.0f" };
	cuda_program program;
	size_t size;
	int result;

	ok(nvrtc->create(&program, text, "scale.cu", 1, (const char *[]){ header }, (const char *[]){ "scale.h" }));
	result = nvrtc->compile(program, 3, options);
	ok(nvrtc->log_size(program, &size));
	*image_p = malloc(size);
	ok(nvrtc->log(program, *image_p));
	if (result == CUDA_NVRTC_SUCCESS) {
		free(*image_p);
		ok(nvrtc->cubin_size(program, &size));
		*image_p = malloc(size);
		ok(nvrtc->cubin(program, *image_p));
	}
	ok(nvrtc->destroy(&program));
	return result;
}

static void
scale_all(cuda_module module, cuda_address address)
{
	struct {
		cuda_address at;
		uint32_t n;
	} p = { address, 100 };
	cuda_function function;

	ok(cuda.module_function(&function, module, "scale_all"));
	ok(launch(function, 64, 0, &p));
}

IT_TEST(source_is_compiled_and_run)
{
	float numbers[100] = { 2.0f, [99] = 5.0f };
	struct cuda_nvrtc nvrtc;
	struct paged_error error;
	cuda_module first, second;
	cuda_address address;
	cuda_function function;
	char *image;

	fake_cuda_start(0);
	it_require(fake_cuda_load_nvrtc(), "%s", dlerror());
	it_require(cuda_nvrtc_open(&nvrtc, 12080, &error) == PAGED_OK, "%s", error.text);
	gives(CUDA_NVRTC_ERROR_COMPILATION, compile(&nvrtc, "this is no source", "-arch=sm_90", &image));
	it_require(strstr(image, "error") != NULL, "%s", image);
	free(image);
	gives(CUDA_NVRTC_ERROR_INVALID_OPTION, compile(&nvrtc, source, "--no-such-option", &image));
	free(image);
	gives(CUDA_NVRTC_SUCCESS, compile(&nvrtc, source, "-arch=sm_80", &image));
	gives(CUDA_ERROR_NO_BINARY_FOR_GPU, cuda.module_load(&first, image));
	free(image);
	gives(CUDA_NVRTC_SUCCESS, compile(&nvrtc, source, "--gpu-architecture=sm_90", &image));
	ok(cuda.module_load(&first, image));
	ok(cuda.module_load(&second, image));
	free(image);
	gives(CUDA_ERROR_NOT_FOUND, cuda.module_function(&function, first, "simt_case_reverse"));
	ok(cuda.alloc(&address, sizeof(numbers)));
	ok(cuda.copy_in(address, numbers, sizeof(numbers), NULL));
	scale_all(first, address);
	ok(cuda.stream_synchronize(NULL));
	ok(cuda.module_unload(first));
	scale_all(second, address);
	ok(cuda.copy_out(numbers, address, sizeof(numbers), NULL));
	it_require(numbers[0] == 18.0f && numbers[99] == 45.0f);
	ok(cuda.module_unload(second));
	cuda_nvrtc_close(&nvrtc);
	fake_cuda_finish();
}

/* wgmma is in no code but that of sm_90a. */
IT_TEST(architecture_specific_source)
{
	static const char text[] = "#include \"kernels/cuda/simt/simt.h\"\n"
				   "struct parameters { int unused; };\n"
				   "#if SIMT_HAS_WGMMA\n"
				   "SIMT_KERNEL(fence, parameters, 128, 1)\n"
				   "{\n"
				   "	(void)p;\n"
				   "	simt_wgmma_fence();\n"
				   "}\n"
				   "#endif\n";
	static const char *const archs[] = { "-arch=sm_90", "-arch=sm_90a" };
	struct cuda_nvrtc nvrtc;
	struct paged_error error;

	fake_cuda_start(0);
	it_require(fake_cuda_load_nvrtc(), "%s", dlerror());
	it_require(cuda_nvrtc_open(&nvrtc, 12080, &error) == PAGED_OK, "%s", error.text);
	for (int i = 0; i < 2; i++) {
		cuda_function function;
		cuda_module module;
		char *image;

		gives(CUDA_NVRTC_SUCCESS, compile(&nvrtc, text, archs[i], &image));
		ok(cuda.module_load(&module, image));
		free(image);
		gives(i == 0 ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS, cuda.module_function(&function, module, "fence"));
		ok(cuda.module_unload(module));
	}
	cuda_nvrtc_close(&nvrtc);
	fake_cuda_finish();
}

static int
launch_dependent(cuda_function function, int attribute, const struct simt_exchange_params *p)
{
	struct cuda_launch_attribute attributes[] = { { .id = attribute, .value.allowed = 1 } };
	const struct cuda_launch_config config = { .grid_x = 1,
						   .grid_y = 1,
						   .grid_z = 1,
						   .block_x = 64,
						   .block_y = 1,
						   .block_z = 1,
						   .shared_size = 8192,
						   .attributes = attributes,
						   .n_attributes = 1 };

	return cuda.launch_ex(&config, function, (void *[]){ (void *)(uintptr_t)p }, NULL);
}

IT_TEST(dependent_launches_need_their_wait)
{
	struct simt_exchange_params p = { .bug = BUG_NONE };
	cuda_function function;
	cuda_address address;
	cuda_module module;
	int arch;

	fake_cuda_start(0);
	ok(cuda.module_load(&module, FAKE_CUDA_BUILT_IN));
	ok(cuda.module_function(&function, module, "simt_case_dependent"));
	ok(cuda.function_attribute(&arch, CUDA_FUNCTION_PTX_VERSION, function));
	it_require(arch == 90);
	ok(cuda.alloc(&address, 64 * 4));
	ok(cuda.fill(address, 0, 64 * 4, NULL));
	p.out = (uint32_t *)(uintptr_t)address; /* NOLINT */
	gives(CUDA_ERROR_INVALID_VALUE, launch_dependent(function, CUDA_LAUNCH_DEPENDENT + 1, &p));
	ok(launch_dependent(function, CUDA_LAUNCH_DEPENDENT, &p));
	ok(launch_dependent(function, CUDA_LAUNCH_DEPENDENT, &p));
	it_require(fake_cuda_read_word(address + 63 * 4) == 2);
	/* PTX of an older architecture has no wait. */
	ok(cuda.module_unload(module));
	ok(cuda.module_load(&module, ".version 7.0\n.target sm_80\n.visible .entry simt_case_dependent()"));
	ok(cuda.module_function(&function, module, "simt_case_dependent"));
	gives(CUDA_ERROR_NOT_SUPPORTED, launch_dependent(function, CUDA_LAUNCH_DEPENDENT, &p));
	ok(cuda.module_unload(module));
	fake_cuda_finish();
}

/* The launch with a grid of so many blocks of 64 threads, as a dependent one. */
static int
launch_blocks(cuda_function function, unsigned int n_blocks, void *params)
{
	struct cuda_launch_attribute dependent = { .id = CUDA_LAUNCH_DEPENDENT, .value.allowed = 1 };
	const struct cuda_launch_config config = { .grid_x = n_blocks,
						   .grid_y = 1,
						   .grid_z = 1,
						   .block_x = 64,
						   .block_y = 1,
						   .block_z = 1,
						   .shared_size = 8192,
						   .attributes = &dependent,
						   .n_attributes = 1 };

	return cuda.launch_ex(&config, function, (void *[]){ params }, NULL);
}

IT_TEST(grids_are_of_whole_clusters)
{
	struct simt_sum_params p = { .bug = BUG_NONE };
	cuda_address in, ticket, out;
	cuda_function function;
	cuda_module module;

	fake_cuda_start(0);
	function = function_of("simt_case_cluster_sum");
	ok(cuda.alloc(&in, 2 * 4 * 64 * 4));
	ok(cuda.alloc(&ticket, 4));
	ok(cuda.alloc(&out, 64 * 4));
	ok(cuda.fill(in, 1, 4 * 64 * 4, NULL));
	ok(cuda.fill(ticket, 0, 4, NULL));
	p.in = (const uint32_t *)(uintptr_t)in;         /* NOLINT */
	p.partial = (uint32_t *)(uintptr_t)in + 4 * 64; /* NOLINT */
	p.ticket = (uint32_t *)(uintptr_t)ticket;       /* NOLINT */
	p.out = (uint32_t *)(uintptr_t)out;             /* NOLINT */
	gives(CUDA_ERROR_INVALID_CLUSTER_SIZE, launch(function, 64, 8192, &p));
	gives(CUDA_ERROR_INVALID_CLUSTER_SIZE, launch_blocks(function, 3, &p));
	ok(launch_blocks(function, 4, &p));
	it_require(fake_cuda_read_word(out + 63 * 4) == 4 * 3 * 0x01010101);
	/* The source has no such kernel for an older architecture. */
	ok(cuda.module_load(&module, ".version 7.0\n.target sm_80\n.visible .entry simt_case_cluster_sum()"));
	gives(CUDA_ERROR_NOT_FOUND, cuda.module_function(&function, module, "simt_case_cluster_sum"));
	ok(cuda.module_unload(module));
	fake_cuda_finish();
}

IT_TEST(failures_are_injected_by_call)
{
	cuda_address address;
	char log[256] = "", path[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/tmp/paged-fake-cuda.%d", (int)getpid());
	fake_cuda_start(0);
	setenv("PAGED_FAKE_CUDA_FAIL", "cuMemAlloc_v2@2=2,cuMemFree_v2=719,cuMemsetD8Async@2+=700", 1);
	setenv("PAGED_FAKE_CUDA_LOG", path, 1);
	ok(cuda.alloc(&address, 16));
	gives(CUDA_ERROR_OUT_OF_MEMORY, cuda.alloc(&address, 16));
	ok(cuda.alloc(&address, 16));
	gives(CUDA_ERROR_LAUNCH_FAILED, cuda.free(address));
	ok(cuda.fill(address, 0, 1, NULL));
	gives(CUDA_ERROR_ILLEGAL_ADDRESS, cuda.fill(address, 0, 1, NULL));
	gives(CUDA_ERROR_ILLEGAL_ADDRESS, cuda.fill(address, 0, 1, NULL));
	unsetenv("PAGED_FAKE_CUDA_FAIL");
	ok(cuda.free(address));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	it_require(fd >= 0);
	n = read(fd, log, sizeof(log) - 1);
	close(fd);
	unlink(path);
	it_require(n > 0 && strstr(log, " cuMemAlloc_v2 0\n") != NULL && strstr(log, " cuMemAlloc_v2 2\n") != NULL);
	fake_cuda_finish();
}

IT_MAIN
