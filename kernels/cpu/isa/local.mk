# The files of an instruction set are compiled with its flags, and called only if the CPU supports it.
kernels_libkernels_la_SOURCES += \
	%D%/isa.c \
	%D%/tile_avx512.h
kernels_libtile_generic_la_SOURCES += \
	%D%/append_ops_body.h \
	%D%/tile_body.h \
	%D%/tile_generic.c \
	%D%/tile_generic.h \
	%D%/tile_values_body.h \
	%D%/tile_x86_body.h
if HOST_X86_64
kernels_libtile_avx2_la_SOURCES += %D%/tile_avx2.c
kernels_libtile_avx512_la_SOURCES += %D%/tile_avx512.c
endif
if HOST_AVX512_BF16
kernels_libtile_avx512bf16_la_SOURCES += %D%/tile_avx512bf16.c %D%/tile_avx512bf16.h
endif
if HOST_AMX
kernels_libtile_amx_la_SOURCES += %D%/tile_amx.c
endif
