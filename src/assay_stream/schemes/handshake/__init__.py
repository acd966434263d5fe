"""Handshake (Nuntissura/Handshake): tool call events, tool contracts, conformance, HTC-1.0."""
