/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/code.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/code_cache.h"
#include "kernels/cuda/sources.h"

/* Part of the cache's keys: to be raised when compile.c does otherwise with the same sources. */
#define CODE_REVISION "1"

enum code_state { CODE_WANTED, CODE_COMPILING, CODE_READY, CODE_FAILED };

struct code {
	struct code_store *store;
	struct code *next; /* the store's list, in the order of asking */
	struct code_request request;
	uint32_t n_users;
	enum code_state state;
	struct cuda_compiled image;
	struct paged_error error;
	char mods[];
};

struct code_store {
	struct code_store_params params;
	char *cache_path; /* NULL: where code_cache_path() says */

	pthread_mutex_t lock;
	pthread_cond_t wanted; /* for the thread: something to do, or the end */
	pthread_cond_t ended;  /* for those who wait */
	pthread_t thread;
	bool has_thread, ending;
	struct code *first, **last;

	/* The thread's own. */
	bool compiler_open, cache_asked;
	char version[64];
	struct code_cache *cache; /* NULL: none */
};

static void __attribute__((format(printf, 2, 3))) store_log(const struct code_store *store, const char *format, ...)
{
	char text[512];
	va_list values;

	if (store->params.log == NULL)
		return;
	va_start(values, format);
	vsnprintf(text, sizeof(text), format, values);
	va_end(values);
	store->params.log(store->params.log_argument, text);
}

enum paged_status
code_store_create(const struct code_store_params *params, struct code_store **store_p, struct paged_error *error)
{
	struct code_store *store = calloc(1, sizeof(*store));
	pthread_condattr_t clock;

	if (store != NULL && params->cache_path != NULL)
		store->cache_path = strdup(params->cache_path);
	if (store == NULL || (params->cache_path != NULL && store->cache_path == NULL)) {
		free(store);
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for compiled mods");
	}
	store->params = *params;
	store->last = &store->first;
	pthread_mutex_init(&store->lock, NULL);
	pthread_cond_init(&store->wanted, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&store->ended, &clock);
	pthread_condattr_destroy(&clock);
	*store_p = store;
	return PAGED_OK;
}

/* Out of the store's list and gone. */
static void
code_free(struct code *code)
{
	struct code_store *store = code->store;
	struct code **link = &store->first;

	while (*link != code)
		link = &(*link)->next;
	*link = code->next;
	if (store->last == &code->next)
		store->last = link;
	free(code->image.bytes);
	free(code);
}

void
code_store_destroy(struct code_store *store, bool in_child)
{
	if (store == NULL)
		return;
	if (store->has_thread && !in_child) {
		pthread_mutex_lock(&store->lock);
		store->ending = true;
		pthread_cond_signal(&store->wanted);
		pthread_mutex_unlock(&store->lock);
		pthread_join(store->thread, NULL);
		code_cache_close(store->cache);
		if (store->compiler_open)
			store->params.compiler->close(store->params.argument);
	}
	while (store->first != NULL)
		code_free(store->first);
	free(store->cache_path);
	free(store);
}

/* The thread */

/* All that an image's bytes depend on. */
static struct code_key
key_of(const struct code_store *store, const struct code_request *request)
{
	struct code_key_part parts[64];
	char numbers[32];
	size_t n = 0;
	int length = snprintf(numbers, sizeof(numbers), "%d", request->capability);

	parts[n++] = (struct code_key_part){ CODE_REVISION, strlen(CODE_REVISION) };
	parts[n++] = (struct code_key_part){ store->version, strlen(store->version) };
	parts[n++] = (struct code_key_part){ request->source, strlen(request->source) };
	parts[n++] = (struct code_key_part){ request->kernel, strlen(request->kernel) };
	parts[n++] = (struct code_key_part){ request->mods, strlen(request->mods) };
	parts[n++] = (struct code_key_part){ numbers, (size_t)length };
	for (const struct cuda_source *source = cuda_sources; source->name != NULL; source++) {
		assert(n < sizeof(parts) / sizeof(parts[0]));
		parts[n++] = (struct code_key_part){ source->text, strlen(source->text) };
	}
	return code_key_make(parts, n);
}

