"""The watches: one protocol for all collections, based on comparing listings."""

import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import grpc
from cloudadapter.v1alpha1 import common_pb2 as common
from google.protobuf.message import Message

from .edge import draining
from .words import checksum, digest, now

CHUNK = 128  # items of a few kB at most: far below 1 MiB
KEEP_LISTINGS = 256
WAIT_SECONDS = 5  # Upper bound until the thread of a disconnected client is free.
Show = Callable[[], Mapping[str, Message]]  # what a caller may see, by ID
T = TypeVar("T", bound=Message)
R = TypeVar("R", bound=Message)


class Watched:
    """Objects that are replaced and never modified. Readers and writers must hold `changed`."""

    def __init__(self, scope: common.Scope) -> None:
        self.id, self.scope = uuid.uuid4().hex, scope  # unique for each process
        self.changed, self.revision, self.draining = threading.Condition(), 0, False
        self.listings: OrderedDict[str, Mapping[str, Message]] = OrderedDict()  # the last ones sent, by token

    def put(self, table: dict[str, T], key: str, new: T | None) -> None:
        """Replaces the object with this key; None removes it."""
        with self.changed:
            table.pop(key, None)
            if new is not None:
                table[key] = new
            self.revision += 1
            self.changed.notify_all()

    def wait(self, revision: int) -> None:
        """Waits for a change, or a few seconds. Raises DRAINING if the process is about to stop."""
        with self.changed:
            self.changed.wait_for(lambda: self.draining or self.revision != revision, WAIT_SECONDS)
        if self.draining:
            raise draining()

    def watch(
        self, show: Show, request: Any, context: grpc.ServicerContext, event: Callable[..., R], *names: str
    ) -> Iterator[R]:
        """Sends all items of `show`, then the differences. `names` are the fields of a GONE event."""
        cidrs = getattr(request, "cluster_cidrs", ())
        view = digest(self.id, request.DESCRIPTOR.name, request.context.cluster_id, *cidrs)
        last = self.listings.get(request.resume_token) if request.resume_token.startswith(f"{view}/") else None
        while context.is_active():
            with self.changed:
                revision, observed, items = self.revision, now(), show()
                token = f"{view}/{revision}"
                self.listings[token] = items
                if len(self.listings) > KEEP_LISTINGS:
                    self.listings.popitem(last=False)
            end = {"observed_at": observed, "token": token}
            if last is None:
                yield event(reset={"scope": self.scope})
                listing = list(items.values())
                for start in range(0, len(listing), CHUNK):
                    yield event(items={"items": listing[start : start + CHUNK]})
                yield event(synced={"count": len(items), "checksum": checksum(items), **end})
            else:
                for item in (item for key, item in last.items() if key not in items):
                    yield event(gone={name: getattr(item, name) for name in names})
                for item in (item for key, item in items.items() if item != last.get(key)):
                    yield event(upsert=item)
                yield event(bookmark=end)
            if request.stop_when_synced:
                return
            last = items
            self.wait(revision)
