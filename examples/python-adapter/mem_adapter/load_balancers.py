"""LoadBalancerService. This cloud creates a complete load balancer in one call, synchronously."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping

from cloudadapter.v1alpha1 import common_pb2 as common
from cloudadapter.v1alpha1 import load_balancer_service_pb2 as api
from cloudadapter.v1alpha1 import load_balancer_service_pb2_grpc as rpc
from cloudadapter.v1alpha1.load_balancer_service_pb2 import DeleteLoadBalancerRequest as Delete
from cloudadapter.v1alpha1.load_balancer_service_pb2 import DeleteLoadBalancerResponse as Deleted
from cloudadapter.v1alpha1.load_balancer_service_pb2 import EnsureLoadBalancerRequest as Ensure
from cloudadapter.v1alpha1.load_balancer_service_pb2 import EnsureLoadBalancerResponse as Ensured
from cloudadapter.v1alpha1.load_balancer_service_pb2 import WatchLoadBalancersResponse as Event

from contract_rules.edge import Code, Fault, invalid
from contract_rules.fields import known
from contract_rules.words import cost, digest

from .cloud import Cloud, Context

KEEP_SETS = 1024  # for all clusters; the contract requires 64 for each
Asks = Callable[[api.LoadBalancerSpec], bool]
reads_requests: Asks = lambda spec: any(it.application > it.APPLICATION_PASS for it in spec.listeners)
times_connects: Asks = lambda spec: any(it.HasField("connect_timeout") for it in spec.listeners)
limits_connections: Asks = lambda spec: any(it.HasField("connection_limit") for it in spec.listeners)
# Features that this cloud lacks: the capability, the field, and the test whether a specification needs it.
MISSING: list[tuple[str, str, Asks]] = [
    ("lb.internal", "spec.scheme", lambda spec: spec.scheme == spec.SCHEME_INTERNAL),
    ("lb.dual-stack", "spec.ip_families", lambda spec: [*spec.ip_families] != [api.IP_FAMILY_IPV4]),
    ("lb.reserved-ip", "spec.requested_addresses", lambda spec: bool(spec.requested_addresses)),
    ("lb.sctp", "spec.listeners.protocol", lambda spec: any(it.protocol == api.PROTOCOL_SCTP for it in spec.listeners)),
    ("lb.node-direct", "spec.listeners.target_kind", lambda spec: any(it.target_kind == 2 for it in spec.listeners)),
    ("lb.tls", "spec.listeners.tls_refs", lambda spec: any(it.tls_refs for it in spec.listeners)),
    ("lb.address-pool", "spec.address_pool", lambda spec: bool(spec.address_pool)),
    ("lb.subnets", "spec.subnets", lambda spec: bool(spec.subnets)),
    ("lb.size", "spec.size", lambda spec: bool(spec.size)),
    ("lb.zone", "spec.zone", lambda spec: bool(spec.zone)),
    ("lb.name", "spec.name", lambda spec: bool(spec.name)),
    ("lb.shared", "spec.load_balancer_id", lambda spec: bool(spec.load_balancer_id)),
    ("lb.shared", "spec.shared_with", lambda spec: bool(spec.shared_with)),
    ("lb.keep-address", "spec.address_retention", lambda spec: spec.address_retention == 2),
    ("lb.algorithm", "spec.listeners.algorithm", lambda spec: any(it.algorithm for it in spec.listeners)),
    ("lb.listener-protocol", "spec.listeners.application", reads_requests),
    ("lb.connect-timeout", "spec.listeners.connect_timeout", times_connects),
    ("lb.connection-limit", "spec.listeners.connection_limit", limits_connections),
]


class LoadBalancers(rpc.LoadBalancerServiceServicer):
    """The service. Calls are serialised, so each change is atomic."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.sets: OrderedDict[tuple[str, str], Mapping[str, api.Backend]] = OrderedDict()  # by cluster and ID

    def WatchLoadBalancers(self, request: api.WatchLoadBalancersRequest, context: Context) -> Iterator[Event]:
        """Streams the load balancers that the caller's cluster owns."""

        def show() -> dict[str, api.LoadBalancer]:
            all_of_them, cluster = self.cloud.balancers.items(), request.context.cluster_id
            return {name: item for name, item in all_of_them if item.key.cluster_id == cluster}

        return self.cloud.watch(show, request, context, Event, "vendor_id", "key")

    def PutBackendSet(self, request: api.PutBackendSetRequest, context: Context) -> api.PutBackendSetResponse:
        """Stores a set, and evicts the least recently used one."""
        cluster, backends = request.context.cluster_id, dict[str, api.Backend]()
        if request.HasField("delta"):
            base = self.named(cluster, request.delta.base_id, "delta.base_id")
            backends = {name: base[name] for name in base if name not in request.delta.remove}
        backends |= {backend.provider_id: backend for backend in request.full.backends or request.delta.add}
        if self.sets.setdefault((cluster, request.id), backends) != backends:
            raise invalid({"id": "already has other content; sets are immutable"})
        self.sets.move_to_end((cluster, request.id))
        if len(self.sets) > KEEP_SETS:
            self.sets.popitem(last=False)
        return api.PutBackendSetResponse(size=len(backends), cost=cost())

    def named(self, cluster: str, name: str, field: str) -> Mapping[str, api.Backend]:
        """Returns the backends of a set, and marks it as used."""
        if (cluster, name) not in self.sets:
            text = f"{field}: unknown set {name!r}; put it and retry"
            raise Fault(Code.FAILED_PRECONDITION, "BACKEND_SET_UNKNOWN", text, retry_ms=0)
        self.sets.move_to_end((cluster, name))
        return self.sets[cluster, name]

    def EnsureLoadBalancer(self, request: Ensure, context: Context) -> Ensured:
        """Converges by one write. A repeated request writes nothing."""
        check_features(request.spec)
        pool = self.named(request.key.cluster_id, request.spec.backend_set_id, "spec.backend_set_id")
        self.cloud.fences.admit(request, request.key.owner_uid)
        found = self.choose(request)
        old = found or self.cloud.new_balancer(name_of(request))
        item = described(request, old, len(pool))
        had = old.applied_hash, old.owner, self.cloud.pools.get(old.vendor_id)
        steps = int(had != (item.applied_hash, item.owner, pool))
        if steps and request.dry_run:
            plan = [planned("Put", item)]
            return Ensured(state=api.LOAD_BALANCER_STATE_PENDING, steps=steps, plan=plan, cost=cost())
        if steps:
            self.cloud.pools[item.vendor_id] = pool
            self.cloud.put(self.cloud.balancers, item.vendor_id, item)
        done = Ensured(state=item.state, step=steps, steps=steps, cost=cost(steps, "loadbalancer"))
        done.MergeFrom(Ensured(addresses=item.addresses, vendor_ids=item.vendor_ids, applied_hash=item.applied_hash))
        return done

    def DeleteLoadBalancer(self, request: Delete, context: Context) -> Deleted:
        """Deletes load balancers with the key, and unowned ones by name or known ID. Others stay."""
        self.cloud.fences.admit(request, request.key.owner_uid)
        names, balancers = {name_of(request), known(request)}, self.cloud.balancers
        mine = [it for it in balancers.values() if it.key == request.key]
        mine += [it for it in balancers.values() if not it.HasField("key") and names & {it.name, it.vendor_id}]
        if mine and request.dry_run:
            plan = [planned("Delete", it) for it in mine]
            return Deleted(state=api.LOAD_BALANCER_STATE_DELETING, plan=plan, cost=cost())
        for it in mine:
            # An adopted load balancer is released, not deleted.
            left = api.LoadBalancer(vendor_id=it.vendor_id, name=it.name, addresses=it.addresses, created_at=it.created_at)
            self.cloud.put(balancers, it.vendor_id, left if it.vendor_id in self.cloud.adopted else None)
            self.cloud.adopted.discard(it.vendor_id)
            self.cloud.pools.pop(it.vendor_id, None)
        return Deleted(state=api.LOAD_BALANCER_STATE_ABSENT, cost=cost(1 + len(mine), "loadbalancer"))

    def choose(self, request: Ensure) -> api.LoadBalancer | None:
        """Returns the load balancer of the request. None: it does not exist and may be created."""
        by_id, hint, found = request.adoption == api.ADOPTION_BY_ID, known(request), None
        for it in self.cloud.balancers.values():
            if it.key == request.key:
                return it
            if it.vendor_id == hint if by_id else it.name == name_of(request):
                found = it
        if found is None and by_id:
            raise Fault(Code.NOT_FOUND, "RESOURCE_GONE", f"known.vendor_ids: unknown load balancer {hint!r}")
        if found and (found.HasField("key") or request.adoption <= api.ADOPTION_NEVER):
            text = f"{found.name} does not belong to this Service"
            raise Fault(Code.ALREADY_EXISTS, "OWNED_BY_OTHER", text, vendor_id=found.vendor_id)
        if found and by_id:
            if not self.cloud.may_adopt(request.owner.namespace, found.vendor_id):
                text = f"{found.name} has no owner; to let {request.owner.namespace} adopt it, set --grant"
                raise Fault(Code.ALREADY_EXISTS, "OWNED_BY_OTHER", text, vendor_id=found.vendor_id)
            if not request.dry_run:
                self.cloud.adopted.add(found.vendor_id)
        return found


