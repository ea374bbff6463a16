/* SPDX-License-Identifier: Apache-2.0 */
/**
 * fuzz_daemon.h - a daemon inside of a fuzz target
 *
 * All inputs of a process are sent to one daemon, with two small pools: "p" publishes, "q" does not.  Each input ends
 * with fuzz_daemon_end(), which requires that nothing is left of it.  The linker's --wrap replaces what would be slow,
 * different in each run or harmful: RPC sockets (a target passes requests to daemon_rpc_serve()), random bytes, and
 * the end of processes.
 */
#ifndef TESTS_FUZZ_DAEMON_H
#define TESTS_FUZZ_DAEMON_H

#include "daemon/daemon.h"

/** fuzz_daemon_begin - the daemon, which has no members */
struct daemon *fuzz_daemon_begin(void);

/** fuzz_daemon_pump - run the daemon's loop until it has nothing to do */
void fuzz_daemon_pump(void);

/** fuzz_daemon_connect - a connection to the control socket, which the daemon has accepted */
int fuzz_daemon_connect(void);

/** fuzz_daemon_send - send a datagram with n descriptors; the result does not matter */
void fuzz_daemon_send(int fd, const void *message, size_t size, unsigned int n_fds);

/** fuzz_daemon_hello - send a Hello, of protocol version major */
void fuzz_daemon_hello(int fd, enum wire_role role, uint32_t major, bool outlive, const uint8_t *join_token);

/**
 * fuzz_daemon_receive - receive a message, which must be a valid one with the descriptors of its kind
 *
 * @param[out] reply  valid until the next call
 * @return 1: received; 0: there is none; -1: the connection has ended
 */
int fuzz_daemon_receive(int fd, struct wire_control_reply *reply);

/** fuzz_daemon_end - all connections are closed: let their process end, and require that no session and no page is left
 */
void fuzz_daemon_end(void);

#endif
