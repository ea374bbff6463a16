#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# documented.sh [engines] - the lines with which README.md and docs/ install and start the Python package work as they
# are written, in a fresh environment.
#
# A section's blocks of commands run one after the other in one shell, whose directory has what the tree has.  Without
# "engines", those that fetch PyTorch or vLLM, 5 GB each, are left out; with it, only those of the engines run.  What
# differs is the runtime directory and the pool's size, so that tests can run at the same time.
# PAGED_WHEEL_OPTIONS are added to tools/wheel.
PAGED_SRCDIR=${PAGED_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
. "$PAGED_SRCDIR/tests/support/tap.sh"
unset LD_LIBRARY_PATH PYTHONPATH PAGED_RUNTIME_DIR PAGED_BUILDDIR
mkdir "$directory/tree" "$directory/tree/tools" && cd "$directory/tree" || exit 99
mkdir -p "$PAGED_SRCDIR/build-wheel"
ln -s "$PAGED_SRCDIR"/{build-wheel,docs,examples,python} .
for tool in "$PAGED_SRCDIR"/tools/*; do
	# A link, too, but tools find the tree by the names with which they are called.
	printf '#!/bin/sh\nexec "%s" "$@"%s\n' "$tool" \
		"$([ "${tool##*/}" != wheel ] || echo " ${PAGED_WHEEL_OPTIONS-}")" >"tools/${tool##*/}"
done
chmod +x tools/*
ln -sf "$PAGED_SRCDIR/tools/hf-model" tools/hf-model

# blocks FILE HEADING - the commands of a section: blocks that are indented and begin with a command
blocks()
{
	awk -v heading="## $2" '
	/^## / { inside = $0 == heading }
	/^```/ { fenced = !fenced }
	!inside || fenced { next }
	/^    / {
		if (!block)
			commands = $1 ~ /^(tools\/.*|python3?|pip|hf|pagedd)$/
		block = 1
		if (commands)
			print substr($0, 5)
		next
	}
	{ block = 0 }' "$PAGED_SRCDIR/$1"
}
# run LAST EXCEPT FILE HEADING [FILE HEADING]... - runs the sections' commands, but for lines that match EXCEPT, then LAST
run()
{
	last=$1 except=$2
	shift 2
	: >commands
	while [ $# -gt 0 ]; do
		[ -n "$(blocks "$1" "$2")" ] || { echo "no commands in $1, $2"; return 1; }
		blocks "$1" "$2" | sed "s|/tmp/paged|$directory/runtime|" | grep -vE "$except" >>commands
		shift 2
	done
	# README's pool.
	sed -n '/^    pool llama {/,/^    }/p' "$PAGED_SRCDIR/README.md" | sed 's/2GiB/64MiB/' >pagedd.conf
	rm -rf venv venv-vllm "$directory/runtime"
	printf 'trap "kill \\$(jobs -p) 2>/dev/null; wait" EXIT\n' >script
	cat commands >>script
	printf '%s\n' "$last" >>script
	bash -ex script
}
# reaches HOST
reaches()
{
	python3 -c 'import socket, sys; socket.create_connection((sys.argv[1], 443), 20)' "$1" >/dev/null 2>&1
}

if [ "${1-}" != engines ]; then
	try "README.md" run "" "^$" README.md "A worker in Python"
	# README.md has its tools/wheel, too.
	try "docs/PYTHON.md" run "python examples/python/share_prefix.py" "torch|^tools/wheel" \
		docs/PYTHON.md "Install" docs/PYTHON.md "First example"
	finish
fi

python3 - "$PAGED_SRCDIR/docs/TRANSFORMERS.md" >script.py <<'END'
import re
import sys

print(next(block for block in re.findall(r"^```python\n(.*?)^```$", open(sys.argv[1]).read(), re.MULTILINE | re.DOTALL)
           if "from_pretrained" in block))
END
try "docs/TRANSFORMERS.md, PyTorch of PyPI" run "python -m paged.transformers script.py; pagedctl check" "index-url|^hf " \
	docs/PYTHON.md "Install" docs/TRANSFORMERS.md "Install"
if reaches download.pytorch.org; then
	try "docs/PYTHON.md, PyTorch for CPUs" run "python -c 'import torch; assert torch.version.cuda is None'" "torch$" \
		docs/PYTHON.md "Install"
else
	skip "docs/PYTHON.md, PyTorch for CPUs" "download.pytorch.org cannot be reached"
fi
if reaches huggingface.co; then
	try "docs/TRANSFORMERS.md, the Hub" run "ls SmolLM2-135M-Instruct/config.json" "torch|accelerate|hf-model|paged.transformers|pagedd|pagedctl|PAGED" \
		docs/PYTHON.md "Install" docs/TRANSFORMERS.md "Install"
else
	skip "docs/TRANSFORMERS.md, the Hub" "huggingface.co cannot be reached"
fi
try "docs/VLLM.md" run "python -c '
import importlib.metadata, vllm, paged.vllm
[entry] = importlib.metadata.entry_points(group=\"vllm.general_plugins\", name=\"paged\")
entry.load()'" "^$" docs/VLLM.md "Install"
finish
