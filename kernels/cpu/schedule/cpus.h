/* SPDX-License-Identifier: Apache-2.0 */
/**
 * cpus.h - binds (pins) threads to CPUs of the caller's choice; NUMA: team_thread_start() in team.c
 */
#ifndef PAGED_KERNELS_CPU_SCHEDULE_CPUS_H
#define PAGED_KERNELS_CPU_SCHEDULE_CPUS_H

#include <pthread.h>
#include <stdint.h>

/**
 * cpus_set_affinity - bind a thread created with these attributes to one CPU; returns an errno value,
 * 0 on success
 */
int cpus_set_affinity(pthread_attr_t *attributes, uint32_t cpu);

#endif
