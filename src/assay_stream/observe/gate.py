"""The gate of an enforcing tap: a deterministic state machine without clock or I/O.

Rules:

1. A ``tools/call`` whose ruling is ``block`` never reaches the server. Its caller gets a JSON-RPC error that says
   why, and the call is published as denied.
2. The definitions that count are the latest that this client received under the name (``observe.lists``), and those on
   their way to it; of several, the one with the worst ruling. While a list is in doubt, every pinned tool counts as
   unreadable. So does a pinned tool missing from the list that follows an announced change; until that list nothing
   changes.
3. A line from the client that is not sound JSON, not made of messages, or ambiguous does not pass: a server that
   reads it differently could be made to obey a call that was never ruled on.
4. Nothing passes of a batch with a blocked call: every request in it is answered with an error.
5. An ambiguous line from the server leaves the pending list in doubt, also if it is the answer.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from itertools import islice
from types import MappingProxyType
from typing import Any, ClassVar

from assay_stream.bindings.controls import ACTION_WEIGHT, NO_VERDICT, UNREADABLE, WITHDRAWN, Ruling
from assay_stream.bindings.offers import content_key
from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.observe.calls import CALL
from assay_stream.observe.lists import HiddenTool
from assay_stream.observe.observation import Observation
from assay_stream.observe.session import Commands, Failed, Session
from assay_stream.observe.wire import (
    BLOCKED_CODE,
    EVENT_BREAK,
    HEADER_MISMATCH_CODE,
    INVALID_REQUEST_CODE,
    LINE_BREAK,
    Direction,
    Line,
    error_of,
    is_ambiguous,
    is_response,
    listed_in,
    may_list,
    params_of,
    request_key,
)
from assay_stream.schemes.fingerprint import ContentCache, Fingerprint, fingerprint
from assay_stream.schemes.hangar import Action

Rule = Callable[[str, str, Fingerprint | None], Ruling]
"""Returns the ruling on a call, given its server, its tool, and the fingerprint of the tool's definition if known."""

_HELD_BACK = {
    "inexact_json": "the line is not sound JSON, so its meaning is unclear",
    "ambiguous_message": "programs may read the line in different ways, so its meaning is unclear",
    "not_a_message": "the line is not made of JSON-RPC messages",
    "tool_not_named": "the call names no tool",
    "body_unclear": "the body is not, or not only, JSON in UTF-8 by its headers, so its meaning is unclear",
    "header_mismatch": "a header comes twice, or does not say what the message says",
    "not_ruled_on": "the line could not be ruled on",
}
_CODES = {"header_mismatch": HEADER_MISMATCH_CODE, "not_ruled_on": BLOCKED_CODE}
_BLOCKED = f"jsonrpc_{BLOCKED_CODE}"
"""Outcome of a call whose answer is withheld: to the client it fails, whatever the server sent."""

_DEFINITIONS_KEPT = 1_024

_WITHHELD = {
    "list_unreadable": "the message may hold a list of tools, and is ambiguous, so it was not passed on",
    "verdicts_unavailable": "no verdicts of the digest policy have been read yet, so no tools are shown; try again",
    "not_inspected": "the message could not be inspected, so it was not passed on",
}


_fingerprints: ContentCache[Fingerprint] = ContentCache(_DEFINITIONS_KEPT)
"""By content, so that it does not matter whose: most sessions with a server are given the same list."""


