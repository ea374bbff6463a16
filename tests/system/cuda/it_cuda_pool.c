/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools in a GPU's memory: real daemons and workers over the fake CUDA
 * driver, which is as strict as CUDA about who opens what.
 */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cuda/host/gpu.h"
#include "tests/system/cuda/cuda_daemon.h"
#include "tests/support/harness.h"
#include "tests/support/wire_peer.h"
#include "tests/fake-cuda/load.h"
#include "tests/support/worker_fixture.h"

#define N_WORDS 1024u
#define FAKE_CUDA_UUID "GPU-70616765-6420-6661-6b65-204355444100"

/* The worker's own CUDA context, in addition to the library's. */
static struct cuda_gpu gpu;

static void
cuda_start(void)
{
	struct paged_error error;

	it_require(fake_cuda_load(), "%s", dlerror());
	it_require(cuda_gpu_open(&gpu, "0", &error) == PAGED_OK, "%s", error.text);
	it_require(cuda_gpu_enter(&gpu, &error) == PAGED_OK, "%s", error.text);
}

static void
cuda_end(void)
{
	cuda_gpu_leave(&gpu);
	cuda_gpu_close(&gpu);
}

static cuda_address
device_address(const struct worker_fixture *worker, uint64_t offset)
{
	return (cuda_address)(uintptr_t)worker->info.base + offset;
}

static int
device_copy(void *to_host, cuda_address device, const void *from_host, size_t size)
{
	int result = to_host != NULL ? gpu.driver.copy_out(to_host, device, size, NULL)
				     : gpu.driver.copy_in(device, from_host, size, NULL);

	return result != CUDA_SUCCESS ? result : gpu.driver.stream_synchronize(NULL);
}

static void
words_make(uint32_t part[N_WORDS], uint32_t seed)
{
	for (uint32_t i = 0; i < N_WORDS; i++)
		part[i] = seed * 2654435761u + i;
}

static void
words_write(const struct worker_fixture *worker, uint32_t seed)
{
	uint32_t part[N_WORDS];

	words_make(part, seed);
	it_require(device_copy(NULL, device_address(worker, worker->info.k.page_stride), part, sizeof(part)) ==
		   CUDA_SUCCESS);
}

static void
words_expect(const struct worker_fixture *worker, uint32_t seed)
{
	uint32_t part[N_WORDS], seen[N_WORDS];

	words_make(part, seed);
	it_require(device_copy(seen, device_address(worker, worker->info.k.page_stride), NULL, sizeof(seen)) ==
		   CUDA_SUCCESS);
	it_require(memcmp(part, seen, sizeof(part)) == 0, "%x is not %x", seen[0], part[0]);
}

/* Whether the driver maps the address in this process. */
static bool
is_mapped(const void *base)
{
	int device;

	return gpu.driver.pointer_attribute(&device, CUDA_POINTER_DEVICE_ORDINAL, (cuda_address)(uintptr_t)base) ==
	       CUDA_SUCCESS;
}

/* Whether network adapters can read and write memory at the address. */
static bool
is_rdma_capable(const void *base)
{
	unsigned int capable = 0;

	it_require(gpu.driver.pointer_attribute(&capable, CUDA_POINTER_IS_RDMA_CAPABLE,
						(cuda_address)(uintptr_t)base) == CUDA_SUCCESS);
	return capable != 0;
}

/* Two processes on one memory */

static void
writer(int from, int to, void *argument)
{
	char word;
	struct worker_fixture worker;

	(void)argument;
	cuda_start();
	worker_open(&worker, NULL, 0);
	it_require(strcmp(worker.info.backend, "cuda") == 0 && strcmp(worker.info.isa, gpu.isa) == 0);
	it_require(strcmp(worker.info.device, gpu.uuid_text) == 0, "%s", worker.info.device);
	it_require(!fake_cuda_wanted() || strcmp(worker.info.device, FAKE_CUDA_UUID) == 0, "%s", worker.info.device);
	it_require((uintptr_t)worker.info.base % 512 == 0 && worker.info.k.head_stride % 128 == 0);
	it_require(is_rdma_capable(worker.info.base) || cuda_gpu_attribute(&gpu, CUDA_DEVICE_RDMA_WITH_VMM) == 0);
	words_write(&worker, 7);
	it_send(to, "w", 1);
	it_receive(from, &word, 1);
	words_expect(&worker, 8);
	worker_close(&worker);
	cuda_end();
}

static void
reader(int from, int to, void *argument)
{
	struct worker_fixture worker;

	(void)from, (void)argument;
	cuda_start();
	worker_open(&worker, NULL, 0);
	words_expect(&worker, 7);
	words_write(&worker, 8);
	worker_close(&worker);
	cuda_end();
	it_send(to, "r", 1);
}

