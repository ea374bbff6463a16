# The owner of the pools: the daemon, or a core in this process.
client_libpagedclient_la_SOURCES += \
	%D%/control.c \
	%D%/control.h \
	%D%/map.c \
	%D%/map.h \
	%D%/map_cuda.c \
	%D%/map_cuda.h \
	%D%/map_fetch.c \
	%D%/map_fetch.h \
	%D%/map_host.c \
	%D%/map_host.h \
	%D%/map_ops.h \
	%D%/owner.c \
	%D%/owner.h \
	%D%/owner_embedded.c \
	%D%/owner_embedded.h \
	%D%/owner_embedded_handover.c \
	%D%/owner_embedded_pools.c \
	%D%/owner_embedded_sharing.c \
	%D%/owner_remote.c \
	%D%/owner_remote.h \
	%D%/owner_remote_admin.c \
	%D%/owner_remote_handover.c \
	%D%/process.c \
	%D%/process.h \
	%D%/rpc.c \
	%D%/rpc.h