/* Once: a cache that is not there now is not looked for again. */
static void
cache_find(struct code_store *store)
{
	char path[PATH_MAX] = "";
	enum paged_status status = PAGED_OK;
	struct paged_error error;

	if (store->cache_asked)
		return;
	store->cache_asked = true;
	if (store->cache_path != NULL)
		snprintf(path, sizeof(path), "%s", store->cache_path);
	else
		status = code_cache_path(path, sizeof(path), &error);
	if (status == PAGED_OK && path[0] != '\0')
		status = code_cache_open(path, 0, &store->cache, &error);
	if (status != PAGED_OK)
		store_log(store, "%s; compiled mods are not kept", error.text);
}

static enum paged_status
compiler_find(struct code_store *store, struct paged_error *error)
{
	enum paged_status status;

	if (store->compiler_open)
		return PAGED_OK;
	status = store->params.compiler->open(store->params.argument, store->version, sizeof(store->version), error);
	store->compiler_open = status == PAGED_OK;
	return status;
}

static double
now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static enum paged_status
code_compile(struct code_store *store, const struct code_request *request, struct cuda_compiled *image,
	     struct paged_error *error)
{
	double begin = now_ms();
	enum paged_status status = store->params.compiler->compile(store->params.argument, request, image, error);

	if (status == PAGED_OK)
		store_log(store, "%s compiled for %d.%d in %.0f ms", request->kernel, request->capability / 10,
			  request->capability % 10, now_ms() - begin);
	return status;
}

static enum paged_status
code_make(struct code_store *store, const struct code_request *request, struct cuda_compiled *image,
	  struct paged_error *error)
{
	enum paged_status status = compiler_find(store, error);
	struct paged_error trouble;
	struct code_key key;

	if (status != PAGED_OK)
		return status;
	cache_find(store);
	key = key_of(store, request);
	status = code_cache_get(store->cache, &key, &image->bytes, &image->size, &trouble);
	if (status == PAGED_OK)
		return PAGED_OK;
	if (status != PAGED_ERR_NOENT)
		store_log(store, "%s", trouble.text);
	status = code_compile(store, request, image, error);
	if (status != PAGED_OK || store->cache == NULL)
		return status;
	if (code_cache_put(store->cache, &key, image->bytes, image->size, &trouble) != PAGED_OK)
		store_log(store, "%s", trouble.text);
	return PAGED_OK;
}

static struct code *
next_wanted(const struct code_store *store)
{
	struct code *code = store->first;

	while (code != NULL && code->state != CODE_WANTED)
		code = code->next;
	return code;
}

/* Its users may all go meanwhile: then nobody else has it. */
static void
code_run(struct code_store *store, struct code *code)
{
	struct cuda_compiled image = { .bytes = NULL };
	struct paged_error error = { .status = PAGED_OK };

	code->state = CODE_COMPILING;
	pthread_mutex_unlock(&store->lock);
	error.status = code_make(store, &code->request, &image, &error);
	pthread_mutex_lock(&store->lock);
	code->image = image;
	code->error = error;
	code->state = error.status == PAGED_OK ? CODE_READY : CODE_FAILED;
	if (code->n_users == 0)
		code_free(code);
	pthread_cond_broadcast(&store->ended);
}

static void *
store_main(void *argument)
{
	struct code_store *store = argument;

	pthread_setname_np(pthread_self(), "paged-compile");
	pthread_mutex_lock(&store->lock);
	while (!store->ending) {
		struct code *code = next_wanted(store);

		if (code != NULL)
			code_run(store, code);
		else
			pthread_cond_wait(&store->wanted, &store->lock);
	}
	pthread_mutex_unlock(&store->lock);
	return NULL;
}

/* The program's signals are its own threads' matter. */
static enum paged_status
thread_start(struct code_store *store, struct paged_error *error)
{
	sigset_t all, before;
	int code;

	if (store->has_thread)
		return PAGED_OK;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	code = pthread_create(&store->thread, NULL, store_main, store);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (code != 0)
		return paged_fail(error, PAGED_ERR_SYSTEM, "no thread to compile mods: %s", strerror(code));
	store->has_thread = true;
	return PAGED_OK;
}

