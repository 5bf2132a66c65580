"""The contract's port: four services, health and reflection behind one gate. AdapterService is here."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from cloudadapter.v1alpha1 import (
    adapter_service_pb2_grpc,
    instance_service_pb2_grpc,
    load_balancer_service_pb2_grpc,
    route_service_pb2_grpc,
)
from cloudadapter.v1alpha1 import adapter_service_pb2 as api
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha import reflection_pb2 as reflected

from .cloud import PROVIDER, SCOPE, Cloud, Context, Service, now
from .edge import Gate, Identify
from .fields import ALGORITHMS, BATCH_INSTANCES, BATCH_ROUTES
from .instances import Instances
from .load_balancers import LoadBalancers
from .routes import Routes

SERVICES = [f"cloudadapter.v1alpha1.{name}Service" for name in ("Adapter", "Instance", "LoadBalancer", "Route")]
REFLECTION = "grpc.reflection.v1.ServerReflection"
CAPABILITIES = """
    instances instances.shutdown-state loadbalancers lb.internal lb.source-ranges lb.proxy-protocol
    lb.health-check.http lb.session-affinity lb.udp lb.mixed-protocols lb.dual-stack lb.in-place-update
    lb.ownership-tags routes routes.ownership-tags
"""
THREADS = 256  # Each open watch holds one.
STATUS_SECONDS, GRACE_SECONDS = 15, 10


class Info(Service, adapter_service_pb2_grpc.AdapterServiceServicer):
    """What this adapter is, and how it does: from memory."""

    def GetInfo(self, request: api.GetInfoRequest, context: Context) -> api.GetInfoResponse:
        """The same in all processes but for their ID."""
        spread, kind = "How connections are spread over backends.", api.Parameter.TYPE_ENUM
        algorithm = api.Parameter(key="algorithm", type=kind, mutable_in_place=True, description=spread)
        algorithm.MergeFrom(api.Parameter(default_value=ALGORITHMS[0], allowed_values=ALGORITHMS))
        stable, verbs = api.Capability.LEVEL_STABLE, ("EnsureLoadBalancer", "DeleteLoadBalancer", "ApplyRoutes")
        return api.GetInfoResponse(
            adapter_name="mem-adapter",
            adapter_version="0.1.0",
            instance_id=self.cloud.id,
            contract_versions=["cloudadapter.v1alpha1"],
            provider=PROVIDER,
            scope=SCOPE,
            capabilities=[api.Capability(name=name, level=stable) for name in CAPABILITIES.split()],
            limits=api.Limits(batch_instances=BATCH_INSTANCES, batch_routes=BATCH_ROUTES),
            parameters=[algorithm],
            expected_latency=dict.fromkeys(verbs, Duration(nanos=100_000_000)),
            consistency_horizon=Duration(),
            cost=self.cloud.cost(request),
        )

    def WatchStatus(self, request: api.WatchStatusRequest, context: Context) -> Iterator[api.WatchStatusResponse]:
        """At once, on change, and every 15 s."""
        cloud, status = self.cloud, api.SnapshotStatus
        mirrors: list[Any] = [cloud.machines, cloud.balancers, cloud.routes]
        context.add_callback(cloud.wake)
        while context.is_active():
            ends = [mirror.end for mirror in mirrors]
            snapshots = [
                status(collection=name, observed_at=now(), target_age=Duration(), items=len(it.items), revision=it.end)
                for name, it in zip(("instances", "load-balancers", "routes"), mirrors, strict=True)
            ]
            yield api.WatchStatusResponse(leader=True, instance_id=cloud.id, snapshots=snapshots)
            cloud.wait(context, lambda: ends != [mirror.end for mirror in mirrors], STATUS_SECONDS)


class Server:
    """One process of the adapter."""

    def __init__(self, cloud: Cloud, identify: Identify | None, cluster_id: str, age_seconds: float) -> None:
        self.cloud = cloud
        options = [
            ("grpc.max_connection_age_ms", round(age_seconds * 1000)),
            ("grpc.max_connection_age_grace_ms", 60_000),
            ("grpc.http2.min_ping_interval_without_data_ms", 2000),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.so_reuseport", 0),
        ]
        gate = Gate(identify, cluster_id, lambda: cloud.draining)
        self.grpc = grpc.server(ThreadPoolExecutor(THREADS), interceptors=[gate], options=options)
        adapter_service_pb2_grpc.add_AdapterServiceServicer_to_server(Info(cloud), self.grpc)
        instance_service_pb2_grpc.add_InstanceServiceServicer_to_server(Instances(cloud), self.grpc)
        load_balancer_service_pb2_grpc.add_LoadBalancerServiceServicer_to_server(LoadBalancers(cloud), self.grpc)
        route_service_pb2_grpc.add_RouteServiceServicer_to_server(Routes(cloud), self.grpc)
        self.health = health.HealthServicer(experimental_non_blocking=True, experimental_thread_pool=None)
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self.grpc)
        # Under the name of today, too: Python's library serves v1alpha alone, and the messages are the same.
        names = [*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME, REFLECTION]
        reflection.enable_server_reflection(names, self.grpc)
        method = grpc.stream_stream_rpc_method_handler(
            reflection.ReflectionServicer(names).ServerReflectionInfo,
            request_deserializer=reflected.ServerReflectionRequest.FromString,
            response_serializer=reflected.ServerReflectionResponse.SerializeToString,
        )
        handlers = grpc.method_handlers_generic_handler(REFLECTION, {"ServerReflectionInfo": method})
        self.grpc.add_generic_rpc_handlers((handlers,))

    def start(self, address: str, pair: tuple[Path, Path] | None = None) -> int:
        """Listens, and tells on which port. `pair`: certificate and key, read again at each handshake."""

        def read() -> grpc.ServerCertificateConfiguration:
            cert, key = pair or (Path(), Path())
            return grpc.ssl_server_certificate_configuration([(key.read_bytes(), cert.read_bytes())])

        if pair:
            port = self.grpc.add_secure_port(address, grpc.dynamic_ssl_server_credentials(read(), read))
        else:
            port = self.grpc.add_insecure_port(address)
        self.grpc.start()
        for service in ("", *SERVICES):
            self.health.set(service, health_pb2.HealthCheckResponse.SERVING)
        return port

    def stop(self) -> None:
        """Sends callers away, ends the watches, lets calls under way end."""
        self.drain()
        self.grpc.stop(GRACE_SECONDS).wait()

    def drain(self) -> None:
        """What lives on is the process alone; who waits looks again."""
        for service in SERVICES:
            self.health.set(service, health_pb2.HealthCheckResponse.NOT_SERVING)
        self.cloud.draining = True
        self.cloud.wake()
