#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The library exports exactly the symbols of its map, and the map lists exactly what the headers declare.  Templates for
# C++ (paged_..._) are not exported.
library=$PAGED_BUILDDIR/client/.libs/libpagedclient.so
exported=$(nm -D --defined-only "$library" | sed -n 's/.* T \([a-z_0-9]*\)@.*/\1/p' | sort)
mapped=$(sed -n 's/^	\(paged_[a-z_0-9]*\);$/\1/p' "$PAGED_SRCDIR/client/pagedclient.map" | sort)
declared=$(sed -n '/^\(typedef\|#define\|[ 	]*\*\|	\)/d; s/.*\b\(paged_[a-z_0-9]*\)(.*/\1/p' \
	"$PAGED_SRCDIR/client/pagedclient.h" "$PAGED_SRCDIR/client/paged_admin.h" \
	"$PAGED_SRCDIR/client/paged_attention.h" "$PAGED_SRCDIR/client/paged_batch.h" \
	"$PAGED_SRCDIR/client/paged_marks.h" "$PAGED_SRCDIR/client/paged_mods.h" \
	"$PAGED_SRCDIR/client/paged_sharing.h" "$PAGED_SRCDIR/client/paged_watch.h" "$PAGED_SRCDIR/common/paged_types.h" |
	grep -v '^ \*\|_$' | sort -u)
status=0
echo "1..3"
if [ -n "$mapped" ] && [ "$exported" = "$mapped" ]; then
	echo "ok 1 - the exports are the map's"
else
	printf '%s\n' "$exported" "---" "$mapped" | sed 's/^/# /'
	echo "not ok 1 - the exports are the map's"
	status=1
fi
if [ "$declared" = "$mapped" ]; then
	echo "ok 2 - the map is the headers'"
else
	printf '%s\n' "$declared" "---" "$mapped" | sed 's/^/# /'
	echo "not ok 2 - the map is the headers'"
	status=1
fi
# The library must not call libc functions that print, end the process or jump.
if forbidden=$(nm -D --undefined-only "$library" |
	grep -E ' U (printf|puts|putchar|perror|syslog|exit|_exit|abort|longjmp|signal|sigaction)(@|$)'); then
	printf '%s\n' "$forbidden" | sed 's/^/# /'
	echo "not ok 3 - it neither prints nor ends the process"
	status=1
else
	echo "ok 3 - it neither prints nor ends the process"
fi
exit $status
