"""Calls of the API server: authentication of callers by token reviews, and the identity of the cluster."""

import functools
import json
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from .edge import Identify, unknown

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
API_SERVER = "https://kubernetes.default.svc"


def token_review(audience: str, roles: Mapping[str, str]) -> Identify:
    """Returns a function that caches each answer for up to a minute. `roles` has the role by `NAMESPACE/ACCOUNT`."""

    @functools.lru_cache(maxsize=1024)
    def role_of(token: str, _minute: int) -> str:
        try:
            status = review({"token": token, "audiences": [audience]})
        except (OSError, ValueError, LookupError) as error:
            raise unknown(f"cannot review the token: {error}") from error
        if not status.get("authenticated") or audience not in status.get("audiences", []):
            raise unknown()
        kind, _, account = status["user"]["username"].rpartition("serviceaccount:")
        return roles.get(account.replace(":", "/"), "") if kind == "system:" else ""

    return lambda token: role_of(token, int(time.monotonic() // 60))


def review(spec: dict[str, Any]) -> dict[str, Any]:
    """Returns the status of a TokenReview, created with the pod's own ServiceAccount."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
    return dict(call("/apis/authentication.k8s.io/v1/tokenreviews", json.dumps(body).encode())["status"])


def cluster_id() -> str:
    """Returns the UID of the namespace kube-system, which the pod's own ServiceAccount may read."""
    return str(call("/api/v1/namespaces/kube-system")["metadata"]["uid"])


def call(path: str, body: bytes | None = None) -> dict[str, Any]:
    """Sends a request to the API server."""
    token = (ACCOUNT / "token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    with urlopen(Request(API_SERVER + path, body, headers), timeout=5, context=trust) as answer:
        return dict(json.load(answer))
