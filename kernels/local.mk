# libkernels, and a library per instruction set, whose files are compiled with its flags.  Directories add their sources.
noinst_LTLIBRARIES += %D%/libkernels.la
%C%_libkernels_la_SOURCES = \
	%D%/kernels.h \
	%D%/layout.c \
	%D%/layout.h
%C%_libkernels_la_LIBADD = %D%/libtile_generic.la $(TILE_LIBS) -lm -lpthread

# tile_body.h says why contraction is off.  Functions begin cache lines: the
# short ones over a tile are 15 % slower or faster by where the linker puts them.
TILE_CFLAGS = $(AM_CFLAGS) -ffp-contract=off -falign-functions=64
noinst_LTLIBRARIES += %D%/libtile_generic.la
%C%_libtile_generic_la_SOURCES =
%C%_libtile_generic_la_CFLAGS = $(TILE_CFLAGS)

TILE_LIBS =
if HOST_X86_64
TILE_LIBS += %D%/libtile_avx2.la %D%/libtile_avx512.la
noinst_LTLIBRARIES += %D%/libtile_avx2.la %D%/libtile_avx512.la
%C%_libtile_avx2_la_SOURCES =
%C%_libtile_avx2_la_CFLAGS = $(TILE_CFLAGS) -mavx2 -mfma -mf16c
%C%_libtile_avx512_la_SOURCES =
AVX512_CFLAGS = $(TILE_CFLAGS) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mf16c
%C%_libtile_avx512_la_CFLAGS = $(AVX512_CFLAGS)
endif
if HOST_AVX512_BF16
TILE_LIBS += %D%/libtile_avx512bf16.la
noinst_LTLIBRARIES += %D%/libtile_avx512bf16.la
%C%_libtile_avx512bf16_la_SOURCES =
%C%_libtile_avx512bf16_la_CFLAGS = $(AVX512_CFLAGS) -mavx512vbmi -mavx512bf16
endif
if HOST_AMX
# AMX's instructions are written out, and need no flags.
TILE_LIBS += %D%/libtile_amx.la
noinst_LTLIBRARIES += %D%/libtile_amx.la
%C%_libtile_amx_la_SOURCES =
%C%_libtile_amx_la_CFLAGS = $(AVX512_CFLAGS) -mavx512vbmi -mavx512bf16
endif

include kernels/cpu/local.mk
include kernels/mod/local.mk
include kernels/mask/local.mk

# CUDA: the driver and its compiler, loaded at run time
%C%_libkernels_la_SOURCES += \
	%D%/cuda/driver.c \
	%D%/cuda/driver.h \
	%D%/cuda/nvrtc.c \
	%D%/cuda/nvrtc.h
%C%_libkernels_la_SOURCES += \
	%D%/cuda/gpu.c \
	%D%/cuda/gpu.h \
	%D%/cuda/share.c \
	%D%/cuda/share.h
%C%_libkernels_la_LIBADD += -ldl
EXTRA_DIST += %D%/cuda/fp8.h %D%/cuda/simt.h %D%/cuda/simt_device.h

# Mods for the GPU
%C%_libkernels_la_SOURCES += %D%/cuda/mod_args.h
EXTRA_DIST += %D%/cuda/mod_device.h

# CUDA: kernels, their parameters, and what launchers need to know; tests compile the kernels for the host
%C%_libkernels_la_SOURCES += \
	%D%/cuda/choose.c \
	%D%/cuda/choose.h \
	%D%/cuda/kernels.h \
	%D%/cuda/plan.c \
	%D%/cuda/plan.h
GPU_SOURCE_FILES = \
	%D%/cuda/append.cu \
	%D%/cuda/attention_bytes.cu \
	%D%/cuda/attention_mla.cu \
	%D%/cuda/attention_mma.cu \
	%D%/cuda/attention_simt.cu \
	%D%/cuda/merge.cu \
	%D%/cuda/pages.cu \
	%D%/cuda/plan.cu
GPU_HEADER_FILES = \
	%D%/cuda/attention.h \
	%D%/cuda/attention_mma.h \
	%D%/cuda/attention_tile.h \
	%D%/cuda/bytes.h \
	%D%/cuda/elements.h \
	%D%/cuda/fp8.h \
	%D%/cuda/kernels.h \
	%D%/cuda/plan_lookup.h \
	%D%/cuda/simt.h \
	%D%/cuda/simt_device.h \
	%D%/cuda/softmax.h
