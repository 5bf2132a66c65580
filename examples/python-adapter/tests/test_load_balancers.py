"""Load balancers: fields, convergence, ownership, fences, backend sets."""

from typing import Any

from cloudadapter.v1alpha1 import load_balancer_service_pb2 as api
from google.protobuf.duration_pb2 import Duration

from mem_adapter.load_balancers import KEEP_SETS

from .harness import CONTEXT, Served, fence, kinds, removal, wish


def listens(**fields: Any) -> api.LoadBalancerSpec:
    """A specification with a listener that has these fields."""
    listener = api.Listener(protocol=api.PROTOCOL_TCP, port=443, node_port=30001, **fields)
    return api.LoadBalancerSpec(listeners=[listener])


class Fields(Served):
    def test_all_faults_are_reported_at_once(self) -> None:
        request = wish("web", 80, 80, adoption=9)
        request.spec.listeners[0].ClearField("node_port")
        request.spec.ip_families.append(api.IP_FAMILY_IPV4)
        request.spec.source_ranges.append("everybody")
        refusal = self.refused("FIELD_INVALID", self.balancers.EnsureLoadBalancer, request)
        self.assertEqual(
            set(refusal.fields),
            {
                "adoption",
                "spec.ip_families",
                "spec.listeners[0].node_port",
                "spec.listeners[1].port",
                "spec.source_ranges[0]",
            },
        )
        self.assertFalse(refusal.has_retry)

    def test_contradicting_fields_are_refused(self) -> None:
        request = wish("web", 80, 81, 82)
        first, second, third = request.spec.listeners
        first.MergeFrom(api.Listener(application=api.Listener.APPLICATION_HTTPS, connection_limit=0))
        second.MergeFrom(api.Listener(application=api.Listener.APPLICATION_PASS, tls_refs=["one"]))
        third.MergeFrom(api.Listener(connect_timeout=Duration(), idle_timeout=Duration(seconds=25 * 3600)))
        request.spec.subnets.extend(["", "one", "one"])
        refusal = self.refused("FIELD_INVALID", self.balancers.EnsureLoadBalancer, request)
        self.assertEqual(
            set(refusal.fields),
            {
                "spec.listeners[0].connection_limit",
                "spec.listeners[0].tls_refs",
                "spec.listeners[1].tls_refs",
                "spec.listeners[2].connect_timeout",
                "spec.listeners[2].idle_timeout",
                "spec.subnets",
                "spec.subnets[0]",
            },
        )

    def test_undeclared_parameter_is_refused(self) -> None:
        request = wish(spec=api.LoadBalancerSpec(parameters={"algorithm": "round-robin"}))
        refusal = self.refused("UNKNOWN_PARAMETER", self.balancers.EnsureLoadBalancer, request)
        self.assertEqual(refusal.metadata, {"parameter": "algorithm"})

    def test_unsupported_features_are_refused(self) -> None:
        sctp = api.Listener(protocol=api.PROTOCOL_SCTP, port=443, node_port=30001)
        direct = api.Listener(protocol=api.PROTOCOL_TCP, port=443, target_kind=api.Listener.TARGET_KIND_NODE_DIRECT)
        tls = api.Listener(protocol=api.PROTOCOL_TCP, port=443, node_port=30001, tls_refs=["one"])
        for capability, spec in [
            ("lb.internal", api.LoadBalancerSpec(scheme=api.LoadBalancerSpec.SCHEME_INTERNAL)),
            ("lb.dual-stack", api.LoadBalancerSpec(ip_families=[api.IP_FAMILY_IPV6])),
            ("lb.reserved-ip", api.LoadBalancerSpec(requested_addresses=["192.0.2.1"])),
            ("lb.sctp", api.LoadBalancerSpec(listeners=[sctp])),
            ("lb.node-direct", api.LoadBalancerSpec(listeners=[direct])),
            ("lb.tls", api.LoadBalancerSpec(listeners=[tls])),
            ("lb.address-pool", api.LoadBalancerSpec(address_pool="public")),
            ("lb.subnets", api.LoadBalancerSpec(subnets=["one"])),
            ("lb.size", api.LoadBalancerSpec(size="large")),
            ("lb.zone", api.LoadBalancerSpec(zone="one")),
            ("lb.name", api.LoadBalancerSpec(name="web")),
            ("lb.shared", api.LoadBalancerSpec(load_balancer_id="lb-1")),
            ("lb.keep-address", api.LoadBalancerSpec(address_retention=api.LoadBalancerSpec.ADDRESS_RETENTION_KEEP)),
            ("lb.algorithm", listens(algorithm=api.Listener.ALGORITHM_SOURCE_IP)),
            ("lb.listener-protocol", listens(application=api.Listener.APPLICATION_HTTP)),
            ("lb.connect-timeout", listens(connect_timeout=Duration(seconds=5))),
            ("lb.connection-limit", listens(connection_limit=9)),
        ]:
            refusal = self.refused("UNSUPPORTED_FEATURE", self.balancers.EnsureLoadBalancer, wish(spec=spec))
            self.assertEqual(refusal.metadata["capability"], capability)

    def test_unknown_backend_set_is_requested_at_once(self) -> None:
        refusal = self.refused("BACKEND_SET_UNKNOWN", self.balancers.EnsureLoadBalancer, wish())
        self.assertEqual(refusal.pushback, "0")


