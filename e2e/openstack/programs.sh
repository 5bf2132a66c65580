# shellcheck shell=bash
# Sourced by up.sh: installs MariaDB, RabbitMQ and the Python programs if they are missing, and adds them to PATH.

has() { command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ]; }
makes_venv() { # python: checks that it can create a virtual environment and build uWSGI
  "$1" -c 'import ensurepip, os, sys, sysconfig, venv
assert sys.version_info >= (3, 11)
assert os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h"))' 2>/dev/null
}
pins() { sha256sum <"$HERE/requirements.txt"; }
has_venv() { [ "$(cat "$OSTACK_VENV/.ready" 2>/dev/null)" = "$(pins)" ]; }

missing_packages() {
  has mariadbd || echo mariadb-server
  [ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || echo rabbitmq-server
  has openssl || echo openssl
  has_venv && return
  has gcc || printf '%s\n' gcc libc6-dev
  makes_venv "$PYTHON" || printf '%s\n' python3.11-venv python3.11-dev
}

apt() { DEBIAN_FRONTEND=noninteractive apt-get "$@" >>"$LOG/apt.log" 2>&1 9>&-; }
# In a subshell, so that the policy is removed in any case.
apt_install() ( # packages
  set +e
  trap - ERR
  policy=/usr/sbin/policy-rc.d # keeps Debian from starting its own copies
  if [ ! -e $policy ]; then
    trap 'rm -f $policy' EXIT
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod +x $policy
  fi
  apt install -y --no-install-recommends "$@" && exit
  say "refreshing the package lists"
  apt update && apt install -y --no-install-recommends "$@"
)

get_packages() {
  local need
  mapfile -t need < <(missing_packages)
  [ ${#need[@]} -gt 0 ] || return 0
  has apt-get || die "install ${need[*]}: this system has no apt-get"
  [ "$(id -u)" = 0 ] || die "run once, as root: apt-get update && apt-get install --no-install-recommends ${need[*]}"
  say "installing ${need[*]}"
  apt_install "${need[@]}" || { tail_of "$LOG/apt.log"; die "apt-get could not install ${need[*]}"; }
}

get_venv() {
  has_venv && return
  makes_venv "$PYTHON" || PYTHON=/usr/bin/python3.11
  makes_venv "$PYTHON" || die "Python 3.11 or newer with venv and headers is required: set PYTHON to it"
  say "installing $(wc -l <"$HERE/requirements.txt") Python packages, which takes a minute or two"
  "$PYTHON" -m venv "$OSTACK_VENV"
  "$OSTACK_VENV/bin/pip" install -q --disable-pip-version-check -r "$HERE/requirements.txt" >"$LOG/pip.log" 2>&1 9>&- ||
    { tail_of "$LOG/pip.log"; die "pip failed; it needs PyPI, or a mirror set in PIP_INDEX_URL"; }
  pins >"$OSTACK_VENV/.ready"
}

get_packages
get_venv
PATH=$OSTACK_VENV/bin:$PATH:/usr/sbin:/usr/lib/rabbitmq/bin
