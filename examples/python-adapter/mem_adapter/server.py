"""The contract's port: four services, health and reflection behind one gate."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import grpc
from cloudadapter.v1alpha1 import (
    adapter_service_pb2_grpc,
    instance_service_pb2_grpc,
    load_balancer_service_pb2_grpc,
    route_service_pb2_grpc,
)
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha import reflection_pb2 as reflected

from .cloud import Cloud
from .gate import Gate
from .identity import Identify
from .info import Info
from .instances import Instances
from .load_balancers import LoadBalancers
from .ownership import Fences
from .routes import Routes

SERVICES = [
    f"cloudadapter.v1alpha1.{name}Service" for name in ("Adapter", "Instance", "LoadBalancer", "Route")
]
REFLECTION = "grpc.reflection.v1.ServerReflection"
# Each open watch holds a thread.
THREADS = 256
GRACE_SECONDS = 10


class Server:
    """One process of the adapter."""

    def __init__(self, cloud: Cloud, identify: Identify | None, cluster_id: str, age_seconds: float) -> None:
        self.cloud, self.draining, process = cloud, threading.Event(), uuid4().hex
        options = [
            ("grpc.max_connection_age_ms", round(age_seconds * 1000)),
            ("grpc.max_connection_age_grace_ms", 60_000),
            ("grpc.so_reuseport", 0),
        ]
        gate = Gate(identify, cluster_id, self.draining)
        self.grpc = grpc.server(ThreadPoolExecutor(THREADS), interceptors=[gate], options=options)
        of_all = (cloud, Fences(), process, self.draining)
        adapter_service_pb2_grpc.add_AdapterServiceServicer_to_server(
            Info(cloud, process, self.draining), self.grpc
        )
        instance_service_pb2_grpc.add_InstanceServiceServicer_to_server(
            Instances(cloud, process, self.draining), self.grpc
        )
        load_balancer_service_pb2_grpc.add_LoadBalancerServiceServicer_to_server(
            LoadBalancers(*of_all), self.grpc
        )
        route_service_pb2_grpc.add_RouteServiceServicer_to_server(Routes(*of_all), self.grpc)
        self.health = health.HealthServicer(experimental_non_blocking=True, experimental_thread_pool=None)
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self.grpc)
        self.add_reflection()

    def add_reflection(self) -> None:
        """Under the name of today, too: Python's library serves v1alpha alone, and the messages are the same."""
        names = [*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME, REFLECTION]
        reflection.enable_server_reflection(names, self.grpc)
        method = grpc.stream_stream_rpc_method_handler(
            reflection.ReflectionServicer(names).ServerReflectionInfo,
            request_deserializer=reflected.ServerReflectionRequest.FromString,
            response_serializer=reflected.ServerReflectionResponse.SerializeToString,
        )
        handlers = grpc.method_handlers_generic_handler(REFLECTION, {"ServerReflectionInfo": method})
        self.grpc.add_generic_rpc_handlers((handlers,))

    def start(self, address: str, pair: tuple[Path, Path] | None) -> int:
        """Listens, and tells on which port; with the certificate and key of files that may change at any time."""
        port = self.grpc.add_secure_port(address, credentials(*pair)) if pair else self.grpc.add_insecure_port(address)
        self.grpc.start()
        self.say(serving=True)
        self.health.set("", health_pb2.HealthCheckResponse.SERVING)
        return port

    def stop(self) -> None:
        """Sends callers away, ends the watches, lets calls under way end."""
        self.say(serving=False)
        self.draining.set()
        with self.cloud.changed:
            self.cloud.changed.notify_all()
        self.grpc.stop(GRACE_SECONDS).wait()

    def say(self, serving: bool) -> None:
        """The health of the four services."""
        for service in SERVICES:
            status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
            self.health.set(service, status)


def credentials(cert: Path, key: Path) -> grpc.ServerCredentials:
    """Reads them again at each handshake."""

    def read() -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(key.read_bytes(), cert.read_bytes())])

    return grpc.dynamic_ssl_server_credentials(read(), read)
