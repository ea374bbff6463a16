/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake-cuda/kernels/ready.h"

#include "kernels/cuda/ready_capped_window.cu"
