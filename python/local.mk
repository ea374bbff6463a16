# The Python package.  make builds the extension; with PYTHONPATH=BUILDDIR/python, Python imports the package from the
# build tree.  tools/wheel and debian/rules install it, make install does not.
PYTHON_EXT_SOURCES = %D%/ext/ext.h
PYTHON_EXT_SOURCES += %D%/ext/call.c
PYTHON_EXT_SOURCES += %D%/ext/errors.c
PYTHON_EXT_SOURCES += %D%/ext/module.c
PYTHON_EXT_SOURCES += %D%/ext/numbers.c
PYTHON_EXT_SOURCES += %D%/ext/reports.c

PYTHON_EXT_SOURCES += %D%/ext/admin.c
PYTHON_EXT_SOURCES += %D%/ext/client.c
PYTHON_EXT_SOURCES += %D%/ext/connect.c
PYTHON_EXT_SOURCES += %D%/ext/pool.c
PYTHON_EXT_SOURCES += %D%/ext/sequences.c
PYTHON_EXT_SOURCES += %D%/ext/prefix.c
PYTHON_EXT_SOURCES += %D%/ext/sharing.c
PYTHON_EXT_SOURCES += %D%/ext/handover.c
PYTHON_EXT_SOURCES += %D%/ext/watch.c

# tensor, threads
PYTHON_EXT_SOURCES += %D%/ext/device.c
PYTHON_EXT_SOURCES += %D%/ext/dlpack.c
PYTHON_EXT_SOURCES += %D%/ext/dlpack.h
PYTHON_EXT_SOURCES += %D%/ext/pages.c
PYTHON_EXT_SOURCES += %D%/ext/tensor.c
PYTHON_EXT_SOURCES += %D%/ext/tensor_new.c
PYTHON_EXT_SOURCES += %D%/ext/threads.c

# batch, attention
PYTHON_EXT_SOURCES += %D%/ext/append.c
PYTHON_EXT_SOURCES += %D%/ext/attention.c
PYTHON_EXT_SOURCES += %D%/ext/batch.c
PYTHON_EXT_SOURCES += %D%/ext/batch_plan.c
PYTHON_EXT_SOURCES += %D%/ext/batch_tables.c
PYTHON_EXT_SOURCES += %D%/ext/operands.c
PYTHON_EXT_SOURCES += %D%/ext/operands.h
PYTHON_EXT_SOURCES += %D%/ext/rows.c

# mods, block masks
PYTHON_EXT_SOURCES += %D%/ext/arrays.c
PYTHON_EXT_SOURCES += %D%/ext/block_arrays.c
PYTHON_EXT_SOURCES += %D%/ext/block_mask.c
PYTHON_EXT_SOURCES += %D%/ext/block_mask_view.c
PYTHON_EXT_SOURCES += %D%/ext/mod_set.c
PYTHON_EXT_SOURCES += %D%/ext/mods.c

PYTHON_FILES = %D%/paged/__init__.py
PYTHON_FILES += %D%/paged/_engines.py
PYTHON_FILES += %D%/paged/_paged.pyi
PYTHON_FILES += %D%/paged/py.typed

# torch
PYTHON_FILES += %D%/paged/torch/__init__.py
PYTHON_FILES += %D%/paged/torch/captures.py
PYTHON_FILES += %D%/paged/torch/expressions.py
PYTHON_FILES += %D%/paged/torch/flex_attention.py
PYTHON_FILES += %D%/paged/torch/graph.py
PYTHON_FILES += %D%/paged/torch/mods.py
PYTHON_FILES += %D%/paged/torch/operations.py
PYTHON_FILES += %D%/paged/torch/ops.py
EXTRA_DIST += %D%/bench/attention.py
EXTRA_DIST += %D%/tests/torch/mod_cases.py
EXTRA_DIST += %D%/tests/torch/test_flex_attention.py
EXTRA_DIST += %D%/tests/torch/test_ops.py
EXTRA_DIST += %D%/tests/torch/test_translate.py

