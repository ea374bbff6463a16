/* SPDX-License-Identifier: Apache-2.0 */
/* cuTensorMapEncodeTiled.  A map that it writes is a struct tensor_map. */
#include "tests/fake-cuda/tensor_map.h"

#include <string.h>

#include "kernels/cuda/kernels.h"
#include "tests/fake-cuda/fake_cuda.h"

_Static_assert(sizeof(struct tensor_map) <= sizeof(struct cuda_tensor_map), "a tensor map fits a CUtensorMap");

#define MAX_RANK 5
#define MAX_DIM (UINT64_C(1) << 32)
#define MAX_BOX 256
#define MAX_ELEMENT_STRIDE 8
#define STRIDE_END (UINT64_C(1) << 40)
#define UNIT 16 /* addresses, strides and a box's rows are multiples of this number of bytes */
/* The numbers of values that the driver's enumerations have. */
#define N_DTYPES 16
#define N_INTERLEAVES 3
#define N_SWIZZLES 7
#define N_L2_PROMOTIONS 4
#define N_FILLS 2

/* The parameters of a call. */
struct tensor_map_request {
	int dtype;
	uint32_t rank;
	cuda_address address;
	const uint64_t *dims, *strides;
	const uint32_t *box, *element_strides;
	int interleave, swizzle, l2_promotion, fill;
};

static bool
enum_valid(int value, int n_values)
{
	return value >= 0 && value < n_values;
}

static bool
enums_valid(const struct tensor_map_request *request)
{
	return enum_valid(request->dtype, N_DTYPES) && enum_valid(request->interleave, N_INTERLEAVES) &&
	       enum_valid(request->swizzle, N_SWIZZLES) && enum_valid(request->l2_promotion, N_L2_PROMOTIONS) &&
	       enum_valid(request->fill, N_FILLS);
}

/* The rules that follow depend on these, and are those of what is modelled. */
static bool
enums_modelled(const struct tensor_map_request *request)
{
	return request->dtype == CUDA_TENSOR_U16 && request->interleave == CUDA_TENSOR_INTERLEAVE_NONE &&
	       request->swizzle == CUDA_TENSOR_SWIZZLE_128B;
}

/*
 * According to cuda.h, each dimension lies within one stride of the next, and each stride is a multiple of the one
 * before.  The second is not checked: padding after a head breaks it, and drivers accept such maps.
 */
static bool
tensor_valid(const struct tensor_map_request *request)
{
	uint64_t inner = TENSOR_MAP_ELEMENT;

	if (request->address == 0 || request->address % UNIT != 0)
		return false;
	for (uint32_t i = 0; i < request->rank; i++)
		if (request->dims[i] == 0 || request->dims[i] > MAX_DIM)
			return false;
	for (uint32_t i = 0; i + 1 < request->rank; i++) {
		uint64_t stride = request->strides[i];

		if (stride % UNIT != 0 || stride >= STRIDE_END || stride / request->dims[i] < inner)
			return false;
		inner = stride;
	}
	return true;
}

static bool
box_valid(const struct tensor_map_request *request)
{
	uint32_t row_size;

	for (uint32_t i = 0; i < request->rank; i++)
		if (request->box[i] == 0 || request->box[i] > MAX_BOX || request->element_strides[i] == 0 ||
		    request->element_strides[i] > MAX_ELEMENT_STRIDE)
			return false;
	row_size = request->box[0] * TENSOR_MAP_ELEMENT;
	return row_size % UNIT == 0 && row_size <= TENSOR_MAP_ROW_SIZE;
}

static bool
sizes_modelled(const struct tensor_map_request *request)
{
	if (request->rank != TENSOR_MAP_RANK || request->box[0] * TENSOR_MAP_ELEMENT != TENSOR_MAP_ROW_SIZE)
		return false;
	for (uint32_t i = 0; i < request->rank; i++)
		if (request->dims[i] > UINT32_MAX || request->element_strides[i] != 1)
			return false;
	return true;
}

static int
request_check(const struct tensor_map_request *request)
{
	if (request->dims == NULL || request->strides == NULL || request->box == NULL ||
	    request->element_strides == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	if (!enums_valid(request) || request->rank == 0 || request->rank > MAX_RANK)
		return CUDA_ERROR_INVALID_VALUE;
	if (!enums_modelled(request))
		return CUDA_ERROR_NOT_SUPPORTED;
	/* NaN is for dtypes of floating point. */
	if (request->fill != CUDA_TENSOR_FILL_ZERO || !tensor_valid(request) || !box_valid(request))
		return CUDA_ERROR_INVALID_VALUE;
	return sizes_modelled(request) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

static int
tensor_map_encode(struct cuda_tensor_map *to, const struct tensor_map_request *request)
{
	struct tensor_map map = { .magic = TENSOR_MAP_MAGIC, .address = request->address };
	int result;

	if (to == NULL || (uintptr_t)to % _Alignof(struct cuda_tensor_map) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_attribute_of(context_now()->device, CUDA_DEVICE_COMPUTE_MAJOR) < 9)
		return CUDA_ERROR_NOT_SUPPORTED;
	result = request_check(request);
	if (result != CUDA_SUCCESS)
		return result;
	for (uint32_t i = 0; i < TENSOR_MAP_RANK; i++) {
		map.stride[i] = i == 0 ? TENSOR_MAP_ELEMENT : request->strides[i - 1];
		map.dim[i] = (uint32_t)request->dims[i];
		map.box[i] = request->box[i];
	}
	memset(to, 0, sizeof(*to));
	memcpy(to, &map, sizeof(map));
	return CUDA_SUCCESS;
}

/* The documentation lists CUDA_ERROR_INVALID_CONTEXT, although the call only computes. */
ENTRY(cuTensorMapEncodeTiled,
      (struct cuda_tensor_map * map, int dtype, uint32_t rank, cuda_address address, const uint64_t *dims,
       const uint64_t *strides, const uint32_t *box, const uint32_t *element_strides, int interleave, int swizzle,
       int l2_promotion, int fill),
      ENTRY_CONTEXT,
      tensor_map_encode(map, &(struct tensor_map_request){ .dtype = dtype,
							   .rank = rank,
							   .address = address,
							   .dims = dims,
							   .strides = strides,
							   .box = box,
							   .element_strides = element_strides,
							   .interleave = interleave,
							   .swizzle = swizzle,
							   .l2_promotion = l2_promotion,
							   .fill = fill }))
