"""The texts of a definition that a model may read, with where they stand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, NamedTuple

from assay_stream.detect.catalog import CATALOG
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.work import Work

_UNITS_PER_MEMBER = 10
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_KEY_CHARS_MAX = 64
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_PART = re.compile(r"[A-Za-z0-9]+")
_OWN_KEYS = frozenset((CATALOG.words.mcp_keys + CATALOG.words.json_schema_keys).split())
"""Keys that MCP and JSON Schema define: the names themselves say nothing."""


class Role(Enum):
    """How a model meets a text."""

    PARAMETER = "parameter"
    """The name of a parameter, which the model fills."""
    NAME = "name"
    """The name of the tool, or a key that nobody defined."""
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


class Text(NamedTuple):
    """One text of a definition.

    Args:
        role: how a model meets it.
        place: where it stands; for a name, where what it names stands.
        value: the text.
        is_free: of a parameter: whether it takes any text, so no closed list and no number.
        has_address: of a parameter: whether a URL or mail address is set for it.
    """

    role: Role
    place: Place
    value: str
    is_free: bool = False
    has_address: bool = False

    @property
    def path(self) -> str:
        """JSON path of it."""
        return path_of(self.place)

    @property
    def is_listed(self) -> bool:
        """Whether it is one of the values that a schema lists."""
        return self.place is not None and self.place[0] is not None and self.place[0][1] == "enum"

    @property
    def described_parameter(self) -> str | None:
        """The name of the parameter that this text describes, if it does and the name is a plain one."""
        if self.place is None or self.place[1] != "description" or self.place[0] is None:
            return None
        holder, name = self.place[0]
        if holder is None or holder[1] != "properties" or not isinstance(name, str):
            return None
        return name if _PLAIN_KEY.fullmatch(name) else None


def texts_of(definition: Mapping[str, Any], work: Work) -> Iterator[Text]:
    """Yield every text of a definition, by key and place, whatever the order of its keys."""
    pending: list[tuple[Place, str, Any, bool]] = [(None, "", definition, False)]
    while pending:
        place, key, value, in_properties = pending.pop()
        if isinstance(value, str):
            is_name = key == "name" and place is not None and place[0] is None
            yield Text(Role.NAME if is_name else Role.TEXT, place, value)
        elif isinstance(value, Mapping):
            work.spend(_UNITS_PER_MEMBER * len(value))
            is_properties = key == "properties" and not in_properties
            names = sorted(value, key=str)
            yield from _names(place, value, names, is_properties)
            pending.extend(((place, str(name)), str(name), value[name], is_properties) for name in reversed(names))
        elif isinstance(value, list | tuple):
            work.spend(_UNITS_PER_MEMBER * len(value))
            pending.extend(((place, index), "", value[index], False) for index in reversed(range(len(value))))


def _names(place: Place, value: Mapping[str, Any], names: list[str], is_properties: bool) -> Iterator[Text]:
    for name in map(str, names):
        if is_properties:
            schema = value.get(name)
            yield Text(Role.PARAMETER, (place, name), name, _is_free(schema), _has_address(schema))
        elif name not in _OWN_KEYS:
            yield Text(Role.NAME, (place, name), name)


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


def required_of(definition: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the parameters that a call must give, at the top of a tool's input schema."""
    schema = definition.get("inputSchema", definition.get("input_schema"))
    required = schema.get("required") if isinstance(schema, Mapping) else None
    return frozenset(name for name in required if isinstance(name, str)) if isinstance(required, list) else frozenset()


def name_words(name: str) -> tuple[str, ...]:
    """Return the words of a ``snake_case``, ``kebab-case`` or ``camelCase`` name, in lowercase."""
    if name.islower():
        return tuple(_PART.findall(name))
    return tuple(part.lower() for piece in _PART.findall(name) for part in _CAMEL.split(piece) if part)
