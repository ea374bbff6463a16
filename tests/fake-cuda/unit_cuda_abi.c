/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver.h, nvrtc.h and struct cuda_tensor_map agree with the toolkit's headers: constants, sizes, functions and their
 * parameter counts.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/host/driver.h"
#include "kernels/cuda/host/nvrtc.h"
#include "kernels/cuda/kernels.h"
#include "tests/fake-cuda/cuda_abi.h"
#include "tests/support/cuda_graph.h"

#ifdef CUDA_TOOLKIT
Test(cuda_abi, numbers_and_sizes)
{
#define OURS(ours, theirs) { #ours, (long)(ours) },
	static const struct {
		const char *name;
		long value;
	} ours[] = { CUDA_ABI(OURS) };

	for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
		cr_expect_eq(ours[i].value, cuda_abi_theirs[i], "%s is %ld here and %ld in the toolkit", ours[i].name,
			     ours[i].value, cuda_abi_theirs[i]);
}

static char *
header_read(const char *name)
{
	char path[1024], *text;
	FILE *file;
	size_t n;

	snprintf(path, sizeof(path), CUDA_TOOLKIT "/include/%s", name);
	file = fopen(path, "re");
	cr_assert_not_null(file, "%s", path);
	text = calloc(1, (size_t)4 << 20);
	n = fread(text, 1, ((size_t)4 << 20) - 1, file);
	cr_assert_gt(n, 0);
	fclose(file);
	return text;
}

/* Where the parameters of a declaration begin, by how declarations look in these headers. */
static const char *
declaration_find(const char *header, const char *symbol, int length)
{
	static const char *const before[] = { " CUDAAPI ", "nvrtcResult ", "char *" };
	char wanted[128];

	for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++) {
		const char *at;

		snprintf(wanted, sizeof(wanted), "%s%.*s(", before[i], length, symbol);
		at = strstr(header, wanted);
		if (at != NULL)
			return at + strlen(wanted);
	}
	return NULL;
}

/* A versioned name is declared by its plain one, which is defined as the other. */
static const char *
function_find(const char *header, const char *symbol)
{
	const char *version = strstr(symbol, "_v"), *at = declaration_find(header, symbol, (int)strlen(symbol));

	if (version == NULL)
		version = strstr(symbol, "WithFlags");
	if (at == NULL && version != NULL && strstr(header, symbol) != NULL)
		at = declaration_find(header, symbol, (int)(version - symbol));
	return at;
}

static unsigned int
commas_until_close(const char *at)
{
	unsigned int n = 0;

	for (; *at != ')' && *at != '\0'; at++)
		n += *at == ',';
	return n;
}

static void
function_check(const char *header, const char *symbol, const char *parameters)
{
	const char *theirs = function_find(header, symbol);

	cr_expect_not_null(theirs, "the toolkit has no %s", symbol);
	if (theirs != NULL)
		cr_expect_eq(commas_until_close(theirs), commas_until_close(parameters + 1),
			     "%s has other parameters in the toolkit", symbol);
}

Test(cuda_abi, functions)
{
	char *driver = header_read("cuda.h"), *nvrtc = header_read("nvrtc.h");

#define CHECK_DRIVER(symbol, field, parameters) function_check(driver, #symbol, #parameters);
	CUDA_DRIVER_FUNCTIONS(CHECK_DRIVER)
	CUDA_DRIVER_OPTIONAL_FUNCTIONS(CHECK_DRIVER)
	CUDA_GRAPH_FUNCTIONS(CHECK_DRIVER)
#define CHECK_NVRTC(type, symbol, field, parameters) function_check(nvrtc, #symbol, #parameters);
	CUDA_NVRTC_FUNCTIONS(CHECK_NVRTC)
	free(driver);
	free(nvrtc);
}
#else
Test(cuda_abi, numbers_and_sizes)
{
	cr_skip("no CUDA toolkit: configure found no cuda.h");
}
#endif
