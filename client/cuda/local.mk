# The computations of pools in GPU memory.
client_libpagedclient_la_SOURCES += \
	%D%/compute_cuda.c \
	%D%/compute_cuda_batch.h \
	%D%/compute_cuda_block_mask.c \
	%D%/compute_cuda_block_mask.h \
	%D%/compute_cuda_marks.c \
	%D%/compute_cuda_marks.h \
	%D%/compute_cuda_memory.c \
	%D%/compute_cuda_mirror.c \
	%D%/compute_cuda_mod_set.c \
	%D%/compute_cuda_mod_set.h \
	%D%/compute_cuda_plan.c \
	%D%/compute_cuda_sharing.c \
	%D%/compute_cuda_stream.c \
	%D%/cuda_kernels.c \
	%D%/cuda_kernels.h

# Kernels compiled at run time: a library of its own, for its tests.
noinst_LTLIBRARIES += %D%/libjit.la
%C%_libjit_la_CPPFLAGS = $(AM_CPPFLAGS) $(SODIUM_CFLAGS)
%C%_libjit_la_LIBADD = kernels/libimages.la $(SODIUM_LIBS) -lpthread
%C%_libjit_la_SOURCES = \
	%D%/jit_build.c \
	%D%/jit_build.h \
	%D%/jit_cache.c \
	%D%/jit_cache.h \
	%D%/jit_nvrtc.c \
	%D%/jit_store.c \
	%D%/jit_store.h
