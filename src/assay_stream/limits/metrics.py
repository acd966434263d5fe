"""Bounds of metrics and of coverage."""

EVIDENCE_LATENCY_MAX_S = 3_600.0
"""What a longer latency counts as: a publisher whose clock is years behind must not outweigh all others in the sum."""

UNREVIEWED_AGE_MAX_S = 30 * 24 * 3_600.0
"""What a longer wait for a review counts as: event times are publishers', and one of 1970 is no alert of 1970."""

OBSERVER_ALIVE_S = 900
"""An observer counts as alive for so long after it was last heard of: agents call in bursts, with pauses between."""

OBSERVERS_COUNTED_MAX = 100_000
"""Observers that a worker counts as alive: publishers choose the names. More are alive than the metric says then."""

COVERAGE_NAMES_MAX = 100_000
"""Servers, and observers, that a coverage report tells apart: the largest fleet that was measured. Whoever may publish
can make up any number of names; the rest is counted together, and the report says so."""
