"""The cloud: instances, load balancers and routes, in memory. With a real API, list it every 30 s.

Its objects are messages of the contract; a vendor keeps `key`, `owner`, `fence` and `applied_hash` in tags.
Reads show writes at once: the consistency horizon is 0, and listings read the cloud itself.
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
    """All objects, by ID."""

    def __init__(self) -> None:
        super().__init__(SCOPE)
        self.machines: dict[str, instances.Instance] = {}
        self.balancers: dict[str, lb.LoadBalancer] = {}
        self.pools: dict[str, Mapping[str, lb.Backend]] = {}  # by load balancer, then by provider ID
        self.adopted: set[str] = set()  # load balancers that existed before their owners
        self.grants: set[tuple[str, str]] = set()  # (namespace, load balancer that it may adopt)
        self.routes: dict[str, routes.Route] = {}  # by destination, which is unique
        self.numbers, self.fences = itertools.count(1), Fences()

    def may_adopt(self, namespace: str, name: str) -> bool:
        """Whether the operator lets Services of a namespace adopt this load balancer."""
        return any(one in ("*", namespace) and item in ("*", name) for one, item in self.grants)

    def new_balancer(self, name: str) -> lb.LoadBalancer:
        """Returns a load balancer with an unused ID, and an unused address of the benchmark network 198.18.0.0/15."""
        number = next(self.numbers)
        address = lb.LoadBalancerAddress(ip=str(ip_address("198.18.0.0") + number))
        return lb.LoadBalancer(vendor_id=f"lb-{number}", name=name, addresses=[address], created_at=now())
