# shellcheck shell=bash
# Functions that all scripts here share: messages, and PID files. Source env.sh first.
T_START=$SECONDS
say() { printf '[%4ss] %s\n' "$((SECONDS - T_START))" "$*" >&2; }
die() {
  say "ERROR: $*"
  exit 1
}
# The head of a script is its help: every line of it after the first.
help_of() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$1"; }

tail_of() { # log: prints its end, if it exists
  [ -s "$1" ] || return 0
  { echo "--- end of $1"; tail -n 15 "$1"; echo '---'; } >&2
}

check_home() {
  [[ $OSTACK_HOME =~ ^/[A-Za-z0-9_./-]+$ && ${#OSTACK_HOME} -le 80 ]] ||
    die "invalid OSTACK_HOME $OSTACK_HOME: it contains sockets, so it must be an absolute path of at most 80 characters A-Z a-z 0-9 _ . / -"
}

# If two scripts change the cloud, the second one waits. A script that Ctrl-C ended needs a moment to exit, too.
take_lock() {
  mkdir -p "$RUN"
  exec 9>"$RUN/lock"
  flock -n 9 && return
  say "waiting for another script that uses $OSTACK_HOME"
  flock -w 60 9 || die "it does not end: find it with \`fuser $RUN/lock\`"
}

# A PID file contains "PID START". START is the process's start time in clock ticks, so that a process that got the same PID
# later is not signalled.
start_time() { # pid
  local stat
  { stat=$(<"/proc/$1/stat"); } 2>/dev/null || return 1
  # The fields after "(name) ".
  local -a fields
  read -ra fields <<<"${stat##*) }"
  [ "${fields[0]}" != Z ] && echo "${fields[19]}"
}
pid_of() { # name: prints the PID if exactly that process still runs
  local pid='' born=''
  [ -s "$RUN/$1.pid" ] && read -r pid born <"$RUN/$1.pid"
  [ -n "$pid" ] && [ "$(start_time "$pid")" = "$born" ] && echo "$pid"
}
alive() { pid_of "$1" >/dev/null; }
paused() { # name
  local stat
  stat=$(<"/proc/$(pid_of "$1")/stat") && stat=${stat##*) } && [ "${stat%% *}" = T ]
}

open_port() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
http_answers() { # port [seconds]: does an HTTP server answer, with any status but 5xx?
  local line=
  { exec 3<>"/dev/tcp/127.0.0.1/$1"; } 2>/dev/null || return 1
  printf 'GET / HTTP/1.0\r\nHost: 127.0.0.1:%s\r\nConnection: close\r\n\r\n' "$1" >&3
  read -r -t "${2:-60}" line <&3 2>/dev/null || true
  exec 3<&-
  [[ $line =~ ^HTTP/1\.[01]\ [1-4] ]]
}

sql() { mariadb --no-defaults -h127.0.0.1 -P"$P_DB" -ustack -p"$PASSWORD" "$@"; }
