"""A gate under test: a connection with pins and a policy, line by line."""

import json
from dataclasses import replace
from typing import Any

import orjson
import pytest

from assay_stream.bindings.controls import PinsInForce, Ruling, VerdictTable, check_pins
from assay_stream.observe.gate import Gate, HidingGate, Rule
from assay_stream.observe.session import ClientSaid, Commands, Missed, ServerSaid
from assay_stream.observe.wire import Direction
from assay_stream.registry.step import verdict_key
from assay_stream.schemes.fingerprint import Fingerprint, fingerprint
from assay_stream.schemes.hangar import Action, DigestPolicy
from tests.support.mcp_dialogue import START, THE_VANTAGE, InPieces, counted_ids

SERVER = THE_VANTAGE.server_id


def a_tool(name: str = "read", description: str = "Reads.", **fields: Any) -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}, **fields}


def value_of(tool: dict[str, Any], scheme: str = "assay.p60") -> str:
    return fingerprint(tool, server_id=SERVER).schemes[scheme]


def a_verdict(
    *,
    approved: dict[str, str] | None = None,
    rejected: dict[str, list[str]] | None = None,
    enforcement: str | None = "block",
    unknown: str = "allow_degraded",
    fleet: dict[str, Any] | None = None,
    general: bool = False,
) -> bytes:
    """A verdict as the stream writes it: pins, policy, and what the fleet sees (a definition, or nothing)."""
    policy = None
    if enforcement is not None:
        policy = DigestPolicy(enforcement=enforcement, unknown=unknown)
    pins = PinsInForce(
        approved=approved or {}, rejected={name: tuple(values) for name, values in (rejected or {}).items()}
    )
    seen = None if fleet is None else fingerprint(fleet, server_id=SERVER)
    content: dict[str, Any] = {"server_id": SERVER, **check_pins(pins, seen, policy=policy).as_json()}
    content.setdefault("action", "allow")
    if not general:
        content |= {"tool_name": "t", "pins": approved or {}, "rejected": rejected or {}}
    if policy is not None:
        content["policy"] = {"enforcement": enforcement, "unknown": unknown}
    return orjson.dumps(content)


def a_table(**verdicts: bytes) -> VerdictTable:
    """A verdict table by tool; the name ``everything`` stands for the server's other tools."""
    table = VerdictTable()
    for name, value in verdicts.items():
        table.apply(verdict_key(SERVER, None if name == "everything" else name), value)
    return table


def pinned(tool: dict[str, Any], **options: Any) -> VerdictTable:
    """A table with one tool pinned to a definition, blocked where it differs; the fleet sees that definition."""
    verdict = a_verdict(approved={"assay.p60": value_of(tool)}, fleet=tool, **options)
    return a_table(**{tool["name"]: verdict})


class Connection:
    """Every line passes the gate whole, and another one in pieces, unless ``cut`` says otherwise."""

    def __init__(self, table: VerdictTable | None = None, *, hide: bool = False, cut: bool = True) -> None:
        self.table = table or VerdictTable()
        gate = HidingGate if hide else Gate
        self.gate = gate(THE_VANTAGE, **counted_ids(), decide=self.rule)
        self._pieces = InPieces(gate(THE_VANTAGE, **counted_ids(), decide=self._again)) if cut else None
        self.asked: list[tuple[str, Fingerprint | None]] = []

    def rule(self, server_id: str, tool_name: str, definition: Fingerprint | None) -> Ruling:
        self.asked.append((tool_name, definition))
        return self.table.rule(server_id, tool_name, definition)

    def _again(self, *of: Any) -> Ruling:
        before = len(self.asked)
        ruling = self.gate.decide(*of)
        del self.asked[before:]
        return ruling

    def _passes(self, direction: Direction, message: object) -> Commands:
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        commands = self.gate.receive(ClientSaid(line) if direction == "client->server" else ServerSaid(line), START)
        if b"\n" in line:
            self._pieces = None  # two lines to a pipe
        if self._pieces is not None:
            passed = None if commands.forward is None else commands.forward + b"\n"
            assert self._pieces.passes(direction, line, START) == replace(commands, forward=passed)
        return commands

    def misses(self, direction: Direction = "server->client") -> Commands:
        """A message passes that could not be inspected."""
        if self._pieces is not None:
            self._pieces.session.receive(Missed(direction), START)
        return self.gate.receive(Missed(direction), START)

    def client(self, message: object) -> Commands:
        return self._passes("client->server", message)

    def server(self, message: object) -> list[dict[str, Any]]:
        """The server says something, and the client gets it; the data of what is observed."""
        shown = self.shows(message)
        for each in (self.gate, *([] if self._pieces is None else [self._pieces.session])):
            each.offered.delivered()
        return [json.loads(each.value)["data"] for each in shown.observations]

    def shows(self, message: object) -> Commands:
        """The server says something that has not reached the client yet."""
        return self._passes("server->client", message)

    def asks_list(self, number: object = 1, **params: Any) -> None:
        assert self.client({"jsonrpc": "2.0", "id": number, "method": "tools/list", "params": params}).forward

    def lists(self, *tools: Any, number: object = 1, cursor: str | None = None, more: str | None = None) -> None:
        self.asks_list(number, **({} if cursor is None else {"cursor": cursor}))
        self.answers(*tools, number=number, more=more)

    def answers(self, *tools: Any, number: object = 1, more: str | None = None) -> None:
        result = {"tools": list(tools)} | ({} if more is None else {"nextCursor": more})
        self.server({"jsonrpc": "2.0", "id": number, "result": result})

    def calls(self, name: object = "read", number: object = 7) -> Commands:
        return self.client(a_call(name, number))


def a_call(name: object = "read", number: object = 7) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": name, "arguments": {}}}


def answer(passage: Commands) -> Any:
    assert passage.forward is None
    assert passage.reply.endswith(b"\n")
    assert passage.reply.count(b"\n") == 1
    return json.loads(passage.reply, parse_constant=pytest.fail)


def denied(passage: Commands) -> list[tuple[str, str]]:
    """Tool and reason of the calls that are published as denied; all of them must be."""
    events = [json.loads(each.value)["data"] for each in passage.observations]
    assert {event["decision"] for event in events} <= {"deny"}
    return [(event["tool_name"], event["reason_code"]) for event in events]


def blocking(name: str) -> Rule:
    return lambda _, tool_name, __: BLOCK if tool_name == name else ALLOW


BLOCK = Ruling(action=Action.BLOCK, reason_code="definition_mismatch")
ALLOW = Ruling(action=Action.ALLOW, reason_code="definition_match")
