#!/usr/bin/env bash
# Runs adapter-conformance on adapter-openstack with the local OpenStack. If OpenStack does not run, starts it, and stops it at
# the end.
#   test.sh PROGRAMS FOLDER [FLAG]...    folder of both programs, folder for files, flags of adapter-conformance
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
