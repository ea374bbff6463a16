/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/split_demo.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "examples/llama/clock.h"
#include "examples/llama/die.h"
#include "examples/llama/split_worker.h"
#include "examples/llama/tokenizer.h"
#include "examples/llama/worker_process.h"
#include "examples/llama/xalloc.h"

/* Order of the phases. */
enum split_phase { SPLIT_TOGETHER, SPLIT_APART, SPLIT_N_PHASES };

struct split_answer {
	double arrived_s;
	struct token_list tokens;
	double *at_s; /* [options->max_tokens]: when each token was there */
	uint32_t n_prompt;
};

struct split_demo {
	const struct options *options;
	struct worker_process *workers;
	struct pollfd *ready; /* [n_workers] */
	enum split_phase phase;
	struct split_answer *answers[SPLIT_N_PHASES]; /* [n_prompts] */
	uint32_t n_started, n_done;                   /* answers of the phase with a token, with all tokens */
	/* Hand-overs */
	uint32_t n_to_give, n_given, n_adopted, n_pages;
	double *give_s, *adopt_s; /* [n_prompts] */
	uint32_t n_at_kill;       /* answers that were not complete when worker 0 was killed */
};

/* ---------------------------------------------------------------- messages */

static void
split_order(struct split_demo *demo, uint32_t worker, const struct split_order *order)
{
	if (write(demo->workers[worker].socket, order, sizeof(*order)) != (ssize_t)sizeof(*order))
		die("--split: worker %u ended early", worker);
}

static void
split_order_prompt(struct split_demo *demo, uint32_t prompt, double arrived_s)
{
	bool together = demo->phase == SPLIT_TOGETHER;
	struct split_order order = { .kind = together ? SPLIT_BOTH : SPLIT_PREFILL, .prompt = prompt };

	demo->answers[demo->phase][prompt].arrived_s = arrived_s;
	split_order(demo, together ? prompt % demo->options->n_workers : 0, &order);
}

/* When worker 0 has nothing more to do. */
static void
split_kill(struct split_demo *demo)
{
	if (demo->phase != SPLIT_APART || demo->options->kill_worker != 0 || demo->workers[0].pid == 0 ||
	    demo->n_started < demo->options->n_prompts || demo->n_given < demo->n_to_give)
		return;
	worker_process_kill(&demo->workers[0]);
	demo->ready[0].fd = -1;
	demo->n_at_kill = (uint32_t)demo->options->n_prompts - demo->n_done;
}

static void
split_on_token(struct split_demo *demo, const struct split_event *event)
{
	struct split_answer *answer = &demo->answers[demo->phase][event->prompt];

	if (answer->tokens.n == demo->options->max_tokens)
		die("--split: prompt %u has more than %u tokens", event->prompt + 1, demo->options->max_tokens);
	answer->at_s[answer->tokens.n] = event->at_s;
	token_list_add(&answer->tokens, &event->token, 1);
	answer->n_prompt = event->n_prompt;
	demo->n_done += event->last;
	if (answer->tokens.n > 1)
		return;
	demo->n_started++;
	demo->n_to_give += demo->phase == SPLIT_APART && !event->last;
	split_kill(demo);
}

static void
split_on_given(struct split_demo *demo, const struct split_event *event)
{
	uint32_t n_decoders = demo->options->n_workers - 1;
	struct split_order order = { .kind = SPLIT_DECODE,
				     .prompt = event->prompt,
				     .first_token = demo->answers[SPLIT_APART][event->prompt].tokens.ids[0],
				     .ticket = event->ticket };

	demo->give_s[demo->n_given++] = event->call_s;
	demo->n_pages += event->n_pages;
	split_kill(demo);
	split_order(demo, 1 + event->prompt % n_decoders, &order);
}

static void
split_receive(struct split_demo *demo, uint32_t worker)
{
	struct split_event event;

	if (read(demo->workers[worker].socket, &event, sizeof(event)) != (ssize_t)sizeof(event))
		die("--split: worker %u ended early", worker);
	switch (event.kind) {
	case SPLIT_READY:
		break;
	case SPLIT_TOKEN:
		split_on_token(demo, &event);
		break;
	case SPLIT_GIVEN:
		split_on_given(demo, &event);
		break;
	case SPLIT_ADOPTED:
		demo->adopt_s[demo->n_adopted++] = event.call_s;
		break;
	}
}

/* ------------------------------------------------------------------ phases */

static void
split_wait(struct split_demo *demo, int timeout_ms)
{
	if (poll(demo->ready, demo->options->n_workers, timeout_ms) < 0 && errno != EINTR)
		die("poll: %s", strerror(errno));
	for (uint32_t i = 0; i < demo->options->n_workers; i++)
		if (demo->ready[i].fd >= 0 && demo->ready[i].revents != 0)
			split_receive(demo, i);
}

static void
split_run_phase(struct split_demo *demo, enum split_phase phase)
{
	double start = clock_now_s(), interval = demo->options->split_interval_ms * 1e-3;
	uint32_t n = (uint32_t)demo->options->n_prompts, n_ordered = 0;

	demo->phase = phase;
	demo->n_started = demo->n_done = 0;
	while (demo->n_done < n) {
		double wait_s = start + n_ordered * interval - clock_now_s();

		if (n_ordered < n && wait_s <= 0) {
			split_order_prompt(demo, n_ordered, start + n_ordered * interval);
			n_ordered++;
			continue;
		}
		split_wait(demo, n_ordered < n ? (int)(wait_s * 1e3) + 1 : -1);
	}
}

