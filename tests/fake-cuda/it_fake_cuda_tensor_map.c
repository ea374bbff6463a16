/* SPDX-License-Identifier: Apache-2.0 */
/* The fake CUDA driver's cuTensorMapEncodeTiled: what it writes, and what it refuses. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/kernels.h"
#include "tests/fake-cuda/fixture.h"
#include "tests/fake-cuda/tensor_map.h"

#define MAX_RANK 5

/* The parameters of a call. */
struct encode {
	int dtype;
	uint32_t rank;
	cuda_address address;
	uint64_t dims[MAX_RANK], strides[MAX_RANK];
	uint32_t box[MAX_RANK], element_strides[MAX_RANK];
	int interleave, swizzle, l2_promotion, fill;
};

/* Five pages of two heads of 16 tokens of 80 dims, with 128 bytes of padding after each head. */
static const struct encode good = {
	.dtype = CUDA_TENSOR_U16,
	.rank = TENSOR_MAP_RANK,
	.address = 0x10000010,
	.dims = { 80, 16, 2, 5, 1 },
	.strides = { 160, 2688, 5376, 26880, 26880 },
	.box = { 64, 8, 1, 1, 1 },
	.element_strides = { 1, 1, 1, 1, 1 },
	.interleave = CUDA_TENSOR_INTERLEAVE_NONE,
	.swizzle = CUDA_TENSOR_SWIZZLE_128B,
	.l2_promotion = CUDA_TENSOR_L2_PROMOTION_256B,
	.fill = CUDA_TENSOR_FILL_ZERO,
};

static int
encode_to(struct cuda_tensor_map *map, const struct encode *p)
{
	return cuda.tensor_map_encode(map, p->dtype, p->rank, p->address, p->dims, p->strides, p->box,
				      p->element_strides, p->interleave, p->swizzle, p->l2_promotion, p->fill);
}

/* Fails the test unless the call, with one parameter changed, returns this CUDA result and leaves the map as it was. */
#define changed_gives(wanted, field, value)                                                        \
	do {                                                                                       \
		struct encode changed_ = good;                                                     \
		struct cuda_tensor_map map_ = { { 1 } }, before_ = map_;                           \
                                                                                                   \
		changed_.field = (value);                                                          \
		gives(wanted, encode_to(&map_, &changed_));                                        \
		it_require((wanted) == CUDA_SUCCESS || memcmp(&map_, &before_, sizeof(map_)) == 0, \
			   "the refused call wrote a map");                                        \
	} while (0)
#define invalid(field, value) changed_gives(CUDA_ERROR_INVALID_VALUE, field, value)
#define not_modelled(field, value) changed_gives(CUDA_ERROR_NOT_SUPPORTED, field, value)

IT_TEST(tensor_map_has_what_was_encoded)
{
	struct cuda_tensor_map map;
	struct tensor_map written;

	fake_cuda_start(0);
	memset(&map, 0xff, sizeof(map));
	ok(encode_to(&map, &good));
	memcpy(&written, &map, sizeof(written));
	it_require(written.magic == TENSOR_MAP_MAGIC && written.address == good.address);
	it_require(written.stride[0] == TENSOR_MAP_ELEMENT);
	for (int i = 0; i < TENSOR_MAP_RANK; i++)
		it_require(written.dim[i] == good.dims[i] && written.box[i] == good.box[i] &&
			   (i == 0 || written.stride[i] == good.strides[i - 1]));
	fake_cuda_finish();
}

IT_TEST(tensor_map_at_the_limits_is_encoded)
{
	fake_cuda_start(0);
	changed_gives(CUDA_SUCCESS, box[1], 256);
	changed_gives(CUDA_SUCCESS, dims[3], UINT32_MAX);
	changed_gives(CUDA_SUCCESS, strides[2], (UINT64_C(1) << 40) - 16);
	changed_gives(CUDA_SUCCESS, strides[1], 2560); /* no padding */
	changed_gives(CUDA_SUCCESS, l2_promotion, CUDA_TENSOR_L2_PROMOTION_128B);
	fake_cuda_finish();
}

IT_TEST(invalid_tensors_are_refused)
{
	fake_cuda_start(0);
	invalid(address, 0);
	invalid(address, good.address + 8);
	invalid(rank, 0);
	invalid(rank, MAX_RANK + 1);
	for (int i = 0; i < TENSOR_MAP_RANK; i++) {
		invalid(dims[i], 0);
		invalid(dims[i], (UINT64_C(1) << 32) + 1);
	}
	for (int i = 0; i < TENSOR_MAP_RANK - 1; i++) {
		invalid(strides[i], good.strides[i] + 8);
		invalid(strides[i], UINT64_C(1) << 40);
		invalid(strides[i], 0);
	}
	invalid(strides[0], 144);
	invalid(strides[1], 2544);
	invalid(strides[2], 5360);
	fake_cuda_finish();
}

