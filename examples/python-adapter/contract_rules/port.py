"""What ports need that no service knows: reflection's name of today, a certificate that may change, probes (step 1)."""

import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import grpc
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha import reflection_pb2 as reflected

REFLECTION = "grpc.reflection.v1.ServerReflection"


def serve_reflection(server: grpc.Server, services: Iterable[str]) -> None:
    """Under both names: Python's library serves v1alpha alone, and the messages are the same."""
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
    """TLS with a certificate and its key, PEM, which are read again at each handshake."""

    def read() -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(key.read_bytes(), cert.read_bytes())])

    return grpc.dynamic_ssl_server_credentials(read(), read)


def serve_probes(address: str, is_ready: Callable[[], bool]) -> int:
    """Answers a kubelet's probes in the background, by plain HTTP, and nothing else. Tells on which port."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 5

        def do_GET(self) -> None:
            good = {"/healthz": True, "/readyz": is_ready()}
            self.send_response(200 if good.get(self.path) else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads who probed."""

    host, _, port = address.rpartition(":")
    server = ThreadingHTTPServer((host.strip("[]"), int(port)), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port
