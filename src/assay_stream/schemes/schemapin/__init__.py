"""SchemaPin (ThirdKeyAI/SchemaPin): signed tool schemas, discovery documents, and the pinning of keys.

Pure: the clock, the network and key generation are up to the caller. Covers SchemaPin 1.1, the revocation documents of
1.2, and expiry and lineage of 1.4; not DNS records, trust bundles and skill signatures.
"""
