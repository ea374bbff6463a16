/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/system_memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/param.h>

enum paged_status
system_memory_read(struct system_memory *memory, struct paged_error *error)
{
	uint64_t value, huge_free = 0, huge_reserved = 0;
	FILE *file = fopen("/proc/meminfo", "re");
	char line[128], name[64];

	if (file == NULL)
		return paged_fail(error, PAGED_ERR_SYSTEM, "/proc/meminfo: %m");
	*memory = (struct system_memory){ 0 };
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

/* Location and file names of one version of control groups. */
struct hierarchy {
	const char *controller; /* in /proc/self/cgroup */
	const char *mount;
	const char *limit, *usage;
	const char *reclaimable[2]; /* fields of memory.stat: page cache, which the kernel can reclaim */
};

static const struct hierarchy hierarchies[] = {
	{ "", "/sys/fs/cgroup", "memory.max", "memory.current", { "inactive_file", "active_file" } },
	{ "memory",
	  "/sys/fs/cgroup/memory",
	  "memory.limit_in_bytes",
	  "memory.usage_in_bytes",
	  { "total_inactive_file", "total_active_file" } },
};

static FILE *
cgroup_open(const char *dir, const char *name)
{
	char path[4300];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return fopen(path, "re");
}

/* Reads the number in a one-line file; false: it has none ("max") or does not exist. */
static bool
cgroup_read_number(const char *dir, const char *name, uint64_t *value_p)
{
	FILE *file = cgroup_open(dir, name);
	bool found;

	if (file == NULL)
		return false;
	found = fscanf(file, "%" SCNu64, value_p) == 1;
	fclose(file);
	return found;
}

static uint64_t
cgroup_read_reclaimable(const char *dir, const struct hierarchy *hierarchy)
{
	FILE *file = cgroup_open(dir, "memory.stat");
	uint64_t value, sum = 0;
	char name[64];

	if (file == NULL)
		return 0;
	while (fscanf(file, "%63s %" SCNu64, name, &value) == 2)
		if (strcmp(name, hierarchy->reclaimable[0]) == 0 || strcmp(name, hierarchy->reclaimable[1]) == 0)
			sum += value;
	fclose(file);
	return sum;
}

/* The directory of this process's group in the hierarchy, from lines such as "12:cpu,memory:/a/b". */
static bool
cgroup_dir(const char *root, const struct hierarchy *hierarchy, char *dir, size_t dir_size)
{
	FILE *file = cgroup_open(root, "proc/self/cgroup");
	char line[4096], *controllers, *path;
	bool found = false;

	if (file == NULL)
		return false;
	while (!found && fgets(line, sizeof(line), file) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		path = line;
		strsep(&path, ":");
		controllers = strsep(&path, ":");
		while (path != NULL && !found && controllers != NULL)
			found = strcmp(strsep(&controllers, ","), hierarchy->controller) == 0;
	}
	fclose(file);
	if (found)
		snprintf(dir, dir_size, "%s%s%s", root, hierarchy->mount, path);
	return found;
}

bool
system_memory_cgroup_limit(const char *root, uint64_t *limit_p, uint64_t *available_p)
{
	bool found = false;
	char dir[4150];

	for (size_t i = 0; i < sizeof(hierarchies) / sizeof(hierarchies[0]); i++) {
		const struct hierarchy *hierarchy = &hierarchies[i];

		if (!cgroup_dir(root, hierarchy, dir, sizeof(dir)))
			continue;
		/* The limits of all parent groups apply as well. */
		while (strlen(dir) >= strlen(root) + strlen(hierarchy->mount)) {
			uint64_t limit, usage, reclaimable, available;

			if (cgroup_read_number(dir, hierarchy->limit, &limit) &&
			    cgroup_read_number(dir, hierarchy->usage, &usage)) {
				reclaimable = cgroup_read_reclaimable(dir, hierarchy);
				usage -= MIN(usage, reclaimable);
				available = limit - MIN(limit, usage);
				if (!found || available < *available_p) {
					*limit_p = limit;
					*available_p = available;
				}
				found = true;
			}
			*strrchr(dir, '/') = '\0';
		}
	}
	return found;
}

bool
system_memory_transparent_huge_pages(void)
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
