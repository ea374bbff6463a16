#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# wheel.sh WHEEL - the wheel works in a fresh environment without a compiler, and leaves nothing there.
PAGED_SRCDIR=${PAGED_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
. "$PAGED_SRCDIR/tests/support/tap.sh"
wheel=$(realpath "$1")
daemon=
trap '[ -z "$daemon" ] || kill "$daemon" 2>/dev/null; rm -rf "$directory"' EXIT
cd "$directory" || exit 99
# No library path and no Python modules of the caller: the wheel must find its own.
unset LD_LIBRARY_PATH PYTHONPATH PAGED_RUNTIME_DIR
runtime=$directory/runtime

# Python's own files in site-packages, before and after.
files()
{
	find venv \( -name __pycache__ -prune \) -o -type f -print | sort
}

try "an environment" "${PYTHON:-python3}" -m venv venv
python=$directory/venv/bin/python
files >before

# No compiler is in this PATH, nor pkg-config.
mkdir bin
for program in sh cat find rm sed seq sleep sort; do
	ln -s "$(command -v $program)" bin/
done
PATH=$directory/venv/bin:$directory/bin
no_compiler()
{
	! command -v cc && ! command -v gcc && ! command -v clang && ! command -v pkg-config
}
try "no compiler is found" no_compiler
try "pip installs it without an index" "$python" -m pip install --no-index --no-deps "$wheel"
try "pagedd of the wheel" pagedd --version
try "pagedctl of the wheel" pagedctl --help

libraries()
{
	"$python" - <<-'END'
	import importlib.metadata
	import os
	import paged

	files = importlib.metadata.files("paged")
	libraries = [file.name for file in files if file.parts[0] == "paged.libs"]
	print(libraries)
	assert len(libraries) == 1 and libraries[0].startswith("libpagedclient"), libraries
	mapped = {line.split()[-1] for line in open("/proc/self/maps") if "libpagedclient" in line}
	print(mapped)
	assert [os.path.basename(file) for file in mapped] == libraries, mapped
	assert paged.version() == importlib.metadata.version("paged")
	for name in "pagedd.8", "PYTHON.md", "first.py":
	    assert any(file.name == name for file in files), name
	assert any(file.name == "libzmq3-dev" for file in files), "the license of libzmq"
	END
}
try "it uses its own library, the only one in it" libraries

cat >pagedd.conf <<'END'
pool small {
	layers = 2
	kv-heads = 2
	head-dim = 8
	dtype = f32
	page-size = 4
	pages = 64
	max-length = 64
}
END
pagedd --config pagedd.conf --runtime-dir "$runtime" 2>log &
daemon=$!
for _ in $(seq 6000); do
	pagedctl -r "$runtime" status >/dev/null 2>&1 && break
	sleep 0.05
done
try "pagedctl asks pagedd" pagedctl -r "$runtime" status
# The console script was replaced by the program, so this is pagedd's process.
signal_stops_it()
{
	kill "$daemon" && wait "$daemon"
}
try "embedded and served use" "$python" "$PAGED_SRCDIR/tests/packages/use.py" "$runtime"
try "all pages are free again" pagedctl -r "$runtime" check
try "pagedd ends on SIGTERM" signal_stops_it
daemon=

nothing_left()
{
	"$python" -m pip uninstall -q -y paged && files >after && "$python" - <<-'END'
	left = set(open("after")) - set(open("before"))
	assert not left, left
	END
}
try "pip uninstall leaves nothing" nothing_left
finish
