# Attention, append and copies over the pages.  The files of an instruction
# set are compiled with its flags and called only where the CPU has it.
noinst_LTLIBRARIES += %D%/libkernels.la
%C%_libkernels_la_SOURCES = \
	%D%/kernels.h \
	%D%/layout.c \
	%D%/layout.h
%C%_libkernels_la_LIBADD = -lm
