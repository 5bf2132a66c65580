"""The cloud: machines, load balancers and routes, in memory, and the watches of them. For an API, list it every 30 s.

Its objects are the contract's messages; `key`, `owner`, `fence` and `applied_hash` are what a vendor keeps in tags.
Reads show writes at once: the consistency horizon is 0, and the mirrors are the cloud itself.
"""

import hashlib
import ipaddress
import itertools
import logging
import threading
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import grpc
from cloudadapter.v1alpha1 import common_pb2 as common
from cloudadapter.v1alpha1 import instance_service_pb2 as instances
from cloudadapter.v1alpha1 import load_balancer_service_pb2 as lb
from cloudadapter.v1alpha1 import route_service_pb2 as routes
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from .edge import Fault, digest, invalid

PROVIDER, REGION = "mem", "desk"
SCOPE = common.Scope(project="memory", region=REGION, fingerprint=digest("memory", REGION))
LOG = 4096
CHUNK = 128  # items of a few kB at most: far below 1 MiB
BOOKMARK_SECONDS = 20
Cost = common.Cost
Context = grpc.ServicerContext
T = TypeVar("T")
R = TypeVar("R", bound=Message)
See = Callable[[T], Any]
Make = Callable[..., R]
log = logging.getLogger(__name__)


def now() -> Timestamp:
    """The adapter's wall clock."""
    stamp = Timestamp()
    stamp.GetCurrentTime()
    return stamp


def step(verb: str, family: str, name: str) -> common.PlannedStep:
    """One call to the cloud, made or planned."""
    return common.PlannedStep(operation=f"{verb}:{family}", description=f"{verb.lower()} {name}", family=family)


class Mirror(Generic[T]):
    """Objects by ID, with a bounded log of changes. They are replaced and never changed."""

    def __init__(self, changed: threading.Condition) -> None:
        self.changed, self.items = changed, dict[str, T]()
        self.log: deque[tuple[T | None, T | None]] = deque(maxlen=LOG)
        self.end = 0  # the position after the newest change

    def set(self, key: str, new: T | None) -> None:
        """Puts an object in the place of the one of that ID; None removes it."""
        with self.changed:
            old = self.items.pop(key, None)
            if new is not None:
                self.items[key] = new
            self.log.append((old, new))
            self.end += 1
            self.changed.notify_all()

    def since(self, position: int) -> list[tuple[T | None, T | None]] | None:
        """What changed after a position; None if the log does not reach back to it. Needs the lock."""
        first = self.end - len(self.log)
        return list(itertools.islice(self.log, position - first, None)) if first <= position <= self.end else None


@dataclass(frozen=True)
class Balancer:
    """A load balancer: how it shows, what it does, and for which backends, by provider ID."""

    item: lb.LoadBalancer
    spec: lb.LoadBalancerSpec
    backends: Mapping[str, lb.Backend]


