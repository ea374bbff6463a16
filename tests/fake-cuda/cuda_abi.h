/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Constants and sizes of the CUDA driver API: in our declarations, and in the
 * toolkit's.  One file cannot include both, because some names are the same,
 * so each side builds an array from this list.
 */
#ifndef TESTS_CUDA_ABI_H
#define TESTS_CUDA_ABI_H

#include <stddef.h>

/* The results that tests/support/cuda_graph.h declares. */
#define CUDA_ABI_CAPTURE_RESULTS(N)                                                     \
	N(CUDA_ERROR_ILLEGAL_STATE, CUDA_ERROR_ILLEGAL_STATE)                           \
	N(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) \
	N(CUDA_ERROR_STREAM_CAPTURE_MERGE, CUDA_ERROR_STREAM_CAPTURE_MERGE)             \
	N(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED)     \
	N(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, CUDA_ERROR_STREAM_CAPTURE_UNJOINED)       \
	N(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, CUDA_ERROR_STREAM_CAPTURE_ISOLATION)     \
	N(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)       \
	N(CUDA_ERROR_CAPTURED_EVENT, CUDA_ERROR_CAPTURED_EVENT)                         \
	N(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)

#define CUDA_ABI_RESULTS(N)                                                             \
	N(CUDA_SUCCESS, CUDA_SUCCESS)                                                   \
	N(CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE)                           \
	N(CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY)                           \
	N(CUDA_ERROR_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED)                       \
	N(CUDA_ERROR_STUB_LIBRARY, CUDA_ERROR_STUB_LIBRARY)                             \
	N(CUDA_ERROR_DEVICE_UNAVAILABLE, CUDA_ERROR_DEVICE_UNAVAILABLE)                 \
	N(CUDA_ERROR_NO_DEVICE, CUDA_ERROR_NO_DEVICE)                                   \
	N(CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE)                         \
	N(CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_INVALID_IMAGE)                           \
	N(CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT)                       \
	N(CUDA_ERROR_MAP_FAILED, CUDA_ERROR_MAP_FAILED)                                 \
	N(CUDA_ERROR_ALREADY_MAPPED, CUDA_ERROR_ALREADY_MAPPED)                         \
	N(CUDA_ERROR_NO_BINARY_FOR_GPU, CUDA_ERROR_NO_BINARY_FOR_GPU)                   \
	N(CUDA_ERROR_ECC_UNCORRECTABLE, CUDA_ERROR_ECC_UNCORRECTABLE)                   \
	N(CUDA_ERROR_NVLINK_UNCORRECTABLE, CUDA_ERROR_NVLINK_UNCORRECTABLE)             \
	N(CUDA_ERROR_INVALID_PTX, CUDA_ERROR_INVALID_PTX)                               \
	N(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, CUDA_ERROR_JIT_COMPILER_NOT_FOUND)         \
	N(CUDA_ERROR_UNSUPPORTED_PTX, CUDA_ERROR_UNSUPPORTED_PTX_VERSION)               \
	N(CUDA_ERROR_JIT_COMPILATION_DISABLED, CUDA_ERROR_JIT_COMPILATION_DISABLED)     \
	N(CUDA_ERROR_INVALID_SOURCE, CUDA_ERROR_INVALID_SOURCE)                         \
	N(CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE)                         \
	N(CUDA_ERROR_NOT_FOUND, CUDA_ERROR_NOT_FOUND)                                   \
	N(CUDA_ERROR_NOT_READY, CUDA_ERROR_NOT_READY)                                   \
	N(CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS)                       \
	N(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)       \
	N(CUDA_ERROR_LAUNCH_TIMEOUT, CUDA_ERROR_LAUNCH_TIMEOUT)                         \
	N(CUDA_ERROR_ASSERT, CUDA_ERROR_ASSERT)                                         \
	N(CUDA_ERROR_MPS_CLIENT_TERMINATED, CUDA_ERROR_MPS_CLIENT_TERMINATED)           \
	N(CUDA_ERROR_EXTERNAL_DEVICE, CUDA_ERROR_EXTERNAL_DEVICE)                       \
	N(CUDA_ERROR_INVALID_CLUSTER_SIZE, CUDA_ERROR_INVALID_CLUSTER_SIZE)             \
	N(CUDA_ERROR_HARDWARE_STACK, CUDA_ERROR_HARDWARE_STACK_ERROR)                   \
	N(CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED)                           \
	N(CUDA_ERROR_NOT_PERMITTED, CUDA_ERROR_NOT_PERMITTED)                           \
	N(CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED)                           \
	N(CUDA_ERROR_SYSTEM_NOT_READY, CUDA_ERROR_SYSTEM_NOT_READY)                     \
	N(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)         \
	N(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) \
	N(CUDA_ERROR_UNKNOWN, CUDA_ERROR_UNKNOWN)                                       \
	CUDA_ABI_CAPTURE_RESULTS(N)

