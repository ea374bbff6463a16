/* SPDX-License-Identifier: Apache-2.0 */
/* JIT-compiled mods: request, wait, sharing, disk cache; with a compiler of the test and with the toolkit's NVRTC. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cuda/jit_store.h"
#include "kernels/cuda/host/aot.h"
#include "kernels/mod/cuda_source.h"
#include "tests/support/mod_fixture.h"
#include "tests/fake-cuda/load.h"

/* A compiler that returns the mods' text as the image. */
struct fake_compiler {
	sem_t permits; /* needs_permit: each compilation takes one */
	bool needs_permit;
	bool fails, absent;
	const char *version;
	atomic_uint n_opened, n_compiled;
	pthread_t caller;
	char log[2048];
};

static enum paged_status
test_open(void *argument, char *version, size_t size, struct paged_error *error)
{
	struct fake_compiler *fake_compiler = argument;

	fake_compiler->n_opened++;
	if (fake_compiler->absent)
		return paged_fail(error, PAGED_ERR_UNSUPPORTED, "no compiler");
	snprintf(version, size, "%s", fake_compiler->version);
	return PAGED_OK;
}

static enum paged_status
test_compile(void *argument, const struct jit_request *request, struct cuda_jit_image *compiled_p,
	     struct paged_error *error)
{
	struct fake_compiler *fake_compiler = argument;

	if (fake_compiler->needs_permit)
		sem_wait(&fake_compiler->permits);
	fake_compiler->n_compiled++;
	if (fake_compiler->fails)
		return paged_fail(error, PAGED_ERR_BACKEND, "error in %s", request->mods);
	compiled_p->bytes = strdup(request->mods);
	compiled_p->size = strlen(request->mods);
	return PAGED_OK;
}

static void
test_close(void *argument)
{
	((struct fake_compiler *)argument)->n_opened += 100;
}

static const struct jit_compiler test_compiler = { test_open, test_compile, test_close };

static void
test_log(void *argument, enum paged_log_level level, const char *text)
{
	struct fake_compiler *fake_compiler = argument;
	size_t length = strlen(fake_compiler->log);

	cr_expect(pthread_equal(pthread_self(), fake_compiler->caller), "logged by the calling thread");
	snprintf(fake_compiler->log + length, sizeof(fake_compiler->log) - length, "%c %s\n",
		 level == PAGED_LOG_WARNING ? 'w'
		 : level == PAGED_LOG_INFO  ? 'i'
					    : 'd',
		 text);
}

static char cache_dir[64];
static struct paged_error error;

static void
cache_dir_create(void)
{
	strcpy(cache_dir, "/tmp/paged-code.XXXXXX");
	cr_assert_not_null(mkdtemp(cache_dir));
}

static void
cache_dir_remove(void)
{
	char command[256];

	snprintf(command, sizeof(command), "rm -r %s", cache_dir);
	cr_assert_eq(system(command), 0);
}

TestSuite(jit_store, .init = cache_dir_create, .fini = cache_dir_remove, .timeout = 1800);

static struct jit_store *
test_store_open(struct fake_compiler *fake_compiler, const char *cache)
{
	const struct jit_store_params params = { &test_compiler, fake_compiler, cache, test_log, fake_compiler };
	struct jit_store *store;

	if (fake_compiler->version == NULL)
		fake_compiler->version = "1";
	fake_compiler->caller = pthread_self();
	sem_init(&fake_compiler->permits, 0, 0);
	cr_assert_eq(jit_store_create(&params, &store, &error), PAGED_OK, "%s", error.text);
	return store;
}

static struct jit_code *
test_prepare(struct jit_store *store, const char *mods)
{
	const struct jit_request request = { "attention_simt", "attention_simt_128", mods, 90, false };
	struct jit_code *code;

	cr_assert_eq(jit_prepare(store, &request, &code, &error), PAGED_OK, "%s", error.text);
	return code;
}

