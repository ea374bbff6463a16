/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The demo's model with K and V in a GPU's memory, over the fake CUDA
 * driver, or with PAGED_TEST_REAL_CUDA=1 on a GPU: a few tokens, as the
 * host's memory gives them.  PAGED_MODEL names the GGUF file; without it
 * everything is skipped.
 */
#include <stdlib.h>
#include <string.h>

#include "examples/llama/engine.h"
#include "examples/llama/paged_cache.h"
#include "tests/system/cuda/cuda_daemon.h"
#include "tests/llama/golden_llama.h"
#include "tests/support/geometry.h"
#include "tests/fake-cuda/load.h"

#define N_TOKENS 4u
#define STEP_TOKENS 64u
#define LLAMA "examples/llama/paged-llama"
#define POOL "pool demo { " LLAMA_POOL_SHAPE " page-size = 16 pages = 32 backend = cuda "
#define FRANCE "What is the capital of France?"

static void
start(void)
{
	if (getenv("PAGED_MODEL") == NULL)
		it_skip("PAGED_MODEL names no model");
}

/* Generate the first tokens of a golden answer; the caller frees the request's tokens. */
static void
answer_on(const char *backend, const struct model *model, struct forward *forward, const struct golden_llama *golden,
	  struct request *request)
{
	struct options options = {
		.pool = "llama", .embedded_pages = 16, .dtype = PAGED_F16, .backend = backend, .max_running = 1
	};
	struct engine_params params = { .max_running = 1, .end_token = UINT32_MAX };
	struct attention *attention = paged_cache_create(model, &options, forward->matmul.thread_pool, NULL);
	struct engine_stats stats;

	*request = (struct request){ .n_prompt = golden->n_prompt, .max_tokens = N_TOKENS };
	token_list_add(&request->tokens, golden->prompt, golden->n_prompt);
	stats = engine_answer(forward, attention, &params, request, 1);
	it_require(request->tokens.n == golden->n_prompt + N_TOKENS, "%zu tokens", request->tokens.n);
	it_note("%s: %zu tokens read and %u written in %.1f s", backend, golden->n_prompt, N_TOKENS, stats.seconds);
	paged_cache_destroy(attention);
}

IT_TEST(cuda_gives_the_hosts_tokens)
{
	struct request host, cuda;
	struct golden_llama golden;
	struct forward *forward;
	struct model *model;
	struct gguf *gguf;

	start();
	cuda_daemon_environment();
	it_require(fake_cuda_load(), "%s", dlerror());
	gguf = gguf_open(getenv("PAGED_MODEL"));
	model = model_create(gguf, false);
	forward = forward_create(model, 1, STEP_TOKENS, 1);
	golden_llama_read(0, &golden);
	answer_on("host", model, forward, &golden, &host);
	answer_on("cuda", model, forward, &golden, &cuda);
	for (size_t i = golden.n_prompt; i < host.tokens.n; i++) {
		it_require(cuda.tokens.ids[i] == host.tokens.ids[i], "token %zu: %u, host %u", i, cuda.tokens.ids[i],
			   host.tokens.ids[i]);
		it_require(host.tokens.ids[i] == golden.greedy[i - golden.n_prompt], "token %zu: %u, reference %u", i,
			   host.tokens.ids[i], golden.greedy[i - golden.n_prompt]);
	}
	free(host.tokens.ids);
	free(cuda.tokens.ids);
	golden_llama_free(&golden);
	forward_destroy(forward);
	model_destroy(model);
	gguf_close(gguf);
}

IT_TEST(embedded_pool_on_cuda)
{
	const char *output;
	int code;

	start();
	cuda_daemon_environment();
	output = it_command(&code, (const char *const[]){ LLAMA, "--embedded=64", "--backend", "cuda", "--max-tokens",
							  "6", "--verify", "--prompt", FRANCE, NULL });
	it_require(code == 0 && strstr(output, "equal to a private cache") != NULL, "%s", output);
}

/* Two processes on one pool, of the second GPU if it need not be real, against private caches; nothing is left. */
IT_TEST(workers_share_a_pool)
{
	struct it_daemon daemon;
	const char *output;
	int code;

	start();
	cuda_daemon_environment();
	setenv("PAGED_FAKE_CUDA_DEVICES", "2", 1);
	it_daemon_start(&daemon, fake_cuda_wanted() ? POOL "device = 1 }" : POOL "}", NULL, NULL);
	output =
		it_command(&code, (const char *const[]){ LLAMA, "--pool", "demo", "--workers", "2", "--max-tokens", "4",
							 "--verify", "--prompt", FRANCE, "--prompt", "Hi", NULL });
	it_require(code == 0, "%s", output);
	it_require(strstr(output, "         | The capital of France\n") != NULL, "%s", output);
	it_require(strstr(output, "  yes\n") != NULL && strstr(output, "  no\n") == NULL, "%s", output);
	output = it_pagedctl(&code, "check", NULL);
	it_require(code == 0 && strstr(output, " free + 0 referenced + ") != NULL &&
			   strstr(output, " cached + 0 quarantined: holds") != NULL,
		   "%s", output);
	it_daemon_stop(&daemon);
}

IT_TEST(missing_driver_is_reported)
{
	const char *output;
	int code;

	start();
	cuda_skip_with_driver();
	output = it_command(&code,
			    (const char *const[]){ LLAMA, "--embedded", "--backend", "cuda", "--prompt", "Hi", NULL });
	it_require(code == 1 && strcmp(output, "paged-llama: pool llama: device 0: no CUDA driver (libcuda.so.1 not "
					       "found); without a GPU, leave out --backend cuda\n") == 0,
		   "%s", output);
}

static void
run_with_failure(const char *failure)
{
	const char *output, *end;
	int code;

	setenv("PAGED_FAKE_CUDA_FAIL", failure, 1);
	output = it_command(&code, (const char *const[]){ LLAMA, "--embedded=4", "--backend", "cuda", "--prompt", "Hi",
							  "--max-tokens", "1", NULL });
	end = strchr(output, '\n');
	it_require(code == 1 && end != NULL && end[1] == '\0', "%s: exit status %d: %s", failure, code, output);
	it_require(strncmp(output, "paged-llama: ", 13) == 0 && strstr(output, ": CUDA_ERROR_OUT_OF_MEMORY") != NULL,
		   "%s: %s", failure, output);
}

/* Any failing driver call ends the program with one message and a clean exit. */
IT_TEST(failed_driver_calls_are_reported)
{
	static const struct {
		const char *name;
		unsigned int n; /* times that it is made at least, before the first token */
	} calls[] = {
		{ "cuCtxPushCurrent_v2", 6 },  { "cuPointerGetAttribute", 1 }, { "cuMemAlloc_v2", 6 },
		{ "cuMemcpyHtoDAsync_v2", 6 }, { "cuMemcpyDtoHAsync_v2", 2 },  { "cuLaunchKernel", 4 },
		{ "cuStreamSynchronize", 3 },  { "cuStreamCreate", 1 },
	};
	char failure[64];

	start();
	if (!fake_cuda_wanted())
		it_skip("a real driver fails when it wants to");
	cuda_daemon_environment();
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		for (unsigned int n = 1; n <= calls[i].n; n++) {
			snprintf(failure, sizeof(failure), "%s@%u=2", calls[i].name, n);
			run_with_failure(failure);
		}
}

IT_MAIN
