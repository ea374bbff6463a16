/* SPDX-License-Identifier: Apache-2.0 */
/* Clusters of blocks on the host: barriers in each other's shared memory, and copies of tensors to both. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "tests/fake-cuda/simt_fixture.h"
#include "tests/fake-cuda/tensor_map.h"

#define N_BLOCKS 4u
#define N_ELEMENTS (CLUSTER_CASE_PAGES * CLUSTER_CASE_HEADS * CLUSTER_CASE_TOKENS * CLUSTER_CASE_DIM)

static uint16_t *tensor;

static struct tensor_map
case_map(void)
{
	return (struct tensor_map){
		.magic = TENSOR_MAP_MAGIC,
		.address = (uintptr_t)tensor,
		.stride = { TENSOR_MAP_ELEMENT, CLUSTER_CASE_DIM * TENSOR_MAP_ELEMENT,
			    CLUSTER_CASE_TOKENS * CLUSTER_CASE_DIM * TENSOR_MAP_ELEMENT,
			    CLUSTER_CASE_HEADS * CLUSTER_CASE_TOKENS * CLUSTER_CASE_DIM * TENSOR_MAP_ELEMENT },
		.dim = { CLUSTER_CASE_DIM, CLUSTER_CASE_TOKENS, CLUSTER_CASE_HEADS, CLUSTER_CASE_PAGES },
		.box = { TENSOR_MAP_ROW_SIZE / TENSOR_MAP_ELEMENT, CLUSTER_CASE_BOX_TOKENS, CLUSTER_CASE_BOX_HEADS, 1 },
	};
}

static void
map_set(struct simt_cluster_params *p, struct tensor_map map)
{
	memcpy(&p->map, &map, sizeof(map));
}

static void
cluster_prepare(struct simt_cluster_params *p)
{
	tensor = region(N_ELEMENTS * sizeof(*tensor), false, "tensor");
	for (unsigned int i = 0; i < N_ELEMENTS; i++)
		tensor[i] = (uint16_t)(rand() | 1);
	*p = (struct simt_cluster_params){ .out = region(N_BLOCKS * CLUSTER_CASE_WORDS * 4, true, "out") };
	map_set(p, case_map());
}

static void
cluster_drop(struct simt_cluster_params *p)
{
	region_free(tensor);
	region_free(p->out);
}

/* Element x of a row of a tile; 0 outside the tensor. */
static uint16_t
tile_element(unsigned int cluster, unsigned int round, unsigned int matrix, unsigned int row, unsigned int x)
{
	unsigned int box = CLUSTER_CASE_BOX(cluster, round, row / CLUSTER_CASE_BOX_ROWS);
	unsigned int in_box = row % CLUSTER_CASE_BOX_ROWS, page = CLUSTER_CASE_PAGE(box);
	unsigned int token = CLUSTER_CASE_TOKEN(box) + in_box % CLUSTER_CASE_BOX_TOKENS;
	unsigned int head = CLUSTER_CASE_HEAD(box) + in_box / CLUSTER_CASE_BOX_TOKENS;

	x += CLUSTER_CASE_X(matrix);
	if (x >= CLUSTER_CASE_DIM || token >= CLUSTER_CASE_TOKENS || head >= CLUSTER_CASE_HEADS ||
	    page >= CLUSTER_CASE_PAGES)
		return 0;
	return tensor[((page * CLUSTER_CASE_HEADS + head) * CLUSTER_CASE_TOKENS + token) * CLUSTER_CASE_DIM + x];
}

static void
cluster_check(const struct simt_cluster_params *p)
{
	const uint16_t *out = (const uint16_t *)p->out;

	for (unsigned int i = 0; i < N_BLOCKS * CLUSTER_CASE_WORDS * 2; i++) {
		unsigned int x = i % 64, row = i / 64 % CLUSTER_CASE_TILE_ROWS;
		unsigned int tile = i / (CLUSTER_CASE_TILE_ROWS * 64), matrix = tile % CLUSTER_CASE_MATRICES;
		unsigned int round = tile / CLUSTER_CASE_MATRICES % CLUSTER_CASE_ROUNDS;
		unsigned int block = tile / CLUSTER_CASE_MATRICES / CLUSTER_CASE_ROUNDS;

		cr_assert_eq(out[i], tile_element(block / 2, round, matrix, row, x),
			     "block %u, round %u, matrix %u, row %u, element %u: %04x", block, round, matrix, row, x,
			     out[i]);
	}
}

