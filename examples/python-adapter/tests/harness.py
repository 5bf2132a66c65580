"""A running adapter, its cloud, and example requests."""

import unittest
from collections.abc import Iterator
from typing import Any

import grpc
from cloudadapter.v1alpha1 import adapter_service_pb2 as info
from cloudadapter.v1alpha1 import adapter_service_pb2_grpc as info_rpc
from cloudadapter.v1alpha1 import common_pb2 as common
from cloudadapter.v1alpha1 import instance_service_pb2_grpc as instance_rpc
from cloudadapter.v1alpha1 import load_balancer_service_pb2 as lb
from cloudadapter.v1alpha1 import load_balancer_service_pb2_grpc as lb_rpc
from cloudadapter.v1alpha1 import route_service_pb2_grpc as route_rpc
from google.rpc import error_details_pb2, status_pb2

from contract_rules.edge import Identify
from mem_adapter.cloud import Cloud
from mem_adapter.server import Server

from .console import console

CLUSTER = "6e0ecd3b-34ac-4a0f-9f1c-6f0a1c5c2b7d"
CONTEXT = common.RequestContext(cluster_id=CLUSTER)


class Served(unittest.TestCase):
    """Starts an adapter on a port of its own for each test."""

    identify: Identify | None = None
    cluster_id = ""

    def setUp(self) -> None:
        self.cloud = Cloud()
        identify = type(self).__dict__.get("identify")
        self.server = Server(self.cloud, identify, self.cluster_id, age_seconds=60)
        port = self.server.start("127.0.0.1:0")
        self.addCleanup(self.server.stop)
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self.addCleanup(self.channel.close)
        self.info = info_rpc.AdapterServiceStub(self.channel)
        self.instances = instance_rpc.InstanceServiceStub(self.channel)
        self.balancers = lb_rpc.LoadBalancerServiceStub(self.channel)
        self.routes = route_rpc.RouteServiceStub(self.channel)

    def machines(self, count: int) -> list[str]:
        """Creates instances and returns their provider IDs."""
        return self.console("/createInstances", COUNT=str(count), NAME="node").split("\n")

    def console(self, path: str, **form: str) -> str:
        """Makes a change in the cloud, as a user would by hand."""
        answer = console(self.cloud, path, form)
        assert answer is not None
        return answer

    def put(self, name: str, *machines: str) -> None:
        """Puts a set of backends."""
        full = lb.BackendList(backends=[lb.Backend(provider_id=machine) for machine in machines])
        self.balancers.PutBackendSet(lb.PutBackendSetRequest(context=CONTEXT, id=name, full=full))

    def refused(self, reason: str, call: Any, request: Any) -> "Refusal":
        """Calls, and expects an error with this reason."""
        with self.assertRaises(grpc.RpcError) as caught:
            answer = call(request, timeout=5)
            if isinstance(answer, Iterator):
                list(answer)
        refusal = Refusal(caught.exception)
        self.assertEqual(refusal.reason, reason)
        return refusal


class Refusal:
    """An error with its details."""

    def __init__(self, error: Any) -> None:
        trailers = dict(error.trailing_metadata())
        status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
        self.code, self.pushback = error.code(), trailers.get("grpc-retry-pushback-ms")
        assert (status.code, status.message) == (error.code().value[0], error.details())
        found, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        status.details[0].Unpack(found)
        self.reason, self.metadata = found.reason, dict(found.metadata)
        self.has_retry = any(detail.type_url.endswith("RetryInfo") for detail in status.details)
        self.fields = []
        if any(detail.Unpack(bad) for detail in status.details):
            self.fields = [violation.field for violation in bad.field_violations]


def fence(sequence: int = 1, epoch: int = 1, scope: str = "service-controller/0") -> common.Fence:
    """The fence of a writer."""
    return common.Fence(scope=scope, epoch=epoch, sequence=sequence)


def wish(uid: str = "web", *ports: int, sequence: int = 1, **changes: Any) -> lb.EnsureLoadBalancerRequest:
    """A request for a load balancer on TCP ports with the set `s1`."""
    listeners = [lb.Listener(protocol=lb.PROTOCOL_TCP, port=port, node_port=30000) for port in ports or (80,)]
    spec = lb.LoadBalancerSpec(ip_families=[lb.IP_FAMILY_IPV4], listeners=listeners, backend_set_id="s1")
    request = lb.EnsureLoadBalancerRequest(
        context=CONTEXT,
        key=lb.LoadBalancerKey(cluster_id=CLUSTER, owner_uid=uid),
        owner=common.Owner(kind="Service", namespace="default", name=uid, uid=uid),
        fence=fence(sequence),
        spec=spec,
    )
    request.MergeFrom(lb.EnsureLoadBalancerRequest(**changes))
    return request


def removal(uid: str = "web", sequence: int = 1) -> lb.DeleteLoadBalancerRequest:
    """The deletion of that load balancer."""
    wished = wish(uid)
    return lb.DeleteLoadBalancerRequest(context=CONTEXT, key=wished.key, owner=wished.owner, fence=fence(sequence))


def kinds(events: Any) -> list[str]:
    """The kinds of events."""
    return [str(event.WhichOneof("event")) for event in events]


__all__ = ["CLUSTER", "CONTEXT", "Served", "fence", "info", "kinds", "removal", "wish"]
