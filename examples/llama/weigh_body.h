/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weigh_body.h - matmul_ops.weigh over vectors of WEIGH_LANES floats, for whoever includes it
 *
 * The compiler's own vectors, so that one text serves every instruction set.
 */
typedef float vec __attribute__((vector_size(4 * WEIGH_LANES)));
typedef uint32_t vec_bits __attribute__((vector_size(4 * WEIGH_LANES)));

/* Vectors that are summed side by side. */
#define WEIGH_VECS 4u

static inline vec
vec_at(const float *from)
{
	vec x;

	memcpy(&x, from, sizeof(x));
	return x;
}

/* Of x <= 0, to some units in the last place; 0 where that is below 2^-126. */
static inline vec
vec_exp(vec x)
{
	vec t = x * 1.44269504f + 12582912.0f, n = t - 12582912.0f, r = x - n * 0.693359375f + n * 2.12194440e-4f;
	vec p = ((((r * 1.9875691500e-4f + 1.3981999507e-3f) * r + 8.3334519073e-3f) * r + 4.1665795894e-2f) * r +
		 1.6666665459e-1f) *
			r +
		5.0000001201e-1f;
	vec_bits bits, seen = (vec_bits)(x > -87.0f);

	p = p * r * r + r + 1.0f;
	bits = ((vec_bits)t << 23) + (vec_bits)p;
	return (vec)(bits & seen);
}

static float
scores_exp(float *scores, uint32_t n)
{
	float most = scores[0], sum = 0;
	vec sums = { 0 };
	uint32_t i;

	for (i = 1; i < n; i++)
		most = scores[i] > most ? scores[i] : most;
	for (i = 0; i + WEIGH_LANES <= n; i += WEIGH_LANES) {
		vec x = vec_exp(vec_at(scores + i) - most);

		memcpy(scores + i, &x, sizeof(x));
		sums += x;
	}
	for (uint32_t l = 0; l < WEIGH_LANES; l++)
		sum += sums[l];
	for (; i < n; i++) {
		vec x = { scores[i] - most };

		scores[i] = vec_exp(x)[0];
		sum += scores[i];
	}
	return sum;
}

static void
weigh(float *scores, uint32_t n, const float *v, size_t v_stride, uint32_t dim, float *out)
{
	float factor = 1 / scores_exp(scores, n);
	uint32_t d = 0;

	for (; d + WEIGH_VECS * WEIGH_LANES <= dim; d += WEIGH_VECS * WEIGH_LANES) {
		vec sums[WEIGH_VECS] = { { 0 } };

		for (uint32_t i = 0; i < n; i++)
#pragma GCC unroll 4
			for (uint32_t s = 0; s < WEIGH_VECS; s++)
				sums[s] += scores[i] * vec_at(v + i * v_stride + d + s * WEIGH_LANES);
		for (uint32_t s = 0; s < WEIGH_VECS; s++) {
			sums[s] *= factor;
			memcpy(out + d + s * WEIGH_LANES, &sums[s], sizeof(sums[s]));
		}
	}
	for (; d < dim; d++) {
		float sum = 0;

		for (uint32_t i = 0; i < n; i++)
			sum += scores[i] * v[i * v_stride + d];
		out[d] = sum * factor;
	}
}
