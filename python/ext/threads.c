/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OpenMP threads spin for a while after each parallel region, and a second team of threads would wait for their CPUs.
 * So the kernels run on the team that torch has, through the entry point that GCC's compiled OpenMP code calls.
 */
#include "python/ext/ext.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/** libgomp: body(argument) runs on n threads of a team, the calling one included; fewer if the team is smaller. */
typedef void (*gomp_parallel_fn)(void (*body)(void *argument), void *argument, unsigned int n, unsigned int flags);

/* The process that has loaded the extension. */
static pid_t threads_loaded_in;

/* Written once, with the GIL held, before any client that uses it is opened. */
static gomp_parallel_fn gomp_parallel;

struct threads_section {
	paged_work_fn work;
	void *argument;
	uint32_t n;
	_Atomic uint32_t next;
};

/* Parts are taken from a counter, so each runs once however many threads the team has: one in a nested region. */
static void
threads_body(void *argument)
{
	struct threads_section *section = argument;
	uint32_t i;

	while ((i = atomic_fetch_add_explicit(&section->next, 1, memory_order_relaxed)) < section->n)
		section->work(section->argument, i);
}

void
threads_run(void *argument, paged_work_fn work, void *work_argument, uint32_t n)
{
	struct threads_section section = { .work = work, .argument = work_argument, .n = n };
	uintptr_t n_threads = (uintptr_t)argument;

	gomp_parallel(threads_body, &section, n < n_threads ? n : (unsigned int)n_threads, 0);
}

struct gomp_library {
	char path[4096];
	bool of_torch;
};

/* Prefers the library that torch brings: other packages (scikit-learn, say) bring theirs, with a team of its own. */
static int
gomp_library_consider(struct dl_phdr_info *info, size_t size, void *argument)
{
	struct gomp_library *library = argument;
	const char *path = info->dlpi_name, *file = path != NULL ? strrchr(path, '/') : NULL;

	(void)size;
	if (file == NULL || strncmp(file, "/libgomp", 8) != 0 || strlen(path) >= sizeof(library->path))
		return 0;
	library->of_torch = strstr(path, "/torch/") != NULL || strstr(path, "/torch.libs/") != NULL;
	if (library->path[0] == '\0' || library->of_torch)
		strcpy(library->path, path);
	return library->of_torch;
}

/*
 * torch's calls are bound to the first library of the global scope that has the function.  A preloaded libiomp5, for
 * example, has the entry points of libgomp, too, and torch loads libgomp as well.
 */
static bool
gomp_find_global(void)
{
	gomp_parallel_fn found;
	Dl_info info;

	*(void **)&found = dlsym(RTLD_DEFAULT, "GOMP_parallel");
	/* The handle is never closed: the clients' threads run the library's code. */
	if (found == NULL || dladdr(*(void **)&found, &info) == 0 ||
	    dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD) == NULL)
		return false;
	gomp_parallel = found;
	return true;
}

/*
 * The kernel marks a process that was forked and has not called exec.  Without /proc, a child is found if its parent
 * had loaded the extension.
 */
bool
threads_are_of_a_fork(void)
{
	const unsigned int forked_no_exec = 0x40; /* PF_FORKNOEXEC */
	char text[1024], *at;
	unsigned int flags;
	FILE *file = fopen("/proc/self/stat", "re");
	size_t n = file != NULL ? fread(text, 1, sizeof(text) - 1, file) : 0;

	if (file != NULL)
		fclose(file);
	text[n] = 0;
	/* "pid (name) state ppid pgrp session tty tpgid flags", and the name may contain anything. */
	at = strrchr(text, ')');
	if (at != NULL && sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %u", &flags) == 1 && (flags & forked_no_exec) != 0)
		return true;
	return threads_loaded_in != getpid();
}

void
threads_load(void)
{
	threads_loaded_in = getpid();
}

bool
threads_find_openmp(void)
{
	struct gomp_library library = { .path = "" };
	gomp_parallel_fn found;
	void *handle;

	if (gomp_find_global())
		return true;
	dl_iterate_phdr(gomp_library_consider, &library);
	if (library.path[0] == '\0' || (gomp_parallel != NULL && !library.of_torch))
		return gomp_parallel != NULL;
	/* Never closed, as above. */
	handle = dlopen(library.path, RTLD_NOW | RTLD_NOLOAD);
	if (handle == NULL)
		return gomp_parallel != NULL;
	*(void **)&found = dlsym(handle, "GOMP_parallel");
	if (found != NULL)
		gomp_parallel = found;
	return gomp_parallel != NULL;
}
