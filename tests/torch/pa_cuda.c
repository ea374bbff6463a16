/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uses the primary context of GPU 0, like the client's kernels, and the legacy
 * default stream. The tests of one program share a code cache of their own, so
 * that no test uses images that an earlier build compiled.
 */
#include "tests/torch/pa_memory.h"

#include <criterion/criterion.h>
#include <criterion/hooks.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "kernels/cuda/host/driver.h"
#include "tests/fake-cuda/load.h"

const char *const pa_backend = "cuda";
const bool pa_on_cuda = true;

/* Never closed: each test is a process. */
static struct cuda_driver driver;

#define must(call)                                                          \
	do {                                                                \
		int result_ = (call);                                       \
		cr_assert_eq(result_, CUDA_SUCCESS, "%d: " #call, result_); \
	} while (0)

static char cache[] = "/tmp/paged-torch-code.XXXXXX";

ReportHook(PRE_ALL)(struct criterion_test_set *tests)
{
	(void)tests;
	if (mkdtemp(cache) != NULL)
		setenv("PAGED_CACHE_DIR", cache, 1);
}

static int
entry_remove(const char *path, const struct stat *status, int kind, struct FTW *at)
{
	(void)status, (void)kind, (void)at;
	return remove(path);
}

ReportHook(POST_ALL)(struct criterion_global_stats *stats)
{
	(void)stats;
	nftw(cache, entry_remove, 8, FTW_DEPTH | FTW_PHYS);
}

void
pa_memory_open(void)
{
	struct paged_error error;
	cuda_context context;

	if (driver.library != NULL)
		return;
	if (!fake_cuda_load() || !fake_cuda_load_nvrtc())
		cr_skip("the fake CUDA driver is not built");
	cr_assert_eq(cuda_driver_open(&driver, &error), PAGED_OK, "%s", error.text);
	must(driver.context_retain(&context, 0));
	must(driver.context_push(context));
}

static void *
device_copy_add(struct pa_device_copies *copies, void *data, size_t size, bool back)
{
	cuda_address device;

	if (data == NULL)
		return NULL;
	cr_assert_lt(copies->n, PA_MAX_COPIES);
	must(driver.alloc(&device, size != 0 ? size : 1));
	if (size != 0)
		must(driver.copy_in(device, data, size, NULL));
	copies->copy[copies->n].host = data;
	copies->copy[copies->n].device = device;
	copies->copy[copies->n].size = size;
	copies->copy[copies->n++].back = back;
	return (void *)(uintptr_t)device;
}

void *
pa_upload(struct pa_device_copies *copies, const void *data, size_t size)
{
	return device_copy_add(copies, (void *)(uintptr_t)data, size, false);
}

void *
pa_upload_output(struct pa_device_copies *copies, void *data, size_t size)
{
	return device_copy_add(copies, data, size, true);
}

void
pa_download_outputs(struct pa_device_copies *copies)
{
	must(driver.context_synchronize());
	for (uint32_t i = 0; i < copies->n; i++) {
		if (copies->copy[i].back && copies->copy[i].size != 0)
			pa_download(copies->copy[i].host, (const void *)(uintptr_t)copies->copy[i].device,
				    copies->copy[i].size);
		must(driver.free(copies->copy[i].device));
	}
	copies->n = 0;
}

void
pa_download(void *to, const void *from, size_t size)
{
	must(driver.copy_out(to, (cuda_address)(uintptr_t)from, size, NULL));
	must(driver.context_synchronize());
}

void
pa_fill_bytes(void *to, uint8_t value, size_t size)
{
	must(driver.fill((cuda_address)(uintptr_t)to, value, size, NULL));
	must(driver.context_synchronize());
}
