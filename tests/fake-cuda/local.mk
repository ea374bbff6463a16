# A libcuda.so.1 that runs kernels' own source on the host.  Tests find it by
# LD_LIBRARY_PATH; nothing of it is installed, nor built but for tests.
#
# -fsanitize=thread makes kernels call hooks.c, and stands with the
# preprocessor's flags so that no link line has it: libtsan must stay out.
SIMT_CPPFLAGS = $(AM_CPPFLAGS) -DSIMT_HOST_HEADER='"tests/fake-cuda/simt_host.h"' -fsanitize=thread
SIMT_CXXFLAGS = $(PAGED_CXXFLAGS)
# Without sanitizers: they know nothing of fibres.
SIMT_CFLAGS = $(PAGED_PLAIN_CFLAGS)

TEST_LIBS += %D%/libsimt.la
%C%_libsimt_la_SOURCES = %D%/block.c %D%/copy_async.c %D%/failure.c %D%/fibre.c %D%/fibre.h %D%/hooks.c %D%/mbarrier.c %D%/model.c \
	%D%/race.c %D%/race_cell.h %D%/race_readers.c %D%/race_readers.h %D%/region.c %D%/registry.c %D%/simt_block.h \
	%D%/simt_host.h %D%/simt_model.h %D%/simt_run.h %D%/tensor_copy.c %D%/tensor_map.h %D%/wgmma.c
%C%_libsimt_la_CFLAGS = $(SIMT_CFLAGS)
%C%_libsimt_la_LIBADD = -lm -ldl -lpthread

# The kernels that the fake driver's modules contain: .cc files that include the .cu of a kernel.  Other directories add
# theirs.
FAKE_CUDA_KERNELS = %D%/kernels/append.cc %D%/kernels/attention_bulk.cc %D%/kernels/attention_bytes.cc \
	%D%/kernels/attention_combine.cc \
	%D%/kernels/attention_mla.cc %D%/kernels/attention_mla_cluster.cc %D%/kernels/attention_mla_wgmma.cc \
	%D%/kernels/attention_mma.cc \
	%D%/kernels/attention_prefill.cc %D%/kernels/attention_simt.cc \
	%D%/kernels/attention_wgmma.cc %D%/kernels/gpu_reader.cc %D%/kernels/link.h %D%/kernels/attention_merge.cc \
	%D%/kernels/pages.cc %D%/kernels/plan.cc %D%/kernels/simt_cases.cc \
	%D%/kernels/simt_cases.h
# Built-in mods, compiled from the same sources as the kernel images
FAKE_CUDA_KERNELS += %D%/kernels/aot.h %D%/kernels/aot_alibi.cc %D%/kernels/aot_capped_window.cc \
	%D%/kernels/aot_document.cc %D%/kernels/aot_prefix_lm.cc %D%/kernels/aot_sliding_window.cc \
	%D%/kernels/aot_soft_cap.cc
TEST_LIBS += %D%/libfakecudakernels.la
%C%_libfakecudakernels_la_SOURCES = $(FAKE_CUDA_KERNELS)
%C%_libfakecudakernels_la_CPPFLAGS = $(SIMT_CPPFLAGS)
%C%_libfakecudakernels_la_CXXFLAGS = $(SIMT_CXXFLAGS)
$(%C%_libfakecudakernels_la_OBJECTS): $(AOT_FILES)

# Kernels for tests that run them without a driver
TEST_LIBS += %D%/libsimtkernels.la
%C%_libsimtkernels_la_SOURCES = %D%/kernels/append.cc %D%/kernels/attention_bulk.cc \
	%D%/kernels/attention_bulk_window.cc %D%/kernels/attention_bytes.cc \
	%D%/kernels/attention_bytes_document.cc %D%/kernels/attention_bytes_window.cc %D%/kernels/attention_combine.cc \
	%D%/kernels/attention_mla.cc %D%/kernels/attention_mla_cluster.cc %D%/kernels/attention_mla_cluster_window.cc \
	%D%/kernels/attention_mla_wgmma.cc %D%/kernels/attention_mla_wgmma_window.cc \
	%D%/kernels/attention_mla_window.cc %D%/kernels/attention_mma.cc %D%/kernels/attention_mma_window.cc \
	%D%/kernels/attention_prefill.cc %D%/kernels/attention_prefill_window.cc \
	%D%/kernels/attention_simt.cc %D%/kernels/attention_simt_document.cc %D%/kernels/attention_simt_window.cc \
	%D%/kernels/attention_wgmma.cc %D%/kernels/attention_wgmma_window.cc \
	%D%/kernels/link.h %D%/kernels/attention_merge.cc %D%/kernels/mod_document.h %D%/kernels/mod_window.h \
	%D%/kernels/pages.cc %D%/kernels/plan.cc
%C%_libsimtkernels_la_CPPFLAGS = $(SIMT_CPPFLAGS)
%C%_libsimtkernels_la_CXXFLAGS = $(SIMT_CXXFLAGS)

