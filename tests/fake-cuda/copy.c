/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies in a stream.  Ordinary host memory is read when the call is made, and
 * written before it returns, as the driver does; pinned memory is accessed when
 * the stream runs the copy.  A captured copy accesses host memory at each replay.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fake-cuda/fake_cuda.h"

static int
copy_lost(const char *what, cuda_address address, size_t size)
{
	return entry_poison(CUDA_ERROR_ILLEGAL_ADDRESS,
			    "%s of %zu bytes at %#llx: freed, unmapped, or an import whose owner freed it or died",
			    what, size, (unsigned long long)address);
}

static int
copy_in_run(struct operation *operation)
{
	const void *from = operation->copy.host_from != NULL ? operation->copy.host_from : operation->data;
	unsigned char *to = memory_host(operation->copy.to, operation->copy.size, true);

	if (to == NULL)
		return copy_lost("copy to the device", operation->copy.to, operation->copy.size);
	memcpy(to, from, operation->copy.size);
	return CUDA_SUCCESS;
}

static int
copy_out_run(struct operation *operation)
{
	const unsigned char *from = memory_host(operation->copy.from, operation->copy.size, false);

	if (from == NULL)
		return copy_lost("copy from the device", operation->copy.from, operation->copy.size);
	memcpy(operation->copy.host_to, from, operation->copy.size);
	return CUDA_SUCCESS;
}

static int
copy_run(struct operation *operation)
{
	const unsigned char *from = memory_host(operation->copy.from, operation->copy.size, false);
	unsigned char *to = memory_host(operation->copy.to, operation->copy.size, true);

	if (from == NULL)
		return copy_lost("copy from the device", operation->copy.from, operation->copy.size);
	if (to == NULL)
		return copy_lost("copy to the device", operation->copy.to, operation->copy.size);
	memmove(to, from, operation->copy.size);
	return CUDA_SUCCESS;
}

static size_t
copy_2d_span(const struct cuda_copy_2d *copy, size_t pitch)
{
	return (copy->height - 1) * pitch + copy->width_bytes;
}

static int
copy_2d_run(struct operation *operation)
{
	const struct cuda_copy_2d *copy = &operation->copy_2d;
	size_t from_size = copy_2d_span(copy, copy->from_pitch), to_size = copy_2d_span(copy, copy->to_pitch);
	const unsigned char *from = memory_host(copy->from_device, from_size, false);
	unsigned char *to = memory_host(copy->to_device, to_size, true);

	if (from == NULL)
		return copy_lost("2D copy from the device", copy->from_device, from_size);
	if (to == NULL)
		return copy_lost("2D copy to the device", copy->to_device, to_size);
	for (size_t i = 0; i < copy->height; i++)
		memmove(to + i * copy->to_pitch, from + i * copy->from_pitch, copy->width_bytes);
	return CUDA_SUCCESS;
}

static int
fill_run(struct operation *operation)
{
	unsigned char *to = memory_host(operation->copy.to, operation->copy.size, true);

	if (to == NULL)
		return copy_lost("fill", operation->copy.to, operation->copy.size);
	memset(to, operation->copy.value, operation->copy.size);
	return CUDA_SUCCESS;
}

static int
copy_in(cuda_address to, const void *from, size_t size, cuda_stream handle)
{
	bool staged = !memory_pinned(from, size);
	struct operation *operation;
	struct CUstream_st *stream;
	int result = stream_admit(handle, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	if (staged && stream->capture != NULL)
		return capture_refuse(stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	if (memory_host(to, size, true) == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	operation = stream_operation(staged ? size : 0, copy_in_run);
	if (operation == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (staged)
		memcpy(operation->data, from, size);
	else
		operation->copy.host_from = from;
	operation->copy.to = to;
	operation->copy.size = size;
	stream_add(stream, operation);
	return CUDA_SUCCESS;
}

static int
copy_out(void *to, cuda_address from, size_t size, cuda_stream handle)
{
	bool pinned = memory_pinned(to, size);
	struct operation *operation;
	struct CUstream_st *stream;
	int result = stream_admit(handle, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	if (!pinned && stream->capture != NULL)
		return capture_refuse(stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	if (memory_host(from, size, false) == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	operation = stream_operation(0, copy_out_run);
	if (operation == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	operation->copy.host_to = to;
	operation->copy.from = from;
	operation->copy.size = size;
	stream_add(stream, operation);
	return pinned ? CUDA_SUCCESS : stream_run(stream, UINT64_MAX);
}

static int
copy(cuda_address to, cuda_address from, size_t size, cuda_stream handle)
{
	struct operation *operation;
	struct CUstream_st *stream;
	int result = stream_admit(handle, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	if (memory_host(to, size, true) == NULL || memory_host(from, size, false) == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	operation = stream_operation(0, copy_run);
	if (operation == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	operation->copy.to = to;
	operation->copy.from = from;
	operation->copy.size = size;
	stream_add(stream, operation);
	return CUDA_SUCCESS;
}

/* Between device addresses only, which is all that is used. */
static int
copy_2d(const struct cuda_copy_2d *copy, cuda_stream handle)
{
	size_t max_pitch = (size_t)device_attribute_of(context_now()->device, CUDA_DEVICE_MAX_PITCH);
	struct operation *operation;
	struct CUstream_st *stream;
	int result = stream_admit(handle, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	if (copy->from_type != CUDA_MEMORY_DEVICE || copy->to_type != CUDA_MEMORY_DEVICE || copy->from_x_bytes != 0 ||
	    copy->from_y != 0 || copy->to_x_bytes != 0 || copy->to_y != 0)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (copy->width_bytes == 0 || copy->height == 0)
		return CUDA_SUCCESS;
	if (copy->from_pitch < copy->width_bytes || copy->to_pitch < copy->width_bytes ||
	    copy->from_pitch > max_pitch || copy->to_pitch > max_pitch ||
	    memory_host(copy->to_device, copy_2d_span(copy, copy->to_pitch), true) == NULL ||
	    memory_host(copy->from_device, copy_2d_span(copy, copy->from_pitch), false) == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	operation = stream_operation(0, copy_2d_run);
	if (operation == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	operation->copy_2d = *copy;
	stream_add(stream, operation);
	return CUDA_SUCCESS;
}

static int
fill(cuda_address to, unsigned char value, size_t n, cuda_stream handle)
{
	struct operation *operation;
	struct CUstream_st *stream;
	int result = stream_admit(handle, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	if (memory_host(to, n, true) == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	operation = stream_operation(0, fill_run);
	if (operation == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	operation->copy.to = to;
	operation->copy.value = value;
	operation->copy.size = n;
	stream_add(stream, operation);
	return CUDA_SUCCESS;
}

ENTRY(cuMemcpyHtoDAsync_v2, (cuda_address to, const void *from, size_t size, cuda_stream stream), ENTRY_CONTEXT,
      copy_in(to, from, size, stream))
ENTRY(cuMemcpyDtoHAsync_v2, (void *to, cuda_address from, size_t size, cuda_stream stream), ENTRY_CONTEXT,
      copy_out(to, from, size, stream))
ENTRY(cuMemcpyDtoDAsync_v2, (cuda_address to, cuda_address from, size_t size, cuda_stream stream), ENTRY_CONTEXT,
      copy(to, from, size, stream))
ENTRY(cuMemcpy2DAsync_v2, (const struct cuda_copy_2d *copy, cuda_stream stream), ENTRY_CONTEXT, copy_2d(copy, stream))
ENTRY(cuMemsetD8Async, (cuda_address to, unsigned char value, size_t n, cuda_stream stream), ENTRY_CONTEXT,
      fill(to, value, n, stream))
