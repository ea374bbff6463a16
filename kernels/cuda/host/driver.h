/* SPDX-License-Identifier: Apache-2.0 */
/**
 * driver.h - the CUDA driver, loaded at run time
 *
 * libcuda.so.1 and libnvrtc are part of a machine's driver and toolkit and are
 * never linked.  The same binaries run with and without them, and errors name
 * the missing one.  This header declares the part of the driver's interface
 * that is used here, after NVIDIA's documentation of its ABI.  Where a toolkit
 * is installed, tests/fake-cuda/unit_cuda_abi.c compares every number and size with its
 * cuda.h.
 *
 * Device addresses are integers (cuda_address), never pointers, because the
 * host must not dereference them.
 *
 * Life: cuda_driver_open() fills a struct cuda_driver, which is valid until
 * cuda_driver_close().  A process may have any number of them; the library is
 * loaded once.
 * Threads: the table is read-only; the driver's functions are thread-safe.
 * Fork: CUDA does not survive fork(); a child must not call any of it.
 */
#ifndef PAGED_KERNELS_CUDA_HOST_DRIVER_H
#define PAGED_KERNELS_CUDA_HOST_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

typedef uint64_t cuda_address; /* CUdeviceptr */
typedef int cuda_device;       /* CUdevice: an index, which may differ between processes; the UUID does not */
typedef struct CUctx_st *cuda_context;
typedef struct CUstream_st *cuda_stream;
typedef struct CUevent_st *cuda_event;
typedef struct CUmod_st *cuda_module;
typedef struct CUfunc_st *cuda_function;
typedef uint64_t cuda_allocation; /* CUmemGenericAllocationHandle */

struct cuda_tensor_map; /* CUtensorMap; kernels.h has the definition, because kernels take it too */

struct cuda_uuid {
	uint8_t bytes[16];
};

#define CUDA_IPC_HANDLE_SIZE 64

struct cuda_ipc_handle {
	uint8_t bytes[CUDA_IPC_HANDLE_SIZE];
};

/** Results that this code distinguishes; for others only cuGetErrorName() is used. */
enum cuda_result {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_STUB_LIBRARY = 34,
	CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
	CUDA_ERROR_NO_DEVICE = 100,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_INVALID_IMAGE = 200,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_MAP_FAILED = 205,
	CUDA_ERROR_ALREADY_MAPPED = 208,
	CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
	CUDA_ERROR_ECC_UNCORRECTABLE = 214,
	CUDA_ERROR_INVALID_PTX = 218,
	CUDA_ERROR_NVLINK_UNCORRECTABLE = 220,
	CUDA_ERROR_JIT_COMPILER_NOT_FOUND = 221,
	CUDA_ERROR_UNSUPPORTED_PTX = 222, /* CUDA_ERROR_UNSUPPORTED_PTX_VERSION: newer than the driver */
	CUDA_ERROR_JIT_COMPILATION_DISABLED = 223,
	CUDA_ERROR_CONTAINED = 226,
	CUDA_ERROR_INVALID_SOURCE = 300,
	CUDA_ERROR_INVALID_HANDLE = 400,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_NOT_READY = 600,
	CUDA_ERROR_ILLEGAL_ADDRESS = 700,
	CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
	CUDA_ERROR_LAUNCH_TIMEOUT = 702,
	CUDA_ERROR_ASSERT = 710,
	CUDA_ERROR_HARDWARE_STACK = 714,
	CUDA_ERROR_LAUNCH_FAILED = 719,
	CUDA_ERROR_TENSOR_MEMORY_LEAK = 721,
	CUDA_ERROR_NOT_PERMITTED = 800,
	CUDA_ERROR_NOT_SUPPORTED = 801,
	CUDA_ERROR_SYSTEM_NOT_READY = 802,
	CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
	CUDA_ERROR_MPS_CLIENT_TERMINATED = 810,
	CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
	CUDA_ERROR_EXTERNAL_DEVICE = 911,
	CUDA_ERROR_INVALID_CLUSTER_SIZE = 912,
	CUDA_ERROR_UNKNOWN = 999,
};

