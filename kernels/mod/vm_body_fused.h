/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vm_body_fused.h - fused operations: sums with a product or a ramp, and functions of scaled values
 *
 * A part of vm_body.h.
 */
INLINE void
sum_rows(const struct vm_call *call, bool ramp, uint32_t n)
{
	const ivec step = splat((int32_t)LANES * call->slopes[0]), sign = splat(call->negative ? SIGN : 0);
	const fvec scale = fsplat(call->scale);
	ivec steps = { 0 };

	for (uint32_t i = 0; i < LANES; i++)
		steps[i] = (int32_t)i * call->slopes[0];
	for (uint32_t row = 0; row < call->n_rows; row++) {
		const int32_t *a = call->in[0].at + row * call->in[0].step;
		const int32_t *b = call->in[2].at + row * call->in[2].step;
		fvec factor = (fvec)(splat(call->in[1].at[row * call->in[1].step]) ^ sign);
		ivec whole = add(splat(*b), steps);
		int32_t *to = call->to + row * MOD_TILE_KEYS;

#pragma GCC unroll 4
		for (uint32_t i = 0; i < n; i += LANES) {
			fvec by = ramp ? (fvec)to_float(whole) : (fvec)load(b + i);

			store(to + i, (ivec)((fvec)load(a + i) * scale + factor * by));
			whole = add(whole, step);
		}
	}
}

static void
sum_of_product(const struct vm_call *call)
{
	sum_rows(call, false, call->n);
}

static void
sum_of_ramp(const struct vm_call *call)
{
	if (call->n == MOD_TILE_KEYS)
		sum_rows(call, true, MOD_TILE_KEYS);
	else
		sum_rows(call, true, call->n);
}

INLINE void
function_rows(const struct vm_call *call, one_fn f, bool divides)
{
	const fvec scale = fsplat(call->scale);

	for (uint32_t row = 0; row < call->n_rows; row++) {
		const int32_t *a = call->in[0].at + row * call->in[0].step;
		fvec by = (fvec)splat(call->in[1].at[row * call->in[1].step]);
		fvec factor = (fvec)splat(call->in[2].at[row * call->in[2].step]);
		int32_t *to = call->to + row * MOD_TILE_KEYS;

		for (uint32_t i = 0; i < call->n; i += LANES) {
			fvec x = (fvec)load(a + i) * scale;

			store(to + i, (ivec)((fvec)f((ivec)(divides ? x / by : x * by)) * factor));
		}
	}
}

#define VM_FUNCTIONS(X)                      \
	X(of_scaled, EXP, float_exp)         \
	X(of_scaled, EXP2, float_exp2)       \
	X(of_scaled, TANH, float_tanh)       \
	X(of_scaled, SIGMOID, float_sigmoid) \
	X(of_divided, EXP, float_exp)        \
	X(of_divided, EXP2, float_exp2)      \
	X(of_divided, TANH, float_tanh)      \
	X(of_divided, SIGMOID, float_sigmoid)

#define DIVIDES_of_scaled false
#define DIVIDES_of_divided true
#define RUN_FUNCTION(table, op, name)                        \
	static void table##_##op(const struct vm_call *call) \
	{                                                    \
		function_rows(call, name, DIVIDES_##table);  \
	}

VM_FUNCTIONS(RUN_FUNCTION)
