"""Fences: of two writers of an object the older one stops (step 8)."""

from typing import Any

from .edge import Code, Fault


class Fences:
    """The newest writers that were seen. It needs the lock of what they write."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, str], tuple[int, dict[str, int]]] = {}  # by cluster and scope; by object

    def admit(self, request: Any, name: str) -> None:
        """Refuses an older writer of an object than any before, and remembers this one. A dry run writes nothing."""
        if request.dry_run:
            return
        fence, cluster = request.fence, request.context.cluster_id
        epoch, sequences = self.seen.get((cluster, fence.scope), (0, {}))
        if fence.epoch < epoch or (fence.epoch == epoch and fence.sequence < sequences.get(name, 0)):
            text = f"fence: a newer writer of {fence.scope} was here; stop writing"
            raise Fault(Code.FAILED_PRECONDITION, "STALE_FENCE", text)
        kept = sequences if fence.epoch == epoch else {}
        self.seen[cluster, fence.scope] = fence.epoch, kept | {name: fence.sequence}
