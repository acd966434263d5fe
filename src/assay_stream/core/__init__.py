"""The pure core: decoding, digests, the registry, the join, drift and alerts. No I/O, no clock, no randomness."""
