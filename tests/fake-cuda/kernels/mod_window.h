/* SPDX-License-Identifier: Apache-2.0 */
/* kv_idx <= q_idx && q_idx - kv_idx < window, and cap * tanh(score / cap), as a code generator would write them. */
struct attention_mod_args {
	int32_t window;
	float cap;
};

struct attention_mod {
	static constexpr bool has_score = true, has_mask = true;

	ATTENTION_MOD_FUNCTION float
	score(float score, int32_t b, int32_t h, int32_t q_idx, int32_t kv_idx, const void *args)
	{
		float cap = static_cast<const attention_mod_args *>(args)->cap;

		(void)b, (void)h, (void)q_idx, (void)kv_idx;
		return cap * (1 - 2 / (simt_exp2(score / cap * (2 * SOFTMAX_LOG2_E)) + 1));
	}

	ATTENTION_MOD_FUNCTION bool
	mask(int32_t b, int32_t h, int32_t q_idx, int32_t kv_idx, const void *args)
	{
		(void)b, (void)h;
		return kv_idx <= q_idx && q_idx - kv_idx < static_cast<const attention_mod_args *>(args)->window;
	}
};
