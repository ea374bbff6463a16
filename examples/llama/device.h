/* SPDX-License-Identifier: Apache-2.0 */
/**
 * device.h - temporary copies of host tensors in a GPU's memory
 *
 * For a pool with backend = cuda: K, V and q are copied to the GPU before a
 * layer's calls, and the result is copied back.  An engine that computes on the
 * GPU has its tensors there already and does not need this.  The CUDA driver is loaded at
 * run time.  Not yet run on a GPU.
 */
#ifndef LLAMA_DEVICE_H
#define LLAMA_DEVICE_H

#include <stddef.h>

enum device_slot { DEVICE_Q, DEVICE_K, DEVICE_V, DEVICE_OUT, DEVICE_N_SLOTS };

struct device;

/** device_open - open the GPU that owns an address; its context stays current in this thread */
struct device *device_open(const void *address);

/** device_close - call when all work is complete; takes NULL */
void device_close(struct device *device);

/** device_stream - the stream of the copies; the batch's calls must use it too */
void *device_stream(const struct device *device);

/** device_in - copy host data to a slot's device memory; from NULL: only allocate */
void *device_in(struct device *device, enum device_slot slot, const void *from, size_t size);

/** device_wait - wait until all work is complete */
void device_wait(struct device *device);

/** device_out - wait for all work, then copy a slot's contents to the host */
void device_out(struct device *device, enum device_slot slot, void *to, size_t size);

#endif