enum cuda_device_attribute {
	CUDA_DEVICE_MAX_PITCH = 11, /* bytes; of a cuda_copy_2d */
	CUDA_DEVICE_MULTIPROCESSORS = 16,
	CUDA_DEVICE_INTEGRATED = 18,
	CUDA_DEVICE_COMPUTE_MODE = 20,
	CUDA_DEVICE_COMPUTE_MAJOR = 75,
	CUDA_DEVICE_COMPUTE_MINOR = 76,
	CUDA_DEVICE_SHARED_PER_BLOCK_OPTIN = 97,
	CUDA_DEVICE_VMM = 102,
	CUDA_DEVICE_POSIX_FD_HANDLES = 103,
	CUDA_DEVICE_RDMA_WITH_VMM = 110, /* ..._GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED */
	CUDA_DEVICE_IPC_EVENTS = 125,
	CUDA_DEVICE_MPS_ENABLED = 133,
};

enum cuda_compute_mode { CUDA_COMPUTE_DEFAULT = 0, CUDA_COMPUTE_PROHIBITED = 2, CUDA_COMPUTE_EXCLUSIVE_PROCESS = 3 };

enum cuda_function_attribute {
	CUDA_FUNCTION_LOCAL_SIZE = 3,
	CUDA_FUNCTION_REGISTERS = 4,
	CUDA_FUNCTION_PTX_VERSION = 5, /* the virtual architecture that it was compiled for: 80, 90 */
	CUDA_FUNCTION_MAX_DYNAMIC_SHARED = 8,
	CUDA_FUNCTION_SHARED_CARVEOUT = 9, /* ..._PREFERRED_SHARED_MEMORY_CARVEOUT: percent of the L1 cache's memory */
};

enum cuda_pointer_attribute {
	CUDA_POINTER_CONTEXT = 1,
	CUDA_POINTER_DEVICE_ORDINAL = 9,
	CUDA_POINTER_IS_LEGACY_IPC_CAPABLE = 10,
	CUDA_POINTER_IS_RDMA_CAPABLE = 15, /* ..._IS_GPU_DIRECT_RDMA_CAPABLE */
};

enum {
	CUDA_STREAM_NON_BLOCKING = 1,
	CUDA_EVENT_DISABLE_TIMING = 2,
	CUDA_EVENT_INTERPROCESS = 4,
	CUDA_IPC_LAZY_PEER_ACCESS = 1,
	CUDA_ALLOCATION_PINNED = 1, /* device memory that stays on its device; not page-locked host memory */
	CUDA_HANDLE_POSIX_FD = 1,
	CUDA_LOCATION_DEVICE = 1,
	CUDA_CARVEOUT_MAX_SHARED = 100,
	CUDA_ACCESS_READ = 1,
	CUDA_ACCESS_READ_WRITE = 3,
	CUDA_GRANULARITY_RECOMMENDED = 1,
	CUDA_CAPTURE_NONE = 0,
	CUDA_CAPTURE_GLOBAL = 0,
	CUDA_CAPTURE_THREAD_LOCAL = 1,
	CUDA_CAPTURE_RELAXED = 2,
};

/** Values of tensor_map_encode's parameters; names of their types begin with CUtensorMap. */
enum {
	CUDA_TENSOR_U16 = 1, /* CU_TENSOR_MAP_DATA_TYPE_UINT16: copies do not convert elements */
	CUDA_TENSOR_INTERLEAVE_NONE = 0,
	CUDA_TENSOR_SWIZZLE_128B = 3,      /* boxes have rows of at most 128 bytes, whose 16-byte units are permuted */
	CUDA_TENSOR_L2_PROMOTION_128B = 2, /* the bytes that a miss in the L2 cache reads */
	CUDA_TENSOR_L2_PROMOTION_256B = 3,
	CUDA_TENSOR_FILL_ZERO = 0, /* CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE: elements out of bounds are 0 */
};

struct cuda_location {
	int type;
	int id;
};

struct cuda_allocation_properties {
	int type;
	int handle_types;
	struct cuda_location location;
	void *unused;
	uint8_t compressed;
	uint8_t rdma_capable; /* network adapters may read and write the memory */
	uint8_t more_flags[6];
};

