"""Two releases in one deployment, and a third that does not exist yet."""

UNKNOWN = "in_the_future"
"""Kind of a fact, member of others and key of an alert state that only ``tests.mixed.future`` knows."""
