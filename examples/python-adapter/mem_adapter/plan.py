"""What is to be written at the cloud for one load balancer. Pure: from what is wished and what is there to steps."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from cloudadapter.v1alpha1 import common_pb2 as common
from cloudadapter.v1alpha1 import load_balancer_service_pb2 as api

from .backends import Backends
from .cloud import Balancer
from .faults import Fault
from .ownership import FENCE, HASH, Key, fence_tag, key_of, owner_tags

HASH_VERSION = "1"


CREATE, TAG, DELETE = "CreateBalancer", "SetTags", "DeleteBalancer"


@dataclass(frozen=True)
class Step:
    """One write: attributes set at a load balancer. Without a target: at the one that was made last."""

    operation: str
    description: str
    target: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)

    def planned(self) -> common.PlannedStep:
        """In the words of the contract."""
        words = {"operation": self.operation, "description": self.description}
        return common.PlannedStep(family="loadbalancer", **words)


def name_of(key: Key, owner: common.Owner) -> str:
    """The deterministic name: readable, with a digest of the key at its end."""
    return f"{owner.namespace}-{owner.name}"[:40] + "-" + sha256("/".join(key).encode()).hexdigest()[:12]


def canonical(spec: api.LoadBalancerSpec) -> api.LoadBalancerSpec:
    """The same wish in one spelling: 0 is what it stands for, and what decides nothing is left out."""
    wanted = api.LoadBalancerSpec()
    wanted.CopyFrom(spec)
    wanted.DiscardUnknownFields()
    wanted.ClearField("backend_set_id")
    wanted.scheme = wanted.scheme or wanted.SCHEME_INTERNET
    wanted.traffic_policy = wanted.traffic_policy or wanted.TRAFFIC_POLICY_CLUSTER
    wanted.health_check.kind = wanted.health_check.kind or api.HealthCheck.KIND_TCP
    wanted.session_affinity.kind = wanted.session_affinity.kind or api.SessionAffinity.KIND_NONE
    for listener in wanted.listeners:
        listener.ClearField("name")
        listener.target_kind = listener.target_kind or listener.TARGET_KIND_NODE_PORT
        listener.proxy_protocol = listener.proxy_protocol or listener.PROXY_PROTOCOL_OFF
    wanted.listeners.sort(key=lambda listener: (listener.protocol, listener.port))
    wanted.source_ranges[:] = sorted(set(wanted.source_ranges))
    return wanted


def listener_name(listener: api.Listener) -> str:
    """Such as `tcp/443`."""
    return f"{api.Protocol.Name(listener.protocol).removeprefix('PROTOCOL_').lower()}/{listener.port}"


def ensure(
    request: api.EnsureLoadBalancerRequest, members: Backends, balancers: Iterable[Balancer]
) -> Iterator[Step]:
    """The steps to what is wished; none if it is so. Each counts on those before it."""
    key, spec = (request.key.cluster_id, request.key.owner_uid), canonical(request.spec)
    tags, fence = dict(spec.tags) | owner_tags(key, request.owner), fence_tag(request.fence)
    blank = Balancer("", name_of(key, request.owner), tags, spec.scheme, tuple(spec.ip_families))
    found = choose(request, key, balancers)
    if found and key_of(found.tags) != key:
        check_immutable(request, found, blank)
        taken = dict(found.tags) | owner_tags(key, request.owner) | fence
        yield Step(TAG, f"take {found.name}", found.id, {"tags": taken})
    if found and check_immutable(request, found, blank):
        yield Step(DELETE, f"delete {found.name}, to build it anew", found.id)
        found = None
    if not found:
        fixed = {"name": blank.name, "scheme": blank.scheme, "families": blank.families}
        yield Step(CREATE, f"create {blank.name}", "", fixed | {"tags": tags | fence})
        found = blank
    yield from converge(found, spec, members)
    digest = f"{HASH_VERSION}-{sha256(spec.SerializeToString(deterministic=True)).hexdigest()[:16]}"
    completed = found.tags.get(HASH, "")
    theirs = {name: text for name, text in found.tags.items() if name not in (HASH, FENCE)}
    # Another version's hash says nothing of this wish, and is not rewritten for its own sake.
    if theirs != tags or not completed or (completed != digest and completed.startswith(f"{HASH_VERSION}-")):
        yield Step(TAG, "tag it as complete", found.id, {"tags": tags | fence | {HASH: digest}})


def check_immutable(request: api.EnsureLoadBalancerRequest, found: Balancer, wanted: Balancer) -> bool:
    """Whether it must be built anew; IMMUTABLE_FIELD if it must and may not."""
    same = {"spec.scheme": found.scheme == wanted.scheme, "spec.ip_families": found.families == wanted.families}
    fields = ",".join(field for field, equal in same.items() if not equal)
    if fields and request.recreate != api.RECREATE_IF_IMMUTABLE_CHANGED:
        raise Fault("IMMUTABLE_FIELD", f"{fields}: cannot change in place; recreate is not set", fields=fields)
    return bool(fields)


def converge(found: Balancer, spec: api.LoadBalancerSpec, members: Backends) -> Iterator[Step]:
    """The parts that change in place: additions before removals."""
    listeners = dict(found.listeners)
    wanted = {listener_name(listener): listener for listener in spec.listeners}
    for name, listener in wanted.items():
        if listeners.get(name) != listener:
            listeners = listeners | {name: listener}
            yield Step("PutListener", f"put listener {name}", found.id, {"listeners": listeners})
    settings = api.LoadBalancerSpec()
    settings.CopyFrom(spec)
    for name in ("class", "scheme", "ip_families", "listeners", "tags"):
        settings.ClearField(name)  # type: ignore[arg-type]
    if found.settings != settings:
        yield Step("Configure", "set probes, affinity, sources", found.id, {"settings": settings})
    if found.members != members:
        yield Step("PutMembers", f"put {len(members)} backends", found.id, {"members": members})
    for name in found.listeners:
        if name not in wanted:
            listeners = {other: kept for other, kept in listeners.items() if other != name}
            yield Step("DeleteListener", f"delete listener {name}", found.id, {"listeners": listeners})


def choose(request: api.EnsureLoadBalancerRequest, key: Key, balancers: Iterable[Balancer]) -> Balancer | None:
    """The one to work on; None: there is none, and one may be made."""
    name, known = name_of(key, request.owner), request.known.vendor_ids.ids.get("loadbalancer")
    balancers = list(balancers)
    for balancer in balancers:
        if key_of(balancer.tags) == key:
            return balancer
    by_id = request.adoption == api.ADOPTION_BY_ID
    found = next((it for it in balancers if (it.id == known if by_id else it.name == name)), None)
    if found is None and by_id:
        raise Fault("RESOURCE_GONE", f"known.vendor_ids: there is no load balancer {known}")
    if found and (key_of(found.tags) or request.adoption not in (api.ADOPTION_BY_ID, api.ADOPTION_IF_UNOWNED)):
        raise Fault("OWNED_BY_OTHER", f"{found.name} is not this Service's", vendor_id=found.id)
    return found


def delete(request: api.DeleteLoadBalancerRequest, balancers: Iterable[Balancer]) -> Iterator[Step]:
    """The steps to nothing of this key. What has another owner stays."""
    key = (request.key.cluster_id, request.key.owner_uid)
    name, known = name_of(key, request.owner), request.known.vendor_ids.ids.get("loadbalancer")
    for balancer in balancers:
        nobodys = key_of(balancer.tags) is None and (balancer.name == name or balancer.id == known)
        if key_of(balancer.tags) == key or nobodys:
            yield Step(DELETE, f"delete {balancer.name}", balancer.id)
