/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/mod_set.h"

#include <assert.h>
#include <stdlib.h>

#include "kernels/cpu/schedule/team.h"

/* Binding of mod_set->vms[i], or NULL: the mask mods of all threads come first, then their score mods. */
static const struct mod_binding *
mods_binding_of(const struct kernel_mod_set *mod_set, uint32_t i)
{
	return i < mod_set->n_threads ? mod_set->params.mask : mod_set->params.score;
}

void
kernel_mod_set_bind(struct kernel_mod_set *mod_set, const struct kernel_mod_set_params *params)
{
	mod_set->params = *params;
	for (uint32_t i = 0; i < 2 * mod_set->n_threads; i++) {
		assert((mod_set->vms[i] == NULL) == (mods_binding_of(mod_set, i) == NULL));
		if (mod_set->vms[i] != NULL)
			mod_vm_bind(mod_set->vms[i], mods_binding_of(mod_set, i));
	}
	for (uint32_t i = 0; mod_set->intervals != NULL && i < mod_set->n_threads; i++)
		mod_interval_bind(mod_set->intervals[i], params->mask);
}

static enum paged_status
mods_create_intervals(struct kernel_mod_set *mod_set, const struct kernel_team *team, const struct mod *mask,
		      struct paged_error *error)
{
	enum paged_status status = PAGED_OK;

	mod_set->intervals = calloc(mod_set->n_threads, sizeof(*mod_set->intervals));
	if (mod_set->intervals == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "mods for %u kernel threads: no memory", mod_set->n_threads);
	for (uint32_t i = 0; status == PAGED_OK && i < mod_set->n_threads; i++)
		status = mod_interval_create(mask, kernel_team_isa(team), &mod_set->intervals[i], error);
	return status;
}

enum paged_status
kernel_mod_set_create(const struct kernel_team *team, const struct kernel_mod_set_params *params,
		      struct kernel_mod_set **mod_set_p, struct paged_error *error)
{
	uint32_t n = kernel_team_n_threads(team);
	enum paged_status status = PAGED_OK;
	struct kernel_mod_set *mod_set;

	assert(params->mask == NULL || mod_kind(mod_binding_mod(params->mask)) == MOD_MASK);
	assert(params->score == NULL || mod_kind(mod_binding_mod(params->score)) == MOD_SCORE);
	mod_set = calloc(1, sizeof(*mod_set) + 2 * n * sizeof(mod_set->vms[0]));
	if (mod_set == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "mods for %u kernel threads: no memory", n);
	mod_set->n_threads = n;
	mod_set->params = *params;
	mod_set->mask = params->mask != NULL ? mod_set->vms : NULL;
	mod_set->score = params->score != NULL ? mod_set->vms + n : NULL;
	for (uint32_t i = 0; i < 2 * n && status == PAGED_OK; i++)
		if (mods_binding_of(mod_set, i) != NULL)
			status = mod_vm_create(mod_binding_mod(mods_binding_of(mod_set, i)), kernel_team_isa(team),
					       &mod_set->vms[i], error);
	if (status == PAGED_OK && params->mask != NULL)
		status = mods_create_intervals(mod_set, team, mod_binding_mod(params->mask), error);
	if (status != PAGED_OK) {
		kernel_mod_set_destroy(mod_set);
		return status;
	}
	kernel_mod_set_bind(mod_set, params);
	*mod_set_p = mod_set;
	return PAGED_OK;
}

void
kernel_mod_set_destroy(struct kernel_mod_set *mod_set)
{
	if (mod_set == NULL)
		return;
	for (uint32_t i = 0; i < 2 * mod_set->n_threads; i++)
		mod_vm_destroy(mod_set->vms[i]);
	for (uint32_t i = 0; mod_set->intervals != NULL && i < mod_set->n_threads; i++)
		mod_interval_destroy(mod_set->intervals[i]);
	free(mod_set->intervals);
	free(mod_set);
}

void
kernel_mods_clear_range(struct kernel_mod_set *mod_set)
{
	for (uint32_t i = 0; i < 2 * mod_set->n_threads; i++)
		if (mod_set->vms[i] != NULL)
			mod_vm_clear_bad_index(mod_set->vms[i]);
}

enum paged_status
kernel_mod_set_check(const struct kernel_mod_set *mod_set, struct paged_error *error)
{
	enum paged_status status = PAGED_OK;

	for (uint32_t i = 0; i < 2 * mod_set->n_threads && status == PAGED_OK; i++)
		if (mod_set->vms[i] != NULL)
			status = mod_bad_index_fail(mod_binding_mod(mods_binding_of(mod_set, i)),
						    mod_vm_bad_index(mod_set->vms[i]), error);
	return status;
}
