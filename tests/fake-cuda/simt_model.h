/* SPDX-License-Identifier: Apache-2.0 */
/**
 * simt_model.h - implementation of simt_host.h's functions, hidden from the kernels
 *
 * The models are compiled without the hooks of race.c; each model reports its
 * reads and writes to the race detector itself.  `file` and `line` are those
 * of the caller.
 */
#ifndef TESTS_FAKE_CUDA_SIMT_MODEL_H
#define TESTS_FAKE_CUDA_SIMT_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

uint32_t simt_thread(void);
uint32_t simt_n_threads(void);
uint32_t simt_block(void);
uint32_t simt_block_y(void);
uint32_t simt_n_blocks(void);

/** simt_model_params - the current thread's copy of the parameters lies there; it enters the kernel next */
void simt_model_params(const void *params);
void *simt_model_shared(size_t size, size_t alignment);

void simt_model_dependency_wait(void);
void simt_model_sync(const char *file, int line);
void simt_model_sync_part(int id, int n_threads, const char *file, int line);
void simt_model_warp_sync(const char *file, int line);
uint32_t simt_model_shuffle(uint32_t value, int lane, const char *file, int line);
uint32_t simt_model_ballot(bool value, const char *file, int line);

uint32_t simt_atomic_add(uint32_t *at, uint32_t n);
uint32_t simt_atomic_add_acq_rel(uint32_t *at, uint32_t n);
uint32_t simt_atomic_max(uint32_t *at, uint32_t n);
uint32_t simt_atomic_or(uint32_t *at, uint32_t n);
void simt_model_load_fresh(void *value, const void *at, size_t size);

void simt_copy_async16(void *shared, const void *global, bool valid);
void simt_copy_async4(void *shared, const void *global, bool valid);
void simt_copy_async_commit(void);
void simt_model_copy_async_wait(unsigned int n_groups);

void simt_barrier_init(uint64_t *barrier, uint32_t n);
void simt_barrier_arrive(uint64_t *barrier);
void simt_barrier_arrive_copies(uint64_t *barrier);
void simt_barrier_arrive_expecting(uint64_t *barrier, uint32_t n_bytes);
void simt_copy_bulk(void *shared, const void *global, uint32_t n_bytes, uint64_t *barrier);
void simt_model_barrier_wait(uint64_t *barrier, uint32_t parity, const char *file, int line);

uint32_t simt_cluster_rank(void);
void simt_model_cluster_sync(const char *file, int line);
void simt_barrier_arrive_at(uint64_t *barrier, uint32_t rank);
void simt_model_barrier_wait_cluster(uint64_t *barrier, uint32_t parity, const char *file, int line);
void simt_copy_tensor(void *shared, const void *map, uint32_t x, uint32_t token, uint32_t head, uint32_t page,
		      uint64_t *barrier);

void simt_model_ldmatrix_x4(uint32_t r[4], const void *row, const char *file, int line);
void simt_model_ldmatrix_x4_trans(uint32_t r[4], const void *row, const char *file, int line);
void simt_model_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2], const char *file, int line);
void simt_model_mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2], const char *file, int line);

void simt_proxy_fence(void);
void simt_model_registers(unsigned int n, const char *file, int line);
uint64_t simt_matrix(const void *shared, uint32_t eight, uint32_t sixty_four);
uint64_t simt_matrix_after(uint64_t matrix, uint32_t n_bytes);
void simt_model_wgmma_fence(const char *file, int line);
void simt_model_wgmma(float *d, unsigned int n, const uint32_t *a_registers, uint64_t a, uint64_t b, bool f16, bool add,
		      const char *file, int line);
void simt_model_wgmma_commit(const char *file, int line);
void simt_model_wgmma_wait(unsigned int n_groups, const char *file, int line);

float simt_exp2(float x);
float simt_log2(float x);
uint16_t simt_to_bf16(float value);
uint16_t simt_to_f16(float value);
uint8_t simt_to_e4m3(float value);
uint8_t simt_to_e5m2(float value);
int32_t simt_to_int(float value);
float simt_mul(float a, float b);
float simt_add(float a, float b);
float simt_from_bf16(uint16_t bits);
float simt_from_f16(uint16_t bits);
float simt_from_e4m3(uint8_t bits);
float simt_from_e5m2(uint8_t bits);
uint32_t simt_permute(uint32_t low, uint32_t high, uint32_t which);
uint32_t simt_fma_f16(uint32_t a, uint32_t b, uint32_t c);
uint32_t simt_fma_bf16(uint32_t a, uint32_t b, uint32_t c);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
