/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels on the library's threads and on the program's own threads: results are bit-identical. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/client_fixture.h"
#include "tests/support/reference.h"

/* Large enough that every call uses several threads. */
enum { KV_HEADS = 4, Q_HEADS = 8, WIDE = 64, TOKENS = 700, DECODED = 3 };

static const struct paged_pool_params wide_pool = {
	.struct_size = sizeof(wide_pool),
	.name = "wide",
	.n_layers = 1,
	.n_kv_heads = KV_HEADS,
	.k_dim = WIDE,
	.dtype = PAGED_BF16,
	.page_size = 16,
	.n_pages = 64,
	.n_slots = 2,
};

struct results {
	float prefill[TOKENS][Q_HEADS][WIDE];
	float decode[DECODED][Q_HEADS][WIDE];
	float merged[TOKENS][Q_HEADS][WIDE];
	float lse[TOKENS][Q_HEADS];
	float k[TOKENS + DECODED][KV_HEADS][WIDE], v[TOKENS + DECODED][KV_HEADS][WIDE];
};

static float tokens[2][TOKENS + DECODED][KV_HEADS][WIDE], queries[TOKENS][Q_HEADS][WIDE];

static struct paged_client_params
client_params(uint32_t n_threads)
{
	return (struct paged_client_params){ .struct_size = sizeof(struct paged_client_params),
					     .n_threads = n_threads };
}

static void
wide_client_open(const struct paged_client_params *params)
{
	expect_ok(paged_client_open_embedded(&wide_pool, 1, params, &client));
	expect_ok(paged_pool_open(client, "wide", &pool));
}

/* Runs every kind of kernel: append, attention with mods, merge, decode, gather. */
static void
run_all_calls(const struct paged_client_params *params, struct results *results)
{
	static const uint32_t window = 400;
	const struct paged_array arrays[] = { { .name = "window", .dtype = PAGED_I32, .data = &window } };
	struct paged_tensor k = { .data = tokens[0], .dtype = PAGED_F32, .n_heads = KV_HEADS, .dim = WIDE }, v = k;
	struct paged_tensor q = { .data = queries, .dtype = PAGED_F32, .n_heads = Q_HEADS, .dim = WIDE }, out = q;
	struct paged_batch_row row = { .q_len = TOKENS, .kv_len = TOKENS };
	struct paged_attention_params attention = { .struct_size = sizeof(attention), .lse = results->lse[0] };
	struct paged_mod_set_params mods = { .struct_size = sizeof(mods) };
	struct paged_merge_params merge = { .struct_size = sizeof(merge), .n_tokens = TOKENS };
	struct paged_mod *mask, *score;
	struct paged_batch *batch;

	for (size_t i = 0; i < sizeof(tokens) / sizeof(float); i++)
		(&tokens[0][0][0][0])[i] = random_float(7, i, 1);
	for (size_t i = 0; i < sizeof(queries) / sizeof(float); i++)
		(&queries[0][0][0])[i] = random_float(8, i, 1);
	memset(results, 0xff, sizeof(*results));
	wide_client_open(params);
	batch = fixture_create_batch(1, 0);
	expect_ok(paged_mod_parse(pool, PAGED_MOD_MASK, "sliding_window", 1, arrays, &mask));
	expect_ok(paged_mod_parse(pool, PAGED_MOD_SCORE, "score + (q_idx - kv_idx) * 0.001", 0, NULL, &score));
	mods.mask = mask;
	mods.score = score;
	expect_ok(paged_mod_set_create(batch, &mods, &attention.mod_set));
	expect_ok(paged_mod_set_bind(attention.mod_set, 1, arrays, NULL));
	row.seq = fixture_create_seq(TOKENS + DECODED);
	v.data = tokens[1];
	out.data = results->prefill;
	expect_ok(paged_batch_plan(batch, 1, &row));
	expect_ok(paged_append(batch, 0, &k, &v, NULL));
	expect_ok(paged_attention(batch, 0, &q, &out, &attention));
	merge.part[0] = merge.part[1] = out;
	merge.part_lse[0] = merge.part_lse[1] = results->lse[0];
	merge.out = out;
	merge.out.data = results->merged;
	expect_ok(paged_merge(batch, &merge));
	attention.mod_set = NULL;
	attention.lse = NULL;
	row.q_len = 1;
	for (uint32_t i = 0; i < DECODED; i++) {
		row.kv_len++;
		k.data = tokens[0][TOKENS + i];
		v.data = tokens[1][TOKENS + i];
		out.data = results->decode[i];
		expect_ok(paged_batch_plan(batch, 1, &row));
		expect_ok(paged_append(batch, 0, &k, &v, NULL));
		expect_ok(paged_attention(batch, 0, &q, &out, &attention));
	}
	k.data = results->k;
	v.data = results->v;
	expect_ok(paged_gather(batch, 0, &k, &v, NULL));
	expect_ok(paged_batch_validate(batch));
	paged_client_close(client);
}

