/* SPDX-License-Identifier: Apache-2.0 */
/**
 * top_screen.h - the terminal of top, by ncurses
 *
 * One at a time: ncurses has its state in globals.
 */
#ifndef PAGED_CTL_TOP_SCREEN_H
#define PAGED_CTL_TOP_SCREEN_H

#include "pagedctl/ctl.h"
#include "pagedctl/top_out.h"

/** Keys that are no characters. */
enum { TOP_KEY_NONE = -1, TOP_KEY_UP = 0x110000, TOP_KEY_DOWN, TOP_KEY_PAGE_UP, TOP_KEY_PAGE_DOWN, TOP_KEY_RESIZE };

/** top_screen_open - take the terminal; CTL_FAILED: it cannot show a screen, and a message says why */
enum ctl_exit top_screen_open(void);
void top_screen_close(void);

/** top_screen_begin - begin a page of the screen's present size */
struct top_out top_screen_begin(void);

/** top_screen_show - show what was written since top_screen_begin() */
void top_screen_show(void);

/** top_screen_key - next key that was pressed: a character, or TOP_KEY_*; never waits */
long top_screen_key(void);

#endif
