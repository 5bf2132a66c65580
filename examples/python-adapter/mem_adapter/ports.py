"""The plain HTTP ports: probes and metrics, and on a desk a console to the cloud. Neither serves the contract."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl

from .cloud import Balancer, Cloud, Machine, Route
from .ownership import CLUSTER

Answer = Callable[[str, Mapping[str, str]], str | None]
"""From a path and a form to a text; None: there is no such page."""


def probes(cloud: Cloud, draining: threading.Event) -> Answer:
    """What a kubelet and a Prometheus ask for."""

    def answer(path: str, _form: Mapping[str, str]) -> str | None:
        name = "cloud_adapter_vendor_calls_total"
        calls = [f'{name}{{family="{family}"}} {count}' for family, count in sorted(dict(cloud.calls).items())]
        metrics = "\n".join([f"# HELP {name} Calls to the cloud.", f"# TYPE {name} counter", *calls])
        ready = None if draining.is_set() else "ready"
        return {"/healthz": "alive", "/readyz": ready, "/metrics": metrics}.get(path)

    return answer


class Console:
    """What people and other tools do in the cloud, by path; the form's fields are those of the suite's hooks."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud

    def __call__(self, path: str, form: Mapping[str, str]) -> str | None:
        with self.cloud.changed:
            action = getattr(self, path.removeprefix("/"), None) if path[1:2].islower() else None
            return "\n".join(action(form)) if action else None

    def createInstances(self, form: Mapping[str, str]) -> list[str]:
        """COUNT machines NAME-0, NAME-1 ..."""
        made = []
        for n in range(int(form["COUNT"])):
            number = next(self.cloud.numbers)
            address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
            made.append(Machine(f"i-{number}", f"{form['NAME']}-{n}", address))
            self.cloud.machines.set(made[-1].id, made[-1])
        return [machine.provider_id for machine in made]

    def deleteInstances(self, form: Mapping[str, str]) -> list[str]:
        """Removes them."""
        for provider_id in form["PROVIDER_IDS"].split():
            self.cloud.delete_machine(provider_id.rpartition("/")[2])
        return []

    def stopInstance(self, form: Mapping[str, str]) -> list[str]:
        """Shuts it down."""
        return self.change(form, running=False)

    def startInstance(self, form: Mapping[str, str]) -> list[str]:
        """Lets it run again."""
        return self.change(form, running=True)

    def changeInstance(self, form: Mapping[str, str]) -> list[str]:
        """Another type, which a Node shows."""
        return self.change(form, type=f"large-{next(self.cloud.numbers)}")

    def touchInstance(self, form: Mapping[str, str]) -> list[str]:
        """Another note, which no Node shows."""
        return self.change(form, note=f"note {next(self.cloud.numbers)}")

    def change(self, form: Mapping[str, str], **changes: object) -> list[str]:
        """Changes a machine."""
        machine = self.cloud.machines.items[form["PROVIDER_ID"].rpartition("/")[2]]
        self.cloud.machines.set(machine.id, replace(machine, **changes))  # type: ignore[arg-type]
        return []

    def createLoadBalancer(self, form: Mapping[str, str]) -> list[str]:
        """One without owner."""
        return [self.cloud.create_balancer(name=form["NAME"])]

    def deleteLoadBalancer(self, form: Mapping[str, str]) -> list[str]:
        """Removes it."""
        self.cloud.balancers.set(form["VENDOR_ID"], None)
        return []

    def describeLoadBalancer(self, form: Mapping[str, str]) -> list[str]:
        """All that is known of it."""
        balancer: Balancer | None = self.cloud.balancers.items.get(form["VENDOR_ID"])
        return [repr(balancer)]

    def createRoute(self, form: Mapping[str, str]) -> list[str]:
        """One without owner."""
        route = Route(self.cloud.new_id("rt"), form["DESTINATION"], form["PROVIDER_ID"])
        self.cloud.routes.set(route.id, route)
        return [route.id]

    def deleteRoute(self, form: Mapping[str, str]) -> list[str]:
        """Removes it."""
        self.cloud.routes.set(form["VENDOR_ID"], None)
        return []

    def listOwned(self, form: Mapping[str, str]) -> list[str]:
        """A line for each object of a cluster."""
        objects: list[Balancer | Route] = [*self.cloud.balancers.all(), *self.cloud.routes.all()]
        return [f"{it.id} {dict(it.tags)}" for it in objects if it.tags.get(CLUSTER) == form["CLUSTER_ID"]]


def serve(address: tuple[str, int], answer: Answer) -> ThreadingHTTPServer:
    """Answers GET and POST in the background."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 5

        def do_GET(self) -> None:
            self.reply(answer(self.path, {}))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.reply(answer(self.path, dict(parse_qsl(body.decode()))))

        def reply(self, text: str | None) -> None:
            body = f"{text}\n".encode() if text else b""
            self.send_response(404 if text is None else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads who probed."""

    server = ThreadingHTTPServer(address, Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
