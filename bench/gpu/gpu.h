/* SPDX-License-Identifier: Apache-2.0 */
/**
 * gpu.h - a GPU for one measurement: memory, graphs, and the device's own clock
 *
 * Work is captured once as a graph and replayed; a sample is the time between
 * two events around a replay.  A process opens the device once.  Failures end
 * the program by bench_die(): kv_gpu.c runs each group of cases in a process of
 * its own.
 */
#ifndef PAGED_BENCH_GPU_GPU_H
#define PAGED_BENCH_GPU_GPU_H

#include "bench/gpu/gpu_reader.h"
#include "bench/suite.h"
#include "kernels/cuda/host/gpu.h"

#define BENCH_GPU_FUNCTIONS(F)                                                                                  \
	F(cuStreamBeginCapture_v2, capture_begin, (cuda_stream stream, int mode))                               \
	F(cuStreamEndCapture, capture_end, (cuda_stream stream, void **graph))                                  \
	F(cuGraphInstantiateWithFlags, instantiate, (void **executable, void *graph, unsigned long long flags)) \
	F(cuGraphLaunch, graph_launch, (void *executable, cuda_stream stream))                                  \
	F(cuEventElapsedTime, elapsed, (float *ms, cuda_event start, cuda_event stop))

struct bench_gpu {
	struct cuda_gpu cuda;
	cuda_stream stream;
	cuda_event start, stop;
	cuda_function reader;
	cuda_function copy_pages; /* the library's kernel */
	cuda_address out;         /* output of the reader kernel */
	uint32_t reader_blocks;   /* the number of blocks that reads fastest on this GPU */
	uint32_t n_multiprocessors;
#define GPU_FIELD(symbol, field, parameters) int(*field) parameters;
	BENCH_GPU_FUNCTIONS(GPU_FIELD)
#undef GPU_FIELD
};

extern struct bench_gpu bench_gpu;

/** Enqueues work on the stream; called once without a capture, then once for each graph. */
typedef void bench_gpu_work_fn(void *argument);

struct bench_gpu_graph {
	void *executable;
	double n_parts; /* equal parts of the graph's work; a time is that of one part */
};

/** bench_gpu_open - device 0; it stays open, and its context current, until the process ends */
void bench_gpu_open(void);

/** bench_gpu_describe - name, memory, driver, clocks */
void bench_gpu_describe(char *text, size_t size);

/** bench_gpu_must - end the program unless the call returns CUDA_SUCCESS */
#define bench_gpu_must(call) bench_gpu_check(call, #call)
void bench_gpu_check(int result, const char *call);

/** bench_gpu_alloc - device memory, never freed */
cuda_address bench_gpu_alloc(size_t size);
/** bench_gpu_put - device memory with a copy of data, never freed */
cuda_address bench_gpu_put(const void *data, size_t size);
/** bench_gpu_fill - fill device memory with a block of bench_fill()'s numbers, repeated */
void bench_gpu_fill(cuda_address address, size_t size, enum paged_dtype dtype);

struct bench_gpu_graph bench_gpu_graph(bench_gpu_work_fn *work, void *argument, double n_parts);
double bench_gpu_graph_us(const struct bench_gpu_graph *graph);

#endif
