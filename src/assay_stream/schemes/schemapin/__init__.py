"""SchemaPin (ThirdKeyAI/SchemaPin): signed tool schemas, discovery documents, and the pinning of keys.

Pure: the clock, the network and the making of keys are the caller's. Spans SchemaPin 1.1, the revocation documents
of 1.2, and expiry and lineage of 1.4. DNS records, trust bundles and signatures of skills are not read.

Names load on first use: a digest of a schema needs no cryptography.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay_stream.schemes.schemapin.canonical import Mode, carried_signature, schema_digest
    from assay_stream.schemes.schemapin.claims import claims_of, expiry_warning
    from assay_stream.schemes.schemapin.discovery import WellKnown, build_well_known, is_revoked, parse_well_known
    from assay_stream.schemes.schemapin.keys import PublicKey, load_private_key, sign_digest, verify_digest
    from assay_stream.schemes.schemapin.revocation import Revocations, parse_revocations
    from assay_stream.schemes.schemapin.verification import ErrorCode, PinDecision, Verification, decide_pin, verify

_MODULES = {
    "ErrorCode": "verification",
    "Mode": "canonical",
    "PinDecision": "verification",
    "PublicKey": "keys",
    "Revocations": "revocation",
    "Verification": "verification",
    "WellKnown": "discovery",
    "build_well_known": "discovery",
    "carried_signature": "canonical",
    "claims_of": "claims",
    "decide_pin": "verification",
    "expiry_warning": "claims",
    "is_revoked": "discovery",
    "load_private_key": "keys",
    "parse_revocations": "revocation",
    "parse_well_known": "discovery",
    "schema_digest": "canonical",
    "sign_digest": "keys",
    "verify": "verification",
    "verify_digest": "keys",
}

__all__ = [
    "ErrorCode",
    "Mode",
    "PinDecision",
    "PublicKey",
    "Revocations",
    "Verification",
    "WellKnown",
    "build_well_known",
    "carried_signature",
    "claims_of",
    "decide_pin",
    "expiry_warning",
    "is_revoked",
    "load_private_key",
    "parse_revocations",
    "parse_well_known",
    "schema_digest",
    "sign_digest",
    "verify",
    "verify_digest",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value  # Found without this function from now on.
    return value
