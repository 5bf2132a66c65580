"""Flags, and the life of the process."""

import argparse
import logging
import signal
import threading
from pathlib import Path

from . import NAME, VERSION, identity, ports
from .cloud import Cloud
from .server import Server

ROLES = ("node-controller", "service-controller", "route-controller", "adapter", "operator")
LOCAL = ("127.", "localhost:", "[::1]:", "unix:")


def parse() -> argparse.Namespace:
    """The flags. Those that the chart sets have the names that the chart knows."""
    parser = argparse.ArgumentParser(NAME, description="A cloud adapter whose cloud is its own memory.")
    parser.add_argument("--version", action="version", version=VERSION)
    parser.add_argument("--grpc-address", default="127.0.0.1:8443", help="where the contract is served")
    parser.add_argument("--http-address", default="127.0.0.1:10273", help="/healthz, /readyz, /metrics")
    parser.add_argument("--console-address", help="where the cloud itself may be changed: on a desk alone")
    parser.add_argument("--cluster-id", default="", help="the one cluster that is served; without it, any")
    parser.add_argument("--tls-cert", type=Path, help="certificates, PEM; read again at each connection")
    parser.add_argument("--tls-key", type=Path, help="their key")
    parser.add_argument("--insecure", action="store_true", help="no TLS, not even off this machine")
    parser.add_argument("--authentication", choices=["none", "file", "token-review"], default="none")
    parser.add_argument("--tokens", type=Path, help="for authentication by file: lines of `token: role`")
    parser.add_argument("--identity", action="append", default=[], metavar="ROLE=NAMESPACE/ACCOUNT")
    parser.add_argument("--max-connection-age", type=float, default=1800, metavar="SECONDS")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warn", "error"])
    parser.add_argument("--log-format", default="text", choices=["text"])
    args = parser.parse_args()
    if bool(args.tls_cert) != bool(args.tls_key):
        parser.error("--tls-cert and --tls-key go together")
    if not args.tls_cert and not args.insecure and not args.grpc_address.startswith(LOCAL):
        parser.error("--grpc-address: is no loopback address; give --tls-cert and --tls-key, or --insecure")
    if args.console_address and not args.console_address.startswith(LOCAL):
        parser.error("--console-address: has no authentication, and must be a loopback address")
    if (args.authentication == "file") != bool(args.tokens):
        parser.error("--tokens: is needed for --authentication=file, and for it alone")
    if args.authentication == "token-review" and not (args.identity and args.cluster_id):
        parser.error("--authentication=token-review: needs --identity and --cluster-id")
    if any(text.partition("=")[0] not in ROLES or text.count("/") != 1 for text in args.identity):
        parser.error(f"--identity: write ROLE=NAMESPACE/ACCOUNT with a role of {', '.join(ROLES)}")
    return args


def identify(args: argparse.Namespace) -> identity.Identify | None:
    """How callers prove who they are."""
    if args.authentication == "file":
        return identity.from_file(args.tokens)
    if args.authentication == "token-review":
        roles = {account: role for role, _, account in (text.partition("=") for text in args.identity)}
        return identity.token_review(f"cloudadapter.{args.cluster_id}", roles)
    return None


def host_port(text: str) -> tuple[str, int]:
    """An address of ours for a plain HTTP server."""
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def main() -> None:
    """Serves until SIGTERM or Ctrl-C."""
    args = parse()
    logging.basicConfig(level=args.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    cloud, stopped = Cloud(), threading.Event()
    server = Server(cloud, identify(args), args.cluster_id, args.max_connection_age)
    ports.serve(host_port(args.http_address), ports.probes(cloud, server.draining))
    if args.console_address:
        ports.serve(host_port(args.console_address), ports.Console(cloud))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    server.start(args.grpc_address, (args.tls_cert, args.tls_key) if args.tls_cert else None)
    logging.info("%s serves the contract on %s", NAME, args.grpc_address)
    stopped.wait()
    server.stop()


if __name__ == "__main__":
    main()