# torch: PagedAttention
PYTHON_FILES += %D%/paged/torch/page_tables.py
PYTHON_FILES += %D%/paged/torch/block_lists.py
PYTHON_FILES += %D%/paged/torch/attention.py
EXTRA_DIST += %D%/tests/torch/paged_cases.py
EXTRA_DIST += %D%/tests/torch/test_paged_attention.py
EXTRA_DIST += %D%/tests/torch/test_paged_caches.py
EXTRA_DIST += %D%/tests/torch/test_defects.py
EXTRA_DIST += %D%/tests/torch/test_pytorch_suite.py

# transformers: the cache
PYTHON_FILES += %D%/paged/transformers/__init__.py
PYTHON_FILES += %D%/paged/transformers/attention.py
PYTHON_FILES += %D%/paged/transformers/cache.py
PYTHON_FILES += %D%/paged/transformers/masks.py
PYTHON_FILES += %D%/paged/transformers/rows.py
PYTHON_FILES += %D%/paged/transformers/sequences.py
EXTRA_DIST += %D%/tests/transformers/conftest.py
EXTRA_DIST += %D%/tests/transformers/model_cases.py
EXTRA_DIST += %D%/tests/transformers/test_attention.py
EXTRA_DIST += %D%/tests/transformers/test_beams.py
EXTRA_DIST += %D%/tests/transformers/test_cache.py
EXTRA_DIST += %D%/tests/transformers/test_limits.py
EXTRA_DIST += %D%/tests/transformers/test_masks.py
EXTRA_DIST += %D%/tests/transformers/test_prefixes.py
EXTRA_DIST += %D%/tests/transformers/test_random.py
EXTRA_DIST += %D%/tests/transformers/test_rows.py
EXTRA_DIST += %D%/tests/transformers/test_windows.py

# transformers: generate()
PYTHON_FILES += %D%/paged/transformers/__main__.py
PYTHON_FILES += %D%/paged/transformers/connection.py
PYTHON_FILES += %D%/paged/transformers/fingerprint.py
PYTHON_FILES += %D%/paged/transformers/generation.py
PYTHON_FILES += %D%/paged/transformers/geometry.py
PYTHON_FILES += %D%/paged/transformers/identity.py
PYTHON_FILES += %D%/paged/transformers/switch.py
PYTHON_FILES += %D%/paged/transformers/trial.py
EXTRA_DIST += %D%/bench/generation.py
EXTRA_DIST += %D%/tests/transformers/generation_cases.py
EXTRA_DIST += %D%/tests/transformers/golden_cases.py
EXTRA_DIST += %D%/tests/transformers/test_connection.py
EXTRA_DIST += %D%/tests/transformers/test_documentation.py
EXTRA_DIST += %D%/tests/transformers/test_generation.py
EXTRA_DIST += %D%/tests/transformers/test_device.py
EXTRA_DIST += %D%/tests/transformers/test_geometry.py
EXTRA_DIST += %D%/tests/transformers/test_golden.py
EXTRA_DIST += %D%/tests/transformers/test_identity.py
EXTRA_DIST += %D%/tests/transformers/test_not_shared.py
EXTRA_DIST += %D%/tests/transformers/test_main.py
EXTRA_DIST += %D%/tests/transformers/test_output_attentions.py
EXTRA_DIST += %D%/tests/transformers/test_processes.py
EXTRA_DIST += %D%/tests/transformers/test_trial.py
EXTRA_DIST += %D%/tests/models/comparison.py
EXTRA_DIST += %D%/tests/models/small_models.py
EXTRA_DIST += %D%/tests/models/table.txt
EXTRA_DIST += %D%/tests/models/test_models.py
EXTRA_DIST += %D%/tests/models/try_models.py

