# The driver and its compiler, loaded at run time; what launchers need to know about the kernels; mods for the GPU.
kernels_libkernels_la_SOURCES += \
	%D%/host/aot.c \
	%D%/host/aot.h \
	%D%/host/aot_list.h \
	%D%/host/choose_kernel.c \
	%D%/host/choose_kernel.h \
	%D%/host/driver.c \
	%D%/host/driver.h \
	%D%/host/gpu.c \
	%D%/host/gpu.h \
	%D%/host/jit.c \
	%D%/host/jit.h \
	%D%/kernels.h \
	%D%/host/nvrtc.c \
	%D%/host/nvrtc.h \
	%D%/host/plan.c \
	%D%/host/plan.h \
	%D%/host/share_memory.c \
	%D%/host/share_memory.h \
	%D%/host/sources.h
kernels_libkernels_la_LIBADD += -ldl

# The kernels; tests compile them for the host too.
GPU_SOURCE_FILES = \
	%D%/append.cu \
	%D%/attention/attention_combine.cu \
	%D%/attention/attention_merge.cu \
	%D%/attention/decode/attention_bytes.cu \
	%D%/attention/decode/attention_mma.cu \
	%D%/attention/decode/attention_simt.cu \
	%D%/attention/mla/attention_mla.cu \
	%D%/attention/prefill/attention_prefill.cu \
	%D%/pages.cu \
	%D%/plan.cu
GPU_HEADER_FILES = \
	%D%/attention/attention.h \
	%D%/attention/attention_combine.h \
	%D%/attention/attention_fetch.h \
	%D%/attention/attention_halves.h \
	%D%/attention/attention_mma.h \
	%D%/attention/attention_producer.h \
	%D%/attention/attention_q_rows.h \
	%D%/attention/attention_tile.h \
	%D%/attention/attention_wgmma.h \
	%D%/attention/mla/attention_mla_consumer.h \
	%D%/attention/mla/attention_mla_wgmma.h \
	%D%/attention/prefill/attention_prefill.h \
	%D%/attention/prefill/attention_prefill_item.h \
	%D%/attention/prefill/attention_prefill_math.h \
	%D%/attention/prefill/attention_prefill_tile.h \
	%D%/device/bytes.h \
	%D%/device/elements.h \
	%D%/device/plan_lookup.h \
	%D%/device/softmax.h \
	%D%/kernels.h \
	%D%/simt/simt.h \
	%D%/simt/simt_barrier.h \
	%D%/simt/simt_device.h \
	%D%/simt/simt_fp8.h \
	%D%/simt/simt_wgmma.h
GPU_APPEND_FILES = %D%/device/quantise.h %D%/device/rotary.h
# Kernels of instructions that sm_90 and later have
GPU_SM_90_FILES = %D%/attention/decode/attention_bulk.cu
# Kernels that only sm_90a has instructions for
GPU_SM_90A_FILES = \
	%D%/attention/mla/attention_mla_cluster.cu \
	%D%/attention/mla/attention_mla_wgmma.cu \
	%D%/attention/prefill/attention_wgmma.cu
EXTRA_DIST += $(GPU_SOURCE_FILES) $(GPU_SM_90_FILES) $(GPU_SM_90A_FILES) $(GPU_HEADER_FILES) $(GPU_APPEND_FILES) %D%/device/mod_device.h

# Mods that are compiled with the library (aot_list.h has the same names), and the program that writes their sources.
AOT_FILES = \
	%D%/host/aot_alibi.cu \
	%D%/host/aot_capped_window.cu \
	%D%/host/aot_document.cu \
	%D%/host/aot_prefix_lm.cu \
	%D%/host/aot_sliding_window.cu \
	%D%/host/aot_soft_cap.cu
EXTRA_PROGRAMS += %D%/host/aot_make
%C%_host_aot_make_SOURCES = %D%/host/aot_make.c
%C%_host_aot_make_LDADD = kernels/libkernels.la common/libcommon.la
CLEANFILES += $(AOT_FILES) %D%/host/aot_make$(EXEEXT) %D%/host/aot.stamp
%D%/host/aot.stamp: %D%/host/aot_make$(EXEEXT)
	$(AM_V_GEN)%D%/host/aot_make %D%/host && touch $@
# A source that did not change is not written, and nothing is compiled again.
$(AOT_FILES): %D%/host/aot.stamp
	@:

