#!/usr/bin/env bash
# Makes the cloud misbehave in ways that no proxy can.
#   hold.sh pause octavia-worker    load balancers stay PENDING_* from now on
#   hold.sh resume octavia-worker   and go on
#   hold.sh lb ID STATUS            writes a load balancer's provisioning status: ACTIVE, ERROR, DELETED, PENDING_...
set -u
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$HERE/env.sh"
. "$HERE/lib.sh"
check_home

send() { # signal name
  local pid
  pid=$(pid_of "$2") || die "$2 is not running: status.sh tells what is"
  kill "-$1" -- "-$pid" # the whole group: workers are children
}
write_status() { # id status
  local found
  [[ $1 =~ ^[0-9a-f-]{36}$ && $2 =~ ^(ACTIVE|ERROR|DELETED|PENDING_(CREATE|UPDATE|DELETE))$ ]] ||
    die "lb ID ACTIVE|ERROR|DELETED|PENDING_CREATE|PENDING_UPDATE|PENDING_DELETE, not: lb $1 $2"
  found=$(sql -N octavia -e \
    "UPDATE load_balancer SET provisioning_status='$2' WHERE id='$1'; SELECT COUNT(*) FROM load_balancer WHERE id='$1'") ||
    die "the database does not answer: is the cloud up?"
  [ "$found" = 1 ] || die "there is no load balancer $1"
}
case "$#:${1:-}" in
  2:pause) send STOP "$2" ;;
  2:resume) send CONT "$2" ;;
  3:lb) write_status "$2" "$3" ;;
  *) help_of "$0" >&2; exit 2 ;;
esac
