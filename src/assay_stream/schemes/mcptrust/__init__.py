"""MCPTrust (mcptrust/mcptrust): hashes of tools and risk levels, lockfiles and their signatures, drift."""