# vllm
PYTHON_FILES += %D%/paged/vllm/__init__.py
PYTHON_FILES += %D%/paged/vllm/step.py
PYTHON_FILES += %D%/paged/vllm/backend.py
PYTHON_FILES += %D%/paged/vllm/worker.py
PYTHON_FILES += %D%/paged/vllm/memory.py
PYTHON_FILES += %D%/paged/vllm/mods.py
PYTHON_FILES += %D%/paged/vllm/__main__.py
PYTHON_FILES += %D%/paged/vllm/arguments.py
PYTHON_FILES += %D%/paged/vllm/pool_scheduler.py
PYTHON_FILES += %D%/paged/vllm/connector.py
PYTHON_FILES += %D%/paged/vllm/ended.py
PYTHON_FILES += %D%/paged/vllm/handover.py
PYTHON_FILES += %D%/paged/vllm/identity.py
PYTHON_FILES += %D%/paged/vllm/request_sequences.py
PYTHON_FILES += %D%/paged/vllm/supported.py
PYTHON_FILES += %D%/paged/vllm/waiting.py
PYTHON_FILES += %D%/paged/vllm/limits.py
PYTHON_FILES += %D%/paged/vllm/layers.py
PYTHON_FILES += %D%/paged/vllm/guard.py
PYTHON_FILES += %D%/paged/vllm/loaded.py
PYTHON_FILES += %D%/paged/vllm/pool_worker.py
EXTRA_DIST += %D%/tests/vllm/conftest.py
EXTRA_DIST += %D%/tests/vllm/scheduling.py
EXTRA_DIST += %D%/tests/vllm/test_arguments.py
EXTRA_DIST += %D%/tests/vllm/test_competition.py
EXTRA_DIST += %D%/tests/vllm/test_connector.py
EXTRA_DIST += %D%/tests/vllm/test_disaggregation.py
EXTRA_DIST += %D%/tests/vllm/test_failover.py
EXTRA_DIST += %D%/tests/vllm/test_kv_events.py
EXTRA_DIST += %D%/tests/vllm/test_features.py
EXTRA_DIST += %D%/tests/vllm/test_handover.py
EXTRA_DIST += %D%/tests/vllm/test_identity.py
EXTRA_DIST += %D%/tests/vllm/test_processes.py
EXTRA_DIST += %D%/tests/vllm/test_scheduler.py
EXTRA_DIST += %D%/tests/vllm/server.py
EXTRA_DIST += %D%/tests/vllm/test_servers.py
EXTRA_DIST += %D%/tests/vllm/test_slow_daemon.py
EXTRA_DIST += %D%/tests/vllm/test_waiting.py
EXTRA_DIST += %D%/tests/vllm/test_windows.py
EXTRA_DIST += %D%/tests/vllm/engine.py
EXTRA_DIST += %D%/bench/vllm_engines.py
EXTRA_DIST += %D%/tests/vllm/test_backend.py
EXTRA_DIST += %D%/tests/vllm/test_engine.py
EXTRA_DIST += %D%/tests/vllm/test_memory.py
EXTRA_DIST += %D%/tests/vllm/test_mods.py
EXTRA_DIST += %D%/tests/vllm/test_layers.py
EXTRA_DIST += %D%/tests/vllm/test_guard.py
EXTRA_DIST += %D%/tests/vllm/test_sharing.py
EXTRA_DIST += %D%/tests/vllm/models/small_configs.py
EXTRA_DIST += %D%/tests/vllm/models/table.md
EXTRA_DIST += %D%/tests/vllm/models/try_models.py

# wheel
PYTHON_FILES += %D%/paged/_bin.py
EXTRA_DIST += %D%/MANIFEST.in
EXTRA_DIST += %D%/README.md
EXTRA_DIST += %D%/pyproject.toml
EXTRA_DIST += %D%/setup.py
EXTRA_DIST += %D%/tests/requirements.txt
EXTRA_DIST += %D%/tests/requirements-lint.txt
EXTRA_DIST += %D%/tests/requirements-vllm.txt

# transformers: pages of other engines, the demonstration
EXTRA_DIST += %D%/tests/transformers/test_demo.py
EXTRA_DIST += %D%/tests/transformers/test_llama.py

