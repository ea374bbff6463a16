/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of pa_memory.h's tensors on the host. */
#include "tests/torch/pa_memory.h"

#include <string.h>

const char *const pa_backend = "host";
const bool pa_on_cuda = false;

void
pa_memory_open(void)
{
}

void *
pa_upload(struct pa_device_copies *copies, const void *data, size_t size)
{
	(void)copies, (void)size;
	return (void *)(uintptr_t)data;
}

void *
pa_upload_output(struct pa_device_copies *copies, void *data, size_t size)
{
	(void)copies, (void)size;
	return data;
}

void
pa_download_outputs(struct pa_device_copies *copies)
{
	(void)copies;
}

void
pa_download(void *to, const void *from, size_t size)
{
	memcpy(to, from, size);
}

void
pa_fill_bytes(void *to, uint8_t value, size_t size)
{
	memset(to, value, size);
}
