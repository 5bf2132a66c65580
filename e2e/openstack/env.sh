# shellcheck shell=bash disable=SC2034
# Settings of the local OpenStack, sourced by every script here. Set any of the first ones in the environment to override it.
: "${OSTACK_HOME:=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/cloud-controllers/openstack}" # programs, data, logs, pid files
: "${OSTACK_VENV:=$OSTACK_HOME/venv}" # the Python programs; two clouds may share one
: "${PYTHON:=python3.11}"             # makes it
: "${OSTACK_PORT_BASE:=15000}"        # every port moves with it
: "${OSTACK_TOKEN_TTL:=3600}"         # seconds that a token is good for; below 300 the services stall each other
PASSWORD=stack                        # of every account, all of which are reached from this machine alone
REGION=RegionOne

# All ports. Below 32768, where outgoing connections take theirs.
P_KEYSTONE=$((OSTACK_PORT_BASE + 0))
P_GLANCE=$((OSTACK_PORT_BASE + 292))
P_DB=$((OSTACK_PORT_BASE + 306))
P_EPMD=$((OSTACK_PORT_BASE + 369))
P_HEALTH=$((OSTACK_PORT_BASE + 555)) # named in octavia.conf, nothing listens
P_RABBIT=$((OSTACK_PORT_BASE + 672))
P_RABBIT_DIST=$((OSTACK_PORT_BASE + 673))
P_NEUTRON=$((OSTACK_PORT_BASE + 696))
P_NOVA=$((OSTACK_PORT_BASE + 774))
P_PLACEMENT=$((OSTACK_PORT_BASE + 778))
P_OCTAVIA=$((OSTACK_PORT_BASE + 876))

# What runs: name, how one sees that it answers, port. In the order in which it is stopped.
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