class Work(Served):
    def setUp(self) -> None:
        super().setUp()
        self.put("s1", *self.machines(2))

    def ensure(self, request: api.EnsureLoadBalancerRequest) -> api.EnsureLoadBalancerResponse:
        return self.balancers.EnsureLoadBalancer(request)

    def mirror(self) -> list[api.LoadBalancer]:
        request = api.WatchLoadBalancersRequest(context=CONTEXT, stop_when_synced=True)
        return [item for event in self.balancers.WatchLoadBalancers(request) for item in event.items.items]

    def test_app_protocol_is_ignored(self) -> None:
        first, spoken = self.ensure(wish()), wish()
        for listener in spoken.spec.listeners:
            listener.app_protocol = "kubernetes.io/h2c"
        again = self.ensure(spoken)
        self.assertEqual((again.state, again.steps, again.applied_hash), (first.state, 0, first.applied_hash))

    def test_repeated_request_writes_nothing(self) -> None:
        first = self.ensure(wish())
        self.assertEqual((first.state, first.step), (api.LOAD_BALANCER_STATE_ACTIVE, first.steps))
        self.assertGreater(first.cost.vendor_calls, 0)
        renamed = wish(sequence=2)
        renamed.spec.listeners[0].name = "another"
        again = self.ensure(renamed)
        self.assertEqual((again.step, again.steps, again.cost.vendor_calls), (0, 0, 0))
        self.assertEqual(again.applied_hash, first.applied_hash)
        self.assertEqual(again.addresses, first.addresses)

    def test_port_change_is_planned_and_keeps_the_address(self) -> None:
        first = self.ensure(wish("web", 80))
        planned = self.ensure(wish("web", 443, dry_run=True))
        self.assertEqual((planned.state, planned.steps), (api.LOAD_BALANCER_STATE_PENDING, len(planned.plan)))
        self.assertEqual(self.mirror()[0].listeners, ["tcp/80"])
        second = self.ensure(wish("web", 443, sequence=2))
        self.assertEqual(second.addresses, first.addresses)
        self.assertEqual(self.mirror()[0].listeners, ["tcp/443"])
        self.assertEqual(len(planned.plan), second.steps)

    def test_backend_change_is_one_write(self) -> None:
        first = self.ensure(wish())
        self.put("s2", *self.machines(1))
        request = wish(sequence=2)
        request.spec.backend_set_id = "s2"
        second = self.ensure(request)
        self.assertEqual((second.steps, second.applied_hash), (1, first.applied_hash))
        self.assertEqual(self.mirror()[0].backends, 1)

    def test_older_writer_is_refused(self) -> None:
        self.ensure(wish(sequence=5))
        self.balancers.DeleteLoadBalancer(removal(sequence=7))
        self.refused("STALE_FENCE", self.balancers.EnsureLoadBalancer, wish(sequence=6))
        self.assertEqual(self.mirror(), [])
        self.ensure(wish("other", sequence=6))

    def test_older_epoch_is_stale_for_every_object(self) -> None:
        self.ensure(wish("web", fence=fence(1, epoch=2)))
        self.refused("STALE_FENCE", self.balancers.EnsureLoadBalancer, wish("other", sequence=9))

    def test_proxy_protocol_sets_ip_mode_and_is_reversible(self) -> None:
        first = self.ensure(wish())
        proxied = wish(sequence=2)
        proxied.spec.listeners[0].proxy_protocol = api.Listener.PROXY_PROTOCOL_V2
        second = self.ensure(proxied)
        self.assertEqual(second.addresses[0].ip_mode, api.LoadBalancerAddress.IP_MODE_PROXY)
        self.assertNotEqual(second.applied_hash, first.applied_hash)
        self.assertEqual(self.ensure(wish(sequence=3)).applied_hash, first.applied_hash)

    def test_adoption_needs_consent_and_no_owner(self) -> None:
        self.ensure(wish())
        name = self.mirror()[0].name
        self.balancers.DeleteLoadBalancer(removal(sequence=2))
        found = self.console("/createLoadBalancer", NAME=name)
        refusal = self.refused("OWNED_BY_OTHER", self.balancers.EnsureLoadBalancer, wish(sequence=3))
        self.assertEqual(refusal.metadata["vendor_id"], found)
        taken = self.ensure(wish(sequence=4, adoption=api.ADOPTION_IF_UNOWNED))
        self.assertEqual(taken.vendor_ids.ids["loadbalancer"], found)
        known = api.Known(vendor_ids=api.VendorIds(ids={"loadbalancer": found}))
        thief = wish("thief", adoption=api.ADOPTION_BY_ID, known=known)
        self.refused("OWNED_BY_OTHER", self.balancers.EnsureLoadBalancer, thief)
        free = self.console("/createLoadBalancer", NAME="by-hand")
        thief.known.vendor_ids.ids["loadbalancer"] = free
        self.refused("OWNED_BY_OTHER", self.balancers.EnsureLoadBalancer, thief)
        self.cloud.grants.add((thief.owner.namespace, free))
        self.assertEqual(self.ensure(thief).vendor_ids.ids["loadbalancer"], free)
        self.balancers.DeleteLoadBalancer(removal("thief", sequence=9))
        self.assertFalse(self.cloud.balancers[free].HasField("key"), "an adopted load balancer is released")
        thief.fence.sequence = 10
        thief.known.vendor_ids.ids["loadbalancer"] = "lb-0"
        self.refused("RESOURCE_GONE", self.balancers.EnsureLoadBalancer, thief)

    def test_deletion_needs_no_id_and_keeps_unowned_objects(self) -> None:
        self.ensure(wish())
        foreign = self.console("/createLoadBalancer", NAME="by-hand")
        for _ in range(2):
            answer = self.balancers.DeleteLoadBalancer(removal(sequence=2))
            self.assertEqual(answer.state, api.LOAD_BALANCER_STATE_ABSENT)
        self.assertEqual(list(self.cloud.balancers), [foreign])

    def test_watch_is_empty_for_another_cluster(self) -> None:
        self.ensure(wish())
        request = api.WatchLoadBalancersRequest(stop_when_synced=True)
        request.context.cluster_id = "another"
        self.assertEqual(kinds(self.balancers.WatchLoadBalancers(request)), ["reset", "synced"])


