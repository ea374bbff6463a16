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
include kernels/cuda/local.mk
