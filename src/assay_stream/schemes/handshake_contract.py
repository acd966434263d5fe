"""Handshake (Nuntissura/Handshake): what a tool declares under ``_meta.handshake``, its conformance, and HTC-1.0.

The contract is part of a definition written by the server: it is a claim, no more. Rules of change: side effect and
required capabilities stay the same within a MAJOR version, and versions do not go back.

A check reports whether a definition meets a written requirement, and nothing about what the tool does. Requirements
that need calls or a running server are listed as not applicable with that reason, so that no report looks complete.

1. The raw envelope is limited in size before anything is decoded.
2. It is decoded strictly: whatever two parsers could read differently is refused.
3. It is validated against ``SCHEMA``: as a response if it has ``ok``, else as a request.
4. ``args`` and ``result`` are at most 32 KiB in canonical form; anything larger must be passed by reference.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from importlib.resources import files
from typing import Any, Final, NamedTuple

from jsonschema import (
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft201909Validator,
    Draft202012Validator,
    FormatChecker,
    SchemaError,
    ValidationError,
)
from jsonschema.validators import extend
from referencing import Registry
from referencing.jsonschema import DRAFT202012
from semver import Version

from assay_stream.canonical.decode import decode_json
from assay_stream.canonical.digest import canonicalize
from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.schemes.assay_tool import Tool
from assay_stream.schemes.handshake_event import (
    IDEMPOTENCIES,
    SIDE_EFFECTS,
    TOOL_ID,
    UUID,
    is_plain,
    is_time,
    parse_version,
)

DETERMINISMS = ("DETERMINISTIC", "BEST_EFFORT", "NON_DETERMINISTIC")
AVAILABILITIES = ("OFFLINE_OK", "REQUIRES_NETWORK", "BEST_EFFORT_OFFLINE")
PATH = "$._meta.handshake"

DRIFT_CODES = (
    "tool_version_missing",
    "tool_version_regressed",
    "side_effect_changed_without_major",
    "required_capabilities_changed_without_major",
    "contract_removed",
)
"""Every code of a contract's drift."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """What is compared of a tool's declarations. A missing or malformed field is ``None`` and named in ``problems``.

    Args:
        side_effect: one of ``SIDE_EFFECTS``.
        required_capabilities: sorted, without duplicates; empty if the tool declares that it needs none.
        problems: of all fields; the messages are without the server's own text.
    """

    tool_version: Version | None = None
    side_effect: str | None = None
    required_capabilities: tuple[str, ...] | None = None
    problems: tuple[InputError, ...] = ()


def contract(tool: Tool) -> Contract | None:
    """Parse the contract of a tool, ``None`` if it declares none. Never raises, whatever the server sent."""
    meta = tool.get("_meta")
    if not isinstance(meta, Mapping) or "handshake" not in meta:
        return None
    declared = meta["handshake"]
    if not isinstance(declared, Mapping):
        return Contract(problems=(InputError("wrong_type", "the contract must be an object", path=PATH),))
    values: dict[str, Any] = {}
    problems: list[InputError] = []
    for name, read in _FIELDS.items():
        value = declared.get(name)
        try:
            if value is not None:
                values[name] = read(value)
            elif name in _REQUIRED:
                raise InputError("missing_field", "the field is required")
        except InputError as error:
            problems.append(InputError(error.code, error.message, path=f"{PATH}.{name}"))
    if declared.get("deprecated_since") is not None and declared.get("sunset_on") is None:
        problems.append(
            InputError("missing_field", "a deprecated tool must say when it goes", path=f"{PATH}.sunset_on")
        )
    compared = {name: values.get(name) for name in ("tool_version", "side_effect", "required_capabilities")}
    return Contract(problems=tuple(problems), **compared)


def contract_drift(before: Contract | None, after: Contract | None) -> list[str]:
    """Return codes for the changes that break the rules.

    A change of MAJOR, in either direction, is a new contract. If the versions do not show one, the old contract holds.
    What was not declared before was not promised, so declaring it breaks nothing.
    """
    if before is None:
        return []
    if after is None:
        return ["contract_removed"]
    codes = []
    old, new = before.tool_version, after.tool_version
    if new is None:
        codes.append("tool_version_missing")
    elif old is not None and new < old:
        codes.append("tool_version_regressed")
    if old is not None and new is not None and old.major != new.major:
        return codes
    if before.side_effect not in (None, after.side_effect):
        codes.append("side_effect_changed_without_major")
    if before.required_capabilities not in (None, after.required_capabilities):
        codes.append("required_capabilities_changed_without_major")
    return codes


def is_denied_by_default(declared: Contract | None) -> bool:
    """Return True if a tool must be denied by default: its contract does not declare effects and capabilities."""
    return declared is None or declared.side_effect is None or declared.required_capabilities is None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise InputError("wrong_type", "must be a string")
    if not value.strip():
        raise InputError("empty_value", "the text must not be empty")
    if len(value) > DEFAULT_LIMITS.contract_text_chars_max:
        raise InputError("too_long", f"the text has {DEFAULT_LIMITS.contract_text_chars_max} characters at most")
    return value


def _one_of(allowed: tuple[str, ...]) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        text = _text(value)
        if text not in allowed:
            raise InputError("unknown_value", f"must be one of {', '.join(allowed)}")
        return text

    return read


def _capabilities(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise InputError("wrong_type", "must be a list of strings")
    if len(value) > DEFAULT_LIMITS.capabilities_max:
        raise InputError("too_many", f"a tool may require {DEFAULT_LIMITS.capabilities_max} capabilities at most")
    return tuple(sorted({_text(item) for item in value}))


def _day(value: Any) -> str:
    text = _text(value)
    try:
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
            return date.fromisoformat(text).isoformat()
    except ValueError:
        pass
    raise InputError("bad_format", "must be a day that exists, as YYYY-MM-DD")


def _tool_id(value: Any) -> str:
    text = _text(value)
    if not re.fullmatch(TOOL_ID, text):
        raise InputError("bad_format", "must be a tool id: lowercase words joined by dots, two at least")
    return text


_FIELDS: dict[str, Callable[[Any], Any]] = {
    "tool_version": lambda value: parse_version(_text(value)),
    "side_effect": _one_of(SIDE_EFFECTS),
    "idempotency": _one_of(IDEMPOTENCIES),
    "determinism": _one_of(DETERMINISMS),
    "availability": _one_of(AVAILABILITIES),
    "required_capabilities": _capabilities,
    "deprecated_since": lambda value: parse_version(_text(value)),
    "sunset_on": _day,
    "replaced_by": _tool_id,
}
_REQUIRED = ("tool_version", "side_effect", "idempotency", "determinism", "availability", "required_capabilities")


_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_VALIDATORS: dict[str, Any] = {
    _DIALECT: Draft202012Validator,
    "https://json-schema.org/draft/2019-09/schema": Draft201909Validator,
    "http://json-schema.org/draft-07/schema": Draft7Validator,
    "http://json-schema.org/draft-06/schema": Draft6Validator,
    "http://json-schema.org/draft-04/schema": Draft4Validator,
}

# Patterns are ECMA 262's, which Python's own reader would refuse in part.
_NO_FORMATS = FormatChecker(formats=())


class CheckStatus(StrEnum):
    PASS = "pass"  # noqa: S105 -- an answer, no password
    FAIL = "fail"
    NOT_APPLICABLE = "not_applicable"


class CheckAnswer(NamedTuple):
    """Result of one check: its code, empty if it passed, and a sentence without the server's own text."""

    status: CheckStatus
    code: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReport:
    """Results of all checks on one tool.

    Args:
        tool_id: the id that Handshake would use, ``None`` if none can be formed.
        denied_by_default: whether it must be denied because its contract does not declare effects and capabilities.
        answers: results by name of the check, in order.
    """

    name: str | None
    tool_id: str | None
    denied_by_default: bool
    answers: Mapping[str, CheckAnswer]


