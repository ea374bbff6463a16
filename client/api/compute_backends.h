/* SPDX-License-Identifier: Apache-2.0 */
/**
 * compute_backends.h - the back ends that this library has: host and cuda
 */
#ifndef PAGED_CLIENT_COMPUTE_BACKENDS_H
#define PAGED_CLIENT_COMPUTE_BACKENDS_H

#include "client/api/compute_ops.h"

/** compute_backends_find - the operations of the back end with this name; NULL if there is none */
const struct compute_ops *compute_backends_find(const char *name);

/** compute_backends_close - free the back ends' state of a client, after its pools were closed */
void compute_backends_close(struct paged_client *client, bool in_child);

#endif
