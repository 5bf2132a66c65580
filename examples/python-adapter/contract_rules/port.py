"""The ports apart from the services: reflection v1, certificates that change, probes."""

import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import grpc
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha import reflection_pb2 as reflected

REFLECTION = "grpc.reflection.v1.ServerReflection"


def serve_reflection(server: grpc.Server, services: Iterable[str]) -> None:
    """Serves reflection under both names. Python's library has only v1alpha, whose messages are the same as in v1."""
    names = [*services, reflection.SERVICE_NAME, REFLECTION]
    reflection.enable_server_reflection(names, server)
    method = grpc.stream_stream_rpc_method_handler(
        reflection.ReflectionServicer(names).ServerReflectionInfo,
        request_deserializer=reflected.ServerReflectionRequest.FromString,
        response_serializer=reflected.ServerReflectionResponse.SerializeToString,
    )
    handlers = grpc.method_handlers_generic_handler(REFLECTION, {"ServerReflectionInfo": method})
    server.add_generic_rpc_handlers((handlers,))


def credentials(cert: Path, key: Path) -> grpc.ServerCredentials:
    """Returns TLS credentials from PEM files, which are read again at each handshake."""

    def read() -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(key.read_bytes(), cert.read_bytes())])

    return grpc.dynamic_ssl_server_credentials(read(), read)


def serve_probes(address: str, is_ready: Callable[[], bool]) -> int:
    """Serves only the probes of the kubelet, in the background, over plain HTTP. Returns the port."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 5

        def do_GET(self) -> None:
            good = {"/healthz": True, "/readyz": is_ready()}
            self.send_response(200 if good.get(self.path) else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Does not log probes."""

    host, _, port = address.rpartition(":")
    server = ThreadingHTTPServer((host.strip("[]"), int(port)), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port