static void write_and_read(enum export_setting export)
{
	struct it_worker first, second;
	struct it_daemon daemon;
	const char *listing;
	char word;
	int code;

	cuda_daemon_start(&daemon, export, "", "");
	it_fork(&first, writer, NULL);
	it_receive(first.from, &word, 1);
	it_fork(&second, reader, NULL);
	it_receive(second.from, &word, 1);
	it_join(&second);
	it_send(first.to, "g", 1);
	it_join(&first);
	listing = it_pagedctl(&code, "pools", NULL);
	it_require(code == 0, "%s", listing);
	it_require(strstr(listing, export == EXPORT_SETTING_VMM ? "CUDA, vmm, " : "CUDA, legacy, ") != NULL, "%s",
		   listing);
	it_require(strstr(listing, "DEVICE") != NULL &&
			   strstr(listing, fake_cuda_wanted() ? FAKE_CUDA_UUID : "GPU-") != NULL,
		   "%s", listing);
	it_daemon_stop(&daemon);
}

IT_TEST(two_processes_share_vmm_memory)
{
	write_and_read(EXPORT_SETTING_VMM);
}

/* Memory by descriptor does not depend on the network adapters. */
IT_TEST(two_processes_share_vmm_memory_without_rdma)
{
	cuda_skip_with_gpu();
	setenv("PAGED_FAKE_CUDA_ATTRIBUTES", "110=0", 1);
	write_and_read(EXPORT_SETTING_VMM);
}

IT_TEST(two_processes_share_legacy_memory)
{
	write_and_read(EXPORT_SETTING_LEGACY);
}

/* Clients of one process share a mapping; the last close unmaps it. */
static void
open_several_clients(int from, int to, void *argument)
{
	struct worker_fixture first, second, third;

	(void)from, (void)to, (void)argument;
	cuda_start();
	worker_open(&first, NULL, 0);
	worker_open(&second, NULL, 0);
	it_require(first.info.base == second.info.base);
	words_write(&first, 3);
	worker_close(&first);
	words_expect(&second, 3);
	worker_open(&third, NULL, 0);
	it_require(third.info.base == second.info.base);
	worker_close(&third);
	worker_close(&second);
	it_require(fake_cuda_n_mappings() == 0, "the last close unmaps");
	worker_open(&first, NULL, 0);
	words_expect(&first, 3);
	worker_close(&first);
	cuda_end();
}

static void
run_in_worker(enum export_setting export, void (*run)(int from, int to, void *argument))
{
	struct it_worker child;
	struct it_daemon daemon;

	cuda_daemon_start(&daemon, export, "", "");
	it_fork(&child, run, NULL);
	it_join(&child);
	it_daemon_stop(&daemon);
}

IT_TEST(clients_of_a_process_share_a_vmm_mapping)
{
	run_in_worker(EXPORT_SETTING_VMM, open_several_clients);
}

IT_TEST(clients_of_a_process_share_a_legacy_mapping)
{
	run_in_worker(EXPORT_SETTING_LEGACY, open_several_clients);
}

/* Memory shared by descriptor lives until its last user closes it. */
static void
reader_of_killed_daemon(int from, int to, void *argument)
{
	struct worker_fixture worker;
	char word;

	(void)argument;
	cuda_start();
	worker_open(&worker, NULL, 0);
	words_write(&worker, 5);
	it_send(to, "w", 1);
	it_receive(from, &word, 1);
	worker_expect(&worker, paged_client_ping(worker.client), PAGED_ERR_GONE);
	words_expect(&worker, 5);
	worker_close(&worker);
	it_require(fake_cuda_n_mappings() == 0);
	cuda_end();
}

IT_TEST(vmm_memory_outlives_its_owner)
{
	struct it_worker child;
	struct it_daemon daemon;
	char word;

	cuda_daemon_start(&daemon, EXPORT_SETTING_VMM, "", "");
	it_fork(&child, reader_of_killed_daemon, NULL);
	it_receive(child.from, &word, 1);
	it_daemon_kill(&daemon);
	it_send(child.to, "k", 1);
	it_join(&child);
}

