/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/torch.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/threads.h"

enum { ACTIVE, PASSIVE, N_CHILDREN };

static const char *const policies[N_CHILDREN] = { "active", "passive" };

static struct child {
	pid_t pid;
	FILE *to, *from;
} children[N_CHILDREN];

static char version[64];

static const char *
python(void)
{
	const char *own = getenv("PAGED_TORCH");

	return own != NULL && own[0] != 0 ? own : "python3";
}

static const char *
script(void)
{
	const char *found = bench_find_file("bench/peers/cpu_torch.py");

	return found != NULL ? found : BENCH_PEERS "/cpu_torch.py";
}

/* In the child: as many threads as ours, on the same CPUs. */
static void
child_run(unsigned int i, int in, int out)
{
	char number[16], places[1024];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	threads_release();
	threads_places(places, sizeof(places));
	snprintf(number, sizeof(number), "%u", threads_number());
	setenv("OMP_NUM_THREADS", number, 1);
	setenv("OMP_PLACES", places, 1);
	setenv("OMP_PROC_BIND", "true", 1);
	setenv("OMP_WAIT_POLICY", policies[i], 1);
	setenv("TORCHINDUCTOR_COMPILE_THREADS", "1", 1);
	dup2(in, STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	execlp(python(), python(), script(), (char *)NULL);
	fprintf(stderr, "paged-bench: %s: %m\n", python());
	_exit(127);
}

static void
child_start(unsigned int i)
{
	int to[2], from[2];

	if (pipe(to) != 0 || pipe(from) != 0)
		bench_die("pipe: %m");
	fflush(NULL);
	children[i].pid = fork();
	if (children[i].pid < 0)
		bench_die("fork: %m");
	if (children[i].pid == 0) {
		close(to[1]);
		close(from[0]);
		child_run(i, to[0], from[1]);
	}
	close(to[0]);
	close(from[1]);
	children[i].to = fdopen(to[1], "w");
	children[i].from = fdopen(from[0], "r");
	if (children[i].to == NULL || children[i].from == NULL)
		bench_die("fdopen: %m");
}

/* NULL: it has ended. */
static json_t *
child_hear(const struct child *child)
{
	char line[4096];
	json_error_t error;

	if (fgets(line, sizeof(line), child->from) == NULL)
		return NULL;
	return json_loads(line, 0, &error);
}

static void
child_ready(struct child *child)
{
	json_t *said = child_hear(child);
	const char *ready = json_string_value(json_object_get(said, "ready"));
	const char *missing = json_string_value(json_object_get(said, "missing"));

	if (ready == NULL)
		bench_die("--against torch: %s has none (%s); make one by bench/peers/setup DIR, then "
			  "PAGED_TORCH=DIR/bin/python3",
			  python(), missing != NULL ? missing : "it does not run");
	snprintf(version, sizeof(version), "%s", ready);
	json_decref(said);
	kill(child->pid, SIGSTOP);
}

/* Takes what is asked; the answer is the caller's. */
static json_t *
child_ask(struct child *child, json_t *asked)
{
	char *text = json_dumps(asked, JSON_COMPACT);
	json_t *said;

	kill(child->pid, SIGCONT);
	if (text == NULL || fprintf(child->to, "%s\n", text) < 0 || fflush(child->to) != 0)
		bench_die("torch: %m");
	said = child_hear(child);
	kill(child->pid, SIGSTOP);
	if (said == NULL)
		bench_die("torch: it ended instead of answering %s", text);
	free(text);
	json_decref(asked);
	return said;
}

void
torch_start(void)
{
	if (children[0].pid != 0)
		return;
	/* A child that ends is heard of, not died of. */
	signal(SIGPIPE, SIG_IGN);
	for (unsigned int i = 0; i < N_CHILDREN; i++) {
		child_start(i);
		child_ready(&children[i]);
	}
}

void
torch_stop(void)
{
	for (unsigned int i = 0; i < N_CHILDREN && children[i].pid != 0; i++) {
		kill(children[i].pid, SIGKILL);
		waitpid(children[i].pid, NULL, 0);
		fclose(children[i].to);
		fclose(children[i].from);
		children[i].pid = 0;
	}
}

const char *
torch_version(void)
{
	return version;
}

static json_t *
question(int number, const struct torch_rows *rows, size_t n_kinds, uint32_t q_heads, uint32_t kv_heads, uint32_t dim,
	 bool quick)
{
	json_t *list = json_array();

	for (size_t i = 0; i < n_kinds; i++)
		json_array_append_new(list,
				      json_pack("[i, i, i]", (int)rows[i].n, (int)rows[i].q_len, (int)rows[i].kv_len));
	return json_pack("{s:i, s:o, s:i, s:i, s:i, s:b}", "open", number, "rows", list, "q_heads", (int)q_heads,
			 "kv_heads", (int)kv_heads, "dim", (int)dim, "quick", quick);
}

static void
close_in(unsigned int i, int number)
{
	json_decref(child_ask(&children[i], json_pack("{s:i}", "close", number)));
}

bool
torch_open(struct torch_case *of, const struct torch_rows *rows, size_t n_kinds, uint32_t q_heads, uint32_t kv_heads,
	   uint32_t dim, bool quick)
{
	static int n_cases;
	double best_us = 0;

	*of = (struct torch_case){ .number = n_cases++ };
	for (unsigned int i = 0; i < N_CHILDREN; i++) {
		json_t *said =
			child_ask(&children[i], question(of->number, rows, n_kinds, q_heads, kv_heads, dim, quick));
		double us = json_number_value(json_object_get(said, "us"));
		const char *how = json_string_value(json_object_get(said, "how"));
		const char *error = json_string_value(json_object_get(said, "error"));

		if (how != NULL && (best_us == 0 || us < best_us)) {
			if (best_us > 0)
				close_in(of->child, of->number);
			best_us = us;
			of->child = i;
			snprintf(of->how, sizeof(of->how), "%s, %s waiting", how, policies[i]);
		} else if (how != NULL) {
			close_in(i, of->number);
		} else if (best_us == 0) {
			snprintf(of->how, sizeof(of->how), "%s", error != NULL ? error : "no answer");
		}
		json_decref(said);
	}
	return best_us > 0;
}

double
torch_sample_us(const struct torch_case *of)
{
	json_t *said = child_ask(&children[of->child], json_pack("{s:i}", "sample", of->number));
	double us = json_number_value(json_object_get(said, "us"));

	if (us <= 0)
		bench_die("torch: %s", json_string_value(json_object_get(said, "error")));
	json_decref(said);
	return us;
}

void
torch_close(const struct torch_case *of)
{
	close_in(of->child, of->number);
}
