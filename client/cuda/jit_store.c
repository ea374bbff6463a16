/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/cuda/jit_store.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>

#include "client/cuda/jit_build.h"

enum code_state { CODE_WANTED, CODE_COMPILING, CODE_READY, CODE_FAILED };

struct code {
	struct code_store *store;
	TAILQ_ENTRY(code) link; /* in the store, in the order of requests */
	struct code_request request;
	uint32_t n_users;
	enum code_state state;
	bool refused; /* a driver refused the image: do not share it any more */
	struct code_made made;
	struct paged_error error;
	char mods[];
};

/* A queued log message. */
struct line {
	STAILQ_ENTRY(line) link;
	enum paged_log_level level;
	char text[];
};

struct code_store {
	paged_log_fn log;
	void *log_argument;
	char *cache_path; /* NULL: that of code_cache_path() */

	pthread_mutex_t lock;
	pthread_cond_t wanted; /* signals the thread: a request, or `ending` */
	pthread_cond_t ended;  /* signals the waiting callers: a compilation has ended */
	pthread_t thread;
	bool has_thread, ending;
	TAILQ_HEAD(, code) codes;
	STAILQ_HEAD(, line) lines;

	struct code_maker maker; /* used by the thread only, except code_maker_refuse() */
};

/* Logging */

/* Queue a message, on the compiling thread.  Without memory the message is lost. */
static void
line_keep(void *argument, enum paged_log_level level, const char *text)
{
	struct code_store *store = argument;
	size_t size = strlen(text) + 1;
	struct line *line;

	if (store->log == NULL)
		return;
	line = malloc(sizeof(*line) + size);
	if (line == NULL)
		return;
	line->level = level;
	memcpy(line->text, text, size);
	pthread_mutex_lock(&store->lock);
	STAILQ_INSERT_TAIL(&store->lines, line, link);
	pthread_mutex_unlock(&store->lock);
}

/* Returns NULL if none is left. */
static struct line *
line_take(struct code_store *store)
{
	struct line *line = STAILQ_FIRST(&store->lines);

	if (line != NULL)
		STAILQ_REMOVE_HEAD(&store->lines, link);
	return line;
}

void
code_store_tell(struct code_store *store)
{
	struct line *line;

	pthread_mutex_lock(&store->lock);
	while ((line = line_take(store)) != NULL) {
		pthread_mutex_unlock(&store->lock);
		store->log(store->log_argument, line->level, line->text);
		free(line);
		pthread_mutex_lock(&store->lock);
	}
	pthread_mutex_unlock(&store->lock);
}

/* Life */

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
	store->log = params->log;
	store->log_argument = params->log_argument;
	store->maker.params = *params;
	store->maker.params.cache_path = store->cache_path;
	store->maker.params.log = line_keep;
	store->maker.params.log_argument = store;
	TAILQ_INIT(&store->codes);
	STAILQ_INIT(&store->lines);
	pthread_mutex_init(&store->lock, NULL);
	pthread_cond_init(&store->wanted, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&store->ended, &clock);
	pthread_condattr_destroy(&clock);
	*store_p = store;
	return PAGED_OK;
}

/* Remove code from its store and free it. */
static void
code_free(struct code *code)
{
	TAILQ_REMOVE(&code->store->codes, code, link);
	free(code->made.image.bytes);
	free(code);
}

void
code_store_destroy(struct code_store *store, bool in_child)
{
	struct line *line;

	if (store == NULL)
		return;
	if (store->has_thread && !in_child) {
		pthread_mutex_lock(&store->lock);
		store->ending = true;
		pthread_cond_signal(&store->wanted);
		pthread_mutex_unlock(&store->lock);
		pthread_join(store->thread, NULL);
		code_maker_close(&store->maker);
		code_store_tell(store);
	}
	while ((line = line_take(store)) != NULL)
		free(line);
	while (!TAILQ_EMPTY(&store->codes))
		code_free(TAILQ_FIRST(&store->codes));
	free(store->cache_path);
	free(store);
}

