"""RouteService: routes to the pods of each node. The decisions are pure; `ApplyRoutes` alone writes."""

import ipaddress
import threading
from collections.abc import Iterable, Iterator
from hashlib import sha256

import grpc
from cloudadapter.v1alpha1 import common_pb2 as common
from cloudadapter.v1alpha1 import route_service_pb2 as api
from cloudadapter.v1alpha1 import route_service_pb2_grpc as rpc

from .cloud import SCOPE, Cloud, Meter, Route
from .faults import Fault, invalid, too_long
from .info import BATCH_ROUTES
from .mirror import View, watch
from .ownership import Fences, fence_of, fence_tag, key_of, newer, owner_tags

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Routes(rpc.RouteServiceServicer):
    """Serves them."""

    def __init__(self, cloud: Cloud, fences: Fences, process: str, draining: threading.Event) -> None:
        self.cloud, self.fences, self.process, self.draining = cloud, fences, process, draining

    def WatchRoutes(
        self, request: api.WatchRoutesRequest, context: grpc.ServicerContext
    ) -> Iterator[api.WatchRoutesResponse]:
        """Own ones, and all others that overlap the cluster's networks."""
        cluster, networks = request.context.cluster_id, networks_of(request.cluster_cidrs)
        view: View[Route, api.Route, api.WatchRoutesResponse] = View(
            id=f"{self.process}/routes/{cluster}/{sha256(str(networks).encode()).hexdigest()[:12]}",
            scope=SCOPE,
            see=lambda route: item(route, cluster, networks),
            key=lambda shown: shown.vendor_id,
            items=api.RouteItems,
            gone=lambda shown: api.RouteGone(vendor_id=shown.vendor_id),
            response=api.WatchRoutesResponse,
        )
        return watch(self.cloud.routes, view, request, context, self.draining)

    def ApplyRoutes(
        self, request: api.ApplyRoutesRequest, context: grpc.ServicerContext
    ) -> api.ApplyRoutesResponse:
        """Lays and removes them, each for itself."""
        if len(request.upserts) + len(request.deletes) > BATCH_ROUTES:
            raise invalid({"upserts": f"with deletes more than {BATCH_ROUTES}"})
        meter, answer = Meter(self.cloud, request.context.request_id), api.ApplyRoutesResponse()
        with self.cloud.changed:
            batch = Batch(request, self.cloud)
            if not request.dry_run:
                self.fences.admit(request.context.cluster_id, request.fence, "routes")
            for outcome, operation, route in batch.run():
                answer.results.append(outcome)
                if route and request.dry_run:
                    words = {"operation": operation, "description": f"{operation} {route.destination}"}
                    answer.plan.append(common.PlannedStep(family="network", **words))
                elif route:
                    meter.call("network", operation)
                    self.cloud.routes.set(route.id, route if operation == PUT else None)
        answer.cost.CopyFrom(meter.cost())
        return answer


PUT, DELETE = "PutRoute", "DeleteRoute"


