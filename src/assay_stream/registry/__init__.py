"""Snapshots and control records to facts, and the state that facts add up to."""