/* After PAGED_ERR_GONE a worker releases the memory when its batches are destroyed. */
static void
reader_releases_memory(int from, int to, void *argument)
{
	struct worker_fixture first, second;
	char word;

	(void)argument;
	cuda_start();
	worker_open(&first, NULL, 0);
	worker_open(&second, NULL, 0);
	it_send(to, "o", 1);
	it_receive(from, &word, 1);
	worker_expect(&first, paged_client_ping(first.client), PAGED_ERR_GONE);
	worker_expect(&second, paged_client_ping(second.client), PAGED_ERR_GONE);
	paged_batch_destroy(first.batch);
	worker_ok(&second, paged_pool_get_info(second.pool, &second.info));
	it_require(second.info.base != NULL);
	words_write(&second, 3);
	words_expect(&second, 3);
	worker_expect(&first, paged_batch_create(first.pool, NULL, &first.batch), PAGED_ERR_GONE);
	paged_batch_destroy(second.batch);
	it_require(!is_mapped(second.info.base));
	worker_ok(&second, paged_pool_get_info(second.pool, &second.info));
	it_require(second.info.base == NULL);
	worker_close(&first);
	worker_close(&second);
	cuda_end();
}

IT_TEST(memory_of_a_killed_daemon_is_released)
{
	struct it_worker child;
	struct it_daemon daemon;
	char word;

	cuda_daemon_start(&daemon, EXPORT_SETTING_VMM, "", "");
	it_fork(&child, reader_releases_memory, NULL);
	it_receive(child.from, &word, 1);
	it_daemon_kill(&daemon);
	it_send(child.to, "k", 1);
	it_join(&child);
}

/* After a kick, the process's other clients work, and it may attach again. */
static void
kicked_worker(int from, int to, void *argument)
{
	struct worker_fixture first, second;

	(void)from, (void)to, (void)argument;
	cuda_start();
	worker_open(&first, NULL, 0);
	worker_attach(&second, NULL);
	worker_ok(&second, paged_admin_kick(second.client, paged_client_session(first.client), 0));
	worker_expect(&first, paged_client_dispatch(first.client), PAGED_ERR_GONE);
	it_require(is_mapped(first.info.base), "a batch may still be at work");
	paged_batch_destroy(first.batch);
	it_require(!is_mapped(first.info.base));
	paged_client_close(second.client);
	worker_open(&second, NULL, 0);
	words_write(&second, 9);
	worker_close(&first);
	words_expect(&second, 9);
	worker_close(&second);
	it_require(fake_cuda_n_mappings() == 0);
	cuda_end();
}

IT_TEST(vmm_memory_of_a_kicked_session_is_released)
{
	run_in_worker(EXPORT_SETTING_VMM, kicked_worker);
}

IT_TEST(legacy_memory_of_a_kicked_session_is_released)
{
	run_in_worker(EXPORT_SETTING_LEGACY, kicked_worker);
}

/* An embedded client owns the memory; a forked child closes the inherited client. */
static void
embedded_worker(int from, int to, void *argument)
{
	const struct paged_pool_params params = {
		.struct_size = sizeof(params),
		.name = "test",
		.n_layers = WORKER_LAYERS,
		.n_kv_heads = WORKER_KV_HEADS,
		.k_dim = WORKER_DIM,
		.dtype = PAGED_F32,
		.n_pages = WORKER_PAGES,
		.backend = "cuda",
	};
	struct it_worker child;
	struct worker_fixture worker = { .info.struct_size = sizeof(worker.info) };

	(void)from, (void)to;
	if (argument != NULL) {
		paged_client_close(((struct worker_fixture *)argument)->client);
		/* Without the exit handlers of the driver, which the parent has initialised. */
		fflush(stdout);
		_exit(0);
	}
	cuda_start();
	worker_ok(&worker, paged_client_open_embedded(&params, 1, NULL, &worker.client));
	worker_ok(&worker, paged_pool_open(worker.client, "test", &worker.pool));
	worker_ok(&worker, paged_pool_get_info(worker.pool, &worker.info));
	it_require(strcmp(worker.info.backend, "cuda") == 0 && strcmp(worker.info.isa, gpu.isa) == 0);
	words_write(&worker, 9);
	it_fork(&child, embedded_worker, &worker);
	it_join(&child);
	words_expect(&worker, 9);
	worker_close(&worker);
	it_require(fake_cuda_n_mappings() == 0);
	cuda_end();
}

IT_TEST(embedded_client_owns_device_memory)
{
	struct it_worker child;

	cuda_daemon_environment();
	it_fork(&child, embedded_worker, NULL);
	it_join(&child);
}

/* Calls leave the caller's current context unchanged. */
static void
call_with_current_context(int from, int to, void *argument)
{
	cuda_context mine, now;
	struct worker_fixture worker;

	(void)from, (void)to, (void)argument;
	setenv("PAGED_FAKE_CUDA_DEVICES", "2", 1);
	cuda_start();
	it_require(gpu.driver.context_retain(&mine, 1) == CUDA_SUCCESS);
	it_require(gpu.driver.context_push(mine) == CUDA_SUCCESS);
	worker_open(&worker, NULL, 0);
	it_require(gpu.driver.context_current(&now) == CUDA_SUCCESS && now == mine);
	worker_close(&worker);
	it_require(gpu.driver.context_current(&now) == CUDA_SUCCESS && now == mine);
}

