"""Handshake (Nuntissura/Handshake): tool call events, digests of arguments, tool contracts, conformance, HTC-1.0."""
