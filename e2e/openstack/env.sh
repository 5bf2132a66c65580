# shellcheck shell=bash disable=SC2034
# Settings of the local OpenStack, sourced by every script here. The first ones can be overridden by environment variables.
: "${OSTACK_HOME:=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/cloud-controllers/openstack}" # programs, data, logs, pid files
: "${OSTACK_VENV:=$OSTACK_HOME/venv}" # the Python programs; two clouds may share one
: "${PYTHON:=python3.11}"             # creates it
: "${OSTACK_PORT_BASE:=15000}"        # base of all ports
: "${OSTACK_TOKEN_TTL:=3600}"         # lifetime of a token in seconds; below 300 the services block each other
PASSWORD=stack                        # of all accounts, which are reachable only from this host
REGION=RegionOne

# All ports. They are below 32768, where ephemeral ports begin.
P_KEYSTONE=$((OSTACK_PORT_BASE + 0))
P_GLANCE=$((OSTACK_PORT_BASE + 292))
P_DB=$((OSTACK_PORT_BASE + 306))
P_EPMD=$((OSTACK_PORT_BASE + 369))
P_HEALTH=$((OSTACK_PORT_BASE + 555)) # set in octavia.conf; no process listens on it
P_RABBIT=$((OSTACK_PORT_BASE + 672))
P_RABBIT_DIST=$((OSTACK_PORT_BASE + 673))
P_NEUTRON=$((OSTACK_PORT_BASE + 696))
P_NOVA=$((OSTACK_PORT_BASE + 774))
P_PLACEMENT=$((OSTACK_PORT_BASE + 778))
P_OCTAVIA=$((OSTACK_PORT_BASE + 876))

# The processes: name, type of check, port. In the order in which they are stopped.
SERVICES=(
  "octavia-worker  alive 0"
  "octavia         http  $P_OCTAVIA"
  "nova-compute    alive 0"
  "nova-compute-b  alive 0"
  "nova-scheduler  alive 0"
  "nova-conductor  alive 0"
  "nova-api        http  $P_NOVA"
  "neutron-rpc     alive 0"
  "neutron         http  $P_NEUTRON"
  "glance          http  $P_GLANCE"
  "placement       http  $P_PLACEMENT"
  "keystone        http  $P_KEYSTONE"
)
FOUNDATION=(
  "rabbit          tcp   $P_RABBIT"
  "mariadb         tcp   $P_DB"
  "epmd            tcp   $P_EPMD"
)

RUN=$OSTACK_HOME/run
LOG=$OSTACK_HOME/log
CONF=$OSTACK_HOME/conf
