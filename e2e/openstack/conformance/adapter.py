"""The adapter's processes and files, and the hooks of the suite that change them."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from files import put_yaml

GONE_WITHIN = 20
"""Seconds."""
RATE, BURST = 10, 10
"""Calls per second for each family: the capacity of the services on a small host."""
FAMILIES = ("compute", "network", "loadbalancer", "identity")
CACHE = {"instances": {"maxAge": "10s"}, "loadBalancers": {"maxAge": "10s"}, "routes": {"maxAge": "20s"}}
"""Short listing periods, so that checks need not wait long."""
# The local Nova takes a minute to list 10,000 servers.
CONFIG = {"limits": {"buckets": dict.fromkeys(FAMILIES, {"rate": RATE, "burst": BURST}), "deadline": {"max": "5m"}}, "cache": CACHE}
BAD_CONFIG = {"limits": {"buckets": {"compute": {"rate": -1}}}}


class Process:
    """A program that can be restarted."""

    def __init__(self, command: list[str], log: Path) -> None:
        self.log = log
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        # The settings of the developer's own cloud must not apply.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OS_") and name != "KUBECONFIG"}
        with self.log.open("ab") as log:
            # In a process group of its own: Ctrl-C ends the suite, which still needs the adapter to clean up.
            self._process = subprocess.Popen(
                self._command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self._process:
            self._process.send_signal(how)
            self._process.wait(GONE_WITHIN)


class Adapter:
    """An adapter with one or more replicas: common flags, and flags of each replica."""

    def __init__(
        self, program: Path, folder: Path, flags: list[str], replicas: list[list[str]], age_hashes: Callable[[], None],
    ) -> None:
        self._config = folder / "config.yaml"
        self._mended = 0
        self._age_hashes = age_hashes
        common = [str(program), *flags, f"--config={self._config}", "--log-format=json"]
        self._replicas = [Process([*common, *more], folder / f"adapter-{n}.log") for n, more in enumerate(replicas)]
        self.log = self._replicas[0].log
        put_yaml(self._config, CONFIG)

    def open(self) -> None:
        for one in self._replicas:
            one.start()

    def close(self) -> None:
        for one in self._replicas:
            one.end()

    def startAdapter(self, REPLICA: str) -> None:
        self._replicas[int(REPLICA)].start()

    def startAdapterWithNextHash(self, REPLICA: str) -> None:
        """Starts the same adapter, after replacing the hashes of all load balancers by those of another release."""
        self._age_hashes()
        self.startAdapter(REPLICA)

    def killAdapter(self, REPLICA: str) -> None:
        self._replicas[int(REPLICA)].end()

    def stopAdapter(self, REPLICA: str) -> None:
        self._replicas[int(REPLICA)].end(signal.SIGTERM)

    def breakConfig(self) -> None:
        put_yaml(self._config, BAD_CONFIG)

    def mendConfig(self) -> None:
        self._mended += 1
        put_yaml(self._config, CONFIG, end="\n" * self._mended)
