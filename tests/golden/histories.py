"""Random histories of a fleet: the same seed gives the same records with any version.

Uses of ``random`` only ``Random.random``, whose sequence Python keeps.
"""

import gzip
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from assay_stream.model.record import TOPIC_NAMES, Origin, Record, Role, murmur2_partition

Json = dict[str, Any]
_T = TypeVar("_T")

POOL = Path(__file__).parents[1] / "data" / "golden" / "pool.json.gz"
START = datetime(2026, 3, 1, 10, tzinfo=UTC)
SERVERS = ("files", "mail", "web", "time", "Files", "billing.example", "сервер", "a" * 120)
OBSERVERS = ("proxy-1", "proxy-2", "proxy-3")
_PAUSES_S = (0.0, 0.3, 2.0, 30.0, 61.0, 300.0, 600.0, 600.0, 4_000.0, 4_000.0, 90_000.0)
_SCHEMES = [
    "assay.v1",
    "assay.schema_hash",
    "assay.meta_hash",
    "assay.p60",
    "schemapin.v1",
    "hangar.v1_2",
    "hangar.v2",
    "mcptrust.description_hash",
    "mcptrust.input_schema_hash",
    "mcptrust.risk_level",
]
_KINDS = "tool_added tool_changed pin_mismatch unpinned_tool signature_invalid definition_ambiguous alerts_folded"
_FIELDS = ("description", "inputSchema", "annotations", "title", "outputSchema", "_meta")
_GARBAGE: tuple[bytes | None, ...] = (
    None,
    b"",
    b"{",
    b"\xff\xfe",
    b"[]",
    b'{"a":1,"a":2}',
    b'{"x":NaN}',
    b'"' + b"x" * 5_000,
    b"[" * 3_000,
    b'{"specversion":"1.0","type":"mcp.tools.other"}',
    b'{"n":1e400}',
    b'{"s":"\\ud800"}',
)
_SECRETS = (
    "password=hunter2",
    "Authorization: Bearer abcdef0123456789abcdef0123456789",
    "ghp_" + "a1B2" * 9,
    "AKIA" + "ABCDEFGH12345678",
    "ann@example.com",
    "4111 1111 1111 1111",
    "nothing of note",
)
_POLICY_CLUSTER = {
    "policy_digest": f"sha256:{7:064x}",
    "policy_snapshot_digest": f"sha256:{7:064x}",
    "policy_snapshot_digest_alg": "sha256",
    "policy_snapshot_canonicalization": "jcs:mcp_policy",
    "policy_snapshot_schema": "assay.mcp.policy.snapshot.v1",
}
_DEFINITION_CLUSTER = {
    "tool_definition_digest_alg": "sha256",
    "tool_definition_canonicalization": "jcs:mcp_tool_definition.v1",
    "tool_definition_schema": "assay.mcp.tool-definition.snapshot.v1",
    "tool_definition_source": "mcp.tools/list",
}


