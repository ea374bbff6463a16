/* SPDX-License-Identifier: Apache-2.0 */
/**
 * simt_barrier.h - the device implementation of simt.h's barriers in shared memory, bulk copies and clusters, for sm_90
 * and later
 */
#ifndef PAGED_KERNELS_CUDA_SIMT_SIMT_BARRIER_H
#define PAGED_KERNELS_CUDA_SIMT_SIMT_BARRIER_H

SIMT_FUNCTION void
simt_barrier_init(uint64_t *barrier, uint32_t n)
{
	/* The fence is for bulk copies, which arrive from the asynchronous proxy. */
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n"
		     "fence.mbarrier_init.release.cluster;" ::"r"(simt_shared_address(barrier)),
		     "r"(n)
		     : "memory");
}

SIMT_FUNCTION void
simt_barrier_arrive(uint64_t *barrier)
{
	asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(simt_shared_address(barrier))
		     : "memory");
}

/* .noinc: the arrival is one of those that the barrier expects. */
SIMT_FUNCTION void
simt_barrier_arrive_copies(uint64_t *barrier)
{
	asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(simt_shared_address(barrier))
		     : "memory");
}

/*
 * Wait until the phase of a barrier of this block has ended.  try_wait sleeps for a while, and may then return although
 * the phase has not ended.
 */
#define SIMT_BARRIER_WAIT(try_wait, barrier, parity)                                      \
	do {                                                                              \
		uint32_t done = 0;                                                        \
                                                                                          \
		while (done == 0)                                                         \
			asm volatile("{\n"                                                \
				     ".reg .pred done;\n" try_wait                        \
				     ".shared::cta.b64 done, [%1], %2;\n"                 \
				     "selp.u32 %0, 1, 0, done;\n"                         \
				     "}"                                                  \
				     : "=r"(done)                                         \
				     : "r"(simt_shared_address(barrier)), "r"(parity)     \
				     : "memory");                                         \
	} while (0)

SIMT_FUNCTION void
simt_barrier_wait(uint64_t *barrier, uint32_t parity)
{
	SIMT_BARRIER_WAIT("mbarrier.try_wait.parity.acquire.cta", barrier, parity);
}

SIMT_FUNCTION void
simt_proxy_fence()
{
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

SIMT_FUNCTION void
simt_barrier_arrive_expecting(uint64_t *barrier, uint32_t n_bytes)
{
	asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(
			     simt_shared_address(barrier)),
		     "r"(n_bytes)
		     : "memory");
}

SIMT_FUNCTION void
simt_copy_bulk(void *shared, const void *global, uint32_t n_bytes, uint64_t *barrier)
{
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
			     simt_shared_address(shared)),
		     "l"(__cvta_generic_to_global(global)), "r"(n_bytes), "r"(simt_shared_address(barrier))
		     : "memory");
}

/* Clusters */

SIMT_FUNCTION uint32_t
simt_cluster_rank()
{
	uint32_t rank;

	asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
	return rank;
}

/* .aligned: a warp's lanes are together; the language does not promise that they are after a branch. */
SIMT_FUNCTION void
simt_cluster_sync()
{
	__syncwarp();
	asm volatile("barrier.cluster.arrive.release.aligned;\n"
		     "barrier.cluster.wait.acquire.aligned;" ::
			     : "memory");
}

/*
 * Fences of shared memory alone are in CUDA from 12.8 on.  Without them an arrival waits until the thread's writes to
 * global memory are performed, and a wait invalidates the L1 cache.  lint_nvcc.sh compiles that too.
 */
#ifndef SIMT_CLUSTER_FENCES
#define SIMT_CLUSTER_FENCES (__CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 8))
#endif
#if SIMT_CLUSTER_FENCES
#define SIMT_CLUSTER_ARRIVE "fence.release.sync_restrict::shared::cta.cluster;\nmbarrier.arrive.relaxed.cluster"
#define SIMT_CLUSTER_TRY_WAIT "mbarrier.try_wait.parity.relaxed.cluster"
#define SIMT_CLUSTER_WAITED "fence.acquire.sync_restrict::shared::cluster.cluster;"
#else
#define SIMT_CLUSTER_ARRIVE "mbarrier.arrive.release.cluster"
#define SIMT_CLUSTER_TRY_WAIT "mbarrier.try_wait.parity.acquire.cluster"
#define SIMT_CLUSTER_WAITED ""
#endif

SIMT_FUNCTION void
simt_barrier_arrive_at(uint64_t *barrier, uint32_t rank)
{
	asm volatile("{\n"
		     ".reg .b32 there;\n"
		     "mapa.shared::cluster.u32 there, %0, %1;\n" SIMT_CLUSTER_ARRIVE
		     ".shared::cluster.b64 _, [there];\n"
		     "}" ::"r"(simt_shared_address(barrier)),
		     "r"(rank)
		     : "memory");
}

SIMT_FUNCTION void
simt_barrier_wait_cluster(uint64_t *barrier, uint32_t parity)
{
	SIMT_BARRIER_WAIT(SIMT_CLUSTER_TRY_WAIT, barrier, parity);
	asm volatile(SIMT_CLUSTER_WAITED ::: "memory");
}

/* A block's own addresses name the same places in each block of the mask. */
SIMT_FUNCTION void
simt_copy_tensor(void *shared, const void *map, uint32_t x, uint32_t token, uint32_t head, uint32_t page,
		 uint64_t *barrier)
{
	const uint16_t both = (1u << SIMT_CLUSTER_BLOCKS) - 1;

	asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
		     ".multicast::cluster [%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(simt_shared_address(shared)),
		     "l"(map), "r"(x), "r"(token), "r"(head), "r"(page), "r"(simt_shared_address(barrier)), "h"(both)
		     : "memory");
}

#endif
