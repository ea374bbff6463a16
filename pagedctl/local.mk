# The administrator's command; it uses only the installed headers.
bin_PROGRAMS += %D%/pagedctl
%C%_pagedctl_SOURCES = \
	%D%/check.c \
	%D%/ctl.c \
	%D%/ctl.h \
	%D%/drain.c \
	%D%/kick.c \
	%D%/list.c \
	%D%/log_level.c \
	%D%/main.c \
	%D%/mask.c \
	%D%/prefixes.c \
	%D%/pins.c \
	%D%/print.c \
	%D%/print.h \
	%D%/quota.c \
	%D%/tickets.c \
	%D%/top.c \
	%D%/top.h \
	%D%/top_once.c \
	%D%/top_out.c \
	%D%/top_out.h \
	%D%/top_sample.c \
	%D%/top_sample.h \
	%D%/top_screen.c \
	%D%/top_screen.h \
	%D%/top_view.c \
	%D%/top_view.h \
	%D%/turns.c \
	%D%/turns.h \
	%D%/watch.c
%C%_pagedctl_CPPFLAGS = $(AM_CPPFLAGS) -DPAGED_RUNSTATEDIR='"$(runstatedir)"'
%C%_pagedctl_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) $(NCURSES_CFLAGS)
%C%_pagedctl_LDADD = client/libpagedclient.la $(JANSSON_LIBS) $(NCURSES_LIBS)
