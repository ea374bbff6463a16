/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake-cuda/cubin.h"

#include <elf.h>
#include <stdint.h>
#include <string.h>

/* Attributes in a section ".nv.info.KERNEL": format, number, and a value of 16 bits or of so many bytes. */
#define FORMAT_SIZED 4
#define ATTRIBUTE_MAX_THREADS 0x05
#define ATTRIBUTE_PARAM 0x17       /* its place, which is not 0 if it is aligned to more than the constant bank is */
#define ATTRIBUTE_PARAMS_SIZE 0x19 /* from place 0 on */
#define ATTRIBUTE_CLUSTER 0x3d     /* blocks in x, y and z */

int
cubin_arch(const void *cubin)
{
	const Elf64_Ehdr *header = cubin;

	/* From ABI version 8 (CUDA 13) on the number lies in the second byte. */
	return header->e_ident[EI_ABIVERSION] >= 8 ? header->e_flags >> 8 & 0xff : header->e_flags & 0xff;
}

static void
info_read(const unsigned char *at, const unsigned char *end, struct cubin_kernel *kernel)
{
	uint16_t offset = 0;

	while (at + 4 <= end) {
		uint16_t value;

		memcpy(&value, at + 2, sizeof(value));
		if (at[1] == ATTRIBUTE_PARAMS_SIZE)
			kernel->params_size = value;
		if (at[1] == ATTRIBUTE_MAX_THREADS && at[0] == FORMAT_SIZED)
			memcpy(&kernel->max_threads, at + 4, sizeof(kernel->max_threads));
		if (at[1] == ATTRIBUTE_CLUSTER && at[0] == FORMAT_SIZED)
			memcpy(&kernel->n_cluster_blocks, at + 4, sizeof(kernel->n_cluster_blocks));
		if (at[1] == ATTRIBUTE_PARAM && at[0] == FORMAT_SIZED)
			memcpy(&offset, at + 10, sizeof(offset));
		at += 4 + (at[0] == FORMAT_SIZED ? value : 0);
	}
	kernel->params_size -= offset;
}

bool
cubin_find(const void *cubin, const char *name, struct cubin_kernel *kernel)
{
	const Elf64_Ehdr *header = cubin;
	const Elf64_Shdr *sections = (const void *)((const char *)cubin + header->e_shoff);
	const char *names = (const char *)cubin + sections[header->e_shstrndx].sh_offset;

	*kernel = (struct cubin_kernel){ .n_cluster_blocks = 1 };
	for (unsigned int i = 0; i < header->e_shnum; i++) {
		const char *section = names + sections[i].sh_name;
		const unsigned char *at = (const unsigned char *)cubin + sections[i].sh_offset;

		if (strncmp(section, ".nv.info.", 9) != 0 || strcmp(section + 9, name) != 0)
			continue;
		info_read(at, at + sections[i].sh_size, kernel);
		return true;
	}
	return false;
}
