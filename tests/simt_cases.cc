/* SPDX-License-Identifier: Apache-2.0 */
/* simt_cases.cu for the host. */
#include "tests/simt_cases.cu"

void
simt_cases_link(void)
{
}
