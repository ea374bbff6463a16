# Installed with the documents, to be read and copied.
pagedexamples_DATA += $(srcdir)/%D%/engine.c $(srcdir)/%D%/first.c $(srcdir)/%D%/handover.c \
	$(srcdir)/%D%/own_block_manager.c $(srcdir)/%D%/share_prefix.c
pythonexamplesdir = $(pagedexamplesdir)/python
dist_pythonexamples_DATA = %D%/python/first.py %D%/python/handover.py %D%/python/share_prefix.py

# The smallest worker.
noinst_PROGRAMS += %D%/first
%C%_first_SOURCES = %D%/first.c
%C%_first_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/client
%C%_first_LDADD = client/libpagedclient.la

# Explicit page tables; docs/ENGINES.md refers to it.
noinst_PROGRAMS += %D%/own_block_manager
%C%_own_block_manager_SOURCES = %D%/own_block_manager.c
%C%_own_block_manager_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/client
%C%_own_block_manager_LDADD = client/libpagedclient.la

# An engine in small; docs/ENGINES.md explains its parts.
noinst_PROGRAMS += %D%/engine
%C%_engine_SOURCES = %D%/engine.c
%C%_engine_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/client
%C%_engine_LDADD = client/libpagedclient.la -lm

# A prompt that several processes share.
noinst_PROGRAMS += %D%/share_prefix
%C%_share_prefix_SOURCES = %D%/share_prefix.c
%C%_share_prefix_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/client
%C%_share_prefix_LDADD = client/libpagedclient.la

# A sequence that one process computes and another one continues.
noinst_PROGRAMS += %D%/handover
%C%_handover_SOURCES = %D%/handover.c
%C%_handover_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/client
%C%_handover_LDADD = client/libpagedclient.la

# A dashboard of the metrics.
EXTRA_DIST += %D%/grafana/paged.json

# Engines of different make on one pool: tools/demo.
EXTRA_DIST += %D%/python/demo/answer_privately.py
EXTRA_DIST += %D%/python/demo/answer_transformers.py
EXTRA_DIST += %D%/python/demo/answer_vllm.py
EXTRA_DIST += %D%/python/demo/document.py
EXTRA_DIST += %D%/python/demo/engines.py
EXTRA_DIST += %D%/python/demo/main.py
EXTRA_DIST += %D%/python/demo/observer.py
EXTRA_DIST += %D%/python/demo/references.py
EXTRA_DIST += %D%/python/demo/soak.py
EXTRA_DIST += %D%/python/demo/story.py
EXTRA_DIST += %D%/python/demo/token_lines.py

# A system prompt for tools/quickstart.
EXTRA_DIST += %D%/llama/assistant.txt

if ENABLE_DEMO
# A worker that runs a Llama model.  Everything but main.c is in a convenience
# library that the tests link too.
noinst_LTLIBRARIES += %D%/llama/libllama.la
%C%_llama_libllama_la_SOURCES = \
	%D%/llama/attention.h \
	%D%/llama/chat_template.c \
	%D%/llama/chat_template.h \
	%D%/llama/clock.h \
	%D%/llama/compare_caches.c \
	%D%/llama/compare_caches.h \
	%D%/llama/contiguous.c \
	%D%/llama/contiguous.h \
	%D%/llama/device.c \
	%D%/llama/device.h \
	%D%/llama/die.c \
	%D%/llama/die.h \
	%D%/llama/engine.c \
	%D%/llama/engine.h \
	%D%/llama/forward.c \
	%D%/llama/forward.h \
	%D%/llama/gguf.c \
	%D%/llama/gguf.h \
	%D%/llama/kill_demo.c \
	%D%/llama/kill_demo.h \
	%D%/llama/matmul.c \
	%D%/llama/matmul.h \
	%D%/llama/model.c \
	%D%/llama/model.h \
	%D%/llama/options.c \
	%D%/llama/options.h \
	%D%/llama/paged_cache.c \
	%D%/llama/paged_cache.h \
	%D%/llama/pipeline.c \
	%D%/llama/pipeline.h \
	%D%/llama/repl.c \
	%D%/llama/repl.h \
	%D%/llama/replies.c \
	%D%/llama/replies.h \
	%D%/llama/share_demo.c \
	%D%/llama/share_demo.h \
	%D%/llama/split_demo.c \
	%D%/llama/split_demo.h \
	%D%/llama/split_worker.c \
	%D%/llama/split_worker.h \
	%D%/llama/string_table.c \
	%D%/llama/string_table.h \
	%D%/llama/thread_pool.c \
	%D%/llama/thread_pool.h \
	%D%/llama/token_lines.c \
	%D%/llama/token_lines.h \
	%D%/llama/tokenizer.c \
	%D%/llama/tokenizer.h \
	%D%/llama/worker_process.c \
	%D%/llama/worker_process.h \
	%D%/llama/workers.c \
	%D%/llama/workers.h \
	%D%/llama/xalloc.c \
	%D%/llama/xalloc.h
%C%_llama_libllama_la_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/client $(PCRE2_CFLAGS)
%C%_llama_libllama_la_LIBADD = $(PCRE2_LIBS) -ldl -lm -lpthread

# The matrix products are compiled for each instruction set and called only if the CPU has it.
noinst_LTLIBRARIES += %D%/llama/libllama_generic.la
%C%_llama_libllama_generic_la_SOURCES = %D%/llama/matmul_kernels.c
%C%_llama_libllama_generic_la_CPPFLAGS = $(AM_CPPFLAGS) -DMATMUL_OPS=matmul_ops_generic
%C%_llama_libllama_la_LIBADD += %D%/llama/libllama_generic.la
if HOST_X86_64
noinst_LTLIBRARIES += %D%/llama/libllama_avx2.la %D%/llama/libllama_avx512.la
%C%_llama_libllama_avx2_la_SOURCES = %D%/llama/matmul_kernels.c
%C%_llama_libllama_avx2_la_CPPFLAGS = $(AM_CPPFLAGS) -DMATMUL_OPS=matmul_ops_avx2
%C%_llama_libllama_avx2_la_CFLAGS = $(AM_CFLAGS) -mavx2 -mfma -mf16c -ffp-contract=fast
%C%_llama_libllama_avx512_la_SOURCES = %D%/llama/matmul_kernels.c
%C%_llama_libllama_avx512_la_CPPFLAGS = $(AM_CPPFLAGS) -DMATMUL_OPS=matmul_ops_avx512
%C%_llama_libllama_avx512_la_CFLAGS = $(AM_CFLAGS) -mavx512f -mavx512bw -mfma -mf16c -ffp-contract=fast
%C%_llama_libllama_la_LIBADD += %D%/llama/libllama_avx2.la %D%/llama/libllama_avx512.la
endif

# Not installed: the quickstart runs it from the build tree, and its source shows how to write a worker.
noinst_PROGRAMS += %D%/llama/paged-llama
%C%_llama_paged_llama_SOURCES = %D%/llama/main.c
%C%_llama_paged_llama_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/client
%C%_llama_paged_llama_LDADD = %D%/llama/libllama.la client/libpagedclient.la
endif
