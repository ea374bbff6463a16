/* SPDX-License-Identifier: Apache-2.0 */
/**
 * device.h - tensors of the host's, for a moment in a GPU's memory
 *
 * For a pool of back end cuda: K, V and q are copied there before a layer's
 * calls, and the result back.  An engine that computes on the GPU has its
 * tensors there already and needs none of this.  The CUDA driver is loaded at
 * run time.  Not yet run on a GPU.
 */
#ifndef LLAMA_DEVICE_H
#define LLAMA_DEVICE_H

#include <stddef.h>

enum device_slot { DEVICE_Q, DEVICE_K, DEVICE_V, DEVICE_OUT, DEVICE_N_SLOTS };

struct device;

/** device_open - the GPU in whose memory an address lies; its context stays current in this thread */
struct device *device_open(const void *address);

/** device_close - all work is done; takes NULL */
void device_close(struct device *device);

/** device_stream - where copies go, and the batch's calls are to */
void *device_stream(const struct device *device);

/** device_in - a copy of what is on the host, or with from NULL just room for it, in a slot's memory */
void *device_in(struct device *device, enum device_slot slot, const void *from, size_t size);

/** device_wait - until all work is done */
void device_wait(struct device *device);

/** device_out - what a slot has, once all work is done */
void device_out(struct device *device, enum device_slot slot, void *to, size_t size);

#endif
