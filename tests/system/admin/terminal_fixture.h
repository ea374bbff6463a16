/* SPDX-License-Identifier: Apache-2.0 */
/**
 * terminal_fixture.h - pagedctl in a terminal of tmux, for the it_* programs
 *
 * One terminal at a time.  A test that starts one is skipped without tmux.
 */
#ifndef TESTS_TERMINAL_FIXTURE_H
#define TESTS_TERMINAL_FIXTURE_H

#include "tests/support/harness.h"

enum { SCREEN_SIZE = 1 << 16 };

/** What the terminal showed last, as lines of text; set by all functions of this header that look at it. */
extern char screen[SCREEN_SIZE];

/**
 * terminal_start - run a shell command in a terminal of this size
 *
 * "TOP" in the command stands for "pagedctl top".  Afterwards the terminal shows "ended with " and the exit status.
 */
void terminal_start(const struct it_daemon *daemon, const char *columns, const char *lines, const char *command);
void terminal_stop(void);

/** tmux - run a command of tmux, whose arguments end with NULL; returns its output (static buffer) */
const char *tmux(const char *first, ...) __attribute__((sentinel));

/** screen_keys - press keys: characters, or one of tmux's names of keys */
void screen_keys(const char *text);

void screen_capture(void);

/** screen_wait, screen_wait_gone, screen_wait_order - wait for a text, its end, one text before another; or fail */
void screen_wait(const char *text);
void screen_wait_gone(const char *text);
void screen_wait_order(const char *first, const char *second);

/** screen_line - the line that contains the text (static buffer) */
const char *screen_line(const char *text);

/** screen_expect_size - fail unless there are n_lines lines, none of them wider than n_columns */
void screen_expect_size(int n_columns, unsigned int n_lines);

/** text_count - how often the part occurs in the text */
unsigned int text_count(const char *text, const char *part);

#endif
