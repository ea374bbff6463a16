/* SPDX-License-Identifier: Apache-2.0 */
/* The fake CUDA driver: two processes share memory, and every rule that it enforces. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fake-cuda/fixture.h"

IT_TEST(fake_driver_is_loaded)
{
	struct paged_error error;

	it_require(fake_cuda_load());
	it_require(cuda_driver_open(&cuda, &error) == PAGED_OK, "%s", error.text);
	it_require(cuda.version >= 12000);
	cuda_driver_close(&cuda);
}

IT_TEST(no_device_is_reported)
{
	struct paged_error error;

	setenv("PAGED_FAKE_CUDA_DEVICES", "0", 1);
	it_require(fake_cuda_load());
	it_require(cuda_driver_open(&cuda, &error) == PAGED_ERR_UNSUPPORTED);
	it_require(strstr(error.text, "no CUDA device") != NULL, "%s", error.text);
}

IT_TEST(devices_have_different_uuids)
{
	struct cuda_uuid first, second;
	struct paged_error error;
	cuda_device device;
	int n;

	setenv("PAGED_FAKE_CUDA_DEVICES", "3", 1);
	setenv("CUDA_VISIBLE_DEVICES", "2,0", 1);
	fake_cuda_start(0);
	ok(cuda.device_count(&n));
	it_require(n == 2);
	ok(cuda.device_uuid(&first, 0));
	ok(cuda.device_uuid(&second, 1));
	it_require(first.bytes[15] == 2 && second.bytes[15] == 0);
	it_require(cuda_device_find(&cuda, &second, &device, &error) == PAGED_OK && device == 1);
	second.bytes[15] = 1;
	it_require(cuda_device_find(&cuda, &second, &device, &error) == PAGED_ERR_NOENT);
	gives(CUDA_ERROR_INVALID_DEVICE, cuda.device_get(&device, 2));
}

IT_TEST(calls_need_a_current_context)
{
	cuda_context context;
	cuda_address address;
	cuda_stream stream;

	fake_cuda_start(0);
	ok(cuda.alloc(&address, 100));
	ok(cuda.stream_create(&stream, 0));
	ok(cuda.context_pop(&context));
	gives(CUDA_ERROR_INVALID_CONTEXT, cuda.alloc(&address, 100));
	ok(cuda.context_push(context));
	ok(cuda.context_release(0));
	gives(CUDA_ERROR_INVALID_CONTEXT, cuda.alloc(&address, 100));
	gives(CUDA_ERROR_INVALID_CONTEXT, cuda.context_push(context));
	ok(cuda.context_retain(&context, 0));
	gives(CUDA_ERROR_INVALID_CONTEXT, cuda.alloc(&address, 100));
	ok(cuda.context_push(context));
	gives(CUDA_ERROR_INVALID_HANDLE, cuda.stream_synchronize(stream));
	gives(CUDA_ERROR_INVALID_VALUE, cuda.free(address));
}

IT_TEST(attributes_and_modes_come_from_the_environment)
{
	struct paged_error error;
	cuda_context context;
	int value;

	setenv("PAGED_FAKE_CUDA_ATTRIBUTES", "20=2,102=0", 1);
	it_require(fake_cuda_load());
	it_require(cuda_driver_open(&cuda, &error) == PAGED_OK, "%s", error.text);
	ok(cuda.device_attribute(&value, CUDA_DEVICE_VMM, 0));
	it_require(value == 0);
	gives(CUDA_ERROR_DEVICE_UNAVAILABLE, cuda.context_retain(&context, 0));
}

static void
retain_context(int from, int to, __attribute__((unused)) void *argument)
{
	struct paged_error error;
	cuda_context context;
	int result;

	it_require(fake_cuda_load());
	it_require(cuda_driver_open(&cuda, &error) == PAGED_OK, "%s", error.text);
	result = cuda.context_retain(&context, 0);
	it_send(to, &result, sizeof(result));
	it_receive(from, &result, sizeof(result));
}

IT_TEST(exclusive_device_admits_one_process)
{
	struct it_worker first, second;
	int result;

	setenv("PAGED_FAKE_CUDA_ATTRIBUTES", "20=3", 1);
	it_fork(&first, retain_context, NULL);
	it_receive(first.from, &result, sizeof(result));
	it_require(result == CUDA_SUCCESS);
	it_fork(&second, retain_context, NULL);
	it_receive(second.from, &result, sizeof(result));
	it_require(result == CUDA_ERROR_DEVICE_UNAVAILABLE);
	it_send(first.to, &result, sizeof(result));
	it_send(second.to, &result, sizeof(result));
	it_join(&first);
	it_join(&second);
}

IT_TEST(allocation_fails_when_memory_is_full)
{
	cuda_address address, other;
	size_t available, total;

	setenv("PAGED_FAKE_CUDA_MEMORY", "4194304", 1);
	fake_cuda_start(0);
	ok(cuda.alloc(&address, 3 * MIB));
	gives(CUDA_ERROR_OUT_OF_MEMORY, cuda.alloc(&other, 2 * MIB));
	ok(cuda.memory_info(&available, &total));
	it_require(total == 4 * MIB && available == MIB);
	gives(CUDA_ERROR_INVALID_VALUE, cuda.free(address + 256));
	gives(CUDA_ERROR_INVALID_VALUE, cuda.copy(address + 3 * MIB - 1, address, 2, NULL));
	ok(cuda.free(address));
	gives(CUDA_ERROR_INVALID_VALUE, cuda.free(address));
	ok(cuda.alloc(&other, 4 * MIB));
	it_require(fake_cuda_read_word(other) == 0xffffffff); /* memory that was never written */
	fake_cuda_finish();
}

