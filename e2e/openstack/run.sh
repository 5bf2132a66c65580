#!/usr/bin/env bash
# Runs a command that finds the local OpenStack by OS_CLIENT_CONFIG_FILE. If nothing of that runs, it is started, and stopped in the end.
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

# In a process group of its own, which hears of signals by us alone, once each, and cleans up.
set -m
"$@" &
command=$!
for signal in INT TERM HUP; do
  # shellcheck disable=SC2064 # the values of now
  trap "kill -$signal -- -$command" "$signal"
done
# A signal ends the waiting, and not the command.
while :; do
  wait "$command"
  status=$?
  kill -0 "$command" 2>/dev/null || exit "$status"
done
