"""InstanceService: the machines that nodes run on."""

import hashlib
import ipaddress
import json
import threading
from collections.abc import Iterator, Sequence

import grpc
from cloudadapter.v1alpha1 import common_pb2 as common
from cloudadapter.v1alpha1 import instance_service_pb2 as api
from cloudadapter.v1alpha1 import instance_service_pb2_grpc as rpc

from .cloud import PROVIDER, REGION, SCOPE, Cloud, Machine, Meter
from .faults import Fault, invalid, too_long
from .mirror import View, now, watch

BATCH = 500


class Instances(rpc.InstanceServiceServicer):
    """Serves them."""

    def __init__(self, cloud: Cloud, process: str, draining: threading.Event) -> None:
        self.cloud, self.draining = cloud, draining
        self.view = View(
            id=f"{process}/instances",
            scope=SCOPE,
            see=instance,
            key=lambda item: item.provider_id,
            items=api.InstanceItems,
            gone=lambda item: api.InstanceGone(provider_id=item.provider_id),
            response=api.WatchInstancesResponse,
        )

    def WatchInstances(
        self, request: api.WatchInstancesRequest, context: grpc.ServicerContext
    ) -> Iterator[api.WatchInstancesResponse]:
        """The mirror: every cluster sees all."""
        return watch(self.cloud.machines, self.view, request, context, self.draining)

    def BatchGetInstances(
        self, request: api.BatchGetInstancesRequest, context: grpc.ServicerContext
    ) -> api.BatchGetInstancesResponse:
        """What became of each. What the listing lacks is always asked for: a listing proves nothing."""
        if len(request.refs) > BATCH:
            raise invalid({"refs": f"has more than {BATCH}"})
        meter = Meter(self.cloud, request.context.request_id)
        results = resolve(request.refs, self.cloud.machines.all())
        unseen = any(result.existence in (api.EXISTENCE_GONE, api.EXISTENCE_NOT_VISIBLE) for result in results)
        if request.refs and (unseen or request.context.HasField("max_staleness")):
            meter.call("compute", "GetMachines")
            results = resolve(request.refs, self.cloud.machines.all())
        if any(result.existence == api.EXISTENCE_GONE and not result.evidence.witnesses for result in results):
            meter.call("identity", "WhoAmI")  # always the same here: the scope is the one of before
        cost = meter.cost(common.Cost.SOURCE_SNAPSHOT)
        return api.BatchGetInstancesResponse(results=results, scope=SCOPE, cost=cost)


def instance(machine: Machine) -> api.Instance:
    """A machine in the words of the contract."""
    item = api.Instance(
        provider_id=machine.provider_id,
        name=machine.name,
        state=api.INSTANCE_STATE_RUNNING if machine.running else api.INSTANCE_STATE_STOPPED,
        addresses=[
            api.InstanceAddress(
                type=api.InstanceAddress.TYPE_INTERNAL_IP,
                ip=machine.address,
                family=ipaddress.ip_address(machine.address).version,
                primary=True,
            ),
            api.InstanceAddress(type=api.InstanceAddress.TYPE_HOSTNAME, name=machine.name, primary=True),
        ],
        instance_type=machine.type,
        region=REGION,
        zone=machine.zone,
        created_at=machine.created,
        vendor_state="on" if machine.running else "off",
    )
    node = [machine.provider_id, machine.name, machine.address, machine.type, REGION, machine.zone, machine.running]
    item.fingerprint = hashlib.sha256(json.dumps(node).encode()).hexdigest()[:16]
    return item


def resolve(refs: Sequence[api.InstanceRef], machines: Sequence[Machine]) -> list[api.InstanceResult]:
    """One result a reference, in the order asked."""
    by_id = {machine.provider_id: machine for machine in machines}
    missing = {ref.provider_id for ref in refs if ref.provider_id and ref.provider_id not in by_id}
    return [result(f"refs[{n}]", ref, by_id, len(missing)) for n, ref in enumerate(refs)]


def result(path: str, ref: api.InstanceRef, by_id: dict[str, Machine], missing: int) -> api.InstanceResult:
    """What became of one; `missing`: how many of the request there are not."""
    try:
        if faults := dict(too_long(path, ref)):
            raise invalid(faults)
        if ref.WhichOneof("ref") == "node_name":
            found = [machine for machine in by_id.values() if machine.name == ref.node_name]
            if len(found) > 1:
                raise Fault("OPERATION_CONFLICT", f"{path}.node_name: several machines have this name")
        elif ref.WhichOneof("ref") == "provider_id":
            if not ours(f"{path}.provider_id", ref.provider_id):
                return api.InstanceResult(existence=api.EXISTENCE_FOREIGN)
            found = [by_id[ref.provider_id]] if ref.provider_id in by_id else []
        else:
            raise invalid({path: "names neither a provider ID nor a node"})
    except Fault as fault:
        return api.InstanceResult(existence=api.EXISTENCE_UNKNOWN, error=fault.item())
    if found:
        return api.InstanceResult(existence=api.EXISTENCE_EXISTS, instance=instance(found[0]))
    # Proven by others that are seen, or by the credentials if nobody else vanished with it.
    if ref.WhichOneof("ref") == "node_name" or (not by_id and missing > 1):
        return api.InstanceResult(existence=api.EXISTENCE_NOT_VISIBLE)
    method = api.Evidence.METHOD_DIRECT_GET_NOT_FOUND
    evidence = api.Evidence(method=method, scope=SCOPE, observed_at=now(), witnesses=len(by_id))
    return api.InstanceResult(existence=api.EXISTENCE_GONE, evidence=evidence)


def ours(path: str, provider_id: str) -> bool:
    """Whether a provider ID points into this scope. FIELD_INVALID if it is none."""
    scheme, separator, rest = provider_id.partition("://")
    region, _, machine = rest.partition("/")
    if not scheme or not separator or (scheme == PROVIDER and not (region and machine)):
        raise invalid({path: f"is no provider ID such as {PROVIDER}://{REGION}/i-1"})
    return scheme == PROVIDER and region == REGION