static void
expect_image(struct jit_code *code, const char *expected)
{
	cr_assert_eq(jit_wait(code, -1, &error), PAGED_OK, "%s", error.text);
	cr_expect_eq(jit_wait(code, 0, &error), PAGED_OK);
	cr_expect(jit_image(code)->size == strlen(expected) &&
		  memcmp(jit_image(code)->bytes, expected, strlen(expected)) == 0);
}

Test(jit_store, request_poll_and_wait)
{
	struct fake_compiler fake_compiler = { .needs_permit = true };
	struct jit_store *store = test_store_open(&fake_compiler, "");
	struct jit_code *a = test_prepare(store, "a"), *b = test_prepare(store, "b");

	cr_expect_eq(jit_wait(a, 0, &error), PAGED_ERR_AGAIN);
	cr_expect_eq(jit_wait(a, 20, &error), PAGED_ERR_TIMEOUT);
	cr_expect_str_eq(error.text, "the mods were not compiled within 20 ms");
	sem_post(&fake_compiler.permits);
	expect_image(a, "a");
	cr_expect_eq(jit_wait(b, 0, &error), PAGED_ERR_AGAIN);
	sem_post(&fake_compiler.permits);
	expect_image(b, "b");
	jit_release(a);
	jit_release(b);
	jit_store_destroy(store, false);
	cr_expect_eq(fake_compiler.n_opened, 101);
}

Test(jit_store, unused_and_null_stores_are_destroyed)
{
	struct fake_compiler fake_compiler = { .n_opened = 0 };

	jit_store_destroy(test_store_open(&fake_compiler, NULL), false);
	jit_store_destroy(NULL, false);
	jit_release(NULL);
	cr_expect_eq(fake_compiler.n_opened, 0);
}

Test(jit_store, equal_requests_share_code)
{
	struct fake_compiler fake_compiler = { .needs_permit = true };
	struct jit_store *store = test_store_open(&fake_compiler, "");
	struct jit_code *a = test_prepare(store, "a"), *same = test_prepare(store, "a");

	cr_expect_eq(a, same);
	sem_post(&fake_compiler.permits);
	jit_release(same);
	expect_image(a, "a");
	cr_expect_eq(test_prepare(store, "a"), a);
	cr_expect_eq(fake_compiler.n_compiled, 1);
	jit_store_destroy(store, false);
}

Test(jit_store, requests_that_differ_compile_separately)
{
	static const struct jit_request requests[] = {
		{ "attention_simt", "attention_simt_128", "a", 90, false },
		{ "attention_simt", "attention_simt_128", "b", 90, false },
		{ "attention_simt", "attention_simt_256", "a", 90, false },
		{ "attention_simt", "attention_simt_128", "a", 80, false },
		{ "attention_simt", "attention_simt_128", "a", 90, true },
		{ "attention_mma", "attention_mma_f16_128", "a", 90, false },
	};
	struct fake_compiler fake_compiler = { .version = "1" };
	struct jit_code *code;

	for (unsigned int life = 0; life < 3; life++) {
		struct jit_store *store = test_store_open(&fake_compiler, cache_dir);

		for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
			cr_assert_eq(jit_prepare(store, &requests[i], &code, &error), PAGED_OK);
			expect_image(code, requests[i].mods);
		}
		jit_store_destroy(store, false);
		/* Later stores read everything from disk, and open no compiler, not even one of another version. */
		cr_expect_eq(fake_compiler.n_compiled, sizeof(requests) / sizeof(requests[0]));
		cr_expect_eq(fake_compiler.n_opened, 101);
		fake_compiler.version = "2";
	}
}

/* Cached code is found without a compiler. */
Test(jit_store, cached_code_needs_no_compiler)
{
	struct fake_compiler fake_compiler = { .absent = false };
	struct jit_store *store = test_store_open(&fake_compiler, cache_dir);

	expect_image(test_prepare(store, "a"), "a");
	jit_store_destroy(store, false);
	fake_compiler.absent = true;
	store = test_store_open(&fake_compiler, cache_dir);
	expect_image(test_prepare(store, "a"), "a");
	cr_expect_eq(jit_wait(test_prepare(store, "b"), -1, &error), PAGED_ERR_UNSUPPORTED);
	jit_store_destroy(store, false);
	cr_expect_not_null(strstr(fake_compiler.log, "i attention_simt_128 compiled for 9.0 by 1 in "), "%s",
			   fake_compiler.log);
	cr_expect_not_null(strstr(fake_compiler.log, "d attention_simt_128 for 9.0, 1 bytes, read from disk in "), "%s",
			   fake_compiler.log);
}

