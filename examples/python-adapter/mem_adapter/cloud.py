"""The cloud: machines, load balancers and routes, in memory. For an API, list it every 30 s.

Its objects are the contract's messages; `key`, `owner`, `fence` and `applied_hash` are what a vendor keeps in tags.
Reads show writes at once: the consistency horizon is 0, and the mirrors are the cloud itself.
"""

import itertools
from collections.abc import Mapping
from ipaddress import ip_address

import grpc
from cloudadapter.v1alpha1 import common_pb2 as common
from cloudadapter.v1alpha1 import instance_service_pb2 as instances
from cloudadapter.v1alpha1 import load_balancer_service_pb2 as lb
from cloudadapter.v1alpha1 import route_service_pb2 as routes

from contract_rules.fences import Fences
from contract_rules.watch import Watched
from contract_rules.words import digest, now

PROVIDER, REGION = "mem", "desk"
SCOPE = common.Scope(project="memory", region=REGION, fingerprint=digest("memory", REGION))
Context = grpc.ServicerContext


class Cloud(Watched):
    """All of it, by ID."""

    def __init__(self) -> None:
        super().__init__(SCOPE)
        self.machines: dict[str, instances.Instance] = {}
        self.balancers: dict[str, lb.LoadBalancer] = {}
        self.pools: dict[str, Mapping[str, lb.Backend]] = {}  # of load balancers; in them by provider ID
        self.adopted: set[str] = set()  # load balancers that were there before their owners
        self.grants: set[tuple[str, str]] = set()  # a namespace, and what it may adopt
        self.routes: dict[str, routes.Route] = {}  # by destination: there is one for each
        self.numbers, self.fences = itertools.count(1), Fences()

    def may_adopt(self, namespace: str, name: str) -> bool:
        """Whether the operator lets Services of a namespace take over this load balancer."""
        return any(one in ("*", namespace) and item in ("*", name) for one, item in self.grants)

    def new_balancer(self, name: str) -> lb.LoadBalancer:
        """One with an ID and an address that nothing had before, from a network for benchmarks."""
        number = next(self.numbers)
        address = lb.LoadBalancerAddress(ip=str(ip_address("198.18.0.0") + number))
        return lb.LoadBalancer(vendor_id=f"lb-{number}", name=name, addresses=[address], created_at=now())