struct cuda_access {
	struct cuda_location location;
	int flags;
};

/** Kinds of memory of a copy (CUmemorytype). */
enum cuda_memory_type { CUDA_MEMORY_HOST = 1, CUDA_MEMORY_DEVICE = 2 };

/** A copy of `height` pieces of width_bytes, which are a pitch apart (CUDA_MEMCPY2D). */
struct cuda_copy_2d {
	size_t from_x_bytes, from_y;
	int from_type; /* enum cuda_memory_type */
	const void *from_host;
	cuda_address from_device;
	void *from_array;
	size_t from_pitch;
	size_t to_x_bytes, to_y;
	int to_type;
	void *to_host;
	cuda_address to_device;
	void *to_array;
	size_t to_pitch;
	size_t width_bytes, height;
};

/** Attributes of a launch (CUlaunchAttributeID). */
enum cuda_launch_attribute_id {
	/* CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: may start before the kernel before it has ended */
	CUDA_LAUNCH_DEPENDENT = 6,
};

struct cuda_launch_attribute {
	int id;
	uint32_t unused;
	union {
		int allowed;
		uint64_t words[8];
	} value;
};

struct cuda_launch_config {
	unsigned int grid_x, grid_y, grid_z;
	unsigned int block_x, block_y, block_z;
	unsigned int shared_size;
	cuda_stream stream;
	struct cuda_launch_attribute *attributes;
	unsigned int n_attributes;
};

/*
 * Symbol in the library (with the suffix of its ABI version), field, parameters.
 * All functions return enum cuda_result as an int.
 */
