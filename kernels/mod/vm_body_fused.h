/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vm_body_fused.h - fused operations: sums with a product or a ramp, and functions of scaled values
 * (cap * tanh(score / cap))
 *
 * A part of vm_body.h.
 */
INLINE void
sum_of_products(const struct vm_call *call, bool ramp, uint32_t n)
{
	const ivec step = ivec_splat((int32_t)LANES * call->slopes[0]), sign = ivec_splat(call->negative ? SIGN : 0);
	const fvec scale = fvec_splat(call->scale);
	ivec steps = { 0 };

	for (uint32_t i = 0; i < LANES; i++)
		steps[i] = (int32_t)i * call->slopes[0];
	for (uint32_t tile_row = 0; tile_row < call->n_tile_rows; tile_row++) {
		const int32_t *a = call->in[0].values + tile_row * call->in[0].step;
		const int32_t *b = call->in[2].values + tile_row * call->in[2].step;
		fvec factor = (fvec)(ivec_splat(call->in[1].values[tile_row * call->in[1].step]) ^ sign);
		ivec whole = ivec_add(ivec_splat(*b), steps);
		int32_t *to = call->to + tile_row * MOD_TILE_KEYS;

#pragma GCC unroll 4
		for (uint32_t i = 0; i < n; i += LANES) {
			fvec by = ramp ? (fvec)to_float(whole) : (fvec)ivec_load(b + i);

			ivec_store(to + i, (ivec)((fvec)ivec_load(a + i) * scale + factor * by));
			whole = ivec_add(whole, step);
		}
	}
}

static void
sum_of_product(const struct vm_call *call)
{
	sum_of_products(call, false, call->n);
}

static void
sum_of_ramp(const struct vm_call *call)
{
	if (call->n == MOD_TILE_KEYS)
		sum_of_products(call, true, MOD_TILE_KEYS);
	else
		sum_of_products(call, true, call->n);
}

INLINE void
function_of_scaled(const struct vm_call *call, vm_unary_fn f, bool divides)
{
	const fvec scale = fvec_splat(call->scale);

	for (uint32_t tile_row = 0; tile_row < call->n_tile_rows; tile_row++) {
		const int32_t *a = call->in[0].values + tile_row * call->in[0].step;
		fvec by = (fvec)ivec_splat(call->in[1].values[tile_row * call->in[1].step]);
		fvec factor = (fvec)ivec_splat(call->in[2].values[tile_row * call->in[2].step]);
		int32_t *to = call->to + tile_row * MOD_TILE_KEYS;

		for (uint32_t i = 0; i < call->n; i += LANES) {
			fvec x = (fvec)ivec_load(a + i) * scale;

			ivec_store(to + i, (ivec)((fvec)f((ivec)(divides ? x / by : x * by)) * factor));
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
#define DEFINE_FUNCTION(table, op, name)                         \
	static void table##_##op(const struct vm_call *call)     \
	{                                                        \
		function_of_scaled(call, name, DIVIDES_##table); \
	}

VM_FUNCTIONS(DEFINE_FUNCTION)
