"""The edge that all calls pass: who may call what, what every request carries, and how every error leaves."""

import functools
import hashlib
import json
import logging
import os
import re
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import grpc
from cloudadapter.v1alpha1 import common_pb2 as common
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2 as details
from google.rpc import status_pb2

from .fields import faults

Code = grpc.StatusCode
# What this adapter can answer, and after how many seconds to come back, if at all.
REASONS: dict[str, tuple[grpc.StatusCode, float | None]] = {
    "FIELD_INVALID": (Code.INVALID_ARGUMENT, None),
    "UNSUPPORTED_FEATURE": (Code.INVALID_ARGUMENT, None),
    "UNKNOWN_PARAMETER": (Code.INVALID_ARGUMENT, None),
    "RESOURCE_GONE": (Code.NOT_FOUND, None),
    "OWNED_BY_OTHER": (Code.ALREADY_EXISTS, None),
    "OPERATION_CONFLICT": (Code.ABORTED, 0.5),
    "STALE_FENCE": (Code.FAILED_PRECONDITION, None),
    "IMMUTABLE_FIELD": (Code.FAILED_PRECONDITION, None),
    "BACKEND_SET_UNKNOWN": (Code.FAILED_PRECONDITION, 0.0),
    "DRAINING": (Code.UNAVAILABLE, 0.5),
    "CALLER_FORBIDDEN": (Code.PERMISSION_DENIED, None),
    "CALLER_UNAUTHENTICATED": (Code.UNAUTHENTICATED, None),
    "INTERNAL": (Code.INTERNAL, None),
}
WATCHES = "InstanceService/WatchInstances|LoadBalancerService/WatchLoadBalancers|RouteService/WatchRoutes"
DRY_RUNS = "LoadBalancerService/(Ensure|Delete)LoadBalancer|RouteService/ApplyRoutes"
ROLES = {
    "node-controller": r"InstanceService/\w+",
    "service-controller": r"LoadBalancerService/\w+",
    "route-controller": r"RouteService/\w+",
    "adapter": WATCHES,
    "operator": f"{WATCHES}|{DRY_RUNS}",
}
OPEN = r"/grpc\.(health\.v1\.Health|reflection\.v1(alpha)?\.ServerReflection)/\w+"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
log = logging.getLogger(__name__)