#define CUDA_ABI_ATTRIBUTES(N)                                                                           \
	N(CUDA_DEVICE_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)                         \
	N(CUDA_DEVICE_MAX_PITCH, CU_DEVICE_ATTRIBUTE_MAX_PITCH)                                          \
	N(CUDA_DEVICE_INTEGRATED, CU_DEVICE_ATTRIBUTE_INTEGRATED)                                        \
	N(CUDA_DEVICE_COMPUTE_MODE, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE)                                    \
	N(CUDA_DEVICE_COMPUTE_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)                       \
	N(CUDA_DEVICE_COMPUTE_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)                       \
	N(CUDA_DEVICE_SHARED_PER_BLOCK_OPTIN, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)     \
	N(CUDA_DEVICE_VMM, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)                      \
	N(CUDA_DEVICE_POSIX_FD_HANDLES, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) \
	N(CUDA_DEVICE_RDMA_WITH_VMM, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)        \
	N(CUDA_DEVICE_IPC_EVENTS, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED)                               \
	N(CUDA_DEVICE_MPS_ENABLED, CU_DEVICE_ATTRIBUTE_MPS_ENABLED)                                      \
	N(CUDA_COMPUTE_DEFAULT, CU_COMPUTEMODE_DEFAULT)                                                  \
	N(CUDA_COMPUTE_PROHIBITED, CU_COMPUTEMODE_PROHIBITED)                                            \
	N(CUDA_COMPUTE_EXCLUSIVE_PROCESS, CU_COMPUTEMODE_EXCLUSIVE_PROCESS)                              \
	N(CUDA_FUNCTION_LOCAL_SIZE, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)                                  \
	N(CUDA_FUNCTION_REGISTERS, CU_FUNC_ATTRIBUTE_NUM_REGS)                                           \
	N(CUDA_FUNCTION_PTX_VERSION, CU_FUNC_ATTRIBUTE_PTX_VERSION)                                      \
	N(CUDA_FUNCTION_MAX_DYNAMIC_SHARED, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)             \
	N(CUDA_FUNCTION_SHARED_CARVEOUT, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)             \
	N(CUDA_POINTER_CONTEXT, CU_POINTER_ATTRIBUTE_CONTEXT)                                            \
	N(CUDA_POINTER_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)                              \
	N(CUDA_POINTER_IS_LEGACY_IPC_CAPABLE, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE)           \
	N(CUDA_POINTER_IS_RDMA_CAPABLE, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE)

#define CUDA_ABI_FLAGS(N)                                                     \
	N(CUDA_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING)                   \
	N(CUDA_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING)                 \
	N(CUDA_EVENT_INTERPROCESS, CU_EVENT_INTERPROCESS)                     \
	N(CUDA_IPC_LAZY_PEER_ACCESS, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)      \
	N(CUDA_ALLOCATION_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED)              \
	N(CUDA_HANDLE_POSIX_FD, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)     \
	N(CUDA_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE)                  \
	N(CUDA_CARVEOUT_MAX_SHARED, CU_SHAREDMEM_CARVEOUT_MAX_SHARED)         \
	N(CUDA_ACCESS_READ, CU_MEM_ACCESS_FLAGS_PROT_READ)                    \
	N(CUDA_ACCESS_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)         \
	N(CUDA_GRANULARITY_RECOMMENDED, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) \
	N(CUDA_CAPTURE_NONE, CU_STREAM_CAPTURE_STATUS_NONE)                   \
	N(CUDA_CAPTURE_ACTIVE, CU_STREAM_CAPTURE_STATUS_ACTIVE)               \
	N(CUDA_CAPTURE_INVALIDATED, CU_STREAM_CAPTURE_STATUS_INVALIDATED)     \
	N(CUDA_CAPTURE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL)                 \
	N(CUDA_CAPTURE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)     \
	N(CUDA_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED)

#define CUDA_ABI_COPY_2D(N)                                                                  \
	N(CUDA_MEMORY_HOST, CU_MEMORYTYPE_HOST)                                              \
	N(CUDA_MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE)                                          \
	N(sizeof(struct cuda_copy_2d), sizeof(CUDA_MEMCPY2D))                                \
	N(offsetof(struct cuda_copy_2d, from_type), offsetof(CUDA_MEMCPY2D, srcMemoryType))  \
	N(offsetof(struct cuda_copy_2d, from_device), offsetof(CUDA_MEMCPY2D, srcDevice))    \
	N(offsetof(struct cuda_copy_2d, from_pitch), offsetof(CUDA_MEMCPY2D, srcPitch))      \
	N(offsetof(struct cuda_copy_2d, to_type), offsetof(CUDA_MEMCPY2D, dstMemoryType))    \
	N(offsetof(struct cuda_copy_2d, to_device), offsetof(CUDA_MEMCPY2D, dstDevice))      \
	N(offsetof(struct cuda_copy_2d, to_pitch), offsetof(CUDA_MEMCPY2D, dstPitch))        \
	N(offsetof(struct cuda_copy_2d, width_bytes), offsetof(CUDA_MEMCPY2D, WidthInBytes)) \
	N(offsetof(struct cuda_copy_2d, height), offsetof(CUDA_MEMCPY2D, Height))

