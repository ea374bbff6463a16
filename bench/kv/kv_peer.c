/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file that a peer reads and writes has these tensors of bf16 one after another,
 * the tokens of all rows in the order of the batch:
 *
 *   q   [total_q][q_heads][dim]
 *   k   [total_kv][kv_heads][dim]
 *   v   as k
 *   out as q, written by the peer
 */
#include "bench/kv/kv_peer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench/base.h"
#include "bench/kv/kv_host.h"
#include "bench/kv/peer.h"
#include "bench/random.h"
#include "bench/suite.h"

/* Query rows to compute in float64: as many as this number of tokens allows, within bounds. */
#define ERROR_TOKENS 400000u
#define ERROR_MIN_ROWS 16u
#define ERROR_MAX_ROWS 512u
/* An error above it means that a result is wrong; rounding a result to bf16 alone is about 0.17 %. */
#define ERROR_TOLERANCE 0.02

struct kv_peer_tensors {
	char path[64]; /* "" without tensors */
	int file;
	size_t size;
	uint16_t *q, *k, *v, *out;
	size_t q_token, kv_token; /* elements of a token */
};

static void
kv_peer_tensors_open(const struct kv_fixture *fixture, struct kv_peer_tensors *tensors)
{
	size_t total_kv = 0, n_q, n_kv;

	*tensors = (struct kv_peer_tensors){ .q_token = (size_t)fixture->shape.q_heads * fixture->shape.k_dim,
					     .kv_token = (size_t)fixture->shape.kv_heads * fixture->shape.k_dim };
	for (uint32_t r = 0; r < fixture->n_rows; r++)
		total_kv += fixture->rows[r].kv_len;
	n_q = fixture->total_q * tensors->q_token;
	n_kv = total_kv * tensors->kv_token;
	tensors->size = 2 * (n_q + n_kv) * sizeof(uint16_t);
	tensors->file = memfd_create("paged-bench", MFD_CLOEXEC);
	if (tensors->file < 0 || ftruncate(tensors->file, (off_t)tensors->size) != 0)
		bench_die("%s: %zu bytes for a peer: %m", fixture->kv_case.name, tensors->size);
	tensors->q = mmap(NULL, tensors->size, PROT_READ | PROT_WRITE, MAP_SHARED, tensors->file, 0);
	if (tensors->q == MAP_FAILED)
		bench_die("%s: mmap of %zu bytes: %m", fixture->kv_case.name, tensors->size);
	tensors->k = tensors->q + n_q;
	tensors->v = tensors->k + n_kv;
	tensors->out = tensors->v + n_kv;
	snprintf(tensors->path, sizeof(tensors->path), "/proc/%d/fd/%d", (int)getpid(), tensors->file);
}

static void
kv_peer_tensors_close(struct kv_peer_tensors *tensors)
{
	munmap(tensors->q, tensors->size);
	close(tensors->file);
}

/* Copy the batch's queries, K and V out of our tensor and pages. */
static void
kv_peer_tensors_fill(const struct kv_fixture *fixture, struct kv_peer_tensors *tensors)
{
	uint32_t kv_heads = fixture->shape.kv_heads, dim = fixture->shape.k_dim;
	uint16_t *k = tensors->k, *v = tensors->v;

	memcpy(tensors->q, fixture->q.data, fixture->total_q * tensors->q_token * sizeof(uint16_t));
	for (uint32_t r = 0; r < fixture->n_rows; r++)
		for (uint32_t token = 0; token < fixture->rows[r].kv_len; token++)
			for (uint32_t head = 0; head < kv_heads; head++, k += dim, v += dim) {
				memcpy(k, kv_host_head_at(fixture, r, head, token), dim * sizeof(*k));
				memcpy(v, kv_host_head_at(fixture, r, kv_heads + head, token), dim * sizeof(*v));
			}
}

/* Errors */

static double
kv_peer_number(uint16_t bf16)
{
	uint32_t bits = (uint32_t)bf16 << 16;
	float number;

	memcpy(&number, &bits, sizeof(number));
	return number;
}

/* Attention of one query to n tokens in float64; `weights` has room for n. */
static void
kv_peer_exact_attend(const uint16_t *q, const uint16_t *k, const uint16_t *v, size_t stride, uint32_t n, uint32_t dim,
		     double *weights, double *result)
{
	double row_max = -INFINITY, row_sum = 0;

	for (uint32_t token = 0; token < n; token++) {
		double score = 0;

		for (uint32_t d = 0; d < dim; d++)
			score += kv_peer_number(q[d]) * kv_peer_number(k[token * stride + d]);
		weights[token] = score / sqrt(dim);
		row_max = fmax(row_max, weights[token]);
	}
	memset(result, 0, dim * sizeof(*result));
	for (uint32_t token = 0; token < n; token++) {
		double weight = exp(weights[token] - row_max);

		row_sum += weight;
		for (uint32_t d = 0; d < dim; d++)
			result[d] += weight * kv_peer_number(v[token * stride + d]);
	}
	for (uint32_t d = 0; d < dim; d++)
		result[d] /= row_sum;
}