#define CUDA_DRIVER_FUNCTIONS(F)                                                                                       \
	F(cuInit, init, (unsigned int flags))                                                                          \
	F(cuDriverGetVersion, driver_version, (int *version))                                                          \
	F(cuGetErrorName, error_name, (int result, const char **name))                                                 \
	F(cuGetErrorString, error_string, (int result, const char **text))                                             \
	F(cuDeviceGetCount, device_count, (int *n))                                                                    \
	F(cuDeviceGet, device_get, (cuda_device * device, int ordinal))                                                \
	F(cuDeviceGetName, device_name, (char *name, int size, cuda_device device))                                    \
	F(cuDeviceGetUuid_v2, device_uuid, (struct cuda_uuid * uuid, cuda_device device))                              \
	F(cuDeviceGetAttribute, device_attribute, (int *value, int attribute, cuda_device device))                     \
	F(cuDeviceTotalMem_v2, device_memory, (size_t * size, cuda_device device))                                     \
	F(cuDevicePrimaryCtxRetain, context_retain, (cuda_context * context, cuda_device device))                      \
	F(cuDevicePrimaryCtxRelease_v2, context_release, (cuda_device device))                                         \
	F(cuCtxPushCurrent_v2, context_push, (cuda_context context))                                                   \
	F(cuCtxPopCurrent_v2, context_pop, (cuda_context * context))                                                   \
	F(cuCtxGetCurrent, context_current, (cuda_context * context))                                                  \
	F(cuCtxGetDevice, context_device, (cuda_device * device))                                                      \
	F(cuCtxSynchronize, context_synchronize, (void))                                                               \
	F(cuMemAlloc_v2, alloc, (cuda_address * address, size_t size))                                                 \
	F(cuMemFree_v2, free, (cuda_address address))                                                                  \
	F(cuMemGetInfo_v2, memory_info, (size_t * available, size_t * total))                                          \
	F(cuMemHostAlloc, host_alloc, (void **p, size_t size, unsigned int flags))                                     \
	F(cuMemFreeHost, host_free, (void *p))                                                                         \
	F(cuMemcpyHtoDAsync_v2, copy_in, (cuda_address to, const void *from, size_t size, cuda_stream stream))         \
	F(cuMemcpyDtoHAsync_v2, copy_out, (void *to, cuda_address from, size_t size, cuda_stream stream))              \
	F(cuMemcpyDtoDAsync_v2, copy, (cuda_address to, cuda_address from, size_t size, cuda_stream stream))           \
	F(cuMemcpy2DAsync_v2, copy_2d, (const struct cuda_copy_2d *copy, cuda_stream stream))                          \
	F(cuMemsetD8Async, fill, (cuda_address to, unsigned char value, size_t n, cuda_stream stream))                 \
	F(cuPointerGetAttribute, pointer_attribute, (void *value, int attribute, cuda_address address))                \
	F(cuIpcGetMemHandle, ipc_export, (struct cuda_ipc_handle * handle, cuda_address address))                      \
	F(cuIpcOpenMemHandle_v2, ipc_open,                                                                             \
	  (cuda_address * address, struct cuda_ipc_handle handle, unsigned int flags))                                 \
	F(cuIpcCloseMemHandle, ipc_close, (cuda_address address))                                                      \
	F(cuIpcGetEventHandle, ipc_export_event, (struct cuda_ipc_handle * handle, cuda_event event))                  \
	F(cuIpcOpenEventHandle, ipc_open_event, (cuda_event * event, struct cuda_ipc_handle handle))                   \
	F(cuMemGetAllocationGranularity, vmm_granularity,                                                              \
	  (size_t * size, const struct cuda_allocation_properties *properties, int option))                            \
	F(cuMemCreate, vmm_create,                                                                                     \
	  (cuda_allocation * allocation, size_t size, const struct cuda_allocation_properties *properties,             \
	   unsigned long long flags))                                                                                  \
	F(cuMemRelease, vmm_release, (cuda_allocation allocation))                                                     \
	F(cuMemAddressReserve, vmm_reserve,                                                                            \
	  (cuda_address * address, size_t size, size_t alignment, cuda_address hint, unsigned long long flags))        \
	F(cuMemAddressFree, vmm_unreserve, (cuda_address address, size_t size))                                        \
	F(cuMemMap, vmm_map,                                                                                           \
	  (cuda_address address, size_t size, size_t offset, cuda_allocation allocation, unsigned long long flags))    \
	F(cuMemUnmap, vmm_unmap, (cuda_address address, size_t size))                                                  \
	F(cuMemSetAccess, vmm_access, (cuda_address address, size_t size, const struct cuda_access *access, size_t n)) \
	F(cuMemExportToShareableHandle, vmm_export,                                                                    \
	  (void *handle, cuda_allocation allocation, int handle_type, unsigned long long flags))                       \
	F(cuMemImportFromShareableHandle, vmm_import, (cuda_allocation * allocation, void *handle, int handle_type))   \
	F(cuStreamCreate, stream_create, (cuda_stream * stream, unsigned int flags))                                   \
	F(cuStreamDestroy_v2, stream_destroy, (cuda_stream stream))                                                    \
	F(cuStreamSynchronize, stream_synchronize, (cuda_stream stream))                                               \
	F(cuStreamQuery, stream_query, (cuda_stream stream))                                                           \
	F(cuStreamWaitEvent, stream_wait, (cuda_stream stream, cuda_event event, unsigned int flags))                  \
	F(cuStreamIsCapturing, stream_capturing, (cuda_stream stream, int *status))                                    \
	F(cuThreadExchangeStreamCaptureMode, capture_mode, (int *mode))                                                \
	F(cuEventCreate, event_create, (cuda_event * event, unsigned int flags))                                       \
	F(cuEventDestroy_v2, event_destroy, (cuda_event event))                                                        \
	F(cuEventRecord, event_record, (cuda_event event, cuda_stream stream))                                         \
	F(cuEventQuery, event_query, (cuda_event event))                                                               \
	F(cuEventSynchronize, event_synchronize, (cuda_event event))                                                   \
	F(cuModuleLoadData, module_load, (cuda_module * module, const void *image))                                    \
	F(cuModuleUnload, module_unload, (cuda_module module))                                                         \
	F(cuModuleGetFunction, module_function, (cuda_function * function, cuda_module module, const char *name))      \
	F(cuFuncGetAttribute, function_attribute, (int *value, int attribute, cuda_function function))                 \
	F(cuFuncSetAttribute, function_set, (cuda_function function, int attribute, int value))                        \
	F(cuOccupancyMaxActiveBlocksPerMultiprocessor, occupancy,                                                      \
	  (int *n_blocks, cuda_function function, int n_threads, size_t shared_size))                                  \
	F(cuLaunchKernel, launch,                                                                                      \
	  (cuda_function function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,                      \
	   unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_size,                 \
	   cuda_stream stream, void **parameters, void **extra))

