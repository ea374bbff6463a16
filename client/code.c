/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/code.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/code_make.h"

enum code_state { CODE_WANTED, CODE_COMPILING, CODE_READY, CODE_FAILED };

struct code {
	struct code_store *store;
	struct code *next; /* the store's list, in the order of asking */
	struct code_request request;
	uint32_t n_users;
	enum code_state state;
	bool refused; /* by a driver: for nobody else */
	struct code_made made;
	struct paged_error error;
	char mods[];
};

/* What is to be told. */
struct line {
	struct line *next;
	enum code_log_level level;
	char text[];
};

struct code_store {
	code_log_fn log;
	void *log_argument;
	char *cache_path; /* NULL: where code_cache_path() says */

	pthread_mutex_t lock;
	pthread_cond_t wanted; /* for the thread: something to do, or the end */
	pthread_cond_t ended;  /* for those who wait */
	pthread_t thread;
	bool has_thread, ending;
	struct code *first, **last;
	struct line *first_line, **last_line;

	struct code_maker maker; /* the thread's own */
};

/* Logging */

/* By the thread.  Without memory for it a line is lost. */
static void
line_keep(void *argument, enum code_log_level level, const char *text)
{
	struct code_store *store = argument;
	size_t size = strlen(text) + 1;
	struct line *line;

	if (store->log == NULL)
		return;
	line = malloc(sizeof(*line) + size);
	if (line == NULL)
		return;
	line->next = NULL;
	line->level = level;
	memcpy(line->text, text, size);
	pthread_mutex_lock(&store->lock);
	*store->last_line = line;
	store->last_line = &line->next;
	pthread_mutex_unlock(&store->lock);
}

static struct line *
lines_take(struct code_store *store)
{
	struct line *lines = store->first_line;

	store->first_line = NULL;
	store->last_line = &store->first_line;
	return lines;
}

static void
lines_free(struct line *line)
{
	while (line != NULL) {
		struct line *next = line->next;

		free(line);
		line = next;
	}
}

void
code_store_tell(struct code_store *store)
{
	struct line *lines;

	pthread_mutex_lock(&store->lock);
	lines = lines_take(store);
	pthread_mutex_unlock(&store->lock);
	for (const struct line *line = lines; line != NULL; line = line->next)
		store->log(store->log_argument, line->level, line->text);
	lines_free(lines);
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
	store->maker = (struct code_maker){ .compiler = params->compiler,
					    .argument = params->argument,
					    .cache_path = store->cache_path,
					    .log = line_keep,
					    .log_argument = store };
	store->last = &store->first;
	store->last_line = &store->first_line;
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
	free(code->made.image.bytes);
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
		code_maker_close(&store->maker);
		code_store_tell(store);
	}
	lines_free(store->first_line);
	while (store->first != NULL)
		code_free(store->first);
	free(store->cache_path);
	free(store);
}

/* The thread */

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

	while (code != NULL && (code->state == CODE_FAILED || code->refused || !is_same(&code->request, request)))
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
	/* Once: what has taken its place on disk since is another's. */
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
	/* What the thread works at it frees itself. */
	if (--code->n_users == 0 && code->state != CODE_COMPILING)
		code_free(code);
	pthread_mutex_unlock(&store->lock);
}
