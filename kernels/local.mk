# Attention, append and copies over the pages.  The files of an instruction
# set are compiled with its flags and called only where the CPU has it.
noinst_LTLIBRARIES += %D%/libkernels.la
%C%_libkernels_la_SOURCES = \
	%D%/cpu/append.c \
	%D%/cpu/attention.c \
	%D%/cpu/convert.h \
	%D%/cpu/isa.c \
	%D%/cpu/rows.h \
	%D%/cpu/team.c \
	%D%/cpu/team.h \
	%D%/cpu/tile.h \
	%D%/kernels.h \
	%D%/layout.c \
	%D%/layout.h
%C%_libkernels_la_LIBADD = %D%/libtile_generic.la -lm -lpthread

# tile_body.h says why contraction is off.
TILE_CFLAGS = $(AM_CFLAGS) -ffp-contract=off
noinst_LTLIBRARIES += %D%/libtile_generic.la
%C%_libtile_generic_la_SOURCES = %D%/cpu/tile_body.h %D%/cpu/tile_generic.c
%C%_libtile_generic_la_CFLAGS = $(TILE_CFLAGS)
