"""Strict decoding, RFC 8785, digests and redaction: what is hashed, and how."""
