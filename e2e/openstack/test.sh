#!/usr/bin/env bash
# Runs adapter-conformance on adapter-openstack, with the local OpenStack behind it. If nothing of that runs, it is started, and
# stopped in the end.
#   test.sh PROGRAMS FOLDER [FLAG]...    where both programs are, where files go, flags of adapter-conformance
set -u
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$HERE/env.sh"
. "$HERE/lib.sh"
[ $# -ge 2 ] || { help_of "$0" >&2; exit 2; }
programs=$1 folder=$2
shift 2

"$HERE/status.sh" >/dev/null
[ $? = 3 ] && trap '"$HERE/down.sh"' EXIT
trap 'exit 130' INT TERM
settings=$("$HERE/up.sh") || exit
eval "$settings"
"$OSTACK_VENV/bin/python" -B "$HERE/conformance/setting.py" --programs "$programs" --folder "$folder" -- "$@"
