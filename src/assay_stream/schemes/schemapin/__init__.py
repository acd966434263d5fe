"""SchemaPin (ThirdKeyAI/SchemaPin): signed tool schemas, discovery documents, and the pinning of keys.

Pure: the clock, the network and the making of keys are the caller's. Spans SchemaPin 1.1, the revocation documents
of 1.2, and expiry and lineage of 1.4. DNS records, trust bundles and signatures of skills are not read.
"""

from assay_stream.schemes.schemapin.canonical import canonical, carried_signature, schema_digest
from assay_stream.schemes.schemapin.claims import claims_of, expiry_warning
from assay_stream.schemes.schemapin.discovery import (
    WellKnown,
    build_well_known,
    is_revoked,
    parse_well_known,
)
from assay_stream.schemes.schemapin.keys import Mode, PublicKey, load_private_key, sign_digest, verify_digest
from assay_stream.schemes.schemapin.revocation import Revocations, parse_revocations
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
    "Revocations",
    "Verification",
    "WellKnown",
    "build_well_known",
    "canonical",
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
