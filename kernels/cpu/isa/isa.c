/* SPDX-License-Identifier: Apache-2.0 */
/* Instruction sets: their names, which of them CPU and build support, and their primitives. */
#include "config.h"

#include <stdatomic.h>
#include <string.h>
#ifdef PAGED_X86_64
#include <cpuid.h>
#endif
#ifdef PAGED_AMX
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "kernels/cpu/tile.h"

#define NOT_SUPPORTED "this CPU or build lacks it"

static const char *const isa_names[KERNEL_N_ISAS] = {
	[KERNEL_GENERIC] = "generic",        [KERNEL_AVX2] = "avx2", [KERNEL_AVX512] = "avx512",
	[KERNEL_AVX512_BF16] = "avx512bf16", [KERNEL_AMX] = "amx",
};

/* NULL: not in this build. */
static const struct kernel_tile_ops *const isa_ops[KERNEL_N_ISAS] = {
	[KERNEL_GENERIC] = &kernel_tile_ops_generic,
#ifdef PAGED_X86_64
	[KERNEL_AVX2] = &kernel_tile_ops_avx2,
	[KERNEL_AVX512] = &kernel_tile_ops_avx512,
#endif
#ifdef PAGED_AVX512_BF16
	[KERNEL_AVX512_BF16] = &kernel_tile_ops_avx512bf16,
#endif
#ifdef PAGED_AMX
	[KERNEL_AMX] = &kernel_tile_ops_amx,
#endif
};

const char *
kernel_isa_name(enum kernel_isa isa)
{
	return isa < KERNEL_N_ISAS ? isa_names[isa] : "?";
}

#ifdef PAGED_AMX

/* From <asm/prctl.h> of Linux 5.16. */
enum { REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };

static pthread_once_t amx_once = PTHREAD_ONCE_INIT;
static const char *amx_unsupported = NOT_SUPPORTED;
static char amx_refused[128];

/* True if the CPU has AMX-TILE and AMX-BF16, and Linux saves tile registers across context switches (XCR0). */
static bool
amx_present(void)
{
	unsigned int a, b, c, d;
	uint32_t low, high;

	if (!__get_cpuid(1, &a, &b, &c, &d) || (c >> 27 & 1) == 0)
		return false; /* no xgetbv */
	if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d >> 22 & 1) == 0 || (d >> 24 & 1) == 0)
		return false;
	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	return (low >> 17 & 3) == 3;
}

/* Requests permission for tiles.  The permission is per process; threads and forked children inherit it. */
static void
amx_request(void)
{
	if (!amx_present())
		return;
	if (syscall(SYS_arch_prctl, REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0) {
		amx_unsupported = NULL;
		return;
	}
	snprintf(amx_refused, sizeof(amx_refused), "Linux refuses this process AMX's tiles: %s", strerror(errno));
	amx_unsupported = amx_refused;
}

#endif

#ifdef PAGED_X86_64
/*
 * clang 14's __builtin_cpu_supports() does not know "f16c".  The result is cached: in a virtual
 * machine each CPUID traps, and callers use this function in loops.
 */
static bool
isa_has_f16c(void)
{
	static _Atomic int known; /* 0: not asked yet, 1: yes, -1: no */
	int has = atomic_load_explicit(&known, memory_order_relaxed);
	unsigned int eax, ebx, ecx, edx;

	if (has == 0) {
		has = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0 ? 1 : -1;
		atomic_store_explicit(&known, has, memory_order_relaxed);
	}
	return has > 0;
}
#endif

static bool
isa_in_cpu(enum kernel_isa isa)
{
	bool has = isa < KERNEL_N_ISAS && isa_ops[isa] != NULL;

#ifdef PAGED_X86_64
	if (isa >= KERNEL_AVX2)
		has = has && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && isa_has_f16c();
	if (isa >= KERNEL_AVX512)
		has = has && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#endif
#ifdef PAGED_AVX512_BF16
	if (isa >= KERNEL_AVX512_BF16)
		has = has && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bf16");
#endif
	return has;
}

const char *
kernel_isa_unsupported_reason(enum kernel_isa isa)
{
#ifdef PAGED_AMX
	if (isa == KERNEL_AMX && isa_in_cpu(KERNEL_AVX512_BF16)) {
		pthread_once(&amx_once, amx_request);
		return amx_unsupported;
	}
#endif
	return isa_in_cpu(isa) ? NULL : NOT_SUPPORTED;
}

bool
kernel_isa_supported(enum kernel_isa isa)
{
	return kernel_isa_unsupported_reason(isa) == NULL;
}

enum kernel_isa
kernel_isa_best_up_to(enum kernel_isa limit)
{
	enum kernel_isa isa = limit;

	while (!kernel_isa_supported(isa))
		isa--;
	return isa;
}

enum kernel_isa
kernel_isa_best(void)
{
	return kernel_isa_best_up_to(KERNEL_N_ISAS - 1);
}

enum kernel_isa
kernel_isa_parse(const char *name)
{
	enum kernel_isa isa = KERNEL_GENERIC;

	while (isa < KERNEL_N_ISAS && strcmp(name, isa_names[isa]) != 0)
		isa++;
	return isa;
}

const struct kernel_tile_ops *
kernel_tile_ops(enum kernel_isa isa)
{
	return isa_ops[isa];
}
