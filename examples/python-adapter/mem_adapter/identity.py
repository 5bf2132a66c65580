"""Which role a token proves: from a file on a desk, by a TokenReview in a cluster."""

import functools
import hmac
import json
import os
import ssl
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .faults import Fault

Identify = Callable[[str], str]
"""From a token to its role, empty if it has none. CALLER_UNAUTHENTICATED if it proves nothing."""

UNKNOWN = Fault("CALLER_UNAUTHENTICATED", "authorization: the token proves no identity here")
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REVIEW_SECONDS = 60


def from_file(path: Path) -> Identify:
    """Reads lines of `token: role`; a token without a role is known and may do nothing."""
    pairs = [line.partition(":") for line in path.read_text().splitlines() if line.strip()]
    tokens = [(token.strip().encode(), role.strip()) for token, _, role in pairs]

    def identify(token: str) -> str:
        found = [role for known, role in tokens if hmac.compare_digest(known, token.encode())]
        if not found:
            raise UNKNOWN
        return found[0]

    return identify


def token_review(audience: str, roles: dict[str, str]) -> Identify:
    """Asks the API server, and believes its answer for a minute. `roles`: by `namespace/serviceaccount`."""

    @functools.lru_cache(maxsize=1024)
    def username(token: str, _minute: int) -> str:
        try:
            review = post_review({"token": token, "audiences": [audience]})
        except (OSError, ValueError) as error:
            raise Fault("CALLER_UNAUTHENTICATED", f"the token cannot be reviewed: {error}") from error
        if not review.get("authenticated") or audience not in review.get("audiences", []):
            raise UNKNOWN
        return str(review["user"]["username"])

    def identify(token: str) -> str:
        kind, _, account = username(token, int(time.monotonic() // REVIEW_SECONDS)).rpartition("serviceaccount:")
        return roles.get(account.replace(":", "/"), "") if kind == "system:" else ""

    return identify


def post_review(spec: dict[str, object]) -> dict[str, Any]:
    """The status of a TokenReview, asked for with the pod's own account."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    host = f"[{host}]" if ":" in host else host
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
    request = urllib.request.Request(
        f"https://{host}:{port}/apis/authentication.k8s.io/v1/tokenreviews",
        data=json.dumps(body).encode(),
        headers={
            "Authorization": f"Bearer {(ACCOUNT / 'token').read_text().strip()}",
            "Content-Type": "application/json",
        },
    )
    trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    with urllib.request.urlopen(request, timeout=5, context=trust) as answer:
        status = json.load(answer).get("status")
    if not isinstance(status, dict):
        raise ValueError("the answer has no status")
    return status
