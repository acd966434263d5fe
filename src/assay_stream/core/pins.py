"""Pins: what an operator expects a definition to be, held against what was observed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from assay_stream.core.fingerprint import Fingerprint


class PinStatus(StrEnum):
    """How a definition stands to its pins. A match says that two digests are equal, and nothing more."""

    UNPINNED = "unpinned"
    MATCH = "match"
    UNOBSERVED = "unobserved"
    MISMATCH = "mismatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class PinResult:
    """The pin result that evidence carries: of several pins, the one that says most."""

    status: PinStatus
    scheme: str | None = None
    expected: str | None = None
    observed: str | None = None

    def as_json(self) -> dict[str, str]:
        """Return the result as it stands in evidence, without what is absent."""
        fields = {"scheme": self.scheme, "expected": self.expected, "observed": self.observed}
        return {"status": self.status.value} | {k: v for k, v in fields.items() if v is not None}


UNPINNED = PinResult(status=PinStatus.UNPINNED)
_WEIGHT = {PinStatus.MATCH: 0, PinStatus.UNOBSERVED: 1, PinStatus.MISMATCH: 2}


def check_pins(pins: Mapping[str, str], observed: Fingerprint | None) -> PinResult:
    """Hold a definition against the pins in force.

    Args:
        pins: scheme to pinned value.
        observed: the fingerprint in force, ``None`` where no definition was.
    """
    if not pins:
        return UNPINNED
    results = []
    for scheme, expected in sorted(pins.items()):
        value = None if observed is None else observed.schemes.get(scheme)
        if value is None:
            status = PinStatus.UNOBSERVED
        else:
            status = PinStatus.MATCH if value == expected else PinStatus.MISMATCH
        results.append(PinResult(status=status, scheme=scheme, expected=expected, observed=value))
    return max(results, key=lambda result: _WEIGHT[result.status])