_PASS = CheckAnswer(CheckStatus.PASS)
_NEEDS_CALLS = "a list of tools holds no calls: check them with `validate --profile handshake`"
_NEEDS_SERVER = "cannot be checked from a list of tools: this takes repeated calls to a running server"


def check_tools(tools: Sequence[Tool], *, server_id: str) -> list[ToolReport]:
    """Check each tool, in the order of the list.

    Raises:
        InputError: ``too_many_tools``.
    """
    if len(tools) > DEFAULT_LIMITS.tools_max:
        raise InputError("too_many_tools", f"a list may have {DEFAULT_LIMITS.tools_max} tools at most")
    names = Counter(name for tool in tools if isinstance(name := tool.get("name"), str))
    return [_report(tool, server_id, names) for tool in tools]


def form_tool_id(name: str, *, server_id: str) -> str | None:
    """Return the tool's name if it is a valid tool id, else server and name joined if that is one."""
    for candidate in (name, f"{server_id}.{name}"):
        if re.fullmatch(TOOL_ID, candidate) and len(candidate) <= DEFAULT_LIMITS.contract_text_chars_max:
            return candidate
    return None


def _report(tool: Tool, server_id: str, names: Counter[str]) -> ToolReport:
    listed = tool.get("name")
    name = listed if isinstance(listed, str) else None
    tool_id = None if name is None else form_tool_id(name, server_id=server_id)
    declared = contract(tool)
    answers = {
        "identity": _identity(name, tool_id, names),
        "input_schema": _schema(tool, "inputSchema", is_required=True),
        "output_schema": _schema(tool, "outputSchema", is_required=False),
        "schema_draft": _draft(tool),
        "metadata": _metadata(declared),
        "tool_version": _check_version(declared),
        "side_effect": _side_effect(tool, declared),
        "capabilities": _check_capabilities(declared),
        "payload_size": _payload_size(tool),
        "event_emission": CheckAnswer(CheckStatus.NOT_APPLICABLE, "needs_calls", _NEEDS_CALLS),
        "idempotency": CheckAnswer(CheckStatus.NOT_APPLICABLE, "needs_server", _NEEDS_SERVER),
    }
    return ToolReport(name=name, tool_id=tool_id, denied_by_default=is_denied_by_default(declared), answers=answers)


