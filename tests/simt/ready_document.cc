/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/simt/ready.h"

#include "kernels/cuda/ready_document.cu"