/* The driver may be older than the compiler: another machine shares the home directory. */
Test(jit_store, code_refused_by_the_driver)
{
	struct fake_compiler fake_compiler = { .absent = false };
	struct jit_store *store;
	struct jit_code *a, *again;

	for (unsigned int life = 0; life < 3; life++) {
		store = test_store_open(&fake_compiler, cache_dir);
		a = test_prepare(store, "a");
		expect_image(a, "a");
		/* Code compiled by this store fails permanently; cached code is compiled once more. */
		if (life < 2)
			cr_expect_eq(jit_refused(a), life == 1);
		if (life == 1) {
			cr_expect(jit_refused(a));
			again = test_prepare(store, "a");
			cr_expect_neq(again, a);
			expect_image(again, "a");
			cr_expect(!jit_refused(again));
			jit_release(again);
		}
		jit_release(a);
		jit_store_destroy(store, false);
		cr_expect_eq(fake_compiler.n_compiled, life == 0 ? 1 : 2);
	}
}

/* jit_store_flush_log() logs each line once, in order, in the calling thread. */
Test(jit_store, log_lines_are_kept_until_a_flush)
{
	struct fake_compiler fake_compiler = { .absent = false };
	struct jit_store *store = test_store_open(&fake_compiler, cache_dir);

	expect_image(test_prepare(store, "a"), "a");
	cr_expect_str_empty(fake_compiler.log);
	jit_store_flush_log(store);
	cr_expect_not_null(strstr(fake_compiler.log, "compiled"), "%s", fake_compiler.log);
	fake_compiler.log[0] = '\0';
	jit_store_flush_log(store);
	cr_expect_str_empty(fake_compiler.log);
	jit_store_destroy(store, false);
}

Test(jit_store, failures_are_reported_and_retried)
{
	struct fake_compiler fake_compiler = { .fails = true };
	struct jit_store *store = test_store_open(&fake_compiler, cache_dir);
	struct jit_code *a = test_prepare(store, "a"), *again;

	cr_expect_eq(jit_wait(a, -1, &error), PAGED_ERR_BACKEND);
	cr_expect_str_eq(error.text, "error in a");
	fake_compiler.fails = false;
	cr_expect_eq(jit_wait(a, 0, &error), PAGED_ERR_BACKEND);
	again = test_prepare(store, "a");
	cr_expect_neq(again, a);
	expect_image(again, "a");
	jit_release(a);
	jit_release(again);
	jit_store_destroy(store, false);
}

Test(jit_store, no_compiler)
{
	struct fake_compiler fake_compiler = { .absent = true };
	struct jit_store *store = test_store_open(&fake_compiler, cache_dir);
	struct jit_code *a = test_prepare(store, "a");

	cr_expect_eq(jit_wait(a, -1, &error), PAGED_ERR_UNSUPPORTED);
	cr_expect_str_eq(error.text, "no compiler");
	jit_store_destroy(store, false);
	cr_expect_eq(fake_compiler.n_opened, 1);
}

/* Truncates all files of the cache by one byte. */
static void
cache_truncate_files(void)
{
	struct dirent *entry;
	DIR *dir = opendir(cache_dir);
	char path[512];
	struct stat stat;

	cr_assert_not_null(dir);
	while ((entry = readdir(dir)) != NULL) {
		snprintf(path, sizeof(path), "%s/%s", cache_dir, entry->d_name);
		cr_assert_eq(lstat(path, &stat), 0);
		if (S_ISREG(stat.st_mode))
			cr_assert_eq(truncate(path, stat.st_size - 1), 0);
	}
	closedir(dir);
}