/* Callers */

static bool
is_same(const struct code_request *a, const struct code_request *b)
{
	return a->capability == b->capability && strcmp(a->kernel, b->kernel) == 0 &&
	       strcmp(a->source, b->source) == 0 && strcmp(a->mods, b->mods) == 0;
}

static struct code *
code_find(const struct code_store *store, const struct code_request *request)
{
	struct code *code = store->first;

	while (code != NULL && (code->state == CODE_FAILED || !is_same(&code->request, request)))
		code = code->next;
	return code;
}

static struct code *
code_add(struct code_store *store, const struct code_request *request)
{
	size_t size = strlen(request->mods) + 1;
	struct code *code = calloc(1, sizeof(*code) + size);

	if (code == NULL)
		return NULL;
	memcpy(code->mods, request->mods, size);
	code->store = store;
	code->request = *request;
	code->request.mods = code->mods;
	*store->last = code;
	store->last = &code->next;
	return code;
}

enum paged_status
code_prepare(struct code_store *store, const struct code_request *request, struct code **code_p,
	     struct paged_error *error)
{
	enum paged_status status;
	struct code *code = NULL;

	pthread_mutex_lock(&store->lock);
	status = thread_start(store, error);
	if (status == PAGED_OK) {
		code = code_find(store, request);
		if (code == NULL)
			code = code_add(store, request);
		if (code == NULL)
			status = paged_fail(error, PAGED_ERR_NOMEM, "no memory for a mod's source of %zu bytes",
					    strlen(request->mods));
	}
	if (status == PAGED_OK) {
		code->n_users++;
		*code_p = code;
		pthread_cond_signal(&store->wanted);
	}
	pthread_mutex_unlock(&store->lock);
	return status;
}

/* The lock is held. */
static enum paged_status
code_status(const struct code *code, struct paged_error *error)
{
	if (code->state == CODE_READY)
		return PAGED_OK;
	if (code->state != CODE_FAILED)
		return paged_fail(error, PAGED_ERR_AGAIN, "the mods are being compiled");
	*error = code->error;
	return code->error.status;
}

enum paged_status
code_ready(struct code *code, struct paged_error *error)
{
	enum paged_status status;

	pthread_mutex_lock(&code->store->lock);
	status = code_status(code, error);
	pthread_mutex_unlock(&code->store->lock);
	return status;
}

static struct timespec
deadline(int timeout_ms)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	at.tv_sec += timeout_ms / 1000;
	at.tv_nsec += timeout_ms % 1000 * 1000000L;
	if (at.tv_nsec >= 1000000000L) {
		at.tv_nsec -= 1000000000L;
		at.tv_sec++;
	}
	return at;
}

enum paged_status
code_wait(struct code *code, int timeout_ms, struct paged_error *error)
{
	struct timespec until = deadline(timeout_ms < 0 ? 0 : timeout_ms);
	struct code_store *store = code->store;
	enum paged_status status;
	int result = 0;

	pthread_mutex_lock(&store->lock);
	while (result != ETIMEDOUT && (code->state == CODE_WANTED || code->state == CODE_COMPILING)) {
		if (timeout_ms < 0)
			pthread_cond_wait(&store->ended, &store->lock);
		else
			result = pthread_cond_timedwait(&store->ended, &store->lock, &until);
	}
	status = code_status(code, error);
	pthread_mutex_unlock(&store->lock);
	if (status == PAGED_ERR_AGAIN)
		return paged_fail(error, PAGED_ERR_TIMEOUT, "the mods were not compiled within %d ms", timeout_ms);
	return status;
}

const struct cuda_compiled *
code_compiled(const struct code *code)
{
	return &code->image;
}

void
code_release(struct code *code)
{
	struct code_store *store;

	if (code == NULL)
		return;
	store = code->store;
	pthread_mutex_lock(&store->lock);
	/* What the thread works at it frees itself. */
	if (--code->n_users == 0 && code->state != CODE_COMPILING)
		code_free(code);
	pthread_mutex_unlock(&store->lock);
}
