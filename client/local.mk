# The client library.
include_HEADERS += %D%/pagedclient.h %D%/paged_admin.h %D%/paged_attention.h %D%/paged_batch.h \
	%D%/paged_marks.h %D%/paged_mods.h %D%/paged_sharing.h %D%/paged_watch.h
lib_LTLIBRARIES += %D%/libpagedclient.la
pkgconfigdir = $(libdir)/pkgconfig
pkgconfig_DATA = %D%/pagedclient.pc

# current:revision:age.  A release that only repairs: revision + 1.  One that
# adds: current + 1, revision 0, age + 1, and a node in the map.  One that
# takes away or changes: current + 1, revision 0, age 0 (a new soname).
%C%_libpagedclient_la_LDFLAGS = $(AM_LDFLAGS) -version-info 0:0:0 -no-undefined \
	-Wl,--version-script=$(srcdir)/%D%/pagedclient.map
EXTRA_%C%_libpagedclient_la_DEPENDENCIES = $(srcdir)/%D%/pagedclient.map
EXTRA_DIST += %D%/pagedclient.map
%C%_libpagedclient_la_CPPFLAGS = $(AM_CPPFLAGS) $(ZMQ_CFLAGS) $(SODIUM_CFLAGS) -DPAGED_RUNSTATEDIR='"$(runstatedir)"'
%C%_libpagedclient_la_LIBADD = proto/libproto.la kernels/libkernels.la core/libcore.la common/libcommon.la \
	%D%/cuda/libjit.la $(SODIUM_LIBS) $(ZMQ_LIBS) -lpthread -lm
%C%_libpagedclient_la_SOURCES = \
	%D%/paged_admin.h \
	%D%/paged_attention.h \
	%D%/paged_batch.h \
	%D%/paged_marks.h \
	%D%/paged_mods.h \
	%D%/paged_sharing.h \
	%D%/paged_watch.h \
	%D%/pagedclient.h \
	%D%/params.c \
	%D%/params.h

include client/api/local.mk
include client/owner/local.mk
include client/cuda/local.mk
