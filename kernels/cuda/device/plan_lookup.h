/* SPDX-License-Identifier: Apache-2.0 */
/** plan_lookup.h - kernels' lookups in a plan: the row of a query or work item, the page of a token */
#ifndef PAGED_KERNELS_CUDA_DEVICE_PLAN_LOOKUP_H
#define PAGED_KERNELS_CUDA_DEVICE_PLAN_LOOKUP_H

#include "kernels/cuda/device/elements.h"

SIMT_FUNCTION cuda_plan_head *
plan_head(const cuda_plan &plan)
{
	return pointer_to<cuda_plan_head>(plan.head);
}

SIMT_FUNCTION void
plan_fault(const cuda_plan &plan, uint32_t fault, uint32_t row)
{
	simt_atomic_or(&plan_head(plan)->faults, fault);
	simt_atomic_max(&plan_head(plan)->fault_row, row);
}

SIMT_FUNCTION const cuda_row &
plan_row_at(const cuda_plan &plan, uint32_t row)
{
	return pointer_to<const cuda_row>(plan.rows)[row];
}

/* The first token of a row's first KV chunk. */
SIMT_FUNCTION uint32_t
plan_row_kv_begin(const cuda_row &row)
{
	return row.kv_first / CUDA_KV_CHUNK_UNIT * CUDA_KV_CHUNK_UNIT;
}

/* Parts into which a step of plan_find() divides the rows that are left. */
#define PLAN_FIND_PARTS 8u

/*
 * The last row for which begin_of(row) is at most `at`.  The loads of a step do not depend on each other, so 64 rows
 * take two round trips to memory, where a binary search takes six.
 */
template <class BEGIN>
SIMT_FUNCTION uint32_t
plan_find(const cuda_plan &plan, uint32_t at, BEGIN begin_of)
{
	uint32_t low = 0, high = plan.n_rows;

	while (high - low > 1) {
		uint32_t part = (high - low - 1) / PLAN_FIND_PARTS + 1, n = 0, begin[PLAN_FIND_PARTS];

		SIMT_UNROLL
		for (uint32_t i = 1; i < PLAN_FIND_PARTS; i++)
			begin[i] = low + i * part < high ? begin_of(low + i * part) : UINT32_MAX;
		SIMT_UNROLL
		for (uint32_t i = 1; i < PLAN_FIND_PARTS; i++)
			n += begin[i] <= at; /* rows ascend, so the first n parts are before the row */
		low += n * part;
		high = high - low < part ? high : low + part;
	}
	return low;
}

/* The row that contains a packed query row. */
SIMT_FUNCTION uint32_t
plan_find_query(const cuda_plan &plan, uint32_t packed)
{
	return plan_find(plan, packed, [&](uint32_t row) { return plan_row_at(plan, row).q_start; });
}

/* The row that contains a work item. */
SIMT_FUNCTION uint32_t
plan_find_item(const cuda_plan &plan, uint32_t item)
{
	const uint32_t *first = pointer_to<const uint32_t>(plan.first_work_item);

	return plan_find(plan, item, [&](uint32_t row) { return first[row]; });
}

/* The table's entry for a row's logical page, which must be below table_stride. */
SIMT_FUNCTION uint32_t
plan_entry(const cuda_plan &plan, uint32_t row, uint32_t logical)
{
	return pointer_to<const uint32_t>(plan.table)[(uint64_t)row * plan.table_stride + logical];
}

/* Is an entry a page of the pool?  Records a fault if not. */
SIMT_FUNCTION bool
plan_page_check(const cuda_plan &plan, uint32_t row, uint32_t page, uint32_t n_pages)
{
	if (page < n_pages)
		return true;
	plan_fault(plan, CUDA_FAULT_PAGE, row);
	return false;
}

/* The physical page of a row's logical page; if the entry is no page, records a fault and returns UINT32_MAX. */
SIMT_FUNCTION uint32_t
plan_page(const cuda_plan &plan, uint32_t row, uint32_t logical, uint32_t n_pages)
{
	uint32_t page = plan_entry(plan, row, logical);

	return plan_page_check(plan, row, page, n_pages) ? page : UINT32_MAX;
}

#endif
