/* SPDX-License-Identifier: Apache-2.0 */
/* aot_sliding_window.cu for the host. */
#include "tests/fake-cuda/kernels/aot.h"

#include "kernels/cuda/host/aot_sliding_window.cu"
