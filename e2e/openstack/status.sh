#!/usr/bin/env bash
# Shows the processes: name, port, PID, and whether each answers. Exits with 0 if all answer, 1 if some do not, 3 if none runs.
set -u
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$HERE/env.sh"
. "$HERE/lib.sh"
[ $# = 0 ] || { help_of "$0" >&2; exit 2; }
check_home

state() { # name how port
  alive "$1" || { echo 'not running'; return; }
  paused "$1" && { echo paused; return; }
  case "$2" in
    alive) echo running ;; # it has no port; it gets its requests from RabbitMQ
    tcp) open_port "$3" && echo yes || echo no ;;
    http) http_answers "$3" 10 && echo yes || echo no ;;
  esac
}
silent=0 gone=0
printf '%-15s %6s %8s  %s\n' SERVICE PORT PID ANSWERS
for service in "${SERVICES[@]}" "${FOUNDATION[@]}"; do
  read -r name how port <<<"$service"
  state=$(state "$name" "$how" "$port")
  [[ $state =~ ^(yes|running)$ ]] || silent=1
  [ "$state" != 'not running' ] || gone=$((gone + 1))
  printf '%-15s %6s %8s  %s\n' "$name" "${port/#0/-}" "$(pid_of "$name" || echo -)" "$state"
done
[ $gone -lt $((${#SERVICES[@]} + ${#FOUNDATION[@]})) ] || exit 3
exit $silent
