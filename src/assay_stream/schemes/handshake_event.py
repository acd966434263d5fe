"""Handshake (Nuntissura/Handshake): tool call events, FR-EVT-007.

There are two profiles. ``handshake-published`` is what the published text demands: four fields are required, and every
field has the right type. ``handshake``, the default, is what that project's recorder enforces: eleven fields, no
unknown ones, and narrow alphabets for names.

Both refuse values with surrounding white space, and arguments or results inline: there is no way to see whether they
were redacted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from semver import Version

from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS


def parse_version(text: str) -> Version:
    """Parse a version, or raise ``too_long`` or ``bad_format``."""
    longest = DEFAULT_LIMITS.version_chars_max
    if len(text) > longest:
        raise InputError("too_long", f"a version has {longest} characters at most")
    try:
        # The library takes digits of any script.
        return Version.parse(text if text.isascii() else "")
    except ValueError:
        raise InputError("bad_format", "a version is MAJOR.MINOR.PATCH (Semantic Versioning 2.0.0)") from None


def is_plain(version: Version) -> bool:
    """Return True if a version is just MAJOR.MINOR.PATCH."""
    return not version.prerelease and not version.build


EVENT_TYPE = "tool_call"
TRANSPORTS = ("local", "mcp", "mex", "stage_bridge", "other")
SIDE_EFFECTS = ("READ", "WRITE", "EXECUTE")
IDEMPOTENCIES = ("IDEMPOTENT", "IDEMPOTENT_WITH_KEY", "NON_IDEMPOTENT")
ACTOR_KINDS = ("human", "agent", "system")

TOOL_ID = r"[a-z0-9_]+(\.[a-z0-9_]+)+"
UUID = r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})"

_NIL_UUID = "00000000-0000-0000-0000-000000000000"
_WORD = r"[A-Za-z0-9_:./-]+"
_ID = r"[A-Za-z0-9_-]+"
_SHA256 = r"[0-9a-fA-F]{64}"
_STORED = rf"artifact:{UUID}:data/flight_recorder/tool_payloads/[A-Za-z0-9_:./-]*"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventProfile:
    """A set of requirements on tool call events.

    Args:
        as_recorded: whether unknown fields, free texts in names and version labels are refused too.
    """

    name: str
    required: tuple[str, ...]
    as_recorded: bool


PUBLISHED = EventProfile(
    name="handshake-published", required=("trace_id", "tool_call_id", "tool_id", "tool_version"), as_recorded=False
)
RECORDED = EventProfile(
    name="handshake",
    required=("type", *PUBLISHED.required, "transport", "side_effect", "idempotency", "actor", "ok", "timing"),
    as_recorded=True,
)
PROFILES = {profile.name: profile for profile in (RECORDED, PUBLISHED)}

_Check = Callable[[Any, str, EventProfile], None]


def check_tool_call(event: Mapping[str, Any], *, profile: EventProfile = RECORDED, at: str = "$") -> None:
    """Check one tool call event.

    Args:
        at: JSON path of the event; prefix of the paths in errors.

    Raises:
        InputError: for the first unmet requirement, in the order of ``FIELDS``.
    """
    for name in ("args", "result"):
        if name in event:
            raise InputError(
                "inline_payload",
                f"{name} must not stand in the event: redact it, hash it ({name}_hash), refer to it ({name}_ref)",
                path=f"{at}.{name}",
            )
    _members(event, at, profile, FIELDS, profile.required)


def _members(
    value: Mapping[str, Any], at: str, profile: EventProfile, known: Mapping[str, _Check], required: tuple[str, ...]
) -> None:
    for name, check in known.items():
        if name in value:
            check(value[name], f"{at}.{name}", profile)
        elif name in required:
            raise InputError("missing_field", "the field is required: add it", path=f"{at}.{name}")
    if profile.as_recorded and not value.keys() <= known.keys():
        # Its name is the sender's text: the path of the object must do.
        raise InputError("unknown_field", f"only these fields are taken: {', '.join(known)}", path=at)


def _one_of(*allowed: str) -> _Check:
    def check(value: Any, at: str, _: EventProfile) -> None:
        if value not in allowed:
            raise InputError("unknown_value", f"must be one of {', '.join(allowed)}", path=at)

    return check


def _text(value: Any, at: str, chars_max: int) -> str:
    if not isinstance(value, str):
        raise InputError("wrong_type", "must be a string", path=at)
    if not value:
        raise InputError("empty_value", "the text must not be empty", path=at)
    if len(value) > chars_max:
        raise InputError("too_long", f"the text has {chars_max} characters at most", path=at)
    return value


def _shaped(pattern: str, chars_max: int, wanted: str, *, as_recorded: bool = False) -> _Check:
    """Return the check of a text's form; ``as_recorded``: the published profile takes any text there."""
    form = re.compile(pattern)

    def check(value: Any, at: str, profile: EventProfile) -> None:
        text = _text(value, at, chars_max)
        if (profile.as_recorded or not as_recorded) and not form.fullmatch(text):
            raise InputError("bad_format", wanted, path=at)

    return check


def _uuid(value: Any, at: str, _: EventProfile) -> None:
    text = _text(value, at, 64)
    if not re.fullmatch(UUID, text) or text == _NIL_UUID:
        raise InputError("bad_format", "must be a UUID in its hyphenated form, not the nil one", path=at)


