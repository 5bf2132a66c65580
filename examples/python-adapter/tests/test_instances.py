"""Instances: look-ups, and the watch protocol that all watches share."""

from cloudadapter.v1alpha1 import common_pb2 as common
from cloudadapter.v1alpha1 import instance_service_pb2 as api

from contract_rules.watch import KEEP_LISTINGS
from contract_rules.words import checksum

from .harness import CONTEXT, Served, kinds


class Existence(Served):
    def ask(self, *refs: api.InstanceRef) -> list[api.InstanceResult]:
        request = api.BatchGetInstancesRequest(context=CONTEXT, refs=refs)
        self.answer = self.instances.BatchGetInstances(request)
        for result in self.answer.results:
            self.assertEqual(result.HasField("instance"), result.existence == api.EXISTENCE_EXISTS)
            self.assertEqual(result.HasField("evidence"), result.existence == api.EXISTENCE_GONE)
            self.assertEqual(result.HasField("error"), result.existence == api.EXISTENCE_UNKNOWN)
        return list(self.answer.results)

    def test_each_reference_has_a_result(self) -> None:
        first, second = self.machines(2)
        self.console("/deleteInstances", PROVIDER_IDS=second)
        refs = [
            api.InstanceRef(provider_id=first),
            api.InstanceRef(provider_id=second),
            api.InstanceRef(provider_id="other://desk/i-1"),
            api.InstanceRef(provider_id="mem://elsewhere/i-1"),
            api.InstanceRef(provider_id="mem://desk"),
            api.InstanceRef(node_name="node-0"),
            api.InstanceRef(node_name="nobody"),
            api.InstanceRef(),
            api.InstanceRef(node_name="x" * 257),
        ]
        existence = [api.Existence.Name(it.existence).removeprefix("EXISTENCE_") for it in self.ask(*refs)]
        self.assertEqual(
            existence,
            ["EXISTS", "GONE", "FOREIGN", "FOREIGN", "UNKNOWN", "EXISTS", "NOT_VISIBLE", "UNKNOWN", "UNKNOWN"],
        )
        self.assertEqual(self.answer.results[1].evidence.witnesses, 1)
        self.assertEqual(self.answer.cost.source, common.Cost.SOURCE_LIVE)

    def test_ambiguous_name_is_refused(self) -> None:
        self.machines(1)
        self.machines(1)
        (result,) = self.ask(api.InstanceRef(node_name="node-0"))
        self.assertEqual(result.error.reason, common.REASON_OPERATION_CONFLICT)

    def test_empty_cloud_proves_at_most_one_absence(self) -> None:
        first, second = (api.InstanceRef(provider_id=it) for it in self.machines(2))
        self.console("/deleteInstances", PROVIDER_IDS=f"{first.provider_id} {second.provider_id}")
        existence = {result.existence for result in self.ask(first, second)}
        self.assertEqual(existence, {api.EXISTENCE_NOT_VISIBLE})
        (result,) = self.ask(first)
        self.assertEqual((result.existence, result.evidence.witnesses), (api.EXISTENCE_GONE, 0))
        self.assertEqual(self.answer.cost.vendor_calls, 1)

    def test_fingerprint_covers_the_fields_of_a_node(self) -> None:
        (first,) = self.machines(1)

        def fingerprint() -> str:
            return self.ask(api.InstanceRef(provider_id=first))[0].instance.fingerprint

        before = fingerprint()
        self.console("/touchInstance", PROVIDER_ID=first)
        self.assertEqual(fingerprint(), before)
        for change in ("changeInstance", "stopInstance"):
            self.console(f"/{change}", PROVIDER_ID=first)
            self.assertNotEqual(fingerprint(), before)


class Watch(Served):
    def list(self, token: str = "") -> list[api.WatchInstancesResponse]:
        request = api.WatchInstancesRequest(context=CONTEXT, stop_when_synced=True, resume_token=token)
        return list(self.instances.WatchInstances(request))

    def test_listing_is_split_and_counted(self) -> None:
        made = self.machines(600)
        events = self.list()
        self.assertEqual(kinds(events), ["reset", *["items"] * 5, "synced"])
        self.assertEqual((events[-1].synced.count, events[-1].synced.checksum), (600, checksum(made)))

    def test_checksum_matches_the_documented_example(self) -> None:
        self.assertEqual(checksum(f"mem://r1/i-{n}" for n in (3, 1, 2)), 16280259153780719357)

    def test_resume_token_resumes_and_invalid_one_resets(self) -> None:
        first, second = self.machines(2)
        token = self.list()[-1].synced.token
        self.console("/deleteInstances", PROVIDER_IDS=first)
        self.console("/stopInstance", PROVIDER_ID=second)
        events = self.list(token)
        self.assertEqual(kinds(events), ["gone", "upsert", "bookmark"])
        self.assertEqual(kinds(self.list(events[2].bookmark.token)), ["bookmark"])
        for nonsense in ("nonsense", f"{token}0"):
            self.assertEqual(kinds(self.list(nonsense))[0], "reset", nonsense)

    def test_expired_resume_token_resets(self) -> None:
        self.machines(1)
        token = self.list()[-1].synced.token
        for _ in range(KEEP_LISTINGS):
            self.machines(1)
            self.list()
        self.assertEqual(kinds(self.list(token))[0], "reset")

    def test_open_watch_sends_changes_and_ends_at_drain(self) -> None:
        (first,) = self.machines(1)
        request = api.WatchInstancesRequest(context=CONTEXT)
        events = iter(self.instances.WatchInstances(request, timeout=20))
        self.assertEqual(kinds(next(events) for _ in range(3)), ["reset", "items", "synced"])
        self.console("/changeInstance", PROVIDER_ID=first)
        self.assertEqual(kinds(next(events) for _ in range(2)), ["upsert", "bookmark"])
        self.cloud.draining = True
        self.machines(1)
        with self.assertRaisesRegex(Exception, "about to stop"):
            list(events)