@dataclass(eq=False, repr=False)
class Gate(Session):
    """Rule on the messages of one connection. Times must be timezone-aware.

    Args:
        decide: what to do with a call.
        over_http: whether messages are bodies and server-sent events instead of lines.
    """

    enforces: ClassVar[bool] = True

    _: KW_ONLY
    decide: Rule
    over_http: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._breaks = EVENT_BREAK if self.over_http else LINE_BREAK
        self.offered.deferred = True  # ``delivered`` says when the client has a list

    def rule(self, line: Line, raw: bytes, at: datetime) -> Commands:
        unclear = _unclear(line, raw, None if self.over_http else LINE_BREAK)
        if unclear is not None:
            return self._held_back(line, at, unclear)
        rulings = {id(message): self._ruling(message) for message in line.messages if message.get("method") == CALL}
        blocked = {call: ruling.reason_code for call, ruling in rulings.items() if ruling.action is Action.BLOCK}
        if blocked:
            observations = self.refuse(line, lambda call: blocked.get(id(call), "batch_blocked"), at)
            reply = _refusals(line, lambda message: self._why(message, rulings.get(id(message))))
            return Commands(observations=observations, reply=reply)
        warned = [
            params_of(message)["name"][: DEFAULT_LIMITS.identifier_chars_max]
            for message in line.messages
            if id(message) in rulings and rulings[id(message)].action is Action.WARN
        ]
        return Commands(raw, warnings=warned)

    def _held_back(
        self, line: Line, at: datetime, reason: str, detail: Mapping[str, str] = MappingProxyType({})
    ) -> Commands:
        observations = self.refuse(line, lambda _: reason, at)
        code = _CODES.get(reason, INVALID_REQUEST_CODE)
        error = error_of(code, f"{_HELD_BACK[reason]}; it was not passed on", reason, **detail)
        reply = _refusals(line, lambda _: error)
        return Commands(observations=observations, reply=reply, is_bad_request=code != BLOCKED_CODE)

    def _failed(self, event: Failed, at: datetime) -> Commands:
        return self._held_back(self.read(event.raw), at, event.reason, event.detail)

    def _from_server(self, line: Line, raw: bytes, at: datetime, exchange: int) -> Commands:
        return Commands(raw, self._look(line, raw, at, exchange))

    def _look(
        self,
        line: Line,
        raw: bytes,
        at: datetime,
        exchange: int,
        hidden: Mapping[int, Sequence[HiddenTool]] | None = None,
    ) -> list[Observation]:
        # On another stream it answers no list, but a client that goes by the id may take it for one.
        is_awaited = self.awaits_list(exchange) or (self.awaits_list() and may_list(raw))
        is_doubtful = is_awaited and (not line.exact or is_ambiguous(line, raw, self._breaks))
        observations = self.take("server->client", line, raw, at, exchange=exchange, hidden=hidden or {})
        if is_doubtful and self.awaits_list(exchange):
            observations += self.missed("server->client", at, exchange=exchange)
        elif is_doubtful:
            self.offered.doubt()  # the answer may hold another list, or one in other capitals
        return observations

    def _ruling(self, call: Mapping[str, Any]) -> Ruling:
        name, server_id, offered = params_of(call)["name"], self.vantage.server_id, self.offered
        definitions: list[Fingerprint | None]
        if offered.in_doubt:
            definitions = [UNREADABLE]
        elif offered.is_withdrawn(name):
            definitions = [WITHDRAWN]
        else:
            given = offered.of(name)
            prints = [self._fingerprint(tool) for tool in (*given, *offered.on_the_way(name))]
            definitions = [*prints] if given else [None, *prints]
        rulings = [self.decide(server_id, name, each) for each in definitions]
        return max(rulings, key=lambda ruling: ACTION_WEIGHT[ruling.action])

    def _fingerprint(self, tool: dict[str, Any]) -> Fingerprint:
        vantage = self.vantage
        scope = vantage.server_id if vantage.server_scoped else None
        content = content_key(tool, scope)
        found = _fingerprints.get(content) if content else None
        if found is None:
            try:
                found = fingerprint(tool, server_id=scope)
            except InputError:
                found = UNREADABLE
            if content:
                _fingerprints.put(content, found)
        return found

    def _why(self, message: Mapping[str, Any], ruling: Ruling | None) -> dict[str, Any]:
        if ruling is None or ruling.action is not Action.BLOCK:
            return error_of(BLOCKED_CODE, "another call of this batch is blocked", "batch_blocked")
        detail: dict[str, Any] = {} if ruling.result is None else dict(ruling.result.as_json())
        detail |= {
            "server_id": self.vantage.server_id,
            "tool_name": params_of(message)["name"],
            "reason_code": ruling.reason_code,
        }
        if ruling.reason_code == "verdicts_unavailable":
            text = "no verdicts of the digest policy have been read yet; try again, or check the connection to Kafka"
        else:
            text = (
                f"the digest policy blocks this call ({ruling.reason_code}). An operator can review the change "
                "(assay-stream pins diff) and approve it (assay-stream pins approve)"
            )
        return error_of(BLOCKED_CODE, text, "call_blocked", **detail)


def _unclear(line: Line, raw: bytes, breaks: re.Pattern[bytes] | None) -> str | None:
    if not line.exact:
        return "inexact_json"
    if not line.whole or any(not isinstance(message.get("method", ""), str) for message in line.messages):
        return "not_a_message"
    if is_ambiguous(line, raw, breaks):
        return "ambiguous_message"
    calls = [message for message in line.messages if message.get("method") == CALL]
    return "tool_not_named" if any(not isinstance(params_of(call).get("name"), str) for call in calls) else None


def _refusals(line: Line, why: Callable[[Mapping[str, Any]], dict[str, Any]]) -> bytes:
    answers = [
        {"jsonrpc": "2.0", "id": answerable(message["id"]), "error": why(message)}
        for message in line.messages
        if "method" in message and "id" in message
    ]
    if not line.messages:
        # JSON-RPC 2.0, section 5: the id is null if it could not be determined.
        answers = [{"jsonrpc": "2.0", "id": None, "error": why({})}]
    if not answers:
        return b""
    # Not orjson: an id may be any number, and the answer must carry it unchanged.
    return json.dumps(answers if line.batch and line.messages else answers[0], allow_nan=False).encode() + b"\n"


