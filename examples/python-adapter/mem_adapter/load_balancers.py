"""LoadBalancerService. This cloud takes a whole load balancer in one call and answers at once: nobody waits."""

import difflib
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cloudadapter.v1alpha1 import common_pb2 as common
from cloudadapter.v1alpha1 import load_balancer_service_pb2 as api
from cloudadapter.v1alpha1 import load_balancer_service_pb2_grpc as rpc
from cloudadapter.v1alpha1.load_balancer_service_pb2 import DeleteLoadBalancerRequest as Delete
from cloudadapter.v1alpha1.load_balancer_service_pb2 import EnsureLoadBalancerRequest as Ensure
from cloudadapter.v1alpha1.load_balancer_service_pb2 import EnsureLoadBalancerResponse as Ensured
from cloudadapter.v1alpha1.load_balancer_service_pb2 import WatchLoadBalancersResponse as Event

from .cloud import Balancer, Cloud, Context, Service, step
from .edge import Fault, digest, invalid
from .fields import known

Backends = Mapping[str, api.Backend]
KEEP_SETS, KEEP_SECONDS = 64, 15 * 60
LOOK = step("List", "loadbalancer", "all")


class BackendSets:
    """Those of one cluster, the least recently named first. They are replaced and never changed."""

    def __init__(self) -> None:
        self.lock, self.sets = threading.Lock(), OrderedDict[str, tuple[float, Backends]]()

    def get(self, name: str, field: str) -> Backends:
        """A set; BACKEND_SET_UNKNOWN if it was never put or is forgotten. Naming it keeps it."""
        with self.lock:
            named, backends = self.sets.pop(name, (-KEEP_SECONDS, {}))
            if time.monotonic() - named >= KEEP_SECONDS:
                raise Fault("BACKEND_SET_UNKNOWN", f"{field}: there is no set {name!r}; put it and repeat")
            self.sets[name] = time.monotonic(), backends
            return backends

    def put(self, request: api.PutBackendSetRequest) -> int:
        """Keeps a set, and tells its size."""
        given = request.full.backends or request.delta.add
        backends: dict[str, api.Backend] = {backend.provider_id: backend for backend in given}
        if request.HasField("delta"):
            base = self.get(request.delta.base_id, "delta.base_id")
            backends = {name: base[name] for name in base if name not in request.delta.remove} | backends
        with self.lock:
            if self.sets.get(request.id, (0.0, backends))[1] != backends:
                raise invalid({"id": "names a set with other content; sets never change"})
            self.sets[request.id] = time.monotonic(), backends
            self.sets.move_to_end(request.id)
            while len(self.sets) > KEEP_SETS:
                self.sets.popitem(last=False)
        return len(backends)


