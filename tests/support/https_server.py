"""A real HTTPS server on loopback, with a certificate from an authority that lives as long as the test."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.receivers import QuietHandler, Serving

Answer = Callable[[BaseHTTPRequestHandler], None]


class Authority:
    """A certificate authority that nobody else knows.

    Args:
        folder: where its files are written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Throw-away CA")])
        certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file = folder / "ca.pem"
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, *hosts: str, days: int = 1) -> Path:
        """A file with a certificate for some hosts and its key; with ``days`` below 0 it has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [
            x509.IPAddress(ipaddress.ip_address(host)) if host[0].isdigit() else x509.DNSName(host) for host in hosts
        ]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
        certificate = (
            self._builder(subject, key.public_key(), days)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        path = self._folder / f"{hosts[0]}{days}.pem"
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        return path

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, days: int = 1) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=3))
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(identifier, critical=False)
        )


class HttpsServer(Serving):
    """Serves what the test says, and remembers the paths that were asked for.

    Args:
        answer: writes the response to each GET.
        certificate: file with certificate and key; ``None`` serves plain HTTP.
    """

    def __init__(self, answer: Answer, certificate: Path | None) -> None:
        self.paths: list[str] = []
        asked = self.paths

        class Handler(QuietHandler):
            def do_GET(self) -> None:  # noqa: N802 - the base class's name
                asked.append(self.path)
                self.close_connection = True
                answer(self)

        server = self.bind(0, Handler)
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = int(server.server_address[1])
        self.domain = f"localhost:{self.port}"

    def __enter__(self) -> HttpsServer:
        return self.serve()


def serve(body: bytes, status: int = 200, **headers: str) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    return answer
