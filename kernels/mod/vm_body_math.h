/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vm_body_math.h - exp, log, tanh, ... of vectors; a part of vm_body.h
 *
 * mod.h states the accuracy; unit_mod_eval measures it.
 */

/* 1.5 * 2^23: adding it leaves a float's integer part in its low bits. */
#define ROUNDER fvec_splat(12582912.0f)

/* y * 2^n, in two steps, because 2^n itself may not be a normal float. */
INLINE fvec
scale_by_exp2(fvec y, fvec n)
{
	ivec whole = ivec_sub((ivec)(n + ROUNDER), (ivec)ROUNDER);
	ivec part = whole >> 1;

	return y * (fvec)((uvec)ivec_add(part, ivec_splat(127)) << 23) *
	       (fvec)((uvec)ivec_add(ivec_sub(whole, part), ivec_splat(127)) << 23);
}

/* e^r for |r| <= ln 2 / 2 */
INLINE fvec
exp_reduced(fvec r)
{
	fvec y = fvec_splat(1.9875691500e-4f);

	y = y * r + fvec_splat(1.3981999507e-3f);
	y = y * r + fvec_splat(8.3334519073e-3f);
	y = y * r + fvec_splat(4.1665795894e-2f);
	y = y * r + fvec_splat(1.6666665459e-1f);
	y = y * r + fvec_splat(5.0000001201e-1f);
	return y * (r * r) + r + fvec_splat(1);
}

/* Clamps to [low, high]; NaN stays NaN. */
INLINE fvec
fvec_clamp(fvec x, float low, float high)
{
	x = fvec_select(x < fvec_splat(low), fvec_splat(low), x);
	return fvec_select(x > fvec_splat(high), fvec_splat(high), x);
}

INLINE ivec
float_exp(ivec a)
{
	fvec x = fvec_clamp((fvec)a, -105, 90), n, r;

	n = (x * fvec_splat(1.44269504f) + ROUNDER) - ROUNDER;
	r = x - n * fvec_splat(0.693359375f);
	r = r + n * fvec_splat(2.12194440e-4f);
	return (ivec)scale_by_exp2(exp_reduced(r), n);
}

INLINE ivec
float_exp2(ivec a)
{
	fvec x = fvec_clamp((fvec)a, -151, 129), n = (x + ROUNDER) - ROUNDER;

	return (ivec)scale_by_exp2(exp_reduced((x - n) * fvec_splat(0.69314718f)), n);
}

INLINE ivec
float_log(ivec a)
{
	ivec tiny = (fvec)a < fvec_splat(0x1p-126f), small, exponent;
	fvec x = fvec_select(tiny, (fvec)a * fvec_splat(0x1p25f), (fvec)a), e, y, z, result;

	/* x = m 2^e, m in [sqrt(1/2), sqrt(2)) */
	exponent = ivec_sub(((ivec)x >> 23) & 255, ivec_splat(126));
	x = (fvec)(((ivec)x & 0x7fffff) | 0x3f000000);
	small = x < fvec_splat(0.707106781f);
	e = __builtin_convertvector(ivec_add(ivec_add(exponent, small), tiny & -25), fvec);
	x = x + fvec_select(small, x, fvec_splat(0)) - fvec_splat(1);
	z = x * x;
	y = fvec_splat(7.0376836292e-2f);
	y = y * x - fvec_splat(1.1514610310e-1f);
	y = y * x + fvec_splat(1.1676998740e-1f);
	y = y * x - fvec_splat(1.2420140846e-1f);
	y = y * x + fvec_splat(1.4249322787e-1f);
	y = y * x - fvec_splat(1.6668057665e-1f);
	y = y * x + fvec_splat(2.0000714765e-1f);
	y = y * x - fvec_splat(2.4999993993e-1f);
	y = y * x + fvec_splat(3.3333331174e-1f);
	y = y * x * z - e * fvec_splat(2.12194440e-4f) - z * fvec_splat(0.5f);
	result = x + y + e * fvec_splat(0.693359375f);
	result = fvec_select((fvec)a == fvec_splat(0), fvec_splat(-INFINITY), result);
	result = fvec_select((fvec)a == fvec_splat(INFINITY), fvec_splat(INFINITY), result);
	return ivec_select((fvec)a >= fvec_splat(0), (ivec)result, (ivec)fvec_splat(NAN));
}

/*
 * e^2x - 1 = 2^n (e^2r - 1) + 2^n - 1 with |r| <= ln 2 / 4; tanh is that divided by itself plus 2; n
 * is at most 26.
 */