class LoadBalancers(Service, rpc.LoadBalancerServiceServicer):
    """Serves them. Each change is made whole, under the cloud's lock."""

    def __init__(self, cloud: Cloud) -> None:
        super().__init__(cloud)
        self.sets: dict[str, BackendSets] = defaultdict(BackendSets)  # by cluster

    def WatchLoadBalancers(self, request: api.WatchLoadBalancersRequest, context: Context) -> Iterator[Event]:
        """What the caller's cluster owns."""

        def see(balancer: Balancer) -> api.LoadBalancer | None:
            return balancer.item if balancer.item.key.cluster_id == request.context.cluster_id else None

        return self.cloud.watch(self.cloud.balancers, see, request, context, Event, "vendor_id", "key")

    def PutBackendSet(self, request: api.PutBackendSetRequest, context: Context) -> api.PutBackendSetResponse:
        """Keeps it in memory."""
        size = self.sets[request.context.cluster_id].put(request)
        return api.PutBackendSetResponse(size=size, cost=self.cloud.cost(request))

    def EnsureLoadBalancer(self, request: Ensure, context: Context) -> Ensured:
        """Converges; a request like the one before writes nothing."""
        check_features(request.spec)
        backends = self.sets[request.key.cluster_id].get(request.spec.backend_set_id, "spec.backend_set_id")
        cloud, spec = self.cloud, canonical(request.spec)
        with cloud.changed:
            if not request.dry_run:
                cloud.admit(request, request.key.owner_uid)
            found = choose(request, cloud.balancers.items.values())
            if found and (found.spec, found.backends, found.item.owner) == (spec, backends, request.owner):
                return done(found.item, [], cloud.cost(request))
            doomed = found if found and must_rebuild(request, found, spec) else None
            name = found.item.name if found and not doomed else name_of(request)
            plan = [step("Delete", "loadbalancer", doomed.item.name)] if doomed else []
            plan.append(step("Put", "loadbalancer", name))
            if request.dry_run:
                pending, cost = api.LOAD_BALANCER_STATE_PENDING, cloud.cost(request, [LOOK])
                return Ensured(state=pending, steps=len(plan), plan=plan, cost=cost)
            if doomed:
                cloud.balancers.set(doomed.item.vendor_id, None)
            old = found.item if found and not doomed else cloud.new_balancer(name, spec)
            item = described(request, old, spec, len(backends))
            cloud.balancers.set(item.vendor_id, Balancer(item, spec, backends))
            return done(item, plan, cloud.cost(request, plan))

    def DeleteLoadBalancer(self, request: Delete, context: Context) -> api.DeleteLoadBalancerResponse:
        """Removes what has the key, and what is nobody's and has its name or is known. What is another's stays."""
        cloud, names = self.cloud, (name_of(request), known(request))
        with cloud.changed:
            if not request.dry_run:
                cloud.admit(request, request.key.owner_uid)
            items = [it.item for it in cloud.balancers.items.values()]
            mine = [it for it in items if it.key == request.key]
            mine += [it for it in items if not it.HasField("key") and (it.name == names[0] or it.vendor_id == names[1])]
            plan = [step("Delete", "loadbalancer", it.name) for it in mine]
            if request.dry_run and plan:
                deleting, cost = api.LOAD_BALANCER_STATE_DELETING, cloud.cost(request, [LOOK])
                return api.DeleteLoadBalancerResponse(state=deleting, plan=plan, cost=cost)
            for it in mine:
                cloud.balancers.set(it.vendor_id, None)
        absent, cost = api.LOAD_BALANCER_STATE_ABSENT, cloud.cost(request, [LOOK, *plan])
        return api.DeleteLoadBalancerResponse(state=absent, cost=cost)


def done(item: api.LoadBalancer, plan: list[common.PlannedStep], cost: common.Cost) -> Ensured:
    """The answer once all is so."""
    made = Ensured(state=item.state, step=len(plan), steps=len(plan), cost=cost, applied_hash=item.applied_hash)
    made.MergeFrom(Ensured(addresses=item.addresses, vendor_ids=item.vendor_ids))
    return made


def check_features(spec: api.LoadBalancerSpec) -> None:
    """Parameters that are not declared, and capabilities that `GetInfo` does not list."""
    for key in spec.parameters.keys() - {"algorithm"}:
        near: dict[str, Any] = {"nearest": name for name in difflib.get_close_matches(key, ["algorithm"], 1)}
        raise Fault("UNKNOWN_PARAMETER", f"spec.parameters: there is no {key!r}", parameter=key, **near)
    each = spec.listeners
    for missing, capability, field in [
        (any(it.protocol == api.PROTOCOL_SCTP for it in each), "lb.sctp", "spec.listeners.protocol"),
        (bool(spec.requested_addresses), "lb.reserved-ip", "spec.requested_addresses"),
        (any(it.target_kind == 2 for it in each), "lb.node-direct", "spec.listeners.target_kind"),
        (any(it.tls_refs for it in each), "lb.tls", "spec.listeners.tls_refs"),
    ]:
        if missing:
            text = f"{field}: this cloud has no {capability}"
            raise Fault("UNSUPPORTED_FEATURE", text, capability=capability, field=field)


