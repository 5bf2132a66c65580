"""The console of the cloud, on a loopback port: changes that users and other tools make in the cloud.

`python3 -m tests.console` runs the adapter with it. Each path is a hook of the suite; its form has its variables.
"""

import argparse
import ipaddress
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from cloudadapter.v1alpha1 import instance_service_pb2 as instances
from cloudadapter.v1alpha1 import load_balancer_service_pb2 as lb
from cloudadapter.v1alpha1 import route_service_pb2 as routes

from contract_rules.edge import Identify, unknown
from contract_rules.words import digest, now
from mem_adapter.__main__ import LOCAL, main
from mem_adapter.cloud import PROVIDER, REGION, Cloud


def console(cloud: Cloud, path: str, form: dict[str, str]) -> str | None:
    """Executes a hook and returns the IDs of new objects; None for an unknown path."""
    machine, vendor_id = form.get("PROVIDER_ID", ""), form.get("VENDOR_ID", "")
    match path:
        case "/createInstances":
            return "\n".join(create_machine(cloud, f"{form['NAME']}-{n}") for n in range(int(form["COUNT"])))
        case "/deleteInstances":
            for gone in form["PROVIDER_IDS"].split():
                delete_machine(cloud, gone)
        case "/stopInstance":
            change_machine(cloud, machine, state=instances.INSTANCE_STATE_STOPPED)
        case "/startInstance":
            change_machine(cloud, machine, state=instances.INSTANCE_STATE_RUNNING)
        case "/changeInstance":
            change_machine(cloud, machine, instance_type=f"large-{next(cloud.numbers)}")
        case "/touchInstance":
            change_machine(cloud, machine, vendor_state=f"note {next(cloud.numbers)}")
        case "/createLoadBalancer":
            item = cloud.new_balancer(form["NAME"])
            cloud.put(cloud.balancers, item.vendor_id, item)
            return item.vendor_id
        case "/deleteLoadBalancer":
            cloud.put(cloud.balancers, vendor_id, None)
        case "/describeLoadBalancer":
            return repr(cloud.balancers.get(vendor_id))
        case "/createRoute":
            to, hop = form["DESTINATION"], routes.NextHop(provider_id=machine)
            route = routes.Route(vendor_id=to, destination=to, next_hop=hop, state=routes.ROUTE_STATE_ACTIVE)
            cloud.put(cloud.routes, to, route)
            return to
        case "/deleteRoute":
            cloud.put(cloud.routes, vendor_id, None)
        case "/listOwned":
            objects: list[lb.LoadBalancer | routes.Route] = [*cloud.routes.values(), *cloud.balancers.values()]
            return "\n".join(it.vendor_id for it in objects if it.key.cluster_id == form["CLUSTER_ID"])
        case _:
            return None
    return ""


def create_machine(cloud: Cloud, name: str) -> str:
    """Creates a running instance and returns its provider ID."""
    number, address = next(cloud.numbers), instances.InstanceAddress
    provider_id, ip = f"{PROVIDER}://{REGION}/i-{number}", str(ipaddress.ip_address("10.0.0.0") + number)
    change_machine(
        cloud,
        provider_id,
        name=name,
        state=instances.INSTANCE_STATE_RUNNING,
        addresses=[
            address(type=address.TYPE_INTERNAL_IP, ip=ip, family=4, primary=True),
            address(type=address.TYPE_HOSTNAME, name=name, primary=True),
        ],
        instance_type="small",
        region=REGION,
        zone=f"{REGION}-a",
        created_at=now(),
    )
    return provider_id


def delete_machine(cloud: Cloud, provider_id: str) -> None:
    """Deletes an instance; routes to it become black holes."""
    cloud.put(cloud.machines, provider_id, None)
    for route in [it for it in cloud.routes.values() if it.next_hop.provider_id == provider_id]:
        broken = routes.Route()
        broken.CopyFrom(route)
        broken.state = routes.ROUTE_STATE_BLACKHOLE
        cloud.put(cloud.routes, route.destination, broken)


def change_machine(cloud: Cloud, provider_id: str, **changes: Any) -> None:
    """Creates or changes an instance."""
    machine = instances.Instance()
    machine.CopyFrom(cloud.machines.get(provider_id, instances.Instance(provider_id=provider_id)))
    machine.MergeFrom(instances.Instance(**changes))
    cloud.put(cloud.machines, provider_id, machine)


def serve(address: str, cloud: Cloud) -> None:
    """Answers POSTed forms in the background."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 5

        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            with cloud.changed:
                text = console(cloud, self.path, dict(parse_qsl(form)))
            body = f"{text}\n".encode() if text else b""
            self.send_response(404 if text is None else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Does not log requests, because the suite does."""

    host, _, port = address.rpartition(":")
    server = ThreadingHTTPServer((host.strip("[]"), int(port)), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def from_file(path: Path) -> Identify:
    """Reads lines of `token: role`, for local use. A token without a role is valid and has no permissions."""
    lines = [line.partition(":") for line in path.read_text().splitlines() if line.strip()]
    # Comparing digests does not leak tokens through its timing.
    roles = {digest(token.strip()): role.strip() for token, _, role in lines}

    def identify(token: str) -> str:
        if (name := digest(token)) in roles:
            return roles[name]
        raise unknown()

    return identify


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--console-address", required=True)
    parser.add_argument("--tokens", type=Path, help="lines of `token: role`")
    ours, theirs = parser.parse_known_args()
    if not ours.console_address.startswith(LOCAL):
        sys.exit("--console-address: must be a loopback address, because the console has no authentication")
    memory = Cloud()
    serve(ours.console_address, memory)
    main(memory, theirs, from_file(ours.tokens) if ours.tokens else None)