# -rpath makes a shared library of what is not installed.
TEST_LIBS += %D%/libcuda.la
%C%_libcuda_la_SOURCES = %D%/backing.c %D%/capture.c %D%/copy.c %D%/cubin.c %D%/cubin.h %D%/device.c %D%/entry.c \
	%D%/event.c %D%/fake_cuda.h %D%/graph.c %D%/image.h %D%/inject.c %D%/inject.h %D%/memory.c %D%/module.c \
	%D%/stream.c %D%/tensor_map.c %D%/tensor_map.h %D%/vmm.c
%C%_libcuda_la_CFLAGS = $(SIMT_CFLAGS)
%C%_libcuda_la_LDFLAGS = -rpath /nonexistent -version-info 1 -Wl,-z,nodelete
%C%_libcuda_la_LIBADD = %D%/libfakecudakernels.la %D%/libsimt.la

# A libnvrtc.so.12 that calls the host's compiler, of the version of the fake driver; and a newer one, libnvrtc.so.13.
TEST_LIBS += %D%/libnvrtc.la %D%/newer/libnvrtc.la
%C%_libnvrtc_la_SOURCES = %D%/inject.c %D%/inject.h %D%/nvrtc.c
%C%_libnvrtc_la_CFLAGS = $(SIMT_CFLAGS)
%C%_libnvrtc_la_CPPFLAGS = $(AM_CPPFLAGS) -DFAKE_CUDA_CXX='"$(CXX)"' -DFAKE_CUDA_SOURCE='"$(abs_top_srcdir)"' \
	-DFAKE_CUDA_LIBRARIES='"$(abs_top_builddir)/%D%/.libs"'
%C%_libnvrtc_la_LDFLAGS = -rpath /nonexistent -version-info 12
%C%_libnvrtc_la_LIBADD = -lpthread
%C%_newer_libnvrtc_la_SOURCES = $(%C%_libnvrtc_la_SOURCES)
%C%_newer_libnvrtc_la_CFLAGS = $(SIMT_CFLAGS)
%C%_newer_libnvrtc_la_CPPFLAGS = $(%C%_libnvrtc_la_CPPFLAGS) -DFAKE_NVRTC_NEWER
%C%_newer_libnvrtc_la_LDFLAGS = -rpath /nonexistent -version-info 13
%C%_newer_libnvrtc_la_LIBADD = -lpthread

# Kernel sources that nvcc compiles for each architecture where the CUDA toolkit is.  The test checks that the cubins
# contain the kernels that the fake driver runs.  Each directory adds its sources here.
CUDA_FILES = %D%/kernels/simt_cases.cu
EXTRA_DIST += %D%/kernels/simt_cases.cu
AM_TESTS_ENVIRONMENT += CUDA_DIR='$(CUDA_DIR)'; export CUDA_DIR; CUDA_FILES='$(CUDA_FILES)'; export CUDA_FILES;

if ENABLE_THREAD_SANITIZER
# The hooks of the simulator's race detector are ThreadSanitizer's: tests that need a GPU are skipped.
FAKE_CUDA_LIBS =
SIMT_LIBS =
else
FAKE_CUDA_LIBS = %D%/libcuda.la %D%/libnvrtc.la %D%/newer/libnvrtc.la
SIMT_LIBS = %D%/libsimtkernels.la %D%/libsimt.la
endif
if BUILD_CUDA_IMAGES
AM_TESTS_ENVIRONMENT += CUDA_IMAGES=yes; export CUDA_IMAGES;
endif

# Tests of the simulator, of the fake driver, and of the declarations in kernels/cuda that replace the toolkit's headers.
UNIT_TESTS += %D%/unit_cuda_abi %D%/unit_simt %D%/unit_simt_async %D%/unit_simt_cluster
IT_TESTS += %D%/it_fake_cuda %D%/it_fake_cuda_graph %D%/it_fake_cuda_run %D%/it_fake_cuda_tensor_map
TEST_SUPPORT += %D%/fixture.h %D%/load.h %D%/simt_fixture.h
TEST_LIBS += %D%/libsimtcases.la
%C%_libsimtcases_la_SOURCES = %D%/kernels/simt_cases.cc %D%/kernels/simt_cases.h %D%/kernels/bulk_case.h \
	%D%/kernels/cluster_case.h %D%/kernels/wgmma_case.h
%C%_libsimtcases_la_CPPFLAGS = $(SIMT_CPPFLAGS)
%C%_libsimtcases_la_CXXFLAGS = $(SIMT_CXXFLAGS)
%C%_unit_simt_LDADD = %D%/libsimtcases.la $(LDADD)
%C%_unit_simt_async_LDADD = %D%/libsimtcases.la $(LDADD)
%C%_unit_simt_cluster_LDADD = %D%/libsimtcases.la $(LDADD)
%C%_unit_cuda_abi_SOURCES = %D%/unit_cuda_abi.c %D%/cuda_abi.h
%C%_unit_cuda_abi_CPPFLAGS = $(AM_CPPFLAGS)
EXTRA_DIST += %D%/cuda_abi_theirs.c
if HAVE_CUDA_TOOLKIT
%C%_unit_cuda_abi_SOURCES += %D%/cuda_abi_theirs.c
%C%_unit_cuda_abi_CPPFLAGS += -isystem $(CUDA_DIR)/include -DCUDA_TOOLKIT='"$(CUDA_DIR)"'
endif
