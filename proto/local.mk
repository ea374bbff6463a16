# Messages.  Only wire*.c uses the types that protoc-c generates.
# Generated files live in the build tree, outside git and tarball.
EXTRA_DIST += %D%/paged.proto
PAGED_PB_C = %D%/paged.pb-c.c %D%/paged.pb-c.h
BUILT_SOURCES += $(PAGED_PB_C)
CLEANFILES += $(PAGED_PB_C)

%D%/paged.pb-c.c: %D%/paged.proto
	$(AM_V_GEN)$(MKDIR_P) %D% && $(PROTOC_C) -I$(srcdir) --c_out=. $(srcdir)/%D%/paged.proto
%D%/paged.pb-c.h: %D%/paged.pb-c.c
	@test -f $@ || { rm -f %D%/paged.pb-c.c; $(MAKE) $(AM_MAKEFLAGS) %D%/paged.pb-c.c; }

noinst_LTLIBRARIES += %D%/libproto.la
nodist_%C%_libproto_la_SOURCES = $(PAGED_PB_C)
%C%_libproto_la_SOURCES = \
	%D%/wire.c \
	%D%/wire.h \
	%D%/wire_convert.c \
	%D%/wire_messages.c \
	%D%/wire_table.h
%C%_libproto_la_CPPFLAGS = $(AM_CPPFLAGS) $(PROTOBUFC_CFLAGS)
%C%_libproto_la_LIBADD = $(PROTOBUFC_LIBS)
