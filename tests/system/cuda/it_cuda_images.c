/* SPDX-License-Identifier: Apache-2.0 */
/* Images that are built in hold the kernels that the fake driver runs, with the same parameters. */
#include <stdlib.h>
#include <string.h>

#include "client/pagedclient.h"
#include "tests/fake-cuda/fixture.h"
#include "kernels/cuda/host/images.h"
#include "kernels/cuda/host/aot.h"
#include "tests/fake-cuda/simt_run.h"
#include "tests/system/cuda/cuda_daemon.h"

/* How many kernels of the fake driver are in an image; loading one compares parameters and launch bounds. */
static unsigned int
image_compare(const struct cuda_image *image)
{
	struct simt_kernel *(*first)(void);
	cuda_function function;
	cuda_module module;
	unsigned int n = 0;

	*(void **)&first = dlsym(cuda.library, "simt_first");
	it_require(first != NULL);
	ok(cuda.module_load(&module, image->data));
	for (const struct simt_kernel *kernel = first(); kernel != NULL; kernel = kernel->next) {
		int result = cuda.module_function(&function, module, kernel->name);

		it_require(result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_FOUND, "%s: %d", kernel->name, result);
		n += result == CUDA_SUCCESS;
	}
	ok(cuda.module_unload(module));
	return n;
}

static bool
has_image_for(const char *arch)
{
	const struct cuda_image *image;

	for (size_t i = 0; (image = cuda_image_at(i)) != NULL; i++)
		if (strcmp(image->arch, arch) == 0)
			return true;
	return false;
}

IT_TEST(images_match_the_fake_kernels)
{
	static const struct {
		const char *source;
		unsigned int n;
	} sources[] = { { "append", 1 },
			{ "attention_bulk", 4 },
			{ "attention_bytes", 18 },
			{ "attention_combine", 1 },
			{ "attention_mla", 2 },
			{ "attention_mla_cluster", 2 },
			{ "attention_mla_wgmma", 2 },
			{ "attention_mma", 6 },
			{ "attention_prefill", 4 },
			{ "attention_simt", 3 },
			{ "attention_wgmma", 4 },
			{ "attention_merge", 1 },
			{ "pages", 2 },
			{ "plan", 2 } };

	if (cuda_image_at(0) == NULL)
		it_skip("no kernels are built in: configure --with-cuda");
	if (!has_image_for("sm_90a"))
		it_skip("no kernels for sm_90a are built in: CUDA_ARCHS");
	fake_cuda_start(0);
	for (unsigned int i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
		const struct cuda_image *image = cuda_image_find(sources[i].source, 9, 0);
		unsigned int n;

		it_require(image != NULL && image->end > image->data, "%s", sources[i].source);
		n = image_compare(image);
		it_require(n == sources[i].n, "%s: %u kernels, %u expected", sources[i].source, n, sources[i].n);
	}
	fake_cuda_finish();
}

/* The fake driver has four of the kernels that are compiled with each AOT mod. */
IT_TEST(aot_mods_have_images)
{
	const struct cuda_aot *aot;

	if (cuda_image_at(0) == NULL)
		it_skip("no kernels are built in: configure --with-cuda");
	if (!has_image_for("sm_90a"))
		it_skip("no kernels for sm_90a are built in: CUDA_ARCHS");
	fake_cuda_start(0);
	for (size_t i = 0; (aot = cuda_aot_at(i)) != NULL; i++) {
		const struct cuda_image *image = cuda_image_find(aot->image, 9, 0);

		it_require(image != NULL && image->end > image->data, "%s", aot->name);
		it_require(image_compare(image) == 4, "%s", aot->name);
		it_require(cuda_image_find(aot->image, 12, 0) == NULL, "%s", aot->name);
	}
	fake_cuda_finish();
}

/* The fake driver supports CUDA 12.8.  Like one that old, it loads no image of CUDA 13. */
IT_TEST(images_newer_than_the_driver_are_refused)
{
	struct paged_client *client;
	struct paged_batch *batch;
	struct paged_pool *pool;

	if (cuda_images_version() <= 12080)
		it_skip("no kernels of a newer CUDA than 12.8 are built in");
	it_require(fake_cuda_load(), "%s", dlerror());
	setenv("PAGED_FAKE_CUDA_FAIL", "cuModuleLoadData=200", 1);
	it_require(paged_client_open_embedded(&cuda_small_pool, 1, NULL, &client) == PAGED_OK, "%s",
		   paged_client_error(client));
	it_require(paged_pool_open(client, "test", &pool) == PAGED_OK, "%s", paged_client_error(client));
	it_require(paged_batch_create(pool, NULL, &batch) == PAGED_ERR_UNSUPPORTED);
	it_require(strstr(paged_client_error(client), "and this driver supports CUDA 12.8: install ") != NULL, "%s",
		   paged_client_error(client));
	paged_client_close(client);
}

/* A device gets the image of its compute capability, or PTX if that image was not built. */
IT_TEST(images_are_found_by_compute_capability)
{
	static const struct {
		int major, minor;
		const char *arch;
	} cases[] = { { 7, 5, NULL },      { 8, 0, "sm_80" },   { 8, 9, "sm_80" }, { 9, 0, "sm_90a" },
		      { 10, 0, "sm_100" }, { 10, 3, "sm_100" }, { 12, 0, "ptx" } };

	if (cuda_image_at(0) == NULL)
		it_skip("no kernels are built in: configure --with-cuda");
	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct cuda_image *image = cuda_image_find("plan", cases[i].major, cases[i].minor);
		const char *arch = cases[i].arch != NULL && !has_image_for(cases[i].arch) ? "ptx" : cases[i].arch;

		it_require(arch == NULL ? image == NULL : image != NULL && strcmp(image->arch, arch) == 0, "%d.%d",
			   cases[i].major, cases[i].minor);
	}
	it_require(cuda_image_find("no such", 8, 0) == NULL);
}

IT_MAIN
