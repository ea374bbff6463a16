/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs: the operations that a capture collected and their dependencies, and
 * launches of it.  A launch is one operation of its stream, so replays wait
 * until a call waits for them.  Every other launch runs independent nodes
 * in the opposite order, so that a missing dependency shows as a wrong result.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fake-cuda/fake_cuda.h"

struct node {
	struct operation *operation;
	struct capture_set after;
};

/* Shared by a capture, then a graph, and its executables; does not change once captured. */
struct graph_program {
	struct graph_program *next;
	unsigned int n_users;
	unsigned int n_nodes, n_places;
	struct node *nodes;
};

struct CUgraph_st {
	struct CUgraph_st *next;
	struct graph_program *program;
};

struct CUgraphExec_st {
	struct CUgraphExec_st *next;
	struct CUctx_st *context;
	uint64_t generation; /* of the context */
	struct graph_program *program;
	unsigned int n_users; /* the handle, launches on their way */
	bool *done;           /* [n_nodes], of the launch that runs */
	uint64_t n_launched, n_completed;
	struct CUstream_st *stream; /* of the last launch */
	uint64_t number;
};

static struct graph_program *programs;
static struct CUgraph_st *graphs;
static struct CUgraphExec_st *execs;

/* Programs */

struct graph_program *
program_create(void)
{
	struct graph_program *program = calloc(1, sizeof(*program));

	if (program == NULL)
		return NULL;
	program->n_users = 1;
	program->next = programs;
	programs = program;
	return program;
}

bool
programs_have(bool (*uses)(const struct operation *operation, const void *argument), const void *argument)
{
	for (const struct graph_program *each = programs; each != NULL; each = each->next)
		for (unsigned int i = 0; i < each->n_nodes; i++)
			if (uses(each->nodes[i].operation, argument))
				return true;
	return false;
}

void
program_drop(struct graph_program *program)
{
	struct graph_program **at = &programs;

	if (--program->n_users > 0)
		return;
	while (*at != program)
		at = &(*at)->next;
	*at = program->next;
	for (unsigned int i = 0; i < program->n_nodes; i++)
		free(program->nodes[i].operation);
	free(program->nodes);
	free(program);
}

bool
program_add(struct graph_program *program, struct operation *operation, const struct capture_set *after)
{
	if (program->n_nodes == program->n_places) {
		unsigned int n = 2 * program->n_places + 16;
		struct node *grown = realloc(program->nodes, n * sizeof(*grown));

		if (grown == NULL)
			return false;
		program->nodes = grown;
		program->n_places = n;
	}
	program->nodes[program->n_nodes++] = (struct node){ .operation = operation, .after = *after };
	return true;
}

unsigned int
program_last(const struct graph_program *program)
{
	return program->n_nodes - 1;
}

/* From the last node to the first, since a node comes after earlier ones alone. */
bool
program_ends_in(const struct graph_program *program, const struct capture_set *ends)
{
	bool *reached = calloc(program->n_nodes + 1, sizeof(*reached));
	unsigned int n = 0;

	if (reached == NULL)
		return false;
	for (unsigned int i = 0; i < ends->n; i++)
		reached[ends->nodes[i]] = true;
	for (unsigned int i = program->n_nodes; i-- > 0 && reached[i]; n++)
		for (unsigned int k = 0; k < program->nodes[i].after.n; k++)
			reached[program->nodes[i].after.nodes[k]] = true;
	free(reached);
	return n == program->n_nodes;
}

/* Graphs */

