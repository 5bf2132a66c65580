#!/usr/bin/env bash
# Makes the cloud misbehave in ways that no proxy can.
#   hold.sh pause octavia-worker    load balancers stay PENDING_* from now on
#   hold.sh resume octavia-worker   and change again
#   hold.sh lb ID STATUS            writes a load balancer's provisioning status: ACTIVE, ERROR, DELETED, PENDING_...
#   hold.sh copies SERVER COUNT     adds this number of copies of a server, with a port each; the first 8 digits of their IDs count from 1
#   hold.sh drop < IDS              removes such copies
set -u
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$HERE/env.sh"
. "$HERE/lib.sh"
check_home

send() { # signal name
  local pid
  pid=$(pid_of "$2") || die "$2 is not running: status.sh lists the running ones"
  kill "-$1" -- "-$pid" # the whole group: workers are children
}
write_status() { # id status
  local found
  [[ $1 =~ ^[0-9a-f-]{36}$ && $2 =~ ^(ACTIVE|ERROR|DELETED|PENDING_(CREATE|UPDATE|DELETE))$ ]] ||
    die "lb ID ACTIVE|ERROR|DELETED|PENDING_CREATE|PENDING_UPDATE|PENDING_DELETE, not: lb $1 $2"
  found=$(sql -N octavia -e \
    "UPDATE load_balancer SET provisioning_status='$2' WHERE id='$1'; SELECT COUNT(*) FROM load_balancer WHERE id='$1'") ||
    die "the database does not answer: is the cloud up?"
  [ "$found" = 1 ] || die "load balancer $1 does not exist"
}

# Prints all columns of a table except these, with the values of the template `t`.
columns() { # database.table name...
  local table=$1
  shift
  sql -N information_schema -e "SELECT GROUP_CONCAT(CONCAT('t.\`', column_name, '\`')) FROM columns
    WHERE CONCAT(table_schema, '.', table_name) = '$table' AND column_name NOT IN ($(printf "'%s'," "$@") 'id')"
}
# Prints a statement that inserts one row for each s.seq from 1 to count.
copy() { # count database.table condition column=expression...
  local count=$1 table=$2 condition=$3 names='' values='' pair same
  shift 3
  for pair; do names+=", ${pair%%=*}" values+=", ${pair#*=}"; done
  # shellcheck disable=SC2046 # names of columns
  same=$(columns "$table" $(printf '%s ' "${@%%=*}")) || return
  echo "INSERT INTO $table (${same//t./}$names) SELECT $same$values FROM $table t, seq_1_to_$count s WHERE $condition;"
}
# Adds database rows of servers that run nowhere: the API reads them like all others, and 10,000 take seconds instead of hours.
copies() { # server count
  local server=$1 count=$2 table
  [[ $server =~ ^[0-9a-f-]{36}$ && $count =~ ^[1-9][0-9]{0,4}$ ]] || die "copies SERVER COUNT, up to 99999, not: copies $server $count"
  local nth="LOWER(LPAD(HEX(s.seq), 8, '0'))" of="SUBSTR('$server', 9)"
  local bytes="LOWER(LPAD(HEX(s.seq), 6, '0'))"
  {
    echo 'START TRANSACTION;'
    # On a host that does not exist, so that no nova-compute manages them.
    copy "$count" nova.instances "t.uuid = '$server'" "uuid=CONCAT($nth, $of)" "host='nowhere'" "node='nowhere'" \
      "display_name=CONCAT(t.display_name, '-', s.seq)" "hostname=CONCAT(t.hostname, '-', s.seq)"
    for table in nova.instance_extra nova.instance_info_caches nova.instance_system_metadata nova_api.instance_mappings; do
      copy "$count" "$table" "t.instance_uuid = '$server'" "instance_uuid=CONCAT($nth, $of)"
    done
    echo 'SET @base = (SELECT MAX(id) FROM neutron.standardattributes);'
    copy "$count" neutron.standardattributes \
      "t.id = (SELECT standard_attr_id FROM neutron.ports WHERE device_id = '$server')" 'id=@base + s.seq'
    copy "$count" neutron.ports "t.device_id = '$server'" "id=CONCAT($nth, SUBSTR(t.id, 9))" "device_id=CONCAT($nth, $of)" \
      'standard_attr_id=@base + s.seq' \
      "mac_address=CONCAT('fe:16:3e:', SUBSTR($bytes, 1, 2), ':', SUBSTR($bytes, 3, 2), ':', SUBSTR($bytes, 5, 2))"
    copy "$count" neutron.ipallocations \
      "t.port_id = (SELECT id FROM neutron.ports WHERE device_id = '$server') AND t.ip_address LIKE '%.%'" \
      "port_id=CONCAT($nth, SUBSTR(t.port_id, 9))" "ip_address=CONCAT('10.128.', s.seq DIV 256, '.', s.seq % 256)"
    echo 'COMMIT;'
  } | sql nova || die "cannot copy the server: is the cloud up, and does the server have one port?"
}
drop() { # server IDs from standard input, a line each
  local ids
  ids=$(sed -E "/^[0-9a-f-]{36}$/!d; s/.*/'&'/" | paste -sd,)
  [ -n "$ids" ] || die 'no server ID on standard input'
  sql nova <<SQL || die 'cannot remove the copies: is the cloud up?'
START TRANSACTION;
DELETE FROM neutron.standardattributes WHERE id IN (SELECT standard_attr_id FROM neutron.ports WHERE device_id IN ($ids));
DELETE FROM instance_extra WHERE instance_uuid IN ($ids);
DELETE FROM instance_info_caches WHERE instance_uuid IN ($ids);
DELETE FROM instance_system_metadata WHERE instance_uuid IN ($ids);
DELETE FROM instances WHERE uuid IN ($ids) AND host = 'nowhere';
DELETE FROM nova_api.instance_mappings WHERE instance_uuid IN ($ids);
COMMIT;
SQL
}

case "$#:${1:-}" in
  2:pause) send STOP "$2" ;;
  2:resume) send CONT "$2" ;;
  3:lb) write_status "$2" "$3" ;;
  3:copies) copies "$2" "$3" ;;
  1:drop) drop ;;
  *) help_of "$0" >&2; exit 2 ;;
esac
