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

enum jit_state { JIT_REQUESTED, JIT_COMPILING, JIT_DONE, JIT_FAILED };

struct jit_code {
	struct jit_store *store;
	TAILQ_ENTRY(jit_code) link; /* in the store, in the order of requests */
	struct jit_request request;
	uint32_t n_users;
	enum jit_state state;
	bool refused; /* a driver refused the image: do not share it any more */
	struct jit_built made;
	struct paged_error error;
	char mods[];
};

/* A queued log message. */
struct message {
	STAILQ_ENTRY(message) link;
	enum paged_log_level level;
	char text[];
};

struct jit_store {
	paged_log_fn log;
	void *log_argument;
	char *cache_path; /* NULL: that of jit_cache_path() */

	pthread_mutex_t lock;
	pthread_cond_t wanted; /* signals the thread: a request, or `ending` */
	pthread_cond_t ended;  /* signals the waiting callers: a compilation has ended */
	pthread_t thread;
	bool has_thread, ending;
	TAILQ_HEAD(, jit_code) codes;
	STAILQ_HEAD(, message) messages;

	struct jit_builder builder; /* used by the thread only, except jit_builder_refuse() */
};

/* Logging */

/* Queue a message, on the compiling thread.  Without memory the message is lost. */
static void
jit_store_queue_message(void *argument, enum paged_log_level level, const char *text)
{
	struct jit_store *store = argument;
	size_t size = strlen(text) + 1;
	struct message *message;

	if (store->log == NULL)
		return;
	message = malloc(sizeof(*message) + size);
	if (message == NULL)
		return;
	message->level = level;
	memcpy(message->text, text, size);
	pthread_mutex_lock(&store->lock);
	STAILQ_INSERT_TAIL(&store->messages, message, link);
	pthread_mutex_unlock(&store->lock);
}

/* Returns NULL if none is left. */
static struct message *
jit_store_dequeue_message(struct jit_store *store)
{
	struct message *message = STAILQ_FIRST(&store->messages);

	if (message != NULL)
		STAILQ_REMOVE_HEAD(&store->messages, link);
	return message;
}

void
jit_store_flush_log(struct jit_store *store)
{
	struct message *message;

	pthread_mutex_lock(&store->lock);
	while ((message = jit_store_dequeue_message(store)) != NULL) {
		pthread_mutex_unlock(&store->lock);
		store->log(store->log_argument, message->level, message->text);
		free(message);
		pthread_mutex_lock(&store->lock);
	}
	pthread_mutex_unlock(&store->lock);
}

/* Life */

