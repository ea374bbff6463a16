# What a GPU must run: its instructions compared with their models, and the list of programs for tools/gpu-bundle.
IT_TESTS += %D%/conformance
LINT_TESTS += %D%/it_bench_gpu.sh %D%/it_conformance.sh %D%/it_in_process.sh
if ENABLE_DEMO
LINT_TESTS += %D%/it_bundle.sh
endif
GPU_TESTS += %D%/conformance

TEST_LIBS += %D%/libconformance.la
%C%_libconformance_la_SOURCES = %D%/conformance.cc %D%/conformance.h
%C%_libconformance_la_CPPFLAGS = $(SIMT_CPPFLAGS)
%C%_libconformance_la_CXXFLAGS = $(SIMT_CXXFLAGS)
EXTRA_DIST += %D%/conformance.cu
FAKE_CUDA_KERNELS += %D%/conformance.cc
CUDA_FILES += %D%/conformance.cu bench/gpu/gpu_reader.cu
%C%_conformance_SOURCES = %D%/conformance.c %D%/conformance_run.c %D%/conformance_run.h
%C%_conformance_LDADD = %D%/libconformance.la $(LDADD)

if HAVE_CUDA_TOOLKIT
GPU_TESTS += %D%/conformance.fatbin bench/gpu/gpu_reader.fatbin
CLEANFILES += %D%/conformance.fatbin bench/gpu/gpu_reader.fatbin
bench/gpu/gpu_reader.fatbin: bench/gpu/gpu_reader.cu bench/gpu/gpu_reader.h kernels/cuda/pages.cu $(GPU_HEADER_FILES)
	$(AM_V_GEN)$(MKDIR_P) bench/gpu && $(CUDA_DIR)/bin/nvcc -std=c++17 -I$(top_srcdir) $(CUDA_GENCODE) -fatbin -o $@ \
		$(srcdir)/bench/gpu/gpu_reader.cu
%D%/conformance.fatbin: %D%/conformance.cu %D%/conformance.h kernels/cuda/simt/simt_fp8.h kernels/cuda/simt/simt.h \
		kernels/cuda/simt/simt_barrier.h kernels/cuda/simt/simt_device.h kernels/cuda/simt/simt_wgmma.h \
		tests/fake-cuda/kernels/bulk_case.h tests/fake-cuda/kernels/cluster_case.h \
		tests/fake-cuda/kernels/simt_cases.h tests/fake-cuda/kernels/wgmma_case.h kernels/cuda/kernels.h
	$(AM_V_GEN)$(MKDIR_P) %D% && $(CUDA_DIR)/bin/nvcc -std=c++17 -I$(top_srcdir) $(CUDA_GENCODE) -fatbin -o $@ \
		$(srcdir)/%D%/conformance.cu
endif
.PHONY: gpu-tests
gpu-tests: all %D%/list
	$(MAKE) $(AM_MAKEFLAGS) $(GPU_TESTS)
check_DATA = %D%/list
CLEANFILES += %D%/list
%D%/list: Makefile
	$(AM_V_GEN)$(MKDIR_P) %D% && for name in $(GPU_TESTS); do echo $$name; done >$@
