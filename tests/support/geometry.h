/* SPDX-License-Identifier: Apache-2.0 */
/**
 * geometry.h - geometries of test pools: each number is defined once, for code and for pagedd.conf
 *
 * Numbers have no suffix, so that their text is a value of pagedd.conf.
 */
#ifndef TESTS_GEOMETRY_H
#define TESTS_GEOMETRY_H

/** The text of a macro's value. */
#define GEOMETRY_TEXT(value) GEOMETRY_TEXT_(value)
#define GEOMETRY_TEXT_(value) #value

/** Settings of pagedd.conf: the shape of a pool's pages. */
#define POOL_SHAPE(layers, kv_heads, head_dim, dtype)                                                          \
	"layers = " GEOMETRY_TEXT(layers) " kv-heads = " GEOMETRY_TEXT(kv_heads) " head-dim = " GEOMETRY_TEXT( \
		head_dim) " dtype = " #dtype

/** Settings of pagedd.conf: page size and max-length in tokens, number of pages and of sequences. */
#define POOL_SIZES(page_size, n_pages, n_slots, max_length)                                                       \
	"page-size = " GEOMETRY_TEXT(page_size) " pages = " GEOMETRY_TEXT(n_pages) " sequences = " GEOMETRY_TEXT( \
		n_slots) " max-length = " GEOMETRY_TEXT(max_length)

/* Pool "test" of worker_fixture.h and cuda_daemon.h */

#define WORKER_LAYERS 2
#define WORKER_KV_HEADS 2
#define WORKER_HEADS 4
#define WORKER_DIM 32
#define WORKER_PAGE_SIZE 4 /* tokens */
#define WORKER_PAGES 64
#define WORKER_SLOTS 32
#define WORKER_MAX_LENGTH 128 /* tokens */

/* Programs of tests/system that are built a second time, with tests/system/cuda/on_cuda.c. */
#ifdef WORKER_ON_CUDA
#define WORKER_BACKEND " backend = cuda"
#else
#define WORKER_BACKEND ""
#endif

#define WORKER_POOL_SHAPE POOL_SHAPE(WORKER_LAYERS, WORKER_KV_HEADS, WORKER_DIM, f32) WORKER_BACKEND
/** Two lines of settings. */
#define WORKER_POOL_SETTINGS \
	WORKER_POOL_SHAPE "\n" POOL_SIZES(WORKER_PAGE_SIZE, WORKER_PAGES, WORKER_SLOTS, WORKER_MAX_LENGTH)

/* Pool "p" of programs that test the daemon's messages and not attention */

#define SMALL_POOL_PAGES 64
#define SMALL_POOL_SHAPE POOL_SHAPE(1, 1, 32, f16)
#define SMALL_POOL_CONFIG \
	"pool p { " SMALL_POOL_SHAPE " page-size = 4 sequences = 8 pages = " GEOMETRY_TEXT(SMALL_POOL_PAGES) " }\n"

/** The shape of the model of README.md and of examples/llama. */
#define LLAMA_POOL_SHAPE POOL_SHAPE(30, 3, 64, f16)

#endif
