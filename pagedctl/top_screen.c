/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "pagedctl/top_screen.h"

#include <curses.h>
#include <langinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <term.h>
#include <unistd.h>

/* A key that is alone follows an Escape within this time; a person is slower. */
enum { ESCAPE_MS = 25 };

static attr_t attributes[TOP_N_STYLES];

/* Looks at the terminal's description before ncurses does, which would exit with a message of its own. */
static enum ctl_exit
terminal_check(void)
{
	const char *term = getenv("TERM");
	int found;

	if (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO)) {
		fprintf(stderr, "pagedctl: top needs a terminal; use top --once\n");
		return CTL_FAILED;
	}
	if (term == NULL || term[0] == '\0') {
		fprintf(stderr, "pagedctl: TERM is not set, so that top cannot use the terminal; use top --once\n");
		return CTL_FAILED;
	}
	if (setupterm(NULL, STDOUT_FILENO, &found) != OK && found != 1) {
		fprintf(stderr, "pagedctl: there is no description of the terminal %s (TERM); use top --once\n", term);
		return CTL_FAILED;
	}
	if (found != 1 || cursor_address == NULL) {
		fprintf(stderr, "pagedctl: the terminal %s (TERM) cannot move its cursor; use top --once\n", term);
		return CTL_FAILED;
	}
	return CTL_OK;
}

static void
styles_init(void)
{
	const char *no_color = getenv("NO_COLOR");
	static const short colors[TOP_N_STYLES] = {
		[TOP_NOTICE] = COLOR_YELLOW,
		[TOP_REFERENCED] = COLOR_GREEN,
		[TOP_CACHED] = COLOR_CYAN,
		[TOP_QUARANTINED] = COLOR_RED,
	};

	attributes[TOP_HEADING] = A_BOLD;
	attributes[TOP_SORTED] = A_BOLD | A_REVERSE;
	attributes[TOP_NOTICE] = A_BOLD;
	attributes[TOP_FREE] = A_DIM;
	if ((no_color != NULL && no_color[0] != '\0') || !has_colors())
		return;
	start_color();
	use_default_colors();
	for (short style = 1; style < TOP_N_STYLES; style++) {
		if (colors[style] == 0)
			continue;
		init_pair(style, colors[style], -1);
		attributes[style] |= (attr_t)COLOR_PAIR(style);
	}
}

enum ctl_exit
top_screen_open(void)
{
	enum ctl_exit code = terminal_check();

	if (code != CTL_OK)
		return code;
	set_escdelay(ESCAPE_MS);
	if (newterm(NULL, stdout, stdin) == NULL) {
		fprintf(stderr, "pagedctl: the terminal %s (TERM) cannot be used; use top --once\n", getenv("TERM"));
		return CTL_FAILED;
	}
	styles_init();
	cbreak();
	noecho();
	nonl();
	curs_set(0);
	keypad(stdscr, TRUE);
	nodelay(stdscr, TRUE);
	return CTL_OK;
}

void
top_screen_close(void)
{
	endwin();
}

static void
screen_write(struct top_out *out, enum top_style style, const char *text)
{
	attrset(attributes[style]);
	mvaddstr(out->line, out->column, text);
}

struct top_out
top_screen_begin(void)
{
	erase();
	return (struct top_out){
		.n_columns = COLS,
		.n_lines = LINES,
		.utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0,
		.write = screen_write,
	};
}

void
top_screen_show(void)
{
	refresh();
}

long
top_screen_key(void)
{
	wint_t c;

	switch (get_wch(&c)) {
	case OK:
		return (long)c;
	case KEY_CODE_YES:
		break;
	default:
		return TOP_KEY_NONE;
	}
	switch (c) {
	case KEY_UP:
		return TOP_KEY_UP;
	case KEY_DOWN:
		return TOP_KEY_DOWN;
	case KEY_PPAGE:
		return TOP_KEY_PAGE_UP;
	case KEY_NPAGE:
		return TOP_KEY_PAGE_DOWN;
	case KEY_BACKSPACE:
		return '\b';
	default: /* KEY_RESIZE, and keys without a meaning: the page is written again */
		return TOP_KEY_RESIZE;
	}
}
