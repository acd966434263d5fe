"""Observations from foreign call logs: each holds less than a tap sees, and every record states what is missing."""
