/* SPDX-License-Identifier: Apache-2.0 */
/* conformance.cu for the host. */
#include "tests/gpu/conformance.cu"

void
conformance_link(void)
{
}
