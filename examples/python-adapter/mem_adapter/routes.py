"""RouteService: routes to the pods of each node. This cloud has one route a destination, which is its ID."""

from collections.abc import Callable, Iterator
from typing import Any

from cloudadapter.v1alpha1 import route_service_pb2 as api
from cloudadapter.v1alpha1 import route_service_pb2_grpc as rpc
from cloudadapter.v1alpha1.route_service_pb2 import RouteResult as Result

from .cloud import Cloud, Context, Service, step
from .edge import Fault, invalid
from .fields import faults, network

Item = api.RouteUpsert | api.RouteDelete


class Routes(Service, rpc.RouteServiceServicer):
    """Serves them."""

    def WatchRoutes(self, request: api.WatchRoutesRequest, context: Context) -> Iterator[api.WatchRoutesResponse]:
        """Own ones, and all others that overlap the cluster's networks."""
        cluster, networks = request.context.cluster_id, [network(text) for text in request.cluster_cidrs]

        def see(route: api.Route) -> api.Route | None:
            mine, here, seen = route.key.cluster_id == cluster, network(route.destination), api.Route()
            if not mine and not any(here and other and here.overlaps(other) for other in networks):
                return None
            others = api.ROUTE_OWNER_OTHER_CLUSTER if route.HasField("key") else api.ROUTE_OWNER_UNMANAGED
            seen.MergeFrom(route)
            seen.owner = api.ROUTE_OWNER_MINE if mine else others
            return seen

        return self.cloud.watch(self.cloud.routes, see, request, context, api.WatchRoutesResponse, "vendor_id")

    def ApplyRoutes(self, request: api.ApplyRoutesRequest, context: Context) -> api.ApplyRoutesResponse:
        """Lays and removes them, each for itself. A dry run decides on a copy of the table."""
        cloud, results, plan = self.cloud, [], []
        with cloud.changed:
            if not request.dry_run:
                cloud.admit(request, "routes")
            batch = Batch(request, cloud)
            work: list[tuple[str, Any, Callable[[str, Any], str]]] = [
                *((f"upserts[{n}]", it, batch.lay) for n, it in enumerate(request.upserts)),
                *((f"deletes[{n}]", it, batch.drop) for n, it in enumerate(request.deletes)),
            ]
            for path, item, decide in work:
                outcome, error = Result.OUTCOME_UNCHANGED, None
                try:
                    if destination := decide(path, item):
                        outcome, route = Result.OUTCOME_APPLIED, batch.table.get(destination)
                        plan.append(step("Put" if route else "Delete", "network", destination))
                        if not request.dry_run:
                            cloud.routes.set(destination, route)
                except Fault as fault:
                    conflict, error = fault.reason == "OWNED_BY_OTHER", fault.item()
                    outcome = Result.OUTCOME_CONFLICT if conflict else Result.OUTCOME_FAILED
                results.append(Result(key=item.key, outcome=outcome, error=error))
        planned, made = (plan, []) if request.dry_run else ([], plan)
        return api.ApplyRoutesResponse(results=results, plan=planned, cost=cloud.cost(request, made))


class Batch:
    """The decisions of one request, on a copy of the table: each answers the destination to write, if any."""

    def __init__(self, request: api.ApplyRoutesRequest, cloud: Cloud) -> None:
        self.request, self.machines, self.table = request, cloud.machines.items, dict(cloud.routes.items)
        self.asked: set[str] = set()

    def lay(self, path: str, item: api.RouteUpsert) -> str:
        """Puts a route into the table."""
        to, found, inside = self.look(path, item)
        if not inside:
            raise invalid({f"{path}.key.destination": "is outside of cluster_cidrs"})
        if item.next_hop.provider_id not in self.machines:
            raise invalid({f"{path}.next_hop.provider_id": "names no machine of this cloud"})
        if to in self.asked:
            raise Fault("OPERATION_CONFLICT", f"{path}.key.destination: is twice in this request")
        self.asked.add(to)
        if found and not is_of(found, item):
            raise Fault("OWNED_BY_OTHER", f"{path}: {to} is another's", vendor_id=to)
        same = found and all(getattr(found.next_hop, it.name) == value for it, value in item.next_hop.ListFields())
        if same and found and found.state == api.ROUTE_STATE_ACTIVE:
            return ""
        key, hop, fence = api.RouteKey(destination=to), item.next_hop, self.request.fence
        key.cluster_id, key.node_uid = item.key.cluster_id, item.key.node_uid
        state = api.ROUTE_STATE_ACTIVE
        self.table[to] = api.Route(vendor_id=to, key=key, destination=to, next_hop=hop, state=state, fence=fence)
        return to

    def drop(self, path: str, item: api.RouteDelete) -> str:
        """Takes a route out of the table."""
        to, found, inside = self.look(path, item)
        if found is None or not is_of(found, item) or not (inside or found.HasField("key")):
            return ""
        del self.table[to]
        return to

    def look(self, path: str, item: Item) -> tuple[str, api.Route | None, bool]:
        """The destination, the route to it, and whether it lies in the cluster; FIELD_INVALID if it cannot be read."""
        bad, cidr = dict(faults(item, f"{path}.")), network(item.key.destination)
        if item.key.cluster_id != self.request.context.cluster_id:
            bad[f"{path}.key.cluster_id"] = "differs from context.cluster_id"
        if bad or cidr is None:
            raise invalid(bad)
        clusters = [network(text) for text in self.request.cluster_cidrs]
        inside = any(it and it.overlaps(cidr) and it.prefixlen <= cidr.prefixlen for it in clusters)
        return str(cidr), self.table.get(str(cidr)), inside


def is_of(route: api.Route, item: Item) -> bool:
    """Whether a route is of the item's key, or nobody's and to the same machine."""
    if route.HasField("key"):
        return (route.key.cluster_id, route.key.node_uid) == (item.key.cluster_id, item.key.node_uid)
    return route.next_hop.provider_id == item.next_hop.provider_id
