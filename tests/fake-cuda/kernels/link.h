/* SPDX-License-Identifier: Apache-2.0 */
/*
 * These functions do nothing.  A call makes the linker take the kernels, which
 * register themselves, from their archive.
 */
#ifndef TESTS_FAKE_CUDA_KERNELS_LINK_H
#define TESTS_FAKE_CUDA_KERNELS_LINK_H

#ifdef __cplusplus
extern "C" {
#endif

void simt_link_append(void);
void simt_link_attention_bulk(void);
void simt_link_attention_bulk_window(void);
void simt_link_attention_bytes(void);
void simt_link_attention_bytes_document(void);
void simt_link_attention_bytes_window(void);
void simt_link_attention_combine(void);
void simt_link_attention_mla(void);
void simt_link_attention_mla_cluster(void);
void simt_link_attention_mla_cluster_window(void);
void simt_link_attention_mla_wgmma(void);
void simt_link_attention_mla_wgmma_window(void);
void simt_link_attention_mla_window(void);
void simt_link_attention_mma(void);
void simt_link_attention_mma_window(void);
void simt_link_attention_prefill(void);
void simt_link_attention_prefill_window(void);
void simt_link_attention_simt(void);
void simt_link_attention_simt_document(void);
void simt_link_attention_simt_window(void);
void simt_link_attention_wgmma(void);
void simt_link_attention_wgmma_window(void);
void simt_link_merge(void);
void simt_link_pages(void);
void simt_link_plan(void);

#ifdef __cplusplus
}
#endif

#endif