def _version(value: Any, at: str, profile: EventProfile) -> None:
    text = _text(value, at, DEFAULT_LIMITS.version_chars_max)
    try:
        version = parse_version(text)
    except InputError as error:
        raise InputError(error.code, error.message, path=at) from None
    if profile.as_recorded and not is_plain(version):
        raise InputError("bad_format", "the recorder takes MAJOR.MINOR.PATCH without labels", path=at)


def _or_null(check: _Check) -> _Check:
    def check_or_null(value: Any, at: str, profile: EventProfile) -> None:
        if value is not None:
            check(value, at, profile)

    return check_or_null


def _of_type(called: str, *kinds: type) -> _Check:
    def check(value: Any, at: str, _: EventProfile) -> None:
        if type(value) not in kinds:
            raise InputError("wrong_type", f"must be {called}", path=at)

    return check


def _time(value: Any, at: str, _: EventProfile) -> None:
    text = _text(value, at, 64)
    if not is_time(text):
        raise InputError("bad_time", "must be a time that exists, as RFC 3339 writes it", path=at)


def is_time(text: str) -> bool:
    """Return True for an RFC 3339 date-time (section 5.6)."""
    if not re.fullmatch(TIME, text):
        return False
    try:
        datetime.fromisoformat(text.upper())
    except ValueError:
        return False
    return True


def _object(known: Mapping[str, _Check], *required: str) -> _Check:
    def check(value: Any, at: str, profile: EventProfile) -> None:
        if not isinstance(value, Mapping):
            raise InputError("wrong_type", "must be an object", path=at)
        _members(value, at, profile, known, required)

    return check


def _list_of(check_item: _Check) -> _Check:
    def check(value: Any, at: str, profile: EventProfile) -> None:
        if not isinstance(value, list):
            raise InputError("wrong_type", "must be a list", path=at)
        for index, item in enumerate(value):
            check_item(item, f"{at}[{index}]", profile)

    return check


_WORD_FORM = "may hold ASCII letters, digits and -_:./ only"
_short_word, _word, _long_word = (
    _shaped(_WORD, chars_max, _WORD_FORM, as_recorded=True) for chars_max in (64, 256, 2_048)
)
_boolean = _of_type("true or false", bool)
_id = _shaped(_ID, 256, "may hold ASCII letters, digits, - and _ only", as_recorded=True)
_hash = _shaped(
    _SHA256,
    DEFAULT_LIMITS.identifier_chars_max,
    "must be SHA-256 as 64 hexadecimal digits, without an algorithm before them",
)
_reference = _shaped(
    rf"artifact://{_WORD}|{_STORED}",
    2_048,
    "must be artifact://<handle>, or artifact:<uuid>:<path of a payload>",
    as_recorded=True,
)

FIELDS: dict[str, _Check] = {
    "type": _one_of(EVENT_TYPE),
    "trace_id": _uuid,
    "tool_call_id": _uuid,
    "tool_id": _shaped(TOOL_ID, 256, "must be lowercase words joined by dots, two at least"),
    "tool_version": _version,
    "transport": _one_of(*TRANSPORTS),
    "side_effect": _one_of(*SIDE_EFFECTS),
    "idempotency": _one_of(*IDEMPOTENCIES),
    # That a tool IDEMPOTENT_WITH_KEY needs one is a rule for tools: events may leave it out.
    "idempotency_key": _or_null(_word),
    "actor": _object({"kind": _one_of(*ACTOR_KINDS), "agent_id": _or_null(_id), "model_id": _or_null(_id)}, "kind"),
    "ok": _boolean,
    "args_ref": _or_null(_reference),
    "args_hash": _or_null(_hash),
    "result_ref": _or_null(_reference),
    "result_hash": _or_null(_hash),
    "error": _or_null(
        _object(
            {
                "code": _short_word,
                "kind": _short_word,
                "message": _or_null(_of_type("a string", str)),
                "retryable": _or_null(_boolean),
            },
            "code",
            "kind",
        )
    ),
    "timing": _object(
        {"started_at": _time, "ended_at": _time, "duration_ms": _of_type("a number", int, float)},
        "started_at",
        "ended_at",
        "duration_ms",
    ),
    "resources_touched": _or_null(
        _object(dict.fromkeys(("workspace_ids", "artifacts", "files", "urls"), _list_of(_long_word)))
    ),
    "capability_ids": _or_null(_list_of(_word)),
    "parent_span_id": _or_null(_word),
}
"""Every field of the event, and its check, in the order in which they are checked."""


def check_observed_call(data: Mapping[str, Any]) -> None:
    """Check an observed call as the tool call event it represents.

    Args:
        data: data of a ``mcp.tools.call.observed`` event; null fields count as absent.

    Raises:
        InputError: as ``check_tool_call``, with paths into the observation.
    """
    event: dict[str, Any] = {"type": EVENT_TYPE}
    for name in (*FIELDS, "args", "result"):
        value = data.get(name)
        if name != "type" and (value is not None or (name in data and name in ("args", "result"))):
            event[name] = value
    check_tool_call(event, at="$.data")