/* |result - exact| / |exact| */
static double
kv_peer_error(const uint16_t *result, const double *exact, uint32_t dim)
{
	double difference = 0, norm = 0;

	for (uint32_t d = 0; d < dim; d++) {
		difference += (kv_peer_number(result[d]) - exact[d]) * (kv_peer_number(result[d]) - exact[d]);
		norm += exact[d] * exact[d];
	}
	return sqrt(difference / norm);
}

/* Means over random query rows; each row counts alike, whatever its magnitude. */
static void
kv_peer_errors(const struct kv_fixture *fixture, const struct kv_peer_tensors *tensors, double *peer_p, double *own_p)
{
	uint32_t dim = fixture->shape.k_dim, q_heads = fixture->shape.q_heads, n = 0;
	double *weights = bench_alloc(fixture->pool->max_length, sizeof(*weights));
	double *exact = bench_alloc(dim, sizeof(*exact));
	uint64_t state = 1;

	*peer_p = *own_p = 0;
	for (uint32_t tokens = 0; n < ERROR_MIN_ROWS || (n < ERROR_MAX_ROWS && tokens < ERROR_TOKENS); n++) {
		uint32_t chosen = bench_random(&state, fixture->n_rows), head = bench_random(&state, q_heads), i, seen;
		const struct paged_batch_row *row = &fixture->rows[chosen];
		size_t kv_at = head / (q_heads / fixture->shape.kv_heads) * dim, q_at = head * dim;

		i = bench_random(&state, row->q_len);
		seen = row->kv_len - row->q_len + i + 1;
		for (uint32_t r = 0; r < chosen; r++) {
			q_at += fixture->rows[r].q_len * tensors->q_token;
			kv_at += fixture->rows[r].kv_len * tensors->kv_token;
		}
		q_at += i * tensors->q_token;
		kv_peer_exact_attend(tensors->q + q_at, tensors->k + kv_at, tensors->v + kv_at, tensors->kv_token, seen,
				     dim, weights, exact);
		*peer_p += kv_peer_error(tensors->out + q_at, exact, dim);
		*own_p += kv_peer_error((const uint16_t *)fixture->out.data + q_at, exact, dim);
		tokens += seen;
	}
	*peer_p /= n;
	*own_p /= n;
	free(weights);
	free(exact);
}

static void
kv_peer_check(struct kv_fixture *fixture, const struct kv_peer_tensors *tensors)
{
	struct peer_case *peer = &fixture->peer;
	size_t at = strlen(peer->method);
	double error, own_error;

	bench_client_must(fixture->group->client,
			  paged_attention(fixture->batch, 0, &fixture->q, &fixture->out, &fixture->attention));
	peer_write_result(peer, tensors->path);
	kv_peer_errors(fixture, tensors, &error, &own_error);
	if (!(error < ERROR_TOLERANCE) || !(own_error < ERROR_TOLERANCE))
		bench_die("%s: the error of %s is %.4f and ours %.4f, more than %.2f", fixture->kv_case.name,
			  peer->method, error, own_error, ERROR_TOLERANCE);
	snprintf(peer->method + at, sizeof(peer->method) - at, ", error %.3f %%, ours %.3f %%", 100 * error,
		 100 * own_error);
}

void
kv_peer_open(struct kv_fixture *fixture)
{
	bool attention = fixture->kv_case.work == KV_PEER, opened;
	struct kv_peer_tensors tensors = { 0 };
	struct peer_batch batch = { .work = attention ? "attention" : "append",
				    .rows = fixture->kv_case.rows,
				    .q_heads = fixture->shape.q_heads,
				    .kv_heads = fixture->shape.kv_heads,
				    .dim = fixture->shape.k_dim,
				    .data = tensors.path,
				    .quick = fixture->group->report->options->quick };

	if (attention) {
		kv_peer_tensors_open(fixture, &tensors);
		kv_peer_tensors_fill(fixture, &tensors);
	}
	opened = peer_open(&fixture->peer, &batch);
	if (opened && attention)
		kv_peer_check(fixture, &tensors);
	*(opened ? &fixture->bench_case->method : &fixture->bench_case->skipped) = strdup(fixture->peer.method);
	if (attention)
		kv_peer_tensors_close(&tensors);
}

void
kv_peer_close(struct kv_fixture *fixture)
{
	if (fixture->bench_case->skipped == NULL)
		peer_close(&fixture->peer);
}
