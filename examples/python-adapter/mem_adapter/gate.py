"""The edge of the adapter: who may call what, what every request carries, and how every error leaves."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import grpc
from cloudadapter.v1alpha1 import common_pb2 as common

from .faults import Fault, invalid, too_long
from .identity import Identify

SERVICES = {
    "node-controller": "InstanceService",
    "service-controller": "LoadBalancerService",
    "route-controller": "RouteService",
}
WATCHES = {"InstanceService/WatchInstances", "LoadBalancerService/WatchLoadBalancers", "RouteService/WatchRoutes"}
DRY_RUNS = {
    "LoadBalancerService/EnsureLoadBalancer",
    "LoadBalancerService/DeleteLoadBalancer",
    "RouteService/ApplyRoutes",
}
METHODS = {"adapter": WATCHES, "operator": WATCHES | DRY_RUNS}
CONTRACT = re.compile(r"/cloudadapter\.[^./]+\.(?P<call>(?P<service>\w+)/\w+)")
OPEN = re.compile(r"/grpc\.(health\.v1\.Health|reflection\.v1(alpha)?\.ServerReflection)/\w+")

log = logging.getLogger(__name__)


def may(role: str, path: str) -> bool:
    """Whether a role may call a method, known or not."""
    if role not in SERVICES and role not in METHODS:
        return False
    if (method := CONTRACT.fullmatch(path)) is None:
        return OPEN.fullmatch(path) is not None
    if method["service"] in ("AdapterService", SERVICES.get(role)):
        return True
    return method["call"] in METHODS.get(role, ())


class Gate(grpc.ServerInterceptor):
    """Stands before every method of the port. Without `identify` everybody may do everything."""

    def __init__(self, identify: Identify | None, cluster_id: str, draining: threading.Event) -> None:
        self.identify, self.cluster_id, self.draining = identify, cluster_id, draining

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[Any, Any] | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Decides before a byte of the request is read."""
        path = handler_call_details.method
        try:
            role = self.admit(path, dict(handler_call_details.invocation_metadata).get("authorization", ""))
        except Exception as error:
            refusal = fault_of(error)

            def refuse(_requests: Iterator[Any], context: grpc.ServicerContext) -> NoReturn:
                refusal.abort(context)

            return grpc.stream_stream_rpc_method_handler(refuse)
        handler = continuation(handler_call_details)
        return handler if handler is None or OPEN.fullmatch(path) else self.guarded(handler, role)

    def admit(self, path: str, authorization: str | bytes) -> str | None:
        """The caller's role; None where nobody is asked for one."""
        if self.identify is None:
            return None
        scheme, _, token = str(authorization).partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Fault("CALLER_UNAUTHENTICATED", "authorization: there is no bearer token")
        role = self.identify(token)
        if not may(role, path):
            raise Fault("CALLER_FORBIDDEN", f"{role or 'who has no role'} may not call {path}")
        return role

    def guarded(self, handler: grpc.RpcMethodHandler[Any, Any], role: str | None) -> grpc.RpcMethodHandler[Any, Any]:
        """The same method behind the checks of the body, with every exception as an error of the contract."""

        behaviour: Callable[..., Any] = handler.unary_stream or handler.unary_unary  # type: ignore[assignment]

        def unary(request: Any, context: grpc.ServicerContext) -> Any:
            try:
                self.judge(request, role)
                return behaviour(request, context)
            except Exception as error:
                refusal = fault_of(error)
            refusal.abort(context)

        def stream(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            try:
                self.judge(request, role)
                yield from behaviour(request, context)
                return
            except Exception as error:
                refusal = fault_of(error)
            refusal.abort(context)

        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(
                stream, handler.request_deserializer, handler.response_serializer
            )
        return grpc.unary_unary_rpc_method_handler(
            unary, handler.request_deserializer, handler.response_serializer
        )

    def judge(self, request: Any, role: str | None) -> None:
        """What every request carries, and what only the body tells of the caller."""
        if self.draining.is_set():
            raise Fault("DRAINING", "this adapter is about to stop")
        check_context(request)
        if self.cluster_id and request.context.cluster_id != self.cluster_id:
            raise Fault("CALLER_FORBIDDEN", "context.cluster_id: this adapter serves another cluster")
        writes = "fence" in request.DESCRIPTOR.fields_by_name and not request.dry_run
        if writes and role in METHODS:
            raise Fault("CALLER_FORBIDDEN", f"{role} changes nothing: set dry_run")
        if writes and role and request.fence.scope and not request.fence.scope.startswith(f"{role}/"):
            raise Fault("CALLER_FORBIDDEN", f"fence.scope: {role} writes under {role}/... alone")


def check_context(request: Any) -> None:
    """FIELD_INVALID unless it says who asks."""
    context: common.RequestContext = request.context
    if not request.HasField("context"):
        raise invalid({"context": "is missing"})
    faults = dict(too_long("context", context))
    if "fence" in request.DESCRIPTOR.fields_by_name:
        faults.update(too_long("fence", request.fence))
    if not context.cluster_id:
        faults["context.cluster_id"] = "is empty; it is the UID of the namespace kube-system"
    if context.max_staleness.ToNanoseconds() < 0:
        faults["context.max_staleness"] = "is negative"
    if faults:
        raise invalid(faults)


def fault_of(error: Exception) -> Fault:
    """The error itself, or INTERNAL for a defect of ours, which is logged."""
    if isinstance(error, Fault):
        return error
    log.error("a defect of the adapter", exc_info=error)
    return Fault("INTERNAL", "a defect of the adapter, which has logged it")
