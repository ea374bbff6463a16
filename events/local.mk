# paged-events: serves what changes in the prefix cache.  It uses only the installed headers.
# All files except main.c are a convenience library, which tests link.
EVENTS_CPPFLAGS = $(AM_CPPFLAGS) -DPAGED_RUNSTATEDIR='"$(runstatedir)"' $(MICROHTTPD_CFLAGS) $(MSGPACK_CFLAGS) \
	$(SODIUM_CFLAGS) $(XXHASH_CFLAGS)
EVENTS_LIBS = client/libpagedclient.la $(MICROHTTPD_LIBS) $(MSGPACK_LIBS) $(SODIUM_LIBS) -lpthread
EVENTS_SOURCES = \
	%D%/admission.c \
	%D%/admission.h \
	%D%/batch_log.c \
	%D%/batch_log.h \
	%D%/block_hash.c \
	%D%/block_hash.h \
	%D%/connector.c \
	%D%/connector.h \
	%D%/encode.c \
	%D%/encode.h \
	%D%/kv_events.c \
	%D%/kv_events.h \
	%D%/kv_stream.c \
	%D%/kv_stream.h \
	%D%/log.c \
	%D%/log.h \
	%D%/metrics_http.c \
	%D%/metrics_http.h \
	%D%/metrics_snapshot.c \
	%D%/metrics_snapshot.h \
	%D%/metrics_text.c \
	%D%/metrics_text.h \
	%D%/node_mirror.c \
	%D%/node_mirror.h \
	%D%/options.c \
	%D%/options.h \
	%D%/peer.c \
	%D%/peer.h \
	%D%/peer_set.c \
	%D%/peer_set.h \
	%D%/process.c \
	%D%/process.h \
	%D%/publisher.c \
	%D%/publisher.h \
	%D%/transport.c \
	%D%/transport.h \
	%D%/zmtp.c \
	%D%/zmtp.h

if ENABLE_EVENTS
noinst_LTLIBRARIES += %D%/libevents.la
sbin_PROGRAMS += %D%/paged-events
endif
%C%_libevents_la_SOURCES = $(EVENTS_SOURCES)
%C%_libevents_la_CPPFLAGS = $(EVENTS_CPPFLAGS)
%C%_libevents_la_LIBADD = $(EVENTS_LIBS)
%C%_paged_events_SOURCES = %D%/main.c
%C%_paged_events_CPPFLAGS = $(EVENTS_CPPFLAGS)
%C%_paged_events_LDADD = %D%/libevents.la
