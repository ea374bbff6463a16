/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/reference.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/cpu/convert.h"

void
reference_store(void *array, enum paged_dtype dtype, size_t i, float value)
{
	uint16_t *half = array;
	uint8_t *byte = array;

	if (dtype == PAGED_F32)
		((float *)array)[i] = value;
	else if (dtype == PAGED_F16)
		half[i] = convert_to_f16(value);
	else if (dtype == PAGED_BF16)
		half[i] = convert_to_bf16(value);
	else if (dtype == PAGED_E4M3)
		byte[i] = convert_to_e4m3(value);
	else if (dtype == PAGED_E5M2)
		byte[i] = convert_to_e5m2(value);
	else
		byte[i] = (uint8_t)convert_to_i8(value);
}

float
reference_load(const void *array, enum paged_dtype dtype, size_t i)
{
	const uint16_t *half = array;
	const uint8_t *byte = array;

	if (dtype == PAGED_F32)
		return ((const float *)array)[i];
	if (dtype == PAGED_F16)
		return convert_from_f16(half[i]);
	if (dtype == PAGED_BF16)
		return convert_from_bf16(half[i]);
	if (dtype == PAGED_E4M3)
		return convert_from_e4m3(byte[i]);
	return dtype == PAGED_E5M2 ? convert_from_e5m2(byte[i]) : (float)(int8_t)byte[i];
}

double
reference_unit(enum paged_dtype dtype)
{
	switch (dtype) {
	case PAGED_F32:
		return 0x1p-24;
	case PAGED_F16:
		return 0x1p-11;
	case PAGED_BF16:
		return 0x1p-8;
	case PAGED_E4M3:
		return 0x1p-4;
	case PAGED_E5M2:
		return 0x1p-3;
	default:
		abort();
	}
}

static double
dot(const struct reference_q_row *q_row, uint32_t key, double *magnitude)
{
	double sum = 0;

	for (uint32_t d = 0; d < q_row->k_dim; d++) {
		double product = (double)q_row->q[d] * q_row->k[key * q_row->k_stride + d] * q_row->scale;

		sum += product;
		*magnitude += fabs(product);
	}
	return sum;
}

/* log(exp(a) + exp(b)) */
static double
logaddexp(double a, double b)
{
	double max = fmax(a, b);

	if (isnan(a))
		return a;
	return max == -INFINITY ? max : max + log(exp(a - max) + exp(b - max));
}

static bool
key_visible(const struct reference_q_row *q_row, uint32_t key)
{
	struct mod_point point = q_row->at;

	point.kv_idx = (int32_t)key;
	return key >= q_row->first_key && (q_row->visible == NULL || q_row->visible[key] != 0) &&
	       (q_row->mask == NULL || mod_scalar(q_row->mask, &point, NULL) != 0);
}

/* Returns the score mod's result; raises *error_p to the largest error of a score so far. */
static double
score_modify(const struct reference_q_row *q_row, uint32_t key, double score, double before, double *error_p)
{
	struct mod_point point = q_row->at;
	double modified, error = 0;

	if (q_row->score == NULL) {
		*error_p = fmax(*error_p, before);
		return score;
	}
	point.kv_idx = (int32_t)key;
	point.score = score;
	modified = mod_scalar(q_row->score, &point, NULL);
	for (int side = -1; side <= 1; side += 2) {
		point.score = score + side * before;
		error = fmax(error, fabs(mod_scalar(q_row->score, &point, NULL) - modified));
	}
	if (isfinite(modified))
		*error_p = fmax(*error_p, 2 * error + 0x1p-24 * 64 * (1 + fabs(score) + fabs(modified)));
	return modified;
}

/* Compute the scores of all keys, -inf where masked; returns their largest error. */
static double
scores_compute(const struct reference_q_row *q_row, double *score)
{
	double max = 0, before, after = 0;

	for (uint32_t i = 0; i < q_row->n_keys; i++) {
		double magnitude = 0;

		score[i] = key_visible(q_row, i) ? dot(q_row, i, &magnitude) : -INFINITY;
		max = fmax(max, magnitude);
	}
	before = 0x1p-24 * (32 + 4 * sqrt(q_row->k_dim) * max);
	for (uint32_t i = 0; i < q_row->n_keys; i++)
		if (key_visible(q_row, i))
			score[i] = score_modify(q_row, i, score[i], before, &after);
	return after;
}

void
reference_attend(const struct reference_q_row *q_row, struct reference_result *result)
{
	double *score = calloc(q_row->n_keys + 1, sizeof(*score));
	double sum = 0, max_v = 0;

	if (score == NULL)
		abort();
	result->score_tolerance = scores_compute(q_row, score);
	result->max_score = -INFINITY;
	for (uint32_t i = 0; i < q_row->n_keys; i++)
		result->max_score = fmax(result->max_score, score[i]);
	for (uint32_t i = 0; i < q_row->n_keys; i++)
		if (isnan(score[i]) || score[i] == INFINITY)
			result->max_score = NAN;
	for (uint32_t d = 0; d < q_row->v_dim; d++)
		result->out[d] = 0;
	for (uint32_t i = 0; i < q_row->n_keys; i++) {
		double weight = score[i] == -INFINITY ? 0 : exp(score[i] - result->max_score);

		sum += weight;
		for (uint32_t d = 0; d < q_row->v_dim && weight != 0; d++) {
			result->out[d] += weight * q_row->v[i * q_row->v_stride + d];
			max_v = fmax(max_v, fabs((double)q_row->v[i * q_row->v_stride + d]));
		}
	}
	result->lse_without_sink = sum == 0 ? -INFINITY : result->max_score + log(sum);
	result->lse = result->lse_without_sink;
	if (q_row->sink != NULL)
		result->lse = logaddexp(result->lse, *q_row->sink);
	for (uint32_t d = 0; d < q_row->v_dim && sum != 0; d++)
		result->out[d] *= exp(result->lse_without_sink - result->lse) / sum;
	result->out_tolerance = 2 * max_v * result->score_tolerance;
	free(score);
}
