"""Flags, start and stop of the process."""

import argparse
import logging
import signal
import threading
from collections.abc import Sequence
from pathlib import Path

from contract_rules.callers import cluster_id, token_review
from contract_rules.edge import ROLES, Identify
from contract_rules.port import credentials, serve_probes

from .cloud import Cloud
from .server import Server

LOCAL = ("127.", "localhost:", "[::1]:", "unix:")


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the flags. Flags that the chart sets have the same names as in other adapters."""
    parser = argparse.ArgumentParser("mem_adapter", description="A cloud adapter that keeps its cloud in memory.")
    parser.add_argument("--grpc-address", default="127.0.0.1:8443", help="address of the gRPC API")
    parser.add_argument("--http-address", default="127.0.0.1:10273", help="address of /healthz and /readyz")
    parser.add_argument("--cluster-id", default="", help="the only cluster that is served; default: any, or with token-review that of the API server")
    parser.add_argument("--tls-cert", type=Path, help="PEM file with certificates; read at each connection")
    parser.add_argument("--tls-key", type=Path, help="PEM file with their key")
    parser.add_argument("--insecure", action="store_true", help="allow a non-loopback address without TLS")
    parser.add_argument("--authentication", choices=["none", "token-review"], default="none")
    parser.add_argument("--token-audience", default="cloud-adapter", help="required audience of tokens")
    parser.add_argument("--identity", action="append", default=[], metavar="ROLE=NAMESPACE/ACCOUNT")
    grant = "load balancer without an owner that Services of a namespace may adopt; * is any"
    parser.add_argument("--grant", action="append", default=[], metavar="NAMESPACE:adopt=ID", help=grant)
    parser.add_argument("--max-connection-age", type=float, default=1800, metavar="SECONDS")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warn", "error"])
    parser.add_argument("--log-format", default="text", choices=["text"])
    args = parser.parse_args(argv)
    if bool(args.tls_cert) != bool(args.tls_key):
        parser.error("--tls-cert and --tls-key: set both or none")
    if not args.tls_cert and not args.insecure and not args.grpc_address.startswith(LOCAL):
        parser.error("--grpc-address: not a loopback address; set --tls-cert and --tls-key, or --insecure")
    if args.authentication == "token-review" and not args.identity:
        parser.error("--authentication=token-review: requires --identity")
    if any(text.count(":adopt=") != 1 for text in args.grant):
        parser.error("--grant: expected NAMESPACE:adopt=ID")
    if any(text.partition("=")[0] not in ROLES or text.count("/") != 1 for text in args.identity):
        parser.error(f"--identity: expected ROLE=NAMESPACE/ACCOUNT with a role of {', '.join(ROLES)}")
    return args


def main(cloud: Cloud, argv: Sequence[str] | None = None, identify: Identify | None = None) -> None:
    """Serves until SIGTERM or Ctrl-C. `identify` authenticates callers unless a flag selects another way."""
    args, stopped = parse(argv), threading.Event()
    if args.authentication == "token-review":
        roles = {account: role for role, _, account in (text.partition("=") for text in args.identity)}
        identify = token_review(args.token_audience, roles)
        args.cluster_id = args.cluster_id or cluster_id()
    logging.basicConfig(level=args.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    cloud.grants.update((namespace, item) for namespace, _, item in (text.partition(":adopt=") for text in args.grant))
    server = Server(cloud, identify, args.cluster_id, args.max_connection_age)
    serve_probes(args.http_address, lambda: not cloud.draining)
    server.start(args.grpc_address, credentials(args.tls_cert, args.tls_key) if args.tls_cert else None)
    logging.info("serving gRPC on %s", args.grpc_address)
    stopped.wait()
    server.stop()


if __name__ == "__main__":
    main(Cloud())
