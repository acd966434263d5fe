"""Looking back: the same engine over recorded observations."""
