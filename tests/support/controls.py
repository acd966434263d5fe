"""Builders of control events, keys and signatures for dialogues and laws."""

import json
from datetime import datetime
from functools import cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from assay_stream.schemes.schemapin import PublicKey, sign_digest
from assay_stream.schemes.schemapin_canonical import Mode, schema_digest
from tests.support.events import SERVER, after_ten, event_at
from tests.support.schemapin import KEY, OTHER_KEY

DOMAIN = "example.com"
KEYS = {"ours": KEY, "other": OTHER_KEY}


def fingerprint_of(key: ec.EllipticCurvePrivateKey = KEY) -> str:
    return PublicKey.of(key.public_key()).fingerprint


def a_document(key: ec.EllipticCurvePrivateKey = KEY, *, revoked: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "schema_version": "1.1",
        "developer_name": "Dev",
        "public_key_pem": PublicKey.of(key.public_key()).pem,
        "revoked_keys": list(revoked),
    }


def signature_of(
    tool: dict[str, Any], key: ec.EllipticCurvePrivateKey = KEY, *, mode: Mode = Mode.DOUBLE_SHA256
) -> str:
    """A signature over a tool: the same text each time within one run, as ECDSA itself is not."""
    name = next(name for name, known in KEYS.items() if known is key)
    return _signature(json.dumps(tool), name, mode)


@cache
def _signature(tool: str, name: str, mode: Mode) -> str:
    return sign_digest(bytes.fromhex(schema_digest(json.loads(tool)).hex), KEYS[name], mode=mode)


def a_control(kind: str, /, *, number: int = 0, second: float = 0, **data: Any) -> bytes:
    """The bytes of a control event, given a number of seconds after ten o'clock; ``None`` leaves a field out."""
    return control_at(after_ten(second), kind, number, **data)


def control_at(at: datetime, kind: str, number: int, /, **data: Any) -> bytes:
    required = {"server_id": SERVER}
    if not kind.startswith("discovery"):
        required |= {"author": "ann", "reason": "review"}
    content = {name: value for name, value in (required | data).items() if value is not None}
    return event_at(at, f"assay.control.{kind}", f"control-{number}", content)
