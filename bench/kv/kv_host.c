/* SPDX-License-Identifier: Apache-2.0 */
/* Cases on the host: their work, and its limits. */
#include "bench/kv/kv_host.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/base.h"
#include "bench/kv/kv.h"
#include "bench/kv/kv_peer.h"
#include "bench/kv/peer.h"
#include "bench/memory_limits.h"
#include "bench/peak.h"
#include "bench/pinned_threads.h"
#include "bench/random.h"
#include "bench/report.h"
#include "bench/rounds.h"
#include "bench/suite.h"

/* Smaller cases run once before each sample, so that their data is in a cache; so do their limits. */
#define CACHED_BYTES 64e6
#define SAMPLE_US 2000.0
#define MAX_REPEATS 2000
#define WARM_UPS 3
/* Seconds of rounds per group. */
#define GROUP_LIMIT_S 8.0

/* Limits */

/* Prepare to read the batch's pages of one layer; each page is contiguous. */
static void
kv_host_read_open(struct kv_fixture *fixture)
{
	const struct paged_pool_info *info = &fixture->pool->info;
	const uint8_t **spans = bench_alloc(fixture->n_pages, sizeof(*spans));

	for (uint32_t i = 0; i < fixture->n_pages; i++)
		spans[i] = (const uint8_t *)info->base + info->k.offset + fixture->pages[i] * info->k.page_stride;
	limit_read_open(&fixture->read, spans, fixture->n_pages, info->k.page_stride);
	free(spans);
	if (!fixture->group->report->options->quick)
		limit_read_tune(&fixture->read);
}

uint8_t *
kv_host_head_at(const struct kv_fixture *fixture, uint32_t r, uint32_t head, uint32_t token)
{
	const struct paged_pool_info *info = &fixture->pool->info;
	const struct paged_plane_info *plane = head < fixture->shape.kv_heads ? &info->k : &info->v;

	return (uint8_t *)info->base + plane->offset +
	       fixture->rows[r].pages[token / info->page_size] * plane->page_stride +
	       head % fixture->shape.kv_heads * plane->head_stride + token % info->page_size * plane->token_stride;
}

/* One chunk for each page and head: the part that this step's tokens occupy.  `other` is in contiguous memory. */
static size_t
kv_host_row_chunks(const struct kv_fixture *fixture, uint32_t r, uint8_t **other, struct limit_copy_chunk *chunks)
{
	const struct paged_batch_row *row = &fixture->rows[r];
	uint32_t page_size = fixture->pool->info.page_size;
	size_t n = 0;

	for (uint32_t token = row->kv_len - row->q_len, end; token < row->kv_len; token = end) {
		end = (token / page_size + 1) * page_size;
		end = end < row->kv_len ? end : row->kv_len;
		for (uint32_t i = 0; i < 2 * fixture->shape.kv_heads; i++, n++) {
			size_t bytes = (end - token) * fixture->pool->info.k.token_stride;
			uint8_t *page = kv_host_head_at(fixture, r, i, token);

			if (fixture->kv_case.copied == KV_COPY_PAGES)
				chunks[n] = (struct limit_copy_chunk){ kv_host_head_at(fixture, r + 1, i, token), page,
								       bytes };
			else if (fixture->kv_case.copied == KV_GATHER)
				chunks[n] = (struct limit_copy_chunk){ *other, page, bytes };
			else
				chunks[n] = (struct limit_copy_chunk){ page, *other, bytes };
			*other += bytes;
		}
	}
	return n;
}

static void
kv_host_copy_open(struct kv_fixture *fixture)
{
	const struct kv_shape *shape = &fixture->shape;
	size_t token = (size_t)shape->kv_heads * (shape->k_dim + shape->v_dim) * paged_dtype_size(PAGED_BF16), n = 0;
	struct limit_copy_chunk *chunks = bench_alloc((size_t)fixture->n_pages * shape->kv_heads * 2, sizeof(*chunks));
	uint8_t *other;

	fixture->k.data = other = bench_alloc(fixture->total_q, token);
	bench_fill(other, fixture->total_q * token, PAGED_BF16);
	for (uint32_t r = 0; r < (fixture->kv_case.copied == KV_COPY_PAGES ? 1 : fixture->n_rows); r++)
		n += kv_host_row_chunks(fixture, r, &other, chunks + n);
	fixture->copy = (struct limit_copy){ .chunks = chunks, .n_chunks = n };
	limit_copy_tune(&fixture->copy);
}

