#!/usr/bin/env bash
# Runs a command that uses the local OpenStack through OS_CLIENT_CONFIG_FILE. If OpenStack does not run, starts it, and stops it at the end.
#   run.sh COMMAND [ARGUMENT]...
set -u
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$HERE/env.sh"
. "$HERE/lib.sh"
[ $# -ge 1 ] || { help_of "$0" >&2; exit 2; }

"$HERE/status.sh" >/dev/null
[ $? = 3 ] && trap '"$HERE/down.sh"' EXIT
trap 'exit 130' INT TERM
settings=$("$HERE/up.sh") || exit
eval "$settings"

# In a process group of its own, so that it gets each signal once, from this script, and can clean up.
set -m
"$@" &
command=$!
for signal in INT TERM HUP; do
  # shellcheck disable=SC2064 # expand the variables now
  trap "kill -$signal -- -$command" "$signal"
done
# A signal ends the wait, but not the command.
while :; do
  wait "$command"
  status=$?
  kill -0 "$command" 2>/dev/null || exit "$status"
done
