/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of cases: sizes, pools and batches. */
#include "bench/kv/kv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/base.h"
#include "bench/gpu/gpu.h"
#include "bench/kv/kv_mods.h"
#include "bench/machine.h"
#include "bench/pinned_threads.h"
#include "bench/processes.h"
#include "bench/random.h"
#include "bench/report.h"
#include "bench/rounds.h"
#include "bench/suite.h"

#define QUICK_TOKENS 72u
#define QUICK_LAYERS 2u
/* Share of the free memory: of a group on the host, of one pool on a GPU, where a group may have two pools. */
#define HOST_MEMORY_SHARE 0.6
#define GPU_MEMORY_SHARE 0.45
#define MAX_DIVISOR 64

/* Groups */

static bool
kv_case_has_relation(const struct kv_case *kv_case, enum bench_reference reference, const char *to)
{
	for (size_t i = 0; i < BENCH_MAX_RELATIONS && kv_case->relations[i].other != NULL; i++)
		if (kv_case->relations[i].reference == reference &&
		    (to == NULL || strcmp(kv_case->relations[i].other, to) == 0))
			return true;
	return false;
}

/* Whether case i has a ratio of the selected kind, or is the reference of one in its group. */
static bool
kv_case_is_selected(const struct kv_case *cases, size_t n, size_t i, enum bench_reference reference)
{
	bool wanted = kv_case_has_relation(&cases[i], reference, NULL);

	for (size_t j = 0; j < n && !wanted; j++)
		wanted = kv_case_has_relation(&cases[j], reference, cases[i].name);
	return wanted;
}

static const char *
kv_group_name(const struct kv_case *kv_case)
{
	return kv_case->group != NULL ? kv_case->group : kv_case->name;
}

static uint32_t
kv_clamp(uint32_t n, uint32_t least, uint32_t most)
{
	return n < least ? least : n > most ? most : n;
}

/* Fill in the case's defaults; with --quick, use tiny sizes. */
static void
kv_fixture_init(struct kv_group *group, const struct kv_case *definition)
{
	struct bench_case *bench_case = &group->cases[group->n];
	struct kv_fixture *fixture = &group->fixtures[group->n++];
	struct kv_case *kv_case = &fixture->kv_case;
	uint32_t quick_divisor = group->on_gpu ? 256 : 64;

	if (group->n > BENCH_MAX_CASES)
		bench_die("%s: more than %d cases", definition->name, BENCH_MAX_CASES);
	*fixture = (struct kv_fixture){
		.kv_case = *definition, .bench_case = bench_case, .group = group, .shape = { 32, 8, 128, 128 }
	};
	*bench_case = (struct bench_case){ .name = kv_case->name,
					   .unit = kv_case->per_block ? "ns" : "us",
					   .limit = kv_case->limit,
					   .target = kv_case->target };
	memcpy(bench_case->relations, kv_case->relations, sizeof(kv_case->relations));
	kv_case->page_size = kv_case->page_size != 0 ? kv_case->page_size : 16;
	kv_case->dtype = kv_case->dtype != PAGED_DTYPE_NONE ? kv_case->dtype : PAGED_BF16;
	kv_case->tensor_dtype = kv_case->tensor_dtype != PAGED_DTYPE_NONE ? kv_case->tensor_dtype : PAGED_BF16;
	if (kv_case->mla)
		fixture->shape = (struct kv_shape){ kv_case->q_heads != 0 ? kv_case->q_heads : 128, 1, 576, 512 };
	else if (kv_case->q_heads != 0)
		fixture->shape = (struct kv_shape){ kv_case->q_heads, kv_case->kv_heads, 128, 128 };
	if (!group->report->options->quick)
		return;
	if (kv_case->mla)
		fixture->shape.q_heads = 16;
	else
		fixture->shape = (struct kv_shape){ 2 * (fixture->shape.q_heads / fixture->shape.kv_heads), 2, 64, 64 };
	kv_case->kv_first = kv_case->kv_first / quick_divisor / kv_case->page_size * kv_case->page_size;
	for (struct kv_rows *rows = kv_case->rows; rows < kv_case->rows + KV_ROW_KINDS && rows->n > 0; rows++) {
		rows->n = kv_clamp(rows->n, 1, 3);
		rows->kv_len = kv_clamp(rows->kv_len / quick_divisor, 4, QUICK_TOKENS);
		if (rows->q_len > 1)
			rows->q_len = kv_clamp(rows->q_len / quick_divisor, 2, rows->kv_len);
	}
}