/* The thread */

/* All users may release the code during the compilation; then the thread frees it. */
static void
code_run(struct code_store *store, struct code *code)
{
	struct code_made made = { .origin = CODE_COMPILED };
	struct paged_error error = { .status = PAGED_OK };

	code->state = CODE_COMPILING;
	pthread_mutex_unlock(&store->lock);
	error.status = code_make(&store->maker, &code->request, &made, &error);
	pthread_mutex_lock(&store->lock);
	code->made = made;
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
		struct code *code;

		TAILQ_FOREACH(code, &store->codes, link)
			if (code->state == CODE_WANTED)
				break;
		if (code != NULL)
			code_run(store, code);
		else
			pthread_cond_wait(&store->wanted, &store->lock);
	}
	pthread_mutex_unlock(&store->lock);
	return NULL;
}

/* Block all signals in the thread, so that the program's own threads handle them. */
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

static struct code *
code_find(const struct code_store *store, const struct code_request *request)
{
	struct code *code;

	TAILQ_FOREACH(code, &store->codes, link) {
		const struct code_request *has = &code->request;

		if (code->state != CODE_FAILED && !code->refused && has->capability == request->capability &&
		    strcmp(has->kernel, request->kernel) == 0 && strcmp(has->source, request->source) == 0 &&
		    strcmp(has->mods, request->mods) == 0)
			break;
	}
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
	TAILQ_INSERT_TAIL(&store->codes, code, link);
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
	if (status == PAGED_OK)
		code = code_find(store, request);
	if (status == PAGED_OK && code == NULL)
		code = code_add(store, request);
	if (code != NULL) {
		code->n_users++;
		*code_p = code;
		pthread_cond_signal(&store->wanted);
	} else if (status == PAGED_OK) {
		status = paged_fail(error, PAGED_ERR_NOMEM, "no memory for a mod's source of %zu bytes",
				    strlen(request->mods));
	}
	pthread_mutex_unlock(&store->lock);
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
	enum paged_status status = PAGED_OK;
	int result = 0;

	pthread_mutex_lock(&store->lock);
	while (result != ETIMEDOUT && (code->state == CODE_WANTED || code->state == CODE_COMPILING)) {
		if (timeout_ms < 0)
			pthread_cond_wait(&store->ended, &store->lock);
		else
			result = pthread_cond_timedwait(&store->ended, &store->lock, &until);
	}
	if (code->state == CODE_FAILED) {
		*error = code->error;
		status = code->error.status;
	} else if (code->state != CODE_READY) {
		status = timeout_ms == 0 ? paged_fail(error, PAGED_ERR_AGAIN, "the mods are being compiled")
					 : paged_fail(error, PAGED_ERR_TIMEOUT,
						      "the mods were not compiled within %d ms", timeout_ms);
	}
	pthread_mutex_unlock(&store->lock);
	return status;
}

const struct cuda_compiled *
code_compiled(const struct code *code)
{
	return &code->made.image;
}

const char *
code_kernel(const struct code *code)
{
	return code->made.kernel;
}

bool
code_refused(struct code *code)
{
	struct code_store *store = code->store;
	bool again;

	pthread_mutex_lock(&store->lock);
	/* Only once: later the file on disk may be another image with the same key. */
	again = code->refused || code_maker_refuse(&store->maker, &code->made);
	code->refused = again;
	pthread_mutex_unlock(&store->lock);
	return again;
}

void
code_release(struct code *code)
{
	struct code_store *store;

	if (code == NULL)
		return;
	store = code->store;
	pthread_mutex_lock(&store->lock);
	/* Code that is being compiled is freed by the thread. */
	if (--code->n_users == 0 && code->state != CODE_COMPILING)
		code_free(code);
	pthread_mutex_unlock(&store->lock);
}
