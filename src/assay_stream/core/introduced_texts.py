"""The texts of a definition that a model may read, with where they stand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, NamedTuple

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_KEY_CHARS_MAX = 64
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_PART = re.compile(r"[A-Za-z0-9]+")

_MCP_KEYS = (
    "name title description inputSchema outputSchema annotations _meta icons execution arguments uriTemplate"
    " mimeType readOnlyHint destructiveHint idempotentHint openWorldHint taskSupport src sizes"
)
_JSON_SCHEMA_KEYS = (
    "type properties required items enum const default examples format pattern additionalProperties anyOf"
    " oneOf allOf not if then else $schema $ref $id $defs definitions minimum maximum minLength maxLength minItems"
    " maxItems uniqueItems nullable"
)
_OWN_KEYS = frozenset(_MCP_KEYS.split() + _JSON_SCHEMA_KEYS.split())
"""Keys that MCP and JSON Schema give a meaning: they say nothing of their own."""


class Role(Enum):
    """How a model meets a text."""

    PARAMETER = "parameter"
    """The name of a parameter, which the model fills."""
    NAME = "name"
    """The name of the tool, or a key that nobody defined."""
    TEXT = "text"
    """Any other text."""


class Text(NamedTuple):
    """One text of a definition.

    Args:
        role: how a model meets it.
        path: JSON path of it; for a name, of what it names.
        value: the text.
        is_free: of a parameter: whether it takes any text, so no closed list and no number.
        has_address: of a parameter: whether a URL or mail address is set for it.
    """

    role: Role
    path: str
    value: str
    is_free: bool = False
    has_address: bool = False


def texts_of(definition: Mapping[str, Any]) -> Iterator[Text]:
    """Yield every text of a definition, by key and place, whatever the order of its keys.

    Args:
        definition: a tool, a prompt or a resource template, as a JSON object of any depth.
    """
    pending: list[tuple[str, str, Any, bool]] = [("$", "", definition, False)]
    while pending:
        path, key, value, in_properties = pending.pop()
        if isinstance(value, str):
            yield Text(Role.NAME if path == "$.name" else Role.TEXT, path, value)
        elif isinstance(value, Mapping):
            yield from _names(path, key, value, in_properties)
            children = [
                (_joined(path, name), str(name), value[name], _holds_properties(key, in_properties))
                for name in sorted(value, key=str, reverse=True)
            ]
            pending.extend(children)
        elif isinstance(value, list | tuple):
            pending.extend((f"{path}[{index}]", "", value[index], False) for index in reversed(range(len(value))))


def _holds_properties(key: str, in_properties: bool) -> bool:
    return key == "properties" and not in_properties


def _names(path: str, key: str, value: Mapping[str, Any], in_properties: bool) -> Iterator[Text]:
    is_properties = _holds_properties(key, in_properties)
    for name in sorted(map(str, value)):
        if is_properties:
            schema = value.get(name)
            yield Text(Role.PARAMETER, _joined(path, name), name, _is_free(schema), _has_address(schema))
        elif name not in _OWN_KEYS:
            yield Text(Role.NAME, _joined(path, name), name)


def required_of(definition: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the parameters that a call must give, at the top of the input schema.

    Args:
        definition: a tool.
    """
    schema = definition.get("inputSchema", definition.get("input_schema"))
    required = schema.get("required") if isinstance(schema, Mapping) else None
    return (
        frozenset(name for name in required if isinstance(name, str))
        if isinstance(required, list)
        else frozenset()
    )


def _is_free(schema: Any) -> bool:
    if not isinstance(schema, Mapping):
        return True
    types = schema.get("type", "string")
    if "enum" in schema or "const" in schema:
        return False
    return not (isinstance(types, str) and types in {"integer", "number", "boolean", "null"})


def _has_address(schema: Any) -> bool:
    if not isinstance(schema, Mapping):
        return False
    set_values = (schema.get("default"), schema.get("const"))
    return any(isinstance(value, str) and ("://" in value or "@" in value) for value in set_values)


def _joined(path: str, name: Any) -> str:
    text = str(name)
    if _PLAIN_KEY.fullmatch(text):
        return f"{path}.{text}"
    return f"{path}[{json.dumps(text[:_KEY_CHARS_MAX])}]"


def name_words(name: str) -> tuple[str, ...]:
    """Return the words of a name, whether ``snake_case``, ``kebab-case`` or ``camelCase``, in lowercase.

    Args:
        name: a tool's or a parameter's name.
    """
    return tuple(part.lower() for piece in _PART.findall(name) for part in _CAMEL.split(piece) if part)
