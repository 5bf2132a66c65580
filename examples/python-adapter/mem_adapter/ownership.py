"""Whose an object is, as its tags say, and which writer is the newest."""

from collections.abc import Mapping

from cloudadapter.v1alpha1 import common_pb2 as common

from .faults import Fault, invalid

PREFIX = "cloudadapter.dev/"
CLUSTER, UID, FENCE, HASH = (f"{PREFIX}{name}" for name in ("cluster", "owner-uid", "fence", "hash"))

Key = tuple[str, str]
"""Cluster ID and owner's UID: names an object for ever."""


def owner_tags(key: Key, owner: common.Owner) -> dict[str, str]:
    """The tags that say whose it is. Kind, namespace and name are for people."""
    names = {"kind": owner.kind, "namespace": owner.namespace, "name": owner.name}
    return {CLUSTER: key[0], UID: key[1]} | {PREFIX + name: text for name, text in names.items() if text}


def owner_of(tags: Mapping[str, str]) -> common.Owner:
    """The owner that the tags name."""
    names = {name: tags.get(PREFIX + name, "") for name in ("kind", "namespace", "name")}
    return common.Owner(uid=tags.get(UID, ""), **names)


def key_of(tags: Mapping[str, str]) -> Key | None:
    """The key; None: nobody's that we know."""
    return (tags[CLUSTER], tags.get(UID, "")) if CLUSTER in tags else None


def fence_tag(fence: common.Fence) -> dict[str, str]:
    """The tag that names the writer."""
    return {FENCE: f"{fence.epoch}/{fence.sequence}/{fence.scope}"}


def fence_of(tags: Mapping[str, str]) -> common.Fence | None:
    """The writer that the tag names."""
    if FENCE not in tags:
        return None
    epoch, sequence, scope = tags[FENCE].split("/", 2)
    return common.Fence(scope=scope, epoch=int(epoch), sequence=int(sequence))


def newer(a: common.Fence, b: common.Fence | None) -> bool:
    """Is `a` newer than `b`? Fences of different scopes cannot be compared."""
    return b is not None and a.scope == b.scope and (a.epoch, a.sequence) > (b.epoch, b.sequence)


class Fences:
    """The highest fence of each object. Callers hold a lock of theirs."""

    def __init__(self) -> None:
        self.epochs: dict[Key, tuple[int, dict[str, int]]] = {}  # by cluster and scope; sequences by object

    def check(self, cluster: str, fence: common.Fence, name: str, tags: Mapping[str, str] | None = None) -> None:
        """Refuses an older writer than any before."""
        epoch, sequences = self.epochs.get((cluster, fence.scope), (0, {}))
        highest = sequences.get(name, 0) if fence.epoch == epoch else 0
        tag = fence_of(tags or {})
        if fence.epoch < epoch or fence.sequence < highest or (tag is not None and newer(tag, fence)):
            raise Fault("STALE_FENCE", f"fence: a newer writer of {fence.scope} was here; stop writing")

    def admit(self, cluster: str, fence: common.Fence, name: str, tags: Mapping[str, str] | None = None) -> None:
        """Checks and remembers."""
        if not fence.scope:
            raise invalid({"fence.scope": "is empty; name the shard that the writer holds"})
        self.check(cluster, fence, name, tags)
        epoch, sequences = self.epochs.get((cluster, fence.scope), (0, {}))
        kept = sequences if fence.epoch == epoch else {}
        self.epochs[cluster, fence.scope] = (fence.epoch, kept | {name: fence.sequence})
