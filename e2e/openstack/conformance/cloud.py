"""The suite's hooks that change the cloud: the actions of users and other programs, through the API.

Each method of `Cloud` with the name of a hook is that hook; its arguments are the hook's variables.
"""

import functools
import itertools
import json
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openstack
import requests
from openstack.exceptions import ConflictException, NotFoundException, raise_from_response

Json = dict[str, Any]

HOLD = Path(__file__).parent.parent / "hold.sh"
"""The script for changes that the API does not offer."""
WITHIN = 170.0
"""Seconds. The suite gives a hook 180."""
LB = "/lbaas"
MADE = 20
"""The number of servers above which copies of one are made: to create them by the API would take an hour."""
HASH = "cloudadapter.dev/hash="
"""The beginning of the tag with the hash of the applied state."""
VOLATILE = {"operating_status", "provisioning_status"}
"""Fields with the status of a load balancer, as opposed to its configuration."""


def until(what: str, look: Callable[[], Any]) -> Any:
    """Polls until there is a value, and returns it."""
    end = time.monotonic() + WITHIN
    while not (found := look()):
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: no result within {WITHIN:.0f} s")
        time.sleep(0.5)
    return found


def server_of(provider_id: str) -> str:
    return provider_id.rsplit("/", 1)[-1]


def said(answer: requests.Response) -> Json:
    """Returns the answer of a service, or raises an error with its text."""
    raise_from_response(answer)
    content: Json = answer.json() if answer.content else {}
    return content


def hold(*what: str, words: str = "") -> None:
    done = subprocess.run([HOLD, *what], input=words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())


