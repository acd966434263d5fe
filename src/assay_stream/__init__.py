"""Joins what MCP servers offered to what agents called, and writes the evidence to Kafka."""

__version__ = "0.1.0"
