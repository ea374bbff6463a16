/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vm_body_math.h - exp, log, tanh, ... of vectors; a part of vm_body.h
 *
 * mod.h states the accuracy; unit_mod_eval measures it.
 */

/* 1.5 * 2^23: adding it leaves a float's integer part in its low bits. */
#define ROUNDER fsplat(12582912.0f)

/* y * 2^n, in two steps, because 2^n itself may not be a normal float. */
INLINE fvec
scale(fvec y, fvec n)
{
	ivec whole = subtract((ivec)(n + ROUNDER), (ivec)ROUNDER);
	ivec part = whole >> 1;

	return y * (fvec)((uvec)add(part, splat(127)) << 23) *
	       (fvec)((uvec)add(subtract(whole, part), splat(127)) << 23);
}

/* e^r for |r| <= ln 2 / 2 */
INLINE fvec
exp_reduced(fvec r)
{
	fvec y = fsplat(1.9875691500e-4f);

	y = y * r + fsplat(1.3981999507e-3f);
	y = y * r + fsplat(8.3334519073e-3f);
	y = y * r + fsplat(4.1665795894e-2f);
	y = y * r + fsplat(1.6666665459e-1f);
	y = y * r + fsplat(5.0000001201e-1f);
	return y * (r * r) + r + fsplat(1);
}

/* Clamps to [low, high]; NaN stays NaN. */
INLINE fvec
within(fvec x, float low, float high)
{
	x = fchoose(x < fsplat(low), fsplat(low), x);
	return fchoose(x > fsplat(high), fsplat(high), x);
}

INLINE ivec
float_exp(ivec a)
{
	fvec x = within((fvec)a, -105, 90), n, r;

	n = (x * fsplat(1.44269504f) + ROUNDER) - ROUNDER;
	r = x - n * fsplat(0.693359375f);
	r = r + n * fsplat(2.12194440e-4f);
	return (ivec)scale(exp_reduced(r), n);
}

INLINE ivec
float_exp2(ivec a)
{
	fvec x = within((fvec)a, -151, 129), n = (x + ROUNDER) - ROUNDER;

	return (ivec)scale(exp_reduced((x - n) * fsplat(0.69314718f)), n);
}

INLINE ivec
float_log(ivec a)
{
	ivec tiny = (fvec)a < fsplat(0x1p-126f), small, exponent;
	fvec x = fchoose(tiny, (fvec)a * fsplat(0x1p25f), (fvec)a), e, y, z, result;

	/* x = m 2^e, m in [sqrt(1/2), sqrt(2)) */
	exponent = subtract(((ivec)x >> 23) & 255, splat(126));
	x = (fvec)(((ivec)x & 0x7fffff) | 0x3f000000);
	small = x < fsplat(0.707106781f);
	e = __builtin_convertvector(add(add(exponent, small), tiny & -25), fvec);
	x = x + fchoose(small, x, fsplat(0)) - fsplat(1);
	z = x * x;
	y = fsplat(7.0376836292e-2f);
	y = y * x - fsplat(1.1514610310e-1f);
	y = y * x + fsplat(1.1676998740e-1f);
	y = y * x - fsplat(1.2420140846e-1f);
	y = y * x + fsplat(1.4249322787e-1f);
	y = y * x - fsplat(1.6668057665e-1f);
	y = y * x + fsplat(2.0000714765e-1f);
	y = y * x - fsplat(2.4999993993e-1f);
	y = y * x + fsplat(3.3333331174e-1f);
	y = y * x * z - e * fsplat(2.12194440e-4f) - z * fsplat(0.5f);
	result = x + y + e * fsplat(0.693359375f);
	result = fchoose((fvec)a == fsplat(0), fsplat(-INFINITY), result);
	result = fchoose((fvec)a == fsplat(INFINITY), fsplat(INFINITY), result);
	return choose((fvec)a >= fsplat(0), (ivec)result, (ivec)fsplat(NAN));
}

/*
 * e^2x - 1 = 2^n (e^2r - 1) + 2^n - 1 with |r| <= ln 2 / 4; tanh is that divided by itself plus 2; n
 * is at most 26.
 */