# With --with-cuda they are compiled for each of CUDA_ARCHS, with a report of ptxas each, and built in;
# AOT mods not as PTX, for devices of other families have NVRTC.
if BUILD_CUDA_IMAGES
CUDA_IMAGES = $(GPU_SOURCE_FILES:.cu=.ptx)
CUDA_IMAGE_CPPFLAGS = -DPAGED_CUDA_IMAGES=$(CUDA_VERSION)
if CUDA_SM_80
CUDA_IMAGES += $(GPU_SOURCE_FILES:.cu=.sm_80) $(AOT_FILES:.cu=.sm_80)
CUDA_IMAGE_CPPFLAGS += -DPAGED_CUDA_SM_80
endif
if CUDA_SM_90A
CUDA_IMAGES += $(GPU_SOURCE_FILES:.cu=.sm_90a) $(GPU_SM_90_FILES:.cu=.sm_90a) $(GPU_SM_90A_FILES:.cu=.sm_90a) $(AOT_FILES:.cu=.sm_90a)
CUDA_IMAGE_CPPFLAGS += -DPAGED_CUDA_SM_90A
endif
if CUDA_SM_100
CUDA_IMAGES += $(GPU_SOURCE_FILES:.cu=.sm_100) $(GPU_SM_90_FILES:.cu=.sm_100) $(AOT_FILES:.cu=.sm_100)
CUDA_IMAGE_CPPFLAGS += -DPAGED_CUDA_SM_100
endif
CUDA_COMPILE = $(MKDIR_P) $(@D) && $(CUDA_DIR)/bin/nvcc -std=c++17 -I$(top_srcdir) -I. -Xptxas -v
CUDA_REPORT = >$@.report 2>&1 || { cat $@.report >&2; rm -f $@; exit 1; }
SUFFIXES = .cu .sm_80 .sm_90a .sm_100 .ptx
.cu.sm_80:
	$(AM_V_GEN)$(CUDA_COMPILE) -arch=sm_80 -cubin -o $@ $< $(CUDA_REPORT)
.cu.sm_90a:
	$(AM_V_GEN)$(CUDA_COMPILE) -arch=sm_90a -cubin -o $@ $< $(CUDA_REPORT)
.cu.sm_100:
	$(AM_V_GEN)$(CUDA_COMPILE) -arch=sm_100 -cubin -o $@ $< $(CUDA_REPORT)
.cu.ptx:
	$(AM_V_GEN)$(CUDA_COMPILE) -arch=compute_80 -ptx -o $@ $< $(CUDA_REPORT)
$(CUDA_IMAGES): $(GPU_HEADER_FILES) $(GPU_APPEND_FILES)
$(AOT_FILES:.cu=.sm_80) $(AOT_FILES:.cu=.sm_90a) $(AOT_FILES:.cu=.sm_100): \
	%D%/attention/decode/attention_mma.cu %D%/attention/prefill/attention_prefill.cu $(GPU_SM_90_FILES) \
	$(GPU_SM_90A_FILES) %D%/device/mod_device.h
$(kernels_libimages_la_OBJECTS): $(CUDA_IMAGES)
CLEANFILES += $(CUDA_IMAGES) $(CUDA_IMAGES:=.report)
endif
noinst_LTLIBRARIES += kernels/libimages.la
kernels_libimages_la_SOURCES = %D%/host/images.c %D%/host/images.h
kernels_libimages_la_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_IMAGE_CPPFLAGS)

# What NVRTC compiles at run time, built in as text.
GPU_BUILT_IN_FILES = \
	$(GPU_HEADER_FILES) \
	%D%/attention/decode/attention_bulk.cu \
	%D%/attention/decode/attention_bytes.cu \
	%D%/attention/mla/attention_mla.cu \
	%D%/attention/decode/attention_mma.cu \
	%D%/attention/prefill/attention_prefill.cu \
	%D%/attention/decode/attention_simt.cu \
	$(GPU_SM_90A_FILES) \
	kernels/mod/mod_args.h \
	%D%/device/mod_device.h
EXTRA_DIST += %D%/host/embed.awk
CLEANFILES += %D%/host/sources.c
nodist_kernels_libkernels_la_SOURCES = %D%/host/sources.c

# Made elsewhere and moved, so that half a file is never found there.
%D%/host/sources.c: $(GPU_BUILT_IN_FILES) %D%/host/embed.awk
	$(AM_V_GEN)$(MKDIR_P) %D%/host && (cd $(srcdir) && $(AWK) -f %D%/host/embed.awk $(GPU_BUILT_IN_FILES)) >$@.new && \
		mv $@.new $@