# Tests without torch: each is run by make check.
PYTHON_TESTS = %D%/tests/test_admin.py
PYTHON_TESTS += %D%/tests/test_client.py
PYTHON_TESTS += %D%/tests/test_client_log.py
PYTHON_TESTS += %D%/tests/test_interpreter.py
PYTHON_TESTS += %D%/tests/test_lost_daemon.py
PYTHON_TESTS += %D%/tests/test_engines.py
PYTHON_TESTS += %D%/tests/test_errors.py
PYTHON_TESTS += %D%/tests/test_handover.py
PYTHON_TESTS += %D%/tests/test_pool.py
PYTHON_TESTS += %D%/tests/test_sequences.py
PYTHON_TESTS += %D%/tests/test_sharing.py
PYTHON_TESTS += %D%/tests/test_stub.py
PYTHON_TESTS += %D%/tests/test_tenants.py
PYTHON_TESTS += %D%/tests/test_typing.py
PYTHON_TESTS += %D%/tests/test_watch.py

# tensor
PYTHON_TESTS += %D%/tests/test_attention.py
PYTHON_TESTS += %D%/tests/test_batch.py
PYTHON_TESTS += %D%/tests/test_device.py
PYTHON_TESTS += %D%/tests/test_pages.py
PYTHON_TESTS += %D%/tests/test_tensor.py
PYTHON_TESTS += %D%/tests/test_threads.py

# mods
PYTHON_TESTS += %D%/tests/test_block_mask.py
PYTHON_TESTS += %D%/tests/test_examples.py
PYTHON_TESTS += %D%/tests/test_messages.py
PYTHON_TESTS += %D%/tests/test_mods.py

EXTRA_DIST += $(PYTHON_FILES) $(PYTHON_TESTS)
EXTRA_DIST += %D%/tests/client_calls.py
EXTRA_DIST += %D%/tests/conftest.py
EXTRA_DIST += %D%/tests/daemon_process.py
EXTRA_DIST += %D%/tests/device_cases.py
EXTRA_DIST += %D%/tests/run
EXTRA_DIST += %D%/tests/stub_docstrings.py
EXTRA_DIST += %D%/tests/tap.py
EXTRA_DIST += %D%/tests/tensors.py
EXTRA_DIST += %D%/tests/torch/test_dlpack.py
EXTRA_DIST += %D%/bench/calls.c
EXTRA_DIST += %D%/bench/calls.py

TEST_EXTENSIONS = .py
PY_LOG_DRIVER = $(LOG_DRIVER)
PY_LOG_COMPILER = env PYTHON='$(PYTHON)' PYTHON_PRELOAD="$(PYTHON_PRELOAD)" $(SHELL) $(srcdir)/%D%/tests/run
if ENABLE_SANITIZERS
PYTHON_PRELOAD = $$($(CC) -print-file-name=libasan.so)
endif

if ENABLE_PYTHON
# The name without "lib" and the rpath make libtool build a module that is not installed.
noinst_LTLIBRARIES += %D%/ext/_paged.la
%C%_ext__paged_la_SOURCES = $(PYTHON_EXT_SOURCES)
%C%_ext__paged_la_CPPFLAGS = $(AM_CPPFLAGS) $(PYTHON_CPPFLAGS)
%C%_ext__paged_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared -rpath /nowhere
%C%_ext__paged_la_LIBADD = client/libpagedclient.la -ldl

all-local: %D%/paged/_paged.abi3.so
# In a build tree of its own, the package's other files are links to the sources.  Programs that run keep the extension
# that they have loaded: it is replaced, not overwritten.
%D%/paged/_paged.abi3.so: %D%/ext/_paged.la $(PYTHON_FILES)
	$(AM_V_GEN)for file in $(PYTHON_FILES); do \
		test $$file -ef $(srcdir)/$$file || { $(MKDIR_P) $$(dirname $$file) && \
		ln -sf $(abs_top_srcdir)/$$file $$file; } || exit 1; done; \
	rm -f $@; cp %D%/ext/.libs/_paged.so $@
clean-local: clean-python
clean-python:
	rm -f %D%/paged/_paged.abi3.so
	test %D% -ef $(srcdir)/%D% || rm -rf %D%/paged

if ENABLE_TESTS
TESTS += $(PYTHON_TESTS)
check_DATA += %D%/paged/_paged.abi3.so
endif
endif
