# SPDX-License-Identifier: Apache-2.0
# progress.sh - what the programs of tools/ source, so that none is silent for longer than half a minute
#
#   progress_begin WHAT [LOG]   from now on, a line on standard error every 30 seconds: WHAT, how long it has taken, and
#                               the last line of LOG; of a directory, its size
#   progress_end                no more lines
#
# progress_format is printf's, if these lines do not begin and end as lines do.  PAGED_PROGRESS_S is another number of
# seconds, for tests.

# shellcheck shell=sh
progress_pid=
progress_format='%s\n'

progress_lines()
{
	progress_s=0
	# Nothing waits for the output of a sleep that is left over.
	while sleep "${PAGED_PROGRESS_S:-30}" >/dev/null 2>&1 3>&-; do
		# The program may have been killed.
		kill -0 $$ 2>/dev/null || exit
		progress_s=$((progress_s + ${PAGED_PROGRESS_S:-30}))
		if [ -d "$2" ]; then
			progress_at=": $(du -sm "$2" 2>/dev/null | cut -f 1) MiB are there"
		else
			progress_at=$(tail -c 1000 "$2" 2>/dev/null | tr '\r' '\n' | sed '/^[[:space:]]*$/d' | tail -n 1 | cut -c 1-80)
			progress_at=${progress_at:+: $progress_at}
		fi
		# shellcheck disable=SC2059 # a format
		printf "$progress_format" "$1, $progress_s s$progress_at" >&2
	done
}
progress_begin()
{
	progress_lines "$1" "${2:-/dev/null}" &
	progress_pid=$!
}
progress_end()
{
	[ -z "$progress_pid" ] || { kill "$progress_pid" && wait "$progress_pid"; } 2>/dev/null || :
	progress_pid=
}