GPU_APPEND_FILES = %D%/cuda/quantise.h %D%/cuda/rotary.h
EXTRA_DIST += $(GPU_SOURCE_FILES) $(GPU_HEADER_FILES) $(GPU_APPEND_FILES)
# Mods that are compiled with the library (aot_list.h has the same names), and the program that writes their sources.
AOT_FILES = \
	%D%/cuda/aot_alibi.cu \
	%D%/cuda/aot_capped_window.cu \
	%D%/cuda/aot_document.cu \
	%D%/cuda/aot_prefix_lm.cu \
	%D%/cuda/aot_sliding_window.cu \
	%D%/cuda/aot_soft_cap.cu
EXTRA_PROGRAMS += %D%/cuda/aot_make
%C%_cuda_aot_make_SOURCES = %D%/cuda/aot_make.c
%C%_cuda_aot_make_LDADD = %D%/libkernels.la common/libcommon.la
CLEANFILES += $(AOT_FILES) %D%/cuda/aot_make$(EXEEXT) %D%/cuda/aot.stamp
%C%_libkernels_la_SOURCES += \
	%D%/cuda/aot.c \
	%D%/cuda/aot.h \
	%D%/cuda/aot_list.h
%D%/cuda/aot.stamp: %D%/cuda/aot_make$(EXEEXT)
	$(AM_V_GEN)%D%/cuda/aot_make %D%/cuda && touch $@
# A source that did not change is not written, and nothing is compiled again.
$(AOT_FILES): %D%/cuda/aot.stamp
	@:

# With --with-cuda they are compiled for each of CUDA_ARCHS, with a report of ptxas each, and built in;
# AOT mods not as PTX, for devices of other families have NVRTC.
if BUILD_CUDA_IMAGES
CUDA_IMAGES = $(GPU_SOURCE_FILES:.cu=.ptx)
CUDA_IMAGE_CPPFLAGS = -DPAGED_CUDA_IMAGES
if CUDA_SM_80
CUDA_IMAGES += $(GPU_SOURCE_FILES:.cu=.sm_80) $(AOT_FILES:.cu=.sm_80)
CUDA_IMAGE_CPPFLAGS += -DPAGED_CUDA_SM_80
endif
if CUDA_SM_90A
CUDA_IMAGES += $(GPU_SOURCE_FILES:.cu=.sm_90a) $(AOT_FILES:.cu=.sm_90a)
CUDA_IMAGE_CPPFLAGS += -DPAGED_CUDA_SM_90A
endif
if CUDA_SM_100
CUDA_IMAGES += $(GPU_SOURCE_FILES:.cu=.sm_100) $(AOT_FILES:.cu=.sm_100)
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
	%D%/cuda/attention_mma.cu %D%/cuda/mod_device.h
$(%C%_libimages_la_OBJECTS): $(CUDA_IMAGES)
CLEANFILES += $(CUDA_IMAGES) $(CUDA_IMAGES:=.report)
endif
noinst_LTLIBRARIES += %D%/libimages.la
%C%_libimages_la_SOURCES = %D%/cuda/images.c %D%/cuda/images.h
%C%_libimages_la_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_IMAGE_CPPFLAGS)

# What NVRTC compiles at run time, built in as text.
GPU_BUILT_IN_FILES = \
	$(GPU_HEADER_FILES) \
	%D%/cuda/attention_bytes.cu \
	%D%/cuda/attention_mla.cu \
	%D%/cuda/attention_mma.cu \
	%D%/cuda/attention_simt.cu \
	%D%/cuda/mod_args.h \
	%D%/cuda/mod_device.h
EXTRA_DIST += %D%/cuda/embed.awk
CLEANFILES += %D%/cuda/sources.c
nodist_%C%_libkernels_la_SOURCES = %D%/cuda/sources.c
%C%_libkernels_la_SOURCES += \
	%D%/cuda/jit.c \
	%D%/cuda/jit.h \
	%D%/cuda/sources.h

# Made elsewhere and moved, so that half a file is never found there.
%D%/cuda/sources.c: $(GPU_BUILT_IN_FILES) %D%/cuda/embed.awk
	$(AM_V_GEN)$(MKDIR_P) %D%/cuda && (cd $(srcdir) && $(AWK) -f %D%/cuda/embed.awk $(GPU_BUILT_IN_FILES)) >$@.new && \
		mv $@.new $@