enum paged_status
jit_store_create(const struct jit_store_params *params, struct jit_store **store_p, struct paged_error *error)
{
	struct jit_store *store = calloc(1, sizeof(*store));
	pthread_condattr_t clock;

	if (store != NULL && params->cache_path != NULL)
		store->cache_path = strdup(params->cache_path);
	if (store == NULL || (params->cache_path != NULL && store->cache_path == NULL)) {
		free(store);
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory for compiled mods");
	}
	store->log = params->log;
	store->log_argument = params->log_argument;
	store->builder.params = *params;
	store->builder.params.cache_path = store->cache_path;
	store->builder.params.log = jit_store_queue_message;
	store->builder.params.log_argument = store;
	TAILQ_INIT(&store->codes);
	STAILQ_INIT(&store->messages);
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
jit_code_free(struct jit_code *code)
{
	TAILQ_REMOVE(&code->store->codes, code, link);
	free(code->made.image.bytes);
	free(code);
}

void
jit_store_destroy(struct jit_store *store, bool in_child)
{
	struct message *message;

	if (store == NULL)
		return;
	if (store->has_thread && !in_child) {
		pthread_mutex_lock(&store->lock);
		store->ending = true;
		pthread_cond_signal(&store->wanted);
		pthread_mutex_unlock(&store->lock);
		pthread_join(store->thread, NULL);
		jit_builder_close(&store->builder);
		jit_store_flush_log(store);
	}
	while ((message = jit_store_dequeue_message(store)) != NULL)
		free(message);
	while (!TAILQ_EMPTY(&store->codes))
		jit_code_free(TAILQ_FIRST(&store->codes));
	free(store->cache_path);
	free(store);
}

/* The thread */

/* All users may release the code during the compilation; then the thread frees it. */
static void
jit_store_compile(struct jit_store *store, struct jit_code *code)
{
	struct jit_built made = { .origin = JIT_COMPILED };
	struct paged_error error = { .status = PAGED_OK };

	code->state = JIT_COMPILING;
	pthread_mutex_unlock(&store->lock);
	error.status = jit_build(&store->builder, &code->request, &made, &error);
	pthread_mutex_lock(&store->lock);
	code->made = made;
	code->error = error;
	code->state = error.status == PAGED_OK ? JIT_DONE : JIT_FAILED;
	if (code->n_users == 0)
		jit_code_free(code);
	pthread_cond_broadcast(&store->ended);
}

static void *
jit_store_main(void *argument)
{
	struct jit_store *store = argument;

	pthread_setname_np(pthread_self(), "paged-compile");
	pthread_mutex_lock(&store->lock);
	while (!store->ending) {
		struct jit_code *code;

		TAILQ_FOREACH(code, &store->codes, link)
			if (code->state == JIT_REQUESTED)
				break;
		if (code != NULL)
			jit_store_compile(store, code);
		else
			pthread_cond_wait(&store->wanted, &store->lock);
	}
	pthread_mutex_unlock(&store->lock);
	return NULL;
}

/* Block all signals in the thread, so that the program's own threads handle them. */
static enum paged_status
jit_store_start_thread(struct jit_store *store, struct paged_error *error)
{
	sigset_t all, before;
	int code;

	if (store->has_thread)
		return PAGED_OK;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	code = pthread_create(&store->thread, NULL, jit_store_main, store);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (code != 0)
		return paged_fail(error, PAGED_ERR_SYSTEM, "no thread to compile mods: %s", strerror(code));
	store->has_thread = true;
	return PAGED_OK;
}

/* Callers */

static struct jit_code *
jit_store_find(const struct jit_store *store, const struct jit_request *request)
{
	struct jit_code *code;

	TAILQ_FOREACH(code, &store->codes, link) {
		const struct jit_request *has = &code->request;

		if (code->state != JIT_FAILED && !code->refused && has->capability == request->capability &&
		    has->arch_specific == request->arch_specific && strcmp(has->kernel, request->kernel) == 0 &&
		    strcmp(has->source, request->source) == 0 && strcmp(has->mods, request->mods) == 0)
			break;
	}
	return code;
}

static struct jit_code *
jit_store_add(struct jit_store *store, const struct jit_request *request)
{
	size_t size = strlen(request->mods) + 1;
	struct jit_code *code = calloc(1, sizeof(*code) + size);

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
jit_prepare(struct jit_store *store, const struct jit_request *request, struct jit_code **code_p,
	    struct paged_error *error)
{
	enum paged_status status;
	struct jit_code *code = NULL;

	pthread_mutex_lock(&store->lock);
	status = jit_store_start_thread(store, error);
	if (status == PAGED_OK)
		code = jit_store_find(store, request);
	if (status == PAGED_OK && code == NULL)
		code = jit_store_add(store, request);
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
jit_deadline(int timeout_ms)
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
jit_wait(struct jit_code *code, int timeout_ms, struct paged_error *error)
{
	struct timespec until = jit_deadline(timeout_ms < 0 ? 0 : timeout_ms);
	struct jit_store *store = code->store;
	enum paged_status status = PAGED_OK;
	int result = 0;

	pthread_mutex_lock(&store->lock);
	while (result != ETIMEDOUT && (code->state == JIT_REQUESTED || code->state == JIT_COMPILING)) {
		if (timeout_ms < 0)
			pthread_cond_wait(&store->ended, &store->lock);
		else
			result = pthread_cond_timedwait(&store->ended, &store->lock, &until);
	}
	if (code->state == JIT_FAILED) {
		*error = code->error;
		status = code->error.status;
	} else if (code->state != JIT_DONE) {
		status = timeout_ms == 0 ? paged_fail(error, PAGED_ERR_AGAIN, "the mods are being compiled")
					 : paged_fail(error, PAGED_ERR_TIMEOUT,
						      "the mods were not compiled within %d ms", timeout_ms);
	}
	pthread_mutex_unlock(&store->lock);
	return status;
}

const struct cuda_jit_image *
jit_image(const struct jit_code *code)
{
	return &code->made.image;
}

const char *
jit_kernel_name(const struct jit_code *code)
{
	return code->made.kernel;
}

bool
jit_refused(struct jit_code *code)
{
	struct jit_store *store = code->store;
	bool again;

	pthread_mutex_lock(&store->lock);
	/* Only once: later the file on disk may be another image with the same key. */
	again = code->refused || jit_builder_refuse(&store->builder, &code->made);
	code->refused = again;
	pthread_mutex_unlock(&store->lock);
	return again;
}

void
jit_release(struct jit_code *code)
{
	struct jit_store *store;

	if (code == NULL)
		return;
	store = code->store;
	pthread_mutex_lock(&store->lock);
	/* Code that is being compiled is freed by the thread. */
	if (--code->n_users == 0 && code->state != JIT_COMPILING)
		jit_code_free(code);
	pthread_mutex_unlock(&store->lock);
}
