"""InstanceService: the machines that nodes run on."""

from collections.abc import Iterator

from cloudadapter.v1alpha1 import instance_service_pb2 as api
from cloudadapter.v1alpha1 import instance_service_pb2_grpc as rpc
from cloudadapter.v1alpha1.instance_service_pb2 import BatchGetInstancesResponse as Results
from cloudadapter.v1alpha1.instance_service_pb2 import WatchInstancesResponse as Event

from .cloud import PROVIDER, REGION, SCOPE, Context, Service, now, step
from .edge import Fault, digest, invalid
from .fields import faults

LOOK, SELF_CHECK = step("Get", "compute", "machines"), step("Get", "identity", "account")
ABSENT = (api.EXISTENCE_GONE, api.EXISTENCE_NOT_VISIBLE)


class Instances(Service, rpc.InstanceServiceServicer):
    """Serves them."""

    def WatchInstances(self, request: api.WatchInstancesRequest, context: Context) -> Iterator[Event]:
        """The mirror: every cluster sees all."""
        return self.cloud.watch(self.cloud.machines, shown, request, context, Event, "provider_id")

    def BatchGetInstances(self, request: api.BatchGetInstancesRequest, context: Context) -> Results:
        """What became of each, by one look. Absence is never told from the mirror: that is a look of its own."""
        with self.cloud.changed:
            machines = dict(self.cloud.machines.items)
        missing = {ref.provider_id for ref in request.refs} - {""} - machines.keys()
        results = [resolve(f"refs[{n}]", ref, machines, len(missing)) for n, ref in enumerate(request.refs)]
        absent = any(it.existence in ABSENT for it in results)
        calls = [LOOK] if request.refs and (absent or request.context.HasField("max_staleness")) else []
        if any(it.existence == api.EXISTENCE_GONE and not machines for it in results):
            calls.append(SELF_CHECK)  # always the same here: the scope is the one of before
        cost = self.cloud.cost(request, calls, listed=True)
        return Results(results=results, scope=SCOPE, cost=cost)


def resolve(path: str, ref: api.InstanceRef, machines: dict[str, api.Instance], missing: int) -> api.InstanceResult:
    """What became of one; `missing`: how many of the request there are not."""
    try:
        if bad := dict(faults(ref, f"{path}.")):
            raise invalid(bad)
        if ref.WhichOneof("ref") is None:
            raise invalid({path: "names neither a provider ID nor a node"})
        if ref.provider_id and not is_ours(f"{path}.provider_id", ref.provider_id):
            return api.InstanceResult(existence=api.EXISTENCE_FOREIGN)
        found = [it for it in machines.values() if it.name == ref.node_name] if ref.node_name else []
        if len(found) > 1:
            raise Fault("OPERATION_CONFLICT", f"{path}.node_name: several machines have this name")
    except Fault as fault:
        return api.InstanceResult(existence=api.EXISTENCE_UNKNOWN, error=fault.item())
    if machine := found[0] if found else machines.get(ref.provider_id):
        return api.InstanceResult(existence=api.EXISTENCE_EXISTS, instance=shown(machine))
    # Proven by others that are seen, or by the credentials if nobody else vanished with it.
    if not ref.provider_id or (not machines and missing > 1):
        return api.InstanceResult(existence=api.EXISTENCE_NOT_VISIBLE)
    method = api.Evidence.METHOD_DIRECT_GET_NOT_FOUND
    evidence = api.Evidence(method=method, scope=SCOPE, observed_at=now(), witnesses=len(machines))
    return api.InstanceResult(existence=api.EXISTENCE_GONE, evidence=evidence)


def is_ours(path: str, provider_id: str) -> bool:
    """Whether a provider ID points into this scope. FIELD_INVALID if it is none."""
    scheme, separator, rest = provider_id.partition("://")
    region, _, machine = rest.partition("/")
    if not scheme or not separator or (scheme == PROVIDER and not (region and machine)):
        raise invalid({path: f"is no provider ID such as {PROVIDER}://{REGION}/i-1"})
    return (scheme, region) == (PROVIDER, REGION)


def shown(machine: api.Instance) -> api.Instance:
    """A machine with its fingerprint: of what a Node is made from, and of nothing else."""
    item, node = api.Instance(), api.Instance()
    item.CopyFrom(machine)
    node.CopyFrom(machine)
    for name in ("created_at", "vendor_state"):
        node.ClearField(name)
    item.fingerprint = digest(node.SerializeToString(deterministic=True))
    return item
