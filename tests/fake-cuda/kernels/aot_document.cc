/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake-cuda/kernels/aot.h"

#include "kernels/cuda/aot_document.cu"
