/* SPDX-License-Identifier: Apache-2.0 */
/**
 * machine.h - describes the machine of a run
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

/** machine_memory_bytes - memory that is available without swapping, by the kernel's estimate */
double machine_memory_bytes(void);

/**
 * Processor time up to a moment, in core seconds: `elapsed` is the time of all cores, `busy` the part that was not
 * idle, `own` the part that this process and its ended children used
 */
struct machine_cpu_time {
	double elapsed, busy, own;
};

void machine_cpu_time_now(struct machine_cpu_time *work);

/** machine_other_load - the share of all cores that other processes have had since then, including steal time */
double machine_other_load(const struct machine_cpu_time *since);

#endif