/* Call the page copy kernel directly, because public calls that copy pages also do the daemon's work. */
static void
kv_host_pages_open(struct kv_fixture *fixture)
{
	const struct paged_pool_info *info = &fixture->pool->info;
	const struct layout_params layout = { .n_layers = info->n_layers,
					      .n_kv_heads = info->n_kv_heads,
					      .k_dim = info->k.dim,
					      .v_dim = info->v.dim,
					      .v_in_k = info->v_in_k,
					      .dtype = info->k.dtype,
					      .page_size = info->page_size,
					      .n_pages = info->n_pages };
	const struct kernel_team_params team = { .n_threads = pinned_threads_count(),
						 .isa = kernel_isa_parse(info->isa),
						 .cpus = pinned_threads_cpus() };
	struct paged_error error;

	bench_must(layout_init(&fixture->layout, &layout, &error), &error);
	bench_must(kernel_team_create(&team, &fixture->team, &error), &error);
}

/* Work */

static double
kv_host_peak_us(const struct kv_fixture *fixture)
{
	return fixture->bench_case->flops / peak_gflops(fixture->unit) / 1e3;
}

static double
kv_host_work_us(const struct kv_fixture *fixture)
{
	struct paged_client *client = fixture->group->client;
	struct paged_batch *batch = fixture->batch;
	uint8_t *base = fixture->pool->info.base;
	uint64_t start = bench_timer_ns();

	switch (fixture->kv_case.work) {
	case KV_ATTENTION:
		bench_client_must(client, paged_attention(batch, 0, &fixture->q, &fixture->out, &fixture->attention));
		break;
	case KV_APPEND:
		bench_client_must(client, paged_append(batch, 0, &fixture->k, &fixture->v, &fixture->append));
		break;
	case KV_GATHER:
		bench_client_must(client, paged_gather(batch, 0, &fixture->k, &fixture->v, NULL));
		break;
	case KV_COPY_PAGES:
		kernel_copy_pages(fixture->team,
				  &(struct copy_args){ .from = { &fixture->layout, base, fixture->rows[0].pages },
						       .to = { &fixture->layout, base, fixture->rows[1].pages },
						       .n = fixture->rows[0].n_pages });
		break;
	case KV_READ:
	case KV_ROOFLINE:
		return limit_read_us(&fixture->read);
	case KV_COPY:
		return limit_copy_us(&fixture->copy);
	case KV_PEAK:
		return kv_host_peak_us(fixture);
	case KV_PEER:
	case KV_PEER_APPEND:
		return peer_sample_us(&fixture->peer);
	default:
		bench_die("%s: not on the host", fixture->kv_case.name);
	}
	return (double)(bench_timer_ns() - start) / 1e3;
}

static bool
kv_host_is_peer(const struct kv_fixture *fixture)
{
	return fixture->kv_case.work == KV_PEER || fixture->kv_case.work == KV_PEER_APPEND;
}

static double
kv_host_sample(const void *context)
{
	const struct kv_fixture *fixture = context;
	double bytes = fixture->bench_case->bytes, us = 0;

	if (bytes > 0 && bytes < CACHED_BYTES && !kv_host_is_peer(fixture))
		kv_host_work_us(fixture);
	for (size_t i = 0; i < fixture->n_repeats; i++)
		us += kv_host_work_us(fixture);
	us /= (double)fixture->n_repeats;
	/* The peak is measured after all reads, because other processes may evict the cached data meanwhile. */
	if (fixture->kv_case.work == KV_ROOFLINE)
		us = fmax(us, kv_host_peak_us(fixture));
	return fixture->kv_case.per_block ? us * 1e3 / fixture->n_blocks : us;
}