static void
expect_same_as_one_thread(const struct paged_client_params *params)
{
	struct results *one = malloc(sizeof(*one)), *got = malloc(sizeof(*got));
	struct paged_client_params alone = client_params(1);

	cr_assert(one != NULL && got != NULL);
	run_all_calls(&alone, one);
	run_all_calls(params, got);
	cr_assert_arr_eq(one, got, sizeof(*one));
	free(got);
	free(one);
}

static unsigned int
count_threads(void)
{
	unsigned int n = 0;
	char line[128];
	FILE *file = fopen("/proc/self/status", "re");

	cr_assert_not_null(file);
	while (fgets(line, sizeof(line), file) != NULL)
		sscanf(line, "Threads: %u", &n);
	fclose(file);
	return n;
}

/* -------------------------------------------------------- the program's own */

struct calls {
	unsigned int n_runs;
	uint32_t n_parts;
};

static void
run_forwards(void *argument, paged_work_fn work, void *work_argument, uint32_t n)
{
	struct calls *calls = argument;

	calls->n_runs++;
	calls->n_parts = n;
	for (uint32_t i = 0; i < n; i++)
		work(work_argument, i);
}

static void
run_backwards(void *argument, paged_work_fn work, void *work_argument, uint32_t n)
{
	(void)argument;
	while (n-- > 0)
		work(work_argument, n);
}

Test(threads, a_run_function_on_the_calling_thread)
{
	struct calls calls = { 0 };
	struct paged_client_params params = client_params(5);
	unsigned int n_threads = count_threads();

	params.run = run_forwards;
	params.run_argument = &calls;
	expect_same_as_one_thread(&params);
	cr_assert_geq(calls.n_runs, 5 + DECODED);
	cr_assert_eq(calls.n_parts, 5);
	params.run = run_backwards;
	expect_same_as_one_thread(&params);
	cr_assert_eq(count_threads(), n_threads);
}

/* A pool of three worker threads, for any number of parts. */
enum { POOL_THREADS = 3 };

struct program_pool {
	pthread_t threads[POOL_THREADS];
	pthread_mutex_t mutex;
	pthread_cond_t wake, expect_ok;
	paged_work_fn work;
	void *argument;
	uint32_t next, n, n_done;
	bool end;
};

static void *
worker_main(void *argument)
{
	struct program_pool *its = argument;

	pthread_mutex_lock(&its->mutex);
	for (;;) {
		while (its->next == its->n && !its->end)
			pthread_cond_wait(&its->wake, &its->mutex);
		if (its->end)
			break;
		while (its->next < its->n) {
			uint32_t index = its->next++;

			pthread_mutex_unlock(&its->mutex);
			its->work(its->argument, index);
			pthread_mutex_lock(&its->mutex);
			its->n_done++;
		}
		pthread_cond_signal(&its->expect_ok);
	}
	pthread_mutex_unlock(&its->mutex);
	return NULL;
}

static void
run_on_workers(void *argument, paged_work_fn work, void *work_argument, uint32_t n)
{
	struct program_pool *its = argument;

	pthread_mutex_lock(&its->mutex);
	its->work = work;
	its->argument = work_argument;
	its->next = its->n_done = 0;
	its->n = n;
	pthread_cond_broadcast(&its->wake);
	while (its->n_done < n)
		pthread_cond_wait(&its->expect_ok, &its->mutex);
	pthread_mutex_unlock(&its->mutex);
}

