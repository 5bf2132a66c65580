"""The adapter's process, its files, and the suite's hooks at both."""

import os
import signal
import subprocess
from pathlib import Path

from files import put_yaml

GONE_WITHIN = 20
"""Seconds."""
RATE, BURST = 10, 10
"""Of each family, in calls a second: what the services do on a small machine."""
FAMILIES = ("compute", "network", "loadbalancer", "identity")
CACHE = {"instances": {"maxAge": "10s"}, "loadBalancers": {"maxAge": "10s"}, "routes": {"maxAge": "20s"}}
"""Listed this often, so that checks which wait for it need not wait long."""
CONFIG = {"limits": {"buckets": dict.fromkeys(FAMILIES, {"rate": RATE, "burst": BURST})}, "cache": CACHE}
BAD_CONFIG = {"limits": {"buckets": {"compute": {"rate": -1}}}}


class Adapter:
    """One adapter, that hooks end and start again."""

    def __init__(self, program: Path, folder: Path, flags: list[str]) -> None:
        self.log = folder / "adapter.log"
        self._config = folder / "config.yaml"
        self._mended = 0
        self._command = [str(program), *flags, f"--config={self._config}", "--log-format=json"]
        self._process: subprocess.Popen[bytes] | None = None
        put_yaml(self._config, CONFIG)

    def startAdapter(self) -> None:
        # The developer's own cloud must not leak in.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OS_") and name != "KUBECONFIG"}
        with self.log.open("ab") as log:
            # In a group of its own: Ctrl-C is for the suite, which still needs it to clean up.
            self._process = subprocess.Popen(
                self._command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def killAdapter(self) -> None:
        self._end(signal.SIGKILL)

    def stopAdapter(self) -> None:
        self._end(signal.SIGTERM)

    def breakConfig(self) -> None:
        put_yaml(self._config, BAD_CONFIG)

    def mendConfig(self) -> None:
        self._mended += 1
        put_yaml(self._config, CONFIG, end="\n" * self._mended)

    def _end(self, how: signal.Signals) -> None:
        if self._process:
            self._process.send_signal(how)
            self._process.wait(GONE_WITHIN)
