/* SPDX-License-Identifier: Apache-2.0 */
/* The toolkit's side of cuda_abi.h. */
#include <cuda.h>
#include <nvrtc.h>

#include "cuda_abi.h"

#define THEIRS(ours, theirs) (long)(theirs),
const long cuda_abi_theirs[] = { CUDA_ABI(THEIRS) };
