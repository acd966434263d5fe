"""The local broker with a listener as in production: TLS, SCRAM users, and access that must be granted.

    with SecuredBroker({"alice": "her password"}) as broker:
        connect(broker.secured, cafile=broker.cafile)      # SASL_SSL, SCRAM-SHA-512
        connect(broker.expired, cafile=broker.cafile)      # the same, but its certificate has expired
        connect(broker.bootstrap)                          # PLAINTEXT, for whoever sets the stage: may do all

Keys, certificates and passwords are made anew each time and end with the broker's folder.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from deploy.local.kafka import QUICK_START, Broker, free_ports
from deploy.local.kafka_place import HOST

_DAY: Final = datetime.timedelta(days=1)

_PROPERTIES: Final = """\
listeners=PLAINTEXT://{host}:{port},SECURED://{host}:{secured},EXPIRED://{host}:{expired},CONTROLLER://{host}:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_SSL,EXPIRED:SASL_SSL
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=SCRAM-SHA-512
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
# Who comes over the plain listener of this machine is the one who sets the stage, and the broker itself.
super.users=User:ANONYMOUS
allow.everyone.if.no.acl.found=false
listener.name.secured.ssl.keystore.type=PEM
listener.name.secured.ssl.keystore.location={folder}/broker.pem
listener.name.secured.scram-sha-512.sasl.jaas.config={jaas}
listener.name.expired.scram-sha-512.sasl.jaas.config={jaas}
listener.name.expired.ssl.keystore.type=PEM
listener.name.expired.ssl.keystore.location={folder}/expired.pem
"""

_JAAS: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


class SecuredBroker(Broker):
    """A broker with a plain listener, a secured one, and one whose certificate has expired."""

    def __init__(self, users: Mapping[str, str]) -> None:
        """Let these users in, by name and password; what each may do has to be granted."""
        super().__init__(options=QUICK_START)
        self._users = dict(users)
        taken = set(self.place.ports)
        self._secured_port, self._expired_port = [port for port in free_ports(4) if port not in taken][:2]
        folder = self.data / "tls"
        folder.mkdir(parents=True)
        self.cafile = make_certificates(folder)
        self.foreign_cafile = folder / "foreign-ca.pem"
        """An authority that has signed nothing here."""

    @property
    def secured(self) -> str:
        """Address of the SASL_SSL listener."""
        return f"{HOST}:{self._secured_port}"

    @property
    def expired(self) -> str:
        """Address of the one whose certificate has expired."""
        return f"{HOST}:{self._expired_port}"

    def properties(self) -> str:
        """The broker's settings, with the three listeners."""
        ours = ("listeners=", "advertised.listeners=", "listener.security.protocol.map=")
        kept = [line for line in super().properties().splitlines() if not line.startswith(ours)]
        more = _PROPERTIES.format(
            host=HOST,
            port=self.port,
            controller=self.place.voters[self.place.node_id],
            secured=self._secured_port,
            expired=self._expired_port,
            jaas=_JAAS,
            folder=self.data / "tls",
        )
        return "\n".join(kept) + "\n" + more

    def format_options(self) -> list[str]:
        """The users, who stand in the metadata log from the first."""
        return [
            option
            for name, password in self._users.items()
            for option in ("--add-scram", f"SCRAM-SHA-512=[name={name},password={password}]")
        ]


def make_certificates(folder: Path) -> Path:
    """Make an authority, a certificate of this machine, an expired one, and a foreign authority.

    Args:
        folder: gets `ca.pem`, `broker.pem`, `expired.pem` (key and chain) and `foreign-ca.pem`.

    Returns:
        The authority's certificate.
    """
    now = datetime.datetime.now(datetime.UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    authority = _authority("assay-stream test authority", key, now)
    (folder / "ca.pem").write_bytes(_pem(authority))
    foreign = _authority("another authority", ec.generate_private_key(ec.SECP256R1()), now)
    (folder / "foreign-ca.pem").write_bytes(_pem(foreign))
    for name, until in (("broker", now + 2 * _DAY), ("expired", now - _DAY)):
        own = ec.generate_private_key(ec.SECP256R1())
        made = (
            x509.CertificateBuilder()
            .subject_name(_name(HOST))
            .issuer_name(authority.subject)
            .public_key(own.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 3 * _DAY)
            .not_valid_after(until)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        private = own.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path = folder / f"{name}.pem"
        path.touch(mode=0o600)
        path.write_bytes(private + _pem(made) + _pem(authority))
    return folder / "ca.pem"


def _authority(name: str, key: ec.EllipticCurvePrivateKey, now: datetime.datetime) -> x509.Certificate:
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 3 * _DAY)
        .not_valid_after(now + 2 * _DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
