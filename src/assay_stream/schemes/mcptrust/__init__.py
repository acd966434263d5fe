"""MCPTrust (mcptrust/mcptrust): hashes of tools and risk levels, lockfiles, drift."""
