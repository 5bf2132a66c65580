"""AdapterService: what this adapter is, and how it does."""

import threading
from collections.abc import Iterator
from typing import Any

import grpc
from cloudadapter.v1alpha1 import adapter_service_pb2 as api
from cloudadapter.v1alpha1 import adapter_service_pb2_grpc as rpc

from . import NAME, VERSION
from .cloud import PROVIDER, SCOPE, Cloud, Meter
from .faults import Fault, seconds
from .mirror import Mirror, now

CAPABILITIES = """
    instances instances.shutdown-state loadbalancers lb.internal lb.source-ranges lb.proxy-protocol
    lb.health-check.http lb.session-affinity lb.udp lb.mixed-protocols lb.dual-stack lb.in-place-update
    lb.ownership-tags routes routes.ownership-tags
""".split()
PARAMETERS = [
    api.Parameter(
        key="algorithm",
        type=api.Parameter.TYPE_ENUM,
        default_value="round-robin",
        mutable_in_place=True,
        description="How connections are spread over backends.",
        allowed_values=["round-robin", "least-connections"],
    )
]
BATCH_INSTANCES, BATCH_ROUTES = 500, 200
STATUS_SECONDS = 15


class Info(rpc.AdapterServiceServicer):
    """Serves it, from memory."""

    def __init__(self, cloud: Cloud, process: str, draining: threading.Event) -> None:
        self.cloud, self.process, self.draining = cloud, process, draining

    def GetInfo(self, request: api.GetInfoRequest, context: grpc.ServicerContext) -> api.GetInfoResponse:
        """The same in all processes but for their ID."""
        stable = api.Capability.LEVEL_STABLE
        verbs = ("EnsureLoadBalancer", "DeleteLoadBalancer", "ApplyRoutes")
        return api.GetInfoResponse(
            adapter_name=NAME,
            adapter_version=VERSION,
            instance_id=self.process,
            contract_versions=["cloudadapter.v1alpha1"],
            provider=PROVIDER,
            scope=SCOPE,
            capabilities=[api.Capability(name=name, level=stable) for name in CAPABILITIES],
            limits=api.Limits(batch_instances=BATCH_INSTANCES, batch_routes=BATCH_ROUTES),
            parameters=PARAMETERS,
            expected_latency=dict.fromkeys(verbs, seconds(0.1)),
            consistency_horizon=seconds(0),
            cost=Meter(self.cloud, request.context.request_id).cost(),
        )

    def WatchStatus(
        self, request: api.WatchStatusRequest, context: grpc.ServicerContext
    ) -> Iterator[api.WatchStatusResponse]:
        """At once, on change, and every 15 s."""
        cloud = self.cloud
        mirrors: dict[str, Mirror[Any]] = {"instances": cloud.machines, "load-balancers": cloud.balancers, "routes": cloud.routes}
        while context.is_active():
            ends = [mirror.end for mirror in mirrors.values()]
            yield api.WatchStatusResponse(
                leader=True,
                instance_id=self.process,
                snapshots=[
                    api.SnapshotStatus(
                        collection=name,
                        observed_at=now(),
                        target_age=seconds(0),
                        items=len(mirror.items),
                        revision=mirror.end,
                    )
                    for name, mirror in mirrors.items()
                ],
            )
            with cloud.changed:
                cloud.changed.wait_for(
                    lambda: self.draining.is_set() or ends != [mirror.end for mirror in mirrors.values()],
                    STATUS_SECONDS,
                )
            if self.draining.is_set():
                raise Fault("DRAINING", "this adapter is about to stop")
