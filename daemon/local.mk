# The daemon; core is a leaf that the client library links too.
noinst_LTLIBRARIES += %D%/core/libcore.la
%C%_core_libcore_la_SOURCES = \
	%D%/core/check.c \
	%D%/core/core.c \
	%D%/core/core.h \
	%D%/core/core_internal.h \
	%D%/core/idmap.c \
	%D%/core/pages.c \
	%D%/core/pool.c \
	%D%/core/reap.c \
	%D%/core/row.c \
	%D%/core/sequence.c \
	%D%/core/session.c
