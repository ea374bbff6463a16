# Attention, append and copies on the CPU.  kernels/local.mk has the libraries and their flags.
kernels_libkernels_la_SOURCES += \
	%D%/append.c \
	%D%/attention.c \
	%D%/attention_job.h \
	%D%/attention_merge.c \
	%D%/combine.c \
	%D%/combine.h \
	%D%/append_ops.h \
	%D%/convert.h \
	%D%/copy_pages.c \
	%D%/gather.c \
	%D%/int_math.h \
	%D%/token_addresses.c \
	%D%/token_addresses.h \
	%D%/mod_set.c \
	%D%/mod_set.h \
	%D%/q_rows.h \
	%D%/row_cursor.h \
	%D%/scratch.h \
	%D%/scores.c \
	%D%/scores.h \
	%D%/tensor.h \
	%D%/tile.h \
	%D%/tile_mask.c \
	%D%/tile_mask.h \
	%D%/work.h

include kernels/cpu/decode/local.mk
include kernels/cpu/isa/local.mk
include kernels/cpu/prefill/local.mk
include kernels/cpu/schedule/local.mk
