"""Checks of every call: errors, authentication and roles, fields of the context."""

import logging
import re
from collections.abc import Callable, Iterator
from threading import Condition
from typing import Any

import grpc
from cloudadapter.v1alpha1 import common_pb2 as common
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2 as details
from google.rpc import status_pb2

from .fields import faults

Code = grpc.StatusCode
Identify = Callable[[str], str]
"""Returns the role of a token, empty if it has none. Raises CALLER_UNAUTHENTICATED if the token is not valid."""
ROLES = {
    "node-controller": r"InstanceService/\w+",
    "service-controller": r"LoadBalancerService/\w+",
    "route-controller": r"RouteService/\w+",
    "adapter": r"\w+/Watch\w+",
    "operator": r"\w+/Watch\w+|LoadBalancerService/(Ensure|Delete)LoadBalancer|RouteService/ApplyRoutes",
}
OPEN = r"/grpc\.(health\.v1\.Health|reflection\.v1(alpha)?\.ServerReflection)/\w+"


class Fault(Exception):
    """An error of the contract. `retry_ms` is the delay of a retry, or None; callers decide by `metadata`."""

    def __init__(self, code: Code, reason: str, text: str, retry_ms: int | None = None, **metadata: str) -> None:
        super().__init__(text)
        self.code, self.retry_ms, self.fields = code, retry_ms, dict[str, str]()
        self.info = details.ErrorInfo(reason=reason, domain="cloudadapter.dev", metadata=metadata)

    def item(self) -> common.ItemError:
        """Returns this error as the error of one item of a batch."""
        retry = None if self.retry_ms is None else Duration(nanos=self.retry_ms * 1_000_000)
        reason = common.Reason.Value(f"REASON_{self.info.reason}")
        return common.ItemError(reason=reason, message=str(self), metadata=self.info.metadata, retry_after=retry)

    def abort(self, context: grpc.ServicerContext) -> None:
        """Ends the call with this error."""
        status, trailers = status_pb2.Status(code=self.code.value[0], message=str(self)), []
        status.details.add().Pack(self.info)
        if self.fields:
            violations = [{"field": field, "description": text} for field, text in self.fields.items()]
            status.details.add().Pack(details.BadRequest(field_violations=violations))
        if self.retry_ms is not None:
            retry = Duration(nanos=self.retry_ms * 1_000_000)
            status.details.add().Pack(details.RetryInfo(retry_delay=retry))
            trailers.append(("grpc-retry-pushback-ms", str(self.retry_ms)))
        context.set_trailing_metadata((*trailers, ("grpc-status-details-bin", status.SerializeToString())))
        context.abort(self.code, str(self))


def invalid(fields: dict[str, str]) -> Fault:
    """Returns FIELD_INVALID for all invalid fields, by path."""
    text = "; ".join(f"{field}: {text}" for field, text in fields.items())
    fault = Fault(Code.INVALID_ARGUMENT, "FIELD_INVALID", text)
    fault.fields = fields
    return fault


def forbidden(text: str) -> Fault:
    """Returns the error for an authenticated caller without the permission."""
    return Fault(Code.PERMISSION_DENIED, "CALLER_FORBIDDEN", text)


def unknown(why: str = "the token is not valid for this adapter") -> Fault:
    """Returns the error for a caller that is not authenticated."""
    return Fault(Code.UNAUTHENTICATED, "CALLER_UNAUTHENTICATED", f"authorization: {why}")


def draining() -> Fault:
    """Returns the error for calls during shutdown. Another process may already accept calls."""
    return Fault(Code.UNAVAILABLE, "DRAINING", "this adapter is about to stop", retry_ms=500)


def may(role: str, path: str) -> bool:
    """Whether a role may call a method, known or not."""
    contract = rf"/cloudadapter\.[^./]+\.(AdapterService/\w+|{ROLES.get(role)})"
    return role in ROLES and re.fullmatch(f"{contract}|{OPEN}", path) is not None


class Gate(grpc.ServerInterceptor):
    """Checks every call of the port. Without `identify`, every caller may call every method."""

    def __init__(
        self, turns: Condition, identify: Identify | None, cluster_id: str, is_draining: Callable[[], bool]
    ) -> None:
        self.turns, self.identify, self.cluster_id, self.is_draining = turns, identify, cluster_id, is_draining

    def intercept_service(self, continuation: Any, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Checks the caller before the request is read, and wraps the method with the checks of the body."""
        path, metadata = handler_call_details.method, dict(handler_call_details.invocation_metadata)
        try:
            role = self.admit(path, str(metadata.get("authorization", "")))
        except Fault as fault:
            refusal = fault  # `fault` ends with this block
            return grpc.stream_stream_rpc_method_handler(lambda _, context: refusal.abort(context))
        handler = continuation(handler_call_details)
        if handler is None or re.fullmatch(OPEN, path):
            return handler

        def answer(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            try:
                self.judge(request, role)
                if handler.response_streaming:
                    yield from handler.unary_stream(request, context)
                else:
                    with self.turns:  # Memory answers at once. If calls can wait, use one lock for each object.
                        response = handler.unary_unary(request, context)
                    yield response
            except Fault as fault:
                fault.abort(context)
            except Exception:
                logging.exception("internal error of the adapter")
                Fault(Code.INTERNAL, "INTERNAL", "internal error; the log of the adapter has the cause").abort(context)

        # On the wire, a single answer is a stream of one.
        codecs = handler.request_deserializer, handler.response_serializer
        return grpc.unary_stream_rpc_method_handler(answer, *codecs)

    def admit(self, path: str, authorization: str) -> str:
        """Returns the role of the caller; empty without authentication."""
        if self.identify is None:
            return ""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise unknown("no bearer token")
        role = self.identify(token)
        if not may(role, path):
            raise forbidden(f"{role or 'a caller without a role'} may not call {path}")
        return role

    def judge(self, request: Any, role: str) -> None:
        """Checks the context, then the permissions that depend on the body, then all other fields."""
        if self.is_draining():
            raise draining()
        request.DiscardUnknownFields()
        found = dict(faults(request))
        if of_context := {path: text for path, text in found.items() if path.startswith("context")}:
            raise invalid(of_context)
        if self.cluster_id and request.context.cluster_id != self.cluster_id:
            raise forbidden("context.cluster_id: this adapter serves another cluster")
        if role and "fence" in request.DESCRIPTOR.fields_by_name and not request.dry_run:
            if role in ("adapter", "operator"):
                raise forbidden(f"{role} may only make dry runs: set dry_run")
            if request.fence.scope and not request.fence.scope.startswith(f"{role}/"):
                raise forbidden(f"fence.scope: {role} may only write with scopes {role}/...")
        if found:
            raise invalid(found)
