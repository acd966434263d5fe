"""Findings to alerts: life cycle, folding, suppression, stories, and the formats of receivers."""
