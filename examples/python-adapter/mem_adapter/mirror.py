"""A collection of the cloud with a bounded log of its changes, and a watch as a position in that log."""

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Generic, Protocol, TypeVar

import grpc
from cloudadapter.v1alpha1 import common_pb2 as common
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from .faults import Fault

LOG = 4096
CHUNK_ITEMS, CHUNK_BYTES = 512, 1_000_000
BOOKMARK_SECONDS = 20

T = TypeVar("T")
M = TypeVar("M", bound=Message)
R = TypeVar("R", bound=Message)


def now() -> Timestamp:
    """The adapter's wall clock."""
    stamp = Timestamp()
    stamp.GetCurrentTime()
    return stamp


class Mirror(Generic[T]):
    """Objects by ID. They are replaced and never changed; all mirrors of a cloud share one condition."""

    def __init__(self, changed: threading.Condition) -> None:
        self.changed = changed
        self.items: dict[str, T] = {}
        self.log: deque[tuple[T | None, T | None]] = deque(maxlen=LOG)
        self.end = 0  # the position after the newest change

    def set(self, key: str, new: T | None) -> None:
        """Puts an object in the place of the one of that ID; None removes it."""
        with self.changed:
            old = self.items.pop(key, None)
            if new is not None:
                self.items[key] = new
            if (old, new) != (None, None):
                self.log.append((old, new))
                self.end += 1
                self.changed.notify_all()

    def all(self) -> list[T]:
        """All objects, as of one moment."""
        with self.changed:
            return list(self.items.values())

    def since(self, position: int) -> list[tuple[T | None, T | None]] | None:
        """What changed after a position; None if the log does not reach back to it. Needs the lock."""
        first = self.end - len(self.log)
        return list(islice(self.log, position - first, None)) if first <= position <= self.end else None


class WatchRequest(Protocol):
    """What the three watches ask alike."""

    stop_when_synced: bool
    resume_token: str


@dataclass(frozen=True)
class View(Generic[T, M, R]):
    """How one caller sees a mirror. `id` names process and view: only its own tokens are good."""

    id: str
    scope: common.Scope
    see: Callable[[T], M | None]
    key: Callable[[M], str]
    items: Callable[..., Message]
    gone: Callable[[M], Message]
    response: Callable[..., R]


def watch(
    mirror: Mirror[T],
    view: View[T, M, R],
    request: WatchRequest,
    context: grpc.ServicerContext,
    draining: threading.Event,
) -> Iterator[R]:
    """The events of a watch, until the client hangs up, is synced, or the adapter stops."""

    def wake() -> None:
        with mirror.changed:
            mirror.changed.notify_all()

    context.add_callback(wake)
    name, _, digits = request.resume_token.rpartition("/")
    position = int(digits) if name == view.id and digits.isdecimal() else None
    while context.is_active():
        if draining.is_set():
            raise Fault("DRAINING", "this adapter is about to stop")
        with mirror.changed:
            changes = None if position is None else mirror.since(position)
            objects = [] if changes is not None else list(mirror.items.values())
            position, observed = mirror.end, now()
        token = f"{view.id}/{position}"
        if changes is None:
            listing = [item for item in map(view.see, objects) if item is not None]
            yield view.response(reset=common.Reset(scope=view.scope))
            for chunk in chunks(listing):
                yield view.response(items=view.items(items=chunk))
            total = checksum(map(view.key, listing))
            synced = common.Synced(count=len(listing), checksum=total, observed_at=observed, token=token)
            yield view.response(synced=synced)
        else:
            for old, new in changes:
                before, after = (None if item is None else view.see(item) for item in (old, new))
                if after is not None and after != before:
                    yield view.response(upsert=after)
                elif after is None and before is not None:
                    yield view.response(gone=view.gone(before))
            yield view.response(bookmark=common.Bookmark(observed_at=observed, token=token))
        if request.stop_when_synced:
            return
        with mirror.changed:
            mirror.changed.wait_for(
                lambda: mirror.end != position or draining.is_set() or not context.is_active(),
                BOOKMARK_SECONDS,
            )


def chunks(items: Iterable[M]) -> Iterator[list[M]]:
    """Cuts a listing into messages of a legal size."""
    chunk: list[M] = []
    size = 0
    for item in items:
        if chunk and (len(chunk) == CHUNK_ITEMS or size + item.ByteSize() > CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(item)
        size += item.ByteSize()
    if chunk:
        yield chunk


def checksum(keys: Iterable[str]) -> int:
    """The sum of the first eight bytes of each key's SHA-256, modulo 2^64."""
    return sum(int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") for key in keys) % 2**64