static bool
kv_group_is_selected(const struct bench_options *options, const struct kv_case *first)
{
	if (options->group != NULL)
		return strcmp(kv_group_name(first), options->group) == 0;
	if (options->only != NULL)
		return strstr(kv_group_name(first), options->only) != NULL;
	return !first->long_only || options->with_long;
}

size_t
kv_groups_run(struct bench_report *report, bool on_gpu, void (*measure)(struct kv_group *group))
{
	const struct bench_options *options = report->options;
	static struct kv_group group;
	size_t n_groups = 0, n_cases = report->suite->n_kv_cases;

	for (size_t first = 0, n; first < n_cases; first += n) {
		const struct kv_case *cases = &report->suite->kv_cases[first];

		for (n = 1; first + n < n_cases && strcmp(kv_group_name(&cases[n]), kv_group_name(cases)) == 0; n++)
			;
		if (!kv_group_is_selected(options, cases))
			continue;
		group.report = report;
		group.on_gpu = on_gpu;
		group.n = group.n_pools = 0;
		for (size_t i = 0; i < n; i++)
			if (on_gpu || kv_case_is_selected(cases, n, i, options->reference))
				kv_fixture_init(&group, &cases[i]);
		if (group.n == 0)
			continue;
		bench_progress(report, kv_group_name(cases), first, n_cases);
		measure(&group);
		if (options->lines)
			bench_print_lines(report);
		n_groups++;
	}
	bench_progress(report, NULL, 0, 0);
	if (n_groups == 0 && options->group != NULL)
		bench_die("suite %s has no group %s", report->suite->name, options->group);
	return n_groups;
}

void
kv_list(const struct bench_suite *suite)
{
	for (size_t i = 0; i < suite->n_kv_cases; i++) {
		const struct kv_case *kv_case = &suite->kv_cases[i];

		if (kv_case->relations[0].other == NULL)
			continue;
		printf("    %-36s", kv_case->name);
		for (size_t r = 0; r < BENCH_MAX_RELATIONS && kv_case->relations[r].other != NULL; r++)
			printf(" %s%s%s", bench_reference_name(kv_case->relations[r].reference),
			       kv_case->relations[r].target != NULL ? " " : "",
			       kv_case->relations[r].target != NULL ? kv_case->relations[r].target : "");
		puts(kv_case->long_only ? " (--long)" : "");
	}
}

/* Sizes */

/* Bytes of one token's K and V in one layer. */
static double
kv_token_bytes(const struct kv_fixture *fixture)
{
	const struct kv_shape *shape = &fixture->shape;

	return (double)shape->kv_heads * (shape->k_dim + (fixture->kv_case.mla ? 0 : shape->v_dim)) *
	       paged_dtype_size(fixture->kv_case.dtype);
}

/* Bytes of the largest fixture's K and V. */
static double
kv_group_bytes(const struct kv_group *group)
{
	double most = 0;

	for (size_t i = 0; i < group->n; i++) {
		double tokens = 0;

		for (size_t kind = 0; kind < KV_ROW_KINDS; kind++)
			tokens += (double)group->fixtures[i].kv_case.rows[kind].n *
				  group->fixtures[i].kv_case.rows[kind].kv_len;
		most = fmax(most, tokens * kv_token_bytes(&group->fixtures[i]));
	}
	return most;
}