Test(threads, a_run_function_on_the_programs_threads)
{
	struct program_pool its = { .mutex = PTHREAD_MUTEX_INITIALIZER,
				    .wake = PTHREAD_COND_INITIALIZER,
				    .expect_ok = PTHREAD_COND_INITIALIZER };

	for (unsigned int i = 0; i < POOL_THREADS; i++)
		cr_assert_eq(pthread_create(&its.threads[i], NULL, worker_main, &its), 0);
	for (uint32_t n = 2; n <= 11; n += 3) {
		struct paged_client_params params = client_params(n);

		params.run = run_on_workers;
		params.run_argument = &its;
		expect_same_as_one_thread(&params);
	}
	pthread_mutex_lock(&its.mutex);
	its.end = true;
	pthread_cond_broadcast(&its.wake);
	pthread_mutex_unlock(&its.mutex);
	for (unsigned int i = 0; i < POOL_THREADS; i++)
		pthread_join(its.threads[i], NULL);
}

static void
run_all_but_last(void *argument, paged_work_fn work, void *work_argument, uint32_t n)
{
	(void)argument;
	for (uint32_t i = 0; i + 1 < n; i++)
		work(work_argument, i);
}

static void
run_one_twice(void *argument, paged_work_fn work, void *work_argument, uint32_t n)
{
	run_forwards(argument, work, work_argument, n);
	work(work_argument, n - 1);
	work(work_argument, n);
}

/* A call reports that run() was incorrect; the next call works. */
Test(threads, an_incorrect_run_function_is_reported)
{
	static const struct {
		paged_run_fn run;
		const char *text;
	} cases[] = {
		{ run_all_but_last, "run() returned when 2 of 3 parts were done" },
		{ run_one_twice, "run() called work 2 times for an index that had been, or is none of 3" },
	};
	struct paged_tensor k = { .data = tokens[0], .dtype = PAGED_F32, .n_heads = KV_HEADS, .dim = WIDE }, v = k;

	v.data = tokens[1];
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct paged_client_params params = client_params(3);
		struct paged_batch_row row = { .q_len = TOKENS, .kv_len = TOKENS };
		struct paged_batch *batch;
		struct calls calls;

		params.run = cases[i].run;
		params.run_argument = &calls;
		wide_client_open(&params);
		batch = fixture_create_batch(1, 0);
		row.seq = fixture_create_seq(TOKENS);
		expect_ok(paged_batch_plan(batch, 1, &row));
		for (unsigned int again = 0; again < 2; again++)
			expect_error(paged_append(batch, 0, &k, &k, NULL), PAGED_ERR_INVALID, "%s", cases[i].text);
		expect_error(paged_gather(batch, 0, &k, &v, NULL), PAGED_ERR_INVALID, "%s", cases[i].text);
		paged_client_close(client);
	}
}

/* --------------------------------------------------------------------- CPUs */

/* The CPUs that this process may use, at most *n_p. */
static void
usable_cpus(uint32_t *cpus, uint32_t *n_p)
{
	uint32_t n = 0;
	cpu_set_t set;

	cr_assert_eq(sched_getaffinity(0, sizeof(set), &set), 0);
	for (uint32_t cpu = 0; cpu < CPU_SETSIZE && n < *n_p; cpu++)
		if (CPU_ISSET(cpu, &set))
			cpus[n++] = cpu;
	*n_p = n;
}

/* Number of threads, other than this one, that are bound to that CPU. */
static unsigned int
count_bound_to(uint32_t cpu)
{
	char command[128], text[32] = "";
	FILE *file;

	snprintf(command, sizeof(command), "grep -hx 'Cpus_allowed_list:.%u' /proc/%d/task/*/status | wc -l", cpu,
		 (int)getpid());
	file = popen(command, "r");
	cr_assert_not_null(file);
	cr_assert_not_null(fgets(text, sizeof(text), file));
	pclose(file);
	return (unsigned int)strtoul(text, NULL, 10);
}

