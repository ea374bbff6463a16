# Block masks
kernels_libkernels_la_SOURCES += \
	%D%/batch_mask.c \
	%D%/batch_mask.h \
	%D%/builder.c \
	%D%/builder.h \
	%D%/create.c \
	%D%/dense.c \
	%D%/from_lists.c \
	%D%/mask.c \
	%D%/mask.h \
	%D%/spare_arrays.c \
	%D%/spare_arrays.h \
	%D%/mod_evaluator.c \
	%D%/mod_evaluator.h \
	%D%/remote_mask.c \
	%D%/remote_mask.h \
	%D%/rle.c \
	%D%/rle.h \
	%D%/select.c \
	%D%/to_arrays.c \
	%D%/to_physical.c \
	%D%/to_string.c
