"""Hooks over HTTP: `POST /NAME` with the hook's variables as a form returns what the hook prints.

A single long-lived process is used, because a new one takes seconds to import openstacksdk.
"""

import inspect
import sys
import threading
import traceback
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl

Hook = Callable[..., str | None]


class Console:
    """Listens on a loopback port until it is closed."""

    def __init__(self, hooks: dict[str, Hook]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["content-length"] or 0)).decode()
                status, text = answer(hooks, self.path.removeprefix("/"), dict(parse_qsl(form)))
                self.send_response(status)
                self.send_header("content-length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()


def answer(hooks: dict[str, Hook], name: str, form: dict[str, str]) -> tuple[int, str]:
    """Returns a status and the output, or the error."""
    hook = hooks.get(name)
    if not hook:
        return 404, f"unknown hook {name}"
    wanted = inspect.signature(hook).parameters
    if missing := [one for one in wanted if one not in form]:
        return 400, f"{name}: {', '.join(missing)} is not set"
    try:
        return 200, hook(**{one: form[one] for one in wanted}) or ""
    except Exception as error:  # the suite shows every error
        traceback.print_exc(file=sys.stderr)
        return 500, f"{name}: {type(error).__name__}: {error}"
