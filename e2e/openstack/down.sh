#!/usr/bin/env bash
# Stops the processes that up.sh started, and no others.
#   down.sh           keeps the data
#   down.sh --wipe    removes the data and the settings; the programs stay
set -u
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$HERE/env.sh"
. "$HERE/lib.sh"
case "$#:${1:-}" in
  0: | 1:--wipe) ;;
  *) help_of "$0" >&2; exit 2 ;;
esac
trap 'say "interrupted: run down again to stop the remaining processes"; exit 130' INT TERM
check_home
[ -d "$RUN" ] || { say "nothing runs from $OSTACK_HOME"; exit 0; }
take_lock

stop() { # "name ..." lines: sends TERM to all, waits up to 15 s for each, then sends KILL to the rest of its group
  local service name pid _
  local -A was=()
  for service in "$@"; do
    name=${service%% *}
    pid=$(pid_of "$name") || { rm -f "$RUN/$name.pid"; continue; }
    was[$name]=$pid
    kill -CONT -- "-$pid" 2>/dev/null # hold.sh may have paused it
    kill -TERM "$pid" 2>/dev/null
  done
  for name in "${!was[@]}"; do
    for _ in $(seq 1 150); do alive "$name" || break; sleep 0.1; done
    alive "$name" && say "$name does not end, killing it"
    kill -KILL -- "-${was[$name]}" 2>/dev/null
    rm -f "$RUN/$name.pid"
    say "stopped $name"
  done
}
stop "${SERVICES[@]}"
stop "${FOUNDATION[@]:0:2}"
stop "${FOUNDATION[@]:2}" # RabbitMQ uses epmd until it ends
if [ "${1:-}" = --wipe ]; then
  rm -rf "${OSTACK_HOME:?}"/{mysql,rabbit,keystone,glance,nova,nova-b,octavia,lock,conf,run,log} \
    "$OSTACK_HOME"/{clouds.yaml,amphora.env} "$OSTACK_HOME"/.done-*
  say "removed the data in $OSTACK_HOME"
fi
exit 0
