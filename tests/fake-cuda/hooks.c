/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions that -fsanitize=thread makes a kernel call before each access
 * to memory.  They replace libtsan's and call the race detector.
 */
#include <dlfcn.h>

#include "tests/fake-cuda/fibre.h"
#include "tests/fake-cuda/simt_block.h"

#pragma GCC visibility push(default)

static inline void
hook(void *at, size_t size, bool writes, const void *code)
{
	uintptr_t address = (uintptr_t)at;
	Dl_info info;

	if (block.launch == NULL || fibre_on_stack(address))
		return;
	/* Tables of constants lie in the kernel's own object. */
	if (!writes && region_find(address) == NULL && dladdr(at, &info) != 0)
		return;
	race_access(address, size, writes, code);
}

#define HOOK(name, size, writes)                                     \
	void name(void *at);                                         \
	void name(void *at)                                          \
	{                                                            \
		hook(at, size, writes, __builtin_return_address(0)); \
	}
#define HOOKS(size)                                             \
	HOOK(__tsan_read##size, size, false)                    \
	HOOK(__tsan_write##size, size, true)                    \
	HOOK(__tsan_unaligned_read##size, size, false)          \
	HOOK(__tsan_unaligned_write##size, size, true)          \
	HOOK(__tsan_volatile_read##size, size, false)           \
	HOOK(__tsan_volatile_write##size, size, true)           \
	HOOK(__tsan_unaligned_volatile_read##size, size, false) \
	HOOK(__tsan_unaligned_volatile_write##size, size, true)
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

#define HOOK_RANGE(name, writes)                                             \
	void name(void *at, size_t size);                                    \
	void name(void *at, size_t size)                                     \
	{                                                                    \
		if (size > 0)                                                \
			hook(at, size, writes, __builtin_return_address(0)); \
	}
HOOK_RANGE(__tsan_read_range, false)
HOOK_RANGE(__tsan_write_range, true)

#define HOOK_NOTHING(name, ...) \
	void name(__VA_ARGS__); \
	void name(__VA_ARGS__)  \
	{                       \
	}
HOOK_NOTHING(__tsan_init, void)
HOOK_NOTHING(__tsan_func_entry, __attribute__((unused)) void *caller)
HOOK_NOTHING(__tsan_func_exit, void)

/* clang's; they must do the work as well. */
void *__tsan_memcpy(void *to, const void *from, size_t size);
void *__tsan_memset(void *to, int value, size_t size);
void *__tsan_memmove(void *to, const void *from, size_t size);

void *
__tsan_memcpy(void *to, const void *from, size_t size)
{
	return __tsan_memmove(to, from, size);
}

void *
__tsan_memmove(void *to, const void *from, size_t size)
{
	__tsan_read_range((void *)from, size);
	__tsan_write_range(to, size);
	return __builtin_memmove(to, from, size);
}

void *
__tsan_memset(void *to, int value, size_t size)
{
	__tsan_write_range(to, size);
	return __builtin_memset(to, value, size);
}
