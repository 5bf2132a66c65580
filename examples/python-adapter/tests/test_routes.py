"""Routes: ownership, and the result of each item."""

from cloudadapter.v1alpha1 import common_pb2 as common
from cloudadapter.v1alpha1 import route_service_pb2 as api

from .harness import CLUSTER, CONTEXT, Served, fence, kinds

APPLIED, UNCHANGED = api.RouteResult.OUTCOME_APPLIED, api.RouteResult.OUTCOME_UNCHANGED
CONFLICT, FAILED = api.RouteResult.OUTCOME_CONFLICT, api.RouteResult.OUTCOME_FAILED


class Routes(Served):
    def apply(self, sequence: int, *items: api.RouteUpsert | api.RouteDelete) -> list[int]:
        answer = self.routes.ApplyRoutes(
            api.ApplyRoutesRequest(
                context=CONTEXT,
                fence=fence(sequence, scope="route-controller/0"),
                upserts=[item for item in items if isinstance(item, api.RouteUpsert)],
                deletes=[item for item in items if isinstance(item, api.RouteDelete)],
                cluster_cidrs=["10.244.0.0/16"],
            )
        )
        for result in answer.results:
            self.assertEqual(result.HasField("error"), result.outcome in (CONFLICT, FAILED))
        self.errors = [common.Reason.Name(it.error.reason) for it in answer.results if it.HasField("error")]
        self.calls = answer.cost.vendor_calls
        return [result.outcome for result in answer.results]

    def test_batch_items_have_independent_results(self) -> None:
        first, second = self.machines(2)
        items = [lay("a", "10.244.1.0/24", first), lay("b", "10.244.2.1/24", second), lay("b", "10.9.0.0/24", second)]
        twice = lay("b", "10.244.1.0/24", second)
        self.assertEqual(self.apply(1, *items, twice), [APPLIED, FAILED, FAILED, FAILED])
        self.assertEqual(self.errors[2], "REASON_OPERATION_CONFLICT")
        self.assertEqual(self.apply(2, items[0]), [UNCHANGED])
        self.assertEqual(self.calls, 0)
        self.assertEqual(self.apply(3, lay("a", "10.244.1.0/24", second)), [APPLIED])
        self.assertEqual(self.apply(4, lay("b", "10.244.1.0/24", second)), [CONFLICT])
        self.assertEqual(self.apply(5, lay("c", "10.244.3.0/24", "mem://desk/i-0")), [FAILED])
        self.assertEqual(self.apply(6, lay("c" * 257, "10.244.3.0/24", first), items[0]), [FAILED, APPLIED])
        self.assertEqual(self.errors, ["REASON_FIELD_INVALID"])

    def test_deletion_needs_key_and_ownership(self) -> None:
        first, second = self.machines(2)
        self.apply(1, lay("a", "10.244.1.0/24", first))
        self.assertEqual(self.apply(2, drop("b", "10.244.1.0/24", first)), [UNCHANGED])
        self.console("/createRoute", DESTINATION="10.244.9.0/24", PROVIDER_ID=second)
        self.assertEqual(self.apply(3, drop("a", "10.244.9.0/24", first)), [UNCHANGED])
        self.assertEqual(self.apply(4, lay("a", "10.244.9.0/24", first)), [CONFLICT])
        self.assertEqual(self.apply(5, lay("b", "10.244.9.0/24", second)), [UNCHANGED])
        self.assertEqual(self.apply(6, drop("a", "10.244.1.0/24"), drop("b", "10.244.9.0/24", second)), [APPLIED] * 2)
        self.assertEqual(self.cloud.routes, {})

    def test_dry_run_plans_and_changes_nothing(self) -> None:
        (first,) = self.machines(1)
        self.apply(1, lay("a", "10.244.1.0/24", first))
        before = dict(self.cloud.routes)
        upserts, deletes = [lay("b", "10.244.2.0/24", first)], [drop("a", "10.244.1.0/24")]
        cidrs = ["10.244.0.0/16"]
        request = api.ApplyRoutesRequest(
            context=CONTEXT, upserts=upserts, deletes=deletes, cluster_cidrs=cidrs, dry_run=True
        )
        answer = self.routes.ApplyRoutes(request)
        self.assertEqual([it.outcome for it in answer.results], [APPLIED, APPLIED])
        self.assertEqual({it.description for it in answer.plan}, {"Put 10.244.2.0/24", "Delete 10.244.1.0/24"})
        self.assertEqual(self.cloud.routes, before)

    def test_older_writer_is_refused(self) -> None:
        (first,) = self.machines(1)
        self.apply(5)
        with self.assertRaisesRegex(Exception, "newer writer"):
            self.apply(4, lay("a", "10.244.1.0/24", first))
        self.assertEqual(self.cloud.routes, {})

    def test_route_to_a_deleted_instance_is_repaired(self) -> None:
        first, second = self.machines(2)
        self.apply(1, lay("a", "10.244.1.0/24", first))
        self.console("/deleteInstances", PROVIDER_IDS=first)
        request = api.WatchRoutesRequest(context=CONTEXT, stop_when_synced=True)
        events = list(self.routes.WatchRoutes(request))
        self.assertEqual(kinds(events), ["reset", "items", "synced"])
        route = events[1].items.items[0]
        self.assertEqual((route.state, route.owner), (api.ROUTE_STATE_BLACKHOLE, api.ROUTE_OWNER_MINE))
        self.assertEqual(self.apply(2, lay("a", "10.244.1.0/24", second)), [APPLIED])

    def test_foreign_routes_are_shown_if_they_overlap(self) -> None:
        (first,) = self.machines(1)
        for destination in ("10.0.0.0/8", "10.244.7.0/24", "172.16.0.0/12", "fd00::/64"):
            self.console("/createRoute", DESTINATION=destination, PROVIDER_ID=first)
        request = api.WatchRoutesRequest(context=CONTEXT, stop_when_synced=True, cluster_cidrs=["10.244.0.0/16"])
        shown = [item for event in self.routes.WatchRoutes(request) for item in event.items.items]
        self.assertEqual([route.destination for route in shown], ["10.0.0.0/8", "10.244.7.0/24"])
        request.cluster_cidrs.append("10.244.0.1/16")
        self.assertEqual(self.refused("FIELD_INVALID", self.routes.WatchRoutes, request).fields, ["cluster_cidrs[1]"])


def key(node: str, destination: str) -> api.RouteKey:
    return api.RouteKey(cluster_id=CLUSTER, node_uid=node, destination=destination)


def lay(node: str, destination: str, machine: str) -> api.RouteUpsert:
    return api.RouteUpsert(key=key(node, destination), next_hop=api.NextHop(provider_id=machine))


def drop(node: str, destination: str, machine: str = "") -> api.RouteDelete:
    return api.RouteDelete(key=key(node, destination), next_hop=api.NextHop(provider_id=machine))