def _fail(code: str, reason: str) -> CheckAnswer:
    return CheckAnswer(CheckStatus.FAIL, code, reason)


def _identity(name: str | None, tool_id: str | None, names: Counter[str]) -> CheckAnswer:
    if name is None or not name.strip():
        return _fail("tool_name_missing", "a tool needs a name that is not blank")
    if names[name] > 1:
        return _fail("ambiguous_tool_name", f"the list has {names[name]} tools of this name")
    if tool_id is None:
        return _fail("bad_format", "neither the name nor server and name are lowercase words joined by dots")
    return _PASS


def _schema(tool: Tool, field: str, *, is_required: bool) -> CheckAnswer:
    schema = tool.get(field)
    if schema is None:
        if is_required:
            return _fail("missing_field", f"{field} is required")
        return CheckAnswer(CheckStatus.NOT_APPLICABLE, "missing_field", f"{field} is recommended; the tool has none")
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        return _fail("wrong_type", f"{field} must be a schema of type object")
    try:
        size_bytes = len(canonicalize(schema))
    except InputError as error:
        return _fail(error.code, f"{field} cannot be written in canonical form")
    if size_bytes > DEFAULT_LIMITS.schema_bytes_max:
        return _fail("too_large", f"{field} is larger than {DEFAULT_LIMITS.schema_bytes_max} bytes: it is not checked")
    validator = _VALIDATORS.get(_dialect(schema))
    if validator is None:
        return _fail("unknown_dialect", f"{field} names a dialect in $schema that is not known here")
    try:
        validator.check_schema(schema, format_checker=_NO_FORMATS)
    except SchemaError as error:
        return _fail("bad_schema", f"{field} is not a valid schema: its {_keyword(error)} does not fit the dialect")
    except RecursionError:
        return _fail("too_deep", f"{field} is nested too deeply to be checked")
    return _PASS


def _keyword(error: SchemaError) -> str:
    # Only the dialect's own words are repeated: what a server wrote there is not.
    last = error.path[-1] if error.path else ""
    return str(last) if last in Draft202012Validator.VALIDATORS else "content"


def _dialect(schema: Mapping[str, Any]) -> str:
    named = schema.get("$schema", _DIALECT)
    return named.removesuffix("#") if isinstance(named, str) else ""


def _draft(tool: Tool) -> CheckAnswer:
    schemas = [tool[field] for field in ("inputSchema", "outputSchema") if isinstance(tool.get(field), Mapping)]
    if not schemas:
        return CheckAnswer(CheckStatus.NOT_APPLICABLE, "missing_field", "the tool has no schema")
    if any(_dialect(schema) != _DIALECT for schema in schemas):
        return _fail("other_dialect", "a schema names another dialect than draft 2020-12")
    return _PASS


def _metadata(declared: Contract | None) -> CheckAnswer:
    if declared is None:
        return _fail("contract_missing", "_meta.handshake is required: the tool declares nothing")
    if declared.problems:
        first, others = declared.problems[0], len(declared.problems) - 1
        more = f" ({others} more)" if others else ""
        return _fail(first.code, f"{first.path}: {first.message}{more}")
    return _PASS


def _check_version(declared: Contract | None) -> CheckAnswer:
    if declared is None or declared.tool_version is None:
        return _fail("tool_version_missing", "_meta.handshake.tool_version must be a semantic version")
    if not is_plain(declared.tool_version):
        return _fail("bad_format", "the recorder of calls takes MAJOR.MINOR.PATCH without labels")
    return _PASS


def _side_effect(tool: Tool, declared: Contract | None) -> CheckAnswer:
    if declared is None or declared.side_effect is None:
        return _fail("side_effect_missing", "the side effect is not declared: READ, WRITE or EXECUTE")
    hints = tool.get("annotations")
    hints = hints if isinstance(hints, Mapping) else {}
    reads = declared.side_effect == "READ"
    if reads and (hints.get("readOnlyHint") is False or hints.get("destructiveHint") is True):
        return _fail("side_effect_contradicted", "declared as READ, but the annotations say that it writes")
    if not reads and hints.get("readOnlyHint") is True:
        return _fail("side_effect_contradicted", "declared as more than READ, but the annotations say read-only")
    return _PASS