Test(jit_store, damaged_code_is_compiled_again)
{
	struct fake_compiler fake_compiler = { .n_opened = 0 };
	struct jit_store *store;

	for (unsigned int life = 0; life < 3; life++) {
		store = test_store_open(&fake_compiler, cache_dir);
		expect_image(test_prepare(store, "a"), "a");
		jit_store_destroy(store, false);
		cr_expect_eq(fake_compiler.n_compiled, life == 0 ? 1 : 2);
		if (life == 0)
			cache_truncate_files();
	}
	cr_expect_not_null(strstr(fake_compiler.log, "was damaged, and is removed\n"), "%s", fake_compiler.log);
}

Test(jit_store, an_unusable_cache_is_not_fatal)
{
	struct fake_compiler fake_compiler = { .n_opened = 0 };
	struct jit_store *store = test_store_open(&fake_compiler, cache_dir);

	cr_assert_eq(chmod(cache_dir, 0755), 0);
	expect_image(test_prepare(store, "a"), "a");
	expect_image(test_prepare(store, "b"), "b");
	jit_store_destroy(store, false);
	cr_expect_not_null(strstr(fake_compiler.log, "has mode 0755: others may get at it, 0700 is wanted; "
						     "compiled mods are not kept\n"),
			   "%s", fake_compiler.log);
	cr_expect_null(strstr(strstr(fake_compiler.log, "not kept") + 1, "not kept"), "once: %s", fake_compiler.log);
}

Test(jit_store, released_during_compilation)
{
	struct fake_compiler fake_compiler = { .needs_permit = true };
	struct jit_store *store = test_store_open(&fake_compiler, cache_dir);
	struct jit_code *a = test_prepare(store, "a"), *b = test_prepare(store, "b");

	cr_expect_eq(jit_wait(a, 20, &error), PAGED_ERR_TIMEOUT);
	jit_release(a);
	jit_release(b);
	sem_post(&fake_compiler.permits);
	jit_store_destroy(store, false);
	cr_expect_leq(fake_compiler.n_compiled, 1);
}

Test(jit_store, a_forked_child_does_not_compile)
{
	struct fake_compiler fake_compiler = { .needs_permit = true };
	struct jit_store *store = test_store_open(&fake_compiler, "");
	struct jit_code *a = test_prepare(store, "a");
	int status;
	pid_t child;

	cr_expect_eq(jit_wait(a, 10, &error), PAGED_ERR_TIMEOUT);
	child = fork();
	if (child == 0) {
		jit_store_destroy(store, true);
		_exit(0);
	}
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	sem_post(&fake_compiler.permits);
	expect_image(a, "a");
	jit_store_destroy(store, false);
}

static void *
request_all(void *argument)
{
	struct jit_store *store = argument;
	struct paged_error own;

	for (unsigned int i = 0; i < 400; i++) {
		char mods[2] = { (char)('a' + i % 7), '\0' };
		const struct jit_request request = { "attention_simt", "attention_simt_128", mods, 90, false };
		struct jit_code *code;

		if (jit_prepare(store, &request, &code, &own) != PAGED_OK)
			return argument;
		if (i % 3 != 0 && (jit_wait(code, -1, &own) != PAGED_OK || jit_image(code)->bytes[0] != mods[0]))
			return argument;
		jit_release(code);
	}
	return NULL;
}

Test(jit_store, concurrent_requests)
{
	struct fake_compiler fake_compiler = { .n_opened = 0 };
	struct jit_store *store = test_store_open(&fake_compiler, cache_dir);
	pthread_t threads[4];
	void *failed;

	for (size_t i = 0; i < 4; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, request_all, store), 0);
	for (size_t i = 0; i < 4; i++) {
		cr_assert_eq(pthread_join(threads[i], &failed), 0);
		cr_expect_null(failed);
	}
	jit_store_destroy(store, false);
	cr_expect_eq(fake_compiler.n_compiled, 7);
}

