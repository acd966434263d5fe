"""MCPTrust (mcptrust/mcptrust): hashes of tools and risk levels, lockfiles and their signatures, drift."""

from assay_stream.schemes.mcptrust.hashes import (
    RISK_LEVELS,
    RISK_WORDS,
    Tool,
    description_hash,
    go_canonical,
    input_schema_hash,
    input_schema_hash_before_go_1_22,
    normalized_hash,
    risk_level,
    text_hash,
)

__all__ = [
    "RISK_LEVELS",
    "RISK_WORDS",
    "Tool",
    "description_hash",
    "go_canonical",
    "input_schema_hash",
    "input_schema_hash_before_go_1_22",
    "normalized_hash",
    "risk_level",
    "text_hash",
]
