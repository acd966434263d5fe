"""ToolHive's audit log (JSON lines): calls, and lists as far as it holds responses (``includeResponseData``).

ToolHive re-encodes what it logs, so duplicate keys are gone; digests are those of the logged form. It drops
what exceeds ``maxDataSize``, of a stream in parts: the record then states that it was too large. Lists may have been
filtered on their way, so none is complete. A list of several servers is judged server by server: none can take those of
others along.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from assay_stream.canonical.decode import decode_json, read_leniently
from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.observe.calls import digest_of
from assay_stream.observe.logs.calls import (
    Logged,
    Whose,
    duration_of,
    object_of,
    required_text,
    response_of,
    safe_error_code,
)
from assay_stream.observe.observation import EVENT_BYTES_MAX, Observation, snapshot_event
from assay_stream.observe.recorded import check_observation, parse_rfc3339, stable_id
from assay_stream.plugins import LogReader

_CALL, _LIST = "mcp_tool_call", "mcp_tools_list"
_UNSEEN = {"unreadable": "too large for the log"}
_UNSOUND = {"unreadable": "the JSON is unsound"}
_DEEP = replace(DEFAULT_LIMITS, depth_max=512)
"""For lines with lists: each server's part gets the usual limits."""


def read_unsound(raw: bytes, whose: Whose) -> Iterator[Observation]:
    """Yield the lists in a line that is unsound JSON or too deep: whatever they hold, they invalidate earlier ones."""
    line = read_leniently(raw)
    if not isinstance(line, dict) or line.get("msg") != "audit_event" or line.get("type") != _LIST:
        return
    with suppress(InputError, UnicodeEncodeError):  # such as a lone surrogate in its id
        try:
            found = list(read(decode_json(raw, limits=_DEEP), "", whose, Counter()))
        except InputError:
            result = (response_of(object_of(line, "data").get("response")) or {}).get("result")
            tools = result.get("tools") if isinstance(result, dict) else None
            named = whose.prefixes.split(tools if isinstance(tools, list) else ())
            parts: dict[tuple[str | None, str], Any] = dict.fromkeys(named or {(None, ""): []}, _UNSOUND)
            at = parse_rfc3339(line.get("logged_at"), path="$.logged_at")
            found = list(_snapshots(required_text(line, "audit_id"), at, parts, whose))
        yield from (each for each in found if isinstance(each, Observation))


def read(
    line: Mapping[str, Any], _identity: str, whose: Whose, counts: Counter[str]
) -> Iterator[Observation | InputError]:
    """Yield the call or the servers' lists of a line, and the errors of lists that the stream will reject."""
    if line.get("msg") != "audit_event" or line.get("type") not in (_CALL, _LIST):
        return
    audit_id = required_text(line, "audit_id")
    extra = object_of(object_of(line, "metadata"), "extra")
    data = object_of(line, "data")
    ended_at = parse_rfc3339(line.get("logged_at"), path="$.logged_at")
    response = response_of(data.get("response"))
    # The size is there wherever responses are logged at all.
    over_limit = (
        response is None and "response_size" in extra and line.get("outcome") in ("success", "application_error")
    )
    if line["type"] == _LIST:
        yield from _lists(audit_id, ended_at, response, over_limit, whose, counts)
        return
    params = object_of(object_of(data, "request"), "params")
    result = (response or {}).get("result")
    call = Logged(
        name=required_text(object_of(line, "target"), "name", "$.target"),
        server_id=whose.server(extra.get("backend_name")),
        identity=("toolhive", audit_id),
        call_id=audit_id,
        ended_at=ended_at,
        duration_ms=duration_of(extra.get("duration_ms")),
        args_hash=digest_of(params["arguments"]) if "arguments" in params else None,
        result_hash=digest_of(result) if result is not None else None,
        lacks={"result_over_limit"} if over_limit else set(),
    )
    _note_outcome(call, line.get("outcome"), response, extra)
    yield call.event(whose, counts)


def _note_outcome(call: Logged, outcome: object, response: Mapping[str, Any] | None, extra: Mapping[str, Any]) -> None:
    result, error = (response or {}).get("result"), (response or {}).get("error")
    if outcome == "denied":
        call.decision, call.reason_code, call.error_code = "deny", "denied", "not_passed_on"
    elif isinstance(result, dict):
        call.ok = result.get("isError") is not True
        call.error_code = None if call.ok else "tool_error"
    elif isinstance(error, dict) or outcome == "application_error":
        stated = error.get("code") if isinstance(error, dict) else extra.get("jsonrpc_error_code")
        call.ok, call.error_code = False, safe_error_code(stated)
    elif outcome != "success":
        call.ok, call.error_code = False, "http_error"
    # Otherwise HTTP succeeded, which says nothing about the tool.


def _lists(
    audit_id: str, at: Any, response: Mapping[str, Any] | None, over_limit: bool, whose: Whose, counts: Counter[str]
) -> Iterator[Observation | InputError]:
    result = (response or {}).get("result")
    tools = result.get("tools") if isinstance(result, dict) else None
    if not isinstance(tools, list):
        counts["list_over_limit" if over_limit else "list"] += 1
        if not over_limit or not whose.has_default:
            return
        # The registry must hear of a list that nobody can read, or an old one stays in force.
        parts: dict[tuple[str | None, str], Any] = {(None, ""): _UNSEEN}
    else:
        parts = dict(whose.prefixes.split(tools)) or {(None, ""): []}
    yield from _snapshots(audit_id, at, parts, whose)


def _snapshots(
    audit_id: str, at: Any, parts: Mapping[tuple[str | None, str], Any], whose: Whose
) -> Iterator[Observation | InputError]:
    for (server_id, prefix), part in parts.items():
        if server_id is None and not whose.has_default:
            yield InputError("missing_field", "tools of a list fit no prefix: give --server-id or --prefix", path="$")
            continue
        vantage = replace(whose.vantage, server_id=server_id or whose.vantage.server_id, shown_prefix=prefix)
        identity = stable_id(vantage.server_id, vantage.observer_id, "toolhive", audit_id, prefix)
        snapshot = partial(snapshot_event, vantage, event_id=identity, snapshot_id=identity, observed_at=at)
        if not isinstance(part, list):
            yield snapshot(completeness="unknown", tools=part)
            continue
        observation = snapshot(completeness="partial", tools=part)
        try:
            check_observation(observation)
        except InputError as error:
            yield error
        # The registry refuses it, too, and ends what was listed before.
        fits = len(observation.value) <= EVENT_BYTES_MAX
        yield observation if fits else snapshot(completeness="unknown", tools=_UNSEEN)


TOOLHIVE = LogReader(read=read, read_unsound=read_unsound)