IT_TEST(calls_restore_the_current_context)
{
	cuda_skip_with_gpu();
	run_in_worker(EXPORT_SETTING_LEGACY, call_with_current_context);
}

/* The process does not use CUDA itself: the library initialises and releases it. */
static void
worker_without_cuda(int from, int to, void *argument)
{
	struct worker_fixture worker;

	(void)from, (void)to, (void)argument;
	it_require(fake_cuda_load());
	worker_open(&worker, NULL, 4);
	worker_ok(&worker, worker_plan(&worker, worker_create_seq(&worker, 8), 0, 8, 0));
	worker_ok(&worker, paged_batch_validate(worker.batch));
	worker_close(&worker);
}

IT_TEST(worker_without_own_cuda_can_plan)
{
	run_in_worker(EXPORT_SETTING_VMM, worker_without_cuda);
}

/* Access */

/* A process of another user can open memory by descriptor, but not by legacy handle. */
static void
open_as_other_user(int from, int to, void *argument)
{
	struct worker_fixture worker;

	(void)from, (void)to;
	/* First: the build tree may be closed to this user. */
	it_require(fake_cuda_load());
	it_require(setgid(65534) == 0 && setuid(65534) == 0, "%m");
	if (*(enum export_setting *)argument == EXPORT_SETTING_LEGACY) {
		cuda_expect_refusal(PAGED_ERR_BACKEND, "pagedd is uid 0, this process 65534");
		return;
	}
	worker_open(&worker, NULL, 0);
	worker_close(&worker);
}

static void run_as_other_user(enum export_setting export)
{
	struct it_worker child;
	struct it_daemon daemon;

	if (geteuid() != 0)
		it_skip("needs root to become another user");
	cuda_daemon_start(&daemon, export, "", "allow-user = 65534\n");
	cuda_daemon_allow_all_users(&daemon);
	it_fork(&child, open_as_other_user, &export);
	it_join(&child);
	it_daemon_stop(&daemon);
}

IT_TEST(other_users_can_open_vmm_memory)
{
	run_as_other_user(EXPORT_SETTING_VMM);
}

IT_TEST(other_users_cannot_open_legacy_memory)
{
	run_as_other_user(EXPORT_SETTING_LEGACY);
}

/* The canary is overwritten. */
static void
overwrite_canary(int from, int to, void *argument)
{
	char nothing[64] = { 0 };
	struct worker_fixture worker;

	(void)from, (void)to, (void)argument;
	cuda_start();
	worker_open(&worker, NULL, 0);
	it_require(device_copy(NULL, device_address(&worker, ((uint64_t)2 << 20) - sizeof(nothing)), nothing,
			       sizeof(nothing)) == CUDA_SUCCESS);
	worker_close(&worker);
	cuda_expect_refusal(PAGED_ERR_BACKEND, "its last 32 bytes are not those that its owner wrote");
	it_require(fake_cuda_n_mappings() == 0);
	cuda_end();
}

IT_TEST(overwritten_canary_is_detected)
{
	run_in_worker(EXPORT_SETTING_LEGACY, overwrite_canary);
}

/* Handles on the wire */

IT_TEST(handles_require_pool_permission)
{
	struct wire_request request = { .kind = WIRE_GET_HANDLE };
	struct it_daemon daemon;
	struct wire_reply reply;
	struct wire_peer peer;

	cuda_daemon_start(&daemon, EXPORT_SETTING_LEGACY, "",
			  "pool plain { layers = 1 kv-heads = 1 head-dim = 16 pages = 4 }\n");
	wire_peer_attach(&peer, WIRE_ROLE_SESSION, NULL);
	it_require(wire_peer_call(&peer, &request, &reply) == PAGED_OK, "%s", reply.text);
	it_require(reply.kind == WIRE_REPLY_HANDLE && reply.handle.offset == 0 && reply.handle.generation == 1);
	request.get_handle.pool = 1;
	it_require(wire_peer_call(&peer, &request, &reply) == PAGED_ERR_UNSUPPORTED);
	request.get_handle.pool = 2;
	it_require(wire_peer_call(&peer, &request, &reply) == PAGED_ERR_NOENT);
	wire_peer_bye(&peer);
	it_daemon_stop(&daemon);
}

IT_MAIN
