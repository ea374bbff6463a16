#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The programs of tools/ say how far they are while something takes long.
#
# Each runs in a tree of its own, in which the programs that it calls are replaced by one that is slow: it waits until
# the tool has said how far it is, up to minutes, and then fails.
. "$PAGED_SRCDIR/tests/support/tap.sh"
cd "$directory" || exit 99
mkdir bin
export PAGED_PROGRESS_S=1 SAID=$directory/said

cat >bin/slow <<'END'
#!/bin/bash
case "$*" in *--version) exit 0 ;; esac
echo "slow step"
for _ in $(seq 1200); do
	! grep -q ", [0-9]* s.*$EXPECTED" "$SAID" || { touch "$SAID.seen"; exit 1; }
	sleep 0.1
done
exit 1
END
chmod +x bin/slow

# says EXPECTED SLOW TOOL OPTION... - SLOW is the program that is slow.  EXPECTED stands in the tool's line: what SLOW has
# printed, if the tool keeps that in a log.
says()
{
	export EXPECTED=$1
	slow=$2
	tool=$3
	shift 3
	rm -rf tree path "$SAID.seen" && mkdir tree path && : >"$SAID"
	cp -r "$PAGED_SRCDIR/tools" tree && chmod -R u+w tree
	touch tree/configure.ac tree/Makefile.in
	# No package is there, and all can be installed.
	printf '#!/bin/sh\nexit 1\n' >path/dpkg-query
	printf '#!/bin/sh\nexit 0\n' | tee tree/autogen.sh >tree/configure
	[ "$tool" = install-packages ] || cp tree/configure tree/tools/install-packages
	cp bin/slow "path/$slow"
	chmod +x path/* tree/autogen.sh tree/configure
	(cd tree && PATH=$directory/path:$PATH PYTHON=slow "tools/$tool" "$@") >>"$SAID" 2>&1
	cat "$SAID"
	[ -e "$SAID.seen" ]
}
try "tools/install-packages" says "slow step" apt-get install-packages build
try "tools/fetch-model" says "" python3 fetch-model
try "tools/environment" says "" slow environment "$PAGED_SRCDIR/python/tests/requirements-lint.txt"
try "tools/wheel" says "slow step" apt-get wheel --no-install
try "tools/deb" says "slow step" dpkg-buildpackage deb --no-install
try "tools/quickstart" says "slow step" make quickstart
try "tools/demo" says "slow step" make demo --no-install
try "tools/check" says "slow step" make check --no-install --no-model

# The lines end with the tool, however it ends.
ends()
{
	printf '#!/bin/sh\n. "%s/tools/progress.sh"\nprogress_begin work\nsleep 1000 & echo $!\nwait\n' "$PAGED_SRCDIR" >killed
	sh "$directory/killed" >sleeper 2>lines &
	tool=$!
	for _ in $(seq 1200); do
		! grep -q work lines || break
		sleep 0.1
	done
	kill -9 "$tool"
	kill "$(cat sleeper)"
	# Its only child left is the one that prints lines; that ends after the next second.
	for _ in $(seq 1200); do
		pgrep -f "$directory/killed" >pids || return 0
		sleep 0.1
	done
	cat pids lines
	return 1
}
try "no line after the end of a killed tool" ends
finish
