"""The cloud: machines, load balancers and routes, in memory. The one file that knows the vendor.

Reads show writes at once, so the consistency horizon is 0, and the mirrors are the cloud itself. For an API, list it every 30 s
or so into mirrors like these.
"""

import ipaddress
import itertools
import logging
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cloudadapter.v1alpha1 import common_pb2 as common
from cloudadapter.v1alpha1 import load_balancer_service_pb2 as lb
from google.protobuf.timestamp_pb2 import Timestamp

from .mirror import Mirror, now

PROVIDER = "mem"
REGION = "desk"
SCOPE = common.Scope(project="memory", region=REGION, fingerprint=f"{PROVIDER}-memory-{REGION}")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Machine:
    """A machine. What a person may note on it is nothing that a Node is made from."""

    id: str
    name: str
    address: str
    type: str = "small"
    zone: str = f"{REGION}-a"
    running: bool = True
    note: str = ""
    created: Timestamp = field(default_factory=now)

    @property
    def provider_id(self) -> str:
        """What `Node.spec.providerID` holds."""
        return f"{PROVIDER}://{REGION}/{self.id}"


@dataclass(frozen=True)
class Balancer:
    """A load balancer. Scheme and address families are for ever; all else is changed in place."""

    id: str
    name: str
    tags: Mapping[str, str] = field(default_factory=dict)
    scheme: int = lb.LoadBalancerSpec.SCHEME_INTERNET
    families: tuple[int, ...] = (lb.IP_FAMILY_IPV4,)
    addresses: tuple[str, ...] = ()
    listeners: Mapping[str, lb.Listener] = field(default_factory=dict)  # by `tcp/443`
    settings: lb.LoadBalancerSpec = field(default_factory=lb.LoadBalancerSpec)
    members: Mapping[str, lb.Backend] = field(default_factory=dict)  # by provider ID
    created: Timestamp = field(default_factory=now)


@dataclass(frozen=True)
class Route:
    """A route: one a destination."""

    id: str
    destination: str
    machine: str  # its provider ID
    address: str = ""
    interface: str = ""
    broken: bool = False  # the machine is gone
    tags: Mapping[str, str] = field(default_factory=dict)


class Cloud:
    """All of it. It answers at once."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.machines: Mirror[Machine] = Mirror(self.changed)
        self.balancers: Mirror[Balancer] = Mirror(self.changed)
        self.routes: Mirror[Route] = Mirror(self.changed)
        self.calls: Counter[str] = Counter()
        self.numbers = itertools.count(1)

    def new_id(self, kind: str) -> str:
        """An ID that nothing had before."""
        return f"{kind}-{next(self.numbers)}"

    def create_balancer(self, **attributes: Any) -> str:
        """Makes a load balancer with addresses of its own, from networks for benchmarks and examples."""
        made = Balancer(self.new_id("lb"), **attributes)
        bases = ["198.18.0.0" if family == lb.IP_FAMILY_IPV4 else "2001:db8::" for family in made.families]
        addresses = tuple(str(ipaddress.ip_address(base) + next(self.numbers)) for base in bases)
        self.balancers.set(made.id, replace(made, addresses=addresses))
        return made.id

    def delete_machine(self, machine: str) -> None:
        """Removes a machine; routes to it lead nowhere from now on."""
        with self.changed:
            if gone := self.machines.items.get(machine):
                self.machines.set(machine, None)
                for route in self.routes.all():
                    if route.machine == gone.provider_id:
                        self.routes.set(route.id, replace(route, broken=True))


class Meter:
    """Counts the calls to the cloud that one request caused, and logs each beside the request's ID."""

    def __init__(self, cloud: Cloud, request_id: str) -> None:
        self.cloud, self.request_id = cloud, request_id
        self.calls: Counter[str] = Counter()

    def call(self, family: str, operation: str) -> None:
        """One call, before it is made."""
        self.calls[family] += 1
        self.cloud.calls[family] += 1
        log.info("%s, request %s", operation, self.request_id)

    def cost(self, otherwise: common.Cost.Source.ValueType = common.Cost.SOURCE_MEMORY) -> common.Cost:
        """What has been counted; `otherwise` is the source of what cost no call."""
        source = common.Cost.SOURCE_LIVE if self.calls else otherwise
        return common.Cost(
            vendor_calls=self.calls.total(),
            calls_by_family=self.calls,
            source=source,
            observed_at=None if source == common.Cost.SOURCE_MEMORY else now(),
        )
