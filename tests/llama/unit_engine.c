/* SPDX-License-Identifier: Apache-2.0 */
/* A small random model: its results must not depend on batching, a full pool or continuing a sequence. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "examples/llama/contiguous.h"
#include "examples/llama/engine.h"
#include "examples/llama/paged_cache.h"
#include "tests/llama/catch_die.h"
#include "tests/llama/gguf_writer.h"
#include "tests/fake-cuda/load.h"

enum { N_LAYERS = 2, N_EMBEDDING = 40, N_HEADS = 4, N_KV_HEADS = 2, HEAD_DIM = 10, N_FFN = 48, N_VOCABULARY = 97 };
enum { N_CONTEXT = 512, STEP_TOKENS = 24, MAX_RUNNING = 8, N_REQUESTS = 7 };

struct tensor {
	char name[48];
	uint64_t n_columns, n_rows;
};

/* The tensors of such a model; returns their number. */
static size_t
list_tensors(struct tensor *list)
{
	static const struct {
		const char *part;
		uint64_t n_columns, n_rows;
	} parts[] = {
		{ "attn_norm", N_EMBEDDING, 1 },
		{ "attn_q", N_EMBEDDING, N_HEADS * HEAD_DIM },
		{ "attn_k", N_EMBEDDING, N_KV_HEADS * HEAD_DIM },
		{ "attn_v", N_EMBEDDING, N_KV_HEADS * HEAD_DIM },
		{ "attn_output", N_HEADS * HEAD_DIM, N_EMBEDDING },
		{ "ffn_norm", N_EMBEDDING, 1 },
		{ "ffn_gate", N_EMBEDDING, N_FFN },
		{ "ffn_up", N_EMBEDDING, N_FFN },
		{ "ffn_down", N_FFN, N_EMBEDDING },
	};
	size_t n = 0;

	list[n++] = (struct tensor){ "token_embd.weight", N_EMBEDDING, N_VOCABULARY };
	list[n++] = (struct tensor){ "output_norm.weight", N_EMBEDDING, 1 };
	for (unsigned int layer = 0; layer < N_LAYERS; layer++)
		for (size_t p = 0; p < sizeof(parts) / sizeof(parts[0]); p++) {
			list[n] = (struct tensor){ "", parts[p].n_columns, parts[p].n_rows };
			snprintf(list[n].name, sizeof(list[n].name), "blk.%u.%s.weight", layer, parts[p].part);
			n++;
		}
	return n;
}

static float
random_weight(void)
{
	static uint64_t state = 7;

	state = state * 6364136223846793005u + 1442695040888963407u;
	return (float)((double)(state >> 33) / 0x1p30 - 1);
}