def _check_capabilities(declared: Contract | None) -> CheckAnswer:
    if is_denied_by_default(declared):
        return _fail(
            "denied_by_default", "without side_effect and required_capabilities the tool must be treated as denied"
        )
    return _PASS


def _payload_size(tool: Tool) -> CheckAnswer:
    examples = tool.get("examples")
    if not isinstance(examples, list) or not examples:
        reason = "the tool shows no examples; check envelopes with `validate --profile htc`"
        return CheckAnswer(CheckStatus.NOT_APPLICABLE, "needs_calls", reason)
    limit = DEFAULT_LIMITS.htc_payload_bytes_max
    for example in examples:
        parts = example.values() if isinstance(example, Mapping) else [example]
        for part in parts:
            try:
                size_bytes = len(canonicalize(part))
            except InputError as error:
                return _fail(error.code, "an example cannot be written in canonical form")
            if size_bytes > limit:
                return _fail("payload_too_large", f"an example is larger than {limit} bytes")
    return _PASS


_formats = FormatChecker(formats=())
_formats.checks("uuid")(lambda value: not isinstance(value, str) or re.fullmatch(UUID, value) is not None)
_formats.checks("date-time")(lambda value: not isinstance(value, str) or is_time(value))

SCHEMA: Final[dict[str, Any]] = json.loads((files(__package__) / "data" / "htc_v1.json").read_bytes())
"""The JSON Schema of request, response and error envelopes: our own, from the requirements and bounds of Handshake's
tool contract. No schema can say that a payload is 32 KiB at most."""
# A registry of its own, which retrieves nothing: no schema is ever fetched.
_REGISTRY = Registry().with_resource(SCHEMA["$id"], DRAFT202012.create_resource(SCHEMA))


def _pattern(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[ValidationError]:
    # Every pattern of the schema spans the whole text. Python's `$` would let a line feed stand behind it.
    if isinstance(instance, str) and not re.fullmatch(pattern, instance):
        yield ValidationError("does not match")


_Validator = extend(Draft202012Validator, {"pattern": _pattern})


def _validator(part: str) -> Any:
    reference = {"$ref": f"{SCHEMA['$id']}#/$defs/{part}"}
    return _Validator(reference, registry=_REGISTRY, format_checker=_formats)


_REQUEST, _RESPONSE = _validator("request"), _validator("response")

_REASONS = {
    "required": ("missing_field", "a required field is missing"),
    "additionalProperties": ("unknown_field", "the contract does not define this field"),
    "type": ("wrong_type", "the value has the wrong JSON type"),
    "enum": ("unknown_value", "the value is not one of those allowed"),
    "const": ("unknown_value", "the value is not the required one"),
    "maxLength": ("too_long", "the text is longer than the contract allows"),
    "minLength": ("empty_value", "the text must not be empty"),
    "minimum": ("out_of_range", "the number is out of range"),
}
_OTHER_REASON = ("bad_format", "the value does not have the required form")


def check_envelope(raw: bytes) -> None:
    """Check one envelope.

    Raises:
        InputError: as ``decode_json``; ``not_an_envelope``, ``payload_too_large``, or a code of the schema.
    """
    if len(raw) > DEFAULT_LIMITS.htc_envelope_bytes_max:
        raise InputError("too_large", f"{len(raw)} bytes, {DEFAULT_LIMITS.htc_envelope_bytes_max} are allowed")
    envelope = decode_json(raw)
    if not isinstance(envelope, dict):
        raise InputError("not_an_envelope", "an envelope is one JSON object", path="$")
    # Requests know no `ok` and responses need it, so this is the schema's oneOf, with a path in its errors.
    errors = (_RESPONSE if "ok" in envelope else _REQUEST).iter_errors(envelope)
    found = sorted(map(_as_input_error, errors), key=lambda error: (error.path, error.code))
    if found:
        raise found[0]
    for name in ("args", "result"):
        if name in envelope and len(canonicalize(envelope[name])) > DEFAULT_LIMITS.htc_payload_bytes_max:
            raise InputError(
                "payload_too_large",
                f"over {DEFAULT_LIMITS.htc_payload_bytes_max} bytes: store it and send {name}_ref",
                path=f"$.{name}",
            )


def _as_input_error(error: ValidationError) -> InputError:
    keyword = str(error.validator)
    reason, message = _REASONS.get(keyword, _OTHER_REASON)
    path = error.json_path
    if keyword == "required":
        # One error for each missing field; its message is the only place that names it.
        wanted = [name for name in error.validator_value if name not in error.instance]
        named = [name for name in wanted if error.message.startswith(repr(name))]
        path = f"{path}.{(named or wanted)[0]}"
    return InputError(reason, message, path=path)
