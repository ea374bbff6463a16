# Attention, append and copies on the CPU.  kernels/local.mk has the libraries and their flags.
kernels_libkernels_la_SOURCES += \
	%D%/append.c \
	%D%/attention.c \
	%D%/attention.h \
	%D%/attention_merge.c \
	%D%/combine.c \
	%D%/copy.h \
	%D%/copy_pages.c \
	%D%/gather.c \
	%D%/locate.c \
	%D%/mods.c \
	%D%/rows.h \
	%D%/softmax.c \
	%D%/tile.h \
	%D%/tile_mask.c \
	%D%/tile_mask.h

include kernels/cpu/decode/local.mk
include kernels/cpu/isa/local.mk
include kernels/cpu/prefill/local.mk
include kernels/cpu/schedule/local.mk
