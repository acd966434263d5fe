"""The HTTP tap: what passes between MCP clients and servers over Streamable HTTP, in both eras of the protocol."""