static void
dereference_device_address(__attribute__((unused)) int from, __attribute__((unused)) int to,
			   __attribute__((unused)) void *argument)
{
	cuda_address address;

	fake_cuda_start(0);
	ok(cuda.alloc(&address, 4096));
	*(volatile char *)(uintptr_t)address = 1;
}

IT_TEST(host_access_to_device_memory_faults)
{
	struct it_worker worker;

	if (it_sanitized())
		it_skip("the sanitizer takes the signal");
	it_fork(&worker, dereference_device_address, NULL);
	it_require(it_wait_signal(&worker) == SIGSEGV);
}

static void
child_calls_cuda(void)
{
	int n;

	_exit(cuda.device_count(&n) == CUDA_ERROR_NOT_INITIALIZED && cuda.init(0) == CUDA_ERROR_NOT_INITIALIZED ? 0
														: 1);
}

IT_TEST(forked_child_cannot_use_cuda)
{
	int status;
	pid_t child;

	fake_cuda_start(0);
	child = fork();
	if (child == 0)
		child_calls_cuda();
	it_require(waitpid(child, &status, 0) == child && status == 0);
}

/* IPC */

struct shared {
	struct cuda_ipc_handle handle;
	cuda_address address;
	int fd;
};

/* Writes 5 and exports; at each word received, frees the memory, allocates new memory and sends the new handle. */
static void
exporter(int from, int to, __attribute__((unused)) void *argument)
{
	struct shared shared = { .fd = -1 };
	int word;

	fake_cuda_start(0);
	ok(cuda.alloc(&shared.address, 2 * MIB));
	fake_cuda_write_word(shared.address + 64, 5);
	gives(CUDA_ERROR_INVALID_VALUE, cuda.ipc_export(&shared.handle, shared.address + 64));
	ok(cuda.ipc_export(&shared.handle, shared.address));
	gives(CUDA_ERROR_INVALID_CONTEXT, cuda.ipc_open(&shared.address, shared.handle, CUDA_IPC_LAZY_PEER_ACCESS));
	gives(CUDA_ERROR_INVALID_VALUE, cuda.ipc_close(shared.address));
	it_send(to, &shared, sizeof(shared));
	for (it_receive(from, &word, sizeof(word)); word != 0; it_receive(from, &word, sizeof(word))) {
		it_require(fake_cuda_read_word(shared.address + 64) == (uint32_t)word);
		ok(cuda.free(shared.address));
		ok(cuda.alloc(&shared.address, 2 * MIB));
		ok(cuda.ipc_export(&shared.handle, shared.address));
		it_send(to, &shared, sizeof(shared));
	}
}

