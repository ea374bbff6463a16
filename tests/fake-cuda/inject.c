/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake-cuda/inject.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cuda/host/driver.h"

#define MAX_COUNTED 128

struct counted { /* calls of one function */
	const char *name;
	unsigned int n;
};

static struct counted counts[MAX_COUNTED];

static unsigned int
inject_count(const char *name)
{
	for (unsigned int i = 0; i < MAX_COUNTED; i++) {
		if (counts[i].name == NULL)
			counts[i].name = name;
		if (strcmp(counts[i].name, name) == 0)
			return ++counts[i].n;
	}
	return 0;
}

/* One item of PAGED_FAKE_CUDA_FAIL: NAME=RESULT, NAME@N=RESULT or NAME@N+=RESULT.  With "hang" it does not return. */
static int
inject_by(const char *item, const char *name, unsigned int n)
{
	size_t length = strlen(name);
	unsigned int from = 0;
	bool later = true;
	char *end;

	if (strncmp(item, name, length) != 0)
		return CUDA_SUCCESS;
	item += length;
	if (*item == '@') {
		from = (unsigned int)strtoul(item + 1, &end, 10);
		later = *end == '+';
		item = later ? end + 1 : end;
	}
	if (*item != '=' || n < from || (!later && n > from))
		return CUDA_SUCCESS;
	while (strncmp(item + 1, "hang", strlen("hang")) == 0)
		pause();
	return atoi(item + 1);
}

int
inject_result(const char *name)
{
	unsigned int n = inject_count(name);

	for (const char *item = getenv("PAGED_FAKE_CUDA_FAIL"); item != NULL; item = strchr(item, ',')) {
		int result;

		item += *item == ',';
		result = inject_by(item, name, n);
		if (result != CUDA_SUCCESS)
			return result;
	}
	return CUDA_SUCCESS;
}

void
inject_log(const char *name, int result)
{
	const char *path = getenv("PAGED_FAKE_CUDA_LOG");
	int fd = path == NULL ? -1 : open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0)
		return;
	dprintf(fd, "%d %s %d\n", (int)getpid(), name, result);
	close(fd);
}
