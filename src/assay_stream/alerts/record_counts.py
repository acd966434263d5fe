"""How many alerts the latest records of a server raised: what folding goes by."""

from __future__ import annotations

from typing import Any

from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.alert_state import AlertRecords
from assay_stream.model.finding_topic import alone_max

RECORDS, NAME_RECORDS = "records/", "name_records/"
"""Key prefixes of the counts of alerts that the latest records of a server raised."""


def records_key(server_id: str, group: str | None) -> str:
    """Return the key under which the latest records of a server are counted, or the names of a group in them."""
    return f"{RECORDS}{server_id}" if group is None else f"{NAME_RECORDS}{group}/{server_id}"


class RecordCounts:
    """How many alerts the latest records of one server raised, and which folded alerts they changed.

    Args:
        stored: what ``as_json`` gave, ``None`` for nothing yet.
        group: the group of names that they are about, if they are.
    """

    def __init__(self, stored: dict[str, Any] | None, group: str | None) -> None:
        self._alone_max = alone_max(group)
        self._records: dict[str, dict[str, Any]] = {
            entry["origin"]: {"raised": dict(entry["raised"]), "folded": list(entry["folded"])}
            for entry in (stored or {}).get("records", ())
        }

    def as_json(self) -> AlertRecords:
        return {
            "records": [
                {"origin": origin, "raised": counts["raised"], "folded": counts["folded"]}
                for origin, counts in self._records.items()
            ]
        }

    def has_room(self, place: str, severity_id: int) -> bool:
        raised = self._records.get(place, {}).get("raised", {})
        return bool(raised.get(str(severity_id), 0) < self._alone_max)

    def count(self, place: str, severity_id: int) -> None:
        raised = self._of(place)["raised"]
        raised[str(severity_id)] = raised.get(str(severity_id), 0) + 1

    def touch(self, place: str, uid: str) -> None:
        """Note that a record changed a folded alert, to be written where the record ends."""
        folded = self._of(place)["folded"]
        if uid not in folded and len(folded) < DEFAULT_LIMITS.alerts_per_record_max:
            folded.append(uid)

    def touched(self) -> list[str]:
        return sorted({uid for counts in self._records.values() for uid in counts["folded"]})

    def _of(self, place: str) -> dict[str, Any]:
        found = self._records.setdefault(place, {"raised": {}, "folded": []})
        while len(self._records) > DEFAULT_LIMITS.alert_records_max:
            del self._records[next(iter(self._records))]
        return found
