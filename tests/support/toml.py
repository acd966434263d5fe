"""Writing TOML, for tests: the standard library only reads it."""

import json
from typing import Any


def toml_of(document: dict[str, Any]) -> str:
    return "".join(f"{_text(name)} = {_value(value)}\n" for name, value in document.items())


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_text(name)} = {_value(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return _text(value)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
