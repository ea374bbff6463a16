kernels_libkernels_la_SOURCES += \
	%D%/decode.c \
	%D%/decode.h
# Text that the files of instruction sets include.
kernels_libtile_generic_la_SOURCES += \
	%D%/tile_amx_decode_body.h \
	%D%/tile_amx_decode_scores_body.h \
	%D%/tile_amx_decode_source_body.h \
	%D%/tile_amx_decode_values_body.h \
	%D%/tile_decode_bf16_body.h \
	%D%/tile_decode_bf16_scores_body.h \
	%D%/tile_decode_bf16_values_body.h \
	%D%/widen_bf16_body.h