static void
split_run(struct split_demo *demo)
{
	uint32_t n_workers = demo->options->n_workers;

	for (uint32_t i = 0; i < n_workers; i++) {
		demo->ready[i] = (struct pollfd){ .fd = demo->workers[i].socket, .events = POLLIN };
		split_receive(demo, i); /* the model is loaded */
	}
	for (enum split_phase phase = 0; phase < SPLIT_N_PHASES; phase++)
		split_run_phase(demo, phase);
}

/* ------------------------------------------------------------------ report */

static int
split_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Sorts the values.  0 if there are none. */
static double
split_median(double *values, size_t n)
{
	qsort(values, n, sizeof(*values), split_compare);
	return n > 0 ? (values[(n - 1) / 2] + values[n / 2]) / 2 : 0;
}

/* Prints median and maximum of the times to the first token and between tokens of n answers. */
static void
split_print_times(const struct split_demo *demo, const struct split_answer *answers, size_t n)
{
	double *firsts = xcalloc(n, sizeof(*firsts)), *gaps = xcalloc(n * demo->options->max_tokens, sizeof(*gaps));
	size_t n_gaps = 0;

	for (size_t i = 0; i < n; i++) {
		firsts[i] = answers[i].at_s[0] - answers[i].arrived_s;
		for (size_t t = 1; t < answers[i].tokens.n; t++)
			gaps[n_gaps++] = answers[i].at_s[t] - answers[i].at_s[t - 1];
	}
	printf("  %8.0f ms", 1e3 * split_median(firsts, n));
	if (n_gaps > 0) {
		printf("  %5.0f ms", 1e3 * split_median(gaps, n_gaps));
		printf("  %5.0f ms", 1e3 * gaps[n_gaps - 1]);
	} else {
		printf("  %8s  %8s", "-", "-");
	}
	free(gaps);
	free(firsts);
}

static bool
split_print_prompt(const struct split_demo *demo, uint32_t i)
{
	const struct token_list *a = &demo->answers[SPLIT_TOGETHER][i].tokens,
				*b = &demo->answers[SPLIT_APART][i].tokens;
	bool equal = a->n == b->n && memcmp(a->ids, b->ids, a->n * sizeof(*a->ids)) == 0;

	printf("prompt %-3u  %6u", i + 1, demo->answers[SPLIT_TOGETHER][i].n_prompt);
	for (enum split_phase phase = 0; phase < SPLIT_N_PHASES; phase++)
		split_print_times(demo, &demo->answers[phase][i], 1);
	printf("  %s, %zu tokens\n", equal ? "yes" : "NO", a->n);
	return equal;
}

static void
split_print_handovers(const struct split_demo *demo)
{
	printf("%u sequences (%u pages) were handed over: give %.2f ms, adopt %.2f ms (medians); no K or V was "
	       "copied\n",
	       demo->n_adopted, demo->n_pages, 1e3 * split_median(demo->give_s, demo->n_given),
	       1e3 * split_median(demo->adopt_s, demo->n_adopted));
	if (demo->workers[0].pid == 0 && demo->n_adopted > 0)
		printf("kill -9 worker 0 between its last give and the adopt: the %u answers that were not complete "
		       "went "
		       "on\n",
		       demo->n_at_kill);
}

/* Returns whether all tokens are equal. */
static bool
split_print(const struct split_demo *demo)
{
	uint32_t n = (uint32_t)demo->options->n_prompts, n_workers = demo->options->n_workers, n_equal = 0;
	char together[64], apart[64];

	snprintf(together, sizeof(together), "%u workers prefill and decode", n_workers);
	snprintf(apart, sizeof(apart), "1 prefills, %u decode%s", n_workers - 1, n_workers == 2 ? "s" : "");
	printf("%18s  %-31s  %s\n", "", together, apart);
	printf("%18s  %11s  %-18s  %11s  %s\n", "", "", "between tokens", "", "between tokens");
	printf("%10s  %6s", "", "prompt");
	for (enum split_phase phase = 0; phase < SPLIT_N_PHASES; phase++)
		printf("  %11s  %8s  %8s", "first token", "median", "longest");
	puts("  same answer");
	for (uint32_t i = 0; i < n; i++)
		n_equal += split_print_prompt(demo, i);
	printf("%-18s", "all, median");
	for (enum split_phase phase = 0; phase < SPLIT_N_PHASES; phase++)
		split_print_times(demo, demo->answers[phase], n);
	puts("");
	split_print_handovers(demo);
	fflush(stdout);
	return n_equal == n;
}

int
split_demo_run(const struct options *options)
{
	struct split_demo demo = { .options = options };
	size_t n = options->n_prompts;
	bool equal, succeeded;

	demo.ready = xcalloc(options->n_workers, sizeof(*demo.ready));
	demo.give_s = xcalloc(n, sizeof(*demo.give_s));
	demo.adopt_s = xcalloc(n, sizeof(*demo.adopt_s));
	for (enum split_phase phase = 0; phase < SPLIT_N_PHASES; phase++) {
		demo.answers[phase] = xcalloc(n, sizeof(*demo.answers[phase]));
		for (size_t i = 0; i < n; i++)
			demo.answers[phase][i].at_s = xcalloc(options->max_tokens, sizeof(double));
	}
	demo.workers = worker_processes_start(options, split_worker_serve);
	split_run(&demo);
	equal = split_print(&demo);
	succeeded = worker_processes_end(demo.workers, options->n_workers);
	for (enum split_phase phase = 0; phase < SPLIT_N_PHASES; phase++) {
		for (size_t i = 0; i < n; i++) {
			free(demo.answers[phase][i].at_s);
			free(demo.answers[phase][i].tokens.ids);
		}
		free(demo.answers[phase]);
	}
	free(demo.adopt_s);
	free(demo.give_s);
	free(demo.ready);
	return !succeeded ? EXIT_FAILED : equal ? EXIT_ANSWERED : EXIT_DIFFERENT;
}
