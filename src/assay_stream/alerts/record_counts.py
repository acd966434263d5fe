"""How many alerts the latest records of a server raised: what folding goes by."""

from __future__ import annotations

from typing import Any

from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.alert_state import AlertRecords
from assay_stream.model.record import Origin

RECORDS = "records/"
"""Key prefix of the counts of alerts that the latest records of a server raised."""


def records_key(server_id: str) -> str:
    """Return the key under which the latest records of a server are counted."""
    return f"{RECORDS}{server_id}"


class RecordCounts:
    """How many alerts the latest records of one server raised, and which folded alerts they changed.

    Args:
        stored: what ``as_json`` gave, ``None`` for nothing yet.
    """

    def __init__(self, stored: dict[str, Any] | None) -> None:
        self._records: dict[str, dict[str, Any]] = {
            entry["origin"]: {"raised": dict(entry["raised"]), "folded": list(entry["folded"])}
            for entry in (stored or {}).get("records", ())
        }

    def as_json(self) -> AlertRecords:
        """Return the counts as a JSON object."""
        return {
            "records": [
                {"origin": origin, "raised": counts["raised"], "folded": counts["folded"]}
                for origin, counts in self._records.items()
            ]
        }

    def has_room(self, origin: Origin, severity_id: int) -> bool:
        """Tell whether a record may begin another alert of a severity."""
        raised = self._records.get(str(origin), {}).get("raised", {})
        return bool(raised.get(str(severity_id), 0) < DEFAULT_LIMITS.alerts_per_record_max)

    def count(self, origin: Origin, severity_id: int) -> None:
        """Note that a record began an alert."""
        raised = self._of(origin)["raised"]
        raised[str(severity_id)] = raised.get(str(severity_id), 0) + 1

    def touch(self, origin: Origin, uid: str) -> None:
        """Note that a record changed a folded alert, to be written where the record ends."""
        folded = self._of(origin)["folded"]
        if uid not in folded and len(folded) < DEFAULT_LIMITS.alerts_per_record_max:
            folded.append(uid)

    def touched(self) -> list[str]:
        """Return the folded alerts that these records changed."""
        return sorted({uid for counts in self._records.values() for uid in counts["folded"]})

    def _of(self, origin: Origin) -> dict[str, Any]:
        place = str(origin)
        found = self._records.setdefault(place, {"raised": {}, "folded": []})
        while len(self._records) > DEFAULT_LIMITS.alert_records_max:
            del self._records[next(iter(self._records))]
        return found
