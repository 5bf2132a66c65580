"""Callers of the adapter with authentication: ServiceAccounts with tokens, over TLS. And the hooks that rotate certificate and tokens."""

import datetime as dt
import itertools
import json
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from files import put

CLUSTER = "c1"
"""The cluster of the adapter; it is part of the audience of tokens."""
ISSUER = "https://kubernetes.default.svc"
SERVER = "cloud-adapter"
"""The name in the adapter's certificate."""
ROLES = {
    "nodeController": "node-controller",
    "serviceController": "service-controller",
    "routeController": "route-controller",
    "operator": "operator",
}
"""Roles: the name in the parameter file, and the name in the adapter."""
STRANGER = {"stranger": "stranger"}
"""An account of the same cluster without a role."""
GOOD_FOR = dt.timedelta(hours=12)
CONNECTION_AGE = 5
"""Seconds. Short, so that connections end during the checks."""


class Callers:
    """The accounts of a cluster that an adapter knows."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count(1)
        self._ca_key, self._token_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        self._ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "conformance")])
        authority = self._certificate(self._ca_name, self._ca_key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True)
        put(folder / "ca.pem", self._signed(authority))
        jwk = jwt.algorithms.ECAlgorithm.to_jwk(self._token_key.public_key(), as_dict=True)
        put(folder / "jwks.json", json.dumps({"keys": [{**jwk, "kid": "1", "alg": "ES256", "use": "sig"}]}))
        self.rotateServerCertificate()
        self.rotateTokens()

    def rotateServerCertificate(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        leaf = self._certificate(x509.Name([]), key.public_key())
        leaf = leaf.add_extension(x509.SubjectAlternativeName([x509.DNSName(SERVER)]), critical=True)
        leaf = leaf.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        put(self._folder / "server.key", key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode())
        put(self._folder / "server.pem", self._signed(leaf))

    def rotateTokens(self) -> None:
        number = next(self._numbers)
        for account in (ROLES | STRANGER).values():
            now = int(time.time())
            claims = {"iss": ISSUER, "aud": ["cloud-adapter"], "sub": f"system:serviceaccount:kube-system:{account}",
                      "iat": now, "nbf": now, "exp": now + int(GOOD_FOR.total_seconds()), "jti": str(number)}
            put(self._token(account), jwt.encode(claims, self._token_key, algorithm="ES256", headers={"kid": "1"}))

    def flags(self) -> list[str]:
        """Flags of the adapter."""
        return [
            f"--tls-cert={self._folder / 'server.pem'}",
            f"--tls-key={self._folder / 'server.key'}",
            "--authentication=service-account",
            f"--max-connection-age={CONNECTION_AGE}s",
            f"--cluster-id={CLUSTER}",
            f"--token-issuer={ISSUER}",
            f"--token-jwks={self._folder / 'jwks.json'}",
            *(f"--identity={role}=kube-system/{role}" for role in ROLES.values()),
        ]

    def params(self) -> dict[str, Any]:
        """The part of the parameter file about the callers."""
        identities = {key: {"tokenFile": str(self._token(account))} for key, account in (ROLES | STRANGER).items()}
        tls = {"caFile": str(self._folder / "ca.pem"), "serverName": SERVER}
        return {"tls": tls, "clusterId": CLUSTER, "identities": identities}

    def _token(self, account: str) -> Path:
        return self._folder / f"{account}.token"

    def _certificate(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return x509.CertificateBuilder(
            issuer_name=self._ca_name, subject_name=subject, public_key=key, serial_number=x509.random_serial_number(),
            not_valid_before=now - dt.timedelta(hours=1), not_valid_after=now + GOOD_FOR)

    def _signed(self, certificate: x509.CertificateBuilder) -> str:
        return certificate.sign(self._ca_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()