INLINE ivec
float_tanh(ivec a)
{
	fvec x = (fvec)float_abs(a), shifted = x * fvec_splat(2.88539008f) + ROUNDER, r, y, power, e;

	r = x - (shifted - ROUNDER) * fvec_splat(0.34657359f);
	y = fvec_splat(8.884811e-2f);
	y = y * r + fvec_splat(2.6772952e-1f);
	y = y * r + fvec_splat(6.666752e-1f);
	y = y * r + fvec_splat(1.3333235f);
	y = y * r + fvec_splat(1.9999999f);
	y = y * r + fvec_splat(2);
	power = (fvec)(((uvec)shifted << 23) + (uvec)fvec_splat(1));
	e = (power - fvec_splat(1)) + power * (y * r);
	y = fvec_select(x > fvec_splat(9.1f), fvec_splat(1), e / (e + fvec_splat(2)));
	return (ivec)y | (a & SIGN);
}

INLINE ivec
float_sigmoid(ivec a)
{
	fvec e = (fvec)float_exp(a | SIGN);

	return (ivec)(fvec_select((fvec)a < fvec_splat(0), e, fvec_splat(1)) / (fvec_splat(1) + e));
}

/* Sine and cosine in float64, for |r| <= pi / 4. */
INLINE dvec
sin_reduced(dvec r)
{
	dvec z = r * r, s = z * r;

	return (r + s * (-0x15555554cbac77.0p-55 + z * 0x111110896efbb2.0p-59)) +
	       s * (z * z) * (-0x1a00f9e2cae774.0p-65 + z * 0x16cd878c3b46a7.0p-71);
}

INLINE dvec
cos_reduced(dvec r)
{
	dvec z = r * r, w = z * z;

	return ((1.0 + z * -0x1ffffffd0c5e81.0p-54) + w * 0x155553e1053a42.0p-57) +
	       (w * z) * (-0x16c087e80f1e27.0p-62 + z * 0x199342e0ee5069.0p-68);
}

enum trig { TRIG_SIN, TRIG_COS, TRIG_TAN };

/* Half a vector: subtracts n quarter turns from x, with pi / 2 split in two parts. */
INLINE dvec
trig_half(dvec x, dvec n, dvec odd, dvec negative, enum trig trig)
{
	dvec r = x - n * 0x1.921fb544p+0 - n * 0x1.0b4611a626331p-34;
	dvec s = sin_reduced(r), c = cos_reduced(r), even = 1.0 - odd;

	/* Products with 0 and 1, and sums with 0, are exact. */
	if (trig == TRIG_TAN)
		return (even * s - odd * c) / (even * c + odd * s);
	return (trig == TRIG_SIN ? even * s + odd * c : even * c + odd * s) * negative;
}

INLINE ivec
trig_by_libm(ivec a, enum trig trig)
{
	fvec x = (fvec)a;

	for (unsigned int i = 0; i < LANES; i++) {
		double d = (double)x[i];

		x[i] = (float)(trig == TRIG_SIN ? sin(d) : trig == TRIG_COS ? cos(d) : tan(d));
	}
	return (ivec)x;
}

typedef float fhalf __attribute__((vector_size(4 * LANES / 2)));

INLINE dvec
fvec_widen_half(fvec v, unsigned int part)
{
	fhalf narrow;

	memcpy(&narrow, (const char *)&v + part * sizeof(narrow), sizeof(narrow));
	return __builtin_convertvector(narrow, dvec);
}

/* Up to 2^19 quarter turns are reduced here; beyond that, and for infinity, libm computes the lanes. */
INLINE ivec
float_trig(ivec a, enum trig trig)
{
	fvec x = (fvec)a, n, sign, odd;
	fhalf result[2];
	ivec quarter, out;

	if (ivec_any(~((fvec)float_abs(a) < fvec_splat(0x1p19f))))
		return trig_by_libm(a, trig);
	n = (x * fvec_splat(0.636619772f) + ROUNDER) - ROUNDER;
	quarter = __builtin_convertvector(n, ivec);
	odd = __builtin_convertvector(quarter & 1, fvec);
	if (trig == TRIG_COS)
		quarter = ivec_add(quarter, ivec_splat(1));
	sign = fvec_select((quarter & 2) != 0, fvec_splat(-1), fvec_splat(1));
	/* Odd turns exchange sine and cosine; the cosine's sign is that of the next turn. */
	for (unsigned int i = 0; i < 2; i++)
		result[i] = __builtin_convertvector(trig_half(fvec_widen_half(x, i), fvec_widen_half(n, i),
							      fvec_widen_half(odd, i), fvec_widen_half(sign, i), trig),
						    fhalf);
	memcpy(&out, result, sizeof(out));
	return out;
}

DEFINE_UNARY(float_sin, float_trig(a, TRIG_SIN))
DEFINE_UNARY(float_cos, float_trig(a, TRIG_COS))
DEFINE_UNARY(float_tan, float_trig(a, TRIG_TAN))
