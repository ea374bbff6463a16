/* SPDX-License-Identifier: Apache-2.0 */
/* Block masks from mods. */
#include "config.h"

#include "client/api/mods/block_mask.h"
#include "client/api/mods/mod.h"

enum paged_status
block_mask_make(block_mask_build_fn build, struct paged_pool *pool, const struct paged_block_mask_params *params,
		const struct paged_mod *mod, size_t n_arrays, const struct paged_array *arrays,
		struct paged_block_mask **mask_p)
{
	struct paged_block_mask made = { .pool = pool };
	struct block_mask_request request;
	enum paged_status status = block_mask_request_open(&request, pool, params, mask_p);
	struct paged_error error;

	if (status != PAGED_OK)
		return status;
	if (mod == NULL)
		status = paged_fail(&error, PAGED_ERR_INVALID, "block mask: no mask mod");
	else if (mod->pool != pool)
		status = paged_fail(&error, PAGED_ERR_INVALID, "block mask: a mod of pool %s for a mask of pool %s",
				    mod->pool->mapping.name, pool->mapping.name);
	else
		status = build(pool, &request.batch, mod, n_arrays, arrays, &made.logical, &error);
	if (status == PAGED_OK && request.is_physical)
		status = block_mask_make_physical(&made, &request.batch, made.logical, &error);
	block_mask_request_close(&request);
	return block_mask_publish(&made, status, mask_p, &error);
}

static enum paged_status
block_mask_build_local(struct paged_pool *pool, const struct batch_mask_request *request, const struct paged_mod *mod,
		       size_t n_arrays, const struct paged_array *arrays, struct block_mask **logical_p,
		       struct paged_error *error)
{
	struct client_arrays ours = { .n = 0 };
	struct mod_binding *binding = NULL;
	enum paged_status status;

	status = client_arrays_in(&ours, mod->mod, NULL, n_arrays, arrays, error);
	if (status == PAGED_OK)
		status = mod_bind(mod->mod, ours.at, ours.n, &binding, error);
	if (status == PAGED_OK)
		status = batch_mask_create(request, binding, pool->client->team.isa, logical_p, error);
	mod_binding_destroy(binding);
	array_values_free(ours.narrowed);
	return status;
}

enum paged_status
paged_block_mask_create(struct paged_pool *pool, const struct paged_block_mask_params *params,
			const struct paged_mod *mod, size_t n_arrays, const struct paged_array *arrays,
			struct paged_block_mask **mask_p)
{
	return block_mask_make(block_mask_build_local, pool, params, mod, n_arrays, arrays, mask_p);
}
