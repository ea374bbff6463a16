#compdef pagedctl pagedd paged-events
# SPDX-License-Identifier: Apache-2.0
# Completes pagedctl, pagedd and paged-events with the commands and options that --help lists.
local help

case $words[CURRENT-1] in
-r | --runtime-dir) _files -/ ;;
-c | --config) _files ;;
-l | --log-level | log-level) compadd error warning info debug ;;
-p | --pool) compadd -- $(${words[1]/%paged-events/pagedctl} pools 2>/dev/null | awk 'NR > 1 { print $1 }') ;;
*)
	help=$($words[1] --help 2>/dev/null)
	compadd -- $(grep -o -e '--[a-z][a-z-]*' <<<$help) $(sed -n 's/^  \([a-z][a-z-]*\)  .*/\1/p' <<<$help)
	;;
esac
