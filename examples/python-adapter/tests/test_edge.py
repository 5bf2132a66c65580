"""Checks of every call: roles, context, health, reflection, and the probe port."""

import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from unittest import mock

import grpc
from cloudadapter.v1alpha1 import common_pb2 as common
from cloudadapter.v1alpha1 import instance_service_pb2 as instances
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2 as reflected

from contract_rules.callers import token_review
from contract_rules.edge import Fault, may, unknown
from contract_rules.port import serve_probes

from .console import from_file
from .harness import CONTEXT, Served, info, wish

SERVICES = ("AdapterService", "InstanceService", "LoadBalancerService", "RouteService")


class Requests(Served):
    cluster_id = CONTEXT.cluster_id

    def test_context_is_validated(self) -> None:
        for context, field in [
            (None, "context"),
            (common.RequestContext(request_id="r"), "context.cluster_id"),
            (common.RequestContext(cluster_id="c", request_id="r" * 257), "context.request_id"),
            (
                common.RequestContext(cluster_id="c", max_staleness=Duration(seconds=-1)),
                "context.max_staleness",
            ),
        ]:
            request = info.GetInfoRequest(context=context)
            refusal = self.refused("FIELD_INVALID", self.info.GetInfo, request)
            self.assertEqual((refusal.fields, refusal.code), ([field], grpc.StatusCode.INVALID_ARGUMENT))

    def test_request_for_another_cluster_is_refused(self) -> None:
        request = info.GetInfoRequest(context=common.RequestContext(cluster_id="another"))
        self.refused("CALLER_FORBIDDEN", self.info.GetInfo, request)

    def test_exception_becomes_internal_error(self) -> None:
        with mock.patch("mem_adapter.instances.resolve", side_effect=ZeroDivisionError):
            with self.assertLogs(level="ERROR"):
                refs = [instances.InstanceRef(node_name="n")]
                request = instances.BatchGetInstancesRequest(context=CONTEXT, refs=refs)
                self.refused("INTERNAL", self.instances.BatchGetInstances, request)

    def test_info_is_complete_and_status_is_immediate(self) -> None:
        answer = self.info.GetInfo(info.GetInfoRequest(context=CONTEXT))
        self.assertTrue(answer.scope.fingerprint and answer.HasField("consistency_horizon"))
        self.assertEqual(answer.cost.vendor_calls, 0)
        status = next(iter(self.info.WatchStatus(info.WatchStatusRequest(context=CONTEXT), timeout=5)))
        self.assertEqual((status.leader, status.instance_id), (True, answer.instance_id))
        self.assertEqual([it.collection for it in status.snapshots], ["instances", "load-balancers", "routes"])

    def test_health_is_per_service_and_ends_at_drain(self) -> None:
        stub: Any = health_pb2_grpc.HealthStub(self.channel)

        def health(name: str) -> int:
            return int(stub.Check(health_pb2.HealthCheckRequest(service=name)).status)

        names = [f"cloudadapter.v1alpha1.{name}" for name in SERVICES]
        self.assertEqual({health(name) for name in ["", *names]}, {health_pb2.HealthCheckResponse.SERVING})
        self.server.drain()
        self.assertEqual({health(name) for name in names}, {health_pb2.HealthCheckResponse.NOT_SERVING})
        self.assertEqual(health(""), health_pb2.HealthCheckResponse.SERVING)
        self.refused("DRAINING", self.info.GetInfo, info.GetInfoRequest(context=CONTEXT))

    def test_reflection_v1_is_served(self) -> None:
        call: Any = self.channel.stream_stream(
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            request_serializer=reflected.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflected.ServerReflectionResponse.FromString,
        )
        (answer,) = call(iter([reflected.ServerReflectionRequest(list_services="")]))
        names = {service.name for service in answer.list_services_response.service}
        self.assertLessEqual({f"cloudadapter.v1alpha1.{name}" for name in SERVICES}, names)


def identify(token: str) -> str:
    """Each token is its own role, except one that is not valid."""
    if token == "forged":
        raise unknown()
    return token