/* Shorten rows if the host's memory is short.  Assumes conservatively that each pool is as large as the largest. */
static void
kv_group_scale(struct kv_group *group)
{
	double free_bytes = HOST_MEMORY_SHARE * machine_memory_bytes();
	char *machine = group->report->machine;
	size_t at = strlen(machine);
	unsigned int divisor = 1;

	for (; divisor < MAX_DIVISOR && free_bytes > 0 && kv_group_bytes(group) * KV_MAX_POOLS > free_bytes;
	     divisor *= 2)
		for (size_t i = 0; i < group->n * KV_ROW_KINDS; i++) {
			struct kv_rows *rows = &group->fixtures[i / KV_ROW_KINDS].kv_case.rows[i % KV_ROW_KINDS];

			rows->kv_len = kv_clamp(rows->kv_len / 2, rows->q_len, rows->kv_len);
		}
	if (divisor > 1)
		snprintf(machine + at, sizeof(group->report->machine) - at, "; %s: lengths divided by %u",
			 kv_group_name(&group->fixtures[0].kv_case), divisor);
}

/* Pools */

static bool
kv_fixtures_share_pool(const struct kv_fixture *a, const struct kv_fixture *b)
{
	return a->kv_case.page_size == b->kv_case.page_size && a->kv_case.dtype == b->kv_case.dtype &&
	       a->kv_case.mla == b->kv_case.mla && a->shape.kv_heads == b->shape.kv_heads;
}

static struct kv_pool *
kv_pool_find(struct kv_group *group, const struct kv_fixture *fixture)
{
	for (size_t i = 0; i < group->n_pools; i++)
		if (kv_fixtures_share_pool(group->pools[i].first_fixture, fixture))
			return &group->pools[i];
	if (group->n_pools == KV_MAX_POOLS)
		bench_die("%s: more than %d pools", fixture->kv_case.name, KV_MAX_POOLS);
	group->pools[group->n_pools] = (struct kv_pool){ .first_fixture = fixture };
	return &group->pools[group->n_pools++];
}

/* Make the pool large enough for this fixture too; on a GPU with free pages as destinations of copies. */
static void
kv_pool_grow(struct kv_pool *pool, struct kv_fixture *fixture)
{
	enum kv_work work = fixture->kv_case.work;
	bool copies = work == KV_COPY || work == KV_COPY_PAGES || work == KV_COPY_ALL;
	uint32_t page_size = fixture->kv_case.page_size, n_pages;

	for (size_t kind = 0; kind < KV_ROW_KINDS; kind++) {
		struct kv_rows rows = fixture->kv_case.rows[kind];

		fixture->n_rows += rows.n;
		fixture->n_pages += rows.n * ((rows.kv_len + page_size - 1) / page_size);
		rows.kv_len += fixture->kv_case.kv_first;
		pool->max_length = rows.kv_len > pool->max_length ? rows.kv_len : pool->max_length;
	}
	n_pages = fixture->group->on_gpu && copies ? 2 * fixture->n_pages : fixture->n_pages;
	pool->n_pages = n_pages > pool->n_pages ? n_pages : pool->n_pages;
}

static uint32_t
kv_layers_that_fit(const struct kv_group *group, const struct kv_pool *pool)
{
	double layer = kv_token_bytes(pool->first_fixture) * pool->first_fixture->kv_case.page_size * pool->n_pages;
	uint32_t n = group->report->options->quick ? QUICK_LAYERS : KV_GPU_LAYERS;
	size_t available, total;
	double share;

	bench_gpu_must(bench_gpu.cuda.driver.memory_info(&available, &total));
	share = GPU_MEMORY_SHARE * (double)available;
	if (layer > share)
		bench_die("%s: %.1f GB a layer, and %.1f GB of the GPU's memory for it",
			  pool->first_fixture->kv_case.name, layer / 1e9, share / 1e9);
	while (layer * n > share)
		n--;
	return n;
}

static struct paged_pool_params
kv_pool_params(const struct kv_group *group, struct kv_pool *pool)
{
	const struct kv_shape *shape = &pool->first_fixture->shape;
	struct paged_pool_params params = { .struct_size = sizeof(params), .name = pool->name };

	params.n_layers = pool->n_layers = group->on_gpu ? kv_layers_that_fit(group, pool) : 1;
	params.n_kv_heads = shape->kv_heads;
	params.k_dim = shape->k_dim;
	params.v_dim = shape->v_dim;
	params.v_in_k = pool->first_fixture->kv_case.mla;
	params.dtype = pool->first_fixture->kv_case.dtype;
	params.page_size = pool->first_fixture->kv_case.page_size;
	params.n_pages = pool->n_pages;
	params.n_slots = 16;
	params.max_length = pool->max_length;
	if (group->on_gpu)
		params.backend = "cuda";
	return params;
}

