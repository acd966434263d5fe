"""SchemaPin (ThirdKeyAI/SchemaPin): signed tool schemas, discovery documents, and the pinning of keys.

Pure: the clock, the network and the making of keys are the caller's. Spans SchemaPin 1.1, the revocation documents
of 1.2, and expiry and lineage of 1.4. DNS records, trust bundles and signatures of skills are not read.
"""
