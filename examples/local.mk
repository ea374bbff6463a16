# A worker that runs a Llama model.  Everything but main.c is a convenience
# library, which the tests link too.
noinst_LTLIBRARIES += %D%/llama/libllama.la
%C%_llama_libllama_la_SOURCES = \
	%D%/llama/error.c \
	%D%/llama/error.h \
	%D%/llama/gguf.c \
	%D%/llama/gguf.h
