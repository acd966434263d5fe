"""SchemaPin (ThirdKeyAI/SchemaPin): signed tool schemas, discovery documents, and the pinning of keys.

Pure: the clock, the network and the making of keys are the caller's. Spans SchemaPin 1.1; what 1.2 to 1.4 add
(revocation documents of their own, DNS records, expiry, bundles) is not read.
"""

from assay_stream.schemes.schemapin.canonical import canonical, carried_signature, schema_digest
from assay_stream.schemes.schemapin.discovery import (
    WellKnown,
    build_well_known,
    is_revoked,
    parse_well_known,
)
from assay_stream.schemes.schemapin.keys import Mode, PublicKey, load_private_key, sign_digest, verify_digest
from assay_stream.schemes.schemapin.verification import (
    ErrorCode,
    PinDecision,
    Verification,
    decide_pin,
    verify,
)

__all__ = [
    "ErrorCode",
    "Mode",
    "PinDecision",
    "PublicKey",
    "Verification",
    "WellKnown",
    "build_well_known",
    "canonical",
    "carried_signature",
    "decide_pin",
    "is_revoked",
    "load_private_key",
    "parse_well_known",
    "schema_digest",
    "sign_digest",
    "verify",
    "verify_digest",
]
