/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/torch.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/base.h"
#include "bench/kv_case.h"
#include "bench/pinned_threads.h"
#include "bench/processes.h"

static struct torch_child {
	const char *policy; /* OMP_WAIT_POLICY */
	pid_t pid;
	int to;
	FILE *from;
} children[] = { { .policy = "active" }, { .policy = "passive" } };

static char torch_version_text[64];

static const char *
torch_python(void)
{
	const char *own = getenv("PAGED_TORCH");

	return own != NULL && own[0] != 0 ? own : "python3";
}

/* In the child: run Python with as many threads as paged has, on the same CPUs. */
static void
torch_child_main(const struct torch_child *child, int end)
{
	const char *found = bench_find_file("bench/peers/cpu_torch.py");
	char number[16], places[1024];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pinned_threads_unpin();
	pinned_threads_omp_places(places, sizeof(places));
	snprintf(number, sizeof(number), "%u", pinned_threads_count());
	setenv("OMP_NUM_THREADS", number, 1);
	setenv("OMP_PLACES", places, 1);
	setenv("OMP_PROC_BIND", "true", 1);
	setenv("OMP_WAIT_POLICY", child->policy, 1);
	setenv("TORCHINDUCTOR_COMPILE_THREADS", "1", 1);
	dup2(end, STDIN_FILENO);
	dup2(end, STDOUT_FILENO);
	execlp(torch_python(), torch_python(), found != NULL ? found : BENCH_PEERS "/cpu_torch.py", (char *)NULL);
	fprintf(stderr, "paged-bench: %s: %m\n", torch_python());
	_exit(127);
}

/* Returns NULL if the child has ended. */
static json_t *
torch_child_read(const struct torch_child *child)
{
	char line[4096];

	return fgets(line, sizeof(line), child->from) != NULL ? json_loads(line, 0, NULL) : NULL;
}

static void
torch_child_start(struct torch_child *child)
{
	const char *ready = NULL, *missing = "it does not run";
	json_t *reply;
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
		bench_die("socketpair: %m");
	fflush(NULL);
	child->pid = fork();
	if (child->pid < 0)
		bench_die("fork: %m");
	if (child->pid == 0)
		torch_child_main(child, ends[1]);
	close(ends[1]);
	child->to = ends[0];
	child->from = fdopen(ends[0], "r");
	if (child->from == NULL)
		bench_die("fdopen: %m");
	reply = torch_child_read(child);
	json_unpack(reply, "{s?s, s?s}", "ready", &ready, "missing", &missing);
	if (ready == NULL)
		bench_die("--reference torch: %s has none (%s); make one by bench/peers/setup DIR, then "
			  "PAGED_TORCH=DIR/bin/python3",
			  torch_python(), missing);
	snprintf(torch_version_text, sizeof(torch_version_text), "%s", ready);
	json_decref(reply);
	kill(child->pid, SIGSTOP);
}

/* Takes the request; the caller owns the reply. */
static json_t *
torch_child_ask(const struct torch_child *child, json_t *request)
{
	char *text = json_dumps(request, JSON_COMPACT);
	json_t *reply;

	kill(child->pid, SIGCONT);
	if (text == NULL || dprintf(child->to, "%s\n", text) < 0)
		bench_die("torch: %m");
	reply = torch_child_read(child);
	kill(child->pid, SIGSTOP);
	if (reply == NULL)
		bench_die("torch: it ended instead of answering %s", text);
	free(text);
	json_decref(request);
	return reply;
}

void
torch_start(void)
{
	if (children[0].pid != 0)
		return;
	/* Without SIGPIPE, dprintf() fails if the child has ended. */
	signal(SIGPIPE, SIG_IGN);
	for (size_t i = 0; i < BENCH_N(children); i++)
		torch_child_start(&children[i]);
}

void
torch_stop(void)
{
	for (size_t i = 0; i < BENCH_N(children) && children[i].pid != 0; i++) {
		kill(children[i].pid, SIGKILL);
		waitpid(children[i].pid, NULL, 0);
		fclose(children[i].from);
		children[i].pid = 0;
	}
}

const char *
torch_version(void)
{
	return torch_version_text;
}

static void
torch_child_close(size_t i, int number)
{
	json_decref(torch_child_ask(&children[i], json_pack("{s:i}", "close", number)));
}

bool
torch_open(struct torch_case *torch_case, const struct torch_batch *batch)
{
	static int n_cases;
	double best_us = 0;

	*torch_case = (struct torch_case){ .number = n_cases++ };
	for (size_t i = 0; i < BENCH_N(children); i++) {
		const char *method = NULL, *error = "no answer";
		json_t *list = json_array(), *reply;
		double us = 0;

		for (size_t kind = 0; kind < KV_ROW_KINDS; kind++) {
			struct kv_rows rows = batch->rows[kind];

			if (rows.n > 0)
				json_array_append_new(
					list, json_pack("[i, i, i]", (int)rows.n, (int)rows.q_len, (int)rows.kv_len));
		}
		reply = torch_child_ask(&children[i],
					json_pack("{s:i, s:o, s:i, s:i, s:i, s:b}", "open", torch_case->number, "rows",
						  list, "q_heads", (int)batch->q_heads, "kv_heads",
						  (int)batch->kv_heads, "dim", (int)batch->dim, "quick", batch->quick));
		json_unpack(reply, "{s?F, s?s, s?s}", "us", &us, "method", &method, "error", &error);
		if (method != NULL && (best_us == 0 || us < best_us)) {
			if (best_us > 0)
				torch_child_close(torch_case->child, torch_case->number);
			best_us = us;
			torch_case->child = (unsigned int)i;
			snprintf(torch_case->method, sizeof(torch_case->method), "%s, %s waiting", method,
				 children[i].policy);
		} else if (method != NULL) {
			torch_child_close(i, torch_case->number);
		} else if (best_us == 0) {
			snprintf(torch_case->method, sizeof(torch_case->method), "%s", error);
		}
		json_decref(reply);
	}
	return best_us > 0;
}

double
torch_sample_us(const struct torch_case *torch_case)
{
	json_t *reply = torch_child_ask(&children[torch_case->child], json_pack("{s:i}", "sample", torch_case->number));
	const char *error = "no answer";
	double us = 0;

	json_unpack(reply, "{s?F, s?s}", "us", &us, "error", &error);
	if (us <= 0)
		bench_die("torch: %s", error);
	json_decref(reply);
	return us;
}

void
torch_close(const struct torch_case *torch_case)
{
	torch_child_close(torch_case->child, torch_case->number);
}
