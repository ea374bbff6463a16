/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <stdlib.h>

#include "kernels/cpu/tile_mask.h"
#include "kernels/cpu/team.h"

static void
vms_bind(struct mod_vm **vms, uint32_t n, const struct mod_binding *binding)
{
	assert((vms == NULL) == (binding == NULL));
	for (uint32_t i = 0; vms != NULL && i < n; i++)
		mod_vm_bind(vms[i], binding);
}

void
kernel_mods_bind(struct kernel_mods *mods, const struct kernel_mods_params *params)
{
	mods->params = *params;
	vms_bind(mods->mask, mods->n_threads, params->mask);
	vms_bind(mods->score, mods->n_threads, params->score);
	for (uint32_t i = 0; mods->intervals != NULL && i < mods->n_threads; i++)
		mod_interval_bind(mods->intervals[i], params->mask);
}

static enum paged_status
vms_create(struct mod_vm **vms, const struct kernel_team *team, const struct mod_binding *binding,
	   struct paged_error *error)
{
	enum paged_status status = PAGED_OK;

	for (uint32_t i = 0; status == PAGED_OK && i < team_n_threads(team); i++)
		status = mod_vm_create(mod_binding_mod(binding), team_isa(team), &vms[i], error);
	return status;
}

static enum paged_status
intervals_create(struct kernel_mods *mods, const struct kernel_team *team, const struct mod *mask,
		 struct paged_error *error)
{
	enum paged_status status = PAGED_OK;

	mods->intervals = calloc(mods->n_threads, sizeof(*mods->intervals));
	if (mods->intervals == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "mods for %u kernel threads: no memory", mods->n_threads);
	for (uint32_t i = 0; status == PAGED_OK && i < mods->n_threads; i++)
		status = mod_interval_create(mask, team_isa(team), &mods->intervals[i], error);
	return status;
}

enum paged_status
kernel_mods_create(const struct kernel_team *team, const struct kernel_mods_params *params, struct kernel_mods **mods_p,
		   struct paged_error *error)
{
	uint32_t n = team_n_threads(team);
	enum paged_status status = PAGED_OK;
	struct kernel_mods *mods;

	assert(params->mask == NULL || mod_kind(mod_binding_mod(params->mask)) == MOD_MASK);
	assert(params->score == NULL || mod_kind(mod_binding_mod(params->score)) == MOD_SCORE);
	mods = calloc(1, sizeof(*mods) + 2 * n * sizeof(mods->vms[0]));
	if (mods == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "mods for %u kernel threads: no memory", n);
	mods->n_threads = n;
	if (params->mask != NULL) {
		mods->mask = mods->vms;
		status = vms_create(mods->mask, team, params->mask, error);
		if (status == PAGED_OK)
			status = intervals_create(mods, team, mod_binding_mod(params->mask), error);
	}
	if (status == PAGED_OK && params->score != NULL) {
		mods->score = mods->vms + n;
		status = vms_create(mods->score, team, params->score, error);
	}
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

static void
vms_forget(struct mod_vm *const *vms, uint32_t n)
{
	for (uint32_t i = 0; vms != NULL && i < n; i++)
		mod_vm_forget(vms[i]);
}

void
kernel_mods_forget(struct kernel_mods *mods)
{
	vms_forget(mods->mask, mods->n_threads);
	vms_forget(mods->score, mods->n_threads);
}

static enum paged_status
vms_check(struct mod_vm *const *vms, uint32_t n, const struct mod_binding *binding, struct paged_error *error)
{
	enum paged_status status = PAGED_OK;

	for (uint32_t i = 0; status == PAGED_OK && vms != NULL && i < n; i++)
		status = mod_range_fail(mod_binding_mod(binding), mod_vm_range(vms[i]), error);
	return status;
}

enum paged_status
kernel_mods_check(const struct kernel_mods *mods, struct paged_error *error)
{
	enum paged_status status = vms_check(mods->mask, mods->n_threads, mods->params.mask, error);

	return status != PAGED_OK ? status : vms_check(mods->score, mods->n_threads, mods->params.score, error);
}