class Draw:
    """Choices that follow from a seed alone."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def below(self, count: int) -> int:
        return int(self._random.random() * count)

    def one_of(self, choices: Sequence[_T]) -> _T:
        return choices[self.below(len(choices))]

    def chance(self, share: float) -> bool:
        return self._random.random() < share


@cache
def pool() -> Json:
    """Definitions with digests and signatures under every scheme; documents, texts, prompts, templates."""
    content: Json = json.loads(gzip.decompress(POOL.read_bytes()))
    return content


def rfc3339(moment: datetime) -> str:
    """A time as events have it."""
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


@dataclass
class Archive:
    """Records in the order of publishing, each with its place in its log."""

    partitions: int = 1
    records: list[Record] = field(default_factory=list)
    _offsets: Counter[tuple[Role, int]] = field(default_factory=Counter)

    def add(
        self,
        role: Role,
        value: bytes | None,
        *,
        key: bytes | None,
        at: datetime,
        partition: int | None = None,
        headers: Sequence[tuple[str, str]] = (),
        set_aside: bool = False,
    ) -> None:
        if partition is None:
            partition = murmur2_partition(key or b"", self.partitions)
        origin = Origin(TOPIC_NAMES[role], partition, self._offsets[role, partition])
        self._offsets[role, partition] += 1
        encoded = tuple((name, text.encode()) for name, text in headers)
        timestamp_ms = int(at.timestamp() * 1_000)
        self.records.append(Record(role, origin, key, value, encoded, timestamp_ms, set_aside=set_aside))


def an_event(kind: str, number: int, at: datetime, data: Json, **attributes: Any) -> Json:
    return {
        "specversion": "1.0",
        "type": kind,
        "source": "urn:assay-stream:observer:golden",
        "id": f"event-{number}",
        "time": rfc3339(at),
        "data": data,
    } | attributes


class History:
    """What a fleet, its proxies and its operators publish."""

    def __init__(self, seed: int, steps: int = 120) -> None:
        self._draw = draw = Draw(seed)
        self.archive = Archive(partitions=1 + draw.below(3))
        self._now = START + timedelta(days=draw.below(300), microseconds=draw.below(1_000_000))
        self._number = 0
        self._servers = [SERVERS[(draw.below(8) + number) % 8] for number in range(1 + draw.below(5))]
        self._offered: dict[str, list[Json]] = {name: self._first_list() for name in self._servers}
        self._snapshots: list[tuple[str, str]] = []
        self._partial = draw.one_of([0.0, 0.1, 0.9])
        self._signing = draw.one_of([0.0, 0.8])
        for _ in range(steps):
            self._step()

    def _first_list(self) -> list[Json]:
        first = [entry for entry in pool()["tools"] if entry["variant"] == 0]
        return [self._draw.one_of(first) for _ in range(self._draw.below(6))]

    def _step(self) -> None:
        draw = self._draw
        self._now += timedelta(seconds=draw.one_of(_PAUSES_S) * (1 + draw.below(100)) / 100)
        self._number += 1
        server = draw.one_of(self._servers)
        match draw.below(40):
            case number if number < 14:
                self._list(server)
            case number if number < 29:
                self._call(server)
            case number if number < 33:
                self._decide(server)
            case 33 | 34:
                self._discover(server)
            case 35:
                self._suppress(server)
            case 36:
                self._announce(server)
            case 37:
                self._garble(server)
            case 38:
                self._list(server, flood=draw.chance(0.2))
            case _:
                self._break(server)

    def _list(self, server: str, *, flood: bool = False) -> None:
        draw = self._draw
        if draw.chance(0.5):
            self._change(server)
        offered = list(self._offered[server])
        if flood:
            base = draw.one_of(pool()["tools"])["tool"]
            offered += [{"tool": base | {"name": f"{base['name']}_{number}"}} for number in range(45)]
        if draw.chance(0.15) and offered:
            del offered[draw.below(len(offered))]
        tools = [entry["tool"] for entry in offered]
        data: Json = {
            "server_id": server,
            "observer_id": draw.one_of(OBSERVERS),
            "snapshot_id": f"snapshot-{self._number if draw.chance(0.97) else 1}",
            "server_scoped": draw.chance(0.4),
            "completeness": draw.one_of(["partial", "unknown"]) if draw.chance(self._partial) else "complete",
            "tools": tools,
        }
        if draw.chance(0.15):
            data["auth_context"] = draw.one_of(["reader", "admin"])
        if draw.chance(0.3):
            data["protocol_version"] = draw.one_of(["2025-11-25", "2026-07-28"])
        if draw.chance(0.3):
            data["prompts"] = [draw.one_of(pool()["prompts"]) for _ in range(draw.below(4))]
        if draw.chance(0.3):
            data["resource_templates"] = [draw.one_of(pool()["templates"]) for _ in range(draw.below(3))]
        if draw.chance(self._signing):
            data["signatures"] = {
                entry["tool"]["name"]: self._signature(entry) for entry in offered if entry.get("signatures")
            }
        # Now and then one that was observed well before it was published.
        at = self._now - timedelta(seconds=draw.one_of((0, 0, 0, 0, 0, 5, 700, 5_000)))
        self._snapshots.append((server, data["snapshot_id"]))
        misrouted = draw.below(self.archive.partitions) if draw.chance(0.05) else None
        self._publish(Role.SNAPSHOTS, "mcp.tools.list.observed", server, data, at=at, partition=misrouted)

    def _signature(self, entry: Json) -> Any:
        draw = self._draw
        text = entry["signatures"][draw.one_of(["first", "first", "first", "second"])]
        if draw.chance(0.1):
            text = draw.one_of(["bm90IGEgc2lnbmF0dXJl", "no base64!", ""])
        if draw.chance(0.1):
            return text
        return {"signature": text, "domain": draw.one_of(["example.com"] * 5 + ["example.org"])}

    def _change(self, server: str) -> None:
        draw, offered = self._draw, self._offered[server]
        tools = pool()["tools"]
        if not offered or draw.chance(0.25):
            offered.append(draw.one_of(tools))
            return
        place = draw.below(len(offered))
        entry = offered[place]
        match draw.below(8):
            case 0:
                del offered[place]
            case 1:  # another name for the same definition
                offered[place] = {"tool": entry["tool"] | {"name": draw.one_of(tools)["tool"]["name"]}}
            case 2 | 3:
                offered[place] = {"tool": entry["tool"] | {"description": draw.one_of(pool()["texts"])}}
            case 4:  # the name stands twice
                offered.append({"tool": entry["tool"] | {"description": draw.one_of(pool()["texts"])}})
            case _:
                name = entry.get("base")
                offered[place] = draw.one_of([other for other in tools if other["base"] == name] or tools)

    def _call(self, server: str) -> None:
        draw, number = self._draw, self._number
        offered = self._offered[server]
        known = [entry["tool"].get("name") for entry in offered]
        name = draw.one_of(known) if known and draw.chance(0.85) else draw.one_of(["ghost", "read_file"])
        data: Json = {
            "server_id": server,
            "observer_id": draw.one_of([*OBSERVERS, "proxy-4"]),
            "tool_name": name,
            "tool_call_id": f"call-{number}",
            "decision": draw.one_of(["allow"] * 4 + ["deny", "requires_approval", "error"]),
            "reason_code": draw.one_of(["P_POLICY_ALLOW", "P_TOOL_DRIFT", "forwarded"]),
        }
        if draw.chance(0.5) and self._snapshots:
            data["snapshot_id"] = draw.one_of(self._snapshots[-6:])[1]
        if draw.chance(0.05):
            data["snapshot_id"] = "never-seen"
        self._describe(data, offered)
        headers: list[tuple[str, str]] = []
        if draw.chance(0.25):
            for name in ("args", "result", "error"):
                data.pop(name, None)
            data |= self._handshake_fields()
        at = self._now - timedelta(seconds=draw.one_of((0, 0, 0, 0, 1, 100)))
        partition = draw.below(2)
        attributes = {"traceparent": f"00-{number:032x}-{number:016x}-01"} if draw.chance(0.2) else {}
        if draw.chance(0.1):
            event = an_event("mcp.tools.call.observed", number, at, data, **attributes)
            value = json.dumps(event.pop("data")).encode()
            headers = [(f"ce_{attribute}", text) for attribute, text in event.items()]
            headers.append(("content-type", "application/json"))
            self.archive.add(Role.CALLS, value, key=server.encode(), at=self._now, partition=partition, headers=headers)
            return
        self._publish(Role.CALLS, "mcp.tools.call.observed", server, data, at=at, partition=partition, **attributes)

    def _describe(self, data: Json, offered: list[Json]) -> None:  # noqa: C901 -- a branch for each field
        draw, number = self._draw, self._number
        if draw.chance(0.4):
            data["args"] = {"path": f"/srv/{number}", "note": draw.one_of(_SECRETS), "api_key": "k" * number}
        elif draw.chance(0.3):
            data["args_hash"] = f"sha256:{number:064x}"
        if draw.chance(0.3):
            text = {"type": "text", "text": draw.one_of(_SECRETS)}
            data["result"] = draw.one_of([None, 1.5, [text], {"content": [text], "isError": draw.chance(0.5)}])
        if draw.chance(0.3):
            data["ok"] = draw.chance(0.7)
        if draw.chance(0.1):
            data["error"] = {"code": "E_TIMEOUT", "kind": "timeout", "message": draw.one_of(_SECRETS)}
        if draw.chance(0.3):
            data["timing"] = {"started_at": rfc3339(self._now), "duration_ms": draw.one_of([0, 1, 0.5, 1234.25])}
        if draw.chance(0.4):
            data["actor"] = {"kind": draw.one_of(["agent", "human", "system"]), "agent_id": f"agent-{number % 3}"}
        if draw.chance(0.3):
            data["trace_id"] = f"{number:032x}"
        if draw.chance(0.2):
            data |= {"delegated_from": "agent-0", "delegation_depth": number % 4, "side_effect": "WRITE"}
        if draw.chance(0.2):
            data |= _POLICY_CLUSTER
            if draw.chance(0.1):
                del data[draw.one_of(sorted(_POLICY_CLUSTER))]
        if draw.chance(0.15):
            entry = draw.one_of(pool()["tools"] + offered)
            digest = entry.get("values", {}).get("assay.v1", "sha256:" + "0" * 64)
            data |= _DEFINITION_CLUSTER | {"tool_definition_digest": digest}
            if draw.chance(0.1):
                del data[draw.one_of(sorted(_DEFINITION_CLUSTER))]

    def _handshake_fields(self) -> Json:
        number, draw = self._number, self._draw
        fields: Json = {
            "profile": "handshake",
            "tool_call_id": f"22222222-2222-4222-8222-{number:012d}",
            "trace_id": "11111111-1111-4111-8111-111111111111",
            "tool_id": "mcp.fs.read_file",
            "tool_version": draw.one_of(["1.0.0", "2.1.0", "1"]),
            "transport": "mcp",
            "side_effect": draw.one_of(["READ", "WRITE", "EXECUTE"]),
            "idempotency": draw.one_of(["IDEMPOTENT_WITH_KEY", "IDEMPOTENT", "NON_IDEMPOTENT"]),
            "idempotency_key": "key-1",
            "actor": {"kind": "agent", "agent_id": None},
            "ok": True,
            "args_ref": "artifact://tool/args/1",
            "args_hash": "0" * 64,
            "result_ref": "artifact://tool/result/1",
            "timing": {"started_at": "2026-01-01T00:00:00Z", "ended_at": "2026-01-01T00:00:01Z", "duration_ms": 1000},
        }
        if draw.chance(0.3):
            del fields[draw.one_of(sorted(fields))]
        return fields

    def _decide(self, server: str) -> None:
        draw = self._draw
        entry = draw.one_of([entry for entry in self._offered[server] if "values" in entry] or pool()["tools"])
        variants = [other for other in pool()["tools"] if other["base"] == entry["base"]]
        tool = entry["tool"]["name"]
        scheme = draw.one_of(_SCHEMES)
        value = draw.one_of([entry, entry, *variants])["values"].get(scheme, "0" * 64)
        keys = pool()["fingerprints"]
        kinds = ["pin.set"] * 4 + ["pin.reject", "pin.remove", "policy.set", "policy.set", "key.accept", "key.revoke"]
        kind = draw.one_of(kinds)
        data: Json
        match kind:
            case "pin.set" | "pin.reject":
                data = {"tool_name": tool, "scheme": scheme, "value": value}
            case "pin.remove":
                data = {"tool_name": tool, "scheme": scheme, "value": draw.one_of([None, value])}
            case "policy.set":
                data = {
                    "tool_name": draw.one_of([None, tool]),
                    "enforcement": draw.one_of(["audit", "warn", "block"]),
                    "unknown": draw.one_of(["allow_degraded", "allow_unverified", "warn", "block"]),
                }
            case "key.accept":
                data = {
                    "domain": "example.com",
                    "fingerprint": draw.one_of([keys["first"], keys["second"]]),
                    "tool_name": draw.one_of([None, tool]),
                }
            case _:
                data = {"fingerprint": draw.one_of([keys["first"], keys["second"]])}
        self._control(kind, server, data)

    def _discover(self, server: str) -> None:
        draw = self._draw
        what = draw.one_of(["first"] * 4 + ["second", "revoked", "failed", "nonsense", "old"])
        data: Json = {"domain": draw.one_of(["example.com"] * 4 + ["example.org"]), "server_id": server}
        if what == "failed":
            data |= {"status": "fetch_failed", "error_code": "discovery_fetch_failed", "detail": "timed out"}
        elif what == "nonsense":
            data |= {"status": "observed", "document": {"schema_version": "1.1"}}
        else:
            data |= {"status": "observed", "document": pool()["documents"][what]}
        self._publish(Role.CONTROL, "assay.control.discovery.observed", server, data, at=self._now)

    def _suppress(self, server: str) -> None:
        draw = self._draw
        scope, name = draw.one_of([server, server, "*"]), f"rule-{draw.below(4)}"
        if draw.chance(0.3):
            self._control("suppression.remove", scope, {"id": name})
            return
        data: Json = {"id": name}
        if draw.chance(0.5):
            data["kind"] = draw.one_of(_KINDS.split())
        if draw.chance(0.4):
            data["tool"] = draw.one_of(["read_*", "*", "write_file", "[gs]*", "se?rch"])
        if draw.chance(0.2):
            data["field"] = draw.one_of(_FIELDS)
        if draw.chance(0.4):
            data["until"] = rfc3339(self._now + timedelta(hours=1 + draw.below(50)))
        self._control("suppression.set", scope, data)

    def _control(self, kind: str, server: str, data: Json) -> None:
        decided = {"server_id": server, "author": "ann", "reason": f"ticket {self._number}"} | data
        self._publish(Role.CONTROL, f"assay.control.{kind}", server, decided, at=self._now)

    def _announce(self, server: str) -> None:
        draw = self._draw
        data: Json = {"server_id": server, "observer_id": draw.one_of(OBSERVERS)}
        if draw.chance(0.5):
            data["session_id"] = f"session-{draw.below(3)}"
        self._publish(Role.SNAPSHOTS, "mcp.tools.list_changed.observed", server, data, at=self._now)

    def _garble(self, server: str) -> None:
        """Publish what nobody can read, or what a worker was told to leave alone."""
        draw = self._draw
        role = draw.one_of([Role.SNAPSHOTS, Role.CONTROL, Role.CALLS])
        value = draw.one_of(_GARBAGE)
        key = draw.one_of([server.encode(), None, b"\xff", b""])
        self.archive.add(role, value, key=key, at=self._now, partition=0, set_aside=draw.chance(0.2))

    def _break(self, server: str) -> None:
        draw = self._draw
        data: Json = {
            "server_id": server,
            "observer_id": "proxy-1",
            "snapshot_id": f"snapshot-{self._number}",
            "server_scoped": True,
            "completeness": "complete",
            "tools": [],
            "tool_name": "read_file",
            "tool_call_id": f"call-{self._number}",
            "decision": "allow",
            "reason_code": "P_POLICY_ALLOW",
            "author": "ann",
            "reason": "r",
            "enforcement": "warn",
            "unknown": "warn",
        }
        role, kind = draw.one_of(
            [
                (Role.SNAPSHOTS, "mcp.tools.list.observed"),
                (Role.CALLS, "mcp.tools.call.observed"),
                (Role.CONTROL, "assay.control.policy.set"),
                (Role.CALLS, "mcp.tools.list.observed"),
                (Role.CONTROL, "assay.control.unheard_of"),
            ]
        )
        name = draw.one_of(sorted(data))
        wrong: Any = draw.one_of([None, 7, "", " ", "perhaps", [], {"a": 1}, "x" * 2_000, True])
        event = an_event(kind, self._number, self._now, data | {name: wrong})
        if draw.chance(0.3):
            event[draw.one_of(sorted(event))] = draw.one_of(
                [None, 1, "2026-13-01T00:00:00Z", "", "1970-01-01T00:00:00Z"]
            )
        self.archive.add(role, json.dumps(event).encode(), key=server.encode(), at=self._now)

    def _publish(
        self,
        role: Role,
        kind: str,
        server: str,
        data: Json,
        *,
        at: datetime,
        partition: int | None = None,
        **attributes: Any,
    ) -> None:
        event = an_event(kind, self._number, at, data, **attributes)
        value = json.dumps(event, ensure_ascii=self._draw.chance(0.5)).encode("utf-8", "surrogatepass")
        self.archive.add(role, value, key=server.encode(), at=self._now, partition=partition)