/** The same, of functions that older drivers lack: the field is NULL. */
#define CUDA_DRIVER_OPTIONAL_FUNCTIONS(F)                                                                              \
	F(cuLaunchKernelEx, launch_ex,                                                                                 \
	  (const struct cuda_launch_config *config, cuda_function function, void **parameters, void **extra))          \
	F(cuOccupancyMaxActiveClusters, cluster_occupancy,                                                             \
	  (int *n_clusters, cuda_function function, const struct cuda_launch_config *config))                          \
	F(cuTensorMapEncodeTiled, tensor_map_encode,                                                                   \
	  (struct cuda_tensor_map * map, int dtype, uint32_t rank, cuda_address address, const uint64_t *dims,         \
	   const uint64_t *strides, const uint32_t *box, const uint32_t *element_strides, int interleave, int swizzle, \
	   int l2_promotion, int fill))

struct cuda_driver {
	void *library;
	int version; /* CUDA version that the driver supports: 1000 * major + 10 * minor */
#define CUDA_DRIVER_FIELD(symbol, field, parameters) int(*field) parameters;
	CUDA_DRIVER_FUNCTIONS(CUDA_DRIVER_FIELD)
	CUDA_DRIVER_OPTIONAL_FUNCTIONS(CUDA_DRIVER_FIELD)
#undef CUDA_DRIVER_FIELD
};

/**
 * cuda_driver_open - load libcuda.so.1 and initialise it
 *
 * @retval PAGED_ERR_UNSUPPORTED  there is no such library, it is too old (the
 *                                text names the missing function), or there is
 *                                no device; the text begins with "no CUDA driver
 *                                (...)" or names the driver's error
 */
enum paged_status cuda_driver_open(struct cuda_driver *driver, struct paged_error *error);

/** cuda_driver_close - also valid for a struct of zeros */
void cuda_driver_close(struct cuda_driver *driver);

/**
 * cuda_fail - convert a driver call's failure to a status and an error text
 *
 * Out of memory becomes PAGED_ERR_NOMEM, an operation that the device or driver
 * does not support PAGED_ERR_UNSUPPORTED, every other error PAGED_ERR_BACKEND.
 *
 * @param[in] what  begins the text: "pool gpu0: cuMemAlloc of 12 bytes"; the error's name and text follow
 */
enum paged_status cuda_fail(const struct cuda_driver *driver, int result, struct paged_error *error, const char *what,
			    ...) __attribute__((format(printf, 4, 5)));

/**
 * cuda_add_driver_age - say in an error that a driver is older than the CUDA that compiled what it did not load
 *
 * Nothing changes if it is not older; otherwise the status becomes PAGED_ERR_UNSUPPORTED.
 *
 * @param[in] compiled_by  1000 * major + 10 * minor; 0: unknown
 */
void cuda_add_driver_age(const struct cuda_driver *driver, int compiled_by, struct paged_error *error);

/**
 * cuda_add_nvrtc_version - say in an error which NVRTC compiled what a driver did not load, and what that supports
 *
 * If NVRTC is newer than the driver, the status becomes PAGED_ERR_UNSUPPORTED.
 *
 * @param[in] nvrtc  1000 * major + 10 * minor
 */
void cuda_add_nvrtc_version(const struct cuda_driver *driver, int nvrtc, struct paged_error *error);

/** cuda_is_sticky - does every later CUDA call of this process fail after this result? */
bool cuda_is_sticky(int result);

/** cuda_device_find - find the device with this UUID among the devices that this process sees */
enum paged_status cuda_device_find(const struct cuda_driver *driver, const struct cuda_uuid *uuid,
				   cuda_device *device_p, struct paged_error *error);

#endif
