"""Assay (Rul1an/assay): digests and clusters of tool definitions, manifests, pins, payloads and evidence bundles.

This facade has what one tool or one record needs; manifests, pins and bundles are modules of their own.
"""

from assay_stream.schemes.assay.tool import (
    CLUSTER_CONSTANTS,
    CLUSTER_DIGEST,
    POLICY_CLUSTER_CONSTANTS,
    Tool,
    check_definition_cluster,
    check_policy_cluster,
    content_hash,
    definition_cluster,
    definition_digest,
    definition_projection,
    meta_hash,
    schema_hash,
    trim,
)

__all__ = [
    "CLUSTER_CONSTANTS",
    "CLUSTER_DIGEST",
    "POLICY_CLUSTER_CONSTANTS",
    "Tool",
    "check_definition_cluster",
    "check_policy_cluster",
    "content_hash",
    "definition_cluster",
    "definition_digest",
    "definition_projection",
    "meta_hash",
    "schema_hash",
    "trim",
]
