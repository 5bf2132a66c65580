"""What is wrong with a request: tables of bounds, walked over its messages. All faults are told at once, by path."""

import ipaddress
from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.message import Message

STRING_BYTES, BATCH_INSTANCES, BATCH_ROUTES = 256, 500, 200
ALGORITHMS = ["round-robin", "least-connections"]
# Items of a batch have errors of their own, and an unknown priority is no fault.
SKIPPED = {"refs", "upserts", "deletes", "priority"}
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Test = Callable[[Any], bool]


def network(text: str, strict: bool = True) -> Network | None:
    """A CIDR; `strict`: without host bits."""
    try:
        return ipaddress.ip_network(text, strict) if text.partition("/")[2].isdecimal() else None
    except ValueError:
        return None


# Fields that must be set, by message; and in each request its context.
REQUIRED = {
    "RequestContext": ["cluster_id"],
    "EnsureLoadBalancerRequest": ["key", "owner", "spec"],
    "DeleteLoadBalancerRequest": ["key", "owner"],
    "LoadBalancerKey": ["cluster_id", "owner_uid"],
    "LoadBalancerSpec": ["listeners", "ip_families", "backend_set_id"],
    "Listener": ["protocol", "port"],
    "PutBackendSetRequest": ["id"],
    "Backend": ["provider_id"],
    "RouteUpsert": ["key", "next_hop"],
    "RouteDelete": ["key"],
    "RouteKey": ["cluster_id", "node_uid", "destination"],
}
PORT: tuple[Test, str] = (lambda number: 0 < number < 65536, "is no port; write 1 to 65535")
CIDR: tuple[Test, str] = (lambda text: network(text) is not None, "is no CIDR, or has host bits")
# What a value must be, by its field's name.
VALUES: dict[str, tuple[Test, str]] = {
    "port": PORT,
    "node_port": PORT,
    "cluster_cidrs": CIDR,
    "destination": CIDR,
    "source_ranges": (lambda text: network(text, strict=False) is not None, "is no CIDR"),
    "requested_addresses": (lambda text: network(f"{text}/{128 if ':' in text else 32}") is not None, "is no address"),
}
# What tells one from another in a list, and the field to blame.
UNIQUE: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "Listener": ("port", lambda it: (it.protocol, it.port)),
    "Backend": ("provider_id", lambda it: it.provider_id),
}
CHANGES = ("EnsureLoadBalancerRequest", "DeleteLoadBalancerRequest")
is_foreign: Test = lambda it: it.HasField("key") and it.key.cluster_id != it.context.cluster_id
is_not_of_key: Test = lambda it: it.HasField("owner") and it.owner.uid != it.key.owner_uid
parameter: Callable[[Any], str] = lambda it: it.parameters.get("algorithm", ALGORITHMS[0])
# Faults that take more than one value to see: message, field, whether it is at fault, why.
FAULTS: list[tuple[str, str, Test, str]] = [
    ("RequestContext", "max_staleness", lambda it: it.max_staleness.ToNanoseconds() < 0, "is negative"),
    ("Listener", "node_port", lambda it: not (it.HasField("node_port") or it.target_kind == 2), "is missing"),
    ("HealthCheck", "path", lambda it: it.kind == it.KIND_HTTP and it.path[:1] != "/", "begins with no slash"),
    ("LoadBalancerSpec", "ip_families", lambda it: len({0, *it.ip_families}) <= len(it.ip_families), "is 0 or twice"),
    ("LoadBalancerSpec", "parameters[algorithm]", lambda it: parameter(it) not in ALGORITHMS, "is unknown"),
    *((name, "key.cluster_id", is_foreign, "differs from the context's") for name in CHANGES),
    *((name, "owner.uid", is_not_of_key, "differs from key.owner_uid") for name in CHANGES),
    ("EnsureLoadBalancerRequest", "known.vendor_ids", lambda it: it.adoption == 3 and not known(it), "has none"),
    ("PutBackendSetRequest", "content", lambda it: it.WhichOneof("content") is None, "is missing"),
    ("BatchGetInstancesRequest", "refs", lambda it: len(it.refs) > BATCH_INSTANCES, "has too many"),
    ("RouteUpsert", "next_hop.provider_id", lambda it: not it.next_hop.provider_id, "is empty"),
    ("ApplyRoutesRequest", "upserts", lambda it: len(it.upserts) + len(it.deletes) > BATCH_ROUTES, "has too many"),
    ("ApplyRoutesRequest", "cluster_cidrs", lambda it: it.upserts and not it.cluster_cidrs, "is empty"),
]


def known(request: Any) -> str:
    """The load balancer that the caller believes to be the one."""
    return str(request.known.vendor_ids.ids.get("loadbalancer", ""))


def faults(message: Message, path: str = "") -> Iterator[tuple[str, str]]:
    """The faults of a message and of those in it; `path`: where it is, with a dot at its end."""
    name, present = message.DESCRIPTOR.name, message.ListFields()
    required = ["context"] if name.endswith("Request") else []
    for missing in {*required, *REQUIRED.get(name, [])} - {field.name for field, _ in present}:
        yield path + missing, "is missing or empty"
    for kind, at, is_fault, text in FAULTS:
        if kind == name and is_fault(message):
            yield path + at, text
    for field, value in present:
        if field.name not in SKIPPED:
            yield from of_field(path + field.name, field, value)


def of_field(path: str, field: Any, value: Any) -> Iterator[tuple[str, str]]:
    """The faults of one value, of each in a list, or of each in a map."""
    items = value.items() if hasattr(value, "items") else enumerate(value) if field.is_repeated else [("", value)]
    blame, key_of = UNIQUE.get(field.message_type.name if field.message_type else "", ("", repr))
    good, text = VALUES.get(field.name, (lambda _: True, ""))
    seen = set()
    for key, item in items:
        at = f"{path}[{key}]" if field.is_repeated else path
        if isinstance(item, Message):
            yield from faults(item, f"{at}.")
            if blame and key_of(item) in seen:
                yield f"{at}.{blame}", "is twice here"
            seen.add(key_of(item))
        elif isinstance(item, str) and len(item.encode()) > STRING_BYTES:
            yield at, f"is longer than {STRING_BYTES} bytes"
        elif field.enum_type and item not in field.enum_type.values_by_number:
            yield path, f"{item} is unknown here"
        elif not good(item):
            yield at, text