INLINE ivec
float_tanh(ivec a)
{
	fvec x = (fvec)float_abs(a), shifted = x * fsplat(2.88539008f) + ROUNDER, r, y, power, e;

	r = x - (shifted - ROUNDER) * fsplat(0.34657359f);
	y = fsplat(8.884811e-2f);
	y = y * r + fsplat(2.6772952e-1f);
	y = y * r + fsplat(6.666752e-1f);
	y = y * r + fsplat(1.3333235f);
	y = y * r + fsplat(1.9999999f);
	y = y * r + fsplat(2);
	power = (fvec)(((uvec)shifted << 23) + (uvec)fsplat(1));
	e = (power - fsplat(1)) + power * (y * r);
	y = fchoose(x > fsplat(9.1f), fsplat(1), e / (e + fsplat(2)));
	return (ivec)y | (a & SIGN);
}

INLINE ivec
float_sigmoid(ivec a)
{
	fvec e = (fvec)float_exp(a | SIGN);

	return (ivec)(fchoose((fvec)a < fsplat(0), e, fsplat(1)) / (fsplat(1) + e));
}

/* Sine and cosine in float64, for |r| <= pi / 4. */
INLINE dvec
sine(dvec r)
{
	dvec z = r * r, s = z * r;

	return (r + s * (-0x15555554cbac77.0p-55 + z * 0x111110896efbb2.0p-59)) +
	       s * (z * z) * (-0x1a00f9e2cae774.0p-65 + z * 0x16cd878c3b46a7.0p-71);
}

INLINE dvec
cosine(dvec r)
{
	dvec z = r * r, w = z * z;

	return ((1.0 + z * -0x1ffffffd0c5e81.0p-54) + w * 0x155553e1053a42.0p-57) +
	       (w * z) * (-0x16c087e80f1e27.0p-62 + z * 0x199342e0ee5069.0p-68);
}

enum wave { SINE, COSINE, TANGENT };

/* Half a vector: subtracts n quarter turns from x, with pi / 2 split in two parts. */
INLINE dvec
wave_half(dvec x, dvec n, dvec odd, dvec negative, enum wave wave)
{
	dvec r = x - n * 0x1.921fb544p+0 - n * 0x1.0b4611a626331p-34;
	dvec s = sine(r), c = cosine(r), even = 1.0 - odd;

	/* Products with 0 and 1, and sums with 0, are exact. */
	if (wave == TANGENT)
		return (even * s - odd * c) / (even * c + odd * s);
	return (wave == SINE ? even * s + odd * c : even * c + odd * s) * negative;
}

INLINE ivec
wave_far(ivec a, enum wave wave)
{
	fvec x = (fvec)a;

	for (unsigned int i = 0; i < LANES; i++) {
		double d = (double)x[i];

		x[i] = (float)(wave == SINE ? sin(d) : wave == COSINE ? cos(d) : tan(d));
	}
	return (ivec)x;
}

typedef float fhalf __attribute__((vector_size(4 * LANES / 2)));

INLINE dvec
widen(fvec v, unsigned int part)
{
	fhalf narrow;

	memcpy(&narrow, (const char *)&v + part * sizeof(narrow), sizeof(narrow));
	return __builtin_convertvector(narrow, dvec);
}

/* Up to 2^19 quarter turns are reduced here; beyond that, and for infinity, libm computes the lanes. */
INLINE ivec
float_wave(ivec a, enum wave wave)
{
	fvec x = (fvec)a, n, sign, odd;
	fhalf result[2];
	ivec turn, out;

	if (any(~((fvec)float_abs(a) < fsplat(0x1p19f))))
		return wave_far(a, wave);
	n = (x * fsplat(0.636619772f) + ROUNDER) - ROUNDER;
	turn = __builtin_convertvector(n, ivec);
	odd = __builtin_convertvector(turn & 1, fvec);
	if (wave == COSINE)
		turn = add(turn, splat(1));
	sign = fchoose((turn & 2) != 0, fsplat(-1), fsplat(1));
	/* Odd turns exchange sine and cosine; the cosine's sign is that of the next turn. */
	for (unsigned int i = 0; i < 2; i++)
		result[i] = __builtin_convertvector(
			wave_half(widen(x, i), widen(n, i), widen(odd, i), widen(sign, i), wave), fhalf);
	memcpy(&out, result, sizeof(out));
	return out;
}

VALUE_OF_ONE(float_sin, float_wave(a, SINE))
VALUE_OF_ONE(float_cos, float_wave(a, COSINE))
VALUE_OF_ONE(float_tan, float_wave(a, TANGENT))
