"""Validation of requests: tables of rules, applied to all their messages. All faults are reported at once, by path."""

from collections.abc import Callable, Iterator
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any

from google.protobuf.message import Message

STRING_BYTES, PROVIDER_ID_BYTES, BATCH_INSTANCES, BATCH_ROUTES = 256, 512, 500, 200
# Items of a batch have errors of their own, and an unknown priority is allowed.
SKIPPED = {"refs", "upserts", "deletes", "priority"}
# Required fields by message. In addition, each request requires its context.
REQUIRED = {
    "RequestContext": ["cluster_id"],
    "EnsureLoadBalancerRequest": ["key", "owner", "spec"],
    "DeleteLoadBalancerRequest": ["key", "owner"],
    "LoadBalancerKey": ["cluster_id", "owner_uid"],
    "LoadBalancerSpec": ["listeners", "ip_families", "backend_set_id"],
    "Listener": ["protocol", "port"],
    "Fence": ["scope"],
    "PutBackendSetRequest": ["id"],
    "Backend": ["provider_id"],
    "RouteUpsert": ["key", "next_hop"],
    "RouteDelete": ["key"],
    "RouteKey": ["cluster_id", "node_uid", "destination"],
}
Test = Callable[[Any], bool]
Network = IPv4Network | IPv6Network
is_port: Test = lambda number: 0 < number < 65536
has_no_fence: Test = lambda it: not it.dry_run and not it.HasField("fence")
is_another: Test = lambda it: it.HasField("key") and it.key.cluster_id != it.context.cluster_id
is_not_of_key: Test = lambda it: it.HasField("owner") and it.owner.uid != it.key.owner_uid
ends_tls: Test = lambda it: it.application in (3, 4)
is_badly_certified: Test = lambda it: it.application > 0 and ends_tls(it) != bool(it.tls_refs)
CHANGES = ("EnsureLoadBalancerRequest", "DeleteLoadBalancerRequest")
TIMEOUTS, DAY_NANOS = ("idle_timeout", "connect_timeout"), 86_400 * 10**9


def is_no_timeout(name: str, listener: Any) -> bool:
    """Whether a timeout is set to an invalid value."""
    return bool(listener.HasField(name)) and not 0 < getattr(listener, name).ToNanoseconds() <= DAY_NANOS


# Other rules: message, field, test for a fault, description.
FAULTS: list[tuple[str, str, Test, str]] = [
    ("RequestContext", "max_staleness", lambda it: it.max_staleness.ToNanoseconds() < 0, "is negative"),
    ("BatchGetInstancesRequest", "refs", lambda it: len(it.refs) > BATCH_INSTANCES, "has too many"),
    ("PutBackendSetRequest", "content", lambda it: it.WhichOneof("content") is None, "is missing"),
    *((name, "fence", has_no_fence, "is missing") for name in (*CHANGES, "ApplyRoutesRequest")),
    *((name, "key.cluster_id", is_another, "differs from the context's") for name in CHANGES),
    *((name, "owner.uid", is_not_of_key, "differs from key.owner_uid") for name in CHANGES),
    ("EnsureLoadBalancerRequest", "known.vendor_ids", lambda it: it.adoption == 3 and not known(it), "is empty"),
    ("Listener", "port", lambda it: it.port > 65535, "is not a valid port"),
    ("Listener", "node_port", lambda it: it.target_kind != 2 and not is_port(it.node_port), "is not a valid port"),
    ("Listener", "application", lambda it: it.application > 1 and it.protocol != 1, "is for TCP only"),
    ("Listener", "tls_refs", is_badly_certified, "is for HTTPS and TLS, and required there"),
    ("Listener", "connection_limit", lambda it: it.HasField("connection_limit") and not it.connection_limit, "is 0"),
    *(("Listener", name, partial(is_no_timeout, name), "is not between 0 and 24 hours") for name in TIMEOUTS),
    ("LoadBalancerSpec", "subnets", lambda it: len({*it.subnets}) < len(it.subnets), "has a duplicate"),
    ("RouteUpsert", "next_hop.provider_id", lambda it: not it.next_hop.provider_id, "is empty"),
    ("ApplyRoutesRequest", "upserts", lambda it: len(it.upserts) + len(it.deletes) > BATCH_ROUTES, "has too many"),
    ("ApplyRoutesRequest", "cluster_cidrs", lambda it: it.upserts and not it.cluster_cidrs, "is empty"),
    ("HealthCheck", "port", lambda it: it.HasField("port") and not is_port(it.port), "is not a valid port"),
    ("HealthCheck", "path", lambda it: it.kind == it.KIND_HTTP and it.path[:1] != "/", "needs a leading slash"),
    ("LoadBalancerSpec", "ip_families", lambda it: len({0, *it.ip_families}) <= len(it.ip_families), "is 0 or twice"),
]


