"""Answers for analysts: as-of, timeline, trace, pins, keys and drift."""
