/* SPDX-License-Identifier: Apache-2.0 */
/* attention_mla.cu with a mod, for the host. */
#define ATTENTION_MOD "tests/fake-cuda/kernels/mod_window.h"
#define ATTENTION_SUFFIX _window
#include "kernels/cuda/attention/mla/attention_mla.cu"
#include "tests/fake-cuda/kernels/link.h"

void
simt_link_attention_mla_window(void)
{
}
