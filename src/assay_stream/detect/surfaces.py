"""The texts of a definition that a model may read, with where they stand."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any

import msgspec

from assay_stream.detect.catalog import CATALOG
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.work import Work

_UNITS_PER_MEMBER = 10
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_KEY_CHARS_MAX = 64
_CACHED_NAMES_MAX = 4_096
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_PART = re.compile(r"[A-Za-z0-9]+")
_NO_TEXT = frozenset(("integer", "number", "boolean", "null"))
_JSON_TYPES = _NO_TEXT | {"string", "object", "array"}
"""One text in four or five is one of these, and they tell a model nothing but themselves."""
_CONTAINERS = (dict, list, tuple)
_OUTPUTS = ("outputSchema", "output_schema")
"""Their properties are named as parameters are, but the server fills them."""
_OWN_KEYS = frozenset((CATALOG.words.mcp_keys + CATALOG.words.json_schema_keys).split())
"""Keys defined by MCP and JSON Schema: the names themselves mean nothing."""


class TextRole(StrEnum):
    """How a model meets a text."""

    PARAMETER = "parameter"
    """The name of a parameter, which the model fills."""
    NAME = "name"
    """The name of the tool, or a key without a definition."""
    TEXT = "text"
    """Any other text."""


Place = tuple[Any, str | int] | None
"""Where a value stands: the place of what holds it, and its key or index; ``None`` for the definition itself.

Places share their beginnings, so that a thousand values deep inside a definition cost no thousand long paths.
"""


def path_of(place: Place) -> str:
    """Return the JSON path of a place, cut at ``path_chars_max``."""
    steps = []
    while place is not None:
        place, key = place
        steps.append(f"[{key}]" if isinstance(key, int) else _step(key))
    path = "$" + "".join(reversed(steps))
    chars_max = DEFAULT_LIMITS.path_chars_max
    return path if len(path) <= chars_max else path[: chars_max - 1] + "…"


def _step(name: str) -> str:
    return f".{name}" if _PLAIN_KEY.fullmatch(name) else f"[{json.dumps(name[:_KEY_CHARS_MAX])}]"


class Text(msgspec.Struct, frozen=True, gc=False):
    """One text of a definition.

    Args:
        role: how a model meets it.
        place: where it stands; for a name, where the named value stands.
        is_free: for a parameter: whether it takes any text, so no closed list and no number.
        has_address: for a parameter: whether a URL or mail address is set for it.
    """

    role: TextRole
    place: Place
    value: str
    is_free: bool = False
    has_address: bool = False

    @property
    def is_listed(self) -> bool:
        """Whether it is one of the values that a schema lists."""
        return self.place is not None and self.place[0] is not None and self.place[0][1] == "enum"

    @property
    def described_parameter(self) -> str | None:
        """The name of the parameter that this text describes, if it does and the name is a plain one."""
        return self.parameter_told if self.place is not None and self.place[1] == "description" else None

    @property
    def parameter_told(self) -> str | None:
        """The name of the parameter whose description or title this is."""
        if self.place is None or self.place[1] not in ("description", "title") or self.place[0] is None:
            return None
        holder, name = self.place[0]
        if holder is None or holder[1] != "properties" or not isinstance(name, str):
            return None
        return name if _PLAIN_KEY.fullmatch(name) else None

    @property
    def is_of_parameter(self) -> bool:
        """Whether it says what is to be passed for a parameter, or for an argument of a prompt."""
        holder = None if self.place is None else self.place[0]
        if holder is None or holder[0] is None or holder[0][1] not in ("properties", "arguments"):
            return False
        while holder[0] is not None:
            holder = holder[0]
        return holder[1] not in _OUTPUTS


def texts_of(definition: Mapping[str, Any], work: Work) -> list[Text]:
    """Return the texts of a tool, a prompt or a resource template, by key and place, whatever the order of its keys."""
    work.spend(_UNITS_PER_MEMBER * len(definition))
    names = sorted(definition)
    found = [Text(TextRole.NAME, (None, name), name) for name in names if name not in _OWN_KEYS]
    for name in names:
        found += _texts_in(name, definition[name], work)
    return found


def _texts_in(field: str, content: Any, work: Work) -> list[Text]:
    found: list[Text] = []
    pending: list[tuple[Place, str, Any, bool]] = [((None, field), field, content, False)]
    while pending:
        place, key, value, in_properties = pending.pop()
        if isinstance(value, str):
            is_name = key == "name" and place is not None and place[0] is None
            found.append(Text(TextRole.NAME if is_name else TextRole.TEXT, place, value))
        elif isinstance(value, dict):
            work.spend(_UNITS_PER_MEMBER * len(value))
            names = sorted(value)
            is_properties = key == "properties" and not in_properties
            if is_properties and field in _OUTPUTS:
                found += [Text(TextRole.PARAMETER, (place, name), name) for name in names]
            elif is_properties:
                found += [
                    Text(TextRole.PARAMETER, (place, name), name, _is_free(value[name]), _has_address(value[name]))
                    for name in names
                ]
            elif not _OWN_KEYS.issuperset(names):
                found += [Text(TextRole.NAME, (place, name), name) for name in names if name not in _OWN_KEYS]
            for number, name in enumerate(names):
                inner = value[name]
                if isinstance(inner, _CONTAINERS):
                    # What comes behind it waits until its own texts are listed.
                    rest = reversed(names[number:])
                    pending += [((place, each), each, value[each], is_properties) for each in rest]
                    break
                if isinstance(inner, str) and not (name == "type" and inner in _JSON_TYPES):
                    found.append(Text(TextRole.TEXT, (place, name), inner))
        elif isinstance(value, list | tuple):
            work.spend(_UNITS_PER_MEMBER * len(value))
            pending += [((place, index), "", value[index], False) for index in reversed(range(len(value)))]
    return found


def _is_free(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return True
    if "enum" in schema or "const" in schema:
        return False
    types = schema.get("type", "string")
    return not (isinstance(types, str) and types in _NO_TEXT)


def _has_address(schema: Any) -> bool:
    if not isinstance(schema, dict) or ("default" not in schema and "const" not in schema):
        return False
    set_values = (schema.get("default"), schema.get("const"))
    return any(isinstance(value, str) and ("://" in value or "@" in value) for value in set_values)


def required_of(definition: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the required parameters, at the top of a tool's input schema."""
    schema = definition.get("inputSchema", definition.get("input_schema"))
    required = schema.get("required") if isinstance(schema, Mapping) else None
    return frozenset(name for name in required if isinstance(name, str)) if isinstance(required, list) else frozenset()


def name_words(name: str) -> tuple[str, ...]:
    """Return the words of a ``snake_case``, ``kebab-case`` or ``camelCase`` name, in lowercase."""
    return _known_words(name) if len(name) <= _KEY_CHARS_MAX else _words_of(name)


def _words_of(name: str) -> tuple[str, ...]:
    if name.islower():
        return tuple(_PART.findall(name))
    return tuple(part.lower() for piece in _PART.findall(name) for part in _CAMEL.split(piece) if part)


_known_words = lru_cache(_CACHED_NAMES_MAX)(_words_of)