/* Start a pagedd that owns and exports the pool, and attach to it. */
static enum paged_status
kv_daemon_open(struct kv_group *group, const struct paged_pool_params *params, const char *export)
{
	char text[512];

	snprintf(text, sizeof(text),
		 "pool %s {\n"
		 " layers = %u kv-heads = %u head-dim = %u dtype = %s page-size = %u pages = %u\n"
		 " sequences = 16 max-length = %u backend = cuda export = %s\n"
		 "}\n",
		 params->name, params->n_layers, params->n_kv_heads, params->k_dim, paged_dtype_name(params->dtype),
		 params->page_size, params->n_pages, params->max_length, export);
	return paged_client_open(bench_daemon_start(text), NULL, &group->client);
}

static void
kv_pools_open(struct kv_group *group)
{
	struct paged_client_params host = { .struct_size = sizeof(host),
					    .n_threads = pinned_threads_count(),
					    .cpus = pinned_threads_cpus(),
					    .n_cpus = pinned_threads_count() };
	struct paged_pool_params params[KV_MAX_POOLS];
	const char *export = group->fixtures[0].kv_case.export;
	enum paged_status status;

	for (size_t i = 0; i < group->n_pools; i++) {
		snprintf(group->pools[i].name, sizeof(group->pools[i].name), "pool%zu", i);
		params[i] = kv_pool_params(group, &group->pools[i]);
	}
	status = export != NULL ? kv_daemon_open(group, params, export)
				: paged_client_open_embedded(params, group->n_pools, group->on_gpu ? NULL : &host,
							     &group->client);
	bench_client_must(group->client, status);
	for (struct kv_pool *pool = group->pools; pool < group->pools + group->n_pools; pool++) {
		struct paged_pool_info *info = &pool->info;

		info->struct_size = sizeof(*info);
		bench_client_must(group->client, paged_pool_open(group->client, pool->name, &pool->pool));
		bench_client_must(group->client, paged_pool_get_info(pool->pool, info));
		if (group->on_gpu)
			bench_gpu_fill((uintptr_t)info->base, info->size, pool->first_fixture->kv_case.dtype);
		else
			bench_fill(info->base, info->size, pool->first_fixture->kv_case.dtype);
		pool->permuted = bench_permutation(pool->n_pages);
	}
}

/* Batches */

bool
kv_has_batch(const struct kv_fixture *fixture)
{
	enum kv_work work = fixture->kv_case.work;

	return work == KV_ATTENTION || work == KV_PEER || work == KV_APPEND || work == KV_GATHER || work == KV_PLAN;
}

/* Puts entries before a row's own, which name no pages. */
static void
kv_row_trim(struct kv_fixture *fixture, uint32_t r)
{
	struct paged_batch_row *row = &fixture->rows[r];
	uint32_t n_before = fixture->kv_case.kv_first / fixture->kv_case.page_size;
	uint32_t *table = fixture->trimmed + (row->pages - fixture->pages) + (size_t)r * n_before;

	for (uint32_t i = 0; i < n_before; i++)
		table[i] = UINT32_MAX;
	for (uint32_t i = 0; i < row->n_pages; i++)
		table[n_before + i] = row->pages[i];
	row->pages = table;
	row->n_pages += n_before;
	row->kv_first = fixture->kv_case.kv_first;
	row->kv_len += row->kv_first;
}