class Cloud:
    """A project of the local OpenStack, with the network and the router of the same name."""

    def __init__(self, name: str) -> None:
        self.connection = openstack.connect(cloud=name)
        self.network = self.connection.network.find_network(f"{name}-net", ignore_missing=False)
        self.subnet = self.connection.network.find_subnet(f"{name}-net-v4", ignore_missing=False)
        self.ipv6_subnet = self.connection.network.find_subnet(f"{name}-net-v6", ignore_missing=False)
        self.public = self.connection.network.find_network("public", ignore_missing=False)
        self.router = self.connection.network.find_router(f"{name}-router", ignore_missing=False)
        self.image = self.connection.image.find_image("tiny", ignore_missing=False)
        self.flavor = self.connection.compute.find_flavor("m1.small", ignore_missing=False)
        self.numbers = itertools.count(1)
        self.copies: set[str] = set()

    # Instances.

    def createInstances(self, NAME: str, COUNT: str) -> str:
        """Creates one server by the API; if many are requested, the others are copies of it."""
        if int(COUNT) <= MADE:
            servers = self._create_servers(NAME, COUNT)
        else:
            servers = self._create_servers(NAME, "1")
            servers += self._copy_server(servers[0], int(COUNT) - 1)
        return "\n".join(f"openstack:///{server}" for server in servers)

    def _create_servers(self, NAME: str, COUNT: str) -> list[str]:
        """Creates servers in one request, which takes half the time of one request each. Nova numbers the names from 1."""
        order = {"name": NAME, "imageRef": self.image.id, "flavorRef": self.flavor.id, "networks": [{"uuid": self.network.id}],
                 "min_count": COUNT, "max_count": COUNT, "return_reservation_id": True}
        reservation = self._nova("POST", "/servers", {"server": order})["reservation_id"]
        search = f"/servers/detail?reservation_id={reservation}"
        try:
            until("new servers run", lambda: self._all_run(search, int(COUNT)))
        except Exception:
            self._delete_servers(one["id"] for one in self._nova("GET", search)["servers"])
            raise
        made = [one["id"] for one in self._nova("GET", search)["servers"]]
        for n, server in enumerate(made):
            self._nova("PUT", f"/servers/{server}", {"server": {"name": f"{NAME}-{n}"}})
        return made

    def _copy_server(self, server: str, count: int) -> list[str]:
        copies = [f"{n:08x}{server[8:]}" for n in range(1, count + 1)]
        self.copies.update(copies)
        hold("copies", server, str(count))
        return copies

    def deleteInstances(self, PROVIDER_IDS: str) -> None:
        gone = {server_of(one) for one in PROVIDER_IDS.split()}
        if copies := gone & self.copies:
            hold("drop", words="\n".join(copies))
            self.copies -= copies
            gone -= copies
        self._delete_servers(gone)
        until("servers are gone", lambda: gone.isdisjoint(one["id"] for one in self._nova("GET", "/servers")["servers"]))

    def stopInstance(self, PROVIDER_ID: str) -> None:
        self._act(server_of(PROVIDER_ID), "os-stop", "SHUTOFF")

    def startInstance(self, PROVIDER_ID: str) -> None:
        self._act(server_of(PROVIDER_ID), "os-start", "ACTIVE")

    def changeInstance(self, PROVIDER_ID: str) -> None:
        """Adds an address. Neutron reports it to Nova."""
        server = server_of(PROVIDER_ID)
        port = next(iter(self.connection.network.ports(device_id=server)))
        more = [*port.fixed_ips, {"subnet_id": self.subnet.id}]
        port = self.connection.network.update_port(port, fixed_ips=more)
        wanted = {ip["ip_address"] for ip in port.fixed_ips}
        until("Nova knows the address", lambda: wanted <= self._addresses(server))

    def touchInstance(self, PROVIDER_ID: str) -> None:
        self.connection.compute.set_server_metadata(server_of(PROVIDER_ID), touched=str(next(self.numbers)))

    def _nova(self, method: str, path: str, body: Json | None = None) -> Json:
        return said(self.connection.compute.request(path, method, json=body))

    def _all_run(self, search: str, count: int) -> bool:
        found = self._nova("GET", search)["servers"]
        for one in found:
            if one["status"] == "ERROR":
                raise RuntimeError(f"server {one['id']}: {one.get('fault', {}).get('message')}")
        return len(found) == count and all(one["status"] == "ACTIVE" for one in found)

    def _delete_servers(self, servers: Iterable[str]) -> None:
        for server in servers:
            self.connection.compute.delete_server(server)

    def _act(self, server: str, action: str, status: str) -> None:
        self._nova("POST", f"/servers/{server}/action", {action: None})
        until(f"{server} is {status}", lambda: self._server(server)["status"] == status)

    def _server(self, server: str) -> Json:
        found: Json = self._nova("GET", f"/servers/{server}")["server"]
        return found

    def _addresses(self, server: str) -> set[str]:
        return {one["addr"] for some in self._server(server)["addresses"].values() for one in some}

    # Load balancers.

    def createLoadBalancer(self, NAME: str) -> str:
        pool = {"name": NAME, "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN"}
        listener = {"name": NAME, "protocol": "TCP", "protocol_port": 80, "default_pool": pool}
        order = {"name": NAME, "vip_subnet_id": self.subnet.id, "listeners": [listener]}
        made: str = self._lb("POST", "loadbalancers", {"loadbalancer": order})["loadbalancer"]["id"]
        self._settled(made)
        return made

    def deleteLoadBalancer(self, VENDOR_ID: str) -> None:
        try:
            self._change(VENDOR_ID, "DELETE", f"loadbalancers/{VENDOR_ID}?cascade=true")
        except NotFoundException:
            return
        until("the load balancer is gone", lambda: not self._balancer(VENDOR_ID))

    def describeLoadBalancer(self, VENDOR_ID: str) -> str:
        balancer = self._settled(VENDOR_ID)
        of_it = {f"{kind}s": list(self._children(kind, VENDOR_ID)) for kind in ("listener", "pool")}
        for pool in of_it["pools"]:
            pool["members"] = self._lb("GET", f"pools/{pool['id']}/members")["members"]
        addresses = self.connection.network.get(f"/floatingips?port_id={balancer['vip_port_id']}").json()
        return json.dumps(without(VOLATILE, {**balancer, **of_it, **addresses}), sort_keys=True)

    def breakLoadBalancer(self, VENDOR_ID: str) -> None:
        self._settled(VENDOR_ID)
        self._write_status(VENDOR_ID, "ERROR")

    def driftLoadBalancer(self, VENDOR_ID: str) -> None:
        """Removes a listener."""
        self._settled(VENDOR_ID)
        listener = next(self._children("listener", VENDOR_ID))
        self._change(VENDOR_ID, "DELETE", f"listeners/{listener['id']}")
        self._settled(VENDOR_ID)

    def listLoadBalancers(self) -> str:
        return "\n".join(one["id"] for one in self._lb("GET", "loadbalancers?fields=id")["loadbalancers"])

    def age_hashes(self) -> None:
        """Replaces the hash of each load balancer by one of another version."""
        for one in self._lb("GET", "loadbalancers")["loadbalancers"]:
            tags = [f"{tag.partition('=')[0]}=0-{one['id']}" if tag.startswith(HASH) else tag for tag in one["tags"]]
            if tags != one["tags"]:
                self._change(one["id"], "PUT", f"loadbalancers/{one['id']}", {"loadbalancer": {"tags": tags}})
                self._settled(one["id"])

    def _lb(self, method: str, path: str, body: Json | None = None) -> Json:
        return said(self.connection.load_balancer.request(f"{LB}/{path}", method, json=body))

    def _balancer(self, balancer: str) -> Json | None:
        try:
            found: Json = self._lb("GET", f"loadbalancers/{balancer}")["loadbalancer"]
        except NotFoundException:
            return None
        return found if found["provisioning_status"] != "DELETED" else None

    def _settled(self, balancer: str) -> Json:
        """Returns the load balancer when no change is in progress."""

        def look() -> Json | None:
            found = self._balancer(balancer)
            if not found:
                raise LookupError(f"load balancer {balancer} does not exist")
            return found if not found["provisioning_status"].startswith("PENDING") else None

        found: Json = until("the load balancer settles", look)
        return found

    def _change(self, balancer: str, method: str, path: str, body: Json | None = None) -> None:
        """Repeats a request while another change is in progress, which is answered with 409."""

        def once() -> bool:
            try:
                self._lb(method, path, body)
            except ConflictException:
                return False
            return True

        until(f"the load balancer {balancer} can be changed", once)

    def _children(self, kind: str, balancer: str) -> Iterator[Json]:
        found: list[Json] = self._lb("GET", f"{kind}s?load_balancer_id={balancer}")[f"{kind}s"]
        return iter(sorted(found, key=lambda one: one["id"]))

    def _write_status(self, balancer: str, status: str) -> None:
        hold("lb", balancer, status)

    # Routes.

    def createRoute(self, DESTINATION: str, PROVIDER_ID: str) -> str:
        family = ":" in DESTINATION
        hops = sorted(one for one in self._addresses(server_of(PROVIDER_ID)) if (":" in one) == family)
        if not hops:
            raise LookupError(f"{PROVIDER_ID} has no address of the family of {DESTINATION}")
        self._routes("add_extraroutes", DESTINATION, hops[0])
        return f"{DESTINATION}={hops[0]}"

    def deleteRoute(self, VENDOR_ID: str, DESTINATION: str) -> None:
        """Finds a route by destination, whatever name the adapter uses."""
        routes = self.connection.network.get(f"/routers/{self.router.id}").json()["router"]["routes"]
        for route in routes:
            if route["destination"] == DESTINATION:
                self._routes("remove_extraroutes", DESTINATION, route["nexthop"])

    def _routes(self, verb: str, destination: str, hop: str) -> None:
        body = {"router": {"routes": [{"destination": destination, "nexthop": hop}]}}
        said(self.connection.network.put(f"/routers/{self.router.id}/{verb}", json=body))

    # Owners.

    def listOwned(self, CLUSTER_ID: str) -> str:
        """All objects with the cluster's ID in a tag, a name or a description, in any format of the adapter."""
        network = self.connection.network
        kinds: dict[str, Callable[[], list[Json]]] = {
            "load balancer": lambda: self._lb("GET", "loadbalancers")["loadbalancers"],
            "listener": lambda: self._lb("GET", "listeners")["listeners"],
            "pool": lambda: self._lb("GET", "pools")["pools"],
            "floating IP": lambda: network.get("/floatingips").json()["floatingips"],
            "security group": lambda: network.get("/security-groups?fields=id&fields=name&fields=tags&fields=description")
            .json()["security_groups"],
        }
        with ThreadPoolExecutor() as pool:
            found = zip(kinds, pool.map(lambda list_all: list_all(), kinds.values()), strict=True)
        return "\n".join(f"{kind} {one['id']}" for kind, all in found for one in all if CLUSTER_ID in json.dumps(one))


def without(keys: set[str], value: Any) -> Any:
    """The value without these keys, at any depth."""
    if isinstance(value, dict):
        return {key: without(keys, inner) for key, inner in value.items() if key not in keys}
    if isinstance(value, list):
        return list(map(functools.partial(without, keys), value))
    return value
