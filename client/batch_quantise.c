/* SPDX-License-Identifier: Apache-2.0 */
/* Scales of a call's pool. */
#include "config.h"

#include "client/batch.h"
#include "client/compute.h"

#include <math.h>

static enum paged_status
scales_check(const struct paged_batch *batch, const char *name, const float *scales, struct paged_error *error)
{
	const struct owner_pool *at = &batch->pool->at;
	enum paged_dtype dtype = at->layout.params.dtype;

	if (scales == NULL)
		return PAGED_OK;
	if (dtype != PAGED_E4M3 && dtype != PAGED_E5M2)
		return paged_fail(error, PAGED_ERR_INVALID, "%s: pool %s keeps %s, scales are of e4m3 and e5m2", name,
				  at->name, paged_dtype_name(dtype));
	for (uint32_t head = 0; !at->compute->on_device && head < at->layout.params.n_kv_heads; head++)
		if (!(scales[head] > 0) || !isfinite(scales[head]) || !isfinite(1 / scales[head]))
			return paged_fail(error, PAGED_ERR_INVALID,
					  "%s: KV head %u has %g; a scale and its reciprocal are finite and above 0",
					  name, head, (double)scales[head]);
	return PAGED_OK;
}

enum paged_status
batch_check_scales(const struct paged_batch *batch, const float *k_scale, const float *v_scale,
		   struct paged_error *error)
{
	enum paged_status status = scales_check(batch, "k_scale", k_scale, error);

	if (status != PAGED_OK)
		return status;
	if (v_scale != NULL && batch->pool->at.layout.params.v_in_k)
		return paged_fail(error, PAGED_ERR_INVALID, "pool %s keeps V in K: v_scale must be NULL",
				  batch->pool->at.name);
	return scales_check(batch, "v_scale", v_scale, error);
}
