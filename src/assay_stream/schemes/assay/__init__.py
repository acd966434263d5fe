"""Assay (Rul1an/assay): digests and clusters of tool definitions, manifests, pins, payloads and evidence bundles."""