Test(simt_cluster, both_blocks_receive_boxes)
{
	for (uint64_t seed = 0; seed < 2 * N_SEEDS; seed++) {
		struct simt_cluster_params p;

		cluster_prepare(&p);
		expect_no_report("simt_case_cluster", &p, N_BLOCKS, CLUSTER_CASE_THREADS, seed);
		cluster_check(&p);
		cluster_drop(&p);
	}
}

/* A kernel copies its parameters to where their alignment wants them. */
Test(simt_cluster, parameters_may_lie_anywhere)
{
	struct simt_cluster_params p;
	unsigned char *bytes = region(sizeof(p) + 16, false, "bytes");

	cluster_prepare(&p);
	memcpy(bytes + 8, &p, sizeof(p));
	simt_region_remove(bytes);
	expect_no_report("simt_case_cluster", bytes + 8, N_BLOCKS, CLUSTER_CASE_THREADS, 2);
	cluster_check(&p);
	cluster_drop(&p);
	free(bytes);
}

Test(simt_cluster, wrong_clusters_are_reported)
{
	static const struct {
		enum simt_bug bug;
		const char *words;
	} cases[] = {
		{ BUG_NO_BARRIER, "no barrier " },
		{ BUG_LATE_READER, "no barrier lies between" },
		{ BUG_WEAK_WAIT, "no barrier lies between" },
		{ BUG_NO_WAIT, "race: " },
		{ BUG_WRONG_COUNT, "waits in a barrier in shared memory" },
		{ BUG_UNALIGNED, "no multiple of 1024" },
		{ BUG_UNALIGNED_MAP, "does not begin at a multiple of 64" },
		{ BUG_LOCAL_MAP, "a tensor map that is not in the kernel's parameters" },
		{ BUG_FAR_GLOBAL, "the barrier between orders shared memory alone" },
		{ BUG_NEAR_GLOBAL, "the barrier between orders shared memory alone" },
		{ BUG_COPIED_GLOBAL, "the barrier between orders shared memory alone" },
		{ BUG_OTHER_SHARED, "shared memory of rank 0 + 40960, which is not its block's" },
		{ BUG_NO_LAST_SYNC, "no barrier lies between" },
		{ BUG_LOST_COPY, "its block ends, and a bulk copy to it is on its way" },
	};
	struct simt_cluster_params p;

	cluster_prepare(&p);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		p.bug = cases[i].bug;
		expect_report(cases[i].words, "simt_case_cluster", &p, N_BLOCKS, CLUSTER_CASE_THREADS);
	}
	cluster_drop(&p);
}

/* Also in an order in which nothing goes wrong. */
Test(simt_cluster, each_order_reports_missing_synchronisation)
{
	static const enum simt_bug bugs[] = { BUG_EARLY_END, BUG_NO_LAST_SYNC, BUG_NO_BARRIER,  BUG_LATE_READER,
					      BUG_WEAK_WAIT, BUG_FAR_GLOBAL,   BUG_NEAR_GLOBAL, BUG_COPIED_GLOBAL };
	struct simt_cluster_params p;
	unsigned int n_after = 0, n_before = 0;

	cluster_prepare(&p);
	for (unsigned int i = 0; i < sizeof(bugs) / sizeof(bugs[0]) * N_SEEDS; i++) {
		p.bug = bugs[i / N_SEEDS];
		cr_assert_not(simt_run_kernel("simt_case_cluster", &p, N_BLOCKS, CLUSTER_CASE_THREADS, i % N_SEEDS),
			      "bug %d, seed %u: nothing found", (int)p.bug, i % N_SEEDS);
		n_after += strstr(report, "which has ended") != NULL;
		n_before += strstr(report, "its block ends, and thread") != NULL;
	}
	cr_assert(n_after > 0 && n_before > 0, "%u reach it after its end, %u before", n_after, n_before);
	cluster_drop(&p);
}

Test(simt_cluster, messages_name_the_block)
{
	struct simt_cluster_params p;

	cluster_prepare(&p);
	p.bug = BUG_UNALIGNED;
	cr_assert_not(simt_run_kernel("simt_case_cluster", &p, N_BLOCKS, CLUSTER_CASE_THREADS, 0));
	cr_assert(strstr(report, "block (0, 0), thread 128: ") != NULL, "%s", report);
	cr_assert_not(simt_run_kernel("simt_case_cluster", &p, N_BLOCKS, CLUSTER_CASE_THREADS, 1));
	cr_assert(strstr(report, "block (3, 0), thread 135: ") != NULL, "%s", report);
	p.bug = BUG_NO_LAST_SYNC;
	cr_assert_not(simt_run_kernel("simt_case_cluster", &p, N_BLOCKS, CLUSTER_CASE_THREADS, 0));
	cr_assert(strstr(report, " of block (1, 0) reached it") != NULL ||
			  strstr(report, " of block (0, 0) reached it") != NULL,
		  "%s", report);
	cluster_drop(&p);
}

