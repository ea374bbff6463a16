/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/mods.h"

#include <assert.h>
#include <stdlib.h>

#include "kernels/cpu/schedule/team.h"

/* Binding of mods->vms[i], or NULL: the mask mods of all threads come first, then their score mods. */
static const struct mod_binding *
mods_binding_of(const struct kernel_mods *mods, uint32_t i)
{
	return i < mods->n_threads ? mods->params.mask : mods->params.score;
}

void
kernel_mods_bind(struct kernel_mods *mods, const struct kernel_mods_params *params)
{
	mods->params = *params;
	for (uint32_t i = 0; i < 2 * mods->n_threads; i++) {
		assert((mods->vms[i] == NULL) == (mods_binding_of(mods, i) == NULL));
		if (mods->vms[i] != NULL)
			mod_vm_bind(mods->vms[i], mods_binding_of(mods, i));
	}
	for (uint32_t i = 0; mods->intervals != NULL && i < mods->n_threads; i++)
		mod_interval_bind(mods->intervals[i], params->mask);
}

static enum paged_status
mods_create_intervals(struct kernel_mods *mods, const struct kernel_team *team, const struct mod *mask,
		      struct paged_error *error)
{
	enum paged_status status = PAGED_OK;

	mods->intervals = calloc(mods->n_threads, sizeof(*mods->intervals));
	if (mods->intervals == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "mods for %u kernel threads: no memory", mods->n_threads);
	for (uint32_t i = 0; status == PAGED_OK && i < mods->n_threads; i++)
		status = mod_interval_create(mask, kernel_team_isa(team), &mods->intervals[i], error);
	return status;
}

enum paged_status
kernel_mods_create(const struct kernel_team *team, const struct kernel_mods_params *params, struct kernel_mods **mods_p,
		   struct paged_error *error)
{
	uint32_t n = kernel_team_n_threads(team);
	enum paged_status status = PAGED_OK;
	struct kernel_mods *mods;

	assert(params->mask == NULL || mod_kind(mod_binding_mod(params->mask)) == MOD_MASK);
	assert(params->score == NULL || mod_kind(mod_binding_mod(params->score)) == MOD_SCORE);
	mods = calloc(1, sizeof(*mods) + 2 * n * sizeof(mods->vms[0]));
	if (mods == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "mods for %u kernel threads: no memory", n);
	mods->n_threads = n;
	mods->params = *params;
	mods->mask = params->mask != NULL ? mods->vms : NULL;
	mods->score = params->score != NULL ? mods->vms + n : NULL;
	for (uint32_t i = 0; i < 2 * n && status == PAGED_OK; i++)
		if (mods_binding_of(mods, i) != NULL)
			status = mod_vm_create(mod_binding_mod(mods_binding_of(mods, i)), kernel_team_isa(team),
					       &mods->vms[i], error);
	if (status == PAGED_OK && params->mask != NULL)
		status = mods_create_intervals(mods, team, mod_binding_mod(params->mask), error);
	if (status != PAGED_OK) {
		kernel_mods_destroy(mods);
		return status;
	}
	kernel_mods_bind(mods, params);
	*mods_p = mods;
	return PAGED_OK;
}

void
kernel_mods_destroy(struct kernel_mods *mods)
{
	if (mods == NULL)
		return;
	for (uint32_t i = 0; i < 2 * mods->n_threads; i++)
		mod_vm_destroy(mods->vms[i]);
	for (uint32_t i = 0; mods->intervals != NULL && i < mods->n_threads; i++)
		mod_interval_destroy(mods->intervals[i]);
	free(mods->intervals);
	free(mods);
}

void
kernel_mods_clear_range(struct kernel_mods *mods)
{
	for (uint32_t i = 0; i < 2 * mods->n_threads; i++)
		if (mods->vms[i] != NULL)
			mod_vm_clear_bad_index(mods->vms[i]);
}

enum paged_status
kernel_mods_check(const struct kernel_mods *mods, struct paged_error *error)
{
	enum paged_status status = PAGED_OK;

	for (uint32_t i = 0; i < 2 * mods->n_threads && status == PAGED_OK; i++)
		if (mods->vms[i] != NULL)
			status = mod_bad_index_fail(mod_binding_mod(mods_binding_of(mods, i)),
						    mod_vm_bad_index(mods->vms[i]), error);
	return status;
}