IT_TEST(two_processes_share_memory)
{
	struct it_worker worker;
	struct shared shared;
	cuda_address address, again;
	unsigned int capable;
	int word = 6;

	it_fork(&worker, exporter, NULL);
	fake_cuda_start(0);
	it_receive(worker.from, &shared, sizeof(shared));
	gives(CUDA_ERROR_INVALID_VALUE, cuda.ipc_open(&address, shared.handle, 0));
	ok(cuda.ipc_open(&address, shared.handle, CUDA_IPC_LAZY_PEER_ACCESS));
	it_require(fake_cuda_read_word(address + 64) == 5);
	ok(cuda.ipc_open(&again, shared.handle, CUDA_IPC_LAZY_PEER_ACCESS));
	it_require(again == address);
	gives(CUDA_ERROR_INVALID_VALUE, cuda.free(address));
	gives(CUDA_ERROR_INVALID_VALUE, cuda.ipc_export(&shared.handle, address));
	ok(cuda.pointer_attribute(&capable, CUDA_POINTER_IS_LEGACY_IPC_CAPABLE, address));
	it_require(capable == 0);
	fake_cuda_write_word(address + 64, 6);
	ok(cuda.ipc_close(address));
	it_require(fake_cuda_read_word(address + 64) == 6);
	ok(cuda.ipc_close(address));
	gives(CUDA_ERROR_INVALID_VALUE, cuda.ipc_close(address));
	it_send(worker.to, &word, sizeof(word));
	it_receive(worker.from, &shared, sizeof(shared));
	word = 0;
	it_send(worker.to, &word, sizeof(word));
	it_join(&worker);
	gives(CUDA_ERROR_INVALID_HANDLE, cuda.ipc_open(&address, shared.handle, CUDA_IPC_LAZY_PEER_ACCESS));
}

IT_TEST(ipc_handle_is_invalid_after_free)
{
	struct it_worker worker;
	struct shared before, after;
	cuda_address address;
	int word = 5;

	it_fork(&worker, exporter, NULL);
	fake_cuda_start(0);
	it_receive(worker.from, &before, sizeof(before));
	ok(cuda.ipc_open(&address, before.handle, CUDA_IPC_LAZY_PEER_ACCESS));
	it_send(worker.to, &word, sizeof(word));
	it_receive(worker.from, &after, sizeof(after));
	it_require(memcmp(&before.handle, &after.handle, sizeof(after.handle)) != 0);
	gives(CUDA_ERROR_INVALID_HANDLE, cuda.ipc_open(&address, before.handle, CUDA_IPC_LAZY_PEER_ACCESS));
	if (before.address == after.address)
		gives(CUDA_ERROR_ALREADY_MAPPED, cuda.ipc_open(&address, after.handle, CUDA_IPC_LAZY_PEER_ACCESS));
	/* The importer's mapping is no longer the exporter's memory: an access is a sticky error. */
	gives(CUDA_ERROR_INVALID_VALUE, cuda.copy_out(&word, address, sizeof(word), NULL));
	ok(cuda.ipc_close(address));
	ok(cuda.ipc_open(&address, after.handle, CUDA_IPC_LAZY_PEER_ACCESS));
	it_kill(&worker);
	gives(CUDA_ERROR_INVALID_VALUE, cuda.copy_out(&word, address, sizeof(word), NULL));
	ok(cuda.ipc_close(address));
}

IT_TEST(access_after_owner_died_is_a_sticky_error)
{
	struct it_worker worker;
	struct shared shared;
	cuda_address address;

	it_fork(&worker, exporter, NULL);
	fake_cuda_start(0);
	it_receive(worker.from, &shared, sizeof(shared));
	ok(cuda.ipc_open(&address, shared.handle, CUDA_IPC_LAZY_PEER_ACCESS));
	ok(cuda.fill(address, 1, 16, NULL));
	it_kill(&worker);
	gives(CUDA_ERROR_ILLEGAL_ADDRESS, cuda.stream_synchronize(NULL));
	gives(CUDA_ERROR_ILLEGAL_ADDRESS, cuda.alloc(&address, 16));
	fake_cuda_finish();
}

static void
unreadable_exporter(int from, int to, void *argument)
{
	prctl(PR_SET_DUMPABLE, 0);
	exporter(from, to, argument);
}

IT_TEST(import_needs_access_to_the_owner)
{
	struct it_worker worker;
	struct shared shared;
	cuda_address address;
	int word = 0;

	if (geteuid() == 0)
		it_skip("root may look into everything");
	it_fork(&worker, unreadable_exporter, NULL);
	fake_cuda_start(0);
	it_receive(worker.from, &shared, sizeof(shared));
	gives(CUDA_ERROR_MAP_FAILED, cuda.ipc_open(&address, shared.handle, CUDA_IPC_LAZY_PEER_ACCESS));
	it_send(worker.to, &word, sizeof(word));
	it_join(&worker);
}