def check_features(spec: api.LoadBalancerSpec) -> None:
    """Refuses all parameters, and features whose capability `GetInfo` does not list."""
    for name in spec.parameters:
        text = f"spec.parameters: unknown parameter {name!r}"
        raise Fault(Code.INVALID_ARGUMENT, "UNKNOWN_PARAMETER", text, parameter=name)
    for capability, field, asks in MISSING:
        if asks(spec):
            text = f"{field}: this cloud does not support {capability}"
            raise Fault(Code.INVALID_ARGUMENT, "UNSUPPORTED_FEATURE", text, capability=capability, field=field)


def name_of(request: Ensure | Delete) -> str:
    """Returns the deterministic name: a readable part and a digest of the key."""
    readable = f"{request.owner.namespace}-{request.owner.name}"[:40]
    return f"{readable}-{digest(request.key.cluster_id, request.key.owner_uid)}"


def planned(verb: str, item: api.LoadBalancer) -> common.PlannedStep:
    """Returns a write that a dry run plans but does not make."""
    return common.PlannedStep(operation=verb, description=f"{verb} {item.name}", family="loadbalancer")


def described(request: Ensure, old: api.LoadBalancer, backends: int) -> api.LoadBalancer:
    """Returns the load balancer after the write. The hash covers the spec except backends and names, in any order."""
    spec = api.LoadBalancerSpec()
    spec.CopyFrom(request.spec)
    spec.ClearField("backend_set_id")
    for listener in spec.listeners:
        listener.ClearField("name")
        listener.ClearField("app_protocol")  # Ignored, because lb.app-protocol is not listed.
    spec.listeners.sort(key=lambda it: (it.protocol, it.port))
    spec.source_ranges.sort()
    item = api.LoadBalancer(key=request.key, owner=request.owner, fence=request.fence, backends=backends)
    item.MergeFrom(api.LoadBalancer(vendor_id=old.vendor_id, name=old.name, created_at=old.created_at))
    # With the PROXY protocol, nodes must not bypass the load balancer.
    proxied = any(it.proxy_protocol > 1 for it in spec.listeners)
    mode = api.LoadBalancerAddress.IpMode.Value("IP_MODE_PROXY" if proxied else "IP_MODE_VIP")
    item.addresses.extend(api.LoadBalancerAddress(ip=address.ip, ip_mode=mode) for address in old.addresses)
    item.listeners.extend(f"{api.Protocol.Name(it.protocol)[9:].lower()}/{it.port}" for it in spec.listeners)
    item.state, item.vendor_ids.ids["loadbalancer"] = api.LOAD_BALANCER_STATE_ACTIVE, old.vendor_id
    item.applied_hash = f"1-{digest(spec.SerializeToString(deterministic=True))}"
    return item
