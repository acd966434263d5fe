"""Handshake (Nuntissura/Handshake): what of its tool conformance can be told from an observed list of tools.

A check reports whether a definition meets a written requirement, and nothing about what the tool does. Requirements
that need calls or a running server are listed as not applicable with that reason, so that no report looks complete.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from jsonschema import (
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft201909Validator,
    Draft202012Validator,
    FormatChecker,
    SchemaError,
)

from assay_stream.canonical.digest import canonicalize
from assay_stream.errors import InputError
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.schemes.handshake.contract import Contract, contract, is_denied_by_default
from assay_stream.schemes.handshake.event import TOOL_ID
from assay_stream.schemes.semver import is_plain

Tool = Mapping[str, Any]

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
    """Result of one check, not yet tied to a tool.

    Args:
        code: a stable code, empty if the check passed.
        reason: one sentence, without the server's own text.
    """

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
_NEEDS_SERVER = "a list of tools does not show it: it takes repeated calls to a running server"


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
        "tool_version": _version(declared),
        "side_effect": _side_effect(tool, declared),
        "capabilities": _capabilities(declared),
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


def _version(declared: Contract | None) -> CheckAnswer:
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


def _capabilities(declared: Contract | None) -> CheckAnswer:
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