/* Warm up, check the result, and choose the repeats so that a sample takes SAMPLE_US. */
static void
kv_host_warm_up(struct kv_fixture *fixture)
{
	const uint16_t *out = fixture->out.data;
	size_t n_out = (size_t)fixture->total_q * fixture->shape.q_heads * fixture->shape.v_dim;
	double us;

	kv_host_work_us(fixture);
	/* A NaN among the bf16 results means that the measured work is wrong. */
	for (size_t i = 0; i < n_out && out != NULL; i++)
		if ((out[i] & 0x7fff) > 0x7f80)
			bench_die("%s: element %zu of the result is no number", fixture->kv_case.name, i);
	if (fixture->group->report->options->quick || fixture->kv_case.work == KV_PEAK)
		return;
	us = kv_host_work_us(fixture);
	for (int i = 1; i < WARM_UPS; i++)
		us = fmin(us, kv_host_work_us(fixture));
	while ((double)fixture->n_repeats * us < SAMPLE_US && fixture->n_repeats < MAX_REPEATS)
		fixture->n_repeats *= 2;
}

static void
kv_host_fixture_open(struct kv_fixture *fixture)
{
	enum paged_dtype dtype = fixture->kv_case.dtype;
	enum kv_work work = fixture->kv_case.work;

	fixture->n_repeats = 1;
	/* bf16 represents every value of the 8-bit dtypes exactly; f16 and f32 need f32 products. */
	fixture->unit =
		dtype == PAGED_F16 || dtype == PAGED_F32 ? kernel_isa_best_up_to(KERNEL_AVX512) : peak_best_unit();
	if (work == KV_COPY_PAGES)
		kv_host_pages_open(fixture);
	else if (work == KV_READ || work == KV_ROOFLINE)
		kv_host_read_open(fixture);
	else if (work == KV_COPY)
		kv_host_copy_open(fixture);
	if (kv_host_is_peer(fixture))
		kv_peer_open(fixture);
	else
		kv_host_warm_up(fixture);
	fixture->bench_case->sample = kv_host_sample;
	fixture->bench_case->context = fixture;
}

static void
kv_host_group_measure(struct kv_group *group)
{
	kv_group_open(group);
	for (size_t i = 0; i < group->n; i++)
		kv_host_fixture_open(&group->fixtures[i]);
	bench_rounds(group->report, group->cases, group->n, GROUP_LIMIT_S);
	for (size_t i = 0; i < group->n; i++) {
		struct kv_fixture *fixture = &group->fixtures[i];

		if (kv_host_is_peer(fixture))
			kv_peer_close(fixture);
		limit_read_close(&fixture->read);
		free((void *)fixture->copy.chunks);
		kernel_team_destroy(fixture->team);
	}
	kv_group_close(group);
}

/* Describe threads and instruction sets; the kernels use the library's choice, or that of --isa or the environment. */
static void
kv_host_describe(struct bench_report *report)
{
	struct paged_pool_params params = { .struct_size = sizeof(params),
					    .name = "isa",
					    .n_layers = 1,
					    .n_kv_heads = 1,
					    .k_dim = 64,
					    .dtype = PAGED_BF16,
					    .n_pages = 1 };
	struct paged_pool_info info = { .struct_size = sizeof(info) };
	enum bench_reference reference = report->options->reference;
	bool torch = reference == BENCH_REFERENCE_TORCH, has_peer = torch || reference == BENCH_REFERENCE_VLLM;
	struct paged_client *client;
	struct paged_pool *pool;

	if (paged_client_open_embedded(&params, 1, NULL, &client) != PAGED_OK ||
	    paged_pool_open(client, "isa", &pool) != PAGED_OK || paged_pool_get_info(pool, &info) != PAGED_OK)
		bench_die("%s", paged_client_error(client));
	if (has_peer)
		peer_start(torch ? PEER_TORCH : PEER_VLLM);
	snprintf(report->machine, sizeof(report->machine),
		 "%u pinned threads%s, kernels by %s, streams by %s, peak of %s%s%s", pinned_threads_count(),
		 bench_uses_cpu_time() ? " (CPU time)" : "", info.isa, limit_isa_name(),
		 peak_unit_name(peak_best_unit()), has_peer ? "; " : "", has_peer ? peer_version() : "");
	paged_client_close(client);
}

void
kv_host_run(struct bench_report *report)
{
	const struct bench_options *options = report->options;

	pinned_threads_start(options->n_threads);
	kv_host_describe(report);
	if (kv_groups_run(report, false, kv_host_group_measure) == 0)
		bench_die("%s: no case with \"%s\" in its name has ratios to %s", report->suite->name,
			  options->only != NULL ? options->only : "", bench_reference_name(options->reference));
	peer_stop();
	pinned_threads_unpin();
}
