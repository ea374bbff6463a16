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

FAKE_CUDA_LIBS = %D%/libcuda.la %D%/libnvrtc.la

# The kernels as libraries of the host, for unit tests.
check_LTLIBRARIES += tests/libsimtkernels.la
tests_libsimtkernels_la_SOURCES = \
	tests/simt/append.cc \
	tests/simt/attention_bytes.cc \
	tests/simt/attention_mla.cc \
	tests/simt/attention_mla_window.cc \
	tests/simt/attention_mma.cc \
	tests/simt/attention_mma_window.cc \
	tests/simt/attention_simt.cc \
	tests/simt/attention_simt_document.cc \
	tests/simt/attention_simt_window.cc \
	tests/simt/kernels.h \
	tests/simt/merge.cc \
	tests/simt/mod_document.h \
	tests/simt/mod_window.h \
	tests/simt/pages.cc \
	tests/simt/plan.cc
tests_libsimtkernels_la_CPPFLAGS = $(SIMT_CPPFLAGS)
tests_libsimtkernels_la_CXXFLAGS = $(SIMT_CXXFLAGS)
SIMT_LIBS = tests/libsimtkernels.la %D%/libsimt.la
STAND_IN_KERNELS += tests/simt/append.cc tests/simt/attention_bytes.cc tests/simt/attention_mla.cc \
	tests/simt/attention_mma.cc tests/simt/attention_simt.cc tests/simt/merge.cc tests/simt/pages.cc tests/simt/plan.cc

# Built-in mods: the fake driver's are compiled from the same sources as the kernel images.
STAND_IN_KERNELS += \
	tests/simt/ready.h \
	tests/simt/ready_alibi.cc \
	tests/simt/ready_capped_window.cc \
	tests/simt/ready_document.cc \
	tests/simt/ready_prefix_lm.cc \
	tests/simt/ready_sliding_window.cc \
	tests/simt/ready_soft_cap.cc
$(%C%_libstandinkernels_la_OBJECTS): $(READY_FILES)

# The fake driver's own tests.
UNIT_TESTS += tests/unit_simt tests/unit_cuda_abi
IT_TESTS += tests/it_stand_in tests/it_stand_in_graph tests/it_stand_in_run
check_LTLIBRARIES += tests/libsimtcases.la
tests_libsimtcases_la_SOURCES = tests/simt_cases.cc tests/simt_cases.h
tests_libsimtcases_la_CPPFLAGS = $(SIMT_CPPFLAGS)
tests_libsimtcases_la_CXXFLAGS = $(SIMT_CXXFLAGS)
EXTRA_DIST += tests/simt_cases.cu
tests_unit_simt_LDADD = tests/libsimtcases.la $(LDADD)
tests_unit_cuda_abi_SOURCES = tests/unit_cuda_abi.c tests/cuda_abi.h
tests_unit_cuda_abi_CPPFLAGS = $(AM_CPPFLAGS)
EXTRA_DIST += tests/cuda_abi_theirs.c
if HAVE_CUDA_TOOLKIT
tests_unit_cuda_abi_SOURCES += tests/cuda_abi_theirs.c
tests_unit_cuda_abi_CPPFLAGS += -isystem $(CUDA_DIR)/include -DCUDA_TOOLKIT='"$(CUDA_DIR)"'
endif

# Kernel sources that nvcc compiles for each architecture, if there is a CUDA toolkit.  it_cuda_toolkit checks that the cubins
# contain the kernels that the fake driver runs.  Each directory adds its sources here.
CUDA_FILES = tests/simt_cases.cu
AM_TESTS_ENVIRONMENT += CUDA_DIR='$(CUDA_DIR)'; export CUDA_DIR; CUDA_FILES='$(CUDA_FILES)'; export CUDA_FILES;
if BUILD_CUDA_IMAGES
AM_TESTS_ENVIRONMENT += CUDA_IMAGES=yes; export CUDA_IMAGES;
endif
