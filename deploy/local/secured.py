"""The local broker with a listener as in production: TLS, SCRAM users, and access that must be granted.

    with SecuredBroker({"alice": "her password"}) as broker:
        connect(broker.secured, cafile=broker.cafile)      # SASL_SSL, SCRAM-SHA-512
        connect(broker.expired, cafile=broker.cafile)      # the same, but its certificate has expired
    connect(broker.tokens, cafile=broker.cafile)       # SASL_SSL, OAUTHBEARER: takes what broker.issue(...) returns
        connect(broker.bootstrap)                          # PLAINTEXT, for whoever sets the stage: may do all

Keys, certificates and passwords are made anew each time and end with the broker's folder.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from joserfc import jwt
from joserfc.jwk import ECKey

from deploy.local.kafka import QUICK_START, Broker, free_ports, fresh_folder
from deploy.local.kafka_place import HOST

_DAY: Final = datetime.timedelta(days=1)

_PROPERTIES: Final = """\
listeners=PLAINTEXT://{host}:{port},SECURED://{host}:{secured},EXPIRED://{host}:{expired},TOKENS://{host}:{tokens},CONTROLLER://{host}:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_SSL,EXPIRED:SASL_SSL,TOKENS:SASL_SSL
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
listener.name.tokens.ssl.keystore.type=PEM
listener.name.tokens.ssl.keystore.location={folder}/broker.pem
listener.name.tokens.sasl.enabled.mechanisms=OAUTHBEARER
listener.name.tokens.oauthbearer.sasl.jaas.config={bearer_jaas}
listener.name.tokens.oauthbearer.sasl.server.callback.handler.class={bearer_handler}
listener.name.tokens.oauthbearer.sasl.oauthbearer.jwks.endpoint.url=file://{folder}/jwks.json
listener.name.tokens.oauthbearer.sasl.oauthbearer.expected.issuer={issuer}
listener.name.tokens.oauthbearer.sasl.oauthbearer.expected.audience={audience}
# With this a connection lives as long as its token at most (KIP-368).
listener.name.tokens.oauthbearer.connections.max.reauth.ms=3600000
"""

_JAAS: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_BEARER: Final = "org.apache.kafka.common.security.oauthbearer"
_ISSUER: Final = "https://login.example"
_AUDIENCE: Final = "kafka"


class SecuredBroker(Broker):
    """A broker with a plain listener, one for passwords, the same with an expired certificate, and one for tokens."""

    def __init__(self, users: Mapping[str, str]) -> None:
        """Let these users in, by name and password; what each may do has to be granted."""
        data = fresh_folder().resolve()
        folder = data / "tls"
        super().__init__(
            data, options=[*QUICK_START, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://{folder}/jwks.json"]
        )
        self._throwaway = True
        self._users = dict(users)
        taken = set(self.place.ports)
        free = [port for port in free_ports(5) if port not in taken]
        self._secured_port, self._expired_port, self._tokens_port = free[:3]
        folder.mkdir(parents=True)
        self._key = ECKey.generate_key("P-256", {"kid": "of-this-broker", "use": "sig", "alg": "ES256"})
        (folder / "jwks.json").write_text(json.dumps({"keys": [self._key.as_dict(private=False)]}))
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

    @property
    def tokens(self) -> str:
        """Address of the listener that asks for a token."""
        return f"{HOST}:{self._tokens_port}"

    def issue(self, user: str, *, life_s: float) -> str:
        """A token that names a user, as an OAuth 2.0 server would issue it."""
        now_s = time.time()
        claims = {"iss": _ISSUER, "aud": _AUDIENCE, "sub": user, "iat": int(now_s), "exp": int(now_s + life_s)}
        return jwt.encode({"alg": "ES256", "kid": "of-this-broker"}, claims, self._key)

    def properties(self) -> str:
        """The broker's settings, with all listeners."""
        ours = ("listeners=", "advertised.listeners=", "listener.security.protocol.map=")
        kept = [line for line in super().properties().splitlines() if not line.startswith(ours)]
        more = _PROPERTIES.format(
            host=HOST,
            port=self.port,
            controller=self.place.voters[self.place.node_id],
            secured=self._secured_port,
            expired=self._expired_port,
            tokens=self._tokens_port,
            jaas=_JAAS,
            bearer_jaas=f"{_BEARER}.OAuthBearerLoginModule required;",
            bearer_handler=f"{_BEARER}.OAuthBearerValidatorCallbackHandler",
            issuer=_ISSUER,
            audience=_AUDIENCE,
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
