/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants: what each is charged (I9), and limits that change. */
#include <stdio.h>
#include <string.h>
#include <sys/param.h>

#include "tests/core/core_model.h"

void
model_tenants_start(void)
{
	char name[PAGED_MAX_NAME + 1];
	uint32_t number;

	for (uint32_t tenant = 1; tenant <= MODEL_TENANTS; tenant++) {
		snprintf(name, sizeof(name), "tenant-%u", tenant);
		model_check(core_tenant_add(model.fixture.core, name, &number, &model.error) == PAGED_OK);
		model_check(number == tenant);
		for (uint32_t p = 0; p < MODEL_POOLS; p++)
			model.limits[tenant][p] = CORE_POOL_UNLIMITED;
		model.ticket_limits[tenant] = CORE_NO_LIMIT;
	}
	model_check(core_tenant_add(model.fixture.core, name, &number, &model.error) == PAGED_ERR_INVALID);
}

static bool
seq_has_page(const struct model_seq *seq, uint32_t page)
{
	for (uint32_t i = 0; i < seq->n_pages; i++)
		if (seq->pages[i] == page)
			return true;
	return false;
}

static bool
is_quarantined_by(uint32_t p, uint32_t tenant, uint32_t page)
{
	uint32_t of = model.pools[p].quarantine[page];

	return of != 0 && of != MODEL_RELEASED && model_session_find(of)->tenant == tenant;
}

bool
model_is_charged(uint32_t p, uint32_t tenant, uint32_t page)
{
	if (is_quarantined_by(p, tenant, page))
		return true;
	for (uint32_t s = 0; s < model_geometries[p].n_slots; s++) {
		const struct model_seq *seq = &model.pools[p].seqs[s];

		if (seq->state != MODEL_SEQ_NONE && seq->tenant == tenant && seq_has_page(seq, page))
			return true;
	}
	return false;
}

static uint32_t
model_charged(uint32_t p, uint32_t tenant)
{
	uint32_t n = 0;

	for (uint32_t page = 0; page < model_geometries[p].n_pages; page++)
		n += model_is_charged(p, tenant, page);
	return n;
}

uint32_t
model_quota_left(uint32_t p, uint32_t tenant)
{
	uint32_t n_charged;

	if (tenant == 0 || model.limits[tenant][p].n_pages == CORE_NO_LIMIT)
		return UINT32_MAX;
	n_charged = model_charged(p, tenant) + model_promised_to(p, tenant);
	return MAX(model.limits[tenant][p].n_pages, n_charged) - n_charged;
}

uint32_t
quota_errors(uint32_t p, uint32_t tenant, uint32_t n_pages)
{
	return n_pages > model_quota_left(p, tenant) ? status_bit(PAGED_ERR_QUOTA) : 0;
}

static uint32_t
model_n_slots(uint32_t p, uint32_t tenant)
{
	uint32_t n = 0;

	for (uint32_t s = 0; s < model_geometries[p].n_slots; s++)
		n += model.pools[p].seqs[s].state != MODEL_SEQ_NONE && model.pools[p].seqs[s].tenant == tenant;
	return n;
}

uint32_t
slot_errors(uint32_t p, uint32_t tenant, uint32_t n)
{
	const struct core_tenant_pool_limits *limits = &model.limits[tenant][p];

	/* A page table takes 64 bytes. */
	return n > 0 && tenant != 0 &&
			       model_n_slots(p, tenant) + (uint64_t)n >
				       MIN(limits->n_sequences, limits->table_bytes / 64)
		       ? status_bit(PAGED_ERR_QUOTA)
		       : 0;
}

uint32_t
pin_errors(uint32_t p, uint32_t tenant, uint32_t n_pins, uint32_t n_pages)
{
	const struct core_tenant_pool_limits *limits = &model.limits[tenant][p];
	uint32_t n_own_pins = 0, n_own_pages = 0;

	for (uint32_t i = 0; i < model.pools[p].n_pins; i++) {
		if (model.pools[p].pins[i].tenant != tenant)
			continue;
		n_own_pins++;
		n_own_pages += model.pools[p].pins[i].n;
	}
	for (uint32_t s = 0; s < model_geometries[p].n_slots; s++) {
		const struct model_seq *seq = &model.pools[p].seqs[s];

		if (seq->state != MODEL_SEQ_NONE && seq->is_hold && seq->tenant == tenant)
			n_own_pages += seq->n_pages;
	}
	if (tenant == 0)
		return 0;
	return (n_pins > 0 && n_own_pins >= limits->n_pins) || (uint64_t)n_own_pages + n_pages > limits->n_pin_pages
		       ? status_bit(PAGED_ERR_QUOTA)
		       : 0;
}

static uint32_t
model_n_tickets(uint32_t tenant)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < model.n_tickets; i++)
		n += model_session_find(model.tickets[i].giver)->tenant == tenant;
	return n;
}

uint32_t
ticket_errors(uint32_t tenant)
{
	return tenant != 0 && model_n_tickets(tenant) >= model.ticket_limits[tenant] ? status_bit(PAGED_ERR_QUOTA) : 0;
}

/* Mostly none, as there are many limits, and each refuses requests before they reach rare cases. */
static uint32_t
random_limit_below(uint32_t n)
{
	return random_below(3) != 0 ? CORE_NO_LIMIT : random_below(n);
}

/* A limit may be set below what the tenant has: it then refuses all more, and takes none away. */
void
random_limit(void)
{
	uint32_t tenant = 1 + random_below(MODEL_TENANTS), p = random_below(MODEL_POOLS);
	struct core_tenant_limits limits = CORE_UNLIMITED;

	model.limits[tenant][p] = (struct core_tenant_pool_limits){
		.n_pages = random_limit_below(model_geometries[p].n_pages),
		.n_sequences = random_limit_below(model_geometries[p].n_slots),
		.table_bytes = random_below(3) == 0 ? random_below(64 * model_geometries[p].n_slots) : UINT64_MAX,
		.n_pins = random_limit_below(4),
		.n_pin_pages = random_limit_below(model_geometries[p].n_pages),
	};
	core_tenant_limit_pool(model.fixture.core, tenant, p, &model.limits[tenant][p]);
	model.ticket_limits[tenant] = limits.n_tickets = random_limit_below(MODEL_TICKETS);
	core_tenant_limit(model.fixture.core, tenant, &limits);
	model.n_done++;
}

void
compare_tenants(void)
{
	uint32_t position = 0, n = 0;
	struct paged_quota_entry entry;

	for (; core_tenant_next(model.fixture.core, &position, &entry); n++) {
		uint32_t tenant = 1 + n / MODEL_POOLS, p = n % MODEL_POOLS, limit = model.limits[tenant][p].n_pages;

		model_check(entry.pool == p && entry.n_charged == model_charged(p, tenant));
		model_check(entry.limited == (limit != CORE_NO_LIMIT) && (!entry.limited || entry.limit == limit));
	}
	model_check(n == MODEL_TENANTS * MODEL_POOLS && position == n);
}
