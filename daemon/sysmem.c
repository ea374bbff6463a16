/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/sysmem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum paged_status
sysmem_read(struct sysmem *memory, struct paged_error *error)
{
	uint64_t value, huge_free = 0, huge_reserved = 0;
	FILE *file = fopen("/proc/meminfo", "re");
	char line[128], name[64];

	if (file == NULL)
		return paged_fail(error, PAGED_ERR_SYSTEM, "/proc/meminfo: %m");
	*memory = (struct sysmem){ 0 };
	while (fgets(line, sizeof(line), file) != NULL) {
		if (sscanf(line, "%63[^:]: %" SCNu64, name, &value) != 2)
			continue;
		if (strcmp(name, "MemTotal") == 0)
			memory->total = value << 10;
		else if (strcmp(name, "MemAvailable") == 0)
			memory->available = value << 10;
		else if (strcmp(name, "HugePages_Free") == 0)
			huge_free = value;
		else if (strcmp(name, "HugePages_Rsvd") == 0)
			huge_reserved = value;
		else if (strcmp(name, "Hugepagesize") == 0)
			memory->huge_size = value << 10;
	}
	fclose(file);
	if (huge_free > huge_reserved)
		memory->huge_available = (huge_free - huge_reserved) * memory->huge_size;
	return PAGED_OK;
}

/* The number in a one-line file; false: it has none ("max"), or is not there. */
static bool
number_read(const char *dir, const char *name, uint64_t *value_p)
{
	char path[4200];
	FILE *file;
	bool found;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	file = fopen(path, "re");
	if (file == NULL)
		return false;
	found = fscanf(file, "%" SCNu64, value_p) == 1;
	fclose(file);
	return found;
}

/* Cached files, which the kernel gives up for anything else. */
static uint64_t
reclaimable_read(const char *dir)
{
	char path[4200], name[64];
	uint64_t value, sum = 0;
	FILE *file;

	snprintf(path, sizeof(path), "%s/memory.stat", dir);
	file = fopen(path, "re");
	if (file == NULL)
		return 0;
	while (fscanf(file, "%63s %" SCNu64, name, &value) == 2)
		if (strcmp(name, "inactive_file") == 0 || strcmp(name, "active_file") == 0)
			sum += value;
	fclose(file);
	return sum;
}

/* Where the unified hierarchy has this process. */
static bool
cgroup_dir(char *dir, size_t dir_size)
{
	FILE *file = fopen("/proc/self/cgroup", "re");
	char line[4096];
	bool found = false;

	if (file == NULL)
		return false;
	while (!found && fgets(line, sizeof(line), file) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		found = strncmp(line, "0::/", 4) == 0;
	}
	fclose(file);
	if (found)
		snprintf(dir, dir_size, "/sys/fs/cgroup%s", line + 3);
	return found;
}

bool
sysmem_cgroup(uint64_t *limit_p, uint64_t *available_p)
{
	static const char root[] = "/sys/fs/cgroup";
	bool found = false;
	char dir[4150];

	if (!cgroup_dir(dir, sizeof(dir)))
		return false;
	while (strlen(dir) >= sizeof(root) - 1) {
		uint64_t limit, current, free_bytes;

		if (number_read(dir, "memory.max", &limit) && number_read(dir, "memory.current", &current)) {
			uint64_t reclaimable = reclaimable_read(dir);

			current -= reclaimable < current ? reclaimable : current;
			free_bytes = limit > current ? limit - current : 0;
			if (!found || free_bytes < *available_p) {
				*limit_p = limit;
				*available_p = free_bytes;
			}
			found = true;
		}
		*strrchr(dir, '/') = '\0';
	}
	return found;
}

bool
sysmem_transparent(void)
{
	FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "re");
	char line[128] = "";

	if (file == NULL)
		return false;
	if (fgets(line, sizeof(line), file) == NULL)
		line[0] = '\0';
	fclose(file);
	return strchr(line, '[') != NULL && strstr(line, "[never]") == NULL && strstr(line, "[deny]") == NULL;
}