class Callers(Served):
    identify = staticmethod(identify)

    def call(self, path: str, token: str | None, request: bytes = b"") -> grpc.StatusCode:
        call: Any = self.channel.unary_unary(path, bytes, bytes)
        metadata = [("authorization", f"Bearer {token}")] if token else []
        try:
            call(request, metadata=metadata, timeout=5)
        except grpc.RpcError as error:
            return error.code()
        return grpc.StatusCode.OK

    def test_invalid_token_is_refused_everywhere(self) -> None:
        for token in (None, "forged"):
            for path in ("/cloudadapter.v1alpha1.AdapterService/GetInfo", "/grpc.health.v1.Health/Check", "/a.B/C"):
                self.assertEqual(self.call(path, token), grpc.StatusCode.UNAUTHENTICATED, (path, token))

    def test_roles_reach_only_their_services(self) -> None:
        own = {"node-controller": 1, "service-controller": 2, "route-controller": 3}
        for role, at in own.items():
            for n, service in enumerate(SERVICES):
                allowed = may(role, f"/cloudadapter.v1alpha1.{service}/Anything")
                self.assertEqual(allowed, n in (0, at), (role, service))
        for role, applies in [("adapter", False), ("operator", True), ("", False)]:
            self.assertEqual(may(role, "/cloudadapter.v2.RouteService/ApplyRoutes"), applies)
            self.assertEqual(may(role, "/cloudadapter.v1alpha1.RouteService/WatchRoutes"), role != "")
            self.assertEqual(may(role, "/grpc.health.v1.Health/Watch"), role != "")
        self.assertFalse(may("operator", "/another.Service/Call"))

    def test_unknown_method_is_reported_to_permitted_callers(self) -> None:
        path = "/cloudadapter.v1alpha1.RouteService/Nothing"
        self.assertEqual(self.call(path, "route-controller"), grpc.StatusCode.UNIMPLEMENTED)
        self.assertEqual(self.call(path, "node-controller"), grpc.StatusCode.PERMISSION_DENIED)

    def test_fences_and_dry_runs_depend_on_the_role(self) -> None:
        path = "/cloudadapter.v1alpha1.LoadBalancerService/EnsureLoadBalancer"
        write, look = wish().SerializeToString(), wish(dry_run=True).SerializeToString()
        strange = wish()
        strange.fence.scope = "route-controller/0"
        unknown_set = grpc.StatusCode.FAILED_PRECONDITION
        for token, request, code in [
            ("service-controller", write, unknown_set),
            ("service-controller", strange.SerializeToString(), grpc.StatusCode.PERMISSION_DENIED),
            ("operator", write, grpc.StatusCode.PERMISSION_DENIED),
            ("operator", look, unknown_set),
        ]:
            self.assertEqual(self.call(path, token, request), code, token)


class Proofs(Served):
    def test_tokens_from_a_file(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "tokens"
            path.write_text("abc: operator\n\nstranger:\n")
            known = from_file(path)
        self.assertEqual((known("abc"), known("stranger")), ("operator", ""))
        with self.assertRaises(Fault):
            known("ab")

    def test_tokens_from_token_review(self) -> None:
        known = token_review("cloudadapter.c", {"kube-system/cloud-routes": "route-controller"})
        account = "system:serviceaccount:kube-system:"
        for answer, role in [
            (review(account + "cloud-routes"), "route-controller"),
            (review(account + "another"), ""),
            (review("kube-system:cloud-routes"), ""),
            (review(account + "cloud-routes", audiences=["api"]), None),
            (review(account + "cloud-routes", authenticated=False), None),
            ({}, None),
        ]:
            with mock.patch("contract_rules.callers.review", return_value=answer):
                token = repr(answer)
                if role is None:
                    with self.assertRaises(Fault):
                        known(token)
                else:
                    self.assertEqual(known(token), role)


def review(username: str, **changes: Any) -> dict[str, Any]:
    """The status of a TokenReview."""
    return {"authenticated": True, "audiences": ["cloudadapter.c"], "user": {"username": username}} | changes


class Plain(Served):
    def test_probe_port_serves_only_probes(self) -> None:
        base = f"http://127.0.0.1:{serve_probes('127.0.0.1:0', lambda: not self.cloud.draining)}"

        def status(path: str, body: bytes | None = None) -> int:
            try:
                return int(urllib.request.urlopen(base + path, data=body, timeout=5).status)
            except urllib.error.HTTPError as error:
                return error.code

        self.assertEqual([status(path) for path in ("/healthz", "/readyz")], [200] * 2)
        self.assertGreaterEqual(status("/cloudadapter.v1alpha1.AdapterService/GetInfo", b""), 400)
        self.cloud.draining = True
        self.assertEqual((status("/healthz"), status("/readyz")), (200, 404))
