"""The adapter's credentials: application credentials of the cloud's user, in a clouds.yaml whose endpoints are those of the suite's proxy."""

import contextlib
import secrets
from pathlib import Path
from urllib.parse import urlsplit

from openstack.connection import Connection
from openstack.exceptions import BadRequestException
from openstack.identity.v3.application_credential import ApplicationCredential

from cloud import until
from files import put_yaml

SERVICES = {"identity": "/v3", "compute": "/v2.1", "network": "", "load-balancer": ""}
"""Service types that an adapter calls, and the version in their base URL."""
ROLES = ("member", "load-balancer_member")
NAME = "conformance"
"""The name of the cloud in the file."""


class Credentials:
    """Creates credentials, and removes them at the end. `canary` is a part of every secret."""

    def __init__(self, connection: Connection, file: Path, proxy: str, canary: str) -> None:
        self._cloud, self.file, self._proxy, self._canary = connection, file, proxy, canary
        self._user = connection.session.get_user_id()
        self._in_force: list[str] = []
        self.rotateCredentials()

    def upstreams(self) -> dict[str, str]:
        """The URL of each service, for the proxy."""
        urls = {kind: urlsplit(self._cloud.session.get_endpoint(service_type=kind)) for kind in SERVICES}
        return {f"/{kind}": f"{url.scheme}://{url.netloc}" for kind, url in urls.items()}

    def rotateCredentials(self) -> None:
        secret = f"{self._canary}-{secrets.token_hex(8)}"
        made = until("there is an application credential", lambda: self._make(secret))
        self._in_force.append(made.id)
        base = {kind: f"{self._proxy}/{kind}{version}" for kind, version in SERVICES.items()}
        auth = {"auth_url": base["identity"], "application_credential_id": made.id, "application_credential_secret": secret}
        overrides = {f"{kind.replace('-', '_')}_endpoint_override": url for kind, url in base.items() if kind != "identity"}
        cloud = {"auth_type": "v3applicationcredential", "auth": auth, "region_name": self._cloud.config.region_name, **overrides}
        put_yaml(self.file, {"clouds": {NAME: cloud}})

    def _make(self, secret: str) -> ApplicationCredential | None:
        """Returns None while Keystone does not see the user's roles, because of its caches when it is under load."""
        with contextlib.suppress(BadRequestException):
            return self._cloud.identity.create_application_credential(
                user=self._user, name=f"{NAME}-{secrets.token_hex(4)}", secret=secret, roles=[{"name": role} for role in ROLES])
        return None

    def revokeCredentials(self) -> None:
        """Removes all but the newest."""
        *old, newest = self._in_force
        self._remove(old)
        self._in_force = [newest]

    def close(self) -> None:
        self._remove(self._in_force)

    def _remove(self, credentials: list[str]) -> None:
        for one in credentials:
            self._cloud.identity.delete_application_credential(self._user, one)
