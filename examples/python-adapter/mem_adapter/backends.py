"""The sets of backends that load balancers name by ID."""

import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable

from cloudadapter.v1alpha1 import load_balancer_service_pb2 as api

from .faults import Fault, invalid

KEEP_SETS, KEEP_SECONDS = 64, 15 * 60

Backends = dict[str, api.Backend]
"""By provider ID."""


class BackendSets:
    """The sets of each cluster, the least recently used first. They are replaced and never changed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.lock = clock, threading.Lock()
        self.clusters: dict[str, OrderedDict[str, tuple[float, Backends]]] = defaultdict(OrderedDict)

    def get(self, cluster: str, name: str, field: str) -> Backends:
        """A set; BACKEND_SET_UNKNOWN if it was never put or is forgotten. Naming it keeps it."""
        with self.lock:
            sets = self.clusters[cluster]
            named, backends = sets.get(name, (self.clock() - KEEP_SECONDS, {}))
            if named <= self.clock() - KEEP_SECONDS:
                raise Fault("BACKEND_SET_UNKNOWN", f"{field}: there is no set {name!r}; put it and repeat")
            sets[name] = self.clock(), backends
            sets.move_to_end(name)
            return backends

    def put(self, request: api.PutBackendSetRequest) -> int:
        """Keeps a set and tells its size."""
        cluster = request.context.cluster_id
        if not request.id or request.WhichOneof("content") is None:
            missing = {"id": not request.id, "content": request.WhichOneof("content") is None}
            raise invalid({field: "is missing" for field, at_fault in missing.items() if at_fault})
        if request.HasField("full"):
            backends = by_provider_id("full.backends", request.full.backends)
        else:
            base = self.get(cluster, request.delta.base_id, "delta.base_id")
            kept = {name: backend for name, backend in base.items() if name not in request.delta.remove}
            backends = kept | by_provider_id("delta.add", request.delta.add)
        try:
            if self.get(cluster, request.id, "id") != backends:
                raise invalid({"id": "names a set with other content; sets never change"})
        except Fault as fault:
            if fault.reason != "BACKEND_SET_UNKNOWN":
                raise
            with self.lock:
                sets = self.clusters[cluster]
                sets[request.id] = self.clock(), backends
                sets.move_to_end(request.id)
                while len(sets) > KEEP_SETS:
                    sets.popitem(last=False)
        return len(backends)


def by_provider_id(path: str, backends: Iterable[api.Backend]) -> Backends:
    """A list as a set; FIELD_INVALID if one has no provider ID, or one that another has."""
    found: Backends = {}
    faults = {}
    for n, backend in enumerate(backends):
        if not backend.provider_id or backend.provider_id in found:
            faults[f"{path}[{n}].provider_id"] = "is twice in this list" if backend.provider_id else "is empty"
        backend.DiscardUnknownFields()
        found[backend.provider_id] = backend
    if faults:
        raise invalid(faults)
    return found
