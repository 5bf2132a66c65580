"""RouteService: routes to the pods of each node. This cloud has one route per destination, which is its ID."""

from collections.abc import Iterator

from cloudadapter.v1alpha1 import common_pb2 as common
from cloudadapter.v1alpha1 import route_service_pb2 as api
from cloudadapter.v1alpha1 import route_service_pb2_grpc as rpc
from cloudadapter.v1alpha1.route_service_pb2 import RouteResult as Result

from contract_rules.edge import Code, Fault, invalid
from contract_rules.fields import Network, contains, faults, network
from contract_rules.words import cost

from .cloud import Cloud, Context

Item = api.RouteUpsert | api.RouteDelete


class Routes(rpc.RouteServiceServicer):
    """The service."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud

    def WatchRoutes(self, request: api.WatchRoutesRequest, context: Context) -> Iterator[api.WatchRoutesResponse]:
        """Streams the routes of the cluster, and all others that overlap its CIDRs."""
        cluster, networks = request.context.cluster_id, [network(text) for text in request.cluster_cidrs]

        def show() -> dict[str, api.Route]:
            shown = {}
            for to, route in self.cloud.routes.items():
                mine, here = route.key.cluster_id == cluster, network(to)
                if mine or any(here and other and here.overlaps(other) for other in networks):
                    others = api.ROUTE_OWNER_OTHER_CLUSTER if route.HasField("key") else api.ROUTE_OWNER_UNMANAGED
                    shown[to] = api.Route(owner=api.ROUTE_OWNER_MINE if mine else others)
                    shown[to].MergeFrom(route)
            return shown

        return self.cloud.watch(show, request, context, api.WatchRoutesResponse, "vendor_id")

    def ApplyRoutes(self, request: api.ApplyRoutesRequest, context: Context) -> api.ApplyRoutesResponse:
        """Creates and removes routes, each independently. A dry run decides on a copy of the table."""
        self.cloud.fences.admit(request, "routes")
        batch, table = Batch(request, self.cloud), self.cloud.routes
        results = [batch.settle(f"upserts[{n}]", item) for n, item in enumerate(request.upserts)]
        results += [batch.settle(f"deletes[{n}]", item) for n, item in enumerate(request.deletes)]
        changed = [to for to in batch.table | table if batch.table.get(to) is not table.get(to)]
        if request.dry_run:
            verbs = {to: "Put" if to in batch.table else "Delete" for to in changed}
            step, family = common.PlannedStep, "network"
            plan = [step(operation=verb, description=f"{verb} {to}", family=family) for to, verb in verbs.items()]
            return api.ApplyRoutesResponse(results=results, plan=plan, cost=cost())
        for to in changed:
            self.cloud.put(table, to, batch.table.get(to))
        return api.ApplyRoutesResponse(results=results, cost=cost(len(changed), "network"))


class Batch:
    """The decisions of one request, on a copy of the table."""

    def __init__(self, request: api.ApplyRoutesRequest, cloud: Cloud) -> None:
        self.request, self.machines, self.table = request, cloud.machines, dict(cloud.routes)
        self.asked: set[str] = set()

    def settle(self, path: str, item: Item) -> Result:
        """Applies one item and returns its result."""
        try:
            to = self.destination(path, item)
            found, inside = self.table.get(str(to)), any(contains(text, to) for text in self.request.cluster_cidrs)
            if isinstance(item, api.RouteDelete):
                applied = found is not None and is_of(found, item) and (inside or found.HasField("key"))
                if applied:
                    del self.table[str(to)]
            else:
                applied = self.lay(path, str(to), item, found, inside)
        except Fault as fault:
            conflict = fault.code == Code.ALREADY_EXISTS
            outcome = Result.OUTCOME_CONFLICT if conflict else Result.OUTCOME_FAILED
            return Result(key=item.key, outcome=outcome, error=fault.item())
        return Result(key=item.key, outcome=Result.OUTCOME_APPLIED if applied else Result.OUTCOME_UNCHANGED)

    def destination(self, path: str, item: Item) -> Network:
        """Returns the destination; raises FIELD_INVALID if the item is invalid."""
        bad, to = dict(faults(item, f"{path}.")), network(item.key.destination)
        if item.key.cluster_id != self.request.context.cluster_id:
            bad[f"{path}.key.cluster_id"] = "differs from context.cluster_id"
        if bad or to is None:
            raise invalid(bad)
        return to

    def lay(self, path: str, to: str, item: api.RouteUpsert, found: api.Route | None, inside: bool) -> bool:
        """Puts a route into the table. Returns False if it is there already."""
        if not inside:
            raise invalid({f"{path}.key.destination": "is outside of cluster_cidrs"})
        if item.next_hop.provider_id not in self.machines:
            raise invalid({f"{path}.next_hop.provider_id": "is not an instance of this cloud"})
        if to in self.asked:
            text = f"{path}.key.destination: is a duplicate in this request"
            raise Fault(Code.ABORTED, "OPERATION_CONFLICT", text, retry_ms=500)
        self.asked.add(to)
        if found and not is_of(found, item):
            raise Fault(Code.ALREADY_EXISTS, "OWNED_BY_OTHER", f"{path}: {to} has another owner", vendor_id=to)
        same = found and all(getattr(found.next_hop, it.name) == value for it, value in item.next_hop.ListFields())
        if same and found and found.state == api.ROUTE_STATE_ACTIVE:
            return False
        route = api.Route(vendor_id=to, destination=to, state=api.ROUTE_STATE_ACTIVE, next_hop=item.next_hop)
        route.MergeFrom(api.Route(key=item.key, fence=self.request.fence))
        route.key.destination = to
        self.table[to] = route
        return True


def is_of(route: api.Route, item: Item) -> bool:
    """Whether a route has the item's key, or has no owner and leads to the same instance."""
    if route.HasField("key"):
        return (route.key.cluster_id, route.key.node_uid) == (item.key.cluster_id, item.key.node_uid)
    return route.next_hop.provider_id == item.next_hop.provider_id
