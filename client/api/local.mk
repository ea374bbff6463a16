# The public calls, and the computations of pools in host memory.
client_libpagedclient_la_SOURCES += \
	%D%/admin.c \
	%D%/array.c \
	%D%/array.h \
	%D%/batch.c \
	%D%/batch.h \
	%D%/batch_calls.c \
	%D%/batch_plan.c \
	%D%/batch_reserve.c \
	%D%/block_mask.c \
	%D%/block_mask.h \
	%D%/block_mask_given.c \
	%D%/block_mask_make.c \
	%D%/block_mask_part.c \
	%D%/block_mask_place.c \
	%D%/block_mask_remote.c \
	%D%/block_mask_view.c \
	%D%/client.c \
	%D%/compute_host.c \
	%D%/compute_ops.h \
	%D%/error.c \
	%D%/error.h \
	%D%/guard.c \
	%D%/guard.h \
	%D%/internal.h \
	%D%/mark.c \
	%D%/mark.h \
	%D%/mod.c \
	%D%/mod_set.c \
	%D%/mod_set.h \
	%D%/pool.c \
	%D%/seq.c