class Batch:
    """The decisions of one request, on a copy of the table."""

    def __init__(self, request: api.ApplyRoutesRequest, cloud: Cloud) -> None:
        self.request, self.new_id = request, cloud.new_id
        self.networks = networks_of(request.cluster_cidrs)
        if request.upserts and not self.networks:
            raise invalid({"cluster_cidrs": "is empty, and nothing is laid outside of it"})
        self.machines = {machine.provider_id for machine in cloud.machines.all()}
        self.table = {route.destination: route for route in cloud.routes.all()}
        self.asked: set[str] = set()

    def run(self) -> Iterator[tuple[api.RouteResult, str, Route | None]]:
        """One result an item, with the route to write if there is something to do."""
        for n, upsert in enumerate(self.request.upserts):
            try:
                route = self.upsert(f"upserts[{n}]", upsert)
            except Fault as fault:
                yield failed(upsert.key, fault), PUT, None
                continue
            if route:
                self.table[route.destination] = route
            yield done(upsert.key, route), PUT, route
        for n, delete in enumerate(self.request.deletes):
            try:
                route = self.delete(f"deletes[{n}]", delete)
            except Fault as fault:
                yield failed(delete.key, fault), DELETE, None
                continue
            if route:
                del self.table[route.destination]
            yield done(delete.key, route), DELETE, route

    def upsert(self, path: str, upsert: api.RouteUpsert) -> Route | None:
        """The route to lay; None: it is so already."""
        network = self.destination(f"{path}.key", upsert.key)
        destination, hop = str(network), upsert.next_hop
        if faults := dict([*too_long(f"{path}.next_hop", hop), *too_long(f"{path}.owner", upsert.owner)]):
            raise invalid(faults)
        if not self.inside(network):
            raise invalid({f"{path}.key.destination": "is outside of cluster_cidrs"})
        if hop.provider_id not in self.machines:
            raise invalid({f"{path}.next_hop.provider_id": "names no machine of this cloud"})
        if destination in self.asked:
            raise Fault("OPERATION_CONFLICT", f"{path}.key.destination: is twice in this request")
        self.asked.add(destination)
        found, key = self.table.get(destination), (upsert.key.cluster_id, upsert.key.node_uid)
        if found and key_of(found.tags) != key and (key_of(found.tags) or found.machine != hop.provider_id):
            raise Fault("OWNED_BY_OTHER", f"{path}: {found.id} is another's", vendor_id=found.id)
        if found and not found.broken and same_hop(found, hop):
            return None
        self.check_fence(path, found)
        return Route(
            id=found.id if found else self.new_id("rt"),
            destination=destination,
            machine=hop.provider_id,
            address=hop.address,
            interface=hop.interface,
            tags=owner_tags(key, upsert.owner) | fence_tag(self.request.fence),
        )

    def delete(self, path: str, delete: api.RouteDelete) -> Route | None:
        """The route to remove; None: there is none of that key."""
        network = self.destination(f"{path}.key", delete.key)
        found = self.table.get(str(network))
        owner = found and key_of(found.tags)
        nobodys = found and not owner and found.machine == delete.next_hop.provider_id and self.inside(network)
        if not nobodys and owner != (delete.key.cluster_id, delete.key.node_uid):
            return None
        self.check_fence(path, found)
        return found

    def destination(self, path: str, key: api.RouteKey) -> Network:
        """The destination of a key that can be read."""
        faults = dict(too_long(path, key))
        if key.cluster_id != self.request.context.cluster_id:
            faults[f"{path}.cluster_id"] = "differs from context.cluster_id"
        if not key.node_uid:
            faults[f"{path}.node_uid"] = "is empty"
        if (network := parse(key.destination)) is None:
            faults[f"{path}.destination"] = NO_CIDR
        if faults or network is None:
            raise invalid(faults)
        return network

    def inside(self, network: Network) -> bool:
        """Whether it lies in one of the cluster's networks."""
        return any(within(network, cluster) for cluster in self.networks)

    def check_fence(self, path: str, found: Route | None) -> None:
        """STALE_FENCE if a newer writer of the same scope laid it."""
        tag = fence_of(found.tags) if found else None
        if tag is not None and newer(tag, self.request.fence):
            raise Fault("STALE_FENCE", f"{path}: a newer writer of {tag.scope} laid this route")


def done(key: api.RouteKey, route: Route | None) -> api.RouteResult:
    """The result of an item that is as asked."""
    outcome = api.RouteResult.OUTCOME_APPLIED if route else api.RouteResult.OUTCOME_UNCHANGED
    return api.RouteResult(key=key, outcome=outcome)


def failed(key: api.RouteKey, fault: Fault) -> api.RouteResult:
    """The result of an item that is not."""
    conflict = fault.reason == "OWNED_BY_OTHER"
    outcome = api.RouteResult.OUTCOME_CONFLICT if conflict else api.RouteResult.OUTCOME_FAILED
    return api.RouteResult(key=key, outcome=outcome, error=fault.item())


def same_hop(route: Route, hop: api.NextHop) -> bool:
    """Compares what the request sets."""
    there = (route.machine, route.address, route.interface)
    return there == (hop.provider_id, hop.address or route.address, hop.interface or route.interface)


def item(route: Route, cluster: str, networks: list[Network]) -> api.Route | None:
    """A route as this cluster sees it; None if it does not."""
    key = key_of(route.tags)
    mine = key is not None and key[0] == cluster
    if not mine and not any(overlap(ipaddress.ip_network(route.destination), network) for network in networks):
        return None
    others = api.ROUTE_OWNER_OTHER_CLUSTER if key else api.ROUTE_OWNER_UNMANAGED
    return api.Route(
        vendor_id=route.id,
        key=api.RouteKey(cluster_id=key[0], node_uid=key[1], destination=route.destination) if key else None,
        destination=route.destination,
        next_hop=api.NextHop(provider_id=route.machine, address=route.address, interface=route.interface),
        state=api.ROUTE_STATE_BLACKHOLE if route.broken else api.ROUTE_STATE_ACTIVE,
        owner=api.ROUTE_OWNER_MINE if mine else others,
        fence=fence_of(route.tags),
    )


NO_CIDR = "is no CIDR, or has host bits; write one such as 10.244.1.0/24"


def parse(text: str) -> Network | None:
    """A CIDR without host bits."""
    try:
        return ipaddress.ip_network(text) if text.partition("/")[2].isdecimal() else None
    except ValueError:
        return None


def networks_of(texts: Iterable[str]) -> list[Network]:
    """The cluster's networks; FIELD_INVALID for what is none."""
    parsed = [parse(text) for text in texts]
    faults = {f"cluster_cidrs[{n}]": NO_CIDR for n, network in enumerate(parsed) if network is None}
    if faults:
        raise invalid(faults)
    return [network for network in parsed if network is not None]


def within(network: Network, other: Network) -> bool:
    """Whether all of it lies in the other one."""
    return network.version == other.version and overlap(network, other) and network.prefixlen >= other.prefixlen


def overlap(a: Network, b: Network) -> bool:
    """Whether one contains the other."""
    return a.version == b.version and (a[0] in b or b[0] in a)
