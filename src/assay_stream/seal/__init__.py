"""The transparency log over evidence: checkpoints, checks and proofs."""
