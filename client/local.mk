# The client library.
include_HEADERS += %D%/pagedclient.h %D%/paged_admin.h %D%/paged_attention.h %D%/paged_marks.h %D%/paged_mods.h
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
%C%_libpagedclient_la_CPPFLAGS = $(AM_CPPFLAGS) $(ZMQ_CFLAGS) -DPAGED_RUNSTATEDIR='"$(runstatedir)"'
%C%_libpagedclient_la_LIBADD = proto/libproto.la kernels/libkernels.la core/libcore.la common/libcommon.la \
	%D%/libcode.la $(ZMQ_LIBS) -lpthread -lm
%C%_libpagedclient_la_SOURCES = \
	%D%/admin.c \
	%D%/array.c \
	%D%/array.h \
	%D%/batch.c \
	%D%/batch.h \
	%D%/batch_calls.c \
	%D%/batch_plan.c \
	%D%/batch_reserve.c \
	%D%/block_mask.c \
	%D%/block_mask.h \
	%D%/block_mask_given.c \
	%D%/block_mask_make.c \
	%D%/block_mask_part.c \
	%D%/block_mask_place.c \
	%D%/block_mask_serve.c \
	%D%/block_mask_view.c \
	%D%/client.c \
	%D%/compute.h \
	%D%/compute_cuda.c \
	%D%/compute_cuda.h \
	%D%/compute_cuda_blocks.c \
	%D%/compute_cuda_blocks.h \
	%D%/compute_cuda_marks.c \
	%D%/compute_cuda_marks.h \
	%D%/compute_cuda_memory.c \
	%D%/compute_cuda_mods.c \
	%D%/compute_cuda_mods.h \
	%D%/compute_cuda_plan.c \
	%D%/compute_host.c \
	%D%/control.c \
	%D%/control.h \
	%D%/cuda_kernels.c \
	%D%/cuda_kernels.h \
	%D%/error.c \
	%D%/error.h \
	%D%/guard.c \
	%D%/guard.h \
	%D%/internal.h \
	%D%/map.c \
	%D%/map.h \
	%D%/map_cuda.c \
	%D%/map_cuda.h \
	%D%/map_fetch.c \
	%D%/map_fetch.h \
	%D%/map_host.c \
	%D%/mark.c \
	%D%/mark.h \
	%D%/mod.c \
	%D%/mods.c \
	%D%/mods.h \
	%D%/owner.c \
	%D%/owner.h \
	%D%/owner_embedded.c \
	%D%/owner_remote.c \
	%D%/paged_admin.h \
	%D%/paged_attention.h \
	%D%/paged_marks.h \
	%D%/paged_mods.h \
	%D%/pagedclient.h \
	%D%/params.c \
	%D%/pool.c \
	%D%/process.c \
	%D%/process.h \
	%D%/rpc.c \
	%D%/rpc.h \
	%D%/seq.c

# Compiled code: apart from the rest, for its tests.
noinst_LTLIBRARIES += %D%/libcode.la
%C%_libcode_la_CPPFLAGS = $(AM_CPPFLAGS) $(SODIUM_CFLAGS)
%C%_libcode_la_LIBADD = kernels/libimages.la $(SODIUM_LIBS) -lpthread
%C%_libcode_la_SOURCES = \
	%D%/code.c \
	%D%/code.h \
	%D%/code_cache.c \
	%D%/code_cache.h \
	%D%/code_make.c \
	%D%/code_make.h \
	%D%/code_nvrtc.c
