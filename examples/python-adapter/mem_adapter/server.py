"""The gRPC port: four services, health and reflection behind one interceptor."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from cloudadapter.v1alpha1 import adapter_service_pb2 as api
from cloudadapter.v1alpha1 import adapter_service_pb2_grpc as adapter_rpc
from cloudadapter.v1alpha1 import instance_service_pb2_grpc as instance_rpc
from cloudadapter.v1alpha1 import load_balancer_service_pb2_grpc as balancer_rpc
from cloudadapter.v1alpha1 import route_service_pb2_grpc as route_rpc
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from contract_rules.edge import Gate, Identify
from contract_rules.fields import BATCH_INSTANCES, BATCH_ROUTES
from contract_rules.port import serve_reflection
from contract_rules.words import cost, now

from .cloud import PROVIDER, SCOPE, Cloud, Context
from .instances import Instances
from .load_balancers import LoadBalancers
from .routes import Routes

SERVICES = [f"cloudadapter.v1alpha1.{name}Service" for name in ("Adapter", "Instance", "LoadBalancer", "Route")]
CAPABILITIES = """
    instances instances.shutdown-state loadbalancers lb.source-ranges lb.proxy-protocol
    lb.health-check.http lb.session-affinity lb.udp lb.mixed-protocols lb.in-place-update lb.ownership-tags
    routes routes.ownership-tags
"""
OPTIONS = [
    ("grpc.max_connection_age_grace_ms", 60_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 2000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.so_reuseport", 0),
]
THREADS = 256  # Each open watch holds one.
GRACE_SECONDS = 10
VERBS = ("EnsureLoadBalancer", "DeleteLoadBalancer", "ApplyRoutes")


class Info(adapter_rpc.AdapterServiceServicer):
    """Identity and status of this adapter."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud

    def GetInfo(self, request: api.GetInfoRequest, context: Context) -> api.GetInfoResponse:
        """Returns the same in all processes, except for the instance ID."""
        stable, latency = api.Capability.LEVEL_STABLE, Duration(nanos=100_000_000)
        return api.GetInfoResponse(
            adapter_name="mem-adapter",
            adapter_version="0.1.0",
            instance_id=self.cloud.id,
            contract_versions=["cloudadapter.v1alpha1"],
            provider=PROVIDER,
            scope=SCOPE,
            capabilities=[api.Capability(name=name, level=stable) for name in CAPABILITIES.split()],
            limits=api.Limits(batch_instances=BATCH_INSTANCES, batch_routes=BATCH_ROUTES),
            expected_latency=dict.fromkeys(VERBS, latency),
            consistency_horizon=Duration(),
            cost=cost(),
        )

    def WatchStatus(self, request: api.WatchStatusRequest, context: Context) -> Iterator[api.WatchStatusResponse]:
        """Sends the status at once, on each change, and every few seconds."""
        cloud, mirrors = self.cloud, dict[str, Any]()
        mirrors |= {"instances": cloud.machines, "load-balancers": cloud.balancers, "routes": cloud.routes}
        while context.is_active():
            revision = self.cloud.revision
            snapshots = [
                api.SnapshotStatus(collection=name, observed_at=now(), items=len(items), revision=revision)
                for name, items in mirrors.items()
            ]
            yield api.WatchStatusResponse(leader=True, instance_id=self.cloud.id, snapshots=snapshots)
            self.cloud.wait(revision)


class Server:
    """One process of the adapter."""

    def __init__(self, cloud: Cloud, identify: Identify | None, cluster_id: str, age_seconds: float) -> None:
        self.cloud = cloud
        age = ("grpc.max_connection_age_ms", round(age_seconds * 1000))
        gate = Gate(cloud.changed, identify, cluster_id, lambda: cloud.draining)
        self.grpc = grpc.server(ThreadPoolExecutor(THREADS), interceptors=[gate], options=[age, *OPTIONS])
        adapter_rpc.add_AdapterServiceServicer_to_server(Info(cloud), self.grpc)
        instance_rpc.add_InstanceServiceServicer_to_server(Instances(cloud), self.grpc)
        balancer_rpc.add_LoadBalancerServiceServicer_to_server(LoadBalancers(cloud), self.grpc)
        route_rpc.add_RouteServiceServicer_to_server(Routes(cloud), self.grpc)
        self.health = health.HealthServicer(experimental_non_blocking=True, experimental_thread_pool=None)
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self.grpc)
        serve_reflection(self.grpc, [*SERVICES, health.SERVICE_NAME])

    def start(self, address: str, tls: grpc.ServerCredentials | None = None) -> int:
        """Starts to listen. Returns the port."""
        port = self.grpc.add_secure_port(address, tls) if tls else self.grpc.add_insecure_port(address)
        self.grpc.start()
        for service in ("", *SERVICES):
            self.health.set(service, health_pb2.HealthCheckResponse.SERVING)
        return port

    def drain(self) -> None:
        """Refuses new calls and ends the watches. The process keeps running."""
        for service in SERVICES:
            self.health.set(service, health_pb2.HealthCheckResponse.NOT_SERVING)
        with self.cloud.changed:
            self.cloud.draining = True
            self.cloud.changed.notify_all()

    def stop(self) -> None:
        """Stops after the calls in flight have ended."""
        self.drain()
        self.grpc.stop(GRACE_SECONDS).wait()
