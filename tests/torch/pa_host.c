/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/torch/pa_memory.h"

#include <string.h>

const char *const pa_backend = "host";
const bool pa_on_cuda = false;

void
pa_memory_open(void)
{
}

void *
pa_lend(struct pa_lent *lent, const void *data, size_t size)
{
	(void)lent, (void)size;
	return (void *)(uintptr_t)data;
}

void *
pa_lend_back(struct pa_lent *lent, void *data, size_t size)
{
	(void)lent, (void)size;
	return data;
}

void
pa_lend_end(struct pa_lent *lent)
{
	(void)lent;
}

void
pa_fetch(void *to, const void *from, size_t size)
{
	memcpy(to, from, size);
}

void
pa_fill_bytes(void *to, uint8_t value, size_t size)
{
	memset(to, value, size);
}
