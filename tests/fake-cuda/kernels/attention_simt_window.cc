/* SPDX-License-Identifier: Apache-2.0 */
/* attention_simt.cu with a mod, for the host. */
#define ATTENTION_MOD "tests/fake-cuda/kernels/mod_window.h"
#define ATTENTION_SUFFIX _window
#include "kernels/cuda/attention/decode/attention_simt.cu"
#include "tests/fake-cuda/kernels/link.h"

void
simt_link_attention_simt_window(void)
{
}
