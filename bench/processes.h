/* SPDX-License-Identifier: Apache-2.0 */
/**
 * processes.h - child processes of the suites: a pagedd, and a ZeroMQ echo
 */
#ifndef PAGED_BENCH_PROCESSES_H
#define PAGED_BENCH_PROCESSES_H

/** bench_find_file - a file of the build directory or bundle of this program; NULL: not there (static buffer) */
const char *bench_find_file(const char *name);

/**
 * bench_daemon_start - start a pagedd and wait until it is ready; returns its runtime directory
 *
 * The program is $PAGED_PAGEDD, else the one of this program's build tree, else
 * the one in $PATH.
 */
const char *bench_daemon_start(const char *configuration);
void bench_daemon_stop(void);

/** bench_echo_start - a process that echoes ZeroMQ messages over ipc; returns its endpoint */
const char *bench_echo_start(void);
void bench_echo_stop(void);

/** A ZeroMQ connection to the echo process: its own context, and a DEALER socket. */
struct bench_dealer {
	void *context, *socket;
};

void bench_dealer_open(struct bench_dealer *dealer, const char *endpoint);
void bench_dealer_close(struct bench_dealer *dealer);

/** bench_dealer_trip - send eight bytes and wait for the echo */
void bench_dealer_trip(const struct bench_dealer *dealer);

/** Round trips per sample. */
#define BENCH_TRIPS 50

/* Samples of a round trip.  The context is a struct bench_dealer, or the struct paged_client ** that pings. */
double bench_dealer_trip_us(const void *dealer);
double bench_ping_us(const void *client_p);

#endif
