/* SPDX-License-Identifier: Apache-2.0 */
/**
 * machine.h - what a run was measured on, in words
 */
#ifndef PAGED_BENCH_MACHINE_H
#define PAGED_BENCH_MACHINE_H

struct machine {
	char cpu[128];
	long n_cores;
	char caches[96]; /* "L1d 32 KiB, L2 1 MiB, L3 32 MiB": of the first core */
	char memory[32];
	char flags[256]; /* those of the CPU that kernels could use */
	char kernel[65];
};

void machine_describe(struct machine *machine);

/** machine_memory_bytes - that can be had without disturbing others, as the kernel sees it */
double machine_memory_bytes(void);

/** What the machine had done, and this process and its ended children, at some moment; in seconds of a core. */
struct machine_work {
	double passed, all, own;
};

void machine_work_now(struct machine_work *work);

/** machine_others - the share of all cores that others have had since, the hypervisor's too */
double machine_others(const struct machine_work *since);

#endif
