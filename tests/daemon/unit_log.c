/* SPDX-License-Identifier: Apache-2.0 */
/* Limits on repeated lines, and what a line may contain. */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <stdio.h>
#include <string.h>

#include "daemon/log/log.h"

static const char *
stderr_read(void)
{
	static char text[4096];
	size_t n;

	fflush(stderr);
	n = fread(text, 1, sizeof(text) - 1, cr_get_redirected_stderr());
	text[n] = '\0';
	return text;
}

Test(log, lines_below_the_level_are_not_counted, .init = cr_redirect_stderr)
{
	struct log_limit limit = { 0 };

	log_set_level(LOG_LEVEL_WARNING);
	for (int i = 0; i < 10 * LOG_BURST; i++)
		cr_assert_not(log_limit_pass(&limit, LOG_LEVEL_INFO, "test", 1));
	cr_assert(log_limit_pass(&limit, LOG_LEVEL_WARNING, "test", 2), "they use up nothing");
	cr_assert(log_limit_pass(&limit, LOG_LEVEL_WARNING, "test", 2 + LOG_WINDOW_MS));
	log_warning("test", "end");
	cr_assert_str_eq(stderr_read(), "pagedd: warning: test: end\n");
}

Test(log, lines_that_were_omitted_are_counted, .init = cr_redirect_stderr)
{
	struct log_limit limit = { 0 };
	unsigned int n = 0;

	for (int i = 0; i < LOG_BURST + 3; i++)
		n += log_limit_pass(&limit, LOG_LEVEL_INFO, "test", 1);
	cr_assert_eq(n, LOG_BURST);
	cr_assert(log_limit_pass(&limit, LOG_LEVEL_INFO, "test", 1 + LOG_WINDOW_MS));
	cr_assert_str_eq(stderr_read(), "pagedd: warning: test: 3 similar lines were omitted\n");
}

Test(log, lines_have_no_invisible_characters, .init = cr_redirect_stderr)
{
	log_warning("test", "%s",
		    "a\xe2\x80\xae"
		    "b");
	cr_assert_str_eq(stderr_read(), "pagedd: warning: test: a???b\n");
}
