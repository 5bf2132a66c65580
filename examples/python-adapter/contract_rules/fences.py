"""Fences: the older of two writers of an object is refused."""

from typing import Any

from .edge import Code, Fault


class Fences:
    """The newest writers seen so far. The caller must hold the lock of the objects that they write."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, str], tuple[int, dict[str, int]]] = {}  # by cluster and scope, then by object

    def admit(self, request: Any, name: str) -> None:
        """Refuses a writer older than the last one of the object, else records it. A dry run always passes."""
        if request.dry_run:
            return
        fence, cluster = request.fence, request.context.cluster_id
        epoch, sequences = self.seen.get((cluster, fence.scope), (0, {}))
        if fence.epoch < epoch or (fence.epoch == epoch and fence.sequence < sequences.get(name, 0)):
            text = f"fence: a newer writer of {fence.scope} exists; stop writing"
            raise Fault(Code.FAILED_PRECONDITION, "STALE_FENCE", text)
        kept = sequences if fence.epoch == epoch else {}
        self.seen[cluster, fence.scope] = fence.epoch, kept | {name: fence.sequence}
