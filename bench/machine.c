/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/machine.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

/* The first line of a file that begins with `key`, from its colon on; false: there is none. */
static bool
machine_field(const char *path, const char *key, char *value, size_t size)
{
	FILE *file = fopen(path, "re");
	char line[8192];
	bool found = false;

	while (!found && file != NULL && fgets(line, sizeof(line), file) != NULL) {
		const char *colon = strchr(line, ':');

		if (strncmp(line, key, strlen(key)) != 0 || colon == NULL)
			continue;
		found = true;
		snprintf(value, size, "%s", colon + 1 + strspn(colon + 1, " \t"));
		value[strcspn(value, "\n")] = 0;
	}
	if (file != NULL)
		fclose(file);
	return found;
}

static void
machine_append(char *text, size_t size, const char *separator, const char *more)
{
	size_t n = strlen(text);

	snprintf(text + n, size - n, "%s%s", n > 0 ? separator : "", more);
}

static void
machine_describe_caches(char *text, size_t size)
{
	enum { LEVEL, TYPE, SIZE, N_FIELDS };
	static const char *const fields[N_FIELDS] = { "level", "type", "size" };

	text[0] = 0;
	for (int i = 0; i < 8; i++) {
		char values[N_FIELDS][32] = { "" }, path[96], one[96];

		for (int f = 0; f < N_FIELDS; f++) {
			FILE *file;

			snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/%s", i, fields[f]);
			file = fopen(path, "re");
			if (file == NULL || fscanf(file, "%31s", values[f]) != 1)
				values[f][0] = 0;
			if (file != NULL)
				fclose(file);
		}
		if (values[SIZE][0] == 0 || strcmp(values[TYPE], "Instruction") == 0)
			continue;
		snprintf(one, sizeof(one), "L%s%s %ld KiB", values[LEVEL], strcmp(values[TYPE], "Data") == 0 ? "d" : "",
			 strtol(values[SIZE], NULL, 10));
		machine_append(text, size, ", ", one);
	}
	if (text[0] == 0)
		snprintf(text, size, "caches unknown");
}

static void
machine_describe_flags(char *text, size_t size)
{
	static const char *const wanted[] = { "avx2",        "fma",         "f16c",     "avx512f",  "avx512bw",
					      "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "asimd" };
	char flags[8192];

	text[0] = 0;
	if (!machine_field("/proc/cpuinfo", "flags", flags, sizeof(flags)) &&
	    !machine_field("/proc/cpuinfo", "Features", flags, sizeof(flags)))
		return;
	for (const char *word = strtok(flags, " "); word != NULL; word = strtok(NULL, " "))
		for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
			if (strcmp(word, wanted[i]) == 0)
				machine_append(text, size, " ", word);
}

static double
machine_memory_kib(const char *key)
{
	char value[64];

	return machine_field("/proc/meminfo", key, value, sizeof(value)) ? strtod(value, NULL) : 0;
}

double
machine_memory_bytes(void)
{
	return machine_memory_kib("MemAvailable") * 1024;
}

void
machine_describe(struct machine *machine)
{
	struct utsname system;

	uname(&system);
	if (!machine_field("/proc/cpuinfo", "model name", machine->cpu, sizeof(machine->cpu)))
		snprintf(machine->cpu, sizeof(machine->cpu), "unknown CPU");
	machine->n_cores = sysconf(_SC_NPROCESSORS_ONLN);
	machine_describe_caches(machine->caches, sizeof(machine->caches));
	machine_describe_flags(machine->flags, sizeof(machine->flags));
	snprintf(machine->memory, sizeof(machine->memory), "%.1f GiB", machine_memory_kib("MemTotal") / (1 << 20));
	snprintf(machine->kernel, sizeof(machine->kernel), "%s", system.release);
}

static double
machine_seconds(struct timeval time)
{
	return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

void
machine_cpu_time_now(struct machine_cpu_time *work)
{
	/* user, nice, system, idle, iowait, irq, softirq, steal */
	unsigned long long ticks[8] = { 0 };
	char line[256] = "", *at = line + strlen("cpu");
	struct rusage own, children;
	FILE *file = fopen("/proc/stat", "re");

	if (file == NULL || fgets(line, sizeof(line), file) == NULL)
		strcpy(line, "cpu");
	if (file != NULL)
		fclose(file);
	*work = (struct machine_cpu_time){ 0 };
	for (int i = 0; i < 8; i++) {
		ticks[i] = strtoull(at, &at, 10);
		work->elapsed += (double)ticks[i] / (double)sysconf(_SC_CLK_TCK);
	}
	work->busy = work->elapsed - (double)(ticks[3] + ticks[4]) / (double)sysconf(_SC_CLK_TCK);
	getrusage(RUSAGE_SELF, &own);
	getrusage(RUSAGE_CHILDREN, &children);
	work->own = machine_seconds(own.ru_utime) + machine_seconds(own.ru_stime) + machine_seconds(children.ru_utime) +
		    machine_seconds(children.ru_stime);
}

double
machine_other_load(const struct machine_cpu_time *since)
{
	struct machine_cpu_time now;
	double other_load, elapsed;

	machine_cpu_time_now(&now);
	elapsed = now.elapsed - since->elapsed;
	other_load = now.busy - since->busy - (now.own - since->own);
	return elapsed > 0 && other_load > 0 ? other_load / elapsed : 0;
}
