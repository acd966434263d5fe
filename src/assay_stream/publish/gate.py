"""The gate: what an enforcing tap lets through. A state machine without clock, chance or I/O.

Rules:

1. A ``tools/call`` that is ruled ``block`` never reaches the server. Its caller gets a JSON-RPC error that says
   why, and the call is published as denied.
2. The definition that counts is the one this client was given by the last list that passed here.
3. A line from the client that strict decoding refuses does not pass: a server that reads it otherwise than we do
   could be made to obey a call that was not ruled on.
4. Of a batch with a blocked call nothing passes: every request in it is answered with an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from assay_stream.core.errors import InputError
from assay_stream.core.fingerprint import Fingerprint, fingerprint
from assay_stream.core.limits import DEFAULT_LIMITS
from assay_stream.publish.events import Observation
from assay_stream.publish.jsonrpc import Line, params_of, read_line
from assay_stream.publish.mcp_wire import WireObserver
from assay_stream.publish.ruling import Ruling
from assay_stream.publish.vantage import Vantage
from assay_stream.schemes.hangar import Action

BLOCKED_CODE = -32050
"""JSON-RPC error code of a blocked call, in the range that the standard leaves to implementations."""

INVALID_REQUEST_CODE = -32600

Rule = Callable[[str, str, Fingerprint | None], Ruling]


@dataclass(frozen=True, slots=True)
class Passage:
    """What becomes of a line from the client.

    Args:
        forward: whether the server gets it.
        reply: what the client gets instead, a line with its line feed; empty where nobody waits for an answer.
        observations: what is to be published.
        warnings: names of tools whose calls passed although their definition gives cause for concern.
    """

    forward: bool
    reply: bytes = b""
    observations: list[Observation] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


class Gate:
    """Rules on the lines of one connection.

    Args:
        vantage: who observes which server.
        observer: the state machine of the same connection; the gate feeds it.
        rule: what to do with a call: server, tool and the fingerprint of its definition, if that is known.
    """

    def __init__(self, vantage: Vantage, observer: WireObserver, rule: Rule) -> None:
        self._vantage = vantage
        self._observer = observer
        self._rule = rule
        self._list: tuple[Any, ...] = ()
        self._definitions: dict[str, Fingerprint | None] = {}

    def inward(self, raw: bytes, at: datetime) -> Passage:
        """Rule on a line from the client.

        Args:
            raw: the line.
            at: when it was seen; must know its time zone.
        """
        if not raw.strip():
            return Passage(forward=True)
        line = read_line(raw.strip(b" \t\r\n"), DEFAULT_LIMITS)
        if not line.exact:
            observations = self._observer.refuse(raw, "inexact_json", at)
            return Passage(forward=False, reply=_refusals(raw, line, None), observations=observations)
        rulings = [(message, self._ruling(message)) for message in line.messages]
        blocked = [(message, ruling) for message, ruling in rulings if ruling and ruling.action is Action.BLOCK]
        if blocked:
            reasons = {id(message): ruling for message, ruling in blocked}
            observations = self._observer.refuse(raw, blocked[0][1].reason_code, at)
            reply = _refusals(raw, line, lambda message: self._why(message, reasons.get(id(message))))
            return Passage(forward=False, reply=reply, observations=observations)
        warnings = [
            str(params_of(message).get("name"))
            for message, ruling in rulings
            if ruling is not None and ruling.action is Action.WARN
        ]
        return Passage(
            forward=True, observations=self._observer.feed("client->server", raw, at), warnings=warnings
        )

    def outward(self, raw: bytes, at: datetime) -> list[Observation]:
        """Take note of a line from the server.

        Args:
            raw: the line.
            at: when it was seen; must know its time zone.
        """
        return self._observer.feed("server->client", raw, at)

    def missed(self, at: datetime) -> list[Observation]:
        """Note a line from the server that could not be looked at: what it listed is not known.

        Args:
            at: when; must know its time zone.
        """
        return self._observer.missed("server->client", at)

    def _ruling(self, message: Mapping[str, Any]) -> Ruling | None:
        if message.get("method") != "tools/call":
            return None
        name = params_of(message).get("name")
        name = name if isinstance(name, str) else ""
        return self._rule(self._vantage.server_id, name, self._definition(name))

    def _definition(self, name: str) -> Fingerprint | None:
        tools = self._observer.tools
        if tools is not self._list:
            self._list = tools
            self._definitions = self._fingerprints(tools)
        return self._definitions.get(name)

    def _fingerprints(self, tools: tuple[Any, ...]) -> dict[str, Fingerprint | None]:
        scope = self._vantage.server_id if self._vantage.server_scoped else None
        found: dict[str, Fingerprint | None] = {}
        for tool in tools:
            name = tool.get("name") if isinstance(tool, dict) else None
            if not isinstance(name, str):
                continue
            try:
                print_ = fingerprint(tool, server_id=scope)
            except InputError:
                found[name] = None
                continue
            # A name that stands twice with different definitions is no definition.
            found[name] = print_ if found.setdefault(name, print_) == print_ else None
        return found

    def _why(self, message: Mapping[str, Any], ruling: Ruling | None) -> dict[str, Any]:
        server_id = self._vantage.server_id
        if ruling is None:
            return _error(BLOCKED_CODE, "assay-stream: another call of this batch is blocked", "batch_blocked", {})
        name = params_of(message).get("name")
        detail: dict[str, Any] = {"server_id": server_id, "tool_name": name, "reason_code": ruling.reason_code}
        if ruling.result is not None:
            detail |= ruling.result.as_json()
        if ruling.reason_code == "verdicts_unavailable":
            text = "the verdicts of the digest policy are not known yet; try again, or see why Kafka is away"
        else:
            text = (
                "the digest policy blocks this call. An operator can look at the change (assay-stream pins diff) "
                "and approve it (assay-stream pins approve)"
            )
        return _error(BLOCKED_CODE, f"assay-stream: {text}", "call_blocked", detail)


def _refusals(raw: bytes, line: Line, why: Callable[[Mapping[str, Any]], dict[str, Any]] | None) -> bytes:
    """Return the answers to every request of a line that does not pass, in the form it came in."""
    inexact = _error(
        INVALID_REQUEST_CODE,
        "assay-stream: the line is not sound JSON, so it is not clear what it asks for; it was not passed on",
        "inexact_json",
        {},
    )
    answers: list[dict[str, Any]] = [
        {"jsonrpc": "2.0", "id": message["id"], "error": inexact if why is None else why(message)}
        for message in line.messages
        if "method" in message and isinstance(message.get("id"), str | int | float)
    ]
    if not line.messages:
        answers = [{"jsonrpc": "2.0", "id": None, "error": inexact}]
    if not answers:
        return b""
    is_batch = raw.lstrip().startswith(b"[")
    # Not orjson: an id may be any number, and the answer must carry it as it came.
    return json.dumps(answers if is_batch else answers[0]).encode() + b"\n"


def _error(code: int, message: str, name: str, detail: dict[str, Any]) -> dict[str, Any]:
    return {"code": code, "message": message, "data": {"code": name, **detail}}
