# shellcheck shell=bash
# Sourced by up.sh: starts processes, waits for them, and runs steps that are needed once.

start() { # name port-or-0 command...: in a process group of its own, recorded for down.sh
  local name=$1 port=$2
  shift 2
  alive "$name" && return 0
  if [ "$port" != 0 ] && open_port "$port"; then
    die "port $port ($name) is used by another program: stop it, or change all ports with OSTACK_PORT_BASE"
  fi
  say "starting $name"
  setsid "$@" >>"$LOG/$name.out" 2>&1 </dev/null 9>&- &
  echo "$! $(start_time $!)" >"$RUN/$name.pid"
}

wait_for() { # what service command...: repeats the command for up to 90 s
  local what=$1 name=$2 fault="no sign of $1 after 90 s" _
  shift 2
  for _ in $(seq 1 450); do
    "$@" && return 0
    alive "$name" || { fault="$name died before there was $what"; break; }
    sleep 0.2
  done
  tail_of "$LOG/$name.log"
  tail_of "$LOG/$name.out"
  die "$fault (logs: $LOG)"
}

wsgi() { # name port module [more options of uWSGI]
  local name=$1 port=$2 module=$3
  shift 3
  start "$name" "$port" "$OSTACK_VENV/bin/uwsgi" --http-socket "127.0.0.1:$port" --module "$module" \
    --master --processes 1 --threads 6 --enable-threads --lazy-apps --die-on-term \
    --need-app --buffer-size 65535 --http-chunked-input --add-header "Connection: close" --disable-logging "$@"
}

render() { # template target [NAME=value ...]: fills in @NAME@
  local template=$1 target=$2 pair edits=()
  shift 2
  for pair in "HOME=$OSTACK_HOME" "LOG=$LOG" "VENV=$OSTACK_VENV" "PASS=$PASSWORD" "TTL=$OSTACK_TOKEN_TTL" \
    "P_DB=$P_DB" "P_RABBIT=$P_RABBIT" "P_KEYSTONE=$P_KEYSTONE" "P_OCTAVIA=$P_OCTAVIA" "P_HEALTH=$P_HEALTH" "$@"; do
    edits+=(-e "s|@${pair%%=*}@|${pair#*=}|g")
  done
  sed "${edits[@]}" "$HERE/conf/$template" >"$target"
}

configure() { # service [NAME=value ...]
  local service=$1 file=$1.conf
  shift
  [ "$service" = glance ] && file=glance-api.conf
  mkdir -p "$CONF/$service"
  render "$file.in" "$CONF/$service/$file" "$@"
  [ "$service" = keystone ] && return
  render authtoken.in "$RUN/authtoken" SVC="$service"
  cat "$RUN/authtoken" >>"$CONF/$service/$file"
}

once() { # stamp command...: runs it unless it has already succeeded here
  local stamp=$1
  shift
  [ -e "$OSTACK_HOME/.done-$stamp" ] && return 0
  say "setting up $stamp"
  "$@" >"$LOG/setup-$stamp.log" 2>&1 9>&- || { tail_of "$LOG/setup-$stamp.log"; die "setting up $stamp failed"; }
  touch "$OSTACK_HOME/.done-$stamp"
}
