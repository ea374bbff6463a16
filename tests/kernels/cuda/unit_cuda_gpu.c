/* SPDX-License-Identifier: Apache-2.0 */
/* The code that needs no driver: names of devices, and the case that there is no device. */
#include <criterion/criterion.h>
#include <string.h>

#include "kernels/cuda/share_memory.h"

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
