"""Small things that answers are made of (steps 4 and 6)."""

import hashlib
from collections.abc import Iterable

from cloudadapter.v1alpha1 import common_pb2 as common
from google.protobuf.timestamp_pb2 import Timestamp


def digest(*parts: str | bytes) -> str:
    """Names some texts for short."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def now() -> Timestamp:
    """The adapter's wall clock."""
    stamp = Timestamp()
    stamp.GetCurrentTime()
    return stamp


def checksum(keys: Iterable[str]) -> int:
    """The sum of the first eight bytes of each key's SHA-256, modulo 2^64."""
    return sum(int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") for key in keys) % 2**64


def cost(calls: int = 0, family: str = "") -> common.Cost:
    """The calls to the cloud that a request caused; none if memory knew the answer."""
    if not calls:
        return common.Cost(source=common.Cost.SOURCE_MEMORY)
    live = common.Cost.SOURCE_LIVE
    return common.Cost(vendor_calls=calls, calls_by_family={family: calls}, source=live, observed_at=now())
