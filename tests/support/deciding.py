"""Dialogues in which operators decide: records as they are published, each at a second of its own."""

from __future__ import annotations

import json
from typing import Any

from assay_stream.core.evidence import Producer
from assay_stream.core.fingerprint import fingerprint
from assay_stream.core.record import Output, Record, Role
from assay_stream.forensics.replay import replay
from tests.support.events import SERVER, TEN_O_CLOCK_MS, Outcome, a_call, a_snapshot, record_of

AUTHOR, REASON = "ann", "OPS-12"


def value_of(tool: dict[str, Any], scheme: str = "assay.p60") -> str:
    """The value of a tool under a scheme; the vectors of each scheme are held against it elsewhere."""
    return fingerprint(tool, server_id=None).schemes[scheme]


class Decided:
    """A dialogue of lists, calls and decisions."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def _add(self, role: Role, value: bytes, second: float) -> Decided:
        offset = sum(record.role is role for record in self.records)
        timestamp_ms = TEN_O_CLOCK_MS + int(second * 1_000)
        self.records.append(record_of(role, value, offset=offset, timestamp_ms=timestamp_ms))
        return self

    def lists(self, second: float, *tools: Any, **fields: Any) -> Decided:
        """A proxy publishes what the server listed."""
        number = len(self.records)
        value = a_snapshot(*tools, number=number, second=second, **{"snapshot_id": f"list-{number}", **fields})
        return self._add(Role.SNAPSHOTS, value, second)

    def calls(self, second: float, **fields: Any) -> Decided:
        """A proxy publishes a call."""
        number = len(self.records)
        return self._add(Role.CALLS, a_call(number=number, second=second, **fields), second)

    def decides(self, second: float, kind: str, **data: Any) -> Decided:
        """An operator decides; ``kind`` as in ``pin.set``."""
        event = {
            "specversion": "1.0",
            "type": f"assay.control.{kind}",
            "source": "urn:assay-stream:operator:ann",
            "id": f"decision-{len(self.records)}",
            "time": f"2026-03-01T10:00:{second:09.6f}Z",
            "data": {"server_id": SERVER, "author": AUTHOR, "reason": REASON, **data},
        }
        return self._add(Role.CONTROL, json.dumps(event).encode(), second)

    def pins(self, second: float, tool: dict[str, Any], kind: str = "set", scheme: str = "assay.p60") -> Decided:
        """An operator approves or rejects a definition."""
        value = value_of(tool, scheme)
        return self.decides(second, f"pin.{kind}", tool_name=tool["name"], scheme=scheme, value=value)

    def ends(self) -> Told:
        """What is written about it all."""
        outputs = list(replay(self.records, producer=Producer(version="0.1.0")))
        return Told(outputs)


class Told(Outcome):
    """What was written, and what of it is about decisions."""

    def __init__(self, outputs: list[Output]) -> None:
        super().__init__(outputs)
        self.pins = [payload["pin"] for payload in self.evidence]
        self.signatures = [payload.get("signature") for payload in self.evidence]

    @property
    def changes(self) -> list[dict[str, Any]]:
        """The payloads of the evidence of changes, in order."""
        return [json.loads(output.value or b"")["data"] for output in self.of(Role.CHANGES)]

    @property
    def verdicts(self) -> dict[str | None, dict[str, Any]]:
        """The verdict topic after compaction: by tool."""
        held: dict[str | None, dict[str, Any]] = {}
        for output in self.of(Role.VERDICTS):
            name = json.loads(output.key or b"")[1]
            if output.value is None:
                held.pop(name, None)
            else:
                held[name] = json.loads(output.value)
        return held

    @property
    def kinds(self) -> list[str]:
        """The kinds of the findings, in order."""
        return [kind for kind, _ in self.findings]