class Sets(Served):
    def test_delta_and_full_content_are_the_same_set(self) -> None:
        first, second, third = self.machines(3)
        self.put("s1", first, second)
        delta = api.BackendDelta(base_id="s1", add=[api.Backend(provider_id=third)], remove=[first])
        self.balancers.PutBackendSet(api.PutBackendSetRequest(context=CONTEXT, id="s2", delta=delta))
        self.put("s2", third, second)
        request = api.PutBackendSetRequest(context=CONTEXT, id="s2", full=api.BackendList())
        self.assertEqual(self.refused("FIELD_INVALID", self.balancers.PutBackendSet, request).fields, ["id"])
        delta.base_id = "never"
        request = api.PutBackendSetRequest(context=CONTEXT, id="s3", delta=delta)
        self.refused("BACKEND_SET_UNKNOWN", self.balancers.PutBackendSet, request)

    def test_least_recently_used_set_is_evicted(self) -> None:
        for n in range(KEEP_SETS):
            self.put(f"s{n}")
        self.put("s0")
        self.put("one more")
        refusal = self.refused("BACKEND_SET_UNKNOWN", self.balancers.PutBackendSet, delta_of("s1"))
        self.assertEqual(refusal.pushback, "0")
        self.assertEqual(self.balancers.PutBackendSet(delta_of("s0")).size, 0)


def delta_of(base: str) -> api.PutBackendSetRequest:
    return api.PutBackendSetRequest(context=CONTEXT, id="delta", delta=api.BackendDelta(base_id=base))
