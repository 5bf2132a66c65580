"""An environment for adapter-conformance: adapter-openstack, the suite's proxy, and the local OpenStack.

    setting.py --programs target/debug --folder target/conformance/openstack -- --tier T1 --junit report.xml

Starts the adapter, writes the parameter file, runs the suite with the flags after `--`, stops the adapter, and exits with the status
of the suite. OS_CLIENT_CONFIG_FILE and OS_CLOUD select the cloud, as `cargo xtask openstack up` prints them.
"""

import argparse
import contextlib
import functools
import inspect
import itertools
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from adapter import BURST, RATE, Adapter, Process
from callers import CONNECTION_AGE, Callers
from cloud import Cloud
from console import Console, Hook
from credentials import NAME, Credentials
from files import put_yaml

HOOK = Path(__file__).with_name("hook")
PORTS = iter(range(19_000, 20_000))
NOWHERE = "00000000-0000-4000-8000-000000000000"
VENDOR = {
    "requestIdHeader": "x-openstack-request-id",
    "reads": ["^POST /identity/v3/auth/tokens"],
    "lists": [
        {"collection": "instances", "call": r"^GET /compute/v2\.1/servers/detail", "emptyBody": '{"servers": []}'},
        {"collection": "load-balancers", "call": r"^GET /load-balancer/v2(\.0)?/lbaas/loadbalancers(\?|$)",
         "emptyBody": '{"loadbalancers": [], "loadbalancers_links": []}'},
        {"collection": "routes", "call": r"^GET /network/v2\.0/routers/", "emptyBody": '{"router": {"routes": []}}'},
    ],
}
LIMITS = {"buckets": {family: {"rate": RATE, "burst": BURST, "calls": f" /{service}/"} for family, service in (
    ("compute", "compute"), ("network", "network"), ("loadbalancer", "load-balancer"), ("identity", "identity"))}}
SAMPLES = {
    "machines": 10_000,
    "missingProviderId": f"openstack:///{NOWHERE}",
    "foreignProviderId": f"openstack://Elsewhere/{NOWHERE}",
}
TIMINGS = {
    "answer": "30s", "hook": "3m", "converge": "5m", "ready": "1m", "heal": "1m", "outage": "10s", "settle": "1m", "load": "20s", "drift": "90s", "reload": "15s",
    "connectionAge": f"{CONNECTION_AGE + 1}s",
}

PARALLEL = ["--parallel=2"]
"""More checks in parallel are slower, because the services use the same CPUs."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, required=True, help="where adapter-openstack and adapter-conformance are")
    parser.add_argument("--folder", type=Path, required=True, help="for logs, credentials and the parameter file")
    parser.add_argument("suite", nargs="*", metavar="FLAG", help="of adapter-conformance, after --")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with contextlib.ExitStack() as stack:
        params = prepare(stack, args.programs.absolute(), args.folder.absolute())
        parallel = [] if any(flag.startswith("--parallel") for flag in args.suite) else PARALLEL
        suite = subprocess.Popen([args.programs / "adapter-conformance", "--params", params, *parallel, *args.suite])
        # The suite handles the signals: it cleans up first, and this process after it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: suite.terminate())
        return suite.wait()


def prepare(stack: contextlib.ExitStack, programs: Path, folder: Path) -> Path:
    """Starts everything, which `stack` ends, and returns the parameter file."""
    canary = f"canary-{secrets.token_hex(8)}"
    start = functools.partial(lane, stack, programs, canary)
    params = folder / "params.yaml"
    put_yaml(params, {
        "lanes": [start(Cloud(os.environ.get("OS_CLOUD", "demo")), empty(folder / "open"))],
        # Each in a project of its own: checks count objects, and lanes run in parallel.
        "secured": start(Cloud("secured"), empty(folder / "secured"), callers=Callers(folder / "secured")),
        "replicas": start(Cloud("replicas"), empty(folder / "replicas"), replicas=2),
        "vendor": VENDOR,
        "limits": LIMITS,
        "samples": {**SAMPLES, "canary": canary},
        "timings": TIMINGS,
    })
    return params


def lane(
    stack: contextlib.ExitStack, programs: Path, canary: str, cloud: Cloud, folder: Path,
    callers: Callers | None = None, replicas: int = 1,
) -> dict[str, Any]:
    """Starts an adapter with its console, and returns their part of the parameter file."""
    proxy, leases, *ports = free_ports(2 + 2 * replicas)
    addresses = list(zip(ports[::2], ports[1::2], strict=True))
    credentials = Credentials(cloud.connection, folder / "clouds.yaml", f"http://{proxy}", canary)
    stack.callback(credentials.close)
    flags = [f"--clouds-file={credentials.file}", f"--cloud={NAME}", f"--subnet-id={cloud.subnet.id}",
             f"--ipv6-subnet-id={cloud.ipv6_subnet.id}", f"--floating-network-id={cloud.public.id}",
             f"--router-id={cloud.router.id}", "--grant=*:adopt=*", *(callers.flags() if callers else [])]
    own = [[f"--grpc-address={grpc}", f"--http-address={http}"] for grpc, http in addresses]
    if replicas > 1:
        flags += ["--replicas=active-standby", f"--kubeconfig={lease(stack, programs, folder, leases)}"]
        own = [[*some, f"--advertise-address={grpc}"] for some, (grpc, _) in zip(own, addresses, strict=True)]
    adapter = Adapter(programs / "adapter-openstack", folder, flags, own, cloud.age_hashes)
    stack.callback(adapter.close)
    adapter.open()
    hooks = {name: hook for owner in (cloud, credentials, adapter, callers) for name, hook in hooks_of(owner).items()}
    console = Console(hooks)
    stack.callback(console.close)
    endpoints = [f"{'https' if callers else 'http'}://{grpc}" for grpc, _ in addresses]
    static = f"static:///{','.join(grpc for grpc, _ in addresses)}"
    return {
        "name": folder.name,
        "endpoint": endpoints[0] if replicas == 1 else static,
        **({"replicas": endpoints} if replicas > 1 else {}),
        "http": f"http://{addresses[0][1]}",
        "log": str(adapter.log),
        "proxy": {"listen": proxy, "upstreams": credentials.upstreams()},
        "env": {"CONSOLE": console.url},
        "hooks": {name: f"exec '{HOOK}' {name}" for name in hooks},
        **(callers.params() if callers else {}),
    }


def lease(stack: contextlib.ExitStack, programs: Path, folder: Path, address: str) -> Path:
    """Starts an API server that has one Lease, and returns a kubeconfig for it."""
    server = Process([str(programs / "conformance-sim"), "lease-server", f"--listen={address}"], folder / "lease-server.log")
    stack.callback(server.end)
    server.start()
    kubeconfig = folder / "kubeconfig"
    put_yaml(kubeconfig, {
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": f"http://{address}"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "kube-system"}}],
    })
    return kubeconfig


def empty(folder: Path) -> Path:
    """Creates an empty folder, without files of an earlier run."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def hooks_of(owner: Any) -> dict[str, Hook]:
    """The methods whose names have two words, such as `createInstances`."""
    return {name: method for name, method in inspect.getmembers(owner, inspect.ismethod)
            if not name.startswith("_") and not name.islower()}


def free_ports(count: int) -> list[str]:
    """Free loopback ports that no other process gets while their server restarts: they are below the ephemeral ports and below
    those that tests in Rust reserve."""
    return [f"127.0.0.1:{port}" for port in itertools.islice(filter(is_free, PORTS), count)]


def is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
