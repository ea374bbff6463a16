/* SPDX-License-Identifier: Apache-2.0 */
/**
 * sharing_daemon.h - the prefix cache through the library and a pagedd
 */
#ifndef PAGED_BENCH_SHARING_SHARING_DAEMON_H
#define PAGED_BENCH_SHARING_SHARING_DAEMON_H

#include "bench/suite.h"

/* The names of the groups, for --only. */
#define SHARING_REQUESTS "requests"
#define SHARING_DECODE "decode"
#define SHARING_GIVE "give"

/** sharing_requests_run - match, start and fork of 32k tokens, compared with an empty request */
void sharing_requests_run(struct bench_report *report);

/** sharing_decode_run - decode steps that publish, compared with steps that do not */
void sharing_decode_run(struct bench_report *report);

/** sharing_give_run - give and adopt of a sequence of 32k tokens, compared with an empty request and with copying it */
void sharing_give_run(struct bench_report *report);

#endif