static void
kv_rows_open(struct kv_fixture *fixture)
{
	uint32_t page_size = fixture->kv_case.page_size, row = 0, page = 0, kv_first = fixture->kv_case.kv_first;
	const struct kv_pool *pool = fixture->pool;

	fixture->rows = bench_alloc(fixture->n_rows, sizeof(*fixture->rows));
	fixture->pages = bench_alloc(pool->n_pages, sizeof(*fixture->pages));
	fixture->trimmed =
		bench_alloc(fixture->n_pages + fixture->n_rows * (kv_first / page_size) + 1, sizeof(*fixture->trimmed));
	for (uint32_t i = 0; i < pool->n_pages; i++)
		fixture->pages[i] = fixture->kv_case.contiguous || pool->permuted == NULL ? i : pool->permuted[i];
	for (size_t kind = 0; kind < KV_ROW_KINDS; kind++) {
		struct kv_rows rows = fixture->kv_case.rows[kind];

		for (uint32_t i = 0; i < rows.n; i++, row++) {
			uint32_t n_pages = (rows.kv_len + page_size - 1) / page_size;

			fixture->rows[row] = (struct paged_batch_row){ .pages = fixture->pages + page,
								       .n_pages = n_pages,
								       .q_len = rows.q_len,
								       .kv_len = rows.kv_len };
			if (kv_first != 0)
				kv_row_trim(fixture, row);
			if (fixture->group->on_gpu && fixture->kv_case.work != KV_APPEND)
				fixture->rows[row].flags = PAGED_ROW_NO_APPEND;
			page += n_pages;
			fixture->total_q += rows.q_len;
		}
	}
}

/* Set the bytes and operations of one run of the work. */
static void
kv_count_work(struct kv_fixture *fixture)
{
	const struct kv_shape *shape = &fixture->shape;
	double token = kv_token_bytes(fixture), bytes = 0, flops = 0, appended = 0;
	enum kv_work work = fixture->kv_case.work, copied = work == KV_COPY ? fixture->kv_case.copied : work;
	bool decode = fixture->total_q == fixture->n_rows;

	for (uint32_t row = 0; row < fixture->n_rows; row++) {
		double q_len = fixture->rows[row].q_len,
		       kv_len = fixture->rows[row].kv_len - fixture->rows[row].kv_first;

		bytes += kv_len * token;
		appended += 2 * q_len * token;
		flops += q_len * (kv_len - (q_len - 1) / 2) * 2 * (shape->k_dim + shape->v_dim) * shape->q_heads;
	}
	if (fixture->kv_case.per_block || work == KV_EMPTY || work == KV_PLAN)
		return;
	if (work == KV_COPY_PAGES || work == KV_COPY_ALL || copied == KV_COPY_PAGES)
		fixture->bench_case->bytes =
			fixture->group->on_gpu ? 2 * bytes * fixture->pool->n_layers : appended / 2;
	else if (copied == KV_APPEND || copied == KV_GATHER || work == KV_PEER_APPEND)
		fixture->bench_case->bytes = appended;
	else if (decode || work == KV_COPY_HALF)
		fixture->bench_case->bytes = bytes;
	if (copied == KV_ATTENTION || work == KV_PEAK || work == KV_ROOFLINE || work == KV_PEER)
		fixture->bench_case->flops = flops;
	/* Print only the rate that limits: bytes for decode, operations for prefill and MLA. */
	if (fixture->group->on_gpu && work == KV_ATTENTION)
		*(decode && !fixture->kv_case.mla ? &fixture->bench_case->flops : &fixture->bench_case->bytes) = 0;
}

static struct paged_tensor
kv_tensor_open(const struct kv_fixture *fixture, enum paged_dtype dtype, uint32_t n_heads, uint32_t dim)
{
	size_t n = (size_t)fixture->total_q * n_heads * dim, size = n * paged_dtype_size(dtype);
	struct paged_tensor tensor = { .dtype = dtype, .n_heads = n_heads, .dim = dim };

	if (fixture->group->on_gpu) {
		cuda_address address = bench_gpu_alloc(size);

		bench_gpu_fill(address, size, dtype);
		tensor.data = (void *)(uintptr_t)address;
	} else {
		tensor.data = bench_alloc(n, paged_dtype_size(dtype));
		bench_fill(tensor.data, size, dtype);
	}
	return tensor;
}