Test(simt_cluster, wrong_maps_are_reported)
{
	struct simt_cluster_params p;
	struct tensor_map map;

	cluster_prepare(&p);
	map = case_map();
	map.magic = 0;
	map_set(&p, map);
	expect_report("what is no tensor map", "simt_case_cluster", &p, N_BLOCKS, CLUSTER_CASE_THREADS);
	map = case_map();
	map.box[0] = 32;
	map_set(&p, map);
	expect_report("rows of 64 bytes, not 128", "simt_case_cluster", &p, N_BLOCKS, CLUSTER_CASE_THREADS);
	map = case_map();
	map.box[1] = 1024;
	map_set(&p, map);
	expect_report("past the end", "simt_case_cluster", &p, N_BLOCKS, CLUSTER_CASE_THREADS);
	map = case_map();
	map.dim[3]++;
	map_set(&p, map);
	expect_report("past the end of tensor", "simt_case_cluster", &p, N_BLOCKS, CLUSTER_CASE_THREADS);
	cluster_drop(&p);
}

Test(simt_cluster, a_grid_is_of_whole_clusters)
{
	struct simt_cluster_params p;

	cluster_prepare(&p);
	cr_assert_not(simt_run_kernel("simt_case_cluster", &p, 3, CLUSTER_CASE_THREADS, 0));
	cr_assert_str_eq(report, "kernel simt_case_cluster: launched with a grid that is no whole number of clusters");
	cluster_drop(&p);
}

/* Atomics order the blocks of a cluster as they order others. */
Test(simt_cluster, blocks_combine_by_tickets)
{
	struct simt_sum_params p = {
		.in = region(8 * 64 * 4, false, "in"),
		.partial = region(8 * 64 * 4, true, "partial"),
		.ticket = region(4, true, "ticket"),
		.out = region(64 * 4, true, "out"),
	};

	for (uint32_t i = 0; i < 8 * 64; i++)
		((uint32_t *)p.in)[i] = i;
	for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
		*p.ticket = 0;
		expect_no_report("simt_case_cluster_sum", &p, 8, 64, seed);
		for (uint32_t t = 0; t < 64; t++)
			cr_assert_eq(p.out[t], 3 * (8 * t + 64 * 28), "%u", p.out[t]);
	}
	p.bug = BUG_NO_FENCE;
	*p.ticket = 0;
	expect_report("race: it reads partial", "simt_case_cluster_sum", &p, 2, 64);
	region_free((void *)p.in);
	region_free(p.partial);
	region_free(p.ticket);
	region_free(p.out);
}

/* Products and registers are each block's own. */
Test(simt_cluster, groups_of_warps_multiply)
{
	uint16_t *halves = region(128 * 64 * 2, false, "a, b, c");
	struct simt_wgmma_params p = { .a = halves,
				       .b = halves,
				       .c = halves,
				       .d = region(2 * 64 * 128 * 4, true, "d"),
				       .e = region(2 * 64 * 128 * 4, true, "e"),
				       .d_narrow = region(2 * 64 * 64 * 4, true, "d_narrow"),
				       .narrow = region(2 * 64 * 64 * 4, true, "narrow") };

	for (unsigned int i = 0; i < 128 * 64; i++)
		halves[i] = convert_to_bf16((float)(rand() % 5 - 2));
	expect_no_report("simt_case_cluster_wgmma", &p, 2, WGMMA_CASE_THREADS, 3);
	cr_assert_arr_eq(p.d, p.d + 64 * 128, 64 * 128 * sizeof(float));
	cr_assert_arr_eq(p.e, p.e + 64 * 128, 64 * 128 * sizeof(float));
	for (unsigned int i = 0; i < 64 * 128; i++) {
		float d = 0;

		for (unsigned int k = 0; k < 64; k++)
			d += element(halves[i / 128 * 64 + k], false) * element(halves[i % 128 * 64 + k], false);
		cr_assert(p.d[i] == d, "d %u: %f, want %f", i, (double)p.d[i], (double)d);
	}
	p.bug = BUG_REGISTERS;
	expect_report("setmaxnreg: the warps ask for 65536", "simt_case_cluster_wgmma", &p, 2, WGMMA_CASE_THREADS);
	p.bug = BUG_OTHER_MATRIX;
	expect_report("other matrices", "simt_case_cluster_wgmma", &p, 2, WGMMA_CASE_THREADS);
	region_free(halves);
	region_free(p.d);
	region_free(p.e);
	region_free(p.d_narrow);
	region_free(p.narrow);
}
