/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doc[q_idx] == doc[kv_idx] || kv_idx < b, and score + slope[h] * (kv_idx - q_idx): captured arrays with their
 * bounds.  An index out of bounds reads 0 and sets CUDA_FAULT_INDEX.
 */
struct attention_mod_args {
	uint64_t doc, slope, fault;
	int32_t n_doc, n_slope;
};

struct attention_mod {
	static constexpr bool has_score = true, has_mask = true;

	ATTENTION_MOD_FUNCTION bool
	inside(const attention_mod_args *args, int32_t i, int32_t n)
	{
		if ((uint32_t)i < (uint32_t)n)
			return true;
		if (simt_load_fresh(pointer_to<const uint32_t>(args->fault)) == 0) /* avoids contention on the word */
			simt_atomic_or(pointer_to<uint32_t>(args->fault), CUDA_FAULT_INDEX);
		return false;
	}

	ATTENTION_MOD_FUNCTION int32_t
	doc(const attention_mod_args *args, int32_t i)
	{
		return inside(args, i, args->n_doc) ? pointer_to<const int32_t>(args->doc)[i] : 0;
	}

	ATTENTION_MOD_FUNCTION float
	score(float score, int32_t b, int32_t h, int32_t q_idx, int32_t kv_idx, const void *args)
	{
		const attention_mod_args *a = static_cast<const attention_mod_args *>(args);

		(void)b;
		return score +
		       (inside(a, h, a->n_slope) ? pointer_to<const float>(a->slope)[h] : 0) * (float)(kv_idx - q_idx);
	}

	ATTENTION_MOD_FUNCTION bool
	mask(int32_t b, int32_t h, int32_t q_idx, int32_t kv_idx, const void *args)
	{
		const attention_mod_args *a = static_cast<const attention_mod_args *>(args);

		(void)h;
		return doc(a, q_idx) == doc(a, kv_idx) || kv_idx < b;
	}
};