IT_TEST(invalid_boxes_are_refused)
{
	fake_cuda_start(0);
	for (int i = 0; i < TENSOR_MAP_RANK; i++) {
		invalid(box[i], 0);
		invalid(box[i], 257);
		invalid(element_strides[i], 0);
		invalid(element_strides[i], 9);
	}
	invalid(box[0], 60);
	invalid(box[0], 72);
	fake_cuda_finish();
}

IT_TEST(invalid_enums_are_refused)
{
	fake_cuda_start(0);
	invalid(dtype, -1);
	invalid(dtype, 16);
	invalid(interleave, 3);
	invalid(swizzle, 7);
	invalid(l2_promotion, 4);
	invalid(fill, 2);
	invalid(fill, CUDA_TENSOR_FILL_ZERO + 1); /* NaN, which no integer is */
	fake_cuda_finish();
}

IT_TEST(invalid_addresses_of_arrays_and_maps_are_refused)
{
	struct cuda_tensor_map maps[2];
	const struct encode *p = &good;

	fake_cuda_start(0);
	gives(CUDA_ERROR_INVALID_VALUE, encode_to(NULL, p));
	gives(CUDA_ERROR_INVALID_VALUE, encode_to((void *)&maps[0].words[4], p));
#define ARRAYS_GIVE(dims, strides, box, element_strides)                                                       \
	gives(CUDA_ERROR_INVALID_VALUE,                                                                        \
	      cuda.tensor_map_encode(maps, p->dtype, p->rank, p->address, dims, strides, box, element_strides, \
				     p->interleave, p->swizzle, p->l2_promotion, p->fill))
	ARRAYS_GIVE(NULL, p->strides, p->box, p->element_strides);
	ARRAYS_GIVE(p->dims, NULL, p->box, p->element_strides);
	ARRAYS_GIVE(p->dims, p->strides, NULL, p->element_strides);
	ARRAYS_GIVE(p->dims, p->strides, p->box, NULL);
	fake_cuda_finish();
}

IT_TEST(tensor_maps_that_are_not_modelled_are_refused)
{
	fake_cuda_start(0);
	not_modelled(rank, TENSOR_MAP_RANK - 1);
	not_modelled(rank, TENSOR_MAP_RANK + 1);
	not_modelled(dtype, CUDA_TENSOR_U16 - 1);
	not_modelled(dtype, CUDA_TENSOR_U16 + 1);
	not_modelled(interleave, CUDA_TENSOR_INTERLEAVE_NONE + 1);
	not_modelled(swizzle, CUDA_TENSOR_SWIZZLE_128B - 1);
	not_modelled(swizzle, CUDA_TENSOR_SWIZZLE_128B + 1);
	not_modelled(box[0], 56);
	not_modelled(dims[3], UINT64_C(1) << 32);
	for (int i = 0; i < TENSOR_MAP_RANK; i++)
		not_modelled(element_strides[i], 2);
	fake_cuda_finish();
}

IT_TEST(tensor_maps_need_a_context)
{
	struct cuda_tensor_map map;
	cuda_context context;

	fake_cuda_start(0);
	ok(cuda.context_pop(&context));
	gives(CUDA_ERROR_INVALID_CONTEXT, encode_to(&map, &good));
	ok(cuda.context_push(context));
	ok(encode_to(&map, &good));
	fake_cuda_finish();
}

IT_TEST(tensor_maps_need_compute_capability_9)
{
	struct cuda_tensor_map map;

	setenv("PAGED_FAKE_CUDA_ATTRIBUTES", "75=8,76=9", 1);
	fake_cuda_start(0);
	gives(CUDA_ERROR_NOT_SUPPORTED, encode_to(&map, &good));
	fake_cuda_finish();
}

IT_TEST(failures_of_tensor_maps_are_injected)
{
	struct cuda_tensor_map map;

	setenv("PAGED_FAKE_CUDA_FAIL", "cuTensorMapEncodeTiled@2=999", 1);
	fake_cuda_start(0);
	ok(encode_to(&map, &good));
	gives(CUDA_ERROR_UNKNOWN, encode_to(&map, &good));
	ok(encode_to(&map, &good));
	fake_cuda_finish();
}

IT_MAIN