def answerable(value: object) -> int | float | str | None:
    """Return an id for a response: null unless it is a string or a finite number."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return None if isinstance(value, float) and not math.isfinite(value) else value


class HidingGate(Gate):
    """Rule on the messages of one connection, and drop refused tools from lists.

    Rules:

    1. A response whose result has ``tools`` is a list, whatever its id: ids are easy to guess, and a server can answer
       before it was asked. So is the answer to a request for one. Only the one answer to a call that waits for it is
       none: its client takes it for the call's. A list that is no array ``tools`` of the result is withheld.
    2. An entry is dropped if a call of it would be refused; with it goes every entry of the same name in that message.
       An entry without a name is ruled on as an undecided tool.
    3. A message with nothing to drop passes unchanged. Any other is re-encoded with equal values.
    4. A message that may hold a list and that programs may read in different ways is withheld: the requester gets an
       error. So is a list while no verdicts are known, if calls are refused then.
    """

    hides: ClassVar[bool] = True

    def _from_server(self, line: Line, raw: bytes, at: datetime, exchange: int) -> Commands:
        lists = self._lists_in(line, exchange)
        is_list = all(listed_in(message) is not None and "tools" not in message for message in lists)
        is_clear = line.exact and line.whole and not is_ambiguous(line, raw, self._breaks)
        if not is_list or (not is_clear and (lists or may_list(raw))):
            # The client gets no list, but the registry must hear of it.
            known = self.withheld(line, _BLOCKED, at, exchange=exchange)
            if is_clear or not line.exact:
                known += self._look(line, raw, at, exchange)
            else:
                known += self.missed("server->client", at, exchange=exchange)
            return self._withheld("list_unreadable", line, exchange, known)
        if not lists:
            return Commands(raw, self._look(line, raw, at, exchange))
        dropped = {id(message): self._dropped(listed_in(message) or ()) for message in lists}
        refusals = [refusal for each in dropped.values() for refusal in each]
        hidden = {
            place: [HiddenTool(_name_of(tool), print_.full) for tool, print_, _ in each if print_.full]
            for place, each in dropped.items()
        }
        is_withheld = any(ruling.reason_code == "verdicts_unavailable" for _, _, ruling in refusals)
        observations = self.withheld(line, _BLOCKED, at, exchange=exchange) if is_withheld else []
        observations += self._look(line, raw, at, exchange, hidden)
        if is_withheld:
            return self._withheld("verdicts_unavailable", line, exchange, observations)
        shown = _without(line, {id(tool) for tool, _, _ in refusals}) if refusals else raw
        return Commands(shown, observations, hidden=tuple(_name_of(tool) for tool, _, _ in refusals))

    def _lists_in(self, line: Line, exchange: int) -> list[dict[str, Any]]:
        """Return the messages of a line that some client may take for a list of tools."""
        answered: set[object] = set()
        found = []
        for message in line.messages:
            result = message.get("result")
            is_first = (key := request_key(message.get("id"))) not in answered
            if is_first and self.answers_call(message, exchange):
                answered.add(key)
            elif (
                (isinstance(result, dict) and result.get("tools") is not None)
                or (is_response(message) and message.get("tools") is not None)
                or (result is not None and self.answers_list(message, exchange))
            ):
                found.append(message)
        return found

    def _missed(self, direction: Direction, at: datetime, exchange: int) -> Commands:
        observations = self.missed(direction, at, exchange=exchange)
        return self._withheld("not_inspected", Line((), exact=False), exchange, observations)

    def _dropped(self, tools: Iterable[Any]) -> list[tuple[Any, Fingerprint, Ruling]]:
        entries, server_id = list[tuple[Any, Fingerprint, Ruling]](), self.vantage.server_id
        for tool in tools:
            print_, ruling = UNREADABLE, self.decide(server_id, _name_of(tool), UNREADABLE)
            if ruling is not NO_VERDICT and isinstance(tool, dict):
                print_ = self._fingerprint(tool)
                ruling = self.decide(server_id, _name_of(tool), print_)
            entries.append((tool, print_, ruling))
        refused = {_name_of(tool) for tool, _, ruling in entries if ruling.action is Action.BLOCK}
        return [entry for entry in entries if _name_of(entry[0]) in refused]

    def _withheld(self, code: str, line: Line, exchange: int, observations: list[Observation]) -> Commands:
        named = [answerable(message.get("id")) for message in line.messages if is_response(message)]
        ids: list[int | float | str | None] = [each for each in named if each is not None] or [
            answerable(key[1]) for key in islice(self.lists.for_tools(exchange), 1)
        ]
        error = error_of(BLOCKED_CODE, _WITHHELD[code], code)
        answers = [{"jsonrpc": "2.0", "id": each, "error": error} for each in ids or (None,)]
        text = json.dumps(answers if line.batch else answers[0], allow_nan=False).encode()
        return Commands(text, observations, withheld=1)


def _name_of(tool: Any) -> str:
    name = tool.get("name") if isinstance(tool, dict) else None
    return name if isinstance(name, str) else ""


def _without(line: Line, dropped: Container[int]) -> bytes:
    """Return a message without the given list entries, identified by the ``id()`` of their objects."""
    messages: list[dict[str, Any]] = []
    for message in line.messages:
        tools = listed_in(message)
        if tools is not None:
            shown = [tool for tool in tools if id(tool) not in dropped]
            message = {**message, "result": {**message["result"], "tools": shown}}
        messages.append(message)
    # ASCII, since some programs take other characters for the end of a line.
    return json.dumps(messages if line.batch else messages[0], separators=(",", ":"), allow_nan=False).encode()
