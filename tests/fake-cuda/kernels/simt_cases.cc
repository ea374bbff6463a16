/* SPDX-License-Identifier: Apache-2.0 */
/* simt_cases.cu for the host. */
#include "tests/fake-cuda/kernels/simt_cases.cu"

void
simt_cases_link(void)
{
}
