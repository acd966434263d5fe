"""The HTTP tap: observes MCP over Streamable HTTP, in both eras of the protocol."""
