"""A gate that hides: refused tools are dropped from lists before the client gets them.

Rules:

1. A response whose result has ``tools`` is a list, whatever its id: ids are easy to guess, and a server can answer
   before it was asked. So is the answer to a request for one. Only the one answer to a call that waits for it is none:
   its client takes it for the call's. A list that is no array ``tools`` of the result is withheld.
2. An entry is dropped if a call of it would be refused; with it goes every entry of the same name in that message. An
   entry without a name is ruled on as a tool that nobody has decided about.
3. A message with nothing to drop passes as it came. Any other is written anew, with equal values.
4. A message that may hold a list and that programs may read in different ways is withheld: whoever asked gets an error.
   So is a list while no verdicts are known, if calls are refused then.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

from assay_stream.observe.gate import Gate, answerable, error_of
from assay_stream.observe.jsonrpc import BLANKS, BLOCKED_CODE, Line, is_ambiguous, listed_in, may_list, request_key
from assay_stream.observe.observation import Observation
from assay_stream.observe.offered import HiddenTool
from assay_stream.observe.shown import Shown
from assay_stream.registry.rulings import NO_VERDICT, UNREADABLE, Ruling
from assay_stream.schemes.fingerprint import Fingerprint
from assay_stream.schemes.hangar import Action

_WITHHELD = {
    "list_unreadable": "the message may hold a list of tools and cannot be read for certain, so it was not passed on",
    "verdicts_unavailable": "no verdicts of the digest policy have been read yet, so no tools are shown; try again",
    "not_inspected": "the message could not be inspected, so it was not passed on",
}


class HidingGate(Gate):
    """Rules on the messages of one connection, and drops what it refuses from the lists in them."""

    hides = True

    def show(self, raw: bytes, at: datetime, *, exchange: int = 0) -> Shown:
        """Return what the client gets of a message from the server."""
        if not raw.strip(BLANKS):
            return Shown(raw)
        line = self._observer.read(raw)
        lists = self._lists_in(line, exchange)
        is_list = all(listed_in(message) is not None and "tools" not in message for message in lists)
        is_clear = line.exact and line.whole and not is_ambiguous(line, raw, self._breaks)
        if not is_list or (not is_clear and (lists or may_list(raw))):
            # The client gets no list, but the registry must hear of it.
            known = self._unanswered(line, at, exchange)
            is_heard = is_clear or not line.exact
            known += self._look(line, raw, at, exchange) if is_heard else self.missed(at, exchange=exchange)
            return self._withheld("list_unreadable", line, exchange, known)
        if not lists:
            return Shown(raw, self._look(line, raw, at, exchange))
        dropped = {id(message): list(self._refused(listed_in(message) or ())) for message in lists}
        refusals = [refusal for each in dropped.values() for refusal in each]
        hidden = {
            place: [HiddenTool(_name_of(tool), print_.full) for tool, print_, _ in each if print_.full]
            for place, each in dropped.items()
        }
        is_withheld = any(ruling.reason_code == "verdicts_unavailable" for _, _, ruling in refusals)
        observations = self._unanswered(line, at, exchange) if is_withheld else []
        observations += self._look(line, raw, at, exchange, hidden)
        names = tuple(_name_of(tool) for tool, _, _ in refusals)
        if is_withheld:
            return replace(self._withheld("verdicts_unavailable", line, exchange, observations), hidden=names)
        if not refusals:
            return Shown(raw, observations)
        return Shown(_without(line, {id(tool) for tool, _, _ in refusals}), observations, names)

    def _lists_in(self, line: Line, exchange: int) -> list[dict[str, Any]]:
        """Return the messages of a line that some client may take for a list of tools."""
        answered: set[object] = set()
        found = []
        for message in line.messages:
            result = message.get("result")
            is_first = (key := request_key(message.get("id"))) not in answered
            if is_first and self._observer.answers_call(message, exchange):
                answered.add(key)
            elif (
                (isinstance(result, dict) and result.get("tools") is not None)
                or ("method" not in message and message.get("tools") is not None)
                or (result is not None and self._observer.answers_list(message, exchange))
            ):
                found.append(message)
        return found

    def missed_line(self, at: datetime, *, exchange: int = 0) -> Shown:
        """Return what the client gets in place of a message that could not be inspected."""
        observations = self.missed(at, exchange=exchange)
        return self._withheld("not_inspected", Line((), exact=False), exchange, observations)

    def _refused(self, tools: Iterable[Any]) -> Iterator[tuple[Any, Fingerprint, Ruling]]:
        """Yield the entries of a list that the client does not get."""
        entries = [(tool, *self._entry(tool)) for tool in tools]
        refused = {_name_of(tool) for tool, _, ruling in entries if ruling.action is Action.BLOCK}
        yield from (entry for entry in entries if _name_of(entry[0]) in refused)

    def _entry(self, tool: Any) -> tuple[Fingerprint, Ruling]:
        server_id, name = self._vantage.server_id, _name_of(tool)
        ruling = self._rule(server_id, name, UNREADABLE)
        if ruling is NO_VERDICT or not isinstance(tool, dict):
            return UNREADABLE, ruling
        print_ = self._fingerprint(tool)
        return print_, self._rule(server_id, name, print_)

    def _unanswered(self, line: Line, at: datetime, exchange: int) -> list[Observation]:
        """Return the calls that a withheld message answers: to the client they fail, whatever the server said."""
        return self._observer.withheld(line, f"jsonrpc_{BLOCKED_CODE}", at, exchange=exchange)

    def _withheld(self, code: str, line: Line, exchange: int, observations: list[Observation]) -> Shown:
        named = [answerable(message.get("id")) for message in line.messages if "method" not in message]
        ids = [each for each in named if each is not None] or self._observer.awaited_lists(exchange)[:1]
        error = error_of(BLOCKED_CODE, f"assay-stream: {_WITHHELD[code]}", code, {})
        answers = [{"jsonrpc": "2.0", "id": each, "error": error} for each in ids or (None,)]
        text = json.dumps(answers if line.batch else answers[0], allow_nan=False).encode()
        return Shown(text, observations, is_withheld=True)


def gate_class(hide: bool) -> type[Gate]:
    """Return the gate of an enforcing tap: one that hides tools, or one that only refuses calls."""
    return HidingGate if hide else Gate


def _name_of(tool: Any) -> str:
    name = tool.get("name") if isinstance(tool, dict) else None
    return name if isinstance(name, str) else ""


def _without(line: Line, dropped: Container[int]) -> bytes:
    """Return a message without some entries of its lists, given by the ``id`` of their objects."""
    messages: list[dict[str, Any]] = []
    for message in line.messages:
        tools = listed_in(message)
        if tools is not None:
            shown = [tool for tool in tools if id(tool) not in dropped]
            message = {**message, "result": {**message["result"], "tools": shown}}
        messages.append(message)
    # ASCII, since some programs take other characters for the end of a line.
    return json.dumps(messages if line.batch else messages[0], separators=(",", ":"), allow_nan=False).encode()
