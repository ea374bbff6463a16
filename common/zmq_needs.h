/* SPDX-License-Identifier: Apache-2.0 */
/**
 * zmq_needs.h - tries what libzmq takes for granted
 *
 * libzmq aborts the process where it cannot create its threads, or their epoll instances and eventfds.  A limit that
 * forbids them (RLIMIT_NPROC, pids.max, RLIMIT_NOFILE, a seccomp filter) must be an error of the program instead.
 */
#ifndef PAGED_ZMQ_NEEDS_H
#define PAGED_ZMQ_NEEDS_H

#include "common/status.h"

/** zmq_needs_check - create and end what one context with a few sockets needs; call it before zmq_ctx_new() */
enum paged_status zmq_needs_check(struct paged_error *error);

#endif
