# Code shared by daemon, client, kernels and protocol.
include_HEADERS += %D%/paged_reports.h %D%/paged_types.h
noinst_LTLIBRARIES += %D%/libcommon.la
%C%_libcommon_la_SOURCES = \
	%D%/clock.h \
	%D%/fault.c \
	%D%/fault.h \
	%D%/layout_params.h \
	%D%/mask_request.h \
	%D%/paged_reports.h \
	%D%/paged_types.h \
	%D%/prefix.c \
	%D%/prefix.h \
	%D%/region.c \
	%D%/region.h \
	%D%/ring.c \
	%D%/ring.h \
	%D%/sequence.h \
	%D%/status.c \
	%D%/status.h \
	%D%/text.c \
	%D%/text.h \
	%D%/zmq_needs.c \
	%D%/zmq_needs.h
