#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Python programs that no test can run here parse, the table of peers is made of both forms of results, and the package's
# extension exports and needs what it may.
n=0
status=0
result()
{
	n=$((n + 1))
	if [ "$1" -eq 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; status=1; fi
}
directory=$(mktemp -d) || exit 99
trap 'rm -rf "$directory"' EXIT
for file in "$PAGED_SRCDIR"/bench/*.py "$PAGED_SRCDIR"/bench/peers/*.py "$PAGED_SRCDIR"/tests/golden/*.py \
	$(find "$PAGED_SRCDIR/python" -name '*.py' -o -name '*.pyi' | sort); do
	python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read(), sys.argv[1])' "$file"
	result $? "${file#"$PAGED_SRCDIR"/} parses"
done

cat >"$directory/paged.json" <<'END'
{"suite": "gpu", "cases": [{"name": "decode", "unit": "us", "median": 100.0, "bytes": 4.2e8},
 {"name": "mods", "unit": "us", "skipped": "no compiler"}]}
END
cat >"$directory/peers.jsonl" <<'END'
{"suite": "gpu", "peer": "flex", "name": "decode", "unit": "us", "median": 250.0}
{"suite": "gpu", "peer": "sdpa", "name": "decode", "unit": "us", "median": 150.0}
{"suite": "gpu", "peer": "sdpa", "name": "prefill", "unit": "us", "skipped": "out of memory"}
{"suite": "gpu", "peer": "sd
END
python3 "$PAGED_SRCDIR/bench/peers/peer_table.py" "$directory/paged.json" "$directory/peers.jsonl" >"$directory/table" &&
	grep -qxF '| decode | 100.0 4.20 TB/s | 250.0 | 150.0 | 1.50 |' "$directory/table" &&
	[ "$(wc -l <"$directory/table")" -eq 3 ]
result $? "results of ours and of peers make one table"
# Also where there is a torch: no device is visible to it.
CUDA_VISIBLE_DEVICES='' python3 "$PAGED_SRCDIR/bench/peers/gpu_torch.py" >"$directory/none" 2>&1 &&
	grep -q '"name": "all".*"skipped"' "$directory/none"
result $? "without a GPU gpu_torch.py says so"
for peer in torch vllm; do
	python3 -B "$PAGED_SRCDIR/bench/plot_peers.py" "$PAGED_SRCDIR/bench/${peer}_ratios.json" >"$directory/plot" &&
		cmp "$directory/plot" "$PAGED_SRCDIR/docs/$peer.svg" &&
		python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$directory/plot"
	result $? "docs/$peer.svg is the plot of its data"
done
extension=$PAGED_BUILDDIR/python/paged/_paged.abi3.so
if [ -e "$extension" ]; then
	nm -D --defined-only "$extension" | awk '{ print $3 }' | grep -v '^_\(_\|init$\|fini$\)' >"$directory/exports"
	[ "$(cat "$directory/exports")" = PyInit__paged ]
	result $? "the extension exports its init function only"
	# Names with an underscore are no part of the limited API, but for these, which its headers use: macros replace
	# functions by their _SizeT forms.
	nm -D --undefined-only "$extension" | awk '{ print $2 }' | grep '^_Py' |
		grep -vxE '_Py_(Dealloc|NoneStruct|TrueStruct|FalseStruct|IncRef|DecRef)|_Py.*_SizeT' >"$directory/private"
	[ ! -s "$directory/private" ]
	result $? "the extension uses no private function of Python"
else
	n=$((n + 1))
	echo "ok $n - exports of the extension # SKIP configured without Python"
fi
echo "1..$n"
exit $status
