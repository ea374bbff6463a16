/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels' images.  The assembler includes their files (.incbin) relative to the build's top directory, where the
 * compiler runs.
 */
#include "config.h"

#include <stdint.h>
#include <string.h>

#include "kernels/cuda/host/images.h"
#include "kernels/cuda/host/aot_list.h"

/* Each with its directory in kernels/cuda. */
#define SOURCES(S)                                 \
	S("", append)                              \
	S("attention/decode/", attention_bytes)    \
	S("attention/", attention_combine)         \
	S("attention/", attention_merge)           \
	S("attention/mla/", attention_mla)         \
	S("attention/decode/", attention_mma)      \
	S("attention/prefill/", attention_prefill) \
	S("attention/decode/", attention_simt)     \
	S("", pages)                               \
	S("", plan)

/* For sm_90 and later */
#define SM_90_SOURCES(S) S("attention/decode/", attention_bulk)
/* For sm_90a alone */
#define SM_90A_SOURCES(S)                          \
	S("attention/mla/", attention_mla_cluster) \
	S("attention/mla/", attention_mla_wgmma)   \
	S("attention/prefill/", attention_wgmma)

#ifdef PAGED_CUDA_IMAGES

/* The architectures of CUDA_ARCHS. */
#ifdef PAGED_CUDA_SM_80
#define SM_80(A, directory, source) A(directory, source, sm_80)
#else
#define SM_80(A, directory, source)
#endif
#ifdef PAGED_CUDA_SM_90A
#define SM_90A(A, directory, source) A(directory, source, sm_90a)
#else
#define SM_90A(A, directory, source)
#endif
#ifdef PAGED_CUDA_SM_100
#define SM_100(A, directory, source) A(directory, source, sm_100)
#else
#define SM_100(A, directory, source)
#endif
#define CUBINS(A, directory, source) \
	SM_80(A, directory, source) SM_90A(A, directory, source) SM_100(A, directory, source)
#define ARCHITECTURES(A, directory, source) CUBINS(A, directory, source) A(directory, source, ptx)

#define INCLUDE(directory, source, arch)                                                           \
	__asm__(".pushsection .rodata\n"                                                           \
		".balign 64\n"                                                                     \
		"cuda_image_" #source "_" #arch ":\n"                                              \
		".incbin \"kernels/cuda/" directory #source "." #arch "\"\n"                       \
		"cuda_image_" #source "_" #arch "_end:\n"                                          \
		".byte 0\n"                                                                        \
		".popsection\n");                                                                  \
	extern const uint8_t cuda_image_##source##_##arch[] __attribute__((visibility("hidden"))); \
	extern const uint8_t cuda_image_##source##_##arch##_end[] __attribute__((visibility("hidden")));
#define INCLUDE_ALL(directory, source) ARCHITECTURES(INCLUDE, directory, source)
#define INCLUDE_AOT(name, mask, score) CUBINS(INCLUDE, "host/", aot_##name)
#define INCLUDE_SM_90(directory, source) SM_90A(INCLUDE, directory, source) SM_100(INCLUDE, directory, source)
#define INCLUDE_SM_90A(directory, source) SM_90A(INCLUDE, directory, source)
SOURCES(INCLUDE_ALL)
SM_90_SOURCES(INCLUDE_SM_90)
SM_90A_SOURCES(INCLUDE_SM_90A)
CUDA_AOT_LIST(INCLUDE_AOT)

#define ENTRY(directory, source, arch) \
	{ #source, #arch, cuda_image_##source##_##arch, cuda_image_##source##_##arch##_end },
#define ENTRY_ALL(directory, source) ARCHITECTURES(ENTRY, directory, source)
#define ENTRY_SM_90(directory, source) SM_90A(ENTRY, directory, source) SM_100(ENTRY, directory, source)
#define ENTRY_SM_90A(directory, source) SM_90A(ENTRY, directory, source)
#define ENTRY_AOT(name, mask, score) CUBINS(ENTRY, "host/", aot_##name)
#endif

static const struct cuda_image images[] = {
#ifdef PAGED_CUDA_IMAGES
	SOURCES(ENTRY_ALL) SM_90_SOURCES(ENTRY_SM_90) SM_90A_SOURCES(ENTRY_SM_90A) CUDA_AOT_LIST(ENTRY_AOT)
#endif
		{ NULL, NULL, NULL, NULL } /* the end of the list */
};

const struct cuda_image *
cuda_image_at(size_t i)
{
	return i + 1 < sizeof(images) / sizeof(images[0]) ? &images[i] : NULL;
}

int
cuda_images_version(void)
{
#ifdef PAGED_CUDA_IMAGES
	return PAGED_CUDA_IMAGES;
#else
	return 0;
#endif
}

/* A cubin runs on later minor versions of its major; one with "a" only on its exact version; PTX on 8.0 and later. */
static const char *
arch_for(int major, int minor)
{
	if (major == 9 && minor == 0)
		return "sm_90a";
	return major == 8 ? "sm_80" : major == 10 ? "sm_100" : "ptx";
}

static const struct cuda_image *
image_of(const char *source, const char *arch)
{
	const struct cuda_image *image;

	for (size_t i = 0; (image = cuda_image_at(i)) != NULL; i++)
		if (strcmp(image->source, source) == 0 && strcmp(image->arch, arch) == 0)
			break;
	return image;
}

/* A real driver finds no kernel in it; the tests' fake driver uses the kernels that it was built with. */
static const char nothing[] = "// built without nvcc\n.version 7.0\n.target sm_80\n.address_size 64\n";

const struct cuda_image cuda_image_none = { "none", "ptx", (const uint8_t *)nothing,
					    (const uint8_t *)nothing + sizeof(nothing) - 1 };

const struct cuda_image *
cuda_image_find(const char *source, int major, int minor)
{
	const struct cuda_image *image;

	if (major < 8)
		return NULL;
	if (cuda_image_at(0) == NULL)
		return &cuda_image_none;
	image = image_of(source, arch_for(major, minor));
	return image != NULL ? image : image_of(source, "ptx");
}
