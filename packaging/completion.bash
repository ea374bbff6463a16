# SPDX-License-Identifier: Apache-2.0
# Completes pagedctl, pagedd and paged-events with the commands and options that --help lists.
_paged()
{
	local word=${COMP_WORDS[COMP_CWORD]} words help

	case ${COMP_WORDS[COMP_CWORD - 1]} in
	-r | --runtime-dir)
		mapfile -t COMPREPLY < <(compgen -d -- "$word")
		return
		;;
	-c | --config)
		mapfile -t COMPREPLY < <(compgen -f -- "$word")
		return
		;;
	-l | --log-level | log-level) words="error warning info debug" ;;
	-p | --pool) words=$("${1/%paged-events/pagedctl}" pools 2>/dev/null | awk 'NR > 1 { print $1 }') ;;
	*)
		help=$("$1" --help 2>/dev/null)
		words=$(grep -o -e '--[a-z][a-z-]*' <<<"$help"; sed -n 's/^  \([a-z][a-z-]*\)  .*/\1/p' <<<"$help")
		;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}
complete -F _paged pagedctl pagedd paged-events