#define CUDA_ABI_LAUNCH(N)                                                                            \
	N(CUDA_LAUNCH_DEPENDENT, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)               \
	N(sizeof(struct cuda_launch_attribute), sizeof(CUlaunchAttribute))                            \
	N(offsetof(struct cuda_launch_attribute, value.allowed),                                      \
	  offsetof(CUlaunchAttribute, value.programmaticStreamSerializationAllowed))                  \
	N(sizeof(struct cuda_launch_config), sizeof(CUlaunchConfig))                                  \
	N(offsetof(struct cuda_launch_config, block_x), offsetof(CUlaunchConfig, blockDimX))          \
	N(offsetof(struct cuda_launch_config, shared_size), offsetof(CUlaunchConfig, sharedMemBytes)) \
	N(offsetof(struct cuda_launch_config, stream), offsetof(CUlaunchConfig, hStream))             \
	N(offsetof(struct cuda_launch_config, attributes), offsetof(CUlaunchConfig, attrs))           \
	N(offsetof(struct cuda_launch_config, n_attributes), offsetof(CUlaunchConfig, numAttrs))

#define CUDA_ABI_TENSOR_MAP(N)                                               \
	N(CUDA_TENSOR_U16, CU_TENSOR_MAP_DATA_TYPE_UINT16)                   \
	N(CUDA_TENSOR_INTERLEAVE_NONE, CU_TENSOR_MAP_INTERLEAVE_NONE)        \
	N(CUDA_TENSOR_SWIZZLE_128B, CU_TENSOR_MAP_SWIZZLE_128B)              \
	N(CUDA_TENSOR_L2_PROMOTION_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B) \
	N(CUDA_TENSOR_L2_PROMOTION_256B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B) \
	N(CUDA_TENSOR_FILL_ZERO, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)          \
	N(sizeof(struct cuda_tensor_map), sizeof(CUtensorMap))

#define CUDA_ABI_SIZES(N)                                                                                 \
	N(sizeof(cuda_address), sizeof(CUdeviceptr))                                                      \
	N(sizeof(cuda_device), sizeof(CUdevice))                                                          \
	N(sizeof(cuda_allocation), sizeof(CUmemGenericAllocationHandle))                                  \
	N(sizeof(struct cuda_uuid), sizeof(CUuuid))                                                       \
	N(sizeof(struct cuda_ipc_handle), sizeof(CUipcMemHandle))                                         \
	N(sizeof(struct cuda_ipc_handle), sizeof(CUipcEventHandle))                                       \
	N(sizeof(struct cuda_location), sizeof(CUmemLocation))                                            \
	N(offsetof(struct cuda_location, id), offsetof(CUmemLocation, id))                                \
	N(sizeof(struct cuda_allocation_properties), sizeof(CUmemAllocationProp))                         \
	N(offsetof(struct cuda_allocation_properties, handle_types),                                      \
	  offsetof(CUmemAllocationProp, requestedHandleTypes))                                            \
	N(offsetof(struct cuda_allocation_properties, location), offsetof(CUmemAllocationProp, location)) \
	N(offsetof(struct cuda_allocation_properties, rdma_capable),                                      \
	  offsetof(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable))                                 \
	N(sizeof(struct cuda_access), sizeof(CUmemAccessDesc))                                            \
	N(offsetof(struct cuda_access, flags), offsetof(CUmemAccessDesc, flags))

#define CUDA_ABI_NVRTC(N)                                                \
	N(CUDA_NVRTC_SUCCESS, NVRTC_SUCCESS)                             \
	N(CUDA_NVRTC_ERROR_OUT_OF_MEMORY, NVRTC_ERROR_OUT_OF_MEMORY)     \
	N(CUDA_NVRTC_ERROR_INVALID_INPUT, NVRTC_ERROR_INVALID_INPUT)     \
	N(CUDA_NVRTC_ERROR_INVALID_PROGRAM, NVRTC_ERROR_INVALID_PROGRAM) \
	N(CUDA_NVRTC_ERROR_INVALID_OPTION, NVRTC_ERROR_INVALID_OPTION)   \
	N(CUDA_NVRTC_ERROR_COMPILATION, NVRTC_ERROR_COMPILATION)         \
	N(CUDA_NVRTC_ERROR_INTERNAL_ERROR, NVRTC_ERROR_INTERNAL_ERROR)

#define CUDA_ABI(N)            \
	CUDA_ABI_RESULTS(N)    \
	CUDA_ABI_ATTRIBUTES(N) \
	CUDA_ABI_FLAGS(N)      \
	CUDA_ABI_SIZES(N) CUDA_ABI_COPY_2D(N) CUDA_ABI_LAUNCH(N) CUDA_ABI_TENSOR_MAP(N) CUDA_ABI_NVRTC(N)

/** The toolkit's numbers in the list's order. */
extern const long cuda_abi_theirs[];

#endif
