# The state machine of a pools' owner; the daemon and the client library link it.
noinst_LTLIBRARIES += %D%/libcore.la
%C%_libcore_la_SOURCES = \
	%D%/adopt.c \
	%D%/array.c \
	%D%/array.h \
	%D%/audit.c \
	%D%/audit.h \
	%D%/bucket.c \
	%D%/cache_share.c \
	%D%/check.c \
	%D%/check_index.c \
	%D%/core.c \
	%D%/core.h \
	%D%/core_internal.h \
	%D%/divide.c \
	%D%/growth.c \
	%D%/hold.c \
	%D%/idmap.c \
	%D%/lru.c \
	%D%/node.c \
	%D%/node.h \
	%D%/operation.c \
	%D%/page_table.c \
	%D%/page_table.h \
	%D%/pages.c \
	%D%/pages.h \
	%D%/pin.c \
	%D%/pool.c \
	%D%/publish.c \
	%D%/published.c \
	%D%/request.c \
	%D%/request.h \
	%D%/sequence.c \
	%D%/session.c \
	%D%/session.h \
	%D%/session_cleanup.c \
	%D%/session_query.c \
	%D%/share.c \
	%D%/table_memory.c \
	%D%/tenant.c \
	%D%/tenant.h \
	%D%/tenant_list.c \
	%D%/ticket.c \
	%D%/ticket.h \
	%D%/trim.c
