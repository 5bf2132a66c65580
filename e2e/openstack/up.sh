#!/usr/bin/env bash
# Starts a real OpenStack control plane on 127.0.0.1: MariaDB, RabbitMQ, Keystone, Placement, Glance, Neutron (ML2 and L3, no
# agents), Nova (two fake hypervisors) and Octavia (provider amphora, whose amphorae do nothing).
#
# Safe to run again: everything that exists or runs is kept, and only missing parts are started. Progress goes to standard error,
# `export NAME=value` lines for a shell go to standard output. down.sh stops it; env.sh has the settings.
set -Eeuo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$HERE/env.sh"
. "$HERE/lib.sh"
[ $# = 0 ] || { help_of "$0" >&2; exit 2; }
trap 'die "line $LINENO: $BASH_COMMAND (logs: $LOG)"' ERR
trap 'say "interrupted: up continues from here, down stops everything"; exit 130' INT TERM

check_home
take_lock
mkdir -p "$LOG" "$CONF" "$OSTACK_HOME"/{lock,keystone,glance/images,glance/staging,glance/tasks,nova/instances,nova-b/instances,octavia,rabbit}
cd "$OSTACK_HOME"
made_with="ports from $OSTACK_PORT_BASE"
if [ -e .done-settings ] && [ "$(<.done-settings)" != "$made_with" ]; then
  die "$OSTACK_HOME was created with $(<.done-settings): set OSTACK_PORT_BASE to that, or run down --wipe"
fi
echo "$made_with" >.done-settings

. "$HERE/programs.sh"
. "$HERE/start.sh"
export PYTHONWARNINGS=ignore
unset "${!OS_@}" # the caller's own cloud

# 1. Database and message broker.
user=$(id -un) group=$(id -gn)
once db mariadb-install-db --no-defaults --datadir="$OSTACK_HOME/mysql" --user="$user" \
  --auth-root-authentication-method=normal --skip-test-db
start mariadb "$P_DB" mariadbd --no-defaults --user="$user" --datadir="$OSTACK_HOME/mysql" \
  --bind-address=127.0.0.1 --port="$P_DB" --socket="$RUN/mariadb.sock" --pid-file="$OSTACK_HOME/mysql/own.pid" \
  --innodb-flush-log-at-trx-commit=0 --innodb-buffer-pool-size=128M --max-connections=500 --skip-log-bin
export ERL_EPMD_PORT=$P_EPMD ERL_EPMD_ADDRESS=127.0.0.1
start epmd "$P_EPMD" "$(command -v epmd)" -address 127.0.0.1 -port "$P_EPMD"
start rabbit "$P_RABBIT" env HOME="$OSTACK_HOME/rabbit" RABBITMQ_CONF_ENV_FILE=/dev/null RABBITMQ_HOME=/usr/lib/rabbitmq \
  RABBITMQ_NODENAME=ostack@localhost RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 RABBITMQ_NODE_PORT="$P_RABBIT" \
  RABBITMQ_DIST_PORT="$P_RABBIT_DIST" RABBITMQ_MNESIA_BASE="$OSTACK_HOME/rabbit/mnesia" \
  RABBITMQ_LOG_BASE="$LOG" RABBITMQ_ENABLED_PLUGINS_FILE="$OSTACK_HOME/rabbit/plugins" \
  RABBITMQ_CONFIG_FILE="$OSTACK_HOME/rabbit/rabbitmq" \
  RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS='-kernel inet_dist_use_interface {127,0,0,1} +S 2:2 +sbwt none' \
  /usr/lib/rabbitmq/bin/rabbitmq-server
wait_for "the database on port $P_DB" mariadb open_port "$P_DB"
account() {
  for host in 127.0.0.1 localhost; do
    echo "CREATE USER IF NOT EXISTS 'stack'@'$host' IDENTIFIED BY '$PASSWORD'; GRANT ALL ON *.* TO 'stack'@'$host';"
  done | mariadb --no-defaults -uroot -S "$RUN/mariadb.sock"
}
once account account

# 2. Configuration and schemas.
for service in keystone placement glance neutron nova; do configure "$service"; done
configure octavia AMP_FLAVOR=none AMP_NET=none AMP_SG=none
render nova-b.conf.in "$CONF/nova/nova-b.conf"
cp "$OSTACK_VENV/etc/nova/api-paste.ini" "$CONF/nova/"
auth_url=http://127.0.0.1:$P_KEYSTONE/v3
keystone_manage() { keystone-manage --config-file "$CONF/keystone/keystone.conf" "$@"; }
nova_manage() { nova-manage --config-file "$CONF/nova/nova.conf" "$@"; }
# An incomplete schema is created again from scratch: MariaDB cannot roll back half of a change.
empty() { # database...
  local name
  for name in "$@"; do sql -e "DROP DATABASE IF EXISTS $name; CREATE DATABASE $name CHARACTER SET utf8mb3;" || return; done
}
keystone_db() {
  empty keystone && keystone_manage db_sync &&
    keystone_manage fernet_setup --keystone-user "$user" --keystone-group "$group" &&
    keystone_manage credential_setup --keystone-user "$user" --keystone-group "$group" &&
    keystone_manage bootstrap --bootstrap-password "$PASSWORD" --bootstrap-admin-url "$auth_url" \
      --bootstrap-internal-url "$auth_url" --bootstrap-public-url "$auth_url" --bootstrap-region-id "$REGION"
}
placement_db() {
  export OS_PLACEMENT_CONFIG_DIR=$CONF/placement
  empty placement && placement-manage --config-file "$CONF/placement/placement.conf" db sync
}
glance_db() { empty glance && glance-manage --config-file "$CONF/glance/glance-api.conf" db_sync; }
neutron_db() { empty neutron && neutron-db-manage --config-file "$CONF/neutron/neutron.conf" upgrade head; }
nova_db() {
  local cell0="mysql+pymysql://stack:$PASSWORD@127.0.0.1:$P_DB/nova_cell0"
  empty nova_api nova nova_cell0 && nova_manage api_db sync && nova_manage cell_v2 map_cell0 --database_connection "$cell0" &&
    nova_manage db sync && nova_manage cell_v2 create_cell --name cell1
}
octavia_db() { empty octavia && octavia-db-manage --config-file "$CONF/octavia/octavia.conf" upgrade head; }
jobs=()
for service in keystone placement glance neutron nova octavia; do
  once "$service-db" "${service}_db" &
  jobs+=($!)
done
for job in "${jobs[@]}"; do wait "$job" || die "a database could not be set up, see above"; done
wait_for "RabbitMQ on port $P_RABBIT" rabbit open_port "$P_RABBIT"

# 3. Services. All of them need Keystone at once. nova-compute needs the conductor; if it is started earlier, it waits for a
# timeout of ten seconds.
fresh=0
for service in nova-conductor nova-compute nova-compute-b; do alive $service || fresh=1; done
conductor_new=1 conductor_mark=$(stat -c %s "$LOG/nova-conductor.log" 2>/dev/null || echo 0)
alive nova-conductor && conductor_new=0
nova() { # service
  start "nova-$1" 0 "nova-$1" --config-file "$CONF/nova/nova.conf" --log-file "$LOG/nova-$1.log"
}
OS_KEYSTONE_CONFIG_DIR="$CONF/keystone" OS_KEYSTONE_CONFIG_FILES="$CONF/keystone/keystone.conf" \
  wsgi keystone "$P_KEYSTONE" keystone.wsgi.api:application --pyargv "--config-file $CONF/keystone/keystone.conf"
OS_PLACEMENT_CONFIG_DIR="$CONF/placement" wsgi placement "$P_PLACEMENT" placement.wsgi.api:application

cloud() { # name user project
  cat <<YAML
  $1:
    region_name: $REGION
    auth:
      auth_url: $auth_url
      username: $2
      password: $PASSWORD
      project_name: $3
      user_domain_name: Default
      project_domain_name: Default
YAML
}
# Existing objects are kept, so a newer version of seed.py can run on older data.
seeds=$(sha256sum <"$HERE/seed.py" | cut -c1-8)
{
  echo clouds:
  for tenant in demo demo2 secured replicas; do cloud $tenant $tenant $tenant; done
  cloud viewer viewer demo
  cloud admin admin admin
} >clouds.yaml
export OS_CLIENT_CONFIG_FILE=$OSTACK_HOME/clouds.yaml
wait_for "an answer from keystone" keystone http_answers "$P_KEYSTONE"
once "identity-$seeds" python "$HERE/seed.py" identity "$PASSWORD" "$P_KEYSTONE" "$P_NOVA" "$P_PLACEMENT" "$P_GLANCE" "$P_NEUTRON" "$P_OCTAVIA"

began=$(sql -N -e 'SELECT UTC_TIMESTAMP()')
nova conductor
OS_NEUTRON_CONFIG_DIR="$CONF/neutron" OS_NEUTRON_CONFIG_FILES="$CONF/neutron/neutron.conf" \
  wsgi neutron "$P_NEUTRON" neutron.wsgi.api:application
if [ "$conductor_new" = 1 ]; then
  conductor_up() { tail -c "+$((conductor_mark + 1))" "$LOG/nova-conductor.log" 2>/dev/null | grep -q 'Starting conductor node'; }
  wait_for "the conductor" nova-conductor conductor_up
fi
nova compute
start nova-compute-b 0 nova-compute --config-file "$CONF/nova/nova.conf" --config-file "$CONF/nova/nova-b.conf" \
  --log-file "$LOG/nova-compute-b.log"
nova scheduler
start neutron-rpc 0 neutron-rpc-server --config-file "$CONF/neutron/neutron.conf"
OS_GLANCE_CONFIG_DIR="$CONF/glance" wsgi glance "$P_GLANCE" glance.wsgi.api:application
OS_NOVA_CONFIG_DIR="$CONF/nova" wsgi nova-api "$P_NOVA" nova.wsgi.osapi_compute:application

# 4. Content. One database row per host, as an agent writes it, lets Neutron bind ports there without an agent.
agents() {
  local host
  for host in fake-a fake-b; do
    sql neutron -e "INSERT IGNORE INTO agents (id, agent_type, \`binary\`, topic, host, admin_state_up,
      created_at, started_at, heartbeat_timestamp, configurations, \`load\`) VALUES
      (UUID(), 'Open vSwitch agent', 'neutron-openvswitch-agent', 'N/A', '$host', 1, NOW(), NOW(), '2099-01-01 00:00:00',
      '{\"tunnel_types\": [\"vxlan\"], \"tunneling_ip\": \"127.0.0.1\", \"bridge_mappings\": {\"public\": \"br-ex\"},
        \"datapath_type\": \"system\", \"ovs_hybrid_plug\": false}', 0);"
  done
}
once agents agents
# Nova uses a new nova-compute only after its first report; until then it answers "No valid host was found".
two() { [ "$(sql -N "$1" -e "SELECT COUNT(*) FROM $2")" -ge 2 ]; }
if [ "$fresh" = 1 ]; then
  wait_for "two services nova-compute" nova-compute two nova \
    "services WHERE deleted=0 AND \`binary\`='nova-compute' AND last_seen_up>='$began'"
  wait_for "two hypervisors" nova-compute two nova \
    "compute_nodes WHERE deleted=0 AND GREATEST(created_at, COALESCE(updated_at, created_at))>='$began'"
fi
once hosts nova_manage cell_v2 discover_hosts
two nova_api host_mappings || die "Nova did not map its two hypervisors, see $LOG/setup-hosts.log"
once "cloud-$seeds" python "$HERE/seed.py" cloud "$OSTACK_HOME"

# 5. Load balancing. Octavia requires the certificate, but does not use it.
certificate() {
  (umask 077; openssl req -x509 -newkey rsa:2048 -days 3650 -subj /CN=octavia-local \
    -passout "pass:$PASSWORD" -keyout "$OSTACK_HOME/octavia/ca.key" -out "$OSTACK_HOME/octavia/ca.pem")
}
once certificate certificate
# shellcheck source=/dev/null
. "$OSTACK_HOME/amphora.env"
configure octavia AMP_FLAVOR="$AMP_FLAVOR" AMP_NET="$AMP_NET" AMP_SG="$AMP_SG"
wsgi octavia "$P_OCTAVIA" octavia.wsgi.api:application --pyargv "--config-file $CONF/octavia/octavia.conf"
start octavia-worker 0 octavia-worker --config-file "$CONF/octavia/octavia.conf" --log-file "$LOG/octavia-worker.log"

for service in "${SERVICES[@]}"; do
  read -r name how port <<<"$service"
  [ "$how" = alive ] || wait_for "an answer from $name" "$name" http_answers "$port"
done
say "up: $auth_url, clouds demo, demo2, secured, replicas, viewer and admin in $OSTACK_HOME/clouds.yaml"
printf 'export OS_CLIENT_CONFIG_FILE=%s\nexport OS_CLOUD=demo\n' "$OSTACK_HOME/clouds.yaml"
