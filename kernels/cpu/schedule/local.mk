kernels_libkernels_la_SOURCES += \
	%D%/cpus.c \
	%D%/cpus.h \
	%D%/schedule.c \
	%D%/schedule.h \
	%D%/team.c \
	%D%/team.h