def name_of(request: Ensure | Delete) -> str:
    """The deterministic name: readable, with a digest of the key at its end."""
    readable = f"{request.owner.namespace}-{request.owner.name}"[:40]
    return f"{readable}-{digest(request.key.cluster_id, request.key.owner_uid)}"


def canonical(spec: api.LoadBalancerSpec) -> api.LoadBalancerSpec:
    """The same wish in one spelling. The backends are compared by content, and listeners' names decide nothing."""
    wanted = api.LoadBalancerSpec()
    wanted.CopyFrom(spec)
    wanted.ClearField("backend_set_id")
    for listener in wanted.listeners:
        listener.ClearField("name")
    # In each of the contract's choices 0 stands for 1.
    for message in (wanted, wanted.health_check, wanted.session_affinity, *wanted.listeners):
        for field in message.DESCRIPTOR.fields:
            if field.enum_type and getattr(message, field.name) == 0:
                setattr(message, field.name, 1)
    wanted.listeners.sort(key=lambda listener: (listener.protocol, listener.port))
    wanted.source_ranges[:] = sorted(set(wanted.source_ranges))
    return wanted


def choose(request: Ensure, balancers: Iterable[Balancer]) -> Balancer | None:
    """The one to work on; None: there is none, and one may be made."""
    by_id, name = request.adoption == api.ADOPTION_BY_ID, name_of(request)
    found = None
    for it in balancers:
        if it.item.key == request.key:
            return it
        if it.item.vendor_id == known(request) if by_id else it.item.name == name:
            found = it
    if found is None and by_id:
        raise Fault("RESOURCE_GONE", f"known.vendor_ids: there is no load balancer {known(request)}")
    if found and (found.item.HasField("key") or not (by_id or request.adoption == api.ADOPTION_IF_UNOWNED)):
        raise Fault("OWNED_BY_OTHER", f"{found.item.name} is not this Service's", vendor_id=found.item.vendor_id)
    return found


def must_rebuild(request: Ensure, found: Balancer, spec: api.LoadBalancerSpec) -> bool:
    """Whether it must be built anew; IMMUTABLE_FIELD if it must and may not."""
    changed = [name for name in ("scheme", "ip_families") if getattr(found.spec, name) != getattr(spec, name)]
    if changed and request.recreate != api.RECREATE_IF_IMMUTABLE_CHANGED:
        fields = ",".join(f"spec.{name}" for name in changed)
        raise Fault("IMMUTABLE_FIELD", f"{fields}: cannot change in place; recreate is not set", fields=fields)
    return bool(changed)


def described(request: Ensure, old: api.LoadBalancer, spec: api.LoadBalancerSpec, backends: int) -> api.LoadBalancer:
    """How it shows once all is so. With the PROXY protocol nothing may be cut short on the way to the address."""
    proxied = any(listener.proxy_protocol > 1 for listener in spec.listeners)
    mode = api.LoadBalancerAddress.IP_MODE_PROXY if proxied else api.LoadBalancerAddress.IP_MODE_VIP
    item = api.LoadBalancer(key=request.key, owner=request.owner, fence=request.fence, backends=backends)
    item.MergeFrom(api.LoadBalancer(vendor_id=old.vendor_id, name=old.name, created_at=old.created_at))
    item.state, item.vendor_ids.ids["loadbalancer"] = api.LOAD_BALANCER_STATE_ACTIVE, old.vendor_id
    item.addresses.extend(api.LoadBalancerAddress(ip=address.ip, ip_mode=mode) for address in old.addresses)
    item.listeners.extend(f"{api.Protocol.Name(it.protocol)[9:].lower()}/{it.port}" for it in spec.listeners)
    item.applied_hash = f"1-{digest(spec.SerializeToString(deterministic=True))}"
    return item