def digest(*parts: str | bytes) -> str:
    """Names some texts for short."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


Identify = Callable[[str], str]
"""From a token to its role, empty if it has none. CALLER_UNAUTHENTICATED if it proves nothing."""


class Fault(Exception):
    """An error of the contract. Texts are for people; callers decide on the reason."""

    def __init__(self, reason: str, message: str, at: dict[str, str] | None = None, **metadata: str) -> None:
        super().__init__(message)
        self.reason, self.message, self.fields, self.metadata = reason, message, at or {}, metadata
        self.code, seconds = REASONS[reason]
        self.retry = None if seconds is None else Duration(nanos=round(seconds * 1e9))

    def item(self) -> common.ItemError:
        """The same as the error of one item of a batch."""
        reason = common.Reason.Value(f"REASON_{self.reason}")
        return common.ItemError(reason=reason, message=self.message, metadata=self.metadata, retry_after=self.retry)

    def abort(self, context: grpc.ServicerContext) -> None:
        """Ends the call with this error."""
        status, trailers = status_pb2.Status(code=self.code.value[0], message=self.message), []
        info = details.ErrorInfo(reason=self.reason, domain="cloudadapter.dev", metadata=self.metadata)
        status.details.add().Pack(info)
        if self.fields:
            violations = [{"field": field, "description": text} for field, text in self.fields.items()]
            status.details.add().Pack(details.BadRequest(field_violations=violations))
        if self.retry is not None:
            status.details.add().Pack(details.RetryInfo(retry_delay=self.retry))
            trailers.append(("grpc-retry-pushback-ms", str(self.retry.ToMilliseconds())))
        context.set_trailing_metadata((*trailers, ("grpc-status-details-bin", status.SerializeToString())))
        context.abort(self.code, self.message)


def invalid(fields: dict[str, str]) -> Fault:
    """FIELD_INVALID for all fields at fault, by path."""
    return Fault("FIELD_INVALID", "; ".join(f"{field}: {text}" for field, text in fields.items()), fields)


@contextmanager
def refusing(context: grpc.ServicerContext) -> Iterator[None]:
    """Answers every exception as an error of the contract; what is a defect of ours is logged."""
    try:
        yield
    except Fault as fault:
        fault.abort(context)
    except Exception:
        log.exception("a defect of the adapter")
        Fault("INTERNAL", "a defect of the adapter, which has logged it").abort(context)


def may(role: str, path: str) -> bool:
    """Whether a role may call a method, known or not."""
    contract = rf"/cloudadapter\.[^./]+\.(AdapterService/\w+|{ROLES.get(role)})"
    return role in ROLES and re.fullmatch(f"{contract}|{OPEN}", path) is not None


class Gate(grpc.ServerInterceptor):
    """Stands before every method of the port. Without `identify` everybody may do everything."""

    def __init__(self, identify: Identify | None, cluster_id: str, draining: Callable[[], bool]) -> None:
        self.identify, self.cluster_id, self.draining = identify, cluster_id, draining

    def intercept_service(self, continuation: Any, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Decides before a byte of the request is read, and puts the checks of the body before the method."""
        path, role = handler_call_details.method, ""
        try:
            if self.identify:
                role = self.admit(path, str(dict(handler_call_details.invocation_metadata).get("authorization")))
        except Fault as fault:
            refusal = fault  # `fault` ends with this block
            return grpc.stream_stream_rpc_method_handler(lambda _, context: refusal.abort(context))
        handler = continuation(handler_call_details)
        if handler is None or re.fullmatch(OPEN, path):
            return handler

        def unary(request: Any, context: grpc.ServicerContext) -> Any:
            with refusing(context):
                self.judge(request, role)
                return handler.unary_unary(request, context)

        def stream(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            with refusing(context):
                self.judge(request, role)
                yield from handler.unary_stream(request, context)

        codecs = (handler.request_deserializer, handler.response_serializer)
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(stream, *codecs)
        return grpc.unary_unary_rpc_method_handler(unary, *codecs)

    def admit(self, path: str, authorization: str) -> str:
        """The caller's role."""
        scheme, _, token = authorization.partition(" ")
        if self.identify is None or scheme.lower() != "bearer" or not token:
            raise unknown("there is no bearer token")
        role = self.identify(token)
        if not may(role, path):
            raise Fault("CALLER_FORBIDDEN", f"{role or 'who has no role'} may not call {path}")
        return role

    def judge(self, request: Any, role: str) -> None:
        """What every request carries, what only the body tells of the caller, then all other fields."""
        if self.draining():
            raise Fault("DRAINING", "this adapter is about to stop")
        request.DiscardUnknownFields()
        found = dict(faults(request))
        if of_context := {path: text for path, text in found.items() if path.startswith("context")}:
            raise invalid(of_context)
        if self.cluster_id and request.context.cluster_id != self.cluster_id:
            raise Fault("CALLER_FORBIDDEN", "context.cluster_id: this adapter serves another cluster")
        if role and "fence" in request.DESCRIPTOR.fields_by_name and not request.dry_run:
            if role in ("adapter", "operator"):
                raise Fault("CALLER_FORBIDDEN", f"{role} changes nothing: set dry_run")
            if request.fence.scope and not request.fence.scope.startswith(f"{role}/"):
                raise Fault("CALLER_FORBIDDEN", f"fence.scope: {role} writes under {role}/... alone")
        if found:
            raise invalid(found)


def unknown(why: str = "the token proves no identity here") -> Fault:
    """The refusal of who has no identity."""
    return Fault("CALLER_UNAUTHENTICATED", f"authorization: {why}")


def token_review(audience: str, roles: dict[str, str]) -> Identify:
    """Asks the API server, and believes its answer for a minute. `roles`: by `namespace/serviceaccount`."""

    @functools.lru_cache(maxsize=1024)
    def role_of(token: str, _minute: int) -> str:
        try:
            status = review({"token": token, "audiences": [audience]})
        except (OSError, ValueError, LookupError) as error:
            raise unknown(f"the token cannot be reviewed: {error}") from error
        if not status.get("authenticated") or audience not in status.get("audiences", []):
            raise unknown()
        kind, _, account = status["user"]["username"].rpartition("serviceaccount:")
        return roles.get(account.replace(":", "/"), "") if kind == "system:" else ""

    return lambda token: role_of(token, int(time.monotonic() // 60))


def review(spec: dict[str, object]) -> dict[str, Any]:
    """The status of a TokenReview, asked for with the pod's own account."""
    host = os.environ["KUBERNETES_SERVICE_HOST"]
    server = f"{f'[{host}]' if ':' in host else host}:{os.environ['KUBERNETES_SERVICE_PORT']}"
    url = f"https://{server}/apis/authentication.k8s.io/v1/tokenreviews"
    body = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec})
    token = (ACCOUNT / "token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    with urlopen(Request(url, body.encode(), headers), timeout=5, context=trust) as answer:
        return dict(json.load(answer)["status"])