/* rename: a tensor to be called otherwise, NULL for none. */
static struct gguf *
write_model(const char *architecture, uint32_t n_kv_heads, const char *rename, const char *to)
{
	struct tensor list[32];
	size_t n = list_tensors(list);
	struct writer writer = { 0 };
	struct gguf *gguf;
	uint64_t offset = 0;

	writer_header(&writer, n, 9);
	writer_kv_text(&writer, "general.architecture", architecture);
	writer_kv_u32(&writer, "llama.block_count", N_LAYERS);
	writer_kv_u32(&writer, "llama.embedding_length", N_EMBEDDING);
	writer_kv_u32(&writer, "llama.feed_forward_length", N_FFN);
	writer_kv_u32(&writer, "llama.attention.head_count", N_HEADS);
	writer_kv_u32(&writer, "llama.attention.head_count_kv", n_kv_heads);
	writer_kv_u32(&writer, "llama.context_length", N_CONTEXT);
	writer_kv_f32(&writer, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
	writer_kv_array(&writer, "tokenizer.ggml.tokens", GGUF_STRING, N_VOCABULARY);
	for (int i = 0; i < N_VOCABULARY; i++)
		writer_text(&writer, "x");
	for (size_t i = 0; i < n; i++) {
		bool renamed = rename != NULL && strcmp(list[i].name, rename) == 0;

		writer_tensor(&writer, renamed ? to : list[i].name, list[i].n_columns, list[i].n_rows, GGUF_TYPE_F32,
			      offset);
		offset += (list[i].n_columns * list[i].n_rows * 4 + 31) / 32 * 32;
	}
	for (size_t i = 0; i < n; i++) {
		writer_align(&writer);
		for (uint64_t j = 0; j < list[i].n_columns * list[i].n_rows; j++) {
			float weight = random_weight();

			writer_bytes(&writer, &weight, sizeof(weight));
		}
	}
	gguf = writer_open(&writer, writer.size);
	writer_free(&writer);
	return gguf;
}

static struct gguf *gguf;
static struct model *model;
static struct forward *forward;

static void
setup(void)
{

	gguf = write_model("llama", N_KV_HEADS, NULL, NULL);
	model = model_create(gguf, false);
	forward = forward_create(model, 2, STEP_TOKENS, MAX_RUNNING);
}

static void
teardown(void)
{
	forward_destroy(forward);
	model_destroy(model);
	gguf_close(gguf);
}

TestSuite(engine, .init = setup, .fini = teardown);

static struct attention *
open_pages_on(const char *backend, uint32_t n_pages)
{
	struct options options = { .pool = "test",
				   .embedded_pages = n_pages,
				   .dtype = PAGED_F32,
				   .backend = backend,
				   .max_running = MAX_RUNNING };

	return paged_cache_create(model, &options, forward->matmul.thread_pool, NULL);
}

static struct attention *
open_pages(uint32_t n_pages)
{
	return open_pages_on("host", n_pages);
}

static struct attention *
open_prefix_cache(const char *backend, uint32_t n_pages)
{
	struct attention *pages = open_pages_on(backend, n_pages);

	paged_cache_share(pages, true);
	return pages;
}

/* Prompts of different lengths, some longer than a step. */
static void
fill_request(struct request *request, unsigned int number)
{

	*request = (struct request){ .n_prompt = 3 + 11 * number, .max_tokens = 20 + number };
	for (uint32_t i = 0; i < request->n_prompt; i++)
		token_list_add(&request->tokens, (uint32_t[]){ (i * 31 + number * 7) % N_VOCABULARY }, 1);
}

static void
open_engine(struct engine *engine, struct attention *attention, uint32_t max_running)
{
	engine_create(engine, forward, attention,
		      &(struct engine_params){ .max_running = max_running, .end_token = UINT32_MAX });
}

/* Answer requests first .. first+n-1 together; their tokens are the caller's. */
static struct engine_stats
answer(struct attention *attention, uint32_t max_running, unsigned int first, unsigned int n, struct request *requests)
{
	struct engine_params params = { .max_running = max_running, .end_token = UINT32_MAX };
	struct engine_stats stats;

	for (unsigned int i = 0; i < n; i++)
		fill_request(&requests[i], first + i);
	stats = engine_answer(forward, attention, &params, requests, n);
	for (unsigned int i = 0; i < n; i++)
		cr_assert_eq(requests[i].tokens.n, requests[i].n_prompt + requests[i].max_tokens);
	return stats;
}

static void
expect_equal(const struct request *a, const struct request *b, const char *what)
{
	cr_assert_eq(a->tokens.n, b->tokens.n, "%s", what);
	for (size_t i = 0; i < a->tokens.n; i++)
		cr_assert_eq(a->tokens.ids[i], b->tokens.ids[i], "%s: token %zu", what, i);
}

static void
free_requests(struct request *requests, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		free(requests[i].tokens.ids);
}

Test(engine, batch_gives_each_requests_own_answer)
{
	struct attention *pages = open_pages(256), *plain = contiguous_create(model, PAGED_F32, NULL);
	struct request together[N_REQUESTS], alone[N_REQUESTS], reference[N_REQUESTS];
	struct engine_stats stats;

	stats = answer(pages, MAX_RUNNING, 0, N_REQUESTS, together);
	cr_assert_eq(stats.n_tokens, 7 * 20 + 21);
	cr_assert_eq(stats.n_prompt_tokens, 7 * 3 + 11 * 21);
	cr_assert(stats.n_steps < stats.n_tokens, "nothing shared a step");
	for (unsigned int i = 0; i < N_REQUESTS; i++) {
		answer(pages, 1, i, 1, &alone[i]);
		answer(plain, 1, i, 1, &reference[i]);
		expect_equal(&together[i], &alone[i], "alone");
		expect_equal(&together[i], &reference[i], "private cache");
	}
	free_requests(together, N_REQUESTS);
	free_requests(alone, N_REQUESTS);
	free_requests(reference, N_REQUESTS);
	contiguous_destroy(plain);
	paged_cache_destroy(pages);
}

/* On the forward's threads: pages whose kernels run there, and what stands in for an engine without the library. */
Test(engine, caches_run_on_the_forward_threads)
{
	struct forward_times times = forward->times;
	struct request there[N_REQUESTS], fast[N_REQUESTS], reference[N_REQUESTS];
	struct attention *pages = open_pages(256);
	struct attention *private = contiguous_create(model, PAGED_F32, &forward->matmul);
	struct attention *plain = contiguous_create(model, PAGED_F32, NULL);

	answer(pages, MAX_RUNNING, 0, N_REQUESTS, there);
	answer(private, MAX_RUNNING, 0, N_REQUESTS, fast);
	answer(plain, MAX_RUNNING, 0, N_REQUESTS, reference);
	for (unsigned int i = 0; i < N_REQUESTS; i++) {
		expect_equal(&there[i], &reference[i], "pages");
		expect_equal(&fast[i], &reference[i], "fast");
	}
	cr_assert(forward->times.products > times.products);
	cr_assert(forward->times.attention > times.attention);
	free_requests(there, N_REQUESTS);
	free_requests(fast, N_REQUESTS);
	free_requests(reference, N_REQUESTS);
	contiguous_destroy(plain);
	contiguous_destroy(private);
	paged_cache_destroy(pages);
}

/* Each of four sequences needs up to 5 of the 8 pages of 16 tokens. */
Test(engine, full_pool_keeps_answers)
{
	struct attention *few = open_pages(8), *many = open_pages(256);
	struct request preempted[5], roomy[5];
	struct engine_stats stats;

	stats = answer(few, MAX_RUNNING, 0, 5, preempted);
	cr_assert(stats.peak_pages <= 8);
	answer(many, MAX_RUNNING, 0, 5, roomy);
	for (unsigned int i = 0; i < 5; i++)
		expect_equal(&preempted[i], &roomy[i], "full pool");
	free_requests(preempted, 5);
	free_requests(roomy, 5);
	paged_cache_destroy(many);
	paged_cache_destroy(few);
}

/* Prompts 2 to 6 have 25 to 69 tokens: 1 to 4 whole pages.  Pages of their answers are found too, by longer prompts. */
static void
check_prefix_cache(const char *backend)
{
	struct attention *pages = open_prefix_cache(backend, 64), *plain = contiguous_create(model, PAGED_F32, NULL);
	struct request first[5], second[5], longer, reference[5];
	struct engine_stats stats;

	stats = answer(pages, MAX_RUNNING, 2, 5, first);
	cr_assert_eq(stats.n_found_tokens, 0);
	stats = answer(pages, MAX_RUNNING, 2, 5, second);
	cr_assert_eq(stats.n_found_tokens, 16 + 32 + 32 + 48 + 64);
	cr_assert_eq(stats.n_prompt_tokens, 25 + 36 + 47 + 58 + 69 - 192);
	answer(plain, 1, 2, 5, reference);
	for (unsigned int i = 0; i < 5; i++) {
		expect_equal(&first[i], &reference[i], "first");
		expect_equal(&second[i], &reference[i], "from the prefix cache");
	}
	/* 69 tokens and 26 of the answer, of which the last has no K and V: 5 pages. */
	longer = (struct request){ .tokens = second[4].tokens, .n_prompt = second[4].tokens.n, .max_tokens = 1 };
	stats = engine_answer(forward, pages, &(struct engine_params){ .max_running = 1, .end_token = UINT32_MAX },
			      &longer, 1);
	cr_assert_eq(stats.n_found_tokens, 80);
	second[4].tokens = longer.tokens;
	free_requests(first, 5);
	free_requests(second, 5);
	free_requests(reference, 5);
	contiguous_destroy(plain);
	paged_cache_destroy(pages);
}

Test(engine, prefix_cache_gives_the_same_answers)
{
	check_prefix_cache("host");
}

Test(engine, prefix_cache_on_cuda_gives_the_same_answers)
{
	cr_assert(fake_cuda_load(), "%s", dlerror());
	check_prefix_cache("cuda");
}

/* One engine computes prompts, another one continues their answers, while it computes the ones before. */
static void
check_handover(const char *backend)
{
	struct attention *pages = open_pages_on(backend, 64), *plain = contiguous_create(model, PAGED_F32, NULL);
	struct request requests[5], reference[5];
	struct engine prefill, decode;

	open_engine(&prefill, pages, 1);
	open_engine(&decode, pages, MAX_RUNNING);
	for (unsigned int i = 0; i < 5; i++) {
		struct request *request = &requests[i];
		struct paged_ticket ticket;
		uint32_t n_written;

		fill_request(request, i);
		request->max_tokens = 1;
		request->keep = true;
		engine_add(&prefill, request);
		engine_run(&prefill);
		cr_assert(request->open && request->n_cached == request->n_prompt);
		paged_cache_give(pages, request->sequence, (uint32_t)request->n_cached, &ticket);
		cr_assert_eq(paged_cache_adopt(pages, &ticket, &n_written), request->sequence);
		cr_assert_eq(n_written, request->n_prompt);
		request->max_tokens = 20 + i;
		request->keep = false;
		engine_add(&decode, request);
		engine_step(&decode);
	}
	cr_assert(!engine_is_idle(&decode));
	engine_run(&decode);
	cr_assert_eq(decode.stats.n_prompt_tokens, 0);
	answer(plain, 1, 0, 5, reference);
	for (unsigned int i = 0; i < 5; i++)
		expect_equal(&requests[i], &reference[i], "handed over");
	free_requests(requests, 5);
	free_requests(reference, 5);
	engine_destroy(&decode);
	engine_destroy(&prefill);
	contiguous_destroy(plain);
	paged_cache_destroy(pages);
}

Test(engine, handed_over_sequences_continue)
{
	check_handover("host");
}

Test(engine, handed_over_sequences_continue_on_cuda)
{
	cr_assert(fake_cuda_load(), "%s", dlerror());
	check_handover("cuda");
}

/* Only the last token's query is computed. */
Test(engine, whole_prompt_is_found)
{
	struct attention *pages = open_prefix_cache("host", 64);
	struct engine_params params = { .max_running = 1, .end_token = UINT32_MAX };
	struct request requests[3];
	struct engine_stats stats;

	for (unsigned int i = 0; i < 3; i++) {
		fill_request(&requests[i], 6);
		requests[i].n_prompt = requests[i].tokens.n = 48;
		paged_cache_share(pages, i < 2);
		stats = engine_answer(forward, pages, &params, &requests[i], 1);
		cr_assert_eq(stats.n_found_tokens, i == 1 ? 47 : 0);
		cr_assert_eq(stats.n_prompt_tokens, i == 1 ? 1 : 48);
		cr_assert(requests[i].first_token_s > 0 && requests[i].first_token_s < stats.seconds);
		expect_equal(&requests[i], &requests[0], "whole prompt");
	}
	free_requests(requests, 3);
	paged_cache_destroy(pages);
}

/* Published pages of earlier answers give way to new ones. */
Test(engine, prefix_cache_in_a_full_pool_keeps_answers)
{
	struct attention *few = open_prefix_cache("host", 8), *many = open_pages(256);
	struct request twice[2][5], roomy[5];

	answer(many, MAX_RUNNING, 0, 5, roomy);
	for (unsigned int round = 0; round < 2; round++) {
		answer(few, MAX_RUNNING, 0, 5, twice[round]);
		for (unsigned int i = 0; i < 5; i++)
			expect_equal(&twice[round][i], &roomy[i], "full pool");
		free_requests(twice[round], 5);
	}
	free_requests(roomy, 5);
	paged_cache_destroy(many);
	paged_cache_destroy(few);
}

/* Over the fake driver; rows share steps, and wait for pages. */
Test(engine, cuda_gives_the_hosts_answers)
{
	struct attention *host = open_pages(256), *gpu;
	struct request there[4], here[4];

	cr_assert(fake_cuda_load(), "%s", dlerror());
	gpu = open_pages_on("cuda", 8);
	answer(gpu, 3, 0, 4, there);
	answer(host, 3, 0, 4, here);
	for (unsigned int i = 0; i < 4; i++)
		expect_equal(&there[i], &here[i], "GPU");
	free_requests(there, 4);
	free_requests(here, 4);
	paged_cache_destroy(gpu);
	paged_cache_destroy(host);
}

/* A kept sequence goes on where it stopped, as one that was read whole. */
Test(engine, kept_sequence_continues)
{
	struct attention *pages = open_pages(64);
	struct request kept, whole = { 0 };
	struct engine engine;

	open_engine(&engine, pages, 2);
	fill_request(&kept, 2);
	kept.keep = true;
	engine_add(&engine, &kept);
	engine_run(&engine);
	cr_assert(kept.open);
	token_list_add(&kept.tokens, (uint32_t[]){ 0, 11, 22, 33, 44 }, 5);
	kept.n_prompt = kept.tokens.n;
	whole.n_prompt = kept.n_prompt;
	whole.max_tokens = kept.max_tokens;
	token_list_add(&whole.tokens, kept.tokens.ids, kept.n_prompt);
	engine_add(&engine, &kept);
	engine_add(&engine, &whole);
	engine_run(&engine);
	expect_equal(&kept, &whole, "kept");
	engine_release(&engine, &kept);
	engine_destroy(&engine);
	free_requests(&kept, 1);
	free_requests(&whole, 1);
	paged_cache_destroy(pages);
}

struct request_feed {
	struct engine engine;
	struct request request;
	uint32_t n_tokens, n_last; /* told, and told to be the last one */
};

static void
add_request(void *argument)
{
	struct request_feed *request_feed = argument;

	engine_add(&request_feed->engine, &request_feed->request);
}

static void
count_token(void *argument, struct request *request, uint32_t token, bool last)
{
	struct request_feed *request_feed = argument;

	(void)request;
	(void)token;
	cr_assert_eq(request_feed->n_last, 0);
	request_feed->n_tokens++;
	request_feed->n_last += last;
}

Test(engine, answers_end_at_max_length)
{
	struct attention *pages = open_pages(4); /* 64 tokens */
	struct request_feed request_feed = { .n_tokens = 0 };
	struct request *request = &request_feed.request;

	open_engine(&request_feed.engine, pages, 1);
	request_feed.engine.params.token = count_token;
	request_feed.engine.params.argument = &request_feed;
	fill_request(request, 6); /* 69 tokens */
	cr_assert(call_dies(add_request, &request_feed));
	cr_assert(strstr(die_text, "prompt of 69 tokens: a sequence has at most 64"), "%s", die_text);
	free_requests(request, 1);
	fill_request(request, 4); /* 47 tokens */
	request->max_tokens = 1000;
	engine_add(&request_feed.engine, request);
	engine_run(&request_feed.engine);
	cr_assert_eq(request->tokens.n, 64);
	cr_assert_eq(request_feed.n_tokens, 64 - 47);
	cr_assert_eq(request_feed.n_last, 1);
	free_requests(request, 1);
	engine_destroy(&request_feed.engine);
	paged_cache_destroy(pages);
}

/* Logits of a row: the same bits alone and among others. */
Test(engine, logits_do_not_depend_on_the_batch)
{
	struct attention *pages = open_pages(64);
	uint32_t tokens[STEP_TOKENS], positions[STEP_TOKENS], logit_tokens[4], n_found;
	struct attention_row rows[4];
	float alone[4][N_VOCABULARY];
	const float *logits;
	bool waits[4];

	for (int together = 0; together < 2; together++) {
		uint32_t n = 0;

		for (uint32_t r = 0; r < 4; r++) {
			n = together ? n : 0;
			rows[r] = (struct attention_row){ .q_len = 2 + r, .kv_len = 2 + r };
			cr_assert(pages->ops->open(pages, NULL, 0, &rows[r].sequence, &n_found));
			for (uint32_t i = 0; i < 2 + r; i++, n++) {
				tokens[n] = 5 * r + i;
				positions[n] = i;
			}
			logit_tokens[together ? r : 0] = n - 1;
			if (together)
				continue;
			cr_assert(pages->ops->plan(pages, &rows[r], 1, waits));
			logits = forward_run(forward, pages,
					     &(struct forward_step){ n, tokens, positions, 1, logit_tokens });
			memcpy(alone[r], logits, sizeof(alone[r]));
		}
		if (!together)
			continue;
		cr_assert(pages->ops->plan(pages, rows, 4, waits));
		logits = forward_run(forward, pages, &(struct forward_step){ n, tokens, positions, 4, logit_tokens });
		cr_assert_eq(memcmp(logits, alone, sizeof(alone)), 0);
		cr_assert(isfinite(logits[0]));
	}
	paged_cache_destroy(pages);
}

/* 40 tokens, of which the second sequence computes the last 8: enough query rows for the prefill algorithm. */
Test(engine, logits_do_not_depend_on_the_prefix_cache)
{
	struct attention *pages = open_prefix_cache("host", 64);
	uint32_t tokens[40], positions[40], n_found, logit_token;
	float computed[N_VOCABULARY];
	const float *logits = NULL;
	struct attention_row row;
	uint64_t sequence;
	bool waits;

	for (uint32_t i = 0; i < 40; i++)
		tokens[i] = positions[i] = i;
	for (uint32_t round = 0; round < 2; round++) {
		cr_assert(pages->ops->open(pages, tokens, 40, &sequence, &n_found));
		cr_assert_eq(n_found, round * 32);
		for (uint32_t start = n_found, n; start < 40; start += n) {
			n = 40 - start < STEP_TOKENS ? 40 - start : STEP_TOKENS;
			row = (struct attention_row){ .sequence = sequence, .q_len = n, .kv_len = start + n };
			cr_assert(pages->ops->plan(pages, &row, 1, &waits));
			logit_token = n - 1;
			logits = forward_run(
				forward, pages,
				&(struct forward_step){ n, tokens + start, positions + start, 1, &logit_token });
			pages->ops->publish(pages, &(struct attention_tokens){ sequence, tokens, start + n }, 1);
		}
		if (round == 0)
			memcpy(computed, logits, sizeof(computed));
	}
	cr_assert_eq(memcmp(logits, computed, sizeof(computed)), 0);
	paged_cache_destroy(pages);
}

/* A sequence's only token is its own result: V, rounded to what a pool would keep. */
static void
check_rounding(enum paged_dtype dtype, const float (*pairs)[2], uint32_t n)
{
	struct attention *plain = contiguous_create(model, dtype, NULL);
	float q[N_HEADS * HEAD_DIM] = { 0 }, kv[N_KV_HEADS * HEAD_DIM] = { 0 }, out[N_HEADS * HEAD_DIM];
	struct attention_row row = { .q_len = 1, .kv_len = 1 };
	uint32_t n_found;
	bool waits;

	for (uint32_t i = 0; i < n; i++)
		kv[i] = pairs[i][0];
	cr_assert(plain->ops->open(plain, NULL, 0, &row.sequence, &n_found) &&
		  plain->ops->plan(plain, &row, 1, &waits));
	plain->ops->run(plain, 0, q, q, kv, out);
	for (uint32_t i = 0; i < n; i++)
		cr_assert_eq(out[i], pairs[i][1], "%a is %a, %a expected", (double)pairs[i][0], (double)out[i],
			     (double)pairs[i][1]);
	plain->ops->close(plain, row.sequence);
	contiguous_destroy(plain);
}

Test(engine, private_cache_rounds_like_a_pool)
{
	static const float halves[][2] = {
		{ 1 + 0x1p-11f, 1 },   { 1 + 0x1.8p-10f, 1 + 0x1p-9f }, { -65519, -65504 },
		{ 65520, INFINITY },   { -65520, -INFINITY },           { 0x1.8p-25f, 0x1p-24f },
		{ 0x1p-25f, 0 },       { 0x1.ff8p-15f, 0x1.ff8p-15f },  { 0x1.ffep-15f, 0x1p-14f },
		{ INFINITY, INFINITY }
	};
	static const float bfloats[][2] = {
		{ 1 + 0x1p-8f, 1 },        { 1 + 0x1.8p-7f, 1 + 0x1p-6f }, { 65520, 65536 },
		{ 0x1.ffp127f, INFINITY }, { -0x1.01p-126f, -0x1p-126f },  { 0x1.8p-133f, 0x1p-132f }
	};

	check_rounding(PAGED_F16, halves, sizeof(halves) / sizeof(halves[0]));
	check_rounding(PAGED_BF16, bfloats, sizeof(bfloats) / sizeof(bfloats[0]));
	check_rounding(PAGED_F32, (const float[][2]){ { 1 + 0x1p-23f, 1 + 0x1p-23f } }, 1);
}

static void
create_model(void *file)
{
	model_create(file, false);
}

static void
refuse(const char *architecture, uint32_t n_kv_heads, const char *rename, const char *to, const char *sentence)
{
	struct gguf *file = write_model(architecture, n_kv_heads, rename, to);

	cr_assert(call_dies(create_model, file), "accepted, though: %s", sentence);
	cr_assert(strstr(die_text, sentence), "\"%s\" does not say \"%s\"", die_text, sentence);
	gguf_close(file);
}

Test(model, invalid_models_are_refused)
{
	refuse("qwen2", N_KV_HEADS, NULL, NULL, "architecture \"qwen2\" is not supported; llama is");
	refuse("llama", 3, NULL, NULL, "4 query heads do not share 3 KV heads evenly");
	refuse("llama", 1, NULL, NULL, "tensor blk.0.attn_k.weight is 40 x 20 in 2 dimensions, 40 x 10 is expected");
	refuse("llama", 0, NULL, NULL, "head_count_kv = 0, 1 to ");
	refuse("llama", N_KV_HEADS, "blk.1.ffn_up.weight", "blk.1.ffn_up.bias",
	       "tensor blk.1.ffn_up.weight is missing");
}
