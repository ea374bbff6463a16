/* SPDX-License-Identifier: Apache-2.0 */
/**
 * marks_fixture.h - a writer that marks its appends, and readers in other processes that wait for the mark
 *
 * For it_* programs.  Functions with `from` and `to` run in a process of it_fork().  Any failure ends the test.
 */
#ifndef TESTS_SYSTEM_MARKS_FIXTURE_H
#define TESTS_SYSTEM_MARKS_FIXTURE_H

#include "tests/system/batch_fixture.h"

/** Two rows of a pool of cuda_daemon_start(). */
extern const struct batch_fixture_params marks_params;

/** Sent by a writer to its reader. */
struct marks_message {
	paged_seq_id seq[BATCH_FIXTURE_MAX_ROWS];
	struct paged_mark mark;
};

/** marks_writer_open - open a batch with its first n_rows rows; nothing is written */
void marks_writer_open(struct batch_fixture *fixture, uint32_t n_rows);

/** marks_reader_open - take the sequences of a writer's message, which is received, and allocate attention's results */
void marks_reader_open(struct batch_fixture *fixture, int from, struct marks_message *message);

/** marks_plan_and_attend - plan all rows and attend to them */
void marks_plan_and_attend(struct batch_fixture *fixture);

/** marks_writer - write all rows, mark that, send the message, and end after one byte was received */
void marks_writer(int from, int to, void *argument);

/** marks_writer_and_reader_run - run marks_writer(), and then a reader that gets its message */
void marks_writer_and_reader_run(void (*reads)(int from, int to, void *argument), void *argument);

#endif
