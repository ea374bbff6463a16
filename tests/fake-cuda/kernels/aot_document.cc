/* SPDX-License-Identifier: Apache-2.0 */
/* aot_document.cu for the host. */
#include "tests/fake-cuda/kernels/aot.h"

#include "kernels/cuda/host/aot_document.cu"