class Cloud:
    """All of it, and what the services share."""

    def __init__(self) -> None:
        self.id = uuid.uuid4().hex  # of this memory, and so of the process
        self.changed, self.draining = threading.Condition(), False
        self.machines: Mirror[instances.Instance] = Mirror(self.changed)
        self.balancers: Mirror[Balancer] = Mirror(self.changed)
        self.routes: Mirror[routes.Route] = Mirror(self.changed)  # by destination: there is one for each
        self.numbers = itertools.count(1)
        self.calls: Counter[str] = Counter()
        self.fences: dict[tuple[str, str], tuple[int, dict[str, int]]] = {}  # by cluster and scope; by object

    def new_balancer(self, name: str, spec: lb.LoadBalancerSpec) -> lb.LoadBalancer:
        """One with an ID and addresses that nothing had before, from networks for benchmarks and examples."""
        number = next(self.numbers)
        bases = ["198.18.0.0" if family == lb.IP_FAMILY_IPV4 else "2001:db8::" for family in spec.ip_families]
        addresses = [lb.LoadBalancerAddress(ip=str(ipaddress.ip_address(base) + number)) for base in bases]
        return lb.LoadBalancer(vendor_id=f"lb-{number}", name=name, addresses=addresses, created_at=now())

    def admit(self, request: Any, name: str) -> None:
        """Refuses an older writer of an object than any before, and remembers this one. Needs the lock."""
        fence, cluster = request.fence, request.context.cluster_id
        if not fence.scope:
            raise invalid({"fence.scope" if request.HasField("fence") else "fence": "is missing"})
        epoch, sequences = self.fences.get((cluster, fence.scope), (0, {}))
        if fence.epoch < epoch or (fence.epoch == epoch and fence.sequence < sequences.get(name, 0)):
            raise Fault("STALE_FENCE", f"fence: a newer writer of {fence.scope} was here; stop writing")
        kept = sequences if fence.epoch == epoch else {}
        self.fences[cluster, fence.scope] = fence.epoch, kept | {name: fence.sequence}

    def cost(self, request: Any, calls: Sequence[common.PlannedStep] = (), listed: bool = False) -> common.Cost:
        """Counts the calls that a request caused, and logs them. `listed`: if none, the mirror was looked at."""
        families = Counter(call.family for call in calls)
        for call in calls:
            log.info("%s, request %s", call.description, request.context.request_id)
        with self.changed:
            self.calls.update(families)
        source = Cost.SOURCE_LIVE if families else Cost.SOURCE_SNAPSHOT if listed else Cost.SOURCE_MEMORY
        observed = None if source == Cost.SOURCE_MEMORY else now()
        return Cost(vendor_calls=families.total(), calls_by_family=families, source=source, observed_at=observed)

    def wake(self) -> None:
        """Lets all that wait look again."""
        with self.changed:
            self.changed.notify_all()

    def wait(self, context: Context, done: Callable[[], bool], seconds: float) -> None:
        """Until it is done or the client hangs up; DRAINING if the process is about to stop."""
        with self.changed:
            self.changed.wait_for(lambda: self.draining or not context.is_active() or done(), seconds)
        if self.draining:
            raise Fault("DRAINING", "this adapter is about to stop")

    def watch(
        self, mirror: Mirror[T], see: See[T], request: Any, context: Context, response: Make[R], *names: str
    ) -> Iterator[R]:
        """The events of a watch. `see`: the message for this caller, or None; `names`: what tells which one is gone."""
        context.add_callback(self.wake)
        cidrs = getattr(request, "cluster_cidrs", ())
        view = digest(self.id, request.DESCRIPTOR.name, request.context.cluster_id, *cidrs)
        prefix, _, digits = request.resume_token.rpartition("/")
        position = int(digits) if prefix == view and digits.isdecimal() else None
        while context.is_active():
            with self.changed:
                changes = None if position is None else mirror.since(position)
                objects = [] if changes is not None else list(mirror.items.values())
                position, observed = mirror.end, now()
            end = {"observed_at": observed, "token": f"{view}/{position}"}
            if changes is None:
                listing = [item for item in map(see, objects) if item is not None]
                yield response(reset={"scope": SCOPE})
                for start in range(0, len(listing), CHUNK):
                    yield response(items={"items": listing[start : start + CHUNK]})
                total = checksum(getattr(item, names[0]) for item in listing)
                yield response(synced={"count": len(listing), "checksum": total, **end})
            else:
                for old, new in changes:
                    before, after = (None if it is None else see(it) for it in (old, new))
                    if after is not None and after != before:
                        yield response(upsert=after)
                    elif after is None and before is not None:
                        yield response(gone={name: getattr(before, name) for name in names})
                yield response(bookmark=end)
            if request.stop_when_synced:
                return
            self.wait(context, lambda: mirror.end != position, BOOKMARK_SECONDS)


class Service:
    """What the services have in common."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud


def checksum(keys: Iterable[str]) -> int:
    """The sum of the first eight bytes of each key's SHA-256, modulo 2^64."""
    return sum(int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") for key in keys) % 2**64
