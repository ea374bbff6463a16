# The daemon; core is a leaf that the client library links too.
noinst_LTLIBRARIES += %D%/core/libcore.la
%C%_core_libcore_la_SOURCES = %D%/core/core.h