Test(threads, threads_are_bound_to_cpus)
{
	uint32_t cpus[3], n = 3, n_bound;
	struct paged_client_params params;
	cpu_set_t before, after;

	usable_cpus(cpus, &n);
	if (n < 2)
		cr_skip("one CPU alone");
	params = client_params(n);
	params.cpus = cpus;
	params.n_cpus = n;
	expect_same_as_one_thread(&params);
	/* The first CPU is the caller's: no other thread is bound to it, nor is the caller. */
	cr_assert_eq(sched_getaffinity(0, sizeof(before), &before), 0);
	wide_client_open(&params);
	cpus[0] = cpus[1] = 77; /* copied */
	fixture_create_batch(1, 0);
	cr_assert_eq(sched_getaffinity(0, sizeof(after), &after), 0);
	cr_assert(CPU_EQUAL(&before, &after));
	n = 3;
	usable_cpus(cpus, &n);
	n_bound = 0;
	for (uint32_t i = 1; i < n; i++)
		n_bound += count_bound_to(cpus[i]);
	cr_assert_eq(n_bound, n - 1);
	cr_assert_eq(count_bound_to(cpus[0]), 0);
	paged_client_close(client);
}

/* A program whose own thread is bound, as engines do, may choose the CPUs of the library's threads. */
Test(threads, threads_are_bound_when_the_caller_is_bound)
{
	uint32_t cpus[2], n = 2;
	struct paged_client_params params;
	cpu_set_t one;

	usable_cpus(cpus, &n);
	if (n < 2)
		cr_skip("one CPU alone");
	CPU_ZERO(&one);
	CPU_SET(cpus[0], &one);
	cr_assert_eq(sched_setaffinity(0, sizeof(one), &one), 0);
	params = client_params(2);
	params.cpus = cpus;
	params.n_cpus = 2;
	wide_client_open(&params);
	fixture_create_batch(1, 0);
	cr_assert_eq(count_bound_to(cpus[1]), 1);
	paged_client_close(client);
}

#define not_opened(params, ...)                                                                             \
	do {                                                                                                \
		expect_error(paged_client_open_embedded(&wide_pool, 1, params, &client), PAGED_ERR_INVALID, \
			     __VA_ARGS__);                                                                  \
		paged_client_close(client);                                                                 \
	} while (0)

Test(threads, invalid_params_are_refused)
{
	uint32_t usable[64], n = 64;
	uint32_t cpus[2] = { 0, 8191 };
	struct paged_client_params params = client_params(2);
	char text[sizeof("cpus[1] is CPU 8191: this process may use ") + 256];

	params.cpus = cpus;
	not_opened(&params, "0 cpus for 2 threads: each has one, the calling thread too");
	params.n_cpus = 2;
	usable_cpus(usable, &n);
	cpus[0] = usable[0];
	if (n > 1 && n < 64 && usable[n - 1] - usable[0] == n - 1)
		snprintf(text, sizeof(text), "cpus[1] is CPU 8191: this process may use %u-%u", usable[0],
			 usable[n - 1]);
	else
		text[0] = '\0';
	cr_assert_eq(paged_client_open_embedded(&wide_pool, 1, &params, &client), PAGED_ERR_INVALID);
	if (text[0] != '\0')
		cr_assert_str_eq(paged_client_error(client), text);
	paged_client_close(client);
	cpus[1] = 4000000000u;
	cr_assert_eq(paged_client_open_embedded(&wide_pool, 1, &params, &client), PAGED_ERR_INVALID);
	paged_client_close(client);
	cpus[1] = cpus[0];
	not_opened(&params, "cpus[1] is CPU %u, which is there before", cpus[0]);
	params.n_cpus = 1;
	not_opened(&params, "1 cpus for 2 threads: each has one, the calling thread too");
	params.run = run_forwards;
	not_opened(&params, "run() brings threads of its own: cpus is not possible");
	params = client_params(2);
	params.n_cpus = 2;
	not_opened(&params, "n_cpus is 2, cpus is NULL");
}

/* Programs built before params had the member cpus. */
Test(threads, params_of_an_older_struct_size)
{
	struct paged_client_params params = client_params(2);

	params.struct_size = offsetof(struct paged_client_params, cpus);
	params.n_cpus = 99; /* past its end */
	params.run = run_all_but_last;
	expect_same_as_one_thread(&params);
}
