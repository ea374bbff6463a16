/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/kv/peer.h"

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
#include "bench/kv/kv_case.h"
#include "bench/pinned_threads.h"
#include "bench/processes.h"

static const struct peer {
	const char *name, *python, *program; /* python: the environment variable that names it */
} peers[N_PEERS] = {
	[PEER_TORCH] = { "torch", "PAGED_TORCH", "cpu_torch.py" },
	[PEER_VLLM] = { "vllm", "PAGED_VLLM", "cpu_vllm.py" },
};

static struct peer_child {
	const char *policy; /* OMP_WAIT_POLICY */
	pid_t pid;
	int to;
	FILE *from;
} children[] = { { .policy = "active" }, { .policy = "passive" } };

static const struct peer *peer;
static char peer_version_text[64];

static const char *
peer_python(void)
{
	const char *own = getenv(peer->python);

	return own != NULL && own[0] != 0 ? own : "python3";
}

/* In the child: run Python with as many threads as paged has, on the same CPUs. */
static void
peer_child_main(const struct peer_child *child, int end)
{
	char number[16], places[1024], file[64], installed[1024];
	const char *found;

	snprintf(file, sizeof(file), "bench/peers/%s", peer->program);
	snprintf(installed, sizeof(installed), "%s/%s", BENCH_PEERS, peer->program);
	found = bench_find_file(file);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pinned_threads_unpin();
	pinned_threads_omp_places(places, sizeof(places));
	snprintf(number, sizeof(number), "%u", pinned_threads_count());
	setenv("OMP_NUM_THREADS", number, 1);
	setenv("OMP_PLACES", places, 1);
	setenv("OMP_PROC_BIND", "true", 1);
	setenv("OMP_WAIT_POLICY", child->policy, 1);
	setenv("PAGED_PEER_CLOCK", bench_uses_cpu_time() ? "cpu" : "wall", 1);
	setenv("TORCHINDUCTOR_COMPILE_THREADS", "1", 1);
	dup2(end, STDIN_FILENO);
	dup2(end, STDOUT_FILENO);
	execlp(peer_python(), peer_python(), found != NULL ? found : installed, (char *)NULL);
	fprintf(stderr, "paged-bench: %s: %m\n", peer_python());
	_exit(127);
}

/* Returns NULL if the child has ended. */
static json_t *
peer_child_read(const struct peer_child *child)
{
	char line[4096];

	return fgets(line, sizeof(line), child->from) != NULL ? json_loads(line, 0, NULL) : NULL;
}

static void
peer_child_start(struct peer_child *child)
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
		peer_child_main(child, ends[1]);
	close(ends[1]);
	child->to = ends[0];
	child->from = fdopen(ends[0], "r");
	if (child->from == NULL)
		bench_die("fdopen: %m");
	reply = peer_child_read(child);
	json_unpack(reply, "{s?s, s?s}", "ready", &ready, "missing", &missing);
	if (ready == NULL)
		bench_die("--reference %s: %s has none (%s); make one by bench/peers/setup DIR%s, then "
			  "%s=DIR/bin/python3",
			  peer->name, peer_python(), missing, peer == &peers[PEER_VLLM] ? " vllm" : "", peer->python);
	snprintf(peer_version_text, sizeof(peer_version_text), "%s", ready);
	json_decref(reply);
	kill(child->pid, SIGSTOP);
}

/* Takes the request; the caller owns the reply. */
static json_t *
peer_child_ask(const struct peer_child *child, json_t *request)
{
	char *text = json_dumps(request, JSON_COMPACT);
	json_t *reply;

	kill(child->pid, SIGCONT);
	if (text == NULL || dprintf(child->to, "%s\n", text) < 0)
		bench_die("%s: %m", peer->name);
	reply = peer_child_read(child);
	kill(child->pid, SIGSTOP);
	if (reply == NULL)
		bench_die("%s: it ended instead of answering %s", peer->name, text);
	free(text);
	json_decref(request);
	return reply;
}

void
peer_start(enum peer_kind kind)
{
	if (children[0].pid != 0)
		return;
	peer = &peers[kind];
	/* Without SIGPIPE, dprintf() fails if the child has ended. */
	signal(SIGPIPE, SIG_IGN);
	for (size_t i = 0; i < BENCH_N(children); i++)
		peer_child_start(&children[i]);
}

void
peer_stop(void)
{
	for (size_t i = 0; i < BENCH_N(children) && children[i].pid != 0; i++) {
		kill(children[i].pid, SIGKILL);
		waitpid(children[i].pid, NULL, 0);
		fclose(children[i].from);
		children[i].pid = 0;
	}
}

const char *
peer_version(void)
{
	return peer_version_text;
}

static void
peer_child_close(size_t i, int number)
{
	json_decref(peer_child_ask(&children[i], json_pack("{s:i}", "close", number)));
}

bool
peer_open(struct peer_case *peer_case, const struct peer_batch *batch)
{
	static int n_cases;
	double best_us = 0;

	*peer_case = (struct peer_case){ .number = n_cases++ };
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
		reply = peer_child_ask(&children[i],
				       json_pack("{s:i, s:s, s:o, s:i, s:i, s:i, s:s, s:b}", "open", peer_case->number,
						 "work", batch->work, "rows", list, "q_heads", (int)batch->q_heads,
						 "kv_heads", (int)batch->kv_heads, "dim", (int)batch->dim, "data",
						 batch->data, "quick", batch->quick));
		json_unpack(reply, "{s?F, s?s, s?s}", "us", &us, "method", &method, "error", &error);
		if (method != NULL && (best_us == 0 || us < best_us)) {
			if (best_us > 0)
				peer_child_close(peer_case->child, peer_case->number);
			best_us = us;
			peer_case->child = (unsigned int)i;
			snprintf(peer_case->method, sizeof(peer_case->method), "%s, %s waiting", method,
				 children[i].policy);
		} else if (method != NULL) {
			peer_child_close(i, peer_case->number);
		} else if (best_us == 0) {
			snprintf(peer_case->method, sizeof(peer_case->method), "%s", error);
		}
		json_decref(reply);
	}
	return best_us > 0;
}

double
peer_sample_us(const struct peer_case *peer_case)
{
	json_t *reply = peer_child_ask(&children[peer_case->child], json_pack("{s:i}", "sample", peer_case->number));
	const char *error = "no answer";
	double us = 0;

	json_unpack(reply, "{s?F, s?s}", "us", &us, "error", &error);
	if (us <= 0)
		bench_die("%s: %s", peer->name, error);
	json_decref(reply);
	return us;
}

void
peer_write_result(const struct peer_case *peer_case, const char *data)
{
	json_t *reply = peer_child_ask(&children[peer_case->child],
				       json_pack("{s:i, s:s}", "result", peer_case->number, "data", data));
	const char *error = NULL;

	json_unpack(reply, "{s?s}", "error", &error);
	if (error != NULL)
		bench_die("%s: %s", peer->name, error);
	json_decref(reply);
}

void
peer_close(const struct peer_case *peer_case)
{
	peer_child_close(peer_case->child, peer_case->number);
}