static void
kv_rotary_open(struct kv_fixture *fixture)
{
	uint32_t n_positions = fixture->pool->max_length, dim = fixture->shape.k_dim;
	float *cos_sin = bench_alloc((size_t)n_positions * dim, sizeof(*cos_sin));

	for (uint32_t position = 0; position < n_positions; position++)
		for (uint32_t i = 0; i < dim / 2; i++) {
			float angle = (float)position * powf(10000.0f, -2.0f * (float)i / (float)dim);

			cos_sin[(size_t)position * dim + i] = cosf(angle);
			cos_sin[(size_t)position * dim + dim / 2 + i] = sinf(angle);
		}
	fixture->rotary = (struct paged_rotary){
		.struct_size = sizeof(fixture->rotary), .cos_sin = cos_sin, .n_positions = n_positions, .dim = dim
	};
	fixture->append.rotary = &fixture->rotary;
}

static void
kv_batch_open(struct kv_fixture *fixture)
{
	struct paged_client *client = fixture->group->client;
	const struct kv_shape *shape = &fixture->shape;
	struct paged_batch_params params = { .struct_size = sizeof(params), .max_rows = fixture->n_rows };

	if (fixture->group->on_gpu) {
		params.max_q_tokens = fixture->total_q;
		params.max_q_heads = shape->q_heads;
	}
	bench_client_must(client, paged_batch_create(fixture->pool->pool, &params, &fixture->batch));
	bench_client_must(client, fixture->group->on_gpu
					  ? paged_batch_stream(fixture->batch, bench_gpu.stream)
					  : paged_batch_plan(fixture->batch, fixture->n_rows, fixture->rows));
	fixture->attention.struct_size = sizeof(fixture->attention);
	fixture->append.struct_size = sizeof(fixture->append);
	if (fixture->kv_case.work == KV_ATTENTION || fixture->kv_case.work == KV_PEER) {
		fixture->q = kv_tensor_open(fixture, PAGED_BF16, shape->q_heads, shape->k_dim);
		fixture->out = kv_tensor_open(fixture, PAGED_BF16, shape->q_heads, shape->v_dim);
	} else if (fixture->kv_case.work != KV_PLAN) {
		fixture->k = kv_tensor_open(fixture, fixture->kv_case.tensor_dtype, shape->kv_heads, shape->k_dim);
		fixture->v = kv_tensor_open(fixture, fixture->kv_case.tensor_dtype, shape->kv_heads, shape->v_dim);
	}
	if (fixture->kv_case.rotary)
		kv_rotary_open(fixture);
	if (fixture->kv_case.mask != NULL || fixture->kv_case.score != NULL || fixture->kv_case.per_block)
		kv_mods_open(fixture);
}

void
kv_group_open(struct kv_group *group)
{
	static struct kv_pool none;

	if (!group->on_gpu)
		kv_group_scale(group);
	for (size_t i = 0; i < group->n; i++) {
		struct kv_fixture *fixture = &group->fixtures[i];
		struct kv_pool *pool = fixture->kv_case.work != KV_PEAK ? kv_pool_find(group, fixture) : &none;

		fixture->pool = pool;
		kv_pool_grow(pool, fixture);
	}
	if (group->n_pools > 0)
		kv_pools_open(group);
	for (size_t i = 0; i < group->n; i++) {
		kv_rows_open(&group->fixtures[i]);
		kv_count_work(&group->fixtures[i]);
		if (kv_has_batch(&group->fixtures[i]))
			kv_batch_open(&group->fixtures[i]);
	}
}

void
kv_group_close(struct kv_group *group)
{
	for (size_t i = 0; i < group->n; i++) {
		struct kv_fixture *fixture = &group->fixtures[i];
		void *const memory[] = { fixture->q.data, fixture->out.data,  fixture->k.data,
					 fixture->v.data, fixture->documents, (void *)fixture->rotary.cos_sin,
					 fixture->rows,   fixture->pages,     fixture->trimmed };

		paged_mod_set_destroy(fixture->attention.mod_set);
		paged_mod_destroy(fixture->mask);
		paged_mod_destroy(fixture->score);
		paged_batch_destroy(fixture->batch);
		for (size_t j = 0; j < BENCH_N(memory); j++)
			free(memory[j]);
	}
	paged_client_close(group->client);
	group->client = NULL;
	for (size_t i = 0; i < group->n_pools; i++)
		free(group->pools[i].permuted);
}
