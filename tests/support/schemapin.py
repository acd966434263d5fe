"""Keys and documents for tests of SchemaPin."""

from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from assay_stream.schemes.schemapin import PublicKey, WellKnown, parse_well_known

KEY = ec.generate_private_key(ec.SECP256R1())
"""Some developer's key."""

OTHER_KEY = ec.generate_private_key(ec.SECP256R1())
"""Somebody else's."""

TOOL: dict[str, Any] = {"name": "t", "description": "Does.", "inputSchema": {"type": "object"}}


def public(key: ec.EllipticCurvePrivateKey = KEY) -> PublicKey:
    return PublicKey.of(key.public_key())


def public_pem(key: Any) -> str:
    return str(key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode())


def private_pem(key: Any = KEY) -> bytes:
    return bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


def a_document(**fields: Any) -> dict[str, Any]:
    """A discovery document for ``KEY``; a field given as ``None`` is absent."""
    document = {"schema_version": "1.1", "developer_name": "Dev", "public_key_pem": public().pem, **fields}
    return {name: value for name, value in document.items() if value is not None}


def well_known(**fields: Any) -> WellKnown:
    return parse_well_known(a_document(**fields))
