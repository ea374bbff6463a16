/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/cpu/schedule/cpus.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "kernels/kernels.h"

/* The largest NR_CPUS that Linux supports. */
#define CPUS_MOST 8192u

struct cpus {
	cpu_set_t sets[CPUS_MOST / CPU_SETSIZE];
};

static bool
cpus_contain(const struct cpus *cpus, uint32_t cpu)
{
	return cpu < CPUS_MOST && CPU_ISSET_S(cpu, sizeof(*cpus), cpus->sets);
}

int
cpus_set_affinity(pthread_attr_t *attributes, uint32_t cpu)
{
	struct cpus one = { 0 };

	if (cpu >= CPUS_MOST)
		return EINVAL;
	CPU_SET_S(cpu, sizeof(one), one.sets);
	return pthread_attr_setaffinity_np(attributes, sizeof(one), one.sets);
}

/* Thread: reads the CPUs of its cpuset, by requesting affinity to all CPUs, which Linux reduces to the cpuset. */
static void *
cpus_read_cpuset(void *argument)
{
	struct cpus *cpus = argument;

	memset(cpus, 0xff, sizeof(*cpus));
	sched_setaffinity(0, sizeof(*cpus), cpus->sets);
	if (sched_getaffinity(0, sizeof(*cpus), cpus->sets) != 0)
		memset(cpus, 0, sizeof(*cpus));
	return NULL;
}

/* Uses a new thread, because the caller's thread may be bound, and must stay so.  The thread blocks all signals. */
static enum paged_status
cpus_find_usable(struct cpus *cpus, struct paged_error *error)
{
	sigset_t all, before;
	pthread_t thread;
	int code;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	code = pthread_create(&thread, NULL, cpus_read_cpuset, cpus);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (code != 0)
		return paged_fail(error, PAGED_ERR_SYSTEM, "a thread to look for CPUs: %s", strerror(code));
	pthread_join(thread, NULL);
	return PAGED_OK;
}

/* "0-3,8,10-11" */
static void
cpus_list(const struct cpus *cpus, char *text, size_t size)
{
	size_t at = 0;

	text[0] = '\0';
	for (uint32_t cpu = 0, last; cpu < CPUS_MOST; cpu = last + 1) {
		last = cpu;
		if (!cpus_contain(cpus, cpu))
			continue;
		if (at + 16 >= size) {
			snprintf(text + at, size - at, ",...");
			return;
		}
		while (cpus_contain(cpus, last + 1))
			last++;
		at += (size_t)snprintf(text + at, size - at, "%s%u", at > 0 ? "," : "", cpu);
		if (last > cpu)
			at += (size_t)snprintf(text + at, size - at, "-%u", last);
	}
}

enum paged_status
kernel_cpus_check(const uint32_t *cpus, uint32_t n, struct paged_error *error)
{
	struct cpus usable, seen = { 0 };
	enum paged_status status = cpus_find_usable(&usable, error);
	char text[96];

	if (status != PAGED_OK)
		return status;
	for (uint32_t i = 0; i < n; i++) {
		if (!cpus_contain(&usable, cpus[i])) {
			cpus_list(&usable, text, sizeof(text));
			return paged_fail(error, PAGED_ERR_INVALID, "cpus[%u] is CPU %u: this process may use %s", i,
					  cpus[i], text);
		}
		if (cpus_contain(&seen, cpus[i]))
			return paged_fail(error, PAGED_ERR_INVALID, "cpus[%u] is CPU %u, which is there before", i,
					  cpus[i]);
		CPU_SET_S(cpus[i], sizeof(seen), seen.sets);
	}
	return PAGED_OK;
}
