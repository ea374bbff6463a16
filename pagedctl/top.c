/* SPDX-License-Identifier: Apache-2.0 */
/* The command top: keys, and the daemon's end and return. */
#include "config.h"

#include <limits.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

#include "pagedctl/ctl.h"
#include "pagedctl/top.h"
#include "pagedctl/top_screen.h"
#include "pagedctl/top_view.h"
#include "pagedctl/turns.h"

enum { ESCAPE = 27, DELETE = 127 };

struct top {
	struct ctl *ctl;
	struct top_view view;
	struct top_sample now, before;
	struct top_interval interval; /* from `before` to `now` */
	uint64_t due_ms;              /* time of the next sample */
};

/* -------------------------------------------------------------- the daemon */

/* What the daemon's end or silence means for the numbers on the screen: they are old. */
static void
top_notice(struct top *top, enum paged_status status)
{
	time_t now = time(NULL);
	char clock[16] = "";
	struct tm local;

	if (localtime_r(&now, &local) != NULL)
		strftime(clock, sizeof(clock), "%T", &local);
	if (status == PAGED_ERR_GONE)
		snprintf(top->view.notice, sizeof(top->view.notice), "pagedd ended at %s; waiting for its return",
			 clock);
	else
		snprintf(top->view.notice, sizeof(top->view.notice), "%s: %s", clock,
			 paged_client_error(top->ctl->client));
}

static void
top_disconnect(struct top *top)
{
	top_notice(top, PAGED_ERR_GONE);
	paged_client_close(top->ctl->client);
	top->ctl->client = NULL;
}

/* Attaches to the daemon's next life; until it is there, the notice stays. */
static bool
top_connect(struct top *top)
{
	if (top->ctl->client != NULL)
		return true;
	if (ctl_open(top->ctl) == PAGED_OK)
		return true;
	paged_client_close(top->ctl->client);
	top->ctl->client = NULL;
	return false;
}

static void
top_take(struct top *top)
{
	struct top_sample sample;
	enum paged_status status;

	top->due_ms = turns_now_ms() + top->ctl->delay_ms;
	if (!top_connect(top))
		return;
	status = top_sample_take(top->ctl->client, &sample);
	if (status == PAGED_ERR_GONE) {
		top_disconnect(top);
	} else if (status != PAGED_OK) {
		top_notice(top, status);
	} else {
		top_sample_free(&top->before);
		top->before = top->now;
		top->now = sample;
		top->interval = top_interval_make(&top->now, &top->before);
		top->view.notice[0] = '\0';
	}
}

/* -------------------------------------------------------------------- keys */

/* A key while the filter is typed.  It is UTF-8 in the view, one character after the other. */
static void
top_key_filter(struct top_view *view, long key)
{
	size_t n = strlen(view->filter);
	char bytes[MB_LEN_MAX];
	mbstate_t state = { 0 };
	size_t size;

	if (key == '\r' || key == '\n') {
		view->entering = false;
	} else if (key == ESCAPE) {
		view->entering = false;
		view->filter[0] = '\0';
	} else if (key == '\b' || key == DELETE) {
		while (n > 0 && ((unsigned char)view->filter[n - 1] & 0xc0) == 0x80)
			n--;
		view->filter[n > 0 ? n - 1 : 0] = '\0';
	} else if (key >= ' ' && key < TOP_KEY_UP) {
		size = wcrtomb(bytes, (wchar_t)key, &state);
		if (size == (size_t)-1 || n + size > TOP_MAX_FILTER)
			return;
		memcpy(view->filter + n, bytes, size);
		view->filter[n + size] = '\0';
	}
}

static void
top_scroll(struct top_view *view, long by)
{
	long first = (long)view->first_session + by;

	view->first_session = first > 0 ? (size_t)first : 0; /* the page limits it at the end of the list */
}

