#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# No function name is defined twice in product code, so that a search for a name finds one function.
if ! ctags --version 2>/dev/null | grep -q Universal; then
	echo "1..0 # SKIP universal-ctags is not installed"
	exit 0
fi
cd "$PAGED_SRCDIR" || exit 99
. "$PAGED_SRCDIR/tests/support/tap.sh"

# allowed - drops the functions() that may be defined more than once, each for the reason above it
allowed()
{
	awk '
		# Each program has one.
		$1 == "main" { next }
		# A macro makes the names of kernels: ctags sees the macro.
		$1 == "ATTENTION_NAME" && $2 ~ /^kernels\/cuda\/attention\/[a-z_\/]*\.cu$/ { next }
		# The vector interface: each instruction set implements it, and one source is compiled once for each.
		$1 ~ /^(vec|ints|x86)_/ && $2 ~ /^kernels\/(cpu\/isa\/tile_|mod\/vec_)/ { next }
		# Device functions of mods are overloaded by type, as the generated code calls them.
		$1 ~ /^mod_/ && $2 == "kernels/cuda/device/mod_device.h" { next }
		# Members of the classes that the attention template takes as its parameter.
		$1 ~ /^(add_pv|add_qk|fetch_q_rows|fetch_scale|least_stages|non_finite|pv_mma|stages|sum_factor|sum_index|to_f32|unpacks)$/ &&
			$2 ~ /^kernels\/cuda\/attention\/(decode\/)?attention_(bytes\.cu|tile\.h)$/ { next }
		$1 ~ /^(fetch|load_entry|may_go_on|n_stages|n_tokens|visible_from|wait)$/ &&
			$2 ~ /^kernels\/cuda\/attention\/(mla\/)?attention_(fetch\.h|mla\.cu)$/ { next }
		$1 ~ /^(at|step|token)$/ && $2 ~ /^kernels\/cuda\/attention\/(decode\/)?attention_(bulk\.cu|tile\.h)$/ { next }
		# Members of the classes that the MLA template takes as its block, and of a class of threads.
		$1 ~ /^(item_take|items_begin|slot_init|sync)$/ &&
			$2 ~ /^kernels\/cuda\/attention\/(mla\/)?attention(_mla_cluster\.cu|_mla_wgmma\.cu|\.h)$/ { next }
		{ print }'
}

# functions - prints "name file:line" of each function definition, generated files excepted
functions()
{
	find common proto core daemon client kernels pagedctl events \( -name '*.[ch]' -o -name '*.cu' \) \
		! -name '*.pb-c.[ch]' ! -name 'aot_*.cu' -print | sort |
		ctags -x --c-kinds=f --c++-kinds=f --langmap=c:+.cu -L - |
		awk '{ print $1, $4, $3 }'
}

# repeated - prints the lines of functions() whose name another line has too
repeated()
{
	awk '{ n[$1]++; lines[$1] = lines[$1] "\n" $1 ": " $2 ":" $3 }
		END { for (name in n) if (n[name] > 1) print substr(lines[name], 2) }' | sort
}

functions >"$directory/functions"
[ "$(wc -l <"$directory/functions")" -gt 1000 ]
result $? "ctags finds the functions"
allowed <"$directory/functions" | repeated >"$directory/output"
[ ! -s "$directory/output" ]
result $? "no function name is defined twice"
finish
