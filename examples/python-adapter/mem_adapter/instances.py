"""InstanceService: the instances that nodes run on."""

from collections.abc import Iterator

from cloudadapter.v1alpha1 import common_pb2 as common
from cloudadapter.v1alpha1 import instance_service_pb2 as api
from cloudadapter.v1alpha1 import instance_service_pb2_grpc as rpc
from cloudadapter.v1alpha1.instance_service_pb2 import BatchGetInstancesResponse as Results
from cloudadapter.v1alpha1.instance_service_pb2 import WatchInstancesResponse as Event

from contract_rules.fields import faults
from contract_rules.words import cost, digest, now

from .cloud import PROVIDER, REGION, SCOPE, Cloud, Context

OURS = f"{PROVIDER}://{REGION}/"
# Fields from which a Node is initialised. The fingerprint covers only these.
NODE = ("provider_id", "name", "state", "addresses", "instance_type", "region", "zone", "extra_labels")


class Instances(rpc.InstanceServiceServicer):
    """The service. Every cluster sees all instances."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud

    def WatchInstances(self, request: api.WatchInstancesRequest, context: Context) -> Iterator[Event]:
        """Streams all instances and their changes."""

        def show() -> dict[str, api.Instance]:
            return {name: shown(machine) for name, machine in self.cloud.machines.items()}

        return self.cloud.watch(show, request, context, Event, "provider_id")

    def BatchGetInstances(self, request: api.BatchGetInstancesRequest, context: Context) -> Results:
        """Resolves all references with one read. Absence needs a live read, never an old listing."""
        machines = self.cloud.machines
        missing = {ref.provider_id for ref in request.refs} - {""} - machines.keys()
        results = [resolve(f"refs[{n}]", ref, machines, len(missing)) for n, ref in enumerate(request.refs)]
        looked = request.context.HasField("max_staleness") or any(not it.HasField("instance") for it in results)
        return Results(results=results, scope=SCOPE, cost=cost(int(looked), "compute"))


def resolve(path: str, ref: api.InstanceRef, machines: dict[str, api.Instance], missing: int) -> api.InstanceResult:
    """Resolves one reference. `missing` is the number of references of the request that do not exist."""
    scheme, separator, rest = ref.provider_id.partition("://")
    wrong = [f"{path}.{field}: {why}" for field, why in faults(ref)]
    if not ref.provider_id and not ref.node_name:
        wrong.append(f"{path}: has neither a provider ID nor a node name")
    elif ref.provider_id and not (scheme and separator and (scheme != PROVIDER or all(rest.partition("/")))):
        wrong.append(f"{path}.provider_id: is not a provider ID such as {OURS}i-1")
    if wrong:
        return unknown(common.REASON_FIELD_INVALID, "; ".join(wrong))
    if ref.provider_id and not ref.provider_id.startswith(OURS):
        return api.InstanceResult(existence=api.EXISTENCE_FOREIGN)
    found = [it for it in machines.values() if it.provider_id == ref.provider_id or it.name == ref.node_name]
    if len(found) > 1:
        return unknown(common.REASON_OPERATION_CONFLICT, f"{path}.node_name: several instances have this name")
    if found:
        return api.InstanceResult(existence=api.EXISTENCE_EXISTS, instance=shown(found[0]))
    # Absence is proven by other instances that are seen, or by the scope if no other instance is missing.
    if not ref.provider_id or (not machines and missing > 1):
        return api.InstanceResult(existence=api.EXISTENCE_NOT_VISIBLE)
    method = api.Evidence.METHOD_DIRECT_GET_NOT_FOUND
    evidence = api.Evidence(method=method, scope=SCOPE, observed_at=now(), witnesses=len(machines))
    return api.InstanceResult(existence=api.EXISTENCE_GONE, evidence=evidence)


def unknown(reason: common.Reason.ValueType, message: str) -> api.InstanceResult:
    """Returns the result for a reference that cannot be resolved. The other references are not affected."""
    error = common.ItemError(reason=reason, message=message)
    return api.InstanceResult(existence=api.EXISTENCE_UNKNOWN, error=error)


def shown(machine: api.Instance) -> api.Instance:
    """Returns an instance with its fingerprint."""
    item = api.Instance(fingerprint=digest(*(str(getattr(machine, name)) for name in NODE)))
    item.MergeFrom(machine)
    return item