/* False: quit. */
static bool
top_key(struct top *top, long key)
{
	static const char sort_keys[] = { [TOP_BY_ID] = 'i',
					  [TOP_BY_NAME] = 'n',
					  [TOP_BY_SEQUENCES] = 's',
					  [TOP_BY_PAGES] = 'p',
					  [TOP_BY_LOAD] = 'l' };
	struct top_view *view = &top->view;

	if (view->help && key != TOP_KEY_RESIZE) {
		view->help = false;
		return true;
	}
	if (view->entering) {
		top_key_filter(view, key);
		return true;
	}
	for (size_t sort = 0; sort < sizeof(sort_keys); sort++)
		if (key == sort_keys[sort])
			view->sort = (enum top_sort)sort;
	switch (key) {
	case 'q':
		return false;
	case 'h':
	case '?':
		view->help = true;
		break;
	case 'r':
		view->reverse = !view->reverse;
		break;
	case '/':
		view->entering = true;
		view->filter[0] = '\0';
		break;
	case ESCAPE:
		view->filter[0] = '\0';
		break;
	case ' ':
		top_take(top);
		break;
	case TOP_KEY_UP:
		top_scroll(view, -1);
		break;
	case TOP_KEY_DOWN:
		top_scroll(view, 1);
		break;
	case TOP_KEY_PAGE_UP:
		top_scroll(view, -10);
		break;
	case TOP_KEY_PAGE_DOWN:
		top_scroll(view, 10);
		break;
	}
	return true;
}

static bool
top_read_keys(struct top *top)
{
	long key;

	while ((key = top_screen_key()) != TOP_KEY_NONE)
		if (!top_key(top, key))
			return false;
	return true;
}

/* -------------------------------------------------------------- the command */

static void
top_show(struct top *top)
{
	struct top_out out = top_screen_begin();

	top_view_page(&top->view, &top->interval, &out);
	top_screen_show();
}

/* Waits for a key, a change of the daemon, or the next sample; false: quit. */
static bool
top_turn(struct top *top, const struct turns *turns)
{
	struct paged_client *client = top->ctl->client;
	/* poll(2) ignores a descriptor of -1. */
	struct pollfd fds[] = { { .fd = STDIN_FILENO, .events = POLLIN },
				{ .fd = client != NULL ? paged_client_fd(client) : -1, .events = POLLIN } };

	switch (turns_wait(turns, fds, 2, top->due_ms)) {
	case TURNS_INTERRUPTED:
		return false;
	case TURNS_DUE:
		top_take(top);
		break;
	case TURNS_READY:
		if (fds[0].revents & (POLLHUP | POLLERR))
			return false;
		if (fds[1].revents != 0 && paged_client_dispatch(client) == PAGED_ERR_GONE)
			top_disconnect(top);
		break;
	}
	/* Also after a signal: ncurses reports a new size as a key. */
	return top_read_keys(top);
}

static enum ctl_exit
top_run(struct ctl *ctl)
{
	struct top top = { .ctl = ctl };
	enum paged_status status = top_sample_take(ctl->client, &top.now);
	struct turns turns;
	enum ctl_exit code;

	if (status != PAGED_OK)
		return ctl_fail(ctl, status);
	code = top_screen_open();
	if (code == CTL_OK) {
		turns_begin(&turns);
		top.interval = top_interval_make(&top.now, &top.before);
		top.due_ms = turns_now_ms() + ctl->delay_ms;
		do {
			top_show(&top);
		} while (top_turn(&top, &turns));
		top_screen_close();
	}
	top_sample_free(&top.now);
	top_sample_free(&top.before);
	return code;
}

enum ctl_exit
ctl_top(struct ctl *ctl)
{
	if (ctl->json && !ctl->once)
		return ctl_usage("top --json goes with --once");
	setlocale(LC_CTYPE, ""); /* for names; numbers keep their decimal point */
	if (ctl->delay_ms == 0)
		ctl->delay_ms = 1000;
	return ctl->once ? top_once(ctl) : top_run(ctl);
}
