/* SPDX-License-Identifier: Apache-2.0 */
/* paged-bench's reader for the host. */
#include "bench/gpu/gpu_reader.cu"