/* AOT mods need no compiler, until a driver refuses their code. */
Test(jit_store, aot_mods_need_no_compiler)
{
	struct fake_compiler fake_compiler = { .absent = false };
	struct jit_store *store = test_store_open(&fake_compiler, cache_dir);
	const struct cuda_aot_kernel *kernel = &cuda_aot_kernels[0];
	struct jit_request request = { kernel->source, kernel->kernel, NULL, 90, false };
	const struct cuda_aot *aot;
	struct jit_code *code, *again;
	char *mods, name[64];

	for (size_t i = 0; (aot = cuda_aot_at(i)) != NULL; i++) {
		cr_assert_eq(cuda_aot_source(aot, &mods, &error), PAGED_OK, "%s", error.text);
		request.mods = mods;
		for (request.capability = 80; request.capability <= 100; request.capability += 10) {
			cr_assert_eq(jit_prepare(store, &request, &code, &error), PAGED_OK);
			cr_assert_eq(jit_wait(code, -1, &error), PAGED_OK, "%s", error.text);
			snprintf(name, sizeof(name), "%s_%s", request.kernel, aot->name);
			cr_expect_str_eq(jit_kernel_name(code), name);
			cr_expect_gt(jit_image(code)->size, 0);
			jit_release(code);
		}
		free(mods);
	}
	cr_expect_eq(fake_compiler.n_opened, 0);

	cr_assert_eq(cuda_aot_source(cuda_aot_at(0), &mods, &error), PAGED_OK);
	request = (struct jit_request){ kernel->source, kernel->kernel, mods, 90, false };
	cr_assert_eq(jit_prepare(store, &request, &code, &error), PAGED_OK);
	cr_assert_eq(jit_wait(code, -1, &error), PAGED_OK);
	cr_expect(jit_refused(code));
	cr_assert_eq(jit_prepare(store, &request, &again, &error), PAGED_OK);
	expect_image(again, mods);
	cr_expect_str_eq(jit_kernel_name(again), kernel->kernel);
	cr_expect(!jit_refused(again));
	free(mods);
	jit_store_destroy(store, false);
	cr_expect_eq(fake_compiler.n_compiled, 1);
}

/* Compiles with NVRTC, then reads from disk. */
static void
nvrtc_compile_twice(void)
{
	struct mod_fixture mask = mod_fixture_open(MOD_MASK, "causal && q_idx - kv_idx < 1024", NULL, 0);
	struct jit_nvrtc nvrtc = { .driver_version = 12080 };
	struct fake_compiler logged = { .caller = pthread_self() };
	const struct jit_store_params params = { &jit_compiler_nvrtc, &nvrtc, cache_dir, test_log, &logged };
	struct jit_request request = { "attention_simt", "attention_simt_128", NULL, 90, false };
	struct jit_store *store;
	enum paged_status status;
	struct jit_code *code;
	char *text;

	cr_assert_eq(mod_cuda_source(CUDA_MOD_STRUCT, mask.mod, NULL, &text, &error), PAGED_OK);
	request.mods = text;
	for (unsigned int life = 0; life < 2; life++) {
		cr_assert_eq(jit_store_create(&params, &store, &error), PAGED_OK);
		cr_assert_eq(jit_prepare(store, &request, &code, &error), PAGED_OK);
		status = jit_wait(code, -1, &error);
		if (status == PAGED_ERR_UNSUPPORTED) {
			jit_store_destroy(store, false);
			cr_skip("%s", error.text);
		}
		cr_assert_eq(status, PAGED_OK, "%s", error.text);
		cr_expect_eq(memcmp(jit_image(code)->bytes, "\177ELF", 4), 0);
		jit_store_destroy(store, false);
	}
	cr_expect_not_null(strstr(logged.log, "attention_simt_128 compiled for 9.0 by nvrtc "), "%s", logged.log);
	cr_expect_null(strstr(strstr(logged.log, "compiled") + 1, "compiled"), "once: %s", logged.log);
	free(text);
	mod_fixture_close(&mask);
}

/* The CUDA toolkit's NVRTC. */
Test(jit_store, nvrtc)
{
	nvrtc_compile_twice();
}

/* The fake NVRTC, which runs the host's compiler. */
Test(jit_store, nvrtc_of_fake_cuda)
{
	cr_assert(fake_cuda_load_nvrtc(), "%s", dlerror());
	nvrtc_compile_twice();
}
