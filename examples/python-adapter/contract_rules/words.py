"""Helpers for answers."""

import hashlib
from collections.abc import Iterable

from cloudadapter.v1alpha1 import common_pb2 as common
from google.protobuf.timestamp_pb2 import Timestamp


def digest(*parts: str | bytes) -> str:
    """Returns a short hash of texts."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def now() -> Timestamp:
    """The adapter's wall clock."""
    stamp = Timestamp()
    stamp.GetCurrentTime()
    return stamp


def checksum(keys: Iterable[str]) -> int:
    """Returns the sum of the first eight bytes of the SHA-256 of each key, modulo 2^64."""
    return sum(int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") for key in keys) % 2**64


def cost(calls: int = 0, family: str = "") -> common.Cost:
    """Returns the calls to the cloud that a request caused; none if the answer came from memory."""
    if not calls:
        return common.Cost(source=common.Cost.SOURCE_MEMORY)
    live = common.Cost.SOURCE_LIVE
    return common.Cost(vendor_calls=calls, calls_by_family={family: calls}, source=live, observed_at=now())
