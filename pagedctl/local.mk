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
	%D%/print.c \
	%D%/print.h \
	%D%/quota.c \
	%D%/tickets.c \
	%D%/turns.c \
	%D%/turns.h \
	%D%/watch.c
%C%_pagedctl_CPPFLAGS = $(AM_CPPFLAGS) -DPAGED_RUNSTATEDIR='"$(runstatedir)"'
%C%_pagedctl_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
%C%_pagedctl_LDADD = client/libpagedclient.la $(JANSSON_LIBS)
