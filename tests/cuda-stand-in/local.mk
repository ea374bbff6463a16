# A libcuda.so.1 that runs kernels' own source on the host.  Tests find it by
# LD_LIBRARY_PATH; nothing of it is installed, nor built but for tests.
#
# -fsanitize=thread makes kernels call hooks.c, and stands with the
# preprocessor's flags so that no link line has it: libtsan must stay out.
SIMT_CPPFLAGS = $(AM_CPPFLAGS) -DSIMT_HOST_HEADER='"tests/cuda-stand-in/simt_host.h"' -fsanitize=thread
SIMT_CXXFLAGS = $(PAGED_CXXFLAGS)
# Without sanitizers: they know nothing of fibres.
SIMT_CFLAGS = $(PAGED_PLAIN_CFLAGS)

check_LTLIBRARIES += %D%/libsimt.la
%C%_libsimt_la_SOURCES = \
	%D%/block.c \
	%D%/copy_async.c \
	%D%/fibre.c \
	%D%/fibre.h \
	%D%/hooks.c \
	%D%/model.c \
	%D%/race.c \
	%D%/race_cell.h \
	%D%/region.c \
	%D%/registry.c \
	%D%/simt_block.h \
	%D%/simt_host.h \
	%D%/simt_model.h \
	%D%/simt_run.h
%C%_libsimt_la_CFLAGS = $(SIMT_CFLAGS)
%C%_libsimt_la_LIBADD = -lm -ldl -lpthread

# Kernels that the stand-in's modules hold: each directory's, by a file that includes them.
STAND_IN_KERNELS = tests/simt_cases.cc
check_LTLIBRARIES += %D%/libstandinkernels.la
%C%_libstandinkernels_la_SOURCES = $(STAND_IN_KERNELS)
%C%_libstandinkernels_la_CPPFLAGS = $(SIMT_CPPFLAGS)
%C%_libstandinkernels_la_CXXFLAGS = $(SIMT_CXXFLAGS)

# -rpath makes a shared library of what is not installed.
check_LTLIBRARIES += %D%/libcuda.la
%C%_libcuda_la_SOURCES = \
	%D%/backing.c \
	%D%/capture.c \
	%D%/copy.c \
	%D%/cubin.c \
	%D%/cubin.h \
	%D%/device.c \
	%D%/entry.c \
	%D%/event.c \
	%D%/graph.c \
	%D%/inject.c \
	%D%/inject.h \
	%D%/memory.c \
	%D%/module.c \
	%D%/stand_in.h \
	%D%/stand_in_image.h \
	%D%/stream.c \
	%D%/vmm.c
%C%_libcuda_la_CFLAGS = $(SIMT_CFLAGS)
%C%_libcuda_la_LDFLAGS = -rpath /nonexistent -version-info 1 -Wl,-z,nodelete
%C%_libcuda_la_LIBADD = %D%/libstandinkernels.la %D%/libsimt.la

# A libnvrtc.so.13 that calls the host's compiler.
check_LTLIBRARIES += %D%/libnvrtc.la
%C%_libnvrtc_la_SOURCES = %D%/inject.c %D%/inject.h %D%/nvrtc.c
%C%_libnvrtc_la_CFLAGS = $(SIMT_CFLAGS)
%C%_libnvrtc_la_CPPFLAGS = $(AM_CPPFLAGS) -DSTAND_IN_CXX='"$(CXX)"' -DSTAND_IN_SOURCE='"$(abs_top_srcdir)"' \
	-DSTAND_IN_LIBRARIES='"$(abs_top_builddir)/%D%/.libs"'
%C%_libnvrtc_la_LDFLAGS = -rpath /nonexistent -version-info 13
%C%_libnvrtc_la_LIBADD = -lpthread
