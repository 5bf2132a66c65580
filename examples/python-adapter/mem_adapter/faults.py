"""The errors of the contract, and how one leaves the process. Texts are for people; callers decide on the reason."""

from collections.abc import Iterator, Mapping
from typing import NoReturn

import grpc
from cloudadapter.v1alpha1 import common_pb2 as common
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

DOMAIN = "cloudadapter.dev"
STRING_BYTES = 256
# What this adapter can answer, by code. Nothing here is throttled, has a quota or rejects credentials.
REASONS = {
    grpc.StatusCode.INVALID_ARGUMENT: ["FIELD_INVALID", "UNSUPPORTED_FEATURE", "UNKNOWN_PARAMETER"],
    grpc.StatusCode.NOT_FOUND: ["RESOURCE_GONE"],
    grpc.StatusCode.ALREADY_EXISTS: ["OWNED_BY_OTHER"],
    grpc.StatusCode.ABORTED: ["OPERATION_CONFLICT"],
    grpc.StatusCode.FAILED_PRECONDITION: ["STALE_FENCE", "IMMUTABLE_FIELD", "BACKEND_SET_UNKNOWN"],
    grpc.StatusCode.UNAVAILABLE: ["DRAINING"],
    grpc.StatusCode.PERMISSION_DENIED: ["CALLER_FORBIDDEN"],
    grpc.StatusCode.UNAUTHENTICATED: ["CALLER_UNAUTHENTICATED"],
    grpc.StatusCode.INTERNAL: ["INTERNAL"],
}
CODES = {reason: code for code, reasons in REASONS.items() for reason in reasons}
# When to come back. A reason that is not here is not retried.
RETRY_SECONDS = {"OPERATION_CONFLICT": 0.5, "BACKEND_SET_UNKNOWN": 0.0, "DRAINING": 0.5}


class Fault(Exception):
    """An error of the contract."""

    def __init__(self, reason: str, message: str, violations: Mapping[str, str] | None = None, **metadata: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message
        self.violations, self.metadata = violations or {}, metadata

    def item(self) -> common.ItemError:
        """The same as the error of one item of a batch."""
        return common.ItemError(
            reason=common.Reason.Value(f"REASON_{self.reason}"),
            message=self.message,
            metadata=self.metadata,
            retry_after=self.retry(),
        )

    def retry(self) -> Duration | None:
        """When to come back; None: not before something changes."""
        return seconds(RETRY_SECONDS[self.reason]) if self.reason in RETRY_SECONDS else None

    def abort(self, context: grpc.ServicerContext) -> NoReturn:
        """Ends the call with this error."""
        details: list[Message] = [
            error_details_pb2.ErrorInfo(reason=self.reason, domain=DOMAIN, metadata=self.metadata)
        ]
        if self.violations:
            violation = error_details_pb2.BadRequest.FieldViolation
            violations = [violation(field=field, description=text) for field, text in self.violations.items()]
            details.append(error_details_pb2.BadRequest(field_violations=violations))
        trailers: list[tuple[str, str | bytes]] = []
        if (retry := self.retry()) is not None:
            details.append(error_details_pb2.RetryInfo(retry_delay=retry))
            trailers.append(("grpc-retry-pushback-ms", str(retry.ToMilliseconds())))
        code = CODES[self.reason]
        status = status_pb2.Status(code=code.value[0], message=self.message)
        for detail in details:
            status.details.add().Pack(detail)
        trailers.append(("grpc-status-details-bin", status.SerializeToString()))
        context.set_trailing_metadata(tuple(trailers))
        context.abort(code, self.message)
        raise AssertionError("abort does not return")


def invalid(fields: dict[str, str]) -> Fault:
    """FIELD_INVALID for all fields at fault, by path."""
    return Fault("FIELD_INVALID", "; ".join(f"{field}: {text}" for field, text in fields.items()), fields)


def too_long(path: str, message: Message) -> Iterator[tuple[str, str]]:
    """The message's own strings that hold more than the contract allows."""
    for field, value in message.ListFields():
        if isinstance(value, str) and len(value.encode()) > STRING_BYTES:
            yield f"{path}.{field.name}", f"is longer than {STRING_BYTES} bytes"


def seconds(count: float) -> Duration:
    """A duration of the contract."""
    duration = Duration()
    duration.FromMilliseconds(round(count * 1000))
    return duration
