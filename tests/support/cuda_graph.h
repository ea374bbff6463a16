/* SPDX-License-Identifier: Apache-2.0 */
/**
 * cuda_graph.h - stream capture and graph launch of the CUDA driver API, for tests
 *
 * The library itself captures nothing; an engine does.  The functions are
 * declared as in kernels/cuda/host/driver.h and looked up in the driver that is
 * loaded; unit_cuda_abi compares the declarations with cuda.h.
 */
#ifndef TESTS_CUDA_GRAPH_H
#define TESTS_CUDA_GRAPH_H

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

#include "kernels/cuda/host/driver.h"

typedef struct CUgraph_st *cuda_graph;
typedef struct CUgraphExec_st *cuda_graph_exec;

enum cuda_capture_result {
	CUDA_ERROR_ILLEGAL_STATE = 401,
	CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
	CUDA_ERROR_STREAM_CAPTURE_MERGE = 902,
	CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
	CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904,
	CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
	CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
	CUDA_ERROR_CAPTURED_EVENT = 907,
	CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
};

enum cuda_capture_status { CUDA_CAPTURE_ACTIVE = 1, CUDA_CAPTURE_INVALIDATED = 2 };

#define CUDA_GRAPH_FUNCTIONS(F)                                                 \
	F(cuStreamBeginCapture_v2, begin, (cuda_stream stream, int mode))       \
	F(cuStreamEndCapture, end, (cuda_stream stream, cuda_graph * graph))    \
	F(cuGraphInstantiateWithFlags, instantiate,                             \
	  (cuda_graph_exec * exec, cuda_graph graph, unsigned long long flags)) \
	F(cuGraphLaunch, launch, (cuda_graph_exec exec, cuda_stream stream))    \
	F(cuGraphExecDestroy, exec_destroy, (cuda_graph_exec exec))             \
	F(cuGraphDestroy, destroy, (cuda_graph graph))

struct cuda_graphs {
#define CUDA_GRAPH_FIELD(symbol, field, parameters) int(*field) parameters;
	CUDA_GRAPH_FUNCTIONS(CUDA_GRAPH_FIELD)
#undef CUDA_GRAPH_FIELD
};

/** cuda_graphs_find - look up the functions in the loaded driver; false: one is missing */
static inline bool
cuda_graphs_find(struct cuda_graphs *graphs, const struct cuda_driver *driver)
{
	bool all = true;

	memset(graphs, 0, sizeof(*graphs));
#define CUDA_GRAPH_FIND(symbol, field, parameters)                  \
	*(void **)&graphs->field = dlsym(driver->library, #symbol); \
	all &= graphs->field != NULL;
	CUDA_GRAPH_FUNCTIONS(CUDA_GRAPH_FIND)
#undef CUDA_GRAPH_FIND
	return all;
}

#endif