/* Descriptors */

static const struct cuda_allocation_properties properties = {
	.type = CUDA_ALLOCATION_PINNED,
	.handle_types = CUDA_HANDLE_POSIX_FD,
	.location = { .type = CUDA_LOCATION_DEVICE, .id = 0 },
};
static const struct cuda_access read_write = { { CUDA_LOCATION_DEVICE, 0 }, CUDA_ACCESS_READ_WRITE };
static const struct cuda_access read_only = { { CUDA_LOCATION_DEVICE, 0 }, CUDA_ACCESS_READ };

static void
fd_exporter(int from, int to, __attribute__((unused)) void *argument)
{
	struct shared shared = { .fd = -1 };
	struct cuda_ipc_handle handle;
	cuda_allocation allocation;
	int word;

	fake_cuda_start(0);
	gives(CUDA_ERROR_INVALID_VALUE, cuda.vmm_create(&allocation, MIB, &properties, 0));
	ok(cuda.vmm_create(&allocation, 4 * MIB, &properties, 0));
	ok(cuda.vmm_reserve(&shared.address, 4 * MIB, 0, 0, 0));
	ok(cuda.vmm_map(shared.address, 4 * MIB, 0, allocation, 0));
	gives(CUDA_ERROR_ALREADY_MAPPED, cuda.vmm_map(shared.address, 4 * MIB, 0, allocation, 0));
	gives(CUDA_ERROR_INVALID_VALUE, cuda.copy_out(&word, shared.address, sizeof(word), NULL));
	ok(cuda.vmm_access(shared.address, 4 * MIB, &read_write, 1));
	gives(CUDA_ERROR_INVALID_VALUE, cuda.ipc_export(&handle, shared.address));
	gives(CUDA_ERROR_INVALID_VALUE, cuda.free(shared.address));
	gives(CUDA_ERROR_INVALID_VALUE, cuda.vmm_unreserve(shared.address, 4 * MIB));
	fake_cuda_write_word(shared.address, 11);
	ok(cuda.vmm_export(&shared.fd, allocation, CUDA_HANDLE_POSIX_FD, 0));
	ok(cuda.vmm_release(allocation));
	fake_cuda_write_word(shared.address, 12);
	it_send(to, &shared, sizeof(shared));
	it_receive(from, &word, sizeof(word));
}

IT_TEST(vmm_memory_outlives_its_owner)
{
	struct it_worker worker;
	struct shared shared;
	cuda_allocation allocation;
	char path[64];
	int fd;

	it_fork(&worker, fd_exporter, NULL);
	fake_cuda_start(0);
	it_receive(worker.from, &shared, sizeof(shared));
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)worker.pid, shared.fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	it_require(fd >= 0);
	ok(cuda.vmm_import(&allocation, (void *)(intptr_t)fd, CUDA_HANDLE_POSIX_FD));
	close(fd);
	it_kill(&worker);
	ok(cuda.vmm_reserve(&shared.address, 4 * MIB, 0, 0, 0));
	ok(cuda.vmm_map(shared.address, 4 * MIB, 0, allocation, 0));
	ok(cuda.vmm_release(allocation));
	ok(cuda.vmm_access(shared.address, 4 * MIB, &read_only, 1));
	it_require(fake_cuda_read_word(shared.address) == 12);
	gives(CUDA_ERROR_INVALID_VALUE, cuda.fill(shared.address, 0, 4, NULL));
	ok(cuda.vmm_unmap(shared.address, 4 * MIB));
	gives(CUDA_ERROR_INVALID_VALUE, cuda.vmm_unmap(shared.address, 4 * MIB));
	ok(cuda.vmm_unreserve(shared.address, 4 * MIB));
	gives(CUDA_ERROR_INVALID_VALUE, cuda.vmm_release(allocation));
	fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	gives(CUDA_ERROR_INVALID_VALUE, cuda.vmm_import(&allocation, (void *)(intptr_t)fd, CUDA_HANDLE_POSIX_FD));
	close(fd);
}

IT_TEST(device_without_vmm_refuses_it)
{
	cuda_allocation allocation;

	setenv("PAGED_FAKE_CUDA_ATTRIBUTES", "103=0", 1);
	fake_cuda_start(0);
	gives(CUDA_ERROR_NOT_SUPPORTED, cuda.vmm_create(&allocation, 4 * MIB, &properties, 0));
}

IT_MAIN
