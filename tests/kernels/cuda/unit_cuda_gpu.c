/* SPDX-License-Identifier: Apache-2.0 */
/* The code that needs no driver: names of devices, and the case that there is no device. */
#include <criterion/criterion.h>
#include <string.h>

#include "kernels/cuda/host/share_memory.h"

#define TEXT "GPU-0123abcd-4567-89ef-0011-223344556677"

Test(cuda_gpu, uuid_format_of_nvidia_smi)
{
	static const uint8_t bytes[16] = { 0x01, 0x23, 0xab, 0xcd, 0x45, 0x67, 0x89, 0xef,
					   0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77 };
	char text[CUDA_UUID_TEXT];
	struct cuda_uuid uuid;

	cr_assert(cuda_uuid_parse(TEXT, &uuid));
	cr_expect_arr_eq(uuid.bytes, bytes, sizeof(bytes));
	cr_expect_str_eq(cuda_uuid_format(&uuid, text), TEXT);
	cr_expect(cuda_uuid_parse("MIG-0123ABCD-4567-89EF-0011-223344556677", &uuid));
	cr_expect(cuda_uuid_parse("0123abcd-4567-89ef-0011-223344556677", &uuid));
	cr_expect_arr_eq(uuid.bytes, bytes, sizeof(bytes));
}

Test(cuda_gpu, refuses_invalid_uuids)
{
	static const char *const bad[] = { "",
					   "0",
					   "GPU-",
					   "GPU-0123abcd",
					   "GPU-0123abcd4567-89ef-0011-223344556677",
					   "GPU-0123abcd-4567-89ef-0011-22334455667",
					   "GPU-0123abcd-4567-89ef-0011-2233445566778",
					   "GPU-0123abcd-4567-89ef-0011-22334455667g" };
	struct cuda_uuid uuid;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		cr_expect_not(cuda_uuid_parse(bad[i], &uuid), "%s", bad[i]);
}

/* An error of a module names both versions of CUDA, and the driver that would load it. */
Test(cuda_gpu, driver_older_than_the_images)
{
	static const struct {
		int images, driver;
		const char *added;
	} cases[] = {
		{ 13000, 12080,
		  "; CUDA 13.0 compiled it, and this driver supports CUDA 12.8: install driver 580 or newer, or "
		  "compile with "
		  "CUDA 12.8" },
		{ 12090, 12040,
		  "; CUDA 12.9 compiled it, and this driver supports CUDA 12.4: install a newer driver, or compile "
		  "with "
		  "CUDA 12.4" },
		{ 14010, 13000,
		  "; CUDA 14.1 compiled it, and this driver supports CUDA 13.0: install a newer driver, or compile "
		  "with "
		  "CUDA 13.0" },
		{ 12040, 12040, "" },
		{ 11040, 13000, "" },
		{ 0, 12080, "" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct paged_error error = { .status = PAGED_ERR_BACKEND,
					     .text = "pool test: cuModuleLoadData of plan" };
		const struct cuda_driver driver = { .version = cases[i].driver };

		cuda_add_driver_age(&driver, cases[i].images, &error);
		cr_expect_str_eq(error.text + strlen("pool test: cuModuleLoadData of plan"), cases[i].added);
		cr_expect_eq(error.status, cases[i].added[0] != 0 ? PAGED_ERR_UNSUPPORTED : PAGED_ERR_BACKEND);
	}
}

Test(cuda_gpu, error_names_nvrtc)
{
	static const struct {
		int driver, nvrtc;
		const char *added;
	} cases[] = {
		{ 12080, 13000,
		  "; NVRTC 13.0 compiled it, and this driver supports CUDA 12.8: set PAGED_NVRTC to NVRTC 12.8 or "
		  "older" },
		{ 12040, 12090,
		  "; NVRTC 12.9 compiled it, and this driver supports CUDA 12.4: set PAGED_NVRTC to NVRTC 12.4 or "
		  "older" },
		{ 12080, 12080, "; NVRTC 12.8 compiled it, and this driver supports CUDA 12.8" },
		{ 13000, 11020, "; NVRTC 11.2 compiled it, and this driver supports CUDA 13.0" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct paged_error error = { .status = PAGED_ERR_BACKEND, .text = "cuModuleLoadData" };
		const struct cuda_driver driver = { .version = cases[i].driver };

		cuda_add_nvrtc_version(&driver, cases[i].nvrtc, &error);
		cr_expect_str_eq(error.text + strlen("cuModuleLoadData"), cases[i].added);
		cr_expect_eq(error.status,
			     cases[i].nvrtc > cases[i].driver ? PAGED_ERR_UNSUPPORTED : PAGED_ERR_BACKEND);
	}
}

/* pagedd restarts after these errors, and only after these. */
Test(cuda_gpu, sticky_errors)
{
	static const int sticky[] = { 214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911 };
	static const int other[] = { 0, 1, 2, 100, 200, 209, 218, 222, 600, 701, 713, 720, 800, 900, 999 };

	for (size_t i = 0; i < sizeof(sticky) / sizeof(sticky[0]); i++)
		cr_expect(cuda_is_sticky(sticky[i]), "%d", sticky[i]);
	for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++)
		cr_expect_not(cuda_is_sticky(other[i]), "%d", other[i]);
}

/* A zeroed struct was never opened. */
Test(cuda_gpu, close_without_open)
{
	struct cuda_memory memory = { .size = 0 };
	struct cuda_import import = { .size = 0 };
	struct cuda_gpu gpu;
	struct paged_error error = { .text = "" };

	memset(&gpu, 0, sizeof(gpu));
	cuda_share_free(&gpu, &memory);
	cuda_import_close(&gpu, &import);
	cuda_gpu_close(&gpu);
	if (cuda_gpu_open(&gpu, "0", &error) == PAGED_OK) {
		cuda_gpu_close(&gpu);
		return; /* there is one here */
	}
	cr_expect_eq(error.status, PAGED_ERR_UNSUPPORTED);
	cr_expect_eq(strncmp(error.text, "no CUDA d", 9), 0, "%s", error.text);
}
