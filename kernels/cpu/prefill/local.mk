kernels_libkernels_la_SOURCES += \
	%D%/prefill.c \
	%D%/prefill.h
# Text that the files of instruction sets include.
kernels_libtile_generic_la_SOURCES += \
	%D%/tile_amx_pipeline_body.h \
	%D%/tile_amx_prefill_body.h \
	%D%/tile_prefill_body.h