def known(request: Any) -> str:
    """The ID of the load balancer that the caller knows."""
    return str(request.known.vendor_ids.ids.get("loadbalancer", ""))


def network(text: str, strict: bool = True) -> Network | None:
    """Parses a CIDR; with `strict`, host bits are invalid."""
    try:
        return ip_network(text, strict) if text.partition("/")[2].isdecimal() else None
    except ValueError:
        return None


def contains(cidr: str, to: Network) -> bool:
    """Whether a destination is inside a network."""
    around = network(cidr)
    return around is not None and around.overlaps(to) and around.prefixlen <= to.prefixlen


CIDR: tuple[Test, str] = (lambda text: network(text) is not None, "is not a CIDR, or has host bits")
# Rules for values, by the name of the field.
VALUES: dict[str, tuple[Test, str]] = {
    "cluster_cidrs": CIDR,
    "destination": CIDR,
    "subnets": (bool, "is empty"),
    "source_ranges": (lambda text: network(text, strict=False) is not None, "is not a CIDR"),
    "requested_addresses": (lambda text: network(f"{text}/{128 if ':' in text else 32}") is not None, "is invalid"),
}
# Fields that identify a message in a list. Faults name the first field.
UNIQUE = {"Listener": ("port", "protocol"), "Backend": ("provider_id",)}


def faults(message: Message, path: str = "") -> Iterator[tuple[str, str]]:
    """Yields the faults of a message and of its nested messages. `path` is its path, with a dot at the end."""
    kind, present = message.DESCRIPTOR.name, message.ListFields()
    required = {*REQUIRED.get(kind, []), *(["context"] if kind.endswith("Request") else [])}
    for name in required - {field.name for field, _ in present}:
        yield path + name, "is missing or empty"
    for of, name, is_fault, why in FAULTS:
        if of == kind and is_fault(message):
            yield path + name, why
    for field, value in present:
        if field.name not in SKIPPED:
            yield from of_field(path + field.name, field, value)


def of_field(path: str, field: Any, value: Any) -> Iterator[tuple[str, str]]:
    """Yields the faults of one value, or of each value in a list or map."""
    unique = UNIQUE.get(field.message_type.name, ()) if field.message_type else ()
    (is_good, why), seen = VALUES.get(field.name, (lambda _: True, "")), set()
    most = PROVIDER_ID_BYTES if field.name == "provider_id" else STRING_BYTES
    for key, item in value.items() if hasattr(value, "items") else enumerate(value if field.is_repeated else [value]):
        at = f"{path}[{key}]" if field.is_repeated else path
        if isinstance(item, Message):
            yield from faults(item, f"{at}.")
            if unique and (same := tuple(getattr(item, name) for name in unique)) in seen:
                yield f"{at}.{unique[0]}", "is a duplicate"
            elif unique:
                seen.add(same)
        elif isinstance(item, str) and len(item.encode()) > most:
            yield at, f"is longer than {most} bytes"
        elif field.enum_type and item not in field.enum_type.values_by_number:
            yield path, f"unknown value {item}"
        elif not is_good(item):
            yield at, why