int
graph_create(struct graph_program *program, struct CUgraph_st **graph_p)
{
	struct CUgraph_st *graph = calloc(1, sizeof(*graph));

	if (graph == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	graph->program = program;
	graph->next = graphs;
	graphs = graph;
	*graph_p = graph;
	return CUDA_SUCCESS;
}

static struct CUgraph_st **
graph_find(const struct CUgraph_st *graph)
{
	struct CUgraph_st **at = &graphs;

	while (*at != NULL && *at != graph)
		at = &(*at)->next;
	return at;
}

static int
graph_destroy(struct CUgraph_st *graph)
{
	struct CUgraph_st **at = graph_find(graph);

	if (*at == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*at = graph->next;
	program_drop(graph->program);
	free(graph);
	return CUDA_SUCCESS;
}

/* Executables */

static struct CUgraphExec_st **
exec_find(const struct CUgraphExec_st *exec)
{
	struct CUgraphExec_st **at = &execs;

	while (*at != NULL && *at != exec)
		at = &(*at)->next;
	return at;
}

static void
exec_drop(struct CUgraphExec_st *exec)
{
	if (--exec->n_users > 0)
		return;
	program_drop(exec->program);
	free(exec->done);
	free(exec);
}

static int
graph_instantiate(struct CUgraphExec_st **exec_p, const struct CUgraph_st *graph, unsigned long long flags)
{
	struct CUgraphExec_st *exec;

	if (*graph_find(graph) == NULL || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	exec = calloc(1, sizeof(*exec));
	if (exec == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	exec->done = calloc(graph->program->n_nodes + 1, sizeof(*exec->done));
	if (exec->done == NULL) {
		free(exec);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	exec->context = context_now();
	exec->generation = exec->context->generation;
	exec->program = graph->program;
	exec->program->n_users++;
	exec->n_users = 1;
	exec->next = execs;
	execs = exec;
	*exec_p = exec;
	return CUDA_SUCCESS;
}

/* One that is on its way still runs. */
static int
exec_destroy(struct CUgraphExec_st *exec)
{
	struct CUgraphExec_st **at = exec_find(exec);

	if (*at == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*at = exec->next;
	exec_drop(exec);
	return CUDA_SUCCESS;
}

static bool
node_ready(const struct CUgraphExec_st *exec, unsigned int i)
{
	const struct capture_set *after = &exec->program->nodes[i].after;

	for (unsigned int k = 0; k < after->n; k++)
		if (!exec->done[after->nodes[k]])
			return false;
	return !exec->done[i];
}

static int
program_run(struct CUgraphExec_st *exec, bool backwards)
{
	unsigned int n = exec->program->n_nodes;

	memset(exec->done, 0, n * sizeof(*exec->done));
	for (unsigned int n_done = 0; n_done < n; n_done++) {
		struct operation *operation;
		unsigned int i = 0;
		int result;

		while (!node_ready(exec, backwards ? n - 1 - i : i))
			i++;
		i = backwards ? n - 1 - i : i;
		operation = exec->program->nodes[i].operation;
		result = operation->run(operation);
		if (result != CUDA_SUCCESS)
			return result;
		exec->done[i] = true;
	}
	return CUDA_SUCCESS;
}

static int
exec_run(struct operation *operation)
{
	struct CUgraphExec_st *exec = operation->graph.exec;
	int result = CUDA_SUCCESS;

	if (exec->n_completed < operation->graph.launch_number)
		result = stream_run(operation->graph.before, operation->graph.before_number);
	if (result == CUDA_SUCCESS)
		result = program_run(exec, operation->graph.launch_number % 2 != 0);
	exec->n_completed++;
	exec_drop(exec);
	return result;
}

/* A graph in a graph is more than anybody here needs. */
static int
exec_launch(struct CUgraphExec_st *exec, cuda_stream handle)
{
	struct operation *operation;
	struct CUstream_st *stream;
	int result;

	if (*exec_find(exec) == NULL || exec->context != context_now() || exec->generation != exec->context->generation)
		return CUDA_ERROR_INVALID_VALUE;
	result = stream_admit(handle, &stream);
	if (result != CUDA_SUCCESS)
		return result;
	if (stream->capture != NULL)
		return capture_refuse(stream->capture, CUDA_ERROR_NOT_SUPPORTED);
	operation = stream_operation(0, exec_run);
	if (operation == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	operation->graph.exec = exec;
	operation->graph.launch_number = exec->n_launched++;
	operation->graph.before = exec->stream;
	operation->graph.before_number = exec->number;
	exec->n_users++;
	stream_add(stream, operation);
	exec->stream = stream;
	exec->number = operation->number;
	return CUDA_SUCCESS;
}

ENTRY(cuGraphInstantiateWithFlags, (cuda_graph_exec * exec, cuda_graph graph, unsigned long long flags), ENTRY_CONTEXT,
      graph_instantiate(exec, graph, flags))
ENTRY(cuGraphLaunch, (cuda_graph_exec exec, cuda_stream stream), ENTRY_CONTEXT, exec_launch(exec, stream))
ENTRY(cuGraphExecDestroy, (cuda_graph_exec exec), ENTRY_DRIVER, exec_destroy(exec))
ENTRY(cuGraphDestroy, (cuda_graph graph), ENTRY_DRIVER, graph_destroy(graph))
