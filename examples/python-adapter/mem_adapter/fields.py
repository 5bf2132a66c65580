"""What is wrong with a wish for a load balancer. Pure: from a request to faults by path, all of them at once."""

import difflib
import ipaddress
from collections.abc import Iterator
from typing import TypeAlias

from cloudadapter.v1alpha1 import load_balancer_service_pb2 as api

from .faults import Fault, invalid, too_long
from .info import PARAMETERS

Spec: TypeAlias = api.LoadBalancerSpec
Faults = Iterator[tuple[str, str]]
NO_PORT = "is no port; write 1 to 65535"


def check(request: api.EnsureLoadBalancerRequest) -> None:
    """Fields, then parameters, then capabilities."""
    if faults := dict([*of_identity(request), *of_request(request)]):
        raise invalid(faults)
    declared = [parameter.key for parameter in PARAMETERS]
    for key in request.spec.parameters:
        if key not in declared:
            nearest = {"nearest": name for name in difflib.get_close_matches(key, declared, 1)}
            raise Fault("UNKNOWN_PARAMETER", f"spec.parameters: there is no {key!r}", {}, parameter=key, **nearest)
    for capability, field in missing_capabilities(request.spec):
        message = f"{field}: this cloud has no {capability}"
        raise Fault("UNSUPPORTED_FEATURE", message, capability=capability, field=field)


def check_delete(request: api.DeleteLoadBalancerRequest) -> None:
    """The fields of a deletion."""
    if faults := dict(of_identity(request)):
        raise invalid(faults)


def of_identity(request: api.EnsureLoadBalancerRequest | api.DeleteLoadBalancerRequest) -> Faults:
    """Which one, and for whom."""
    for name in ("key", "owner"):
        if not request.HasField(name):
            yield name, "is missing"
    yield from too_long("key", request.key)
    yield from too_long("owner", request.owner)
    if request.HasField("key") and request.key.cluster_id != request.context.cluster_id:
        yield "key.cluster_id", "differs from context.cluster_id"
    if request.HasField("key") and not request.key.owner_uid:
        yield "key.owner_uid", "is empty"
    if request.HasField("owner") and request.owner.uid != request.key.owner_uid:
        yield "owner.uid", "differs from key.owner_uid"


def of_request(request: api.EnsureLoadBalancerRequest) -> Faults:
    """What it shall be, and how far the adapter may go."""
    spec = request.spec
    if not request.HasField("spec"):
        yield "spec", "is missing"
        return
    if request.adoption == api.ADOPTION_BY_ID and not request.known.vendor_ids.ids.get("loadbalancer"):
        yield "known.vendor_ids", "names no loadbalancer, and adoption is BY_ID"
    for path, kind, number in [
        ("adoption", api.Adoption, request.adoption),
        ("recreate", api.Recreate, request.recreate),
        ("spec.scheme", Spec.Scheme, spec.scheme),
        ("spec.traffic_policy", Spec.TrafficPolicy, spec.traffic_policy),
        ("spec.health_check.kind", api.HealthCheck.Kind, spec.health_check.kind),
        ("spec.session_affinity.kind", api.SessionAffinity.Kind, spec.session_affinity.kind),
    ]:
        if number not in kind.values():
            yield path, f"{number} is unknown here"
    families = spec.ip_families
    if not families or len(set(families)) < len(families) or not set(families) <= {*api.IpFamily.values()} - {0}:
        yield "spec.ip_families", "name IPv4, IPv6 or both, each once"
    for n, text in enumerate(spec.requested_addresses):
        if not parses(ipaddress.ip_address, text):
            yield f"spec.requested_addresses[{n}]", "is no IP address"
    for n, text in enumerate(spec.source_ranges):
        if "/" not in text or not parses(lambda text: ipaddress.ip_network(text, strict=False), text):
            yield f"spec.source_ranges[{n}]", "is no CIDR"
    if spec.health_check.HasField("port") and not is_port(spec.health_check.port):
        yield "spec.health_check.port", NO_PORT
    if spec.health_check.kind == api.HealthCheck.KIND_HTTP and not spec.health_check.path.startswith("/"):
        yield "spec.health_check.path", "does not begin with a slash"
    if not spec.backend_set_id:
        yield "spec.backend_set_id", "is empty"
    for parameter in PARAMETERS:
        if spec.parameters.get(parameter.key, parameter.default_value) not in parameter.allowed_values:
            yield f"spec.parameters[{parameter.key}]", f"is none of {', '.join(parameter.allowed_values)}"
    yield from of_listeners(spec)


def of_listeners(spec: Spec) -> Faults:
    """What it listens on."""
    if not spec.listeners:
        yield "spec.listeners", "is empty"
    for n, listener in enumerate(spec.listeners):
        path = f"spec.listeners[{n}]"
        if listener.protocol not in api.Protocol.values() or not listener.protocol:
            yield f"{path}.protocol", "is unspecified or unknown"
        before = [(other.protocol, other.port) for other in spec.listeners[:n]]
        if not is_port(listener.port) or (listener.protocol, listener.port) in before:
            yield f"{path}.port", "is twice here" if is_port(listener.port) else NO_PORT
        if listener.target_kind != api.Listener.TARGET_KIND_NODE_DIRECT and not is_port(listener.node_port):
            yield f"{path}.node_port", NO_PORT if listener.HasField("node_port") else "is missing"
        if listener.target_kind not in api.Listener.TargetKind.values():
            yield f"{path}.target_kind", f"{listener.target_kind} is unknown here"
        if listener.proxy_protocol not in api.Listener.ProxyProtocol.values():
            yield f"{path}.proxy_protocol", f"{listener.proxy_protocol} is unknown here"


def missing_capabilities(spec: Spec) -> Faults:
    """What it needs and `GetInfo` does not list, with the field that needs it."""
    if any(listener.protocol == api.PROTOCOL_SCTP for listener in spec.listeners):
        yield "lb.sctp", "spec.listeners.protocol"
    if spec.requested_addresses:
        yield "lb.reserved-ip", "spec.requested_addresses"
    if any(listener.target_kind == api.Listener.TARGET_KIND_NODE_DIRECT for listener in spec.listeners):
        yield "lb.node-direct", "spec.listeners.target_kind"
    if any(listener.tls_refs for listener in spec.listeners):
        yield "lb.tls", "spec.listeners.tls_refs"


def is_port(number: int) -> bool:
    """Whether it is a port."""
    return 1 <= number <= 65535


def parses(parse: object, text: str) -> bool:
    """Whether a parser takes the text."""
    assert callable(parse)
    try:
        parse(text)
    except ValueError:
        return False
    return True
